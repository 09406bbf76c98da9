//! Expiry of a tree: buckets, horizon, caller-set time.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::tree::{Tree, View};
use crate::expiry::buckets::Buckets;
use crate::expiry::options::{Expiry, Refresh};
use crate::key::SeqNo;
use crate::wal::Boundary;

impl Tree {
    #[inline]
    pub(in crate::db) fn expires(&self) -> bool {
        self.expiring.is_on.load(Ordering::Acquire)
    }

    #[inline]
    pub(in crate::db) fn sees(&self) -> bool {
        self.expires() && self.options.load().refresh == Refresh::OnSight
    }

    pub(in crate::db) fn expiry(&self) -> Option<Expiry> {
        if self.expires() { self.options.load().expiry() } else { None }
    }

    pub(in crate::db) fn buckets(&self) -> Arc<Buckets> {
        self.expiring.buckets()
    }

    pub(in crate::db) fn horizon(&self) -> SeqNo {
        self.view_ref().version.horizon()
    }

    /// Adds boundaries in order. Ignores known ones and those older than the options.
    pub(in crate::db) fn begin_buckets(&self, boundaries: impl IntoIterator<Item = Boundary>) {
        self.expiring.change(&self.memtables.memory, |buckets| {
            boundaries.into_iter().for_each(|boundary| buckets.follow(boundary));
        });
        self.memtables.set_unstated(self.id);
        self.show_buckets(0);
    }

    /// Raises the horizon durably, also for readers. Never lowers it.
    pub(in crate::db) fn raise_horizon(&self, horizon: SeqNo) {
        self.expiring.change(&self.memtables.memory, |buckets| buckets.raise(horizon));
        self.show_buckets(horizon);
    }

    /// Raises the horizon for readers only. The caller ensures that calls do not overlap.
    pub(in crate::db) fn hide_below(&self, horizon: SeqNo) {
        if horizon > self.horizon() {
            self.show_buckets(horizon);
        }
    }

    pub(super) fn show_buckets(&self, horizon: SeqNo) {
        self.replace(|view| {
            let version = view.version.with_horizon(horizon.max(view.version.horizon()));
            View {
                active: view.active.clone(),
                immutables: view.immutables.clone(),
                version: Arc::new(version.with_buckets(self.buckets())),
            }
        });
    }

    pub(in crate::db) fn caller_time(&self) -> u64 {
        self.expiring.caller_time.load(Ordering::Acquire)
    }

    pub(in crate::db) fn advance_caller_time(&self, time: u64) -> Result<(), u64> {
        let before = self.expiring.caller_time.fetch_max(time, Ordering::AcqRel);
        if before > time { Err(before) } else { Ok(()) }
    }
}
