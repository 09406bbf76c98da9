//! Committing a transaction.
//!
//! 1. A transaction without writes needs no check. Otherwise throttle it first, to keep the time between steps 2 and
//!    3 short.
//! 2. Read the newest visible sequence number, then search for changes of the read set between the snapshot and this
//!    number ([`changes`](crate::db::commit::read_check)). Changes missed here have larger numbers.
//! 3. Pass batch and read set to the commit leader, which checks all changes with larger numbers. If a memtable with
//!    newer entries was flushed in the meantime, repeat from step 2; from then on such memtables are kept.

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

/// Attempts after the first fail only if there is too little memory to keep flushed memtables.
const ATTEMPTS_MAX: u64 = 8;

const CHECKS: &str = "checks of what a transaction has read";

struct Commit {
    bytes: Vec<u8>,
    trees: Vec<Arc<Tree>>,
    may_exceed: bool,
    reads: ReadSet,
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
    /// `past` returns the state of a keyspace as the transaction read it. Returns the log position of the batch.
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

pub(super) fn may_succeed_again(error: &Error) -> bool {
    matches!(error, Error::Conflict { .. } | Error::LimitExceeded { what: CHECKS, .. })
}
