use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};
use sievedb::fs::ReadFile;
use sievedb::inspect::{self, Detail, Event, Kind, Sample, Trouble, Verified};

use super::file::print;
use super::opening::{identify, intact, is_not, refuse_foreign, troubled, view_of};
use super::plan;
use super::watched::Watched;
use crate::escape::{escape, printable};
use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object, put_bytes};
use crate::output::Output;
use crate::units::{count, counted, share};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Shows a filter: a summary with bits per key, predicted rate and the distance from the fewest possible bits; then its
    /// header, sections and checksums.
    Show(Show),
    /// Verifies a filter: probes every key of its table, and fails if it denies one.
    Verify(Probed),
    /// Measures a filter: probes random absent keys, and ones that differ from a present key in one byte.
    Measure(Measure),
    /// Plans the filters of a store: the present filters of each run, the best of the same size, and other sizes.
    Plan(plan::Args),
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// A table, a filter file, or a filter block.
    file: PathBuf,
    /// Show fields that are zero too.
    #[arg(long)]
    all: bool,
    /// Show the hash seed too.
    #[arg(long)]
    secrets: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Probed {
    /// A table; or a filter file, if --table names its table.
    file: PathBuf,
    /// The table of a filter in a file of its own.
    #[arg(long)]
    table: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    #[command(flatten)]
    probed: Probed,
    /// About this many keys of each sort.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    probes: u64,
    /// The seed of the keys: equal seeds make equal keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Show(args) => show(args),
        Command::Verify(probed) => verify(probed),
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
    let mut hidden = 0;
    let report = print(path, json, false, |sink| {
        inspect::describe_filter(&*file, &view, &mut |event: &Event<'_>| {
            if !json && !args.all && is_empty_field(event) {
                hidden += 1;
                return Ok(());
            }
            sink.event(event)
        })
    })?;
    if hidden > 0 {
        let mut out = Output::new();
        let fields = counted(hidden, "empty field is", "empty fields are");
        let printed = out.text(&format!("{fields} not shown; --all shows them"));
        answered(printed.and_then(|()| out.finish()), Ok(()))?;
    }
    intact(path, &report)
}

/// A field of zeros that no check refers to, such as an unused section.
fn is_empty_field(event: &Event<'_>) -> bool {
    match event {
        Event::Span(span) => {
            span.depth > 0
                && span.intact.is_none()
                && !span.bytes.is_empty()
                && span.bytes.iter().all(|&byte| byte == 0)
        }
        _ => false,
    }
}

struct Opened<'a> {
    path: &'a Path,
    table: Arc<dyn ReadFile>,
    beside: Option<Arc<dyn ReadFile>>,
}

impl Probed {
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
                Err(Failure::Usage(format!("{path} is a table: its own filter is probed without --table")))
            }
            (Kind::Table, false) => Err(is_not(&self.file, kind, "filter")),
            (other, _) => Err(is_not(path, other, "table")),
        }
    }

    fn probe<T>(
        &self,
        times: u64,
        probe: impl FnOnce(&dyn ReadFile, Option<&dyn ReadFile>) -> Result<T, Trouble>,
    ) -> Result<T> {
        let Opened { path, table, beside } = self.open()?;
        let found = probe(&Watched::new(&*table, "probing", times), beside.as_deref());
        found.map_err(|trouble| troubled(path, &self.file, trouble))
    }

    fn object(&self) -> Object {
        let mut object = Object::new();
        put_bytes(&mut object, "file", self.file.as_os_str().as_encoded_bytes());
        object
    }

    fn name(&self) -> String {
        printable(&self.file.display().to_string())
    }
}

fn verify(probed: &Probed) -> Result<()> {
    let found = probed.probe(1, inspect::verify_filter)?;
    let mut out = Output::new();
    let printed = if probed.format.json {
        let mut object = probed.object();
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
        print_verified(&mut out, &probed.name(), &found)
    };
    let verdict = match found.denied {
        0 => Ok(()),
        denied => {
            let keys = counted(denied, "key", "keys");
            Err(Failure::Refused(format!("{} denies {keys} of its table", probed.file.display())))
        }
    };
    answered(printed.and_then(|()| out.finish()), verdict)
}

fn print_verified(out: &mut Output, name: &str, found: &Verified) -> Result<()> {
    out.text(&format!("{name}: all checksums and the predicted rate are correct"))?;
    out.text(&format!("  keys probed     {:>15}", count(found.keys)))?;
    out.text(&format!("  denied          {:>15}", count(found.denied)))?;
    found.first_denied.iter().try_for_each(|key| out.text(&format!("    {}", escape(key))))
}

fn measure(args: &Measure) -> Result<()> {
    let probed = &args.probed;
    let found =
        probed.probe(2, |table, beside| inspect::measure_filter(table, beside, args.probes, args.seed))?;
    let mut out = Output::new();
    if probed.format.json {
        let mut object = probed.object();
        object.insert("keys".into(), found.keys.into());
        object.insert("predicted_rate".into(), found.predicted.into());
        object.insert("random".into(), sample(&found.random));
        object.insert("near_misses".into(), sample(&found.near));
        out.object(object)?;
        return out.finish();
    }
    out.text(&format!("{}: {}", probed.name(), counted(found.keys, "key", "keys")))?;
    out.text("")?;
    out.text("absent keys             probed    positives   rate (95 % interval)              of predicted")?;
    out.text(&row("random", &found.random, found.predicted))?;
    out.text(&row("near misses", &found.near, found.predicted))?;
    out.text(&format!("{:<12} {:>17} {:>12}   {}", "predicted", "", "", share(found.predicted)))?;
    out.finish()
}

fn sample(sample: &Sample) -> Json {
    let (low, high) = sample.interval();
    json!({
        "probed": sample.asked,
        "positives": sample.positive,
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
