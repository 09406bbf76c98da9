//! Writing a batch in its caller's thread.
//!
//! 1. Check that the store accepts writes; wait for background work and memtable room ([`stall`](super::stall)).
//! 2. Pass the batch to the commit leader (`commit/group_commit`).
//! 3. If memory is full and no background thread is free, flush or wait, and repeat step 2.
//! 4. Wait for a sync, if requested.

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
    pub(in crate::db) fn write(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let position = self.write_visible(batch)?;
        self.make_durable(Some(position), durability)
    }

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

    pub(in crate::db) fn write_visible(&self, batch: WriteBatch) -> Result<LogPosition> {
        self.check_takes_writes()?;
        let (bytes, trees) = self.admit(batch)?;
        if trees.is_empty() {
            return Ok(self.log().end());
        }
        self.write_plain(bytes, &trees)
    }

    pub(super) fn admit(&self, batch: WriteBatch) -> Result<(Vec<u8>, Vec<Arc<Tree>>)> {
        if batch.store().is_some_and(|store| store != self.id) {
            return Err(Error::invalid("the batch holds keyspaces of another store"));
        }
        let (bytes, keyspaces, _) = batch.into_parts()?;
        Ok((bytes, self.keyspaces.admit(&keyspaces)?))
    }

    #[inline]
    fn check_takes_writes(&self) -> Result<()> {
        self.files.check_not_forked()?;
        if self.lifecycle.is_ready() {
            return Ok(());
        }
        self.lifecycle.check_writable()?;
        self.await_resume()
    }

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
