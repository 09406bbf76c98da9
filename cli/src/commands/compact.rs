//! `sievedb compact`: everything into one run, and what that changed.

use std::path::PathBuf;
use std::time::Instant;

use sievedb::{Db, LevelStats};

use crate::failure::Result;
use crate::output::Output;
use crate::{store, units};

/// Merges the tables of each keyspace (or of one) into one run, and drops what is overwritten or deleted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
}

pub(crate) fn run(args: &Args, keyspace: Option<&str>) -> Result<()> {
    let db = store::open_existing(&args.db)?;
    let start = Instant::now();
    let one = keyspace.map(|name| store::existing_keyspace(&db, Some(name))).transpose()?;
    let before = tables(&db, keyspace);
    match &one {
        Some(keyspace) => keyspace.compact()?,
        None => db.compact()?,
    }
    let after = tables(&db, keyspace);
    drop(one);
    db.close()?;
    let mut out = Output::new();
    out.text(&format!("before  {}", describe(&before)))?;
    out.text(&format!("after   {} (in {})", describe(&after), units::seconds(start.elapsed())))?;
    out.finish()
}

/// The sum over the keyspaces that are compacted.
fn tables(db: &Db, keyspace: Option<&str>) -> LevelStats {
    let mut sum = LevelStats::default();
    for stats in db.stats().keyspaces.iter().filter(|stats| keyspace.is_none_or(|name| stats.name == name)) {
        let total = stats.total();
        sum.runs += total.runs;
        sum.tables += total.tables;
        sum.bytes += total.bytes;
        sum.entries += total.entries + stats.memtable_entries;
    }
    sum
}

fn describe(tables: &LevelStats) -> String {
    format!(
        "{} in {} and {}, {}",
        units::counted(tables.entries, "entry", "entries"),
        units::counted(tables.runs, "run", "runs"),
        units::counted(tables.tables, "table", "tables"),
        units::bytes(tables.bytes)
    )
}
