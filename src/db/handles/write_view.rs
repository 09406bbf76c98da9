//! Where a handle writes.

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::handles::conditional::answers::{Mismatch, NewKeys};
use crate::db::handles::owner::Owner;
use crate::db::latencies::Call;
use crate::db::queues::condition::Rule;
use crate::db::queues::value::Value;
use crate::db::state::durability::Durability;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::db::write::completion::Commit;
use crate::db::write::inserts::{New, Then};
use crate::db::write::key_writes::{KeyWrite, Single};
use crate::error::Result;
use crate::limits::BATCH_BYTES_MAX;
use crate::snapshot_read::KeyRange;
use crate::{WriteBatch, batch};

pub(in crate::db) struct Writes<'a> {
    pub(in crate::db) owner: &'a Arc<Owner>,
    pub(in crate::db) tree: &'a Arc<Tree>,
}

impl Writes<'_> {
    pub(in crate::db) fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()> {
        self.write(key, Some(value), durability)
    }

    pub(in crate::db) fn delete(&self, key: &[u8], durability: Durability) -> Result<()> {
        self.write(key, None, durability)
    }

    pub(in crate::db) fn delete_range(&self, range: &KeyRange, durability: Durability) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.push_range(self.tree.id, range);
        let engine = self.owner.engine();
        let (bytes, _, count) = batch.into_parts()?;
        engine.latencies.time(Call::Write.of_write(durability), || match count {
            0 => engine.check_writable().and_then(|()| self.tree.check_alive()),
            _ => engine.write_in(self.tree, bytes, durability),
        })
    }

    #[inline(always)]
    fn write(&self, key: &[u8], value: Option<&[u8]>, durability: Durability) -> Result<()> {
        let (engine, tree) = (self.owner.engine(), self.tree);
        let bytes = batch::of_one(tree.id, key, value)?;
        // A write that is not timed takes the path used without histograms, because its code is cached.
        if engine.latencies.are_on() && engine.latencies.choose(Call::Write.of_write(durability)) {
            return write_timed(engine, tree, bytes, durability);
        }
        engine.write_in(tree, bytes, durability)
    }

    pub(in crate::db) fn write_if(&self, write: KeyWrite<'_>, durability: Durability) -> Result<Single> {
        self.conditional(durability, || self.owner.engine().write_if(self.tree, write))
    }

    pub(in crate::db) fn write_if_pending(
        &self,
        write: KeyWrite<'_>,
        durability: Durability,
    ) -> Result<(Single, Commit)> {
        let engine = self.owner.engine();
        engine.pending(durability, || engine.write_if(self.tree, write))
    }

    pub(in crate::db) fn compare_and_set(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        durability: Durability,
    ) -> Result<Result<(), Mismatch>> {
        let rule = expected.map_or(Rule::Absent, |expected| Rule::Equals(expected.into()));
        let write = KeyWrite { key, value: new, rule, is_read: true };
        let Single { is_allowed, before } = self.write_if(write, durability)?;
        Ok(if is_allowed { Ok(()) } else { Err(Mismatch { found: before }) })
    }

    pub(in crate::db) fn insert_new<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        durability: Durability,
        then: Option<Then<'_>>,
    ) -> Result<NewKeys> {
        self.conditional(durability, || self.insert_visible(entries, then))
    }

    pub(in crate::db) fn insert_new_pending<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        durability: Durability,
    ) -> Result<(NewKeys, Commit)> {
        self.owner.engine().pending(durability, || self.insert_visible(entries, None))
    }

    fn insert_visible<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
        then: Option<Then<'_>>,
    ) -> Result<(NewKeys, Option<LogPosition>)> {
        let mut left = Some(BATCH_BYTES_MAX);
        let fits = |(key, value): &(K, V)| {
            let is_possible = left.is_some();
            left = left.and_then(|left| left.checked_sub(key.as_ref().len() + value.as_ref().len() + 1));
            is_possible
        };
        let entries: Vec<(K, V)> = entries.into_iter().take_while(fits).collect();
        let entries = entries.iter().map(|(key, value)| New { key: key.as_ref(), value: value.as_ref() });
        let entries: Vec<New<'_>> = entries.collect();
        let (new, up_to) = self.owner.engine().insert_new(self.tree, &entries, then)?;
        Ok((NewKeys(new), up_to))
    }

    pub(in crate::db) fn update(
        &self,
        key: &[u8],
        durability: Durability,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Value>> {
        self.conditional(durability, || self.owner.engine().update(self.tree, key, change))
    }

    /// Makes the answer durable, if requested. `call` returns the log position to sync; `None`: everything visible.
    fn conditional<A>(
        &self,
        durability: Durability,
        call: impl FnOnce() -> Result<(A, Option<LogPosition>)>,
    ) -> Result<A> {
        let engine = self.owner.engine();
        engine.latencies.time(Call::ConditionalWrite.of_write(durability), || {
            let (answer, up_to) = call()?;
            engine.make_durable(up_to, durability).map(|()| answer)
        })
    }
}

/// Out of line, so that a write that is not timed stays inlined.
#[cold]
#[inline(never)]
fn write_timed(engine: &Engine, tree: &Arc<Tree>, bytes: Vec<u8>, durability: Durability) -> Result<()> {
    let _timer = engine.latencies.timer(Call::Write.of_write(durability));
    engine.write_in(tree, bytes, durability)
}
