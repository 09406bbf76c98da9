//! A store in an async program, without blocking it.
//!
//! A write blocks only while it waits for the disk: `write_pending` returns a commit, a future that needs no thread, and waiting
//! commits share one sync. A read may block on the disk, so it runs in another thread, as with `spawn_blocking`. `may_contain`
//! never blocks, and most absent keys need no thread.
//!
//! `cargo run --release --example async_program`

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use sievedb::{Db, Durability, Result, Value, WriteBatch};

const TASKS: usize = 64;
const THREADS: usize = 4;

/// Its calls return at once with a result to await.
#[derive(Clone)]
struct AsyncDb {
    db: Db,
    threads: Threads,
}

impl AsyncDb {
    async fn get(&self, key: String) -> Result<Option<Value>> {
        if !self.db.may_contain(&key) {
            return Ok(None);
        }
        let db = self.db.clone();
        self.threads.run(move || db.get(key)).await
    }

    async fn put_synced(&self, key: String, value: String) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value);
        self.db.write_pending(batch, Durability::Synced).await
    }
}

async fn visitor(store: &AsyncDb, number: usize) -> Result<()> {
    for visit in 0..10 {
        store.put_synced(format!("visitor {number}, visit {visit}"), "was here".into()).await?;
    }
    assert!(store.get(format!("visitor {number}, visit 9")).await?.is_some());
    assert!(store.get(format!("visitor {number}, visit 10")).await?.is_none());
    Ok(())
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sievedb-async-{}", std::process::id()));
    let store = AsyncDb { db: Db::open(&dir)?, threads: Threads::new() };

    let mut tasks: Vec<_> = (0..TASKS).map(|number| Box::pin(visitor(&store, number))).collect();
    let mut failure = Ok(());
    block_on(poll_fn(|context| {
        tasks.retain_mut(|task| match task.as_mut().poll(context) {
            Poll::Ready(Err(error)) => {
                failure = Err(error);
                false
            }
            Poll::Ready(Ok(())) => false,
            Poll::Pending => true,
        });
        if tasks.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    failure?;
    let stats = store.db.stats();
    println!(
        "{TASKS} tasks in one thread did {} synced writes with {} syncs of the log",
        stats.entries, stats.log_syncs
    );

    drop(tasks);
    drop(store);
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
struct Threads(Sender<Job>);

impl Threads {
    fn new() -> Self {
        let (sender, receiver) = channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let receiver = Arc::clone(&receiver);
            thread::spawn(move || {
                // Unlocked before the job begins; the threads end with the last sender.
                let next = || receiver.lock().ok()?.recv().ok();
                while let Some(job) = next() {
                    job();
                }
            });
        }
        Self(sender)
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Reply<T> {
        let slot = Arc::new(Mutex::new((None, None::<Waker>)));
        let reply = Reply(Arc::clone(&slot));
        let job = move || {
            let done = work();
            let mut slot = slot.lock().expect("nobody panics");
            slot.0 = Some(done);
            slot.1.take().into_iter().for_each(Waker::wake);
        };
        self.0.send(Box::new(job)).expect("the threads are there as long as there is a sender");
        reply
    }
}

/// The result of a job, or the waker to call when it is available.
struct Reply<T>(Arc<Mutex<(Option<T>, Option<Waker>)>>);

impl<T> Future for Reply<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().expect("nobody panics");
        slot.1 = Some(context.waker().clone());
        slot.0.take().map_or(Poll::Pending, Poll::Ready)
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
