//! How a transaction is committed.
//!
//! 1. Without writes there is nothing to do: it has read one moment. A transaction that is to be slowed down waits
//!    now, so that little changes between 2 and 3.
//! 2. Read the number of the newest visible write, then look for changes of what was read, between the snapshot
//!    and this number ([`changes`](crate::db::commit::read_check)). In this order: whatever the search misses is above the number.
//! 3. The batch goes to the commit leader with what was read. The leader looks at everything above the number: the
//!    batches before it in its group, and the entries of memtables. If a memtable above the number was flushed
//!    meanwhile, begin again with 2, from that number on; from then on such memtables are kept.
//!
//! The snapshot stays registered until the leader has decided, so that compactions keep what 2 looks for.

use std::mem;
use std::sync::Arc;

use crate::batch::WriteBatch;
use crate::db::engine::Engine;
use crate::db::queues::condition::{Admitted, Check, Condition, ReadCondition};
use crate::db::queues::read_set::ReadSet;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::db::state::switch_points::point;
use crate::db::write::conditional_loop::{Conditional, Look};
use crate::error::{Error, Result};
use crate::key::SeqNo;

/// Attempts of a commit. Each fails only if memtables with newer entries are flushed while it runs; all but the first only
/// if memory is so short that these are not kept.
const ATTEMPTS_MAX: u64 = 8;

/// What exceeds the limit if they were not enough.
const CHECKS: &str = "checks of what a transaction has read";

/// A commit, while it is decided.
struct Commit {
    bytes: Vec<u8>,
    trees: Vec<Arc<Tree>>,
    may_exceed: bool,
    reads: ReadSet,
    /// Nothing has changed up to this number, and nothing that was read has expired up to these horizons.
    unchanged_to: SeqNo,
    horizons: Vec<SeqNo>,
    snapshot: SeqNo,
    attempts: u64,
}

impl Conditional for Commit {
    type Answer = ();

    fn look(&mut self, engine: &Engine, read_at: Past) -> Result<Look<()>> {
        let read_at = read_at.seqno;
        if self.attempts == ATTEMPTS_MAX {
            // Memtables are flushed faster than the reads are checked: whether they have changed is unknown.
            return Err(Error::limit(CHECKS, ATTEMPTS_MAX, ATTEMPTS_MAX + 1));
        }
        self.attempts += 1;
        if read_at > self.unchanged_to
            && let Some(error) = engine.changed_since(&self.reads, self.unchanged_to)?
        {
            return Err(error);
        }
        self.unchanged_to = read_at;
        let now: Vec<_> = self.reads.parts().map(|part| part.tree.horizon()).collect();
        if let Some(error) = engine.expired_since(&self.reads, self.snapshot, &self.horizons, &now)? {
            return Err(error);
        }
        self.horizons = now;
        point();
        let reads = mem::replace(&mut self.reads, ReadSet::new(0));
        let condition = Condition::Reads(ReadCondition::new(reads, read_at, self.horizons.clone()));
        let (bytes, trees) = (mem::take(&mut self.bytes), self.trees.clone());
        let asked = Admitted::asking(bytes, trees, condition);
        Ok(Look::Ask(Admitted { may_exceed: Some(self.may_exceed), ..asked }))
    }

    fn decided(&mut self, _: &Engine, condition: Condition, batch: Vec<u8>) -> Result<Option<()>> {
        let condition = condition.of_reads();
        match condition.check {
            Check::Unchanged => Ok(Some(())),
            Check::Refused { why, .. } => Err(why),
            Check::Open | Check::LookAgain => {
                (self.bytes, self.reads) = (batch, condition.reads);
                Ok(None)
            }
        }
    }
}

impl Engine {
    /// Writes a batch if nothing has changed of what was read since its snapshot, which is registered. `past` is the moment
    /// that it has read in a keyspace.
    /// Returns where a sync makes it durable.
    pub(super) fn commit_if_unchanged(
        &self,
        batch: WriteBatch,
        reads: ReadSet,
        past: impl Fn(&Tree) -> Past,
    ) -> Result<LogPosition> {
        self.check_writable()?;
        let (bytes, keyspaces, _) = batch.into_parts()?;
        let trees = self.keyspaces.admit(&keyspaces)?;
        self.await_resume()?;
        let may_exceed = self.throttle((&bytes, &trees))?;
        let read: Vec<_> = reads.parts().map(|part| part.tree.clone()).collect();
        let pasts: Vec<_> = read.iter().map(|tree| past(tree)).collect();
        let snapshot = pasts.first().map_or(0, |past| past.seqno);
        let horizons = pasts.iter().map(|past| past.horizon).collect();
        let (unchanged_to, attempts) = (snapshot, 0);
        let mut commit =
            Commit { bytes, trees, may_exceed, reads, unchanged_to, horizons, snapshot, attempts };
        let ((), up_to) = self.conditional(&read, &mut commit)?;
        Ok(up_to.expect("a commit is decided by the leader"))
    }
}

/// Whether a transaction that was not committed because of this may be if it is run again.
pub(super) fn may_succeed_again(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. } | Error::LimitExceeded { what: CHECKS, .. })
}
