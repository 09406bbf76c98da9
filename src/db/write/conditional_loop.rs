//! The loop of conditional writes and transactions, in the caller's thread.
//!
//! 1. Read the number of the newest visible write, then look up the keys. Entries that the lookups miss have larger
//!    numbers, and the leader examines those (`commit/conflict_check`).
//! 2. If there is nothing to write, the answer holds as of the lookup.
//! 3. Otherwise the leader decides at the moment of the write, or the call begins again
//!    ([`flushed_memtables`](crate::db::state::keyspace::flushed_memtables)).

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::queues::condition::{Admitted, Condition, Decision};
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::db::state::switch_points::point;
use crate::error::Result;

pub(in crate::db) enum Look<A> {
    Answer(A),
    Ask(Admitted),
}

pub(in crate::db) trait Conditional {
    type Answer;

    /// `read_at` has the visible sequence number and the first keyspace's horizon, both read before the call.
    fn look(&mut self, engine: &Engine, read_at: Past) -> Result<Look<Self::Answer>>;

    /// Receives the leader's decision, or takes the batch back. `None`: look up again.
    fn decided(
        &mut self,
        engine: &Engine,
        condition: Condition,
        batch: Vec<u8>,
    ) -> Result<Option<Self::Answer>>;
}

impl Engine {
    /// Returns the answer, and the log position of the writes on which it depends; `None` if these are all writes
    /// visible at the lookup.
    pub(in crate::db) fn conditional<C: Conditional>(
        &self,
        trees: &[Arc<Tree>],
        call: &mut C,
    ) -> Result<(C::Answer, Option<LogPosition>)> {
        let mut kept = Vec::new();
        loop {
            self.check_writable()?;
            self.raise_if_nobody_does(trees)?;
            // Both are read before the lookup: later changes have larger numbers or raise the horizon.
            let horizon = trees.first().map_or(0, |tree| tree.horizon());
            let read_at = Past { seqno: self.sequence.visible(), horizon };
            point();
            let asked = match call.look(self, read_at)? {
                Look::Answer(answer) => return Ok((answer, None)),
                Look::Ask(asked) => asked,
            };
            self.await_resume()?;
            let outcome = self.submit_batch(asked)?;
            let decided = outcome.decided.expect("the leader returns a conditional batch");
            let (_, condition) = decided.condition.expect("it has its condition");
            if let Some(answer) = call.decided(self, *condition, decided.bytes)? {
                return Ok((answer, Some(outcome.position)));
            }
            if kept.is_empty() {
                kept.extend(trees.iter().map(|tree| tree.keep_memtables(read_at.seqno)));
            }
        }
    }
}

impl Condition {
    pub(in crate::db) fn is_undecided(&self) -> bool {
        matches!(self.decision(), Decision::Open | Decision::LookAgain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::Db;
    use crate::fs::MemFs;
    use crate::memory::LeaseKind;
    use crate::options::Options;

    fn open() -> Db {
        Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap()
    }

    fn memtables(db: &Db) -> u64 {
        db.stats().memory.memtables
    }

    /// Between lookup and decision, writes another key and flushes. Returns the retained bytes.
    fn flush(db: &Db) -> u64 {
        db.put("other", "").unwrap();
        db.flush().unwrap();
        memtables(db)
    }

    #[test]
    fn memtables_that_are_flushed_are_kept_in_the_budget_from_the_second_lookup_to_the_end_of_the_call() {
        let db = open();
        let (mut lookups, mut kept) = (0, Vec::new());
        let updated = db.update("k", |_| {
            lookups += 1;
            if lookups <= 2 {
                db.put("k", [lookups]).unwrap();
            }
            kept.push(flush(&db));
            kept.push(flush(&db));
            Some(b"ours".to_vec())
        });
        assert_eq!(updated.unwrap().unwrap(), b"ours"[..]);
        // The first lookup fails because of the flushes, the second because of the key.
        assert_eq!(lookups, 3);
        assert_eq!(kept[..2], [0, 0]);
        assert!(kept[2] > 0 && kept[2..].is_sorted_by(|one, next| one < next), "{kept:?}");
        let active = db.engine().context.memory.memtables() as u64;
        assert_eq!((memtables(&db), db.stats().memory.held), (active, 0), "only the active one is left");
        assert_eq!(db.get("k").unwrap().unwrap(), b"ours"[..]);
    }

    #[test]
    fn a_call_whose_memtable_was_evicted_looks_again_and_decides_by_what_is_there() {
        let db = open();
        let memory = &db.engine().context.memory;
        let (mut lookups, mut kept) = (0, Vec::new());
        let updated = db.update("k", |before| {
            lookups += 1;
            if lookups == 1 {
                db.put("k", "").unwrap();
            }
            kept.push(flush(&db));
            if lookups == 2 {
                // The value changes in a memtable that is evicted while other uses take all memory.
                db.put("k", "theirs").unwrap();
                kept.push(flush(&db));
                drop(memory.lease(LeaseKind::Filters, memory.budget()));
                kept.push(memtables(&db));
            }
            Some([before.unwrap_or_default(), b"+"].concat())
        });
        assert_eq!((updated.unwrap().unwrap(), lookups), (b"theirs+"[..].into(), 3));
        assert!(kept[0] == 0 && kept[1] > 0 && kept[2] > kept[1] && kept[3] == 0 && kept[4] > 0, "{kept:?}");
        assert_eq!(
            (memtables(&db) > 0, memory.memtables() as u64),
            (true, memtables(&db)),
            "only the active one"
        );
    }
}
