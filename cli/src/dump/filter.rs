//! `sievedb-dump filter`: a filter shown, proved and measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use sievedb::fs::ReadFile;
use sievedb::inspect::{self, Detail, Kind, Sample, Trouble, Verified, escape};

use super::file::print;
use super::opening::{identify, intact, is_not, refuse_foreign, troubled, view_of};
use super::plan;
use super::watched::Watched;
use crate::escape::printable;
use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object, put_bytes};
use crate::output::Output;
use crate::units::{count, counted};

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
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    /// A table; or a filter, if --table names its table.
    file: PathBuf,
    /// The table of a filter that is in a file of its own.
    #[arg(long)]
    table: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
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
    let (path, json) = (&args.file, args.format.json);
    let (file, kind) = identify(path)?;
    if !matches!(kind, Kind::Table | Kind::FilterFile | Kind::FilterBlock | Kind::Unknown) {
        return Err(is_not(path, kind, "filter"));
    }
    if !json {
        refuse_foreign(path, &*file, kind)?;
    }
    let view = view_of(path).detail(Detail::Bytes).secrets(args.secrets);
    let report = print(path, json, false, |sink| inspect::describe_filter(&*file, &view, sink))?;
    intact(path, &report)
}

/// A table, and the file that holds its filter if that is another one.
struct Opened<'a> {
    path: &'a Path,
    table: Arc<dyn ReadFile>,
    beside: Option<Arc<dyn ReadFile>>,
}

impl Asked {
    fn open(&self) -> Result<Opened<'_>> {
        let (file, kind) = identify(&self.file)?;
        let is_filter = matches!(kind, Kind::FilterFile | Kind::FilterBlock);
        let Some(path) = &self.table else {
            return match kind {
                Kind::Table => Ok(Opened { path: &self.file, table: file, beside: None }),
                kind if is_filter => {
                    let (path, kind) = (self.file.display(), kind.name());
                    Err(Failure::Usage(format!("{path} is a {kind}: name its table with --table")))
                }
                kind => Err(is_not(&self.file, kind, "table")),
            };
        };
        let (table, table_kind) = identify(path)?;
        match (table_kind, is_filter) {
            (Kind::Table, true) => Ok(Opened { path, table, beside: Some(file) }),
            (Kind::Table, false) if kind == Kind::Table => {
                let path = self.file.display();
                Err(Failure::Usage(format!("{path} is a table: the filter in it is asked without --table")))
            }
            (Kind::Table, false) => Err(is_not(&self.file, kind, "filter")),
            (other, _) => Err(is_not(path, other, "table")),
        }
    }

    /// Opens what is asked, asks it, and shows how much of the table, which is read so many times, has been read.
    fn ask<T>(
        &self,
        times: u64,
        ask: impl FnOnce(&dyn ReadFile, Option<&dyn ReadFile>) -> Result<T, Trouble>,
    ) -> Result<T> {
        let Opened { path, table, beside } = self.open()?;
        let found = ask(&Watched::new(&*table, "asking", times), beside.as_deref());
        found.map_err(|trouble| troubled(path, &self.file, trouble))
    }

    /// An object that names the file.
    fn object(&self) -> Object {
        let mut object = Object::new();
        put_bytes(&mut object, "file", self.file.as_os_str().as_encoded_bytes());
        object
    }

    fn name(&self) -> String {
        printable(&self.file.display().to_string())
    }
}

fn verify(asked: &Asked) -> Result<()> {
    let found = asked.ask(1, inspect::verify_filter)?;
    let mut out = Output::new();
    let printed = if asked.format.json {
        let mut object = asked.object();
        object.insert("keys".into(), found.keys.into());
        object.insert("denied".into(), found.denied.into());
        let denied = found.first_denied.iter().map(|key| {
            let mut object = Object::new();
            put_bytes(&mut object, "key", key);
            Json::Object(object)
        });
        object.insert("first_denied".into(), denied.collect());
        out.object(object)
    } else {
        print_verified(&mut out, &asked.name(), &found)
    };
    let verdict = match found.denied {
        0 => Ok(()),
        denied => {
            let keys = counted(denied, "key", "keys");
            Err(Failure::Refused(format!("{} denies {keys} of its table", asked.file.display())))
        }
    };
    answered(printed.and_then(|()| out.finish()), verdict)
}

fn print_verified(out: &mut Output, name: &str, found: &Verified) -> Result<()> {
    out.text(&format!("{name}: every checksum and the predicted rate are right"))?;
    out.text(&format!("  keys asked for  {:>15}", count(found.keys)))?;
    out.text(&format!("  denied          {:>15}", count(found.denied)))?;
    found.first_denied.iter().try_for_each(|key| out.text(&format!("    {}", escape(key))))
}

fn measure(args: &Measure) -> Result<()> {
    let asked = &args.asked;
    let found =
        asked.ask(2, |table, beside| inspect::measure_filter(table, beside, args.probes, args.seed))?;
    let mut out = Output::new();
    if asked.format.json {
        let mut object = asked.object();
        object.insert("keys".into(), found.keys.into());
        object.insert("predicted_rate".into(), found.predicted.into());
        object.insert("random".into(), sample(&found.random));
        object.insert("near_misses".into(), sample(&found.near));
        out.object(object)?;
        return out.finish();
    }
    out.text(&format!("{}: {}", asked.name(), counted(found.keys, "key", "keys")))?;
    out.text("")?;
    out.text("absent keys              asked   recognised   rate (95 % interval)              of predicted")?;
    out.text(&row("random", &found.random, found.predicted))?;
    out.text(&row("near misses", &found.near, found.predicted))?;
    out.text(&format!("{:<12} {:>17} {:>12}   {}", "predicted", "", "", share(found.predicted)))?;
    out.finish()
}

fn sample(sample: &Sample) -> Json {
    let (low, high) = sample.interval();
    json!({
        "asked": sample.asked,
        "recognised": sample.positive,
        "rate": sample.rate(),
        "rate_low": low,
        "rate_high": high,
    })
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
