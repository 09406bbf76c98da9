use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use sievedb::Error;
use sievedb_report::{History, Report};

use crate::failure::{Failure, Result, answered};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::Store;
use crate::{units, whole_file};

/// Writes a page about a store, for a browser: its tree, filters, memory and work.
///
/// The page loads nothing, so it can be sent; it shows the first and the last key of each table. Works next to a writer: the page
/// then shows one moment. Changes nothing.
///
/// Damage is listed in the page, and the exit code is 3. A store that does not open gives a page without memory and unflushed
/// entries. Data blocks are checked only with --verify.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb report my.db -o report.html
  sievedb report my.db -o report.html --verify
  sievedb report my.db -o report.html --history stats.jsonl")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Read and verify every byte of the store, and list all damage.
    #[arg(long)]
    verify: bool,
    /// Show statistics over time: a file of lines of `stats --json`, or of the library's `Stats` as JSON, which have the answers
    /// of filters too.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let history = args.history.as_deref().map(read_history).transpose()?;
    let (mut report, mut found) = read(&args.store)?;
    if let Some(history) = history {
        report = report.history(history);
    }
    if args.verify {
        report = report.verified(&verify(&args.store)?);
    }
    if found.is_ok() && report.is_damaged() {
        found = Err(Failure::Refused(format!("{} is damaged: the page lists how", args.store.db.display())));
    }
    let page = report.page();
    whole_file::write(&args.output, page.as_bytes())?;
    let mut out = Output::new();
    out.text(&format!("{} in {}", units::bytes(page.len() as u64), args.output.display()))?;
    answered(out.finish(), found)
}

fn read(store: &Store) -> Result<(Report, Result<()>)> {
    let db = match store.for_reading() {
        Ok(db) => db,
        Err(Failure::Store(error @ Error::NoStore { .. })) => return Err(error.into()),
        Err(failure) => {
            let report = Report::of_dir(&store.db)?.damaged(format!("The store cannot be opened: {failure}"));
            return Ok((report, Err(failure)));
        }
    };
    let opened = db.open_tables();
    let report = Report::of_db(&db)?;
    match opened {
        Ok(()) => Ok((report, Ok(()))),
        Err(error) => Ok((report.damaged(error.to_string()), Err(error.into()))),
    }
}

fn read_history(path: &Path) -> Result<History> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::io(format!("read {}", path.display()), error))?;
    History::read(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn verify(store: &Store) -> Result<sievedb::VerifyReport> {
    let mut bar = None;
    let report = store.opening.options().verify_with(&store.db, |progress| {
        bar.get_or_insert_with(|| Progress::of_bytes("verifying", Some(progress.bytes)))
            .at(progress.bytes_done);
        ControlFlow::Continue(())
    })?;
    Ok(report)
}
