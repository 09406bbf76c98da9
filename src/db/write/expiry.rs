//! Expiry options of a keyspace, and its caller-set time.

use std::sync::Arc;
use std::time::Duration;

use crate::db::engine::Engine;
use crate::db::state::expiry::clock::TIME_MAX;
use crate::db::state::keyspace::change::{Change, OptionsChange};
use crate::db::state::keyspace::tree::Tree;
use crate::error::{Error, Result};
use crate::expiry::options::TimeSource;
use crate::options::KeyspaceOptions;
use crate::sync::lock;

impl Engine {
    /// Excludes writes between reading the time and writing its boundary, so that no entry gets a sequence number in
    /// between.
    pub(in crate::db) fn set_expiry(&self, tree: &Arc<Tree>, options: KeyspaceOptions) -> Result<()> {
        self.begin_writing()?;
        self.as_leader(|| {
            // Excludes later horizons that are derived from the old time to live.
            let _one = lock(&self.raising);
            let (after, next) = (options.expiry(), self.sequence.visible() + 1);
            let time = after.map_or(Ok(None), |after| self.time_of(tree, &after))?;
            let (now, is_doubtful) = (time.map(|time| time.now), time.is_some_and(|time| time.is_doubtful));
            let boundary = tree.buckets().change(tree.expiry(), after, now, is_doubtful, next);
            let boundary = boundary.map_err(Error::invalid)?;
            let change = OptionsChange::Expiry(options, boundary);
            self.publish(Vec::new(), Change::Options(Arc::clone(tree), change))?;
            tree.begin_buckets(boundary);
            self.look_at_expiry();
            Ok(())
        })
    }

    pub(in crate::db) fn advance_time(&self, tree: &Arc<Tree>, time: Duration) -> Result<()> {
        if tree.expiry().is_none_or(|expiry| expiry.time_source != TimeSource::Caller) {
            return Err(Error::invalid("the keyspace does not use a caller's clock"));
        }
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if !(1..=TIME_MAX).contains(&time) {
            return Err(Error::invalid(format!("the time, {time} ms, is not between 1 and {TIME_MAX}")));
        }
        let backwards =
            |before| Error::invalid(format!("the time, {time} ms, is before the last one set, {before} ms"));
        if tree.buckets().last_dated().is_some() {
            tree.advance_caller_time(time).map_err(backwards)?;
        } else {
            self.begin_writing()?;
            self.as_leader(|| {
                tree.advance_caller_time(time).map_err(backwards)?;
                self.begin_bucket_of(tree).map(drop)
            })?;
        }
        if self.raise_horizon_of(tree)? {
            self.background.notify();
        }
        Ok(())
    }
}
