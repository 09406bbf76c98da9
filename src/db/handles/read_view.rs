//! Where a handle reads: a keyspace, now or at a snapshot, with the writes of a batch over it.

use std::sync::Arc;

use bytes::Bytes;

use crate::db::handles::owner::Owner;
use crate::db::latencies::Call;
use crate::db::read::own_writes::Own;
use crate::db::read::sources::Sources;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::{Tree, View};
use crate::error::{Error, Result};
use crate::iter::EntryValue;
use crate::key::SeqNo;
use crate::snapshot_read::{KeyRange, Moment};

pub(in crate::db) type SourceOf = Box<dyn FnMut() -> Result<Sources> + Send>;

pub(in crate::db) struct Reads<'a> {
    pub(in crate::db) owner: &'a Arc<Owner>,
    pub(in crate::db) tree: &'a Arc<Tree>,
    pub(in crate::db) past: Option<Past>,
    pub(in crate::db) is_foreign: bool,
    pub(in crate::db) own: Option<Box<Own>>,
}

impl Reads<'_> {
    pub(in crate::db) fn check(&self) -> Result<()> {
        if self.is_foreign {
            return Err(Error::invalid("the keyspace belongs to another store than the snapshot"));
        }
        match &self.own {
            None => Ok(()),
            Some(own) => own.check(),
        }
    }

    /// Returns the batch's own write of a key. If there is none, records a read of the store.
    fn own(&self, key: &[u8]) -> Result<Option<&Option<Bytes>>> {
        let Some(own) = self.own.as_deref() else { return Ok(None) };
        let Some(found) = own.find(key) else {
            own.note_key(key);
            return Ok(None);
        };
        self.owner.engine().check_readable(self.tree)?;
        Ok(Some(found))
    }

    fn moment(&self) -> Result<(Arc<View>, Moment, SeqNo)> {
        self.check()?;
        let engine = self.owner.engine();
        let known = self.tree.empty_ranges.known();
        let (view, Past { seqno, horizon }) = engine.moment(self.tree, self.past.as_ref())?;
        Ok((view, Moment::new(seqno, known), horizon))
    }

    pub(in crate::db) fn sources(&self, range: &KeyRange) -> Result<(Arc<View>, Moment, SourceOf)> {
        let (view, mut moment, horizon) = self.moment()?;
        let own = self.own.as_deref().and_then(Own::spans);
        // The present horizon is read after the empty ranges, so a reader with an equal horizon can skip them.
        if own.is_some() || horizon != self.tree.horizon() {
            // Keys hidden by own range deletes exist for other readers; expired ones exist for older snapshots.
            moment = moment.seqno().into();
        }
        let (of, range, past) = (Arc::clone(&view), range.clone(), Past { seqno: moment.seqno(), horizon });
        let source = move || Ok(Sources::new(&of, &range, past, own.as_ref()));
        Ok((view, moment, Box::new(source)))
    }

    #[inline(always)]
    pub(in crate::db) fn get<T>(
        &self,
        key: &[u8],
        read: impl FnOnce(EntryValue) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.own.is_none() && !self.is_foreign {
            return self.owner.engine().get(self.tree, key, self.past.as_ref(), read);
        }
        self.get_over_own(key, read)
    }

    #[inline(never)]
    fn get_over_own<T>(&self, key: &[u8], read: impl FnOnce(EntryValue) -> Result<T>) -> Result<Option<T>> {
        self.check()?;
        match self.own(key)? {
            None => self.owner.engine().get(self.tree, key, self.past.as_ref(), read),
            Some(own) => own.clone().map(|value| read(EntryValue::Inline(value))).transpose(),
        }
    }

    pub(in crate::db) fn multi_get<T: Send>(
        &self,
        keys: &[impl AsRef<[u8]>],
        read: impl Fn(EntryValue) -> Result<T> + Sync,
    ) -> Result<Vec<Option<T>>> {
        self.check()?;
        let engine = self.owner.engine();
        if self.own.is_none() {
            return engine
                .latencies
                .time(Call::Multi, || engine.multi_get(self.tree, keys, self.past.as_ref(), read));
        }
        let own = keys.iter().map(|key| self.own(key.as_ref())).collect::<Result<Vec<_>>>()?;
        let others: Vec<&[u8]> =
            keys.iter().zip(&own).filter(|(_, own)| own.is_none()).map(|(key, _)| key.as_ref()).collect();
        let stored = || engine.multi_get(self.tree, &others, self.past.as_ref(), &read);
        let mut stored = engine.latencies.time(Call::Multi, stored)?.into_iter();
        let value = |own: Option<&Option<Bytes>>| match own {
            None => Ok(stored.next().flatten()),
            Some(own) => own.clone().map(|value| read(EntryValue::Inline(value))).transpose(),
        };
        own.into_iter().map(value).collect()
    }

    pub(in crate::db) fn multi_contains(&self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<bool>> {
        if self.own.is_some() {
            let found = self.multi_get(keys, |_| Ok(()))?;
            return Ok(found.iter().map(Option::is_some).collect());
        }
        self.check()?;
        let engine = self.owner.engine();
        engine.latencies.time(Call::Multi, || engine.multi_contains(self.tree, keys, self.past.as_ref()))
    }
}
