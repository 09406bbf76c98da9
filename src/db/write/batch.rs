//! Writing a batch, in the thread of its caller.
//!
//! 1. Check that the store takes writes; wait until the background keeps up and the memtables have room
//!    ([`stall`](super::stall)).
//! 2. Hand the batch to the commit leader (`commit/group_commit`). If there is no leader, the caller becomes the leader
//!    without queueing.
//! 3. If the leader found no room and no thread to make some, go back to 1.
//! 4. Wait for a sync, if the caller asked for one.

use std::sync::Arc;

use crate::WriteBatch;
use crate::db::engine::Engine;
use crate::db::queues::commit_queue::{Answer, Outcome, Wanted};
use crate::db::queues::condition::Admitted;
use crate::db::state::durability::Durability;
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::log::LogPosition;
use crate::db::state::switch_points::point;
use crate::error::{Error, Result};

impl Engine {
    /// Writes a batch.
    pub(in crate::db) fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let position = self.write_visible(batch)?;
        self.make_durable(Some(position), durability)
    }

    /// Writes an encoded batch that has entries, all for this tree.
    #[inline]
    pub(in crate::db) fn write_in(
        &self,
        tree: &Arc<Tree>,
        bytes: Vec<u8>,
        durability: Durability,
    ) -> Result<()> {
        self.check_takes_writes()?;
        let position = self.write_plain(bytes, std::slice::from_ref(tree))?;
        self.make_durable(Some(position), durability)
    }

    /// Writes a batch. Returns when it is visible, and where a sync makes it durable.
    pub(in crate::db) fn write_visible(&self, batch: WriteBatch) -> Result<LogPosition> {
        self.check_takes_writes()?;
        let (bytes, trees) = self.admit(batch)?;
        if trees.is_empty() {
            return Ok(self.log().end());
        }
        self.write_plain(bytes, &trees)
    }

    /// The encoded batch and the trees of its keyspaces: none if it has no entries.
    pub(super) fn admit(&self, batch: WriteBatch) -> Result<(Vec<u8>, Vec<Arc<Tree>>)> {
        if batch.store().is_some_and(|store| store != self.id) {
            return Err(Error::invalid("the batch holds keyspaces of another store"));
        }
        let (bytes, keyspaces, _) = batch.into_parts()?;
        Ok((bytes, self.keyspaces.admit(&keyspaces)?))
    }

    /// Refuses a write that the store does not take, and waits while writing is suspended.
    #[inline]
    fn check_takes_writes(&self) -> Result<()> {
        self.files.check_not_forked()?;
        if self.lifecycle.is_ready() {
            return Ok(());
        }
        self.lifecycle.check_writable()?;
        self.await_resume()
    }

    /// Writes an encoded batch that has entries, and no condition.
    #[inline]
    fn write_plain(&self, mut bytes: Vec<u8>, trees: &[Arc<Tree>]) -> Result<LogPosition> {
        let mut may_exceed = self.throttle((&bytes, trees))?;
        point();
        while self.commit.lead() {
            point();
            if let Some(position) = self.lead_alone(&mut bytes, trees, may_exceed)? {
                return Ok(position);
            }
            may_exceed = self.wait_for_relief((&bytes, trees), true)?;
        }
        let admitted =
            Admitted { bytes, trees: trees.to_vec(), condition: None, may_exceed: Some(may_exceed) };
        self.submit_batch(admitted).map(|outcome| outcome.position)
    }

    /// Queues a batch, again and again if there was no room for it.
    pub(in crate::db) fn submit_batch(&self, mut admitted: Admitted) -> Result<Outcome> {
        if admitted.may_exceed.is_none() {
            admitted.may_exceed = Some(self.throttle(admitted.part_max())?);
        }
        loop {
            match self.submit(Wanted::Batch(admitted))? {
                Answer::Done(outcome) => return Ok(outcome),
                Answer::Stalled(batch) => admitted = batch,
            }
            admitted.may_exceed = Some(self.wait_for_relief(admitted.part_max(), true)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn small_writers_do_not_overtake_a_batch_larger_than_the_memtables_for_ever() {
        const PUTS_MAX: u32 = 50_000;
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(1 << 20).background_threads(0);
        let db = options.open("/db").unwrap();
        let memtables = db.engine().context.memory.memtables_max();
        let (begins, is_written, puts) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !begins.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                    while !is_written.load(Ordering::Relaxed) {
                        let put = puts.fetch_add(1, Ordering::Relaxed);
                        if put >= PUTS_MAX {
                            break;
                        }
                        db.put(put.to_be_bytes(), [7; 100]).unwrap();
                    }
                });
            }
            let mut batch = WriteBatch::new();
            batch.put("large", vec![7; 3 * memtables]);
            db.put("filled", "").unwrap();
            begins.store(true, Ordering::Relaxed);
            db.write(batch).unwrap();
            is_written.store(true, Ordering::Relaxed);
        });
        let puts = puts.into_inner();
        assert!(puts < PUTS_MAX, "it was written after the last of the puts of others");
        assert_eq!(db.get("large").unwrap().unwrap().len(), 3 * memtables);
    }
}
