//! Sealing of memtables. A new log begins first.

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::OLDER_LOGS_MAX;
use crate::error::Result;

impl Engine {
    pub(super) fn seal_now(&self, trees: &[Arc<Tree>]) -> Result<()> {
        match self.begin_writing().and_then(|()| self.begin_log()) {
            Ok(()) => {
                self.retry.done(Work::BeginLog);
                self.retry.done(Work::PrepareLog);
            }
            Err(error) => {
                if self.check_writable().is_ok() && !self.lifecycle.is_suspended() {
                    self.give_up_reserve_file(&error);
                    self.put_off(Work::BeginLog, error.clone());
                }
                return Err(error);
            }
        }
        for tree in trees {
            tree.seal();
        }
        self.seal_behind_old_logs();
        self.background.notify();
        Ok(())
    }

    /// If the logs are too many or too long, seals memtables with entries in the oldest one. The active log continues.
    fn seal_behind_old_logs(&self) {
        if self.log().total_bytes() <= self.options.logs_bytes() && self.log().older() <= OLDER_LOGS_MAX {
            return;
        }
        let oldest = self.log_floor(&[]);
        for tree in self.keyspaces.with_log(oldest) {
            let first_log = tree.view_ref().active.as_ref().and_then(|active| active.first_log());
            if first_log.is_some_and(|first| first <= oldest) {
                tree.seal();
            }
        }
    }
}
