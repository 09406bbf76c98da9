//! `sievedb-dump`: looks at the files of a store.
//!
//! What a file holds is known by `sievedb::inspect`; here it is asked for and printed. It reads, and nothing else: no lock
//! is taken, so that it works beside a running store and on the pieces of a broken one.
//!
//! | file | what |
//! |---|---|
//! | `file` | a file: what it is, what its bytes mean |
//! | `filter` | a filter: shown, proved, measured |
//! | `tree`, `draw`, `layout` | a store: levels, runs, tables; drawn; in so many columns |
//! | `plan` | a store: what its filters could be |
//! | `events` | a description as JSON |
//! | `opening`, `watched` | files that are looked at, and what stands in the way; a bar while one is read |

mod draw;
mod events;
mod file;
mod filter;
mod layout;
mod opening;
mod plan;
mod tree;
mod watched;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// The program's name, in what it says on standard error.
const PROGRAM: &str = "sievedb-dump";

/// Looks at the files of a SieveDB store: says what each is, what its bytes mean, and whether they are intact.
///
/// Files are only read, and never locked. Of a small file everything is shown, of a large one its shape; all of it is
/// read and verified unless --summary or --block is given.
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
    /// Looks at filters: shows, proves, measures and plans them.
    #[command(subcommand)]
    Filter(filter::Command),
}

const AFTER_HELP: &str = "\
Examples:
  sievedb-dump my.db/000007.sst                  what it is, and whether it is intact
  sievedb-dump --block 3 my.db/000007.sst        one block, to the byte
  sievedb-dump --values my.db/000005.wal | less  what was written
  sievedb-dump tree my.db                        levels, tables and filters, drawn
  sievedb-dump filter verify my.db/000007.sst    ask its filter for every key

Offsets and lengths are in decimal, bytes in hexadecimal. Keys and values are printed with
\\t, \\n, \\\\ and \\xHH for what is not printable ASCII. The hash seed of the store is a secret
and is not shown unless --secrets is given. A file called tree or filter is ./tree or ./filter.

Exit codes:
  0  everything that was read is intact
  2  the command makes no sense
  3  something is damaged, or is newer than this program, or cannot be read;
     so is the torn end of a log, which nobody was promised and which opening the store drops";

/// The arguments of the program, for its manual pages and completions.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// The program: parses its arguments, does what they ask, says why not.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { command, file } = Cli::parse();
    let result = match &command {
        None => file::run(&file),
        Some(Command::Tree(args)) => tree::run(args),
        Some(Command::Filter(command)) => filter::run(command),
    };
    result.map_or_else(|failure: Failure| failure.report(PROGRAM), |()| ExitCode::SUCCESS)
}
