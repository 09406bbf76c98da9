//! Compactions of a key range, or of everything, for a caller.
//!
//! [`RangeCompaction`] chooses tables, and the caller's thread merges them, one task at a time. A task waits until its
//! inputs are free. Only one such call works at a time, because there is memory for one merge in addition to background
//! work.

use std::sync::Arc;

use super::flush_and_compact::{JobError, output_of, task_output};
use crate::compaction::range::{Next, RangeCompaction};
use crate::db::engine::Engine;
use crate::db::queues::reservations::{Job, Reservation};
use crate::db::state::failure::catch;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::progress::Progress;
use crate::error::Result;
use crate::snapshot_read::KeyRange;
use crate::version::TableHandle;

impl Engine {
    pub(in crate::db) fn compact_range(
        &self,
        tree: &Arc<Tree>,
        range: KeyRange,
        progress: &Progress,
    ) -> Result<()> {
        self.flush(std::slice::from_ref(tree))?;
        let (version, shape) = (Arc::clone(&tree.view().version), tree.shape());
        let end_number = self.files.next_number();
        let needs_rewriting = TableHandle::read_needs_rewriting;
        if let Some(mut compaction) =
            RangeCompaction::new(range, &version, &shape, end_number, needs_rewriting)
        {
            progress.expect(compaction.remaining_bytes(&version));
            drop(version);
            while let Some(reservation) = self.reserve_next_of(tree, &mut compaction, progress)? {
                self.carry_out_next_of(tree, &compaction, &reservation, progress)?;
                drop(reservation);
                self.remove_obsolete_files();
            }
        }
        Ok(())
    }

    fn reserve_next_of(
        &self,
        tree: &Arc<Tree>,
        compaction: &mut RangeCompaction,
        progress: &Progress,
    ) -> Result<Option<Reservation>> {
        let mut found = None;
        let nothing = |_| false;
        self.wait_until(nothing, || {
            if progress.is_cancelled() || !tree.is_alive() {
                return true;
            }
            let mut is_done = false;
            // Not called under the lock of the reservations, because it takes the log's lock and calls the file
            // system.
            self.look_at_disk();
            compaction.set_room(self.disk_space.room());
            let reservation = self.background.reservations.reserve_next(|reserved| {
                let is_short = self.disk_space.is_short();
                if reserved.is_extra() || is_short && !reserved.is_idle() {
                    return None;
                }
                // Tables that were set aside are read again, so that their errors are reported.
                let version = Arc::clone(&tree.view().version);
                match compaction.next(&version, &reserved.busy(tree), &tree.shape()) {
                    Next::Task(task) => Some(Job::CompactRange(Arc::clone(tree), task)),
                    Next::Busy => None,
                    Next::Done => {
                        is_done = true;
                        None
                    }
                }
            });
            found = reservation;
            is_done || found.is_some()
        })?;
        tree.check_alive()?;
        progress.check()?;
        Ok(found)
    }

    fn carry_out_next_of(
        &self,
        tree: &Arc<Tree>,
        compaction: &RangeCompaction,
        reservation: &Reservation,
        progress: &Progress,
    ) -> Result<()> {
        let Job::CompactRange(_, task) = reservation.job() else { return Ok(()) };
        // Filters of the remaining tables are planned for the final tree.
        let output = match task.output_level == compaction.goal() {
            true => output_of(task.output_level, compaction.tables(&tree.view().version).map(|(_, t)| t)),
            false => task_output(task),
        };
        let compact = || {
            let compacted = catch("a compaction", || self.compact_as(tree, task, &output, Some(progress)));
            compacted
                .unwrap_or_else(|panic| Err(JobError::Store(panic)))
                .map_err(|error| self.fail_job(error))
        };
        compact().or_else(|error| {
            if !self.give_up_reserve_file(&error) {
                return Err(error);
            }
            self.retry.count_failure();
            self.remove_obsolete_files();
            compact()
        })
    }
}
