//! `sievedb-dump FILE`: what a file is, and what its bytes mean.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sievedb::dump::{self, Detail, Entries, Event, Report, Sink, Stop, Text, View};
use sievedb::fs::{Fs, ReadFile, StdFs};

use crate::failure::{Failure, Result};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The files to look at.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show only what a file says of itself; a table's blocks are not read.
    #[arg(long, conflicts_with_all = ["blocks", "all", "block", "keys", "values"])]
    summary: bool,
    /// Show a line for every block of a table or record of a log.
    #[arg(long, conflicts_with_all = ["all", "block", "keys", "values"])]
    blocks: bool,
    /// Show everything, to the byte.
    #[arg(long, conflicts_with_all = ["block", "keys", "values"])]
    all: bool,
    /// Show only block N of a table or record N of a log or manifest, to the byte; counted from 0.
    #[arg(long, value_name = "N", conflicts_with_all = ["keys", "values"])]
    block: Option<u64>,
    /// Show only the keys, one entry a line: sequence number, put or delete, key; of a log the keyspace id before these.
    #[arg(long)]
    keys: bool,
    /// Show only the entries with their values: --keys, and the value last.
    #[arg(long)]
    values: bool,
    /// Show the hash seed too.
    #[arg(long)]
    secrets: bool,
}

impl Args {
    fn view(&self, path: &Path) -> View {
        let detail = match self {
            Self { summary: true, .. } => Detail::Summary,
            Self { blocks: true, .. } => Detail::Blocks,
            Self { all: true, .. } => Detail::Bytes,
            _ => Detail::Auto,
        };
        let mut view = View::new().detail(detail).secrets(self.secrets);
        view.block = self.block;
        view.entries = match self {
            Self { values: true, .. } => Some(Entries::Values),
            Self { keys: true, .. } => Some(Entries::Keys),
            _ => None,
        };
        view.name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        view
    }
}

/// Opens a file to look at it.
pub(super) fn open(path: &Path) -> Result<Arc<dyn ReadFile>> {
    let failed = |source| Failure::io(format!("open {}", path.display()), source);
    // A link is followed here, and nowhere in a store.
    let real = path.canonicalize().map_err(failed)?;
    if real.is_dir() {
        let message = format!("{} is a directory: `sievedb-dump tree` looks at a store", path.display());
        return Err(Failure::Usage(message));
    }
    StdFs.open(&real).map_err(failed)
}

/// What ended a description early.
pub(super) fn stopped(path: &Path, stop: Stop) -> Failure {
    match stop {
        Stop::Sink(error) if error.kind() == ErrorKind::BrokenPipe => Failure::PipeClosed,
        Stop::Sink(error) => Failure::io("write to standard output", error),
        Stop::Read { offset, source, .. } => {
            Failure::io(format!("read {} at offset {offset}", path.display()), source)
        }
        _ => Failure::Refused(stop.to_string()),
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let mut result = Ok(());
    for path in &args.files {
        match describe(args, path) {
            Ok(()) => {}
            Err(Failure::PipeClosed) => return Err(Failure::PipeClosed),
            Err(failure) if args.files.len() == 1 => return Err(failure),
            // The other files are shown all the same.
            Err(failure) => {
                failure.report("sievedb-dump");
                result = Err(Failure::Told(3));
            }
        }
    }
    result
}

fn describe(args: &Args, path: &Path) -> Result<()> {
    let file = open(path)?;
    let view = args.view(path);
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    if view.entries.is_none() {
        write!(out, "{}: ", path.display()).map_err(|error| stopped(path, Stop::Sink(error)))?;
    }
    let mut sink = Paper { text: Text::new(&mut out), entries_only: view.entries.is_some() };
    let report = dump::describe(&*file, &view, &mut sink).map_err(|stop| stopped(path, stop))?;
    out.flush().map_err(|error| stopped(path, Stop::Sink(error)))?;
    judge(args, path, &report)
}

/// Text on standard output.
struct Paper<W> {
    text: Text<W>,
    /// Only entries stand there: what else there is to say goes to standard error.
    entries_only: bool,
}

impl<W: Write> Sink for Paper<W> {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Entry(_) => self.text.event(event),
            _ if self.entries_only => Ok(()),
            _ => self.text.event(event),
        }
    }
}

/// Fails if the file is not intact, or does not have what was asked for.
fn judge(args: &Args, path: &Path, report: &Report) -> Result<()> {
    if let Some(first) = &report.first_damage {
        let newer = if first.newer { "is newer than this program" } else { "is corrupt" };
        let more = match report.damage_count {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        return Err(Failure::Refused(format!(
            "{} {newer} at offset {}: {}: {}{more}",
            path.display(),
            first.offset,
            first.what,
            first.detail
        )));
    }
    match args.block {
        Some(block) if block >= report.units => {
            Err(Failure::Usage(format!("{} has no block {block}: it has {}", path.display(), report.units)))
        }
        _ => Ok(()),
    }
}
