//! `sievedb-dump filter`: a filter shown, proved and measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sievedb::dump::{self, Detail, Sample, View, escape};
use sievedb::fs::ReadFile;

use super::file::print;
use super::opening::{intact, open, troubled};
use super::plan;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::units::count;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Shows a filter: its header, sections and their checksums, bits per key, predicted rate, and how far that is from
    /// the fewest bits that any filter could have.
    Show(Show),
    /// Proves a filter: asks it for every key of its table, each of which it must recognise.
    Verify(Asked),
    /// Measures a filter: asks it for keys that are not in its table, random ones and such that differ from one of the
    /// table in a byte.
    Measure(Measure),
    /// Plans the filters of a store: what every run has, what would be best, what another budget would buy.
    Plan(plan::Args),
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// A table, a filter file, or a filter block by itself.
    file: PathBuf,
    /// Show the hash seed too.
    #[arg(long)]
    secrets: bool,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    /// A table; or a filter, if --table names its table.
    file: PathBuf,
    /// The table of a filter that is in a file of its own.
    #[arg(long)]
    table: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    #[command(flatten)]
    asked: Asked,
    /// Keys of each sort, about.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    probes: u64,
    /// Equal seeds make equal keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Show(args) => show(args),
        Command::Verify(asked) => verify(asked),
        Command::Measure(args) => measure(args),
        Command::Plan(args) => plan::run(args),
    }
}

fn show(args: &Show) -> Result<()> {
    let file = open(&args.file)?;
    let view = View::new().detail(Detail::Bytes).secrets(args.secrets);
    let report = print(&args.file, args.json, false, |sink| dump::describe_filter(&*file, &view, sink))?;
    intact(&args.file, &report)
}

/// A table, and the file that holds its filter if that is another one.
struct Opened<'a> {
    path: &'a Path,
    table: Arc<dyn ReadFile>,
    beside: Option<Arc<dyn ReadFile>>,
}

impl Asked {
    fn open(&self) -> Result<Opened<'_>> {
        let file = open(&self.file)?;
        Ok(match &self.table {
            Some(path) => Opened { path: &self.file, table: open(path)?, beside: Some(file) },
            None => Opened { path: &self.file, table: file, beside: None },
        })
    }
}

fn verify(asked: &Asked) -> Result<()> {
    let Opened { path, table, beside } = asked.open()?;
    let found = dump::verify_filter(&*table, beside.as_deref()).map_err(|trouble| troubled(path, trouble))?;
    let mut out = Output::new();
    out.text(&format!("{}: every checksum and the predicted rate are right", path.display()))?;
    out.text(&format!("  keys asked for  {:>15}", count(found.keys)))?;
    out.text(&format!("  denied          {:>15}", count(found.denied)))?;
    for key in &found.first_denied {
        out.text(&format!("    {}", escape(key)))?;
    }
    out.finish()?;
    match found.denied {
        0 => Ok(()),
        denied => Err(Failure::Refused(format!("{} denies {denied} keys of its table", path.display()))),
    }
}

fn measure(args: &Measure) -> Result<()> {
    let Opened { path, table, beside } = args.asked.open()?;
    let found = dump::measure_filter(&*table, beside.as_deref(), args.probes, args.seed)
        .map_err(|trouble| troubled(path, trouble))?;
    let mut out = Output::new();
    out.text(&format!("{}: {} keys", path.display(), count(found.keys)))?;
    out.text("")?;
    out.text("absent keys              asked   recognised   rate (95 % interval)              of predicted")?;
    out.text(&row("random", &found.random, found.predicted))?;
    out.text(&row("near misses", &found.near, found.predicted))?;
    out.text(&format!("{:<12} {:>17} {:>12}   {}", "predicted", "", "", share(found.predicted)))?;
    out.finish()
}

fn row(name: &str, sample: &Sample, predicted: f64) -> String {
    let (low, high) = sample.interval();
    let rate = format!("{} ({} to {})", share(sample.rate()), share(low), share(high));
    let within = if (low..=high).contains(&predicted) { "as predicted" } else { "not as predicted" };
    let of =
        if predicted > 0.0 { format!("{:.3}, {within}", sample.rate() / predicted) } else { String::new() };
    format!("{name:<12} {:>17} {:>12}   {rate:<32}  {of}", count(sample.asked), count(sample.positive))
}

/// A small share of one, with three digits that count.
pub(super) fn share(share: f64) -> String {
    if share == 0.0 {
        return "0 %".into();
    }
    let percent = 100.0 * share;
    let decimals = (2.0 - percent.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{percent:.decimals$} %")
}
