//! `sievedb-dump`: inspects the files of a store without a lock, even if it is open or damaged.
//!
//! | file | noun |
//! |---|---|
//! | `file` | a file: its kind, and what its bytes mean |
//! | `filter` | a filter: shown, verified, measured |
//! | `tree`, `draw`, `layout` | a store: its levels, runs and tables, drawn to fit a terminal |
//! | `plan` | a store: the best sizes of its filters |
//! | `report` | a file: a page for a browser |
//! | `sketch` | a sketch: its kind and parameters |
//! | `events` | a description as JSON |
//! | `opening`, `watched` | opening files, and their errors; a progress bar while one is read |

mod draw;
mod events;
mod file;
mod filter;
mod layout;
mod opening;
mod plan;
mod report;
mod sketch;
mod tree;
mod watched;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;
use crate::signals;

const PROGRAM: &str = "sievedb-dump";

/// Inspects the files of a SieveDB store: their kinds, the meaning of their bytes, and damage.
///
/// Reads without a lock. A small file is shown to the byte, a large one in outline; all of it is verified unless
/// --summary or --block is given. A directory is shown as by `tree`.
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    file: file::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    Tree(tree::Args),
    Report(report::Args),
    /// Shows, verifies, measures and plans filters.
    #[command(subcommand)]
    Filter(filter::Command),
}

const AFTER_HELP: &str = "\
Examples:
  sievedb-dump my.db                             levels, tables and filters, drawn
  sievedb-dump my.db/000007.sst                  its kind, and whether it is intact
  sievedb-dump --block 3 my.db/000007.sst        one block, to the byte
  sievedb-dump --values my.db/000005.wal | less  its entries
  sievedb-dump filter verify my.db/000007.sst    probe its filter for every key

Offsets and lengths are in decimal, bytes in hexadecimal. Keys and values are printed as
UTF-8, with \\t, \\n, \\\\ and \\xHH for control characters and bytes that are not UTF-8. The hash
seed of the store is a secret and is not shown unless --secrets is given. A file called tree,
report or filter is ./tree, ./report or ./filter.

Exit codes:
  0  everything that was read is intact
  2  the command makes no sense
  3  something is damaged, is newer than this program, or cannot be read; also if a log ends
     in the middle of a record, which opening the store drops";

pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command, and prints a failure.
#[must_use]
pub fn main() -> ExitCode {
    signals::prepare();
    let Cli { command, file } = Cli::parse();
    let result = match &command {
        None => file::run(&file),
        Some(Command::Tree(args)) => tree::run(args),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Filter(command)) => filter::run(command),
    };
    result.map_or_else(|failure: Failure| failure.report(PROGRAM), |()| ExitCode::SUCCESS)
}
