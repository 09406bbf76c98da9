//! [`instructions`](crate::instructions) for keys of several shapes, for `docs/benchmarks/limits.md`. Each shape has
//! two stores of the same keys: one run of several tables, and four runs in level 0.

mod stores;
mod work;

use std::path::{Path, PathBuf};

use stores::Layout::{self, Empty, FourRuns, Memtable, OneRun};
use work::Work;

use crate::keys::KeyShape;
use crate::report::{Report, Table, count};
use crate::{Result, callgrind};

const KEYS: u64 = 30_000;
const UNIT: u64 = 5_000;
const VALUE_BYTES: usize = 100;

/// Counts the instructions of calls, for keys of many shapes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Counts only the shapes whose names contain this.
    #[arg(default_value = "")]
    shape: String,
    /// Counts only the calls whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    call: String,
    /// Counts misses of the first cache of a core, as callgrind simulates it, instead of instructions.
    #[arg(long)]
    misses: bool,
    /// Prints the source files whose code each call runs, instead of its instructions.
    #[arg(long)]
    files: bool,
    /// Repeats a unit of work on a store in this directory and prints nothing: the run that callgrind counts.
    #[arg(long, value_names = ["SHAPE", "CALL", "DIRECTORY", "TIMES"], num_args = 4, hide = true)]
    only: Option<Vec<String>>,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

type Call = (&'static str, Layout, Work);

type Group = (&'static str, &'static [Call]);

const GROUPS: [Group; 3] = [
    (
        "A memtable",
        &[
            ("put", Memtable, Work::Puts),
            ("put in batches of 1,000", Memtable, Work::Batches),
            ("`insert_new_many` of 1,000", Memtable, Work::InsertNew),
            ("get, present", Memtable, Work::Gets),
            ("get, absent", Memtable, Work::AbsentGets),
            ("full scan", Memtable, Work::Scan),
            ("full scan back", Memtable, Work::ScanBack),
            ("scan of 10", Memtable, Work::ShortScans),
        ],
    ),
    (
        "One run of several tables",
        &[
            ("get of a table's absent key", OneRun, Work::AbsentGets),
            ("absent keys of tables in batches of 1,000", OneRun, Work::AbsentBatches),
            ("get of a table's key", OneRun, Work::Gets),
            ("full scan of tables", OneRun, Work::Scan),
            ("full scan of tables back", OneRun, Work::ScanBack),
            ("scan of 10 in tables", OneRun, Work::ShortScans),
        ],
    ),
    (
        "Four runs in level 0, flush and compaction",
        &[
            ("get of an absent key in four runs", FourRuns, Work::AbsentGets),
            ("full scan of four runs", FourRuns, Work::Scan),
            ("full scan of four runs back", FourRuns, Work::ScanBack),
            ("scan of 10 in four runs", FourRuns, Work::ShortScans),
            ("flush", Empty, Work::Flush),
            ("compaction of four runs", FourRuns, Work::Compaction),
        ],
    ),
];

fn calls() -> impl Iterator<Item = Call> {
    GROUPS.into_iter().flat_map(|(_, calls)| calls.iter().copied())
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some([shape, call, directory, times]) = args.only.as_deref() {
        let shape = KeyShape::ALL.into_iter().find(|one| one.name() == shape).ok_or("no such shape")?;
        let (_, layout, work) = calls().find(|(name, ..)| name == call).ok_or("no such call")?;
        return work::run(shape, layout, work, Path::new(directory), times.parse()?);
    }
    let dir = tempfile::tempdir()?;
    let directory = dir.path().to_str().ok_or("the temporary directory has a name that is not UTF-8")?;
    let is_wanted = |shape: &KeyShape| *shape == KeyShape::Random || shape.name().contains(&args.shape);
    let shapes: Vec<_> = KeyShape::ALL.into_iter().filter(is_wanted).collect();
    shapes.iter().try_for_each(|&shape| stores::make(dir.path(), shape))?;
    if args.files {
        return print_files(&shapes, &args.call, directory);
    }
    let counter = if args.misses { callgrind::Counter::Misses } else { callgrind::Counter::Instructions };
    let mut report = Report::new(
        "Keys of many shapes: instructions of the store's calls",
        "cargo run --release -p sievedb-bench -- shapes",
    );
    report.text(&format!(
        "{} per entry, or per call for gets, counted by callgrind; in brackets the ratio to random keys. {} keys with \
         values of {VALUE_BYTES} bytes, all blocks cached, no background threads. Tables have {} KiB. A get of an absent \
         key searches the fences of its run and probes a filter; a get of a present one also searches the index and a \
         data block. A full scan steps through blocks. A scan of 10 is for the most part the seek at its beginning. A \
         flush builds blocks, index and filter. A scan and a compaction of four runs also merge.",
        match counter {
            callgrind::Counter::Instructions => "Instructions",
            callgrind::Counter::Misses => "Misses of the first-level cache in callgrind's simulation",
        },
        count(KEYS),
        stores::TABLE_BYTES >> 10,
    ));
    for (title, calls) in GROUPS {
        let calls: Vec<_> = calls.iter().filter(|(name, ..)| name.contains(&args.call)).collect();
        if !calls.is_empty() {
            report.heading(title);
            report.table(&table(counter, &shapes, &calls, directory)?);
        }
    }
    report.write(args.write.as_deref())
}

fn table(
    counter: callgrind::Counter,
    shapes: &[KeyShape],
    calls: &[&Call],
    directory: &str,
) -> Result<Table> {
    let mut table = Table::new(["key"].into_iter().chain(calls.iter().map(|(name, ..)| *name)));
    let mut random = None;
    for shape in shapes {
        let each = |(name, _, work): &&Call| {
            let [few, many] = work.lengths();
            let args = ["shapes", "--only", shape.name(), name, directory];
            let each = callgrind::each_of(counter, &args, few, many);
            Ok(each.ok_or("callgrind counted nothing; is valgrind installed?")? / work.items() as f64)
        };
        let counted = calls.iter().map(each).collect::<Result<Vec<f64>>>()?;
        let random = random.get_or_insert_with(|| counted.clone());
        let cells = counted.iter().zip(random).map(|(each, random)| match counter {
            callgrind::Counter::Instructions => {
                format!("{} ({:.2})", count(each.round() as u64), each / *random)
            }
            callgrind::Counter::Misses => format!("{each:.1} ({:.2})", each / *random),
        });
        let row: Vec<_> = [shape.name().to_owned()].into_iter().chain(cells).collect();
        eprintln!("{}", row.join(" | "));
        table.row(row);
    }
    Ok(table)
}

fn print_files(shapes: &[KeyShape], wanted: &str, directory: &str) -> Result<()> {
    for (name, _, work) in calls().filter(|(name, ..)| name.contains(wanted)) {
        let [few, many] = work.lengths();
        for shape in shapes {
            let files = callgrind::files(&["shapes", "--only", shape.name(), name, directory], few, many);
            println!("{name}, {}", shape.name());
            callgrind::print_files(files, work.items())?;
        }
    }
    Ok(())
}
