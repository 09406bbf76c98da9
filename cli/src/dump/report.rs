use std::path::PathBuf;

use sievedb::inspect::Kind;
use sievedb_report::FilePage;

use super::opening::{identify, refuse_foreign, stopped, view_of};
use super::sketch;
use crate::failure::{Failure, Result, answered};
use crate::output::Output;
use crate::{units, whole_file};

/// Writes a page about one file, for a browser: a table, a filter, another file of a store, or a sketch.
///
/// The page loads nothing. All of the file is verified; damage is listed, and the exit code is 3.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb-dump report my.db/000007.sst -o table.html")]
pub(super) struct Args {
    /// The file to inspect.
    file: PathBuf,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let path = &args.file;
    let (file, kind) = identify(path)?;
    let page = if kind == Kind::Unknown && sketch::is_sketch(path, &*file)? {
        sketch::page(path)?
    } else {
        refuse_foreign(path, &*file, kind)?;
        FilePage::describe(path, &*file, &view_of(path)).map_err(|stop| stopped(path, stop))?
    };
    let text = page.page();
    whole_file::write(&args.output, text.as_bytes())?;
    let mut out = Output::new();
    out.text(&format!("{} in {}", units::bytes(text.len() as u64), args.output.display()))?;
    let verdict = if page.is_intact() {
        Ok(())
    } else {
        Err(Failure::Refused(format!("{} is damaged: the page lists how", path.display())))
    };
    answered(out.finish(), verdict)
}
