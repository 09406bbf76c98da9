//! `sievedb`: works on a store from the shell.
//!
//! Each command is a file in `commands`: its arguments and one function `run`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{compact, demo, get, load, put, scan, stats};
use crate::store;

/// Works on a SieveDB store: an ordered key-value store that answers "it is not there" from memory.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// The keyspace to work on ["default" if not given; `stats` and `compact` take all].
    #[arg(long, global = true, value_name = "NAME", value_parser = store::keyspace_name)]
    keyspace: Option<String>,
}

const EXIT_CODES: &str = "\
Keys and values are printed with \\t, \\n, \\\\ and \\xHH for what is not printable ASCII.
What is read is taken literally, unless --escaped is given.

Exit codes:
  0  done
  1  the key is absent
  2  the command or its input makes no sense
  3  the store or a file is damaged, missing, in use or cannot be read or written";

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Load(load::Args),
    Put(put::Args),
    Get(get::Args),
    Scan(scan::Args),
    Stats(stats::Args),
    Compact(compact::Args),
}

/// The program: parses its arguments, does what they ask, says why not.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { command, keyspace } = Cli::parse();
    let keyspace = keyspace.as_deref();
    let result = match &command {
        Command::Demo(args) => demo::run(args, keyspace),
        Command::Load(args) => load::run(args, keyspace),
        Command::Put(args) => put::run(args, keyspace),
        Command::Get(args) => get::run(args, keyspace),
        Command::Scan(args) => scan::run(args, keyspace),
        Command::Stats(args) => stats::run(args, keyspace),
        Command::Compact(args) => compact::run(args, keyspace),
    };
    result.map_or_else(|failure| failure.report("sievedb"), |()| ExitCode::SUCCESS)
}
