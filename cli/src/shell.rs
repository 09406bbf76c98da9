//! `sievedb`: works on a store from the shell.
//!
//! Each command is a file in `commands`: its arguments and one function `run`.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    compact, completion, contains, delete, demo, get, load, man, put, scan, stats, verify,
};
use crate::failure::Result;

/// Works on a SieveDB store: an ordered key-value store that answers "it is not there" from memory.
///
/// A store is a directory. `load`, `put` and `demo` make one; the other commands want one that is there. It is in the
/// hands of one program at a time, or of several that only read.
#[derive(Debug, Parser)]
#[command(name = "sievedb", version, max_term_width = 110, after_help = SHORT_HELP, after_long_help = LONG_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

macro_rules! first_steps {
    () => {
        "\
First steps:
  sievedb demo                              what the filters do, on this machine's file paths
  sievedb put my.db planet Saturn           make a store with one entry
  sievedb get my.db planet                  Saturn
  sievedb load my.db words.txt              many entries: one a line, key or key<TAB>value
  sievedb scan my.db --prefix p             those that start with p, in order

"
    };
}

const SHORT_HELP: &str = concat!(
    first_steps!(),
    "`sievedb help COMMAND` tells more of each, `sievedb --help` what they have in common."
);

const LONG_HELP: &str = concat!(
    first_steps!(),
    r#"Keys and values are bytes:
  Printed, a tab, a newline, a backslash and any other byte that is not printable ASCII are \t, \n, \\ and \xHH.
  Read, bytes are taken as they are; with --escaped those four forms are read as what they stand for.
  One that begins with a hyphen stands after --, as in `sievedb get my.db -- -k`.
  In JSON (--json), bytes that are UTF-8 are text, {"key":"a"}; others are in base64, {"key_base64":"/w=="}.

Exit codes:
    0  done; also if a reader closed the pipe because it had enough
    1  the key is absent
    2  the command or its input makes no sense
    3  the store or a file is damaged, missing, in use or cannot be read or written
  130  interrupted (load and delete say how far they came)

What is wrong is said on standard error, in one line. Progress is shown there too, if it is a terminal."#
);

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Load(load::Args),
    Put(put::Args),
    Get(get::Args),
    Contains(contains::Args),
    Scan(scan::Args),
    Delete(delete::Args),
    Stats(stats::Args),
    Compact(compact::Args),
    Verify(verify::Args),
    Completion(completion::Args),
    Man(man::Args),
}

/// The program: parses its arguments, does what they ask, says why not.
#[must_use]
pub fn main() -> ExitCode {
    run(&Cli::parse().command).map_or_else(|failure| failure.report("sievedb"), |()| ExitCode::SUCCESS)
}

/// The arguments of the program, for its manual pages and completions.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Load(args) => load::run(args),
        Command::Put(args) => put::run(args),
        Command::Get(args) => get::run(args),
        Command::Contains(args) => contains::run(args),
        Command::Scan(args) => scan::run(args),
        Command::Delete(args) => delete::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Compact(args) => compact::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Completion(args) => completion::run(args),
        Command::Man(args) => man::run(args),
    }
}
