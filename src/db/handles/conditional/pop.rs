//! Removal of the first or last entry, so that a store can serve as a queue or stack.

use crate::db::handles::iteration::iter::Keys;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::store::Db;
use crate::db::queues::value::Value;
use crate::db::state::durability::Durability;
use crate::error::Result;

type Entry = (Value, Value);

/// Repeats the search if other threads have removed the entries found.
fn pop(
    keys: impl Fn() -> Keys<'static>,
    next: fn(&mut Keys<'static>) -> Option<Result<Value>>,
    remove: impl Fn(&Value) -> Result<Option<Value>>,
) -> Result<Option<Entry>> {
    loop {
        let mut keys = keys();
        let mut is_empty = true;
        while let Some(key) = next(&mut keys).transpose()? {
            is_empty = false;
            if let Some(value) = remove(&key)? {
                return Ok(Some((key, value)));
            }
        }
        if is_empty {
            return Ok(None);
        }
    }
}

macro_rules! pop_calls {
    ($($handle:ty),*) => {$(
        impl $handle {
            /// Removes and returns the entry with the smallest key, if any; buffered.
            ///
            /// Concurrent calls get different entries, and none is lost. A smaller key written during the call may be missed.
            ///
            /// Costs as much as `first` and [`remove`](Self::remove), for any number of entries removed before: a
            /// call steps over about two dozen tombstones and jumps over the others.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("job 1", "to do")?;
            /// db.put("job 2", "to do")?;
            /// assert_eq!(db.pop_first()?, Some(("job 1".into(), "to do".into())));
            /// assert_eq!(db.len()?, 1);
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`remove`](Self::remove).
            #[doc(alias = "pop_min")]
            pub fn pop_first(&self) -> Result<Option<(Value, Value)>> {
                self.pop_first_with(Durability::Buffered)
            }

            /// [`pop_first`](Self::pop_first) with the given durability of the removal.
            ///
            /// # Errors
            ///
            /// See [`pop_first`](Self::pop_first); also an error of the sync.
            pub fn pop_first_with(&self, durability: Durability) -> Result<Option<(Value, Value)>> {
                pop(|| self.keys(), Keys::next, |key| self.remove_with(key, durability))
            }

            /// Removes and returns the entry with the largest key, like [`pop_first`](Self::pop_first). A larger key
            /// written during the call may be missed.
            ///
            /// ```
            /// # let dir = tempfile::tempdir().unwrap();
            /// # let db = sievedb::Db::open(dir.path())?;
            /// db.put("a", "1")?;
            /// db.put("b", "2")?;
            /// assert_eq!(db.pop_last()?, Some(("b".into(), "2".into())));
            /// # Ok::<(), sievedb::Error>(())
            /// ```
            ///
            /// # Errors
            ///
            /// See [`pop_first`](Self::pop_first).
            #[doc(alias = "pop_max")]
            pub fn pop_last(&self) -> Result<Option<(Value, Value)>> {
                self.pop_last_with(Durability::Buffered)
            }

            /// [`pop_last`](Self::pop_last) with the given durability of the removal.
            ///
            /// # Errors
            ///
            /// See [`pop_last`](Self::pop_last); also an error of the sync.
            pub fn pop_last_with(&self, durability: Durability) -> Result<Option<(Value, Value)>> {
                pop(|| self.keys(), Keys::next_back, |key| self.remove_with(key, durability))
            }
        }
    )*};
}

pop_calls!(Db, Keyspace);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::fs::MemFs;
    use crate::options::Options;

    fn number(entry: &Entry) -> u32 {
        assert_eq!(entry.0, entry.1);
        entry.0.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
    }

    #[test]
    fn entries_are_popped_in_order_from_both_ends_over_memtables_and_tables() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        assert_eq!((db.pop_first().unwrap(), db.pop_last().unwrap()), (None, None));
        for n in (0..300u32).rev() {
            db.put(n.to_be_bytes(), n.to_be_bytes()).unwrap();
            if n % 70 == 0 {
                db.flush().unwrap();
            }
        }
        for n in 0..150 {
            assert_eq!(db.pop_first().unwrap().as_ref().map(number), Some(n));
            assert_eq!(db.pop_last_with(Durability::Synced).unwrap().as_ref().map(number), Some(299 - n));
        }
        assert!(db.pop_first().unwrap().is_none() && db.pop_last().unwrap().is_none());
        assert!(db.is_empty().unwrap());
    }

    #[test]
    fn of_many_threads_that_pop_while_others_write_each_entry_goes_to_exactly_one() {
        const WRITERS: u32 = 2;
        const EACH: u32 = 3000;
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(1 << 20);
        let db = options.open("/db").unwrap();
        let (db, is_written) = (&db, &AtomicBool::new(false));
        let popped: Vec<u32> = thread::scope(|scope| {
            let poppers: Vec<_> = (0..4u32)
                .map(|n| {
                    let pop = move || if n % 2 == 0 { db.pop_first() } else { db.pop_last() }.unwrap();
                    scope.spawn(move || {
                        let mut mine = Vec::new();
                        loop {
                            // Read before the store is found empty.
                            let is_over = is_written.load(Ordering::Acquire);
                            match pop() {
                                Some(entry) => mine.push(number(&entry)),
                                None if is_over => return mine,
                                None => thread::yield_now(),
                            }
                        }
                    })
                })
                .collect();
            let writers: Vec<_> = (0..WRITERS)
                .map(|n| {
                    scope.spawn(move || {
                        for key in (0..EACH).map(|key| (key.wrapping_mul(7919) % EACH) * WRITERS + n) {
                            db.put(key.to_be_bytes(), key.to_be_bytes()).unwrap();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_written.store(true, Ordering::Release);
            poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
        });
        let distinct: BTreeSet<_> = popped.iter().copied().collect();
        assert_eq!((popped.len(), distinct.len()), ((WRITERS * EACH) as usize, popped.len()));
        assert!(distinct.into_iter().eq(0..WRITERS * EACH));
        assert!(db.is_empty().unwrap());
    }
}
