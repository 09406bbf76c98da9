//! `sievedb-dump`: looks at the files of a store.
//!
//! What a file holds is known by `sievedb::dump`; here it is asked for and printed. It reads, and nothing else: no lock
//! is taken, so that it works beside a running store and on the pieces of a broken one.

mod file;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Looks at the files of a SieveDB store: says what each is, what its bytes mean, and whether they are intact.
///
/// Files are only read, and never locked. Of a small file everything is shown, of a large one its shape; all of it is
/// read and verified unless --summary is given.
#[derive(Debug, Parser)]
#[command(name = "sievedb-dump", version, after_help = EXIT_CODES, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    file: file::Args,
}

const EXIT_CODES: &str = "\
Offsets and lengths are in decimal, bytes in hexadecimal. Keys and values are printed with
\\t, \\n, \\\\ and \\xHH for what is not printable ASCII. The hash seed of the store is a secret
and is not shown unless --secrets is given.

Exit codes:
  0  everything that was read is intact
  2  the command makes no sense
  3  something is damaged, or is newer than this program, or cannot be read";

/// The arguments of the program, for its manual pages and completions.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// The program: parses its arguments, does what they ask, says why not.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { file } = Cli::parse();
    let result = file::run(&file);
    result.map_or_else(|failure| failure.report("sievedb-dump"), |()| ExitCode::SUCCESS)
}
