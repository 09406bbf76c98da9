//! `sievedb report`: a page about a store, for a browser.

use std::path::{Path, PathBuf};

use sievedb::{Error, Options};
use sievedb_report::{History, Report};

use crate::failure::{Failure, Result, answered};
use crate::output::Output;
use crate::progress::Progress;
use crate::{store, units, whole_file};

/// Writes a page about a store, for a browser: its tree, filters, memory and work.
///
/// The page is one file that loads nothing, so it can be sent to somebody. It shows the first and the last key of each
/// table. A damaged store, and one that another program has open, still gives a page: without the memory and the
/// entries that are not yet in tables. Exit code 3 if the store is damaged. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb report my.db -o report.html
  sievedb report my.db -o report.html --verify
  sievedb report my.db -o report.html --history stats.jsonl")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Read and verify every byte of the store, and list all damage.
    #[arg(long)]
    verify: bool,
    /// Show statistics over time: a file of lines of `stats --json`. The library's `Stats` as JSON, one line each, have
    /// the answers of filters too.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let history = args.history.as_deref().map(read_history).transpose()?;
    let (mut report, mut found) = read(&args.db)?;
    if let Some(history) = history {
        report = report.history(history);
    }
    if args.verify {
        let verified = verify(&args.db)?;
        if !verified.damage.is_empty() {
            found = Err(Failure::Refused(format!("{} is damaged: the page lists how", args.db.display())));
        }
        report = report.verified(&verified);
    }
    let page = report.page();
    whole_file::write(&args.output, page.as_bytes())?;
    let mut out = Output::new();
    out.text(&format!("{} in {}", units::bytes(page.len() as u64), args.output.display()))?;
    answered(out.finish(), found)
}

/// The report on a store, and the failure of the command because of damage.
fn read(dir: &Path) -> Result<(Report, Result<()>)> {
    let db = match store::open_for_reading(dir) {
        Ok(db) => db,
        Err(Failure::Store(error @ Error::NoStore { .. })) => return Err(error.into()),
        Err(Failure::Store(Error::Locked { .. })) => {
            store::note("another program has the store open: the page shows what is in tables");
            return Ok((Report::of_dir(dir)?, Ok(())));
        }
        Err(failure) => {
            let report = Report::of_dir(dir)?.damaged(format!("The store cannot be opened: {failure}"));
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

fn verify(dir: &Path) -> Result<sievedb::VerifyReport> {
    let mut bar = None;
    let report = Options::new().verify_with(dir, |progress| {
        bar.get_or_insert_with(|| Progress::of_bytes("verifying", Some(progress.bytes)))
            .at(progress.bytes_done);
    })?;
    Ok(report)
}
