//! `sievedb get`: values of keys. Each key of standard input is answered before the next is read, for use with two pipes.

use sievedb::Keyspace;

use crate::escape::shortened;
use crate::failure::{Failure, Result, answered};
use crate::json::entry;
use crate::keys::Keys;
use crate::output::Output;
use crate::store;

/// Prints the value of a key, or of each key on standard input.
///
/// With `-`, each line of standard input is a key, and `key<TAB>value` is printed for each present one, in the order of the
/// input. Absent keys are omitted; with --json their value is null. The key "-" itself is `--escaped '\x2d'`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb get my.db planet
  sievedb get my.db picture --raw > picture.png
  cut -f1 wanted.tsv | sievedb get my.db -                  # many keys")]
pub(crate) struct Args {
    #[command(flatten)]
    keys: Keys,
    /// Print only the bytes of the value, without escapes or a newline.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let key = args.keys.single()?;
    if key.is_none() && args.raw {
        return Err(Failure::Usage("--raw is for a single key".into()));
    }
    let db = args.keys.store.for_reading()?;
    let keyspace = args.keys.within.existing(&db)?;
    let result = match key {
        Some(key) => get_one(&keyspace, &key, args),
        None => get_many(&keyspace, args),
    };
    store::note_filters(&db);
    result
}

fn get_one(keyspace: &Keyspace, key: &[u8], args: &Args) -> Result<()> {
    let value = keyspace.get(key)?;
    let mut out = Output::new();
    let printed = match &value {
        Some(value) if args.keys.format.json => out.entry(key, value),
        None if args.keys.format.json => out.object(entry(key, None)),
        Some(value) if args.raw => out.raw(value),
        Some(value) => out.columns(&[value]),
        None => return Err(Failure::Absent(shortened(key))),
    };
    let printed = printed.and_then(|()| out.finish());
    answered(printed, if value.is_some() { Ok(()) } else { Err(Failure::No) })
}

fn get_many(keyspace: &Keyspace, args: &Args) -> Result<()> {
    args.keys.answer_each(|key, _, out| match keyspace.get(key)? {
        Some(value) if args.keys.format.json => out.entry(key, &value),
        None if args.keys.format.json => out.object(entry(key, None)),
        Some(value) => out.columns(&[key, &value]),
        None => Ok(()),
    })
}
