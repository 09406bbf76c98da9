//! `sievedb keyspaces`: the keyspaces of a store.

use serde_json::json;

use crate::escape::escape;
use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::Store;
use crate::{describe, store, units};

/// Lists the keyspaces of a store.
///
/// For each keyspace: its stored entries, its tables, their size, the filters of new tables, and its name; with
/// --json all its options. Entries are in memtables and tables, and include overwritten versions and tombstones that
/// compaction has not dropped yet; `count` counts keys.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb keyspaces my.db
  sievedb keyspaces my.db --json | jq -r .keyspace")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = args.store.for_reading()?;
    let mut out = Output::new();
    if !args.format.json {
        out.text(&row("entries", "tables", "size", "filter", "keyspace"))?;
    }
    for keyspace in &db.stats().keyspaces {
        let total = keyspace.total();
        let entries = total.entries + keyspace.memtable_entries;
        let options = store::existing_keyspace(&db, &keyspace.name)?.options();
        if args.format.json {
            let object = json!({
                "keyspace": keyspace.name,
                "entries": entries,
                "tables": total.tables,
                "bytes": total.bytes,
                "options": describe::to_json(&options),
            });
            out.text(&object.to_string())?;
        } else {
            let (entries, tables) = (units::count(entries), units::count(total.tables));
            let (size, filter) = (units::bytes(total.bytes), describe::filter(options.filter_policy()));
            out.text(&row(&entries, &tables, &size, &filter, &escape(keyspace.name.as_bytes())))?;
        }
    }
    out.finish()
}

/// The name comes last: it may be long.
fn row(entries: &str, tables: &str, size: &str, filter: &str, name: &str) -> String {
    format!("{entries:>15}  {tables:>8}  {size:>10}  {filter:<24}  {name}")
}
