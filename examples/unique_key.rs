//! Each name gets one owner, even if many threads claim it.
//!
//! Between `contains` and `put`, another thread may take the name; `insert_if_absent` is one step. With `Synced` every answer is
//! durable, "taken" included.
//!
//! `cargo run --release --example unique_key`

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sievedb::{Db, Durability, Keyspace, KeyspaceOptions, Result};

const THREADS: usize = 8;
const NAMES: usize = 200;

fn take(taken: &Keyspace, name: &str, owner: &str) -> Result<bool> {
    taken.insert_if_absent_with(name, owner, Durability::Synced)
}

/// The same in two steps: wrong.
fn take_wrongly(taken: &Keyspace, name: &str, owner: &str) -> Result<bool> {
    if taken.contains(name)? {
        return Ok(false);
    }
    // Gives other threads time to take the name.
    std::thread::sleep(Duration::from_micros(100));
    taken.put(name, owner)?;
    Ok(true)
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sievedb-unique-key-{}", std::process::id()));
    let db = Db::open(&dir)?;
    for (how, take) in
        [("in two steps", take_wrongly as fn(&Keyspace, &str, &str) -> Result<bool>), ("in one step", take)]
    {
        let taken = db.keyspace(how, KeyspaceOptions::default())?;
        let syncs = db.stats().log_syncs;
        let won = race(|thread, name| take(&taken, name, &format!("thread {thread}")))?;
        println!(
            "{how}: {THREADS} threads competed for {NAMES} names, {won} claims succeeded ({} syncs)",
            db.stats().log_syncs - syncs
        );
    }
    db.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// All threads claim the same names in the same order. Returns the number of successes.
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
