//! Loads stores of growing size in random order, and looks up present and absent keys, also after reopening. Every answer is checked.
//! Each store has a process of its own, so that its peak memory contains nothing of other stores.

mod keys;
mod measure;
pub(crate) mod store;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use measure::{Figures, Scarce};

use crate::report::{Report, Table, count, keys as keys_text, mib};
use crate::{Result, machine};

/// Loads stores of growing size, reads them, and reports speed, memory, space and writes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Numbers of random 16-byte keys, one store each.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000_000, 10_000_000, 30_000_000, 100_000_000])]
    keys: Vec<u64>,
    /// A file of real paths, one per line: a last store has paths as keys.
    #[arg(long, value_name = "FILE")]
    paths: Option<PathBuf>,
    /// Keys made from the paths; if there are fewer paths, they are repeated below other directories.
    #[arg(long, default_value_t = 30_000_000)]
    path_keys: u64,
    /// Length of a value in bytes.
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// The store's memory budget in MiB; a trailing M is accepted.
    #[arg(long, default_value = "512M", value_parser = mebibytes)]
    budget: usize,
    /// The largest store of random keys is also opened with this budget, in MiB.
    #[arg(long, default_value = "64M", value_parser = mebibytes)]
    scarce_budget: usize,
    /// Longest number of keys looked up in a phase; the keys are evenly spread.
    #[arg(long, default_value_t = 10_000_000)]
    lookups: u64,
    /// The directory of the stores [default: a temporary directory].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn mebibytes(text: &str) -> Result<usize, String> {
    let number: usize = text.trim_end_matches('M').parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(1 << 20).ok_or_else(|| "is too large".into())
}

const OPENING: &str = "Stores of growing size are loaded in random order, settled and looked up. A shorter bar is faster; the larger the \
     store, the fewer of its filters are in the processor's caches. A lookup of an absent key reads a data block only after a false \
     positive of a filter.";

pub(crate) fn run(args: &Args) -> Result<()> {
    let largest = args.keys.iter().copied().max();
    let mut figures = Vec::new();
    let mut scarce = None;
    for &keys in &args.keys {
        let also_scarce = Some(keys) == largest;
        let measured = in_child(args, keys, None, also_scarce)?;
        figures.push(measured.figures);
        scarce = scarce.or(measured.scarce);
    }
    if let Some(paths) = &args.paths {
        figures.push(in_child(args, args.path_keys, Some(paths), false)?.figures);
    }
    report(args, &figures, scarce.as_ref())
}

fn in_child(args: &Args, keys: u64, paths: Option<&Path>, also_scarce: bool) -> Result<store::Measured> {
    let parent = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("scale-store").arg(parent.path().join("store"));
    let numbers = [keys, args.value as u64, args.budget as u64, args.lookups];
    for (name, number) in ["--keys", "--value", "--budget", "--lookups"].into_iter().zip(numbers) {
        command.arg(name).arg(number.to_string());
    }
    if let Some(paths) = paths {
        command.arg("--paths").arg(paths);
    }
    if also_scarce {
        command.arg("--scarce-budget").arg(args.scarce_budget.to_string());
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("the process of a store: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn report(args: &Args, figures: &[Figures], scarce: Option<&Scarce>) -> Result<()> {
    let list: Vec<_> = args.keys.iter().map(u64::to_string).collect();
    let paths = if args.paths.is_some() { " --paths FILE" } else { "" };
    let mut report = Report::new(
        "Many keys: measurements",
        &format!(
            "cargo run --release -p sievedb-bench -- scale --keys {}{paths} --value {} --budget {}M --write \
             docs/benchmarks/scale.md",
            list.join(","),
            args.value,
            args.budget >> 20
        ),
    );
    report.text(&format!("{}; not pinned; load {} at the end.", machine::describe(), machine::load()));
    report.text(&format!(
        "Distinct keys with incompressible values of {} bytes, loaded in random order in batches of 1,000 by one thread in addition \
         to the store's two; default options except for a memory budget of {}. After settling, each phase looks up at most {} keys, \
         or starts a hundredth as many scans of 100 entries. Every value was compared, and every absent key was reported as absent. \
         Rates include the loop that makes the keys.",
        args.value,
        mib(args.budget as u64),
        count(args.lookups)
    ));
    let mut speed = Table::new([
        "keys",
        "load, keys per second",
        "settle, seconds",
        "absent, ns",
        "absent again, ns",
        "present, ns",
        "scan, ns per entry",
        "open, ms",
    ]);
    for row in figures {
        speed.row([
            row.name.clone(),
            count(row.load_rate as u64),
            format!("{:.1}", row.settle_seconds),
            format!("{:.0}", row.absent.nanos),
            format!("{:.0}", row.absent_again.nanos),
            format!("{:.0}", row.present.nanos),
            format!("{:.0}", row.scan_nanos),
            format!("{:.1}", row.open_seconds * 1e3),
        ]);
    }
    report.heading("Speed");
    report.table(&speed);
    report.text(
        "Wall time. *Again* follows closing and opening. The pages of the files are in the system's page cache as far as it holds \
         them.",
    );
    report.heading("Memory, space and writes");
    let mut costs = Table::new([
        "keys",
        "runs in level 0 after the load",
        "data blocks per absent key",
        "data blocks per present key",
        "filters",
        "bits per key",
        "peak memory of the process",
        "bytes on disk ÷ bytes of entries",
        "bytes of tables written ÷ bytes of entries",
    ]);
    for row in figures {
        costs.row([
            row.name.clone(),
            row.level_0_runs.to_string(),
            format!("{:.5}", row.absent.blocks),
            format!("{:.5}", row.present.blocks),
            mib(row.filter_bytes),
            format!("{:.2}", row.bits_per_key),
            row.peak_bytes.map_or("unknown".into(), mib),
            format!("{:.2}", row.disk_bytes as f64 / row.user_bytes as f64),
            format!("{:.2}", row.table_bytes_written as f64 / row.user_bytes as f64),
        ]);
    }
    report.table(&costs);
    let paths = figures.iter().find(|row| row.keys_bytes > 0).map(|paths| {
        format!(
            " The peak of the store of paths contains the benchmark's own list of paths, {}.",
            mib(paths.keys_bytes)
        )
    });
    report.text(&format!("Each store has a process of its own.{}", paths.unwrap_or_default()));
    if let Some(scarce) = scarce {
        report.heading("Filters larger than memory");
        report.text(&format!(
            "The store of {} random keys, opened with a budget of {}. The first lookups after the opening count the probes that decide \
             which filters stay in memory. Blocks that a compaction reads count as data blocks: with less memory, levels are smaller, \
             so the store compacts until it is settled.",
            keys_text(scarce.keys),
            mib(args.scarce_budget as u64)
        ));
        let mut table =
            Table::new(["lookups", "absent keys per second", "filter pages per key", "data blocks per key"]);
        for (name, absent) in ["after the opening", "then", "after settling"].into_iter().zip(&scarce.absent)
        {
            table.row([
                name.into(),
                count((1e9 / absent.nanos) as u64),
                format!("{:.3}", absent.filter_pages),
                format!("{:.5}", absent.blocks),
            ]);
        }
        report.table(&table);
    }
    report.open_with(OPENING, "nanoseconds per lookup of an absent key, by number of keys", &speed, 1, 3);
    report.write(args.write.as_deref())
}
