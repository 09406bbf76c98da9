//! `sievedb keyspaces`: the keyspaces of a store.

use std::path::PathBuf;

use serde_json::json;

use crate::escape::escape;
use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::{store, units};

/// Lists the keyspaces of a store.
///
/// For each keyspace: its stored entries, its tables, their size and its name. Entries are those in memtables
/// and tables, with overwritten versions and tombstones that compaction has not dropped yet; `count` counts
/// keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb keyspaces my.db
  sievedb keyspaces my.db --json | jq -r .keyspace")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = store::open_for_reading(&args.db)?;
    let mut out = Output::new();
    if !args.format.json {
        out.text(&row("entries", "tables", "size", "keyspace"))?;
    }
    for keyspace in &db.stats().keyspaces {
        let total = keyspace.total();
        let entries = total.entries + keyspace.memtable_entries;
        if args.format.json {
            let object = json!({
                "keyspace": keyspace.name,
                "entries": entries,
                "tables": total.tables,
                "bytes": total.bytes,
            });
            out.text(&object.to_string())?;
        } else {
            let (entries, tables) = (units::count(entries), units::count(total.tables));
            out.text(&row(&entries, &tables, &units::bytes(total.bytes), &escape(keyspace.name.as_bytes())))?;
        }
    }
    out.finish()
}

/// The name comes last: it may be long.
fn row(entries: &str, tables: &str, size: &str, name: &str) -> String {
    format!("{entries:>15}  {tables:>8}  {size:>10}  {name}")
}
