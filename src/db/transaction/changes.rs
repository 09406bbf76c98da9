//! Whether what a transaction has read was changed since.
//!
//! A change is an entry with a larger sequence number than a given one; a delete counts too. It is looked for in
//! two ways:
//!
//! - by the thread of the transaction, from its snapshot on: in the memtables and in those tables that have such
//!   entries, for each interval that was read ([`Engine::changed_since`]). The snapshot is registered, so no
//!   compaction has removed the newest entry of a key above it, or its number.
//! - by the commit leader, for what came after that: for each entry that was written since, whether it was read
//!   ([`ReadCondition::decide`]). The leader reads no table and no older entry of a memtable.

use std::sync::Arc;

use bytes::Bytes;

use super::read_set::{Interval, ReadSet, only_key};
use crate::counters::Stripe;
use crate::db::decide::{Decision, Overlay};
use crate::db::engine::Engine;
use crate::db::queue::Admitted;
use crate::db::sources::newer_sources;
use crate::db::tree::{Tree, View};
use crate::error::{Error, Result};
use crate::hash::key_hash;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, SeqNo, Tag};
use crate::limits::SEQNO_MAX;
use crate::memtable::Memtable;
use crate::version::Lookup;

/// The error of a transaction that has read a key which was changed.
pub(super) fn conflict(tree: &Tree, key: &[u8]) -> Error {
    Error::Conflict { keyspace: tree.name.clone(), key: key.into() }
}

impl Engine {
    /// The conflict with the first change above this number that a transaction should have seen. Every change that
    /// was visible before the call is found.
    pub(super) fn changed_since(&self, reads: &ReadSet, seqno: SeqNo) -> Result<Option<Error>> {
        for part in reads.parts() {
            let view = part.tree.view();
            // After loading the view, as readers do.
            self.check_readable(&part.tree)?;
            if !view.has_newer(seqno) {
                continue;
            }
            for interval in part.intervals() {
                let changed = match only_key(interval) {
                    Some(key) => self.is_changed(&view, key, seqno)?.then(|| key.clone()),
                    None => first_changed(&view, interval, seqno)?,
                };
                if let Some(key) = changed {
                    return Ok(Some(conflict(&part.tree, &key)));
                }
            }
        }
        Ok(None)
    }

    fn is_changed(&self, view: &View, key: &[u8], seqno: SeqNo) -> Result<bool> {
        let hash = key_hash(self.keyspaces.hash_seed, key);
        let lookup = Lookup { user_key: key, seqno: SEQNO_MAX, hash, stripe: Stripe::of_thread() };
        match view.get_in_memtables(&lookup) {
            Some((tag, _)) if tag.seqno() > seqno => Ok(true),
            // Tables have older entries.
            Some(_) => Ok(false),
            None => view.version.has_newer(&lookup, seqno),
        }
    }
}

/// The first key of an interval that has an entry above this number.
fn first_changed(view: &View, (start, end): Interval<'_>, seqno: SeqNo) -> Result<Option<Bytes>> {
    let mut first: Option<Bytes> = None;
    for mut source in newer_sources(view, start, end.map(|end| &end[..]), seqno) {
        let end = first.as_ref().or(end);
        first = first_newer(&mut *source, start, end, seqno)?.or(first);
    }
    Ok(first)
}

fn first_newer(
    source: &mut dyn InternalIterator,
    start: &[u8],
    end: Option<&Bytes>,
    seqno: SeqNo,
) -> Result<Option<Bytes>> {
    source.seek(InternalKey::new(start, Tag::newest_at(SEQNO_MAX)))?;
    while let Some(key) = source.key() {
        if end.is_some_and(|end| key.user >= end) {
            break;
        }
        if key.tag.seqno() > seqno {
            return Ok(Some(Bytes::copy_from_slice(key.user)));
        }
        source.next()?;
    }
    Ok(None)
}

/// What a transaction has read, for the leader to decide whether its batch is written.
pub(in crate::db) struct ReadCondition {
    reads: ReadSet,
    /// Why it is not written.
    refused: Option<Error>,
}

/// Why a batch is not written.
enum Refusal {
    /// A memtable with newer entries is gone.
    Unknown,
    /// This error, which may rest on a batch of the same group.
    Known(Error, bool),
}

impl ReadCondition {
    pub(super) fn new(reads: ReadSet) -> Self {
        Self { reads, refused: None }
    }

    pub(super) fn into_parts(self) -> (ReadSet, Option<Error>) {
        (self.reads, self.refused)
    }

    /// Decides whether the batch may be written. The caller has found no change up to `read_at`; `visible` is the
    /// newest write, and `earlier` are the batches before it in the group. Also returns whether the decision rests
    /// on one of these. O(log n) for each entry written since, where n is the number of intervals.
    pub(in crate::db) fn decide(
        &mut self,
        read_at: SeqNo,
        visible: SeqNo,
        earlier: &[Admitted],
        overlay: &Overlay,
    ) -> (Decision, bool) {
        match self.check(read_at, visible, earlier, overlay) {
            Ok(()) => (Decision::Write, false),
            Err(Refusal::Unknown) => (Decision::LookAgain, false),
            Err(Refusal::Known(error, rests_on_group)) => {
                self.refused = Some(error);
                (Decision::Nothing, rests_on_group)
            }
        }
    }

    fn check(
        &self,
        read_at: SeqNo,
        visible: SeqNo,
        earlier: &[Admitted],
        overlay: &Overlay,
    ) -> Result<(), Refusal> {
        for part in self.reads.parts() {
            part.tree.check_alive().map_err(|error| Refusal::Known(error, false))?;
            if visible > read_at {
                let memtables = part.tree.memtables_since(read_at).ok_or(Refusal::Unknown)?;
                let newer = |memtable: &'_ Arc<Memtable>| {
                    let mut newer = memtable.newest_first().take_while(|(_, tag)| tag.seqno() > read_at);
                    newer.find(|(key, _)| part.contains(key)).map(|(key, _)| conflict(&part.tree, key))
                };
                if let Some(error) = memtables.iter().find_map(newer) {
                    return Err(Refusal::Known(error, false));
                }
            }
        }
        for (keyspace, key) in overlay.keys(earlier) {
            if let Some(part) = self.reads.part(keyspace).filter(|part| part.contains(key)) {
                return Err(Refusal::Known(conflict(&part.tree, key), true));
            }
        }
        Ok(())
    }
}
