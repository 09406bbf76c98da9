//! `sievedb delete`: deletes one key, many, or a range.

use std::ffi::OsString;
use std::ops::Bound;
use std::path::Path;

use sievedb::{Durability, WriteBatch};

use crate::arguments::check_limits;
use crate::bulk::write_lines;
use crate::failure::{Failure, Result};
use crate::json::{Format, Object};
use crate::line_format::{Content, LineFormat};
use crate::lines::Lines;
use crate::output::Output;
use crate::store::{Settling, Store, Within};
use crate::units;

/// Deletes a key, each key on standard input, or all keys of a range, durably.
///
/// Deleting an absent key succeeds. With `-`, keys are read from standard input, one a line, and deleted in batches; the first
/// invalid line ends the command, as in `load`. The key "-" itself is `--escaped '\x2d'`.
///
/// A range is deleted by one entry in the log. It has its first key but not its end; either may be missing. A range or prefix of
/// all keys is refused: use `--all`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb delete my.db planet
  sievedb scan my.db --prefix tmp/ | cut -f1 | sievedb delete my.db - --escaped
  sievedb delete my.db --range 2024-01-01..2024-02-01
  sievedb delete my.db --prefix tmp/
  sievedb delete my.db --all --keyspace sessions")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The key; `-` reads keys from standard input.
    #[arg(allow_negative_numbers = true, required_unless_present_any = ["range", "prefix", "all"])]
    key: Option<OsString>,
    /// All keys from A up to B, which stays. Dots in a key are `--escaped '\x2e'`.
    #[arg(long, value_name = "A..B", allow_hyphen_values = true, conflicts_with_all = ["key", "prefix", "all"])]
    range: Option<OsString>,
    /// All keys that start with these bytes.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, conflicts_with_all = ["key", "all"])]
    prefix: Option<OsString>,
    /// All keys of the keyspace.
    #[arg(long, conflicts_with = "key")]
    all: bool,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    lines: LineFormat,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.key.as_ref().is_some_and(|key| key == "-") {
        return delete_many(args);
    }
    args.lines.check_unused()?;
    if args.format.json {
        return Err(Failure::Usage(
            "--json is for keys from standard input; deleting a key or a range prints nothing".into(),
        ));
    }
    let arguments = args.lines.arguments;
    let key = arguments.decode_optional(args.key.as_ref())?;
    let prefix = arguments.decode_optional(args.prefix.as_ref())?;
    let range = args.range.as_ref().map(|range| bounds(args, range.as_encoded_bytes())).transpose()?;
    let is_all = |(from, to): &(Vec<u8>, Vec<u8>)| from.is_empty() && to.is_empty();
    if prefix.as_ref().is_some_and(|prefix| prefix.is_empty()) || range.as_ref().is_some_and(is_all) {
        return Err(Failure::Usage("this is every key of the keyspace; --all deletes them".into()));
    }
    let parts = [&key, &prefix].into_iter().flatten().chain(range.iter().flat_map(|(from, to)| [from, to]));
    parts.into_iter().try_for_each(|part| check_limits(part, b""))?;
    let db = args.store.existing()?;
    let keyspace = args.within.existing(&db)?;
    let mut batch = WriteBatch::new();
    match (key, prefix, range) {
        (Some(key), ..) => batch.delete_in(&keyspace, key),
        (_, Some(prefix), _) => batch.delete_prefix_in(&keyspace, prefix),
        (.., Some((from, to))) if to.is_empty() => batch.delete_range_in(&keyspace, from..),
        (.., Some((from, to))) => {
            batch.delete_range_in(&keyspace, (Bound::Included(from), Bound::Excluded(to)))
        }
        _ => batch.delete_range_in(&keyspace, ..),
    };
    db.write_with(batch, Durability::Synced)?;
    Ok(db.close()?)
}

/// First key and end of a range; empty: unbounded.
fn bounds(args: &Args, range: &[u8]) -> Result<(Vec<u8>, Vec<u8>)> {
    let at = range.windows(2).position(|dots| dots == b"..");
    let (from, to) = match at.map(|at| (&range[..at], &range[at + 2..])) {
        Some((from, to)) if !to.windows(2).any(|dots| dots == b"..") && !to.starts_with(b".") => (from, to),
        _ => {
            return Err(Failure::Usage(
                r"a range is A..B, A.. or ..B; dots in a key are --escaped '\x2e'".into(),
            ));
        }
    };
    let decode = |bytes| args.lines.arguments.decode_bytes(bytes).map(|bytes| bytes.into_owned());
    let (from, to) = (decode(from)?, decode(to)?);
    if !to.is_empty() && from > to {
        return Err(Failure::Usage("the range starts after its end".into()));
    }
    Ok((from, to))
}

fn delete_many(args: &Args) -> Result<()> {
    let mut lines = Lines::open(Path::new("-"), args.lines, Content::Key)?;
    let db = args.store.existing()?;
    let keyspace = args.within.existing(&db)?;
    let tally = write_lines(db, &mut lines, Settling::NEVER, "deleted", |line, batch| {
        let key = args.lines.decode(line)?;
        check_limits(&key, b"")?;
        batch.delete_in(&keyspace, &key);
        Ok(key.len() as u64)
    })?;
    let mut out = Output::new();
    if args.format.json {
        let mut summary = Object::new();
        summary.insert("lines".into(), tally.lines.into());
        summary.insert("blank_lines".into(), lines.blank().into());
        summary.insert("seconds".into(), tally.time.as_secs_f64().into());
        out.object(summary)?;
    } else {
        let keys = units::counted(tally.lines, "key", "keys");
        out.text(&format!("{keys} deleted in {}", units::seconds(tally.time)))?;
    }
    out.finish()
}
