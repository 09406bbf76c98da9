//! The loop of every conditional write and of every transaction, in the thread of its caller: look, let the commit
//! leader decide, look again.
//!
//! 1. Read the number of the newest visible write, then look. In this order: an entry that the lookups miss has a
//!    larger number. The leader examines every entry above the number (`commit/conflict_check`).
//! 2. If nothing is to be written, the answer is ready: it was true at the lookup.
//! 3. Otherwise the leader decides, at the moment of the write. If it cannot, because a memtable with newer entries was
//!    flushed, the call begins again. From its third attempt on such memtables are kept
//!    ([`flushed_memtables`](crate::db::state::keyspace::flushed_memtables)), so that the leader can decide.
//!
//! An error of a lookup is the error of the call.

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::queues::condition::{Admitted, Condition, Decision};
use crate::db::state::keyspace::flushed_memtables::Keeper;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::db::state::switch_points::point;
use crate::error::Result;
use crate::key::SeqNo;

/// Attempts before flushed memtables are kept.
pub(super) const FREE_ATTEMPTS: usize = 2;

/// The result of a lookup.
pub(in crate::db) enum Look<A> {
    /// Nothing is to be written.
    Answer(A),
    /// The leader is to decide this batch.
    Ask(Admitted),
}

/// A call whose writes depend on what the store holds.
pub(in crate::db) trait Conditional {
    type Answer;

    /// Looks up what the call depends on. `read_at` is the newest write that was visible before.
    fn look(&mut self, engine: &Engine, read_at: SeqNo) -> Result<Look<Self::Answer>>;

    /// Takes what the leader has decided, or the batch back if it could not decide. `None`: look again.
    fn decided(
        &mut self,
        engine: &Engine,
        condition: Condition,
        batch: Vec<u8>,
    ) -> Result<Option<Self::Answer>>;
}

impl Engine {
    /// Runs a conditional call on these keyspaces, whose entries up to `seen` it knows. Returns the answer, and where a
    /// sync makes it durable; `None`: everything that was visible at the lookup.
    pub(in crate::db) fn conditional<C: Conditional>(
        &self,
        trees: &[Arc<Tree>],
        seen: SeqNo,
        call: &mut C,
    ) -> Result<(C::Answer, Option<LogPosition>)> {
        let mut keepers: Vec<Keeper<'_>> = Vec::new();
        let mut read_at = seen;
        for attempt in 0.. {
            self.check_writable()?;
            if attempt == FREE_ATTEMPTS {
                keepers.extend(trees.iter().map(|tree| tree.keep_memtables(read_at)));
            }
            read_at = self.sequence.visible();
            keepers.iter_mut().for_each(|keeper| keeper.advance(read_at));
            point();
            let asked = match call.look(self, read_at)? {
                Look::Answer(answer) => return Ok((answer, None)),
                Look::Ask(asked) => asked,
            };
            self.await_resume()?;
            let outcome = self.submit_batch(asked)?;
            let decided = outcome.decided.expect("the leader returns a conditional batch");
            let condition = *decided.condition.expect("it has its condition");
            if let Some(answer) = call.decided(self, condition, decided.bytes)? {
                return Ok((answer, Some(outcome.position)));
            }
        }
        unreachable!("the attempts do not end")
    }
}

impl Condition {
    /// Whether the leader could not decide.
    pub(in crate::db) fn is_undecided(&self) -> bool {
        matches!(self.decision(), Decision::Open | Decision::LookAgain)
    }
}
