//! Transactions that are run again until they do not conflict.

use super::commit::may_succeed_again;
use super::handle::Transaction;
use crate::db::handles::store::Db;
use crate::db::queues::priority::Tries;
use crate::db::state::durability::Durability;
use crate::error::Result;

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
    /// conflicted. No other error of the commit is tried again but that it could not be checked what was read.
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
        let engine = self.engine();
        let mut tries = Tries::new(&engine.commit.priority);
        loop {
            let tx = self.transaction();
            let value = run(&tx)?;
            match tx.commit_visible() {
                Ok(end) => {
                    // Others need not wait for the disk.
                    drop(tries);
                    return engine.make_durable(end, durability).map(|()| value);
                }
                // The last try had priority.
                Err(error) if tries.is_last_of_ten() || !may_succeed_again(&error) => return Err(error),
                Err(_) => tries.lost(|| engine.barrier()),
            }
        }
    }
}
