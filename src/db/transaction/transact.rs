//! Retries of transactions after conflicts.

use super::commit::may_succeed_again;
use super::handle::Transaction;
use crate::db::handles::store::Db;
use crate::db::queues::priority::Tries;
use crate::db::state::durability::Durability;
use crate::error::Result;

impl Db {
    /// Runs `run` in a transaction and commits it, buffered. A conflict repeats both, up to ten runs in all, after a
    /// random pause: at most 100 µs, doubled each time. Other writers wait for the last run, at most a second.
    ///
    /// `run` runs in this thread without a lock. If it returns an error or panics, nothing is written.
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
    /// Errors of `run` and of [`Transaction::commit`]. [`Conflict`](crate::Error::Conflict) only if every attempt
    /// conflicted; `LimitExceeded` for a check that cannot complete is retried, too.
    #[doc(alias = "update")]
    #[doc(alias = "run_transaction")]
    pub fn transact<T>(&self, run: impl FnMut(&Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(Durability::Buffered, run)
    }

    /// [`transact`](Self::transact) with the given durability of the writes and of everything read.
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
    /// See [`transact`](Self::transact); also an error of the sync.
    pub fn transact_with<T>(
        &self,
        durability: Durability,
        mut run: impl FnMut(&Transaction) -> Result<T>,
    ) -> Result<T> {
        let engine = self.engine();
        let mut tries = Tries::new(&engine.commit.priority);
        loop {
            let tx = self.transaction();
            let value = run(&tx)?;
            match tx.commit_visible() {
                Ok(end) => {
                    drop(tries);
                    return engine.make_durable(end, durability).map(|()| value);
                }
                Err(error) if tries.is_last_of_ten() || !may_succeed_again(&error) => return Err(error),
                Err(_) => tries.lost(|| engine.barrier()),
            }
        }
    }
}
