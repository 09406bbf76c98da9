//! Rebuilds all filters of a keyspace after a change of policy.

use std::collections::HashSet;
use std::sync::Arc;

use super::maintain::LOOK_INTERVAL;
use crate::db::engine::Engine;
use crate::db::jobs::flush_and_compact::JobError;
use crate::db::queues::reservations::Job;
use crate::db::queues::workers::Jobs;
use crate::db::state::failure::catch;
use crate::db::state::keyspace::change::{Change, OptionsChange};
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::progress::Progress;
use crate::error::Result;
use crate::filter::FilterPolicy;
use crate::version::TableHandle;

impl Engine {
    pub(in crate::db) fn refilter(
        &self,
        tree: &Arc<Tree>,
        policy: FilterPolicy,
        progress: &Progress,
    ) -> Result<()> {
        self.check_writable()?;
        self.resume_first()?;
        let bytes = tree
            .view()
            .version
            .all_tables()
            .map(|(_, table)| table.meta.data_bytes)
            .fold(0, u64::saturating_add);
        progress.expect(bytes);
        self.publish(Vec::new(), Change::Options(Arc::clone(tree), OptionsChange::Filter(policy)))?;
        // Existing tables come first, then tables of running jobs, which may have used the old policy.
        let mut end = self.files.next_number();
        let mut is_last_pass = false;
        let reservations = &self.background.reservations;
        let begun = reservations.begun();
        let mut seen = HashSet::new();
        let mut result = Ok(());
        loop {
            let epoch = reservations.epoch();
            self.check_writable()?;
            tree.check_alive()?;
            progress.check()?;
            if !is_last_pass && reservations.have_ended(begun) {
                is_last_pass = true;
                end = self.files.next_number();
            }
            let is_pending = |table: &Arc<TableHandle>, seen: &HashSet<u64>| {
                table.meta.number < end && !seen.contains(&table.meta.number)
            };
            let reservation = reservations.reserve_next(|reserved| {
                let busy = reserved.busy(tree);
                let version = Arc::clone(&tree.view().version);
                let mut tables = version.all_tables().map(|(_, table)| table);
                let table = tables.find(|table| is_pending(table, &seen) && !busy.has(table))?;
                Some(Job::Refilter(Arc::clone(tree), Arc::clone(table)))
            });
            if let Some(reservation) = reservation {
                let Job::Refilter(_, table) = reservation.job() else { continue };
                seen.insert(table.meta.number);
                let bytes = table.meta.data_bytes;
                let rebuilt = catch("making a filter", || self.refilter_table(tree, table));
                match rebuilt.unwrap_or_else(|panic| Err(JobError::Store(panic))) {
                    Ok(()) => {}
                    Err(JobError::Table(error)) => result = result.and(Err(error)),
                    Err(error @ JobError::Store(_)) => return Err(self.fail_job(error)),
                }
                progress.add(bytes);
                continue;
            }
            if is_last_pass && !tree.view().version.all_tables().any(|(_, table)| is_pending(table, &seen)) {
                break;
            }
            self.wait_or_work(epoch, Jobs::All, LOOK_INTERVAL)?;
        }
        self.remove_obsolete_files();
        result
    }
}
