//! Instructions of the store's calls, counted by callgrind, for `docs/benchmarks/limits.md`.
//!
//! Only the hash seeds, and thus the false positives, differ between executions.

mod stores;
mod work;

use std::path::{Path, PathBuf};

use stores::Shape::{self, Buckets, Empty, FourRuns, OneRun};
use work::{Call, Work};

use crate::report::{Report, Table, count};
use crate::store::KEY_BYTES;
use crate::{Result, callgrind};

const KEYS: u64 = 200_000;
const VALUE_BYTES: usize = 100;

/// Counts the instructions of calls.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Counts only the rows whose names contain this.
    #[arg(default_value = "")]
    row: String,
    /// Repeats the work of one row with the stores in this directory and prints nothing: the run that
    /// callgrind counts.
    #[arg(long, value_names = ["ROW", "DIRECTORY", "TIMES"], num_args = 3, hide = true)]
    only: Option<Vec<String>>,
    /// Enables the latency histograms.
    #[arg(long)]
    latency_histograms: bool,
    /// Prints the source files whose code each call runs, instead of its instructions.
    #[arg(long)]
    files: bool,
    /// Writes the table to this file as well.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

type Row = (&'static str, Shape, Work);

const ROWS: [Row; 30] = [
    ("get of an absent key, one run", OneRun, Work::AbsentGets),
    ("get of an absent key, four runs", FourRuns, Work::AbsentGets),
    ("get of an absent key, 1 bucket", Buckets(1), Work::AbsentGets),
    ("get of an absent key, 8 buckets", Buckets(8), Work::AbsentGets),
    ("get of an absent key, 24 buckets", Buckets(24), Work::AbsentGets),
    ("get of an absent key, 96 buckets", Buckets(96), Work::AbsentGets),
    ("absent keys in batches of 1,000, 24 buckets", Buckets(24), Work::AbsentBatches(1000)),
    ("absent keys in batches of 1,000, 96 buckets", Buckets(96), Work::AbsentBatches(1000)),
    ("absent keys in batches of 1,000, one run", OneRun, Work::AbsentBatches(1000)),
    ("absent keys in batches of 32, one run", OneRun, Work::AbsentBatches(32)),
    ("get of a present key, one run", OneRun, Work::PresentGets),
    ("put, in no order", Empty, Work::Puts),
    ("put, ascending", Empty, Work::AscendingPuts),
    ("insert_if_absent of a new key, in no order", Empty, Work::Inserts),
    ("new keys in batches of 1,000: write", Empty, Work::Batches(Call::Write)),
    ("new keys in batches of 1,000: insert_new_many", Empty, Work::Batches(Call::Insert)),
    ("new keys in batches of 1,000: insert_new_many_then", Empty, Work::Batches(Call::InsertThen)),
    ("seen keys in batches of 1,000: multi_contains", OneRun, Work::SeenBatches(Call::Contains)),
    ("seen keys in batches of 1,000: insert_new_many", OneRun, Work::SeenBatches(Call::Insert)),
    ("full scan, one run: an entry", OneRun, Work::Scan),
    ("full scan, four runs: an entry", FourRuns, Work::Scan),
    ("full scan back, one run: an entry", OneRun, Work::ScanBack),
    ("full scan back, four runs: an entry", FourRuns, Work::ScanBack),
    ("scan of 100, one run: an entry", OneRun, Work::ShortScans(100)),
    ("scan of 100, four runs: an entry", FourRuns, Work::ShortScans(100)),
    ("scan of 200, one run: an entry", OneRun, Work::ShortScans(200)),
    ("scan of 1, one run", OneRun, Work::ShortScans(1)),
    ("scan of 1, four runs", FourRuns, Work::ShortScans(1)),
    ("flush, without the fill: an entry", Empty, Work::Flush),
    ("compaction of four runs: an entry", FourRuns, Work::Compaction),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some([row, directory, times]) = args.only.as_deref() {
        let (_, shape, work) = ROWS.into_iter().find(|(name, ..)| name == row).ok_or("no such row")?;
        return work::run(shape, work, Path::new(directory), times.parse()?, args.latency_histograms);
    }
    let mut report = Report::new(
        "Instructions of the store's calls",
        "cargo run --release -p sievedb-bench -- instructions",
    );
    report.text(&format!(
        "{} keys of {KEY_BYTES} bytes with values of {VALUE_BYTES}, all blocks cached, no background \
         threads. A bucket has {} keys. Instructions per key, or per unit named in the row, counted by callgrind: the difference \
         of two runs of different length, without making the keys.",
        count(KEYS),
        count(stores::BUCKET_KEYS)
    ));
    let dir = tempfile::tempdir()?;
    let is_counted = |shape| ROWS.iter().any(|(row, of, _)| row.contains(&args.row) && *of == shape);
    stores::make(dir.path(), is_counted)?;
    if args.files {
        return print_files(&args.row, dir.path());
    }
    let mut table = Table::new(["call", "instructions"]);
    for (row, _, work) in ROWS.into_iter().filter(|(row, ..)| row.contains(&args.row)) {
        let counted = count(counted(row, work, dir.path(), args.latency_histograms)?.round() as u64);
        eprintln!("{row}: {counted}");
        table.row([row.to_owned(), counted]);
    }
    report.table(&table);
    report.write(args.write.as_deref())
}

fn print_files(rows: &str, directory: &Path) -> Result<()> {
    let directory = directory.to_str().ok_or("the temporary directory has a name that is not UTF-8")?;
    for (row, _, work) in ROWS.into_iter().filter(|(row, ..)| row.contains(rows)) {
        let [few, many] = work.lengths();
        let files = callgrind::files(&["instructions", "--only", row, directory], few, many);
        println!("{row}");
        callgrind::print_files(files, work.items())?;
    }
    Ok(())
}

fn counted(row: &str, work: Work, directory: &Path, latencies: bool) -> Result<f64> {
    let directory = directory.to_str().ok_or("the temporary directory has a name that is not UTF-8")?;
    let [few, many] = work.lengths();
    let (plain, timed) = (["instructions"], ["instructions", "--latency-histograms"]);
    let command = if latencies { &timed[..] } else { &plain };
    let counted = callgrind::each(&[command, &["--only", row, directory]].concat(), few, many);
    Ok(counted.ok_or("callgrind counted nothing; is valgrind installed?")? / work.items() as f64)
}
