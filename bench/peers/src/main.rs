//! Measures SieveDB next to other embedded stores; see the README.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use crate::driver::Suite;
use crate::names::EngineName;
use crate::order::Sizes;
use crate::pages::Page;
use crate::records::Record;
use crate::report::{CHARTS, Rendered};

mod allocations;
mod chart;
mod child;
mod client;
mod copies;
mod counts;
mod driver;
mod engine;
mod engines;
mod expiry;
mod keys;
mod machine;
mod names;
mod order;
mod pages;
mod plan;
mod prepare;
mod random;
mod records;
mod report;
mod results;
mod rows;
mod run;
mod statistics;
mod tables;
mod workload;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const REPORTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks");

/// Measures SieveDB next to other embedded stores.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the workloads, and writes the report if it may be published.
    Measure(Measure),
    /// Writes the report of a file of results.
    Report {
        /// The file `results.jsonl` of a work directory.
        results: PathBuf,
        /// The file to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// Copies stores while they are open, and writes the page.
    Copies(copies::Args),
    /// Runs ids through windows of time in stores that forget, and writes the page.
    Expiry(expiry::Args),
    /// Lists the workloads of a page.
    Rows {
        #[arg(default_value = "peers")]
        page: Page,
    },
    /// One run; started by `measure`.
    #[command(hide = true)]
    Child { order: String },
}

#[derive(Debug, clap::Args)]
struct Measure {
    /// The page to measure.
    #[arg(long, default_value = "peers")]
    page: Page,
    /// Only workloads whose name contains one of these texts.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Only these engines.
    #[arg(long, value_delimiter = ',')]
    engines: Vec<EngineName>,
    /// Runs of each engine and workload.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Skips the counts of instructions, system calls and allocations.
    #[arg(long)]
    no_counts: bool,
    /// Skips the wait for a low load and the repetition of disturbed runs.
    #[arg(long)]
    no_wait: bool,
    /// Directory for stores and results; existing results are not measured again [default: a temporary
    /// directory]
    #[arg(long, value_name = "DIRECTORY")]
    work: Option<PathBuf>,
    /// Directory of the report.
    #[arg(long, value_name = "DIRECTORY", default_value = REPORTS)]
    out: PathBuf,
    /// Keys in a store [default: 2,000,000; for the other pages half as many]
    #[arg(long)]
    keys: Option<u32>,
    /// Length of a value in bytes.
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// The usual cache, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 64 << 10)]
    cache: u64,
    /// A cache that is smaller than the filters, in KiB [default: 2048; for the other pages half as
    /// much]
    #[arg(long, value_name = "KIB")]
    small_cache: Option<u64>,
    /// A cache that holds everything, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 1 << 20)]
    whole_cache: u64,
    /// Size of a memtable and of a table, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 64 << 10)]
    memtable: u64,
    /// Longest time of a run that reads or syncs, in seconds [default: 8; for the other pages 1]
    #[arg(long)]
    seconds: Option<u64>,
    /// Longest time of a fill, in seconds [default: 120; for the other pages 5]
    #[arg(long)]
    fill_seconds: Option<u64>,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Measure(measure) => measure.run(),
        Command::Copies(args) => copies::run(&args),
        Command::Expiry(args) => expiry::run(&args),
        Command::Report { results, out } => {
            let records = Record::read(&results)?;
            let page = records.iter().find_map(|record| match record {
                Record::Start(start) => Some(start.page),
                _ => None,
            });
            let page = page.ok_or("the file has no results")?;
            let rendered = report::render(&records, page);
            write(page, &rendered, &out)?;
            eprintln!("{}", rendered.faults.join("\n"));
            Ok(())
        }
        Command::Rows { page } => {
            for row in page.rows() {
                println!("{}", row.name);
            }
            Ok(())
        }
        Command::Child { order } => child::obey(&order),
    }
}

impl Measure {
    fn run(&self) -> Result<()> {
        let temporary = tempfile::tempdir()?;
        let work = self.work.clone().unwrap_or_else(|| temporary.path().into());
        let mut rows = self.page.rows();
        rows.retain(|row| {
            self.only.is_empty() || self.only.iter().any(|text| row.name.contains(text.as_str()))
        });
        if rows.is_empty() {
            return Err("no workload has such a name".into());
        }
        let is_asked_for = |engine: &EngineName| self.engines.is_empty() || self.engines.contains(engine);
        let mut engines: Vec<_> = rows.iter().flat_map(|row| row.engines.clone()).collect();
        engines.retain(|engine| engine.is_built() && is_asked_for(engine));
        let is_full = self.page == Page::Peers;
        let sizes = Sizes {
            keys: self.keys.unwrap_or(if is_full { 2_000_000 } else { 1_000_000 }),
            value_bytes: self.value,
            cache_bytes: self.cache << 10,
            small_cache_bytes: self.small_cache.unwrap_or(if is_full { 2 << 10 } else { 1 << 10 }) << 10,
            whole_cache_bytes: self.whole_cache << 10,
            memtable_bytes: self.memtable << 10,
            seconds_max: self.seconds.unwrap_or(if is_full { 8 } else { 1 }),
            fill_seconds_max: self.fill_seconds.unwrap_or(if is_full { 120 } else { 5 }),
        };
        if !self.no_wait {
            driver::wait_for_quiet();
        }
        let attempts = if self.no_wait { 1 } else { 3 };
        let Self { page, rounds, .. } = *self;
        let suite = Suite { page, sizes, rows, engines, rounds, counts: !self.no_counts, attempts, work };
        let rendered = report::render(&suite.run()?, page);
        if rendered.faults.is_empty() {
            return write(page, &rendered, &self.out);
        }
        let aside = suite.work.join("report");
        write(page, &rendered, &aside)?;
        if self.work.is_none() {
            println!("{}", rendered.markdown);
        }
        Err(format!("not for publication, written to {}: {}", aside.display(), rendered.faults.join("; "))
            .into())
    }
}

fn write(page: Page, rendered: &Rendered, out: &Path) -> Result<()> {
    fs::create_dir_all(out.join(CHARTS))?;
    fs::write(out.join(page.file()), &rendered.markdown)?;
    fs::write(out.join(page.counts_file()), &rendered.counts)?;
    for (name, svg) in &rendered.charts {
        fs::write(out.join(CHARTS).join(name), svg)?;
    }
    Ok(())
}
