use std::time::Instant;

use sievedb::LevelStats;

use crate::bounds::Bounds;
use crate::failure::Result;
use crate::json::{Format, Object};
use crate::output::Output;
use crate::store::Store;
use crate::{progress, store, units};

/// Merges the tables of each keyspace into one run, and drops overwritten and deleted entries. With a range, merges only the
/// tables of one keyspace that overlap it.
///
/// Rarely needed: the store compacts itself in the background.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb compact my.db
  sievedb compact my.db --keyspace users --json
  sievedb compact my.db --prefix user:42:")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Only this keyspace [default: all; with a range, "default"]
    #[arg(long, value_name = "NAME", value_parser = store::keyspace_name)]
    keyspace: Option<String>,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = args.store.existing()?;
    let start = Instant::now();
    let range = args.bounds.decode()?;
    let of_range = (!range.is_full()).then_some(store::DEFAULT_KEYSPACE);
    let keyspace = args.keyspace.as_deref().or(of_range);
    let one = keyspace.map(|name| store::existing_keyspace(&db, name)).transpose()?;
    let before = store::total(&db, keyspace);
    progress::watch("compacting", |progress| match &one {
        Some(keyspace) => keyspace.compact_range_with(range.bounds(), progress),
        None => db.compact_with(progress),
    })?;
    let after = store::total(&db, keyspace);
    drop(one);
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
