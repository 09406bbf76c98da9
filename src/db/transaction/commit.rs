//! How a transaction is committed.
//!
//! 1. Without writes there is nothing to do: it has read one moment. A transaction that is to be slowed down waits
//!    now, so that little changes between 2 and 3.
//! 2. Read the number of the newest visible write, then look for changes of what was read, between the snapshot
//!    and this number ([`changes`](crate::db::commit::read_check)). In this order: whatever the search misses is above the number.
//! 3. The batch goes to the commit leader with what was read. The leader looks at everything above the number: the
//!    batches before it in its group, and the entries of memtables. If a memtable above the number was flushed
//!    meanwhile, begin again with 2, from that number on; after the second time such memtables are kept.
//!
//! The snapshot stays registered until the leader has decided, so that compactions keep what 2 looks for.

use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::db::queues::condition::Admitted;
use crate::db::queues::condition::Check;
use crate::db::queues::condition::Condition;
use crate::db::queues::condition::ReadCondition;
use crate::db::queues::read_set::ReadSet;
use crate::db::state::log::LogPosition;
use crate::db::state::switch_points::point;
use crate::error::{Error, Result};
use crate::key::SeqNo;

/// Attempts before flushed memtables are kept, and in all. Each attempt fails only if memtables with newer entries
/// are flushed while it runs; with those that are kept, more than four of one keyspace.
const FREE_ATTEMPTS: usize = 2;
const ATTEMPTS_MAX: usize = 8;

/// What exceeds the limit if they were not enough.
const CHECKS: &str = "checks of what a transaction has read";

impl Engine {
    /// Writes a batch if nothing has changed of what was read since the snapshot `read_at`, which is registered.
    /// Returns where a sync makes it durable.
    pub(super) fn commit_if_unchanged(
        &self,
        batch: WriteBatch,
        mut reads: ReadSet,
        mut read_at: SeqNo,
    ) -> Result<LogPosition> {
        self.check_writable()?;
        let (mut bytes, keyspaces, _) = batch.into_parts()?;
        let mut trees = self.keyspaces.admit(&keyspaces)?;
        self.await_resume()?;
        let may_exceed = self.throttle((&bytes, &trees))?;
        let read: Vec<_> = reads.parts().map(|part| part.tree.clone()).collect();
        let mut keepers = Vec::new();
        for attempt in 0..ATTEMPTS_MAX {
            if attempt == FREE_ATTEMPTS {
                keepers.extend(read.iter().map(|tree| tree.keep_memtables(read_at)));
            }
            let visible = self.sequence.visible();
            keepers.iter_mut().for_each(|keeper| keeper.advance(visible));
            point();
            if visible > read_at
                && let Some(error) = self.changed_since(&reads, read_at)?
            {
                return Err(error);
            }
            read_at = visible;
            point();
            self.await_resume()?;
            let condition = Condition::Reads(ReadCondition::new(reads, read_at));
            let asking = Admitted { may_exceed, ..Admitted::asking(bytes, trees, condition) };
            let outcome = self.submit_throttled(asking)?;
            let decided = outcome.decided.expect("the leader returns a conditional batch");
            let Some(Condition::Reads(condition)) = decided.condition.map(|condition| *condition) else {
                unreachable!("it has its condition")
            };
            match condition.check {
                Check::Unchanged => return Ok(outcome.position),
                Check::Refused { why, .. } => return Err(why),
                Check::Open | Check::LookAgain => {
                    (bytes, trees, reads) = (decided.bytes, decided.trees, condition.reads);
                }
            }
        }
        // Memtables are flushed faster than the reads are checked: nothing is known to have changed, nor not to.
        Err(Error::limit(CHECKS, ATTEMPTS_MAX as u64, ATTEMPTS_MAX as u64 + 1))
    }
}

/// Whether a transaction that was not committed because of this may be if it is run again.
pub(super) fn may_succeed_again(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. } | Error::LimitExceeded { what: CHECKS, .. })
}
