//! Ids within a window of time: is this id new in the last 24 hours? Event time is the clock, so a day takes minutes.
//!
//! 1. `stream` makes ids; one in eight repeats one of the last day and a half. `model` knows the right answers.
//! 2. For each store (`stores`), this program starts itself again. The child inserts the ids in batches, checks each answer,
//!    closes and opens the store once, and prints a sample for each bucket of time.
//! 3. `page` writes the table and the picture of disk and memory over time.

mod model;
mod page;
mod stores;
mod stream;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::machine::{Io, resident_bytes};
use model::Model;
use stores::Name;
use stream::{BUCKETS, Stream};

/// Measures windows of ids in stores that forget.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Ids in all.
    #[arg(long, default_value_t = 30_000_000)]
    ids: u32,
    /// Times to live that they take.
    #[arg(long, default_value_t = 3)]
    windows: u32,
    /// Memory for a store, in KiB [default: 512 MiB for 120 M ids in a window, in proportion; at least 16 MiB].
    #[arg(long, value_name = "KIB")]
    memory: Option<u64>,
    /// Seconds after which RocksDB compacts a table again because of its age.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    rocksdb_ttl: u64,
    /// Only these stores.
    #[arg(long, value_delimiter = ',')]
    stores: Vec<Name>,
    /// Directory for the stores [default: a temporary directory].
    #[arg(long, value_name = "DIRECTORY")]
    work: Option<PathBuf>,
    /// Directory of the report.
    #[arg(long, value_name = "DIRECTORY", default_value = crate::REPORTS)]
    out: PathBuf,
    /// Prints samples of this store instead, in this directory.
    #[arg(long, hide = true, requires = "work")]
    child: Option<Name>,
}

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) ids: u32,
    pub(crate) per_window: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) rocksdb_ttl: u64,
}

/// A store at the end of a bucket of time.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Ids so far.
    pub(crate) ids: u32,
    /// Seconds of calls of the store since the sample before.
    pub(crate) seconds: f64,
    pub(crate) disk_bytes: u64,
    /// Resident memory beyond that before the store was opened.
    pub(crate) memory_bytes: u64,
    /// Bytes that the process has written to files so far.
    pub(crate) written_bytes: u64,
    /// Bytes that compactions owe.
    pub(crate) debt_bytes: u64,
}

/// Ids in a call.
const BATCH: u32 = 1000;

impl Args {
    fn plan(&self) -> Plan {
        let per_window = (self.ids / self.windows.max(1)).max(BUCKETS);
        let in_proportion = (512 << 20) * u64::from(per_window) / 120_000_000;
        let memory_bytes = self.memory.map_or(in_proportion.max(16 << 20), |kib| kib << 10);
        Plan { ids: self.ids, per_window, memory_bytes, rocksdb_ttl: self.rocksdb_ttl }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let plan = args.plan();
    if let (Some(name), Some(dir)) = (args.child, &args.work) {
        return measure(name, dir, &plan, |sample| println!("{}", serde_json::json!(sample)));
    }
    let temporary = tempfile::tempdir()?;
    let work = args.work.as_deref().unwrap_or(temporary.path());
    let mut results = Vec::new();
    for name in Name::all().filter(|name| args.stores.is_empty() || args.stores.contains(name)) {
        let dir = work.join(name.title());
        eprintln!("{}", name.title());
        results.push((name, in_child(args, name, &dir)?));
        fs::remove_dir_all(&dir)?;
    }
    page::write(&plan, &results, &args.out)
}

fn in_child(args: &Args, name: Name, dir: &Path) -> Result<Vec<Sample>> {
    fs::create_dir_all(dir)?;
    let Plan { ids, memory_bytes, rocksdb_ttl, .. } = args.plan();
    let output = Command::new(std::env::current_exe()?)
        .args(["expiry", "--child", name.argument()])
        .arg("--work")
        .arg(dir)
        .args(["--ids", &ids.to_string(), "--windows", &args.windows.to_string()])
        .args(["--memory", &(memory_bytes >> 10).to_string(), "--rocksdb-ttl", &rocksdb_ttl.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", name.title(), output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Runs the stream through a store. Fails at the first wrong answer.
fn measure(name: Name, dir: &Path, plan: &Plan, mut sampled: impl FnMut(Sample)) -> Result<()> {
    let stream = Stream::new(plan);
    let mut model = Model::new(&stream, plan.ids);
    let memory_before = resident_bytes();
    let mut store = name.open(dir, plan)?;
    let (mut seconds, mut ids) = (0.0, Vec::new());
    let per_bucket = (plan.per_window / BUCKETS).max(1);
    let mut reopen_at = Some(plan.ids / 5 * 2);
    for first in (0..plan.ids).step_by(BATCH as usize) {
        let events = first..plan.ids.min(first.saturating_add(BATCH));
        let now = stream.time(first);
        ids.clear();
        ids.extend(events.clone().map(|event| stream.id(event)));
        let start = Instant::now();
        let new = store.insert(now, &ids)?;
        seconds += start.elapsed().as_secs_f64();
        model.check(now, events.clone(), &new)?;
        if reopen_at.take_if(|at| *at < events.end).is_some() {
            // Closed before it is opened again.
            drop(store);
            store = name.open(dir, plan)?;
        }
        if first / per_bucket != events.end / per_bucket || events.end == plan.ids {
            sampled(Sample {
                ids: events.end,
                seconds: std::mem::take(&mut seconds),
                disk_bytes: disk_bytes(dir)?,
                memory_bytes: resident_bytes().saturating_sub(memory_before),
                written_bytes: Io::now().written_bytes,
                debt_bytes: store.debt()?,
            });
        }
    }
    Ok(())
}

/// The files of a directory and those below it; one that disappears meanwhile takes no space.
fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path())?,
            metadata => metadata.map_or(0, |metadata| metadata.len()),
        };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_gives_right_answers_for_a_small_stream() {
        for name in Name::all() {
            let dir = tempfile::tempdir().unwrap();
            let plan = Plan { ids: 60_000, per_window: 20_000, memory_bytes: 16 << 20, rocksdb_ttl: 1 };
            let mut samples = Vec::new();
            measure(name, dir.path(), &plan, |sample| samples.push(sample)).unwrap();
            assert_eq!(samples.last().unwrap().ids, plan.ids, "{name:?}");
            assert!(samples.len() >= 3 * BUCKETS as usize / 2, "{name:?}: {}", samples.len());
        }
    }
}
