//! Checks the read set of a transaction for newer entries or deletes, in two parts:
//!
//! - In the transaction's thread: search memtables and tables for entries newer than the snapshot, in each interval
//!   ([`Engine::changed_since`]). Compactions keep these entries and their numbers because of the snapshot.
//! - In the commit leader, for later changes: compare each newer entry in memory with the intervals
//!   ([`ReadCondition::decide`]).

use std::sync::Arc;

use bytes::Bytes;

use super::conflict_check::Overlay;
use crate::counters::Stripe;
use crate::db::engine::Engine;
use crate::db::queues::condition::{Admitted, Check, Decision, ReadCondition};
use crate::db::queues::intervals::Interval;
use crate::db::queues::read_set::{ReadSet, only_key};
use crate::db::read::sources::{Sources, newer_runs};
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::{Tree, View};
use crate::error::{Error, Result};
use crate::hash::key_hash;
use crate::iter::InternalIterator;
use crate::key::{InternalKey, SeqNo, Tag};
use crate::limits::SEQNO_MAX;
use crate::memtable::Entry;
use crate::snapshot_read::{KeyRange, Range};
use crate::spans::{Span, Spans, fragment};
use crate::version::Lookup;

pub(in crate::db) fn conflict(tree: &Tree, key: &[u8]) -> Error {
    Error::Conflict { keyspace: tree.name.clone(), key: key.into() }
}

impl Engine {
    /// Returns the first changed key. Covers every change visible before the call.
    pub(in crate::db) fn changed_since(&self, reads: &ReadSet, seqno: SeqNo) -> Result<Option<Error>> {
        for part in reads.parts() {
            let view = part.tree.view();
            self.check_readable(&part.tree)?;
            if !view.has_newer(seqno) {
                continue;
            }
            let deleted = RangeDeletes::above(&view, seqno);
            for interval in part.intervals() {
                let changed = match only_key(interval) {
                    Some(key) => self.is_changed(&view, key, seqno)?.then(|| key.clone()),
                    None => match (first_changed(&view, interval, seqno)?, deleted.first_in(interval)?) {
                        (Some(entry), Some(range)) => Some(entry.min(range)),
                        (entry, range) => entry.or(range),
                    },
                };
                if let Some(key) = changed {
                    return Ok(Some(conflict(&part.tree, &key)));
                }
            }
        }
        Ok(None)
    }

    /// `snapshot` is the state that was read; `checked`: the horizons already checked; `now`: the present horizons.
    pub(in crate::db) fn expired_since(
        &self,
        reads: &ReadSet,
        snapshot: SeqNo,
        checked: &[SeqNo],
        now: &[SeqNo],
    ) -> Result<Option<Error>> {
        for ((part, &horizon), &now) in
            reads.parts().zip(checked).zip(now).filter(|((_, old), now)| *old < now)
        {
            let view = part.tree.view();
            self.check_readable(&part.tree)?;
            for interval in part.intervals() {
                let before = Past { seqno: snapshot, horizon };
                if let Some(key) = first_expired(&view, interval, before, now)? {
                    return Ok(Some(conflict(&part.tree, &key)));
                }
            }
        }
        Ok(None)
    }

    fn is_changed(&self, view: &View, key: &[u8], seqno: SeqNo) -> Result<bool> {
        let hash = key_hash(self.keyspaces.hash_seed, key);
        match view.get_in_memtables(key, hash, SEQNO_MAX) {
            Some(newest) => Ok(newest.seqno() > seqno),
            None => {
                let stripe = Stripe::of_thread();
                let lookup = Lookup { user_key: key, seqno: SEQNO_MAX, hash, stripe };
                view.version.has_newer(&lookup, seqno)
            }
        }
    }
}

struct RangeDeletes<'v> {
    view: &'v View,
    seqno: SeqNo,
    in_memtables: Spans,
}

impl<'v> RangeDeletes<'v> {
    fn above(view: &'v View, seqno: SeqNo) -> Self {
        let in_memtables = view.memtables().flat_map(|memtable| memtable.memtable.spans().above(seqno));
        Self { view, seqno, in_memtables: fragment(in_memtables, &[]) }
    }

    fn first_in(&self, (start, end): Interval<'_>) -> Result<Option<Bytes>> {
        let end = end.map(|end| &end[..]);
        let first = |spans: &Spans| {
            let newer = |span: &Span<'_>| span.seqnos.first().is_some_and(|newest| *newest > self.seqno);
            let span = spans.overlapping(start, end).find(newer)?;
            Some(Bytes::copy_from_slice(span.start).max(start.clone()))
        };
        let mut found = first(&self.in_memtables);
        if !self.view.version.has_spans() {
            return Ok(found);
        }
        for (_, run) in self.view.version.all_runs() {
            let part = run.between(|key| key < &start[..], |key| end.is_some_and(|end| key >= end));
            for table in run.tables[part].iter().filter(|table| table.meta.seqno_max > self.seqno) {
                if let Some(key) = table.spans()?.and_then(|spans| first(&spans)) {
                    found = Some(found.map_or_else(|| key.clone(), |found| found.min(key.clone())));
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn first_expired(
    view: &Arc<View>,
    (start, end): Interval<'_>,
    before: Past,
    horizon: SeqNo,
) -> Result<Option<Bytes>> {
    let range = KeyRange::half_open_of(start.clone(), end.cloned());
    let keys = |past: Past| {
        let (view, within) = (Arc::clone(view), range.clone());
        let source = move || Ok(Sources::new(&view, &within, past, None));
        Range::new(Box::new(source), past.seqno, range.clone())
    };
    let (mut before, mut now) = (keys(before), keys(Past { horizon, ..before }));
    while let Some(read) = before.next()? {
        // The iterator at the higher horizon sees a subset.
        if now.next()?.is_none_or(|left| left.key != read.key) {
            return Ok(Some(Bytes::copy_from_slice(read.key)));
        }
    }
    Ok(None)
}

fn first_changed(view: &View, (start, end): Interval<'_>, seqno: SeqNo) -> Result<Option<Bytes>> {
    let mut first: Option<Bytes> = None;
    let newer = view.memtables().map(|logged| &logged.memtable);
    for memtable in newer.filter(|memtable| memtable.seqno_max() > Some(seqno)) {
        let by_age = memtable.newest_first().take_while(|entry| entry.tag().seqno() > seqno);
        let end = first.as_ref().or(end);
        first = first_in_memtable(&mut memtable.iter(), by_age, (start, end), seqno)?.or(first);
    }
    for mut run in newer_runs(view, start, end.map(|end| &end[..]), seqno) {
        let end = first.as_ref().or(end);
        first = first_newer(&mut run, start, end, seqno)?.or(first);
    }
    Ok(first)
}

/// Alternates between entries of the interval and newer entries (`by_age`) until one of the two ends.
fn first_in_memtable<'m>(
    by_key: &mut dyn InternalIterator,
    mut by_age: impl Iterator<Item = Entry<'m>>,
    (start, end): Interval<'_>,
    seqno: SeqNo,
) -> Result<Option<Bytes>> {
    by_key.seek(InternalKey::new(start, Tag::newest_at(SEQNO_MAX)))?;
    let (mut changed, mut first) = (Vec::new(), None::<Vec<u8>>);
    while let Some(key) = by_key.key().filter(|key| end.is_none_or(|end| key.user < &end[..])) {
        if key.tag.seqno() > seqno {
            return Ok(Some(Bytes::copy_from_slice(key.user)));
        }
        by_key.next()?;
        let Some(entry) = by_age.next() else { return Ok(first.map(Bytes::from)) };
        entry.copy_key(&mut changed);
        let is_within = changed[..] >= *start && end.is_none_or(|end| changed[..] < end[..]);
        if is_within && first.as_ref().is_none_or(|first| changed < *first) {
            first = Some(changed.clone());
        }
    }
    Ok(None)
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

impl ReadCondition {
    pub(in crate::db) fn new(reads: ReadSet, read_at: SeqNo, horizons: Vec<SeqNo>) -> Self {
        Self { reads, read_at, horizons, check: Check::Open }
    }

    pub(in crate::db) fn decision(&self) -> Decision {
        match self.check {
            Check::Open => Decision::Open,
            Check::LookAgain => Decision::LookAgain,
            Check::Unchanged => Decision::Write,
            Check::Refused { rests_on_group, .. } => Decision::Nothing { rests_on_group },
        }
    }

    /// `visible` is the newest write; `earlier` are the earlier batches of the group. O(log intervals) for each newer
    /// entry.
    pub(in crate::db) fn decide(&mut self, visible: SeqNo, earlier: &[Admitted], overlay: &Overlay) {
        self.check = self
            .in_memtables(visible)
            .or_else(|| self.in_group(earlier, overlay))
            .unwrap_or(Check::Unchanged);
    }

    fn in_memtables(&self, visible: SeqNo) -> Option<Check> {
        for (part, horizon) in self.reads.parts().zip(&self.horizons) {
            if let Err(why) = part.tree.check_alive() {
                return Some(Check::Refused { why, rests_on_group: false });
            }
            if part.tree.horizon() != *horizon {
                return Some(Check::LookAgain);
            }
            if visible == self.read_at {
                continue;
            }
            let Some(memtables) = part.tree.memtables_since(self.read_at) else {
                return Some(Check::LookAgain);
            };
            let (mut key, mut first) = (Vec::new(), None);
            for entry in memtables.iter().flat_map(|memtable| {
                memtable.newest_first().take_while(|entry| entry.tag().seqno() > self.read_at)
            }) {
                entry.copy_key(&mut key);
                if first.as_ref().is_none_or(|first| key < *first) && part.contains(&key) {
                    first = Some(key.clone());
                }
            }
            for range_delete in memtables.iter().flat_map(|memtable| memtable.spans().above(self.read_at)) {
                if let Some(key) = part.first_in(&range_delete.start, range_delete.end())
                    && first.as_ref().is_none_or(|first| *key < **first)
                {
                    first = Some(key.to_vec());
                }
            }
            if let Some(key) = first {
                return Some(Check::Refused { why: conflict(&part.tree, &key), rests_on_group: false });
            }
        }
        None
    }

    fn in_group(&self, earlier: &[Admitted], overlay: &Overlay) -> Option<Check> {
        let read =
            |&(keyspace, key): &(_, &[u8])| self.reads.part(keyspace).is_some_and(|part| part.contains(key));
        let key = overlay.keys(earlier).filter(read).min().map(|(keyspace, key)| (keyspace, key.to_vec()));
        let deleted = overlay.range_deletes().filter_map(|(keyspace, range_delete)| {
            let part = self.reads.part(keyspace)?;
            let key = part.first_in(&range_delete.start, range_delete.end())?;
            Some((keyspace, key.to_vec()))
        });
        let (keyspace, key) = deleted.chain(key).min()?;
        let why = conflict(&self.reads.part(keyspace)?.tree, &key);
        Some(Check::Refused { why, rests_on_group: true })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::db::Db;
    use crate::fs::MemFs;
    use crate::options::Options;

    /// Returns the key found, and the number of entries read by age.
    fn find(db: &Db, (start, end): (&str, &str), seqno: SeqNo) -> (Option<Bytes>, u64) {
        let view = db.engine().keyspaces.default_tree().view();
        let memtable = &view.active.as_ref().unwrap().memtable;
        let read = Cell::new(0);
        let newest = memtable.newest_first().take_while(|entry| entry.tag().seqno() > seqno);
        let by_age = newest.inspect(|_| read.set(read.get() + 1));
        let [start, end] = [start, end].map(|key| Bytes::copy_from_slice(key.as_bytes()));
        let interval = (&start, Some(&end));
        let found = first_in_memtable(&mut memtable.iter(), by_age, interval, seqno).unwrap();
        assert_eq!(found, first_newer(&mut memtable.iter(), interval.0, interval.1, seqno).unwrap());
        (found, read.get())
    }

    #[test]
    fn a_search_for_changes_ends_with_the_interval_or_with_the_changes_whichever_is_shorter() {
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        let key = |n: u32| format!("{n:05}");
        (0..5000).for_each(|n| db.put(key(n), "v").unwrap());
        let before = db.engine().sequence.visible();
        (0..3).for_each(|n| db.put(key(4000 + n), "w").unwrap());
        // Three changes: one long interval has them; another long one and a short one have none.
        assert_eq!(find(&db, ("00000", "99999"), before), (Some(key(4000).into()), 3));
        assert_eq!(find(&db, ("00000", "04000"), before), (None, 3));
        assert_eq!(find(&db, ("00000", "00002"), before), (None, 2));
        assert_eq!(find(&db, ("03999", "04009"), before).0, Some(key(4000).into()));
        (0..2000).for_each(|n| db.put(key(n), "w").unwrap());
        assert_eq!(find(&db, ("03000", "03002"), before), (None, 2));
        assert_eq!(find(&db, ("01999", "03000"), before), (Some(key(1999).into()), 0));
    }
}
