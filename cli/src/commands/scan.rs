//! `sievedb scan`: entries in the order of their keys.

use std::ffi::OsString;
use std::ops::Bound;
use std::path::PathBuf;

use sievedb::{Iter, Keyspace};

use crate::failure::Result;
use crate::json::{Format, entry};
use crate::lines::Encoding;
use crate::output::Output;
use crate::store::{self, Within};

/// Prints entries as `key<TAB>value`, in the order of their keys.
///
/// What is printed can be loaded again with `load --escaped`. `--prefix` together with `--from` or `--to`
/// prints what all of them allow.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb scan my.db --prefix user/ --limit 10
  sievedb scan my.db --from b --to c --reverse
  sievedb scan my.db --json | jq -r .key")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The first key.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// The key before which to end: it is not printed itself.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
    /// Only keys that start with this.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// Last key first.
    #[arg(long)]
    reverse: bool,
    /// At most so many entries.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let argument = |argument: &Option<OsString>| args.encoding.optional(argument.as_ref());
    let (from, to) = (argument(&args.from)?, argument(&args.to)?);
    let prefix = argument(&args.prefix)?.unwrap_or_default();
    let db = store::open_for_reading(&args.db)?;
    let keyspace = args.within.existing(&db)?;
    let entries = range(&keyspace, from, to, &prefix);
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut out = Output::new();
    if args.reverse {
        print(entries.rev(), limit, args.format, &mut out)?;
    } else {
        print(entries, limit, args.format, &mut out)?;
    }
    out.finish()
}

type Entry = sievedb::Result<(sievedb::Value, sievedb::Value)>;

fn print(
    mut entries: impl Iterator<Item = Entry>,
    limit: u64,
    format: Format,
    out: &mut Output,
) -> Result<()> {
    for _ in 0..limit {
        let Some(next) = entries.next() else { break };
        let (key, value) = next?;
        if format.json {
            out.object(entry(&key, Some(&value)))?;
        } else {
            out.columns(&[&key, &value])?;
        }
    }
    Ok(())
}

/// The entries that all bounds allow.
fn range(keyspace: &Keyspace, from: Option<Vec<u8>>, to: Option<Vec<u8>>, prefix: &[u8]) -> Iter {
    let first = from.unwrap_or_default().max(prefix.to_vec());
    let end = match (to, after_prefix(prefix)) {
        (Some(to), Some(after)) => Bound::Excluded(to.min(after)),
        (Some(end), None) | (None, Some(end)) => Bound::Excluded(end),
        (None, None) => Bound::Unbounded,
    };
    keyspace.range((Bound::Included(first), end))
}

/// The first key after all those with this prefix: its last byte that can be is one larger, and what follows
/// that byte is gone. `None` if no key is after them.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_prefix_is_after_all_keys_that_have_it() {
        assert_eq!(after_prefix(b""), None);
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b"ab").unwrap(), b"ac");
        assert_eq!(after_prefix(b"a\xff").unwrap(), b"b");
    }
}
