use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sievedb::Db;

use super::latencies::Histogram;
use super::ring::Ring;
use crate::Result;

pub(super) const THREADS: u64 = 2;
pub(super) const BATCH_ENTRIES: u64 = 10;
pub(super) const VALUE_BYTES: usize = 100;

/// Writes to a store until it is killed; a part of `backups`.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    store: PathBuf,
    #[arg(long)]
    keys: u64,
    /// The directory of the phase and of its latencies.
    #[arg(long)]
    latencies: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = Db::open(&args.store)?;
    let histograms: Vec<Mutex<Histogram>> = (0..THREADS).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| -> Result<()> {
        let write = |thread: u64| {
            let ring = Ring { thread, keys: args.keys };
            let (mut value, mut next) =
                ([7; VALUE_BYTES], ring.written(&db).expect("the counter can be read"));
            loop {
                let batch = ring.batch(next, BATCH_ENTRIES, &mut value);
                let start = Instant::now();
                db.write(batch).expect("a write succeeds");
                let took = start.elapsed();
                histograms[thread as usize].lock().expect("no thread panics").add(took);
                next += BATCH_ENTRIES;
            }
        };
        (0..THREADS).for_each(|thread| _ = scope.spawn(move || write(thread)));
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let mut sum = Histogram::default();
            for histogram in &histograms {
                sum.merge(&std::mem::take(&mut *histogram.lock().expect("no thread panics")));
            }
            sum.append_to(&args.latencies)?;
        }
    })
}
