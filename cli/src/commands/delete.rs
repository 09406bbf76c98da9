//! `sievedb delete`: removes a key, or many, durably.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sievedb::{Durability, WriteBatch};

use crate::bulk::write_lines;
use crate::failure::{Failure, Result};
use crate::json::{Format, Object};
use crate::lines::{Encoding, Lines, check_limits};
use crate::output::Output;
use crate::store::{self, Within};
use crate::units;

/// Removes a key, or each key on standard input, durably.
///
/// A key that is not there is no failure. With `-` for the key, keys are read from standard input, one a line, and
/// removed in batches; it stops at a line that is no key, as `load` does. (The key "-" itself is
/// `--escaped '\x2d'`.)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb delete my.db planet
  sievedb scan my.db --prefix tmp/ | cut -f1 | sievedb delete my.db - --escaped")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The key; `-` reads keys from standard input.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.key == "-" {
        return delete_many(args);
    }
    if args.format.json {
        return Err(Failure::Usage("--json is for many keys: a single one is removed without a word".into()));
    }
    let key = args.encoding.argument(&args.key)?;
    check_limits(&key, b"")?;
    let db = store::open_existing(&args.db)?;
    let keyspace = args.within.existing(&db)?;
    let mut batch = WriteBatch::new();
    batch.delete_in(&keyspace, key);
    db.write_with(batch, Durability::Synced)?;
    Ok(db.close()?)
}

fn delete_many(args: &Args) -> Result<()> {
    let mut lines = Lines::open(Path::new("-"))?;
    let db = store::open_existing(&args.db)?;
    let keyspace = args.within.existing(&db)?;
    let tally = write_lines(db, &mut lines, "deleted", |line, batch| {
        let key = args.encoding.read(line)?;
        check_limits(&key, b"")?;
        batch.delete_in(&keyspace, &key);
        Ok(key.len() as u64)
    })?;
    let mut out = Output::new();
    if args.format.json {
        let mut summary = Object::new();
        summary.insert("lines".into(), tally.lines.into());
        summary.insert("seconds".into(), tally.time.as_secs_f64().into());
        out.object(summary)?;
    } else {
        let keys = units::counted(tally.lines, "key", "keys");
        out.text(&format!("{keys} deleted in {}", units::seconds(tally.time)))?;
    }
    out.finish()
}
