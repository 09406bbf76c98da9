//! A tree whose entries expire: its buckets, its horizon, and its time if a caller sets that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::tree::{Tree, View};
use crate::expiry::buckets::Buckets;
use crate::expiry::options::{Expiry, Refresh};
use crate::key::SeqNo;
use crate::sync::lock;
use crate::wal::Boundary;

impl Tree {
    /// Whether its entries expire.
    #[inline]
    pub(in crate::db) fn expires(&self) -> bool {
        self.expiring.is_on.load(Ordering::Acquire)
    }

    /// Whether a refused insert restarts the time of its key.
    #[inline]
    pub(in crate::db) fn sees(&self) -> bool {
        self.expires() && self.options.load().refresh == Refresh::OnSight
    }

    /// How long its entries live.
    pub(in crate::db) fn expiry(&self) -> Option<Expiry> {
        if self.expires() { self.options.load().expiry() } else { None }
    }

    /// Where its buckets begin, and its horizon.
    pub(in crate::db) fn buckets(&self) -> Arc<Buckets> {
        Arc::clone(&lock(&self.expiring.buckets))
    }

    /// The horizon of readers.
    pub(in crate::db) fn horizon(&self) -> SeqNo {
        self.view_ref().version.horizon()
    }

    /// Adds boundaries that are in the log, in order. Those that are known already, or are older than the options, change
    /// nothing.
    pub(in crate::db) fn begin_buckets(&self, boundaries: impl IntoIterator<Item = Boundary>) {
        let mut buckets = lock(&self.expiring.buckets);
        for boundary in boundaries {
            Arc::make_mut(&mut buckets).follow(boundary);
        }
        drop(buckets);
        self.memtables.set_unstated(self.id);
        self.show_buckets(0);
    }

    /// Raises the horizon, which is durable, for readers too. A smaller number changes nothing.
    pub(in crate::db) fn raise_horizon(&self, horizon: SeqNo) {
        Arc::make_mut(&mut lock(&self.expiring.buckets)).raise(horizon);
        self.show_buckets(horizon);
    }

    /// Raises the horizon of readers. One caller at a time.
    pub(in crate::db) fn hide_below(&self, horizon: SeqNo) {
        if horizon > self.horizon() {
            self.show_buckets(horizon);
        }
    }

    /// Has readers and compactions see the boundaries, and the horizon unless theirs is higher.
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

    /// The time that the caller has set.
    pub(in crate::db) fn caller_time(&self) -> u64 {
        self.expiring.caller_time.load(Ordering::Acquire)
    }

    /// Sets it, unless it is later already: the time then.
    pub(in crate::db) fn advance_caller_time(&self, time: u64) -> Result<(), u64> {
        let before = self.expiring.caller_time.fetch_max(time, Ordering::AcqRel);
        if before > time { Err(before) } else { Ok(()) }
    }
}
