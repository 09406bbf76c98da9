//! `sievedb-dump FILE`: the kind of a file and the meaning of its bytes.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use sievedb::inspect::{self, Detail, Entries, Event, Kind, Report, Sink, Stop, Text, View};

use super::events::Events;
use super::opening::{damaged, identify, intact, refuse_foreign, stopped, view_of};
use super::tree;
use super::{PROGRAM, sketch};
use crate::escape::printable;
use crate::failure::{Failure, Result, answered};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The files to inspect; a directory is shown as `tree` shows it.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show only the summary of a file; a table's blocks are not read.
    #[arg(long, conflicts_with_all = ["blocks", "all", "block", "keys", "values"])]
    summary: bool,
    /// Show a line for each block of a table or record of a log.
    #[arg(long, conflicts_with_all = ["all", "block", "keys", "values"])]
    blocks: bool,
    /// Show everything, to the byte; of a directory, list all tables and logs.
    #[arg(long, conflicts_with_all = ["block", "keys", "values"])]
    all: bool,
    /// Show only block N of a table, or record N of a log or manifest, to the byte; from 0. Filters are blocks too; a filter file
    /// is block 0. With --keys or --values: only the entries of that block.
    #[arg(long, value_name = "N")]
    block: Option<u64>,
    /// Show only the keys, one entry a line: sequence number, put or delete, key; in a log the keyspace id first.
    #[arg(long)]
    keys: bool,
    /// Show only the entries: like --keys, with the value last.
    #[arg(long)]
    values: bool,
    /// Show the hash seed too.
    #[arg(long)]
    secrets: bool,
    /// Print JSON, one object a line. Bytes that are not UTF-8 are base64 under NAME_base64.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn show_directory(&self, path: &Path) -> Result<()> {
        let Self { summary, blocks, block, keys, values, secrets, .. } = self;
        if *summary || *blocks || block.is_some() || *keys || *values || *secrets {
            let path = path.display();
            return Err(Failure::Usage(format!("{path} is a directory: only --all and --json apply to it")));
        }
        tree::show(path, self.all, self.json)
    }

    fn view(&self, path: &Path) -> View {
        let detail = match self {
            Self { summary: true, .. } => Detail::Summary,
            Self { blocks: true, .. } => Detail::Blocks,
            Self { all: true, .. } => Detail::Bytes,
            _ => Detail::Auto,
        };
        let mut view = view_of(path).detail(detail).secrets(self.secrets);
        view.block = self.block;
        view.entries = match self {
            Self { values: true, .. } => Some(Entries::Values),
            Self { keys: true, .. } => Some(Entries::Keys),
            _ => None,
        };
        view
    }

    fn check_kind(&self, path: &Path, kind: Kind) -> Result<()> {
        let lacks =
            |what| Err(Failure::Usage(format!("{} is a {} and has no {what}", path.display(), kind.name())));
        match kind {
            Kind::Table | Kind::Log | Kind::Unknown => Ok(()),
            _ if self.keys || self.values => lacks("keys"),
            Kind::Current | Kind::Lock | Kind::Reserve if self.block.is_some() => lacks("blocks"),
            _ => Ok(()),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let mut worst = Ok(());
    for path in &args.files {
        match describe(args, path) {
            Ok(()) => {}
            // Damage in an earlier file takes precedence.
            Err(Failure::PipeClosed) => return worst.and(Err(Failure::PipeClosed)),
            Err(failure) if args.files.len() == 1 => return Err(failure),
            Err(failure) => {
                let _ = failure.report(PROGRAM);
                let code = worst.as_ref().err().map_or(0, Failure::code);
                worst = Err(Failure::Printed(code.max(failure.code())));
            }
        }
    }
    worst
}

fn describe(args: &Args, path: &Path) -> Result<()> {
    if path.is_dir() {
        return args.show_directory(path);
    }
    let (file, kind) = identify(path)?;
    if kind == Kind::Unknown && sketch::is_sketch(path, &*file)? {
        if args.keys || args.values || args.block.is_some() {
            return Err(Failure::Usage(format!(
                "{} is a sketch and has no keys and no blocks",
                path.display()
            )));
        }
        return sketch::describe(path, args.json, args.secrets);
    }
    args.check_kind(path, kind)?;
    if !args.json {
        refuse_foreign(path, &*file, kind)?;
    }
    let view = args.view(path);
    let report =
        print(path, args.json, view.entries.is_some(), |sink| inspect::describe(&*file, &view, sink))?;
    intact(path, &report)?;
    match args.block {
        Some(block) if block >= report.units => {
            let message = format!("{} has no block {block}: it has {}", path.display(), report.units);
            Err(Failure::Usage(message))
        }
        _ => Ok(()),
    }
}

pub(super) fn print(
    path: &Path,
    json: bool,
    entries_only: bool,
    describe: impl FnOnce(&mut dyn Sink) -> Result<Report, Stop>,
) -> Result<Report> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let mut met = None;
    let describe = |sink: &mut dyn Sink| {
        describe(&mut |event: &Event<'_>| {
            if let Event::Damage(damage) = event {
                met.get_or_insert_with(|| damage.clone());
            }
            sink.event(event)
        })
    };
    let report = if json {
        describe(&mut Events::new(&mut out, path))
    } else {
        let heading =
            if entries_only { Ok(()) } else { write!(out, "{}: ", printable(&path.display().to_string())) };
        let mut text = Text::new(&mut out);
        heading.map_err(Stop::Sink).and_then(|()| {
            describe(&mut |event: &Event<'_>| match event {
                Event::Entry(_) => text.event(event),
                // Damage is reported on standard error at the end.
                _ if entries_only => Ok(()),
                _ => text.event(event),
            })
        })
    };
    let report = report.map_err(|stop| match (stopped(path, stop), met) {
        (Failure::PipeClosed, Some(damage)) => Failure::Refused(damaged(path, &damage)),
        (failure, _) => failure,
    })?;
    let flushed = out.flush().map_err(|error| stopped(path, Stop::Sink(error)));
    answered(flushed, Ok(()))?;
    Ok(report)
}
