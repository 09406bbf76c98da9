//! Each name gets one owner, even if many threads want it at the same time.
//!
//! There are no transactions: between `contains` and `put` another thread may do the same. Only one process
//! can have a store open for writing, so a lock of the program's own is enough to make the two one step. It
//! is held for memory's work only, the write is buffered; waiting for the disk comes after it, and one sync
//! serves all who wait.
//!
//! `cargo run --release --example unique_key`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use sievedb::{Db, Keyspace, KeyspaceOptions, Result};

const THREADS: usize = 8;
const NAMES: usize = 200;

/// Names that somebody has.
struct Names {
    db: Db,
    taken: Keyspace,
    one_at_a_time: Mutex<()>,
}

impl Names {
    /// Takes a name, durably; `false` if somebody has it.
    fn take(&self, name: &str, owner: &str) -> Result<bool> {
        {
            let _alone = self.one_at_a_time.lock().expect("nobody panics in here");
            if self.taken.contains(name)? {
                return Ok(false);
            }
            self.taken.put(name, owner)?;
        }
        self.db.sync()?;
        Ok(true)
    }

    /// The same without the lock: wrong.
    fn take_wrongly(&self, name: &str, owner: &str) -> Result<bool> {
        if self.taken.contains(name)? {
            return Ok(false);
        }
        // What else a program does here, others do meanwhile.
        std::thread::sleep(Duration::from_micros(100));
        self.taken.put(name, owner)?;
        Ok(true)
    }
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sievedb-unique-key-{}", std::process::id()));
    let db = Db::open(&dir)?;
    for (how, take) in [
        ("without a lock", Names::take_wrongly as fn(&Names, &str, &str) -> Result<bool>),
        ("with a lock", Names::take),
    ] {
        let taken = db.keyspace(how, KeyspaceOptions::default())?;
        let names = Names { db: db.clone(), taken, one_at_a_time: Mutex::new(()) };
        let syncs = db.stats().log_syncs;
        let won = race(|thread, name| take(&names, name, &format!("thread {thread}")))?;
        println!(
            "{how}: {THREADS} threads competed for {NAMES} names, {won} claims succeeded ({} syncs)",
            db.stats().log_syncs - syncs
        );
    }
    db.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// All threads try to take the same name at the same time, one name after the other. Returns how many claims
/// succeeded.
fn race(take: impl Fn(usize, &str) -> Result<bool> + Sync) -> Result<usize> {
    let (start, won) = (Barrier::new(THREADS), AtomicUsize::new(0));
    let run = |thread| -> Result<()> {
        for n in 0..NAMES {
            start.wait();
            won.fetch_add(usize::from(take(thread, &format!("name {n}"))?), Ordering::Relaxed);
        }
        Ok(())
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("nobody panics"))
    })?;
    Ok(won.into_inner())
}
