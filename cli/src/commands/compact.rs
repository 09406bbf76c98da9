//! `sievedb compact`: merges everything into one run, and prints what that changed.

use std::path::PathBuf;
use std::time::Instant;

use sievedb::LevelStats;

use crate::failure::Result;
use crate::json::{Format, Object};
use crate::output::Output;
use crate::progress::Waiting;
use crate::{store, units};

/// Merges the tables of each keyspace into one run, and drops what is overwritten or deleted.
///
/// Not needed in daily use: the store compacts itself in the background. Frees the space of deleted entries,
/// and makes later reads as cheap as they can be.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb compact my.db
  sievedb compact my.db --keyspace users --json")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// This keyspace alone; all if not given.
    #[arg(long, value_name = "NAME", value_parser = store::keyspace_name)]
    keyspace: Option<String>,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = store::open_existing(&args.db)?;
    let start = Instant::now();
    let keyspace = args.keyspace.as_deref();
    let one = keyspace.map(|name| store::existing_keyspace(&db, name)).transpose()?;
    let before = store::total(&db, keyspace);
    let waiting = Waiting::begin("compacting");
    match &one {
        Some(keyspace) => keyspace.compact()?,
        None => db.compact()?,
    }
    let after = store::total(&db, keyspace);
    drop((one, waiting));
    db.close()?;
    let mut out = Output::new();
    if args.format.json {
        let mut summary = Object::new();
        summary.insert("before".into(), object(&before).into());
        summary.insert("after".into(), object(&after).into());
        summary.insert("seconds".into(), start.elapsed().as_secs_f64().into());
        out.object(summary)?;
    } else {
        out.text(&format!("before  {}", describe(&before)))?;
        out.text(&format!("after   {} (in {})", describe(&after), units::seconds(start.elapsed())))?;
    }
    out.finish()
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

fn object(tables: &LevelStats) -> Object {
    let mut object = Object::new();
    for (name, number) in [
        ("entries", tables.entries),
        ("runs", tables.runs),
        ("tables", tables.tables),
        ("bytes", tables.bytes),
    ] {
        object.insert(name.into(), number.into());
    }
    object
}
