//! `sievedb get`: the value of one key, or of many from standard input.
//!
//! Keys from standard input are answered one by one, before the next is read: a program can send keys and
//! read answers over two pipes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sievedb::Keyspace;

use crate::escape::escape;
use crate::failure::{Failure, Result, answered};
use crate::json::{Format, entry};
use crate::line_format::{Content, LineFormat};
use crate::lines::Lines;
use crate::output::Output;
use crate::store::{self, Within};

/// Prints the value of a key, or of each key on standard input.
///
/// With `-` for the key, keys are read from standard input, one a line, and `key<TAB>value` is printed for
/// each that is present, as `scan` prints it, in the order of the input. Absent keys are left out; with
/// --json their value is null. The key "-" itself is `--escaped '\x2d'`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb get my.db planet
  sievedb get my.db picture --raw > picture.png
  cut -f1 wanted.tsv | sievedb get my.db -                  # many keys")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The key; `-` reads keys from standard input.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// Print the bytes of the value, without escapes and without a newline.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    lines: LineFormat,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let many = args.key == "-";
    if many && args.raw {
        return Err(Failure::Usage("--raw is for a single key".into()));
    }
    if !many {
        args.lines.check_unused()?;
    }
    let key = args.lines.arguments.decode(&args.key)?;
    let db = store::open_for_reading(&args.db)?;
    let keyspace = args.within.existing(&db)?;
    let result = if many { get_many(&keyspace, args) } else { get_one(&keyspace, &key, args) };
    store::note_filters(&db);
    result
}

fn get_one(keyspace: &Keyspace, key: &[u8], args: &Args) -> Result<()> {
    let value = keyspace.get(key)?;
    let mut out = Output::new();
    let printed = match &value {
        Some(value) if args.format.json => out.entry(key, value),
        None if args.format.json => out.object(entry(key, None)),
        Some(value) if args.raw => out.raw(value),
        Some(value) => out.columns(&[value]),
        None => return Err(Failure::Absent(escape(key))),
    };
    let printed = printed.and_then(|()| out.finish());
    answered(printed, if value.is_some() { Ok(()) } else { Err(Failure::No) })
}

fn get_many(keyspace: &Keyspace, args: &Args) -> Result<()> {
    let mut lines = Lines::open(Path::new("-"), args.lines, Content::Key)?;
    let mut out = Output::new();
    loop {
        if lines.may_block() {
            out.flush()?;
        }
        if lines.next()?.is_none() {
            lines.print_notes();
            return out.finish();
        }
        let key = lines.key()?;
        match keyspace.get(&key)? {
            Some(value) if args.format.json => out.entry(&key, &value)?,
            None if args.format.json => out.object(entry(&key, None))?,
            Some(value) => out.columns(&[&key, &value])?,
            None => {}
        }
    }
}
