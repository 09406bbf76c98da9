//! Calls about expiry: other options of a keyspace, and its time if the caller sets that.

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
    /// Sets options with another time to live, or without one. Nothing is written meanwhile, so that no entry gets a number
    /// between the time that is read and the boundary that states it.
    pub(in crate::db) fn set_expiry(&self, tree: &Arc<Tree>, options: KeyspaceOptions) -> Result<()> {
        self.begin_writing()?;
        self.as_leader(|| {
            // A horizon by the old time to live is not published after this.
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

    /// Sets the time of a keyspace, and hides what has expired then.
    pub(in crate::db) fn advance_time(&self, tree: &Arc<Tree>, time: Duration) -> Result<()> {
        if tree.expiry().is_none_or(|expiry| expiry.time_source != TimeSource::Caller) {
            return Err(Error::invalid("the caller does not set the time of this keyspace"));
        }
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if !(1..=TIME_MAX).contains(&time) {
            return Err(Error::invalid(format!("the time, {time} ms, is not between 1 and {TIME_MAX}")));
        }
        let backwards = |before| {
            Error::invalid(format!("the time, {time} ms, is before {before} ms, which was set last"))
        };
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
