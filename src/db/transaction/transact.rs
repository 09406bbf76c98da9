//! Transactions that are run again until they do not conflict.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use super::commit::is_conflict;
use super::handle::Transaction;
use crate::db::engine::Engine;
use crate::db::queue::RightOfWay;
use crate::db::store::Db;
use crate::db::write::Durability;
use crate::error::Result;

/// How often a transaction is run at most. The last time it has the right of way.
const TRIES: u32 = 10;

/// The longest pause after the first conflict; it doubles after each further one.
const PAUSE: Duration = Duration::from_micros(50);

impl Db {
    /// Runs `run` in a transaction and commits it, buffered. After a conflict it runs again in a new one, after a
    /// pause that doubles from 50 µs on: ten times at most. The last time other writers wait until it is done, for
    /// a second at most.
    ///
    /// `run` runs in this thread and holds no lock, so it may use the store. If it returns an error or panics,
    /// nothing was written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("on call:ada", "")?;
    /// db.put("on call:grace", "")?;
    /// // Whatever other threads do, one of the two stays.
    /// let leaves = |name: &str| {
    ///     db.transact(|tx| {
    ///         let may_leave = tx.prefix("on call:").count() > 1;
    ///         if may_leave {
    ///             tx.delete(format!("on call:{name}"));
    ///         }
    ///         Ok(may_leave)
    ///     })
    /// };
    /// assert!(leaves("ada")?);
    /// assert!(!leaves("grace")?);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of `run`. Those of [`Transaction::commit`]; [`Conflict`](crate::Error::Conflict) only if each try
    /// conflicted. No other error is tried again.
    #[doc(alias = "update")]
    #[doc(alias = "run_transaction")]
    pub fn transact<T>(&self, run: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(Durability::Buffered, run)
    }

    /// Like [`transact`](Self::transact). Returns when what was written, and everything that was read, is as
    /// durable as `durability` requires.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// use sievedb::Durability;
    ///
    /// let number = db.transact_with(Durability::Synced, |tx| {
    ///     let number = tx.get("next")?.map_or(1, |next| next.to_string().parse().unwrap_or(1));
    ///     tx.put("next", (number + 1).to_string());
    ///     Ok(number)
    /// })?;
    /// assert_eq!(number, 1);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`transact`](Self::transact), and of the sync.
    pub fn transact_with<T>(
        &self,
        durability: Durability,
        mut run: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut tries = 1;
        loop {
            let engine = self.engine();
            let way = if tries == TRIES { engine.go_first()? } else { None };
            let tx = self.transaction();
            let value = run(&tx)?;
            match tx.commit_visible() {
                Ok(end) => {
                    // Others need not wait for the disk.
                    drop(way);
                    return engine.make_commit_durable(end, durability).map(|()| value);
                }
                Err(error) if tries == TRIES || !is_conflict(&error) => return Err(error),
                Err(_) => pause(tries),
            }
            tries += 1;
        }
    }
}

impl Engine {
    /// Takes the right of way, and waits until the writers are done that came before.
    fn go_first(&self) -> Result<Option<RightOfWay<'_>>> {
        let way = self.commit.take_right_of_way();
        self.seal(Vec::new())?;
        Ok(way)
    }
}

/// Waits for a random time, so that two who conflict do not do so again.
fn pause(tries: u32) {
    let longest = PAUSE.saturating_mul(1 << (tries - 1).min(10));
    let share = RandomState::new().hash_one(tries) % 1024;
    std::thread::sleep(longest.mul_f64(share as f64 / 1024.0));
}
