//! Checkpoints and backups of SieveDB and RocksDB: time, bytes, system calls, and the latency of a writer meanwhile.

mod page;
mod stores;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::keys::{KeySet, fill_value};
use crate::machine::Io;
use stores::{Name, Store};

/// Measures checkpoints, backups and restores.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys in the store, which are file paths, with values of 100 bytes.
    #[arg(long, default_value_t = 5_000_000)]
    keys: u32,
    /// Directory for the stores [default: a temporary directory].
    #[arg(long, value_name = "DIRECTORY")]
    work: Option<PathBuf>,
    /// Directory of the report.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::REPORTS)]
    out: PathBuf,
    /// Prints the steps of this store instead, in this directory.
    #[arg(long, hide = true, requires = "work")]
    child: Option<Name>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// The I/O of the process during the step, with that of a writer.
    pub(crate) io: Io,
    /// The writer's latency in microseconds: median, 99.9 % and longest.
    pub(crate) latency: Option<[f64; 3]>,
}

const VALUE_BYTES: usize = 100;

const BATCH: u32 = 10;

const ALONE: Duration = Duration::from_secs(5);

/// Checkpoints next to the writer: one is too short for a quantile.
const CHECKPOINTS: u32 = 20;

pub(crate) fn run(args: &Args) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let work = args.work.as_deref().unwrap_or(temporary.path());
    if let Some(name) = args.child {
        let steps = name.with(&work.join("store"), |store| Steps::new(store, args.keys, work).run())?;
        return Ok(serde_json::to_writer(io::stdout().lock(), &steps)?);
    }
    let mut results = Vec::new();
    for name in Name::all() {
        let dir = work.join(name.title());
        fs::create_dir_all(&dir)?;
        let output = Command::new(std::env::current_exe()?)
            .args(["copies", "--child", name.argument(), "--keys", &args.keys.to_string()])
            .arg("--work")
            .arg(&dir)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", name.title(), output.status).into());
        }
        results.push((name, serde_json::from_slice(&output.stdout)?));
        fs::remove_dir_all(&dir)?;
    }
    page::write(args.keys, &results, &args.out)
}

struct Steps<'a> {
    store: &'a dyn Store,
    keys: u32,
    work: &'a Path,
    done: Vec<Step>,
}

impl<'a> Steps<'a> {
    fn new(store: &'a dyn Store, keys: u32, work: &'a Path) -> Self {
        Self { store, keys, work, done: Vec::new() }
    }

    fn run(mut self) -> Result<Vec<Step>> {
        let (store, repository) = (self.store, self.work.join("repository"));
        write(store, 0..self.keys, 0)?;
        store.settle()?;
        let checkpoint = self.work.join("checkpoint");
        self.step("checkpoint", || store.checkpoint(&checkpoint))?;
        fs::remove_dir_all(&checkpoint)?;
        self.step("first backup", || store.backup(&repository))?;
        write(store, self.changed(), 1)?;
        store.settle()?;
        self.step("backup after a change of 1 %", || store.backup(&repository))?;
        let restored = self.work.join("restored");
        self.step("restore", || store.restore(&repository, &restored))?;
        let (original, copy) = (store.digest()?, store.digest_of(&restored)?);
        if original != copy {
            return Err(format!("the restored store differs: {original:x} and {copy:x}").into());
        }
        fs::remove_dir_all(&restored)?;
        self.next_to_writer("no copy", || {
            std::thread::sleep(ALONE);
            Ok(())
        })?;
        self.next_to_writer("20 checkpoints", || {
            for _ in 0..CHECKPOINTS {
                store.checkpoint(&checkpoint)?;
                fs::remove_dir_all(&checkpoint)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        })?;
        self.next_to_writer("backup of the changes", || store.backup(&repository))?;
        self.next_to_writer("first backup to another place", || store.backup(&self.work.join("other")))?;
        Ok(self.done)
    }

    /// One hundredth of the keys, which were written one after another.
    fn changed(&self) -> std::ops::Range<u32> {
        self.keys / 2..self.keys / 2 + self.keys / 100
    }

    fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let (before, start) = (Io::now(), Instant::now());
        step()?;
        let (seconds, io) = (start.elapsed().as_secs_f64(), Io::now().since(before));
        self.done.push(Step { name: name.to_owned(), seconds, io, latency: None });
        Ok(())
    }

    fn next_to_writer(&mut self, name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let (is_over, store, keys) = (AtomicBool::new(false), self.store, self.keys);
        let latencies = std::thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(store, keys, &is_over));
            let done = self.step(name, step);
            is_over.store(true, Ordering::Relaxed);
            let latencies = writer.join().map_err(|_| "the writer panicked".to_owned());
            done.map(|()| latencies)
        })???;
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        if let Some(step) = self.done.last_mut() {
            step.latency = Some([at(0.5), at(0.999), at(1.0)]);
        }
        self.store.settle()
    }
}

fn write(store: &dyn Store, numbers: std::ops::Range<u32>, generation: u32) -> Result<()> {
    let end = numbers.end;
    for first in numbers.step_by(1000) {
        store.write(&mut entries(first..end.min(first + 1000), generation))?;
    }
    Ok(())
}

/// Overwrites keys in random order. Returns the nanoseconds per batch.
fn write_until(store: &dyn Store, keys: u32, is_over: &AtomicBool) -> Result<Histogram<u64>> {
    let mut latencies = Histogram::new(3)?;
    for round in 0_u32.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let first = round.wrapping_mul(BATCH) % keys.saturating_sub(BATCH).max(1);
        let start = Instant::now();
        store.write(&mut entries(first..first + BATCH, round))?;
        latencies.record(start.elapsed().as_nanos() as u64)?;
    }
    Ok(latencies)
}

fn entries(numbers: std::ops::Range<u32>, generation: u32) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    numbers.map(move |number| {
        let (mut key, mut value) = (Vec::new(), vec![0; VALUE_BYTES]);
        KeySet::Paths.write(number, &mut key);
        fill_value(number ^ generation.rotate_left(16), &mut value);
        (key, value)
    })
}
