//! Points at which tests switch threads, to try interleavings.
//!
//! [`point`] is a no-op except in threads registered by a test, which run one at a time, in an order given by a seed.

#[cfg(not(test))]
pub(in crate::db) fn point() {}

#[cfg(test)]
pub(in crate::db) use tests::{in_order, point};

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::{Duration, Instant};

    use crate::batch::WriteBatch;
    use crate::db::handles::store::Db;
    use crate::db::state::durability::Durability;
    use crate::error::{Error, Result};
    use crate::filter::{FilterKind, FilterPolicy};
    use crate::fs::{CrashPolicy, MemFs, Op};
    use crate::options::{KeyspaceOptions, Options};

    /// A thread that reaches no point for longer is assumed to wait for another one.
    const BLOCKED: Duration = Duration::from_millis(2);

    /// Longer than the time of any operation that ends.
    const PATIENCE: Duration = Duration::from_secs(60);

    thread_local! {
        static MINE: RefCell<Option<(Arc<Schedule>, usize)>> = const { RefCell::new(None) };
    }

    pub(in crate::db) fn point() {
        if let Some((schedule, thread)) = MINE.with(|mine| mine.borrow().clone()) {
            schedule.wait_for_turn(thread);
        }
    }

    /// Runs its threads one at a time, from point to point.
    #[derive(Default)]
    struct Schedule {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct State {
        /// Threads that wait at a point.
        waiting: BTreeSet<usize>,
        /// The thread to run next, until it runs.
        turn: Option<usize>,
        ended: usize,
        /// The test has failed; all threads run freely.
        is_free: bool,
        /// Number of arrivals at points, and of ended threads.
        events: u64,
    }

    impl Schedule {
        fn wait_for_turn(&self, thread: usize) {
            let mut state = self.state.lock().unwrap();
            state.waiting.insert(thread);
            state.events += 1;
            self.changed.notify_all();
            while state.turn != Some(thread) && !state.is_free {
                state = self.changed.wait(state).unwrap();
            }
            state.turn = None;
            state.waiting.remove(&thread);
        }

        fn end(&self) {
            let mut state = self.state.lock().unwrap();
            state.ended += 1;
            state.events += 1;
            self.changed.notify_all();
        }

        /// Assigns turns until all threads have ended. `choose` picks one of `n`.
        fn run(&self, threads: usize, mut choose: impl FnMut(usize) -> usize) {
            let start = Instant::now();
            let mut state = self.state.lock().unwrap();
            while state.ended < threads {
                if start.elapsed() > PATIENCE {
                    state.is_free = true;
                    self.changed.notify_all();
                    drop(state);
                    panic!("a thread waits for ever");
                }
                if state.turn.is_none() && !state.waiting.is_empty() {
                    let chosen = *state.waiting.iter().nth(choose(state.waiting.len())).unwrap();
                    state.turn = Some(chosen);
                    self.changed.notify_all();
                }
                let events = state.events;
                let moved = |state: &mut State| state.events == events;
                state = self.changed.wait_timeout_while(state, BLOCKED, moved).unwrap().0;
            }
        }
    }

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((self.0 >> 33) % n as u64) as usize
        }
    }

    fn options(fs: &MemFs) -> Options {
        Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(1 << 20)
    }

    const DIR: &str = "/db";

    /// A thread that runs while the store closes. Returns the key that must exist afterwards, if any.
    type Deed = fn(&Db) -> Result<Option<&'static str>>;

    fn put_synced(db: &Db) -> Result<Option<&'static str>> {
        let mut batch = WriteBatch::new();
        batch.put("synced", "v");
        db.write_with(batch, Durability::Synced).map(|()| Some("synced"))
    }

    const DEEDS: [(&str, Deed); 9] = [
        ("put", |db| db.put("put", "v").map(|()| Some("put"))),
        ("synced put", put_synced),
        ("flush", |db| db.flush().map(|()| None)),
        ("compact", |db| db.compact().map(|()| None)),
        ("refilter", |db| db.refilter(FilterPolicy::new(FilterKind::Bloom)).map(|()| None)),
        ("create", |db| db.keyspace("new", KeyspaceOptions::new())?.put("k", "v").map(|()| None)),
        ("drop", |db| db.drop_keyspace("old").map(|()| None)),
        ("options", |db| db.default_keyspace().set_options(KeyspaceOptions::new().l0_runs(2)).map(|()| None)),
        ("step", |db| db.step().map(|_| None)),
    ];

    /// Closes a store while two threads use it, in an order given by the seed.
    fn close_beside(first: Deed, second: Deed, seed: u64) {
        let fs = MemFs::new();
        let db = options(&fs).open(DIR).unwrap();
        db.keyspace("old", KeyspaceOptions::new()).unwrap().put("k", "v").unwrap();
        for _ in 0..2 {
            db.put("before", "v").unwrap();
            db.flush().unwrap();
        }
        db.put("before", "v").unwrap();
        let (schedule, is_closed) = (Arc::new(Schedule::default()), Arc::new(AtomicBool::new(false)));
        let (closed, touched) = (Arc::clone(&is_closed), Arc::new(Mutex::new(None)));
        let touches = Arc::clone(&touched);
        fs.observe(move |_, op| {
            point();
            if closed.load(Ordering::SeqCst) {
                *touches.lock().unwrap() = Some(format!("{op:?}"));
            }
            Ok(())
        });
        let begin = |thread: usize| {
            let (schedule, db) = (Arc::clone(&schedule), db.clone());
            MINE.set(Some((Arc::clone(&schedule), thread)));
            point();
            (schedule, db)
        };
        let done = std::thread::scope(|scope| {
            let closing = scope.spawn(|| {
                let (schedule, db) = begin(0);
                let result = db.close();
                is_closed.store(true, Ordering::SeqCst);
                schedule.end();
                result
            });
            let others = [(1, first), (2, second)].map(|(thread, deed)| {
                let begin = &begin;
                scope.spawn(move || {
                    let (schedule, db) = begin(thread);
                    let result = deed(&db);
                    schedule.end();
                    result
                })
            });
            let (mut dice, mut last) = (Dice(seed), 0);
            // Every second seed switches rarely, for bugs that need one long wait.
            let sticky = seed.is_multiple_of(2);
            schedule.run(3, |waiting| {
                if !sticky || dice.below(4) == 0 {
                    last = dice.below(64);
                }
                last % waiting
            });
            closing.join().unwrap().unwrap();
            others.map(|other| other.join().unwrap())
        });
        assert_eq!(*touched.lock().unwrap(), None, "the directory was touched after the close");
        for result in &done {
            assert!(matches!(result, Ok(_) | Err(Error::Closed)), "{result:?}");
        }
        for (name, deed) in DEEDS {
            assert!(matches!(deed(&db), Err(Error::Closed)), "{name} after the close");
        }
        drop(db);
        fs.stop_observing();
        let db = options(&fs).open(DIR).unwrap();
        assert!(db.contains("before").unwrap());
        for key in done.into_iter().flatten().flatten() {
            assert!(db.contains(key).unwrap(), "{key} was acknowledged");
        }
        let report = db.verify().unwrap();
        assert!(report.damage.is_empty() && db.open_report().dropped.is_empty(), "{:?}", report.damage);
    }

    #[test]
    fn closing_beside_any_two_other_calls_leaves_a_whole_store_in_every_order_tried() {
        let mut tried = 0;
        for seed in 0..6 {
            for (at, first) in DEEDS.into_iter().enumerate() {
                for second in &DEEDS[at..] {
                    // Two threads drop the same keyspace, and one of them fails.
                    if first.0 == "drop" && second.0 == "drop" {
                        continue;
                    }
                    let seed = seed + 1000 * tried;
                    let context = (first.0, second.0, seed);
                    let outcome = std::panic::catch_unwind(|| close_beside(first.1, second.1, seed));
                    assert!(outcome.is_ok(), "closing beside {context:?}");
                    tried += 1;
                }
            }
        }
        println!("{tried} orders");
    }

    /// Runs these in separate threads, in an order given by the seed.
    pub(in crate::db) fn in_order<T: Send, const N: usize>(
        seed: u64,
        deeds: [&(dyn Fn() -> T + Sync); N],
    ) -> [T; N] {
        let schedule = Arc::new(Schedule::default());
        std::thread::scope(|scope| {
            let mut thread = 0;
            let threads = deeds.map(|deed| {
                let (schedule, at) = (Arc::clone(&schedule), thread);
                thread += 1;
                scope.spawn(move || {
                    MINE.set(Some((Arc::clone(&schedule), at)));
                    point();
                    let result = deed();
                    schedule.end();
                    result
                })
            });
            let (mut dice, mut last) = (Dice(seed), 0);
            schedule.run(N, |waiting| {
                if !seed.is_multiple_of(2) || dice.below(3) == 0 {
                    last = dice.below(64);
                }
                last % waiting
            });
            threads.map(|thread| thread.join().unwrap())
        })
    }

    #[test]
    fn of_two_who_insert_a_key_beside_flushes_one_is_told_that_it_is_new_in_every_order() {
        for seed in 0..200 {
            let db = options(&MemFs::new()).open(DIR).unwrap();
            db.put("before", "v").unwrap();
            let flush = || db.flush().and_then(|()| db.flush()).map(|()| 0);
            let insert = |by: &'static str| db.insert_if_absent("k", by).map(usize::from);
            let insert_many = || {
                let new = db.insert_new_many([("before", "x"), ("k", "many"), ("l", "many")])?;
                assert!(!new.is_new(0) && new.is_new(2));
                Ok(usize::from(new.is_new(1)))
            };
            let results = in_order(seed, [&insert_many, &|| insert("single"), &flush]);
            let new: Vec<usize> = results.into_iter().map(|result: Result<usize>| result.unwrap()).collect();
            assert_eq!(new.iter().sum::<usize>(), 1, "order {seed}: {new:?}");
            let winner = if new[0] == 1 { "many" } else { "single" };
            assert_eq!(db.get("k").unwrap().as_deref(), Some(winner.as_bytes()), "order {seed}");
        }
    }

    #[test]
    fn of_threads_that_resume_writing_at_once_one_does_in_every_order() {
        for seed in 0..120 {
            let fs = MemFs::new();
            let db = options(&fs).open(DIR).unwrap();
            db.put("before", "v").unwrap();
            let cause = if seed % 4 < 2 { ErrorKind::StorageFull } else { ErrorKind::Other };
            db.engine().suspend(Error::io("append to", Path::new(DIR), cause.into()));
            let installed = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&installed);
            fs.observe(move |_, op| {
                counted.fetch_add(u64::from(matches!(op, Op::Rename(..))), Ordering::SeqCst);
                point();
                Ok(())
            });
            let put = || db.put("put", "v");
            let step = || db.step().map(drop);
            let results = in_order(seed, [&put, &step, &step, &|| db.flush()]);
            fs.stop_observing();
            assert!(results.iter().all(Result::is_ok), "order {seed}: {results:?}");
            assert_eq!(installed.load(Ordering::SeqCst), 1, "order {seed}");
            assert!(db.background_error().is_none());
            let image = fs.crash(CrashPolicy::KeepAll);
            let db = options(&image).open(DIR).unwrap();
            assert!(db.contains("before").unwrap() && db.contains("put").unwrap(), "order {seed}");
        }
    }
}
