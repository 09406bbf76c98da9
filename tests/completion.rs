use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::limits::KEY_BYTES_MAX;
use sievedb::{Commit, Db, Durability, Error, Result, WriteBatch};

use crate::support::store::{self, DIR};

const PATIENCE: Duration = Duration::from_secs(60);

fn with_threads(fs: &MemFs) -> Db {
    store::options(fs).background_threads(2).open(DIR).unwrap()
}

fn without_threads(fs: &MemFs) -> Db {
    store::options(fs).background_threads(0).open(DIR).unwrap()
}

fn pend(db: &Db, key: &str, durability: Durability) -> Commit {
    db.write_pending(WriteBatch::from_iter([(key, "v")]), durability)
}

fn tell(commit: &Commit, number: usize, sender: &Sender<(usize, Result<()>)>) {
    let sender = sender.clone();
    commit.on_durable(move |result| sender.send((number, result)).unwrap());
}

fn numbers(told: &Receiver<(usize, Result<()>)>) -> Vec<usize> {
    told.try_iter().map(|(number, result)| result.map(|()| number).unwrap()).collect()
}

fn survives(fs: &MemFs, key: &str) -> bool {
    store::open(&fs.crash(CrashPolicy::DropUnsynced)).unwrap().contains(key).unwrap()
}

fn is_io(result: &Result<()>) -> bool {
    matches!(result, Err(Error::Io { .. }))
}

fn fail_syncs(fs: &MemFs) {
    fs.observe(|_, op| match op {
        Op::Sync(_) => Err(std::io::ErrorKind::Other.into()),
        _ => Ok(()),
    });
}

#[test]
fn a_pending_write_is_visible_at_once_and_durable_when_its_commit_is_complete() {
    let fs = MemFs::new();
    let db = without_threads(&fs);
    let commit = pend(&db, "k", Durability::Synced);
    assert!(db.contains("k").unwrap() && !commit.is_durable() && !survives(&fs, "k"));
    assert!(db.step().unwrap());
    assert!(commit.is_durable() && survives(&fs, "k"));
    commit.wait().unwrap();
    let commit = pend(&db, "l", Durability::Synced);
    commit.wait().unwrap();
    assert!(commit.is_durable() && survives(&fs, "l"), "whoever waits syncs");
}

#[test]
fn commits_and_callbacks_that_wait_are_counted_as_memory_that_is_held() {
    let db = without_threads(&MemFs::new());
    let held = || db.stats().memory.held;
    let (before, each) = (held(), 10);
    let commits: Vec<_> = (0..each).map(|n| pend(&db, &format!("{n}"), Durability::Buffered)).collect();
    let waiting = held() - before;
    assert!(((50 * each)..(400 * each)).contains(&waiting), "{waiting} bytes");
    for commit in &commits {
        let owned = [7_u8; 1000];
        commit.on_durable(move |_| assert_eq!(owned, [7; 1000]));
    }
    let callbacks = held() - before - waiting;
    assert!(((1000 * each)..(1200 * each)).contains(&callbacks), "{callbacks} bytes");
    let mut last = pin!(pend(&db, "last", Durability::Buffered));
    assert!(last.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    commits[0].wait().unwrap();
    assert!(held() - before > callbacks, "they have not run yet");
    db.sync().unwrap();
    assert_eq!(held(), before);
    commits[0].on_durable(|_| ());
    db.sync().unwrap();
    assert_eq!(held(), before);
}

#[test]
fn a_buffered_commit_begins_no_sync_and_is_complete_with_that_of_others() {
    let fs = MemFs::new();
    let db = without_threads(&fs);
    let syncs = || db.stats().log_syncs;
    let before = syncs();
    let commits = ["a", "b", "c"].map(|key| pend(&db, key, Durability::Buffered));
    while db.step().unwrap() {}
    assert!(syncs() == before && !commits.iter().any(Commit::is_durable));
    db.put_with("other", "", Durability::Synced).unwrap();
    assert!(commits.iter().all(Commit::is_durable) && survives(&fs, "c"));
    let commit = pend(&db, "d", Durability::Buffered);
    db.flush().unwrap();
    assert!(commit.is_durable() && survives(&fs, "d"));
    let empty = db.write_pending(WriteBatch::new(), Durability::Synced);
    db.sync().unwrap();
    assert!(db.write_pending(WriteBatch::new(), Durability::Buffered).is_durable());
    assert!(empty.is_durable());
}

#[test]
fn without_threads_step_sync_and_close_run_callbacks_in_order_and_once() {
    let fs = MemFs::new();
    for round in 0..3 {
        let db = without_threads(&fs);
        let (sender, told) = channel();
        let commits = ["a", "b", "c"].map(|key| pend(&db, key, Durability::Synced));
        for (number, commit) in commits.iter().enumerate().rev() {
            tell(commit, number, &sender);
            tell(commit, number, &sender);
        }
        commits[2].wait().unwrap();
        assert_eq!(numbers(&told), [], "none runs before a call that runs them");
        let run = |db: &Db| match round {
            0 => drop(db.step().unwrap()),
            1 => db.sync().unwrap(),
            _ => db.clone().close().unwrap(),
        };
        run(&db);
        assert_eq!(numbers(&told), [0, 0, 1, 1, 2, 2]);
        if round < 2 {
            [1, 0].into_iter().for_each(|number| tell(&commits[number], number, &sender));
            run(&db);
            assert_eq!(numbers(&told), [0, 1]);
        }
    }
}

#[test]
fn callbacks_of_eight_threads_run_once_and_in_the_order_of_each_thread() {
    let (threads, each) = (8, 300);
    let db = with_threads(&MemFs::new());
    let lists: Vec<_> = (0..threads).map(|_| Arc::new(Mutex::new(Vec::new()))).collect();
    let is_running = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        for (thread, list) in lists.iter().enumerate() {
            let (db, is_running) = (&db, &is_running);
            scope.spawn(move || {
                let mut last = None;
                for n in 0..each {
                    let durability = if n % 3 == 0 { Durability::Buffered } else { Durability::Synced };
                    let commit = pend(db, &format!("{thread} {n}"), durability);
                    let (list, is_running) = (Arc::clone(list), Arc::clone(is_running));
                    commit.on_durable(move |result| {
                        assert!(!is_running.swap(true, Ordering::SeqCst), "two at a time");
                        result.unwrap();
                        list.lock().unwrap().push(n);
                        is_running.store(false, Ordering::SeqCst);
                    });
                    last = Some(commit);
                }
                last.unwrap().wait().unwrap();
            });
        }
    });
    assert!(db.stats().log_syncs < threads as u64 * each, "{} syncs", db.stats().log_syncs);
    db.close().unwrap();
    for list in lists {
        assert_eq!(*list.lock().unwrap(), (0..each).collect::<Vec<_>>());
    }
}

#[test]
fn callbacks_get_the_error_of_a_sync_that_fails_and_of_a_write_that_fails() {
    for threads in [0, 2] {
        let fs = MemFs::new();
        let db = store::options(&fs).background_threads(threads).open(DIR).unwrap();
        let (sender, told) = channel();
        let long =
            db.write_pending(WriteBatch::from_iter([(vec![7; KEY_BYTES_MAX + 1], "")]), Durability::Synced);
        tell(&long, 0, &sender);
        let _ = db.step().unwrap();
        let (_, result) = told.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(result, Err(Error::LimitExceeded { .. })), "{result:?}");
        assert!(long.wait().is_err() && !long.is_durable());

        fail_syncs(&fs);
        let buffered = pend(&db, "a", Durability::Buffered);
        tell(&buffered, 1, &sender);
        let synced = pend(&db, "b", Durability::Synced);
        tell(&synced, 2, &sender);
        let _ = db.step();
        for number in [1, 2] {
            let (found, result) = told.recv_timeout(PATIENCE).unwrap();
            assert!(found == number && is_io(&result), "{found}: {result:?}");
        }
        assert!(is_io(&synced.wait()) && !synced.is_durable());
        let refused = pend(&db, "c", Durability::Synced);
        tell(&refused, 3, &sender);
        let _ = db.sync();
        let (number, result) = told.recv_timeout(PATIENCE).unwrap();
        assert!(number == 3 && matches!(result, Err(Error::Poisoned { .. })), "{result:?}");
        fs.stop_observing();
        assert!(db.close().is_err());
    }
}

#[test]
fn a_sync_completes_all_that_it_makes_durable() {
    let fs = MemFs::new();
    let db = without_threads(&fs);
    let first = pend(&db, "first", Durability::Synced);
    let second = pend(&db, "second", Durability::Buffered);
    first.wait().unwrap();
    assert!(second.is_durable() && survives(&fs, "second"));
}

#[test]
fn commits_report_a_failure_that_another_call_meets() {
    let fs = MemFs::new();
    let db = with_threads(&fs);
    let (tells, told) = channel();
    let commit = pend(&db, "k", Durability::Buffered);
    tell(&commit, 1, &tells);
    fail_syncs(&fs);
    db.flush().unwrap_err();
    let (_, result) = told.recv_timeout(PATIENCE).expect("it is told before the store is closed");
    assert!(result.is_err() && commit.wait().is_err());
}

#[test]
fn a_callback_that_comes_while_the_store_is_closed_waits_its_turn() {
    let fs = MemFs::new();
    let db = without_threads(&fs);
    let (tells, told) = channel();
    let commit = Arc::new(pend(&db, "k", Durability::Buffered));
    let (late, sender) = (Arc::clone(&commit), tells.clone());
    commit.on_durable(move |_| {
        tell(&late, 3, &sender);
        sender.send((1, Ok(()))).unwrap();
    });
    tell(&commit, 2, &tells);
    db.close().unwrap();
    assert_eq!(numbers(&told), [1, 2, 3]);
}

#[test]
fn closing_completes_all_commits_and_waits_for_their_callbacks() {
    for (threads, is_failing) in [(0, false), (2, false), (0, true), (2, true)] {
        let fs = MemFs::new();
        let db = store::options(&fs).background_threads(threads).open(DIR).unwrap();
        let (sender, told) = channel();
        let commits: Vec<_> = (0..3).map(|n| pend(&db, &format!("{n}"), Durability::Buffered)).collect();
        commits.iter().enumerate().for_each(|(number, commit)| tell(commit, number, &sender));
        if is_failing {
            fail_syncs(&fs);
        }
        assert_eq!(db.close().is_err(), is_failing);
        let told: Vec<_> = told.try_iter().collect();
        assert_eq!(told.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(told.iter().all(|(_, result)| result.is_err() == is_failing));
        assert!(commits.iter().all(|commit| commit.is_durable() != is_failing));
        // The thread has ended, so the caller runs the callback.
        let (sender, late) = channel();
        tell(&commits[0], 0, &sender);
        assert_eq!(late.try_recv().unwrap().1.is_err(), is_failing);
        assert_eq!(commits[0].wait().is_err(), is_failing);
    }
    let fs = MemFs::new();
    drop(store::open(&fs).unwrap());
    let db = store::open_read_only(&fs).unwrap();
    let (sender, told) = channel();
    tell(&pend(&db, "k", Durability::Synced), 0, &sender);
    assert!(
        matches!(told.try_recv(), Ok((0, Err(Error::ReadOnly)))),
        "there is no thread for this one either"
    );
}

#[test]
fn callbacks_that_closing_runs_find_a_store_that_can_be_opened_again() {
    for threads in [0, 2] {
        let fs = MemFs::new();
        let db = store::options(&fs).background_threads(threads).open(DIR).unwrap();
        let (sender, told) = channel();
        let image = fs.clone();
        pend(&db, "k", Durability::Buffered).on_durable(move |result| {
            let opened = without_threads(&image);
            sender.send(result.is_ok() && opened.contains("k").unwrap()).unwrap();
        });
        db.close().unwrap();
        assert_eq!(told.try_recv(), Ok(true));
    }
}

#[test]
fn a_callback_may_write_wait_flush_and_begin_other_commits() {
    for threads in [0, 2] {
        let db = store::options(&MemFs::new()).background_threads(threads).open(DIR).unwrap();
        let (sender, told) = channel();
        let (inner, tells) = (db.clone(), sender.clone());
        pend(&db, "a", Durability::Synced).on_durable(move |result| {
            result.unwrap();
            inner.put_with("b", "", Durability::Synced).unwrap();
            assert!(inner.insert_if_absent("c", "").unwrap());
            inner.flush().unwrap();
            inner.sync().unwrap();
            let next = pend(&inner, "d", Durability::Synced);
            tell(&next, 1, &tells);
            next.wait().unwrap();
            tells.send((0, Ok(()))).unwrap();
        });
        if threads == 0 {
            while db.step().unwrap() {}
        }
        let order: Vec<_> = (0..2).map(|_| told.recv_timeout(PATIENCE).unwrap().0).collect();
        assert_eq!(order, [0, 1], "one after the other");
        assert_eq!(db.len().unwrap(), 4);
    }
}

#[test]
fn a_callback_may_drop_the_last_handle_and_close_during_other_callbacks() {
    let fs = MemFs::new();
    let (sender, told) = channel();
    let db = with_threads(&fs);
    let (go, gate) = channel::<()>();
    let first = pend(&db, "a", Durability::Synced);
    let handle = db.clone();
    first.on_durable(move |_| {
        gate.recv_timeout(PATIENCE).unwrap();
        drop(handle);
    });
    let second = pend(&db, "b", Durability::Buffered);
    tell(&second, 2, &sender);
    drop(db);
    go.send(()).unwrap();
    let (number, result) = told.recv_timeout(PATIENCE).unwrap();
    assert!(number == 2 && result.is_ok() && second.is_durable());
    let db = with_threads(&fs);
    assert!(db.contains("b").unwrap());

    let (handle, tells) = (db.clone(), sender.clone());
    pend(&db, "c", Durability::Synced).on_durable(move |_| tells.send((3, handle.close())).unwrap());
    db.close().unwrap();
    assert!(matches!(told.recv_timeout(PATIENCE).unwrap(), (3, Ok(()))));
    assert!(store::open(&fs).unwrap().contains("c").unwrap());
}

#[test]
fn a_callback_that_panics_stops_neither_the_others_nor_the_store() {
    for threads in [0, 2] {
        let db = store::options(&MemFs::new()).background_threads(threads).open(DIR).unwrap();
        let (sender, told) = channel();
        let commit = pend(&db, "a", Durability::Synced);
        commit.on_durable(|_| panic!("in a callback"));
        tell(&commit, 0, &sender);
        if threads == 0 {
            while db.step().unwrap() {}
        }
        assert!(told.recv_timeout(PATIENCE).unwrap().1.is_ok());
        db.put_with("b", "", Durability::Synced).unwrap();
        db.close().unwrap();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        thread::park();
    }
}

#[test]
fn a_commit_is_a_future_that_needs_no_runtime() {
    let fs = MemFs::new();
    let db = with_threads(&fs);
    block_on(async {
        for n in 0..100 {
            pend(&db, &format!("{n}"), Durability::Synced).await.unwrap();
            assert!(n % 20 != 0 || survives(&fs, &format!("{n}")));
        }
    });
    fail_syncs(&fs);
    assert!(is_io(&block_on(pend(&db, "lost", Durability::Synced))));
}

#[test]
fn a_task_is_woken_once_by_the_call_that_completes_its_commit() {
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let db = without_threads(&MemFs::new());
    let counts = [(); 2].map(|()| Arc::new(Count(AtomicUsize::new(0))));
    let mut commit = pin!(pend(&db, "k", Durability::Buffered));
    for count in &counts {
        let waker: Waker = Arc::clone(count).into();
        assert!(commit.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    while db.step().unwrap() {}
    let woken = || counts.each_ref().map(|count| count.0.load(Ordering::SeqCst));
    assert_eq!(woken(), [0, 0]);
    db.sync().unwrap();
    db.sync().unwrap();
    assert_eq!(woken(), [0, 1], "the task that asked last");
    assert!(commit.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

#[test]
fn writing_that_resumes_in_a_new_log_completes_the_commits_of_the_old_one() {
    let fs = MemFs::new();
    let db = without_threads(&fs);
    let commit = pend(&db, "a", Durability::Buffered);
    let is_full = Arc::new(AtomicBool::new(true));
    let full = Arc::clone(&is_full);
    fs.observe(move |_, op| match op {
        Op::Append(path, ..)
            if path.extension().is_some_and(|end| end == "wal") && full.load(Ordering::Relaxed) =>
        {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        _ => Ok(()),
    });
    let failed = pend(&db, "b", Durability::Synced);
    assert!(is_io(&failed.wait()) && !commit.is_durable());
    is_full.store(false, Ordering::Relaxed);
    db.put("c", "").unwrap();
    assert!(commit.is_durable() && survives(&fs, "a"));
    assert!(!db.contains("b").unwrap() && !failed.is_durable());
}
