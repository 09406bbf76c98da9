//! Time of expiring keyspaces, and boundaries that are missing in the manifest.

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

#[derive(Debug, Clone, Copy)]
pub(in crate::db) struct Time {
    pub(in crate::db) now: u64,
    /// After an opening or a leap of the clock, a time far from the last boundary is uncertain for the length of one
    /// bucket.
    pub(in crate::db) is_doubtful: bool,
    pub(in crate::db) certain_at: u64,
}

pub(in crate::db) struct Rise {
    pub(in crate::db) tree: Arc<Tree>,
    pub(in crate::db) horizon: SeqNo,
    pub(in crate::db) is_doubtful: bool,
}

/// Returns `None` before the system time or the caller's time is set.
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
    pub(in crate::db) fn time_of(&self, tree: &Tree, expiry: &Expiry) -> Result<Option<Time>> {
        let now = match expiry.time_source {
            TimeSource::System => Some(self.clock.read()?),
            TimeSource::Caller => None,
        };
        Ok(time_by(now, tree, expiry))
    }

    pub(in crate::db) fn look_at_expiry(&self) {
        self.look_at_expiry_at(0);
    }

    /// `time` is the latest time of the next check, in milliseconds by the system clock.
    pub(in crate::db) fn look_at_expiry_at(&self, time: u64) {
        self.expiry_look_at.fetch_min(time, Ordering::AcqRel);
    }

    /// Returns the first sequence number of the present bucket, or a new one if the next entry begins a bucket.
    /// Returns `None` while the time is unknown.
    pub(in crate::db) fn open_bucket(&self, tree: &Tree) -> Result<Option<SeqNo>> {
        let Some(expiry) = tree.expiry() else { return Ok(None) };
        let Some(time) = self.time_of(tree, &expiry)? else { return Ok(None) };
        let (buckets, next) = (tree.buckets(), self.sequence.visible() + 1);
        let begun = buckets.next(&expiry, time.now, time.is_doubtful, next);
        let last = begun.boundaries.last().copied().or_else(|| buckets.last());
        Ok(last.map(|last| last.seqno))
    }

    /// Returns `None` if the horizon would hide no entry.
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

    pub(in crate::db) fn hide(&self, rises: &[Rise]) {
        let changes: Vec<_> = rises.iter().map(|rise| (rise.tree.id, rise.horizon)).collect();
        let _gate = lock(&self.horizon_gate);
        self.sequence.snapshots.raise(&changes, || {
            rises.iter().for_each(|rise| rise.tree.hide_below(rise.horizon));
        });
    }

    /// Hides expired entries in memory; in a writer, only if the time may be wrong, because `jobs/expire` raises the
    /// other horizons. Returns the possible leap of the clock.
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

    /// Keeps entries hidden that an earlier view has hidden, because the clock may have been ahead.
    pub(in crate::db) fn hide_what_was_hidden(&self, before: &[(KeyspaceId, SeqNo)]) {
        let rise = |&(id, horizon): &(KeyspaceId, SeqNo)| {
            let tree = self.keyspaces.get(id).filter(|tree| tree.horizon() < horizon)?;
            Some(Rise { tree, horizon, is_doubtful: true })
        };
        self.hide(&before.iter().filter_map(rise).collect::<Vec<_>>());
    }

    fn leap_of(&self, tree: &Tree, expiry: &Expiry, time: Time) -> Option<Duration> {
        let buckets = tree.buckets();
        let last = buckets.last().filter(|_| time.is_doubtful && buckets.is_leap(expiry, time.now))?;
        Some(Duration::from_millis(time.now - last.time))
    }

    pub(in crate::db) fn clock_leap(&self) -> Option<Duration> {
        let leap = |tree: &Arc<Tree>| {
            let expiry = tree.expiry()?;
            self.leap_of(tree, &expiry, self.time_of(tree, &expiry).ok()??)
        };
        self.keyspaces.expiring().iter().filter_map(leap).max()
    }

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

    /// Returns the boundaries up to `visible`. The edit must also state `visible`, which must not be reassigned if
    /// the log is lost.
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
