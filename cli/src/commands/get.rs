//! `sievedb get`: the value of one key, or of many from standard input.
//!
//! Reading keys from standard input, it answers each one as soon as it is asked: a program can hold a
//! conversation with it over two pipes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sievedb::Keyspace;

use crate::escape::escape;
use crate::failure::{Failure, Result};
use crate::lines::{Encoding, Lines};
use crate::output::Output;
use crate::store;

/// Prints the value of a key, or of each key on standard input.
///
/// With `-` for the key, keys are read from standard input, one a line, and `key<TAB>value` is printed for
/// each that is present, in the order of the input; absent ones are left out. (The key "-" itself is
/// `--escaped '\x2d'`.)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The key; `-` reads keys from standard input.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// Print the value's own bytes, not escaped and without a newline.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    encoding: Encoding,
}

pub(crate) fn run(args: &Args, keyspace: Option<&str>) -> Result<()> {
    let many = args.key == "-";
    if many && args.raw {
        return Err(Failure::Usage("--raw is for a single key".into()));
    }
    let key = args.encoding.argument(&args.key)?;
    let db = store::open_for_reading(&args.db)?;
    let keyspace = store::existing_keyspace(&db, keyspace)?;
    let result = if many { get_many(&keyspace, args.encoding) } else { get_one(&keyspace, &key, args.raw) };
    store::note_filters(&db);
    result
}

fn get_one(keyspace: &Keyspace, key: &[u8], raw: bool) -> Result<()> {
    let value = keyspace.get(key)?.ok_or_else(|| Failure::Absent(escape(key)))?;
    let mut out = Output::new();
    if raw { out.raw(&value)? } else { out.columns(&[&value])? }
    out.finish()
}

fn get_many(keyspace: &Keyspace, encoding: Encoding) -> Result<()> {
    let mut lines = Lines::open(Path::new("-"))?;
    let mut out = Output::new();
    loop {
        if lines.may_wait() {
            out.flush()?;
        }
        if lines.next()?.is_none() {
            return out.finish();
        }
        let key = encoding.read(lines.current()).map_err(|failure| lines.blame(failure))?;
        if let Some(value) = keyspace.get(&key)? {
            out.columns(&[&key, &value])?;
        }
    }
}
