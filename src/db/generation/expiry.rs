//! The time of a keyspace whose entries expire, and the bucket boundaries that the manifest lacks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::batch::KeyspaceId;
use crate::db::engine::Engine;
use crate::db::state::expiry::clock::Now;
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::expiry::options::{Expiry, TimeSource};
use crate::key::SeqNo;
use crate::manifest::edit::EditItem;
use crate::manifest::state::ManifestState;
use crate::sync::lock;

/// The time of a keyspace.
#[derive(Debug, Clone, Copy)]
pub(in crate::db) struct Time {
    /// In milliseconds.
    pub(in crate::db) now: u64,
    /// Whether the clock has leapt in the last bucket, or the store was opened in it: a time far from the last boundary is
    /// not certain.
    pub(in crate::db) is_doubtful: bool,
    /// When that ends.
    pub(in crate::db) certain_at: u64,
}

/// A horizon that is due.
pub(in crate::db) struct Rise {
    pub(in crate::db) tree: Arc<Tree>,
    pub(in crate::db) horizon: SeqNo,
    /// Whether it rests on a time that may be wrong.
    pub(in crate::db) is_doubtful: bool,
}

/// The time by the clock of a keyspace, if that of the system was read as `now`. `None` if it was not, or if the caller has
/// not set the time yet.
pub(in crate::db) fn time_by(now: Option<Now>, tree: &Tree, expiry: &Expiry) -> Option<Time> {
    if expiry.time_source == TimeSource::Caller {
        let now = Some(tree.caller_time()).filter(|now| *now > 0);
        return now.map(|now| Time { now, is_doubtful: false, certain_at: now });
    }
    let Now { time, even_for } = now?;
    let missing = expiry.bucket_millis().saturating_sub(even_for);
    Some(Time { now: time, is_doubtful: missing > 0, certain_at: time.saturating_add(missing) })
}

impl Engine {
    /// The time by the clock of a keyspace; `None` if its caller has not set the time yet.
    pub(in crate::db) fn time_of(&self, tree: &Tree, expiry: &Expiry) -> Result<Option<Time>> {
        let now = match expiry.time_source {
            TimeSource::System => Some(self.clock.read()?),
            TimeSource::Caller => None,
        };
        Ok(time_by(now, tree, expiry))
    }

    /// Has the background look at once which horizons are due.
    pub(in crate::db) fn look_at_expiry(&self) {
        self.look_at_expiry_at(0);
    }

    /// Has the background look at that time, in milliseconds by the clock of the system, or earlier.
    pub(in crate::db) fn look_at_expiry_at(&self, time: u64) {
        self.expiry_look_at.fetch_min(time, Ordering::AcqRel);
    }

    /// The first sequence number of the present bucket of a keyspace; a new one if the bucket begins with the next entry.
    /// `None` if no time is known.
    pub(in crate::db) fn open_bucket(&self, tree: &Tree) -> Result<Option<SeqNo>> {
        let Some(expiry) = tree.expiry() else { return Ok(None) };
        let Some(time) = self.time_of(tree, &expiry)? else { return Ok(None) };
        let (buckets, next) = (tree.buckets(), self.sequence.visible() + 1);
        let begun = buckets.next(&expiry, time.now, time.is_doubtful, next);
        let last = begun.boundaries.last().copied().or_else(|| buckets.last());
        Ok(last.map(|last| last.seqno))
    }

    /// The horizon of a keyspace that is due, if it has risen and hides anything.
    pub(in crate::db) fn rise_of(
        &self,
        tree: &Arc<Tree>,
        expiry: &Expiry,
        time: Time,
        visible: SeqNo,
    ) -> Option<Rise> {
        let buckets = tree.buckets();
        let horizon = buckets.due(expiry, time.now, visible);
        let is_doubtful = time.is_doubtful && buckets.is_leap(expiry, time.now);
        let before = if is_doubtful { tree.horizon() } else { buckets.horizon() };
        let hides = horizon > before && tree.view().has_newer_than_or_at(before);
        hides.then(|| Rise { tree: Arc::clone(tree), horizon, is_doubtful })
    }

    /// Hides entries below these horizons, in memory only.
    pub(in crate::db) fn hide(&self, rises: &[Rise]) {
        let changes: Vec<_> = rises.iter().map(|rise| (rise.tree.id, rise.horizon)).collect();
        let _gate = lock(&self.horizon_gate);
        self.sequence.snapshots.raise(&changes, || {
            rises.iter().for_each(|rise| rise.tree.hide_below(rise.horizon));
        });
    }

    /// Hides expired entries in memory when the store is opened: all of them for a reader, for a writer only if the time may
    /// be wrong. Returns the length of the leap of the clock, if there may be one.
    pub(in crate::db) fn hide_at_opening(&self, is_reader: bool) -> Option<Duration> {
        let visible = self.sequence.visible();
        let (mut rises, mut leap) = (Vec::new(), None);
        for tree in self.keyspaces.expiring() {
            let Some(expiry) = tree.expiry() else { continue };
            let Ok(Some(time)) = self.time_of(&tree, &expiry) else { continue };
            leap = leap.max(self.leap_of(&tree, &expiry, time));
            rises.extend(
                self.rise_of(&tree, &expiry, time, visible).filter(|rise| is_reader || rise.is_doubtful),
            );
        }
        self.hide(&rises);
        leap
    }

    /// Hides the entries that an earlier view of the same store has hidden: its clock may have been ahead.
    pub(in crate::db) fn hide_what_was_hidden(&self, before: &[(KeyspaceId, SeqNo)]) {
        let rise = |&(id, horizon): &(KeyspaceId, SeqNo)| {
            let tree = self.keyspaces.get(id).filter(|tree| tree.horizon() < horizon)?;
            Some(Rise { tree, horizon, is_doubtful: true })
        };
        self.hide(&before.iter().filter_map(rise).collect::<Vec<_>>());
    }

    /// How far the time is beyond the last boundary of a keyspace, if that may be because the clock is wrong.
    fn leap_of(&self, tree: &Tree, expiry: &Expiry, time: Time) -> Option<Duration> {
        let buckets = tree.buckets();
        let last = buckets.last().filter(|_| time.is_doubtful && buckets.is_leap(expiry, time.now))?;
        Some(Duration::from_millis(time.now - last.time))
    }

    /// The furthest leap of the clock that no keyspace trusts yet.
    pub(in crate::db) fn clock_leap(&self) -> Option<Duration> {
        let leap = |tree: &Arc<Tree>| {
            let expiry = tree.expiry()?;
            self.leap_of(tree, &expiry, self.time_of(tree, &expiry).ok()??)
        };
        self.keyspaces.expiring().iter().filter_map(leap).max()
    }

    /// Notes which boundaries the manifest in force has.
    pub(super) fn note_stated_boundaries(&self, state: &ManifestState) {
        let is_stated = |id| {
            let (Some(tree), Some(keyspace)) = (self.keyspaces.get(id), state.keyspaces.get(&id)) else {
                return true;
            };
            tree.buckets().last().map(|last| last.seqno) <= keyspace.buckets.last().map(|last| last.seqno)
        };
        if self.keyspaces.memtables.any_expire() {
            self.keyspaces.memtables.forget_unstated(is_stated);
        }
    }

    /// The boundaries that a manifest in this state lacks, as far as they rest on numbers up to `visible`. The edit that
    /// states them also states that number, so that none of these is assigned again if the log is lost.
    pub(in crate::db) fn missing_boundaries(&self, state: &ManifestState, visible: SeqNo) -> Vec<EditItem> {
        let mut missing = Vec::new();
        for tree in self.keyspaces.with_unstated_boundaries() {
            let Some(keyspace) = state.keyspaces.get(&tree.id) else { continue };
            let (buckets, last) = (tree.buckets(), keyspace.buckets.last());
            let is_missing = |seqno| last.is_none_or(|last| last.seqno < seqno) && seqno <= visible + 1;
            let boundaries = buckets.boundaries().iter().filter(|boundary| is_missing(boundary.seqno));
            let item = |&boundary| EditItem::BucketBoundary { keyspace: tree.id, boundary };
            missing.extend(boundaries.map(item));
        }
        missing
    }
}
