//! `sievedb`: each command is a file in `commands` with a function `run`.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    backup, backups, cas, checkpoint, compact, completion, contains, count, delete, demo, diff, digest,
    drop_keyspace, get, keyspaces, load, man, put, refilter, repair, report, restore, scan, stats, uniq,
    verify,
};
use crate::failure::Result;
use crate::signals;

/// Works on a SieveDB store: an ordered key-value store that answers "absent" from memory.
///
/// A store is a directory. `load`, `put`, `uniq`, `demo` and `restore` create one. One program at a time can write to a store;
/// any number can read it meanwhile.
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
  sievedb demo                              the reads that filters save, on this machine's file paths
  sievedb put my.db planet Saturn           create a store with one entry
  sievedb get my.db planet                  print its value: Saturn
  sievedb load my.db words.txt              load entries, one a line: key or key<TAB>value
  sievedb scan my.db --prefix p             print the entries that start with p, in order

"
    };
}

const SHORT_HELP: &str =
    concat!(first_steps!(), "`sievedb help COMMAND` describes a command, `sievedb --help` the common rules.");

const LONG_HELP: &str = concat!(
    first_steps!(),
    r#"Keys and values are bytes:
  Output: UTF-8 is printed unchanged. A tab, a newline and a backslash are \t, \n and \\; control characters and
  bytes that are not UTF-8 are \xHH.
  Input: arguments and lines (of load and uniq, and - for a key) are used unchanged; with --escaped they are
  read in the form of the output, so `load --escaped` reads the output of `scan`. The same line is the same key
  for every command. A blank line is skipped unless --empty-key is given. A line that ends with a carriage
  return (CRLF) is an error unless --crlf drops it, a line that was printed with --json unless `load
  --from-json` reads it; --literal uses both unchanged.
  An argument that begins with a hyphen goes after --, as in `sievedb get my.db -- -k`.
  JSON (--json): bytes that are UTF-8 are text, {"key":"a"}; others are in base64, {"key_base64":"/w=="}.

Exit codes:
    0  done; also if the reader of a pipe closed it
    1  the key is absent, or present (put --if-absent), or holds something else (cas); the stores differ (diff)
    2  the command or its input makes no sense
    3  the store or a file is damaged, missing, in use or cannot be read or written; or memory is short
  130  interrupted; 143, after SIGHUP 129: terminated (load and delete print how many lines they wrote; uniq
       prints every line that it stored, unless a second signal ends it; backup and restore leave nothing half done)

Errors and notes go to standard error, one line each. Progress goes there too, if it is a terminal."#
);

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Args),
    Load(load::Args),
    Put(put::Args),
    Get(get::Args),
    Contains(contains::Args),
    Scan(scan::Args),
    Count(count::Args),
    Delete(delete::Args),
    Cas(cas::Args),
    Uniq(uniq::Args),
    Keyspaces(keyspaces::Args),
    DropKeyspace(drop_keyspace::Args),
    Stats(stats::Args),
    Report(report::Args),
    Checkpoint(checkpoint::Args),
    Backup(backup::Args),
    Backups(backups::Args),
    Restore(restore::Args),
    Compact(compact::Args),
    Refilter(refilter::Args),
    Verify(verify::Args),
    Repair(repair::Args),
    Digest(digest::Args),
    Diff(diff::Args),
    Completion(completion::Args),
    Man(man::Args),
}

/// Runs the command, and prints a failure.
#[must_use]
pub fn main() -> ExitCode {
    signals::prepare();
    run(&Cli::parse().command).map_or_else(|failure| failure.report("sievedb"), |()| ExitCode::SUCCESS)
}

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
        Command::Count(args) => count::run(args),
        Command::Delete(args) => delete::run(args),
        Command::Cas(args) => cas::run(args),
        Command::Uniq(args) => uniq::run(args),
        Command::Keyspaces(args) => keyspaces::run(args),
        Command::DropKeyspace(args) => drop_keyspace::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Report(args) => report::run(args),
        Command::Checkpoint(args) => checkpoint::run(args),
        Command::Backup(args) => backup::run(args),
        Command::Backups(args) => backups::run(args),
        Command::Restore(args) => restore::run(args),
        Command::Compact(args) => compact::run(args),
        Command::Refilter(args) => refilter::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Repair(args) => repair::run(args),
        Command::Digest(args) => digest::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Completion(args) => completion::run(args),
        Command::Man(args) => man::run(args),
    }
}
