use std::time::Duration;

use serde_json::json;
use sievedb::KeyspaceStats;

use crate::commands::stats::expiry_object;
use crate::escape::escape;
use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::Store;
use crate::{describe, store, units, window};

/// Lists the keyspaces of a store.
///
/// For each keyspace: stored entries, tables, their size, the filters of new tables, the time to live, and the name; with --json
/// all options, the buckets of time, and the next expiry. Entries include overwritten versions and tombstones; `count` counts
/// keys.
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
    let stats = db.stats();
    let is_any_ttl = stats.keyspaces.iter().any(|keyspace| ttl_of(keyspace).is_some());
    let ttl = |ttl: String| is_any_ttl.then_some(ttl);
    if !args.format.json {
        out.text(&row("entries", "tables", "size", "filter", ttl("ttl".into()), "keyspace"))?;
    }
    for keyspace in &stats.keyspaces {
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
                "expiry": expiry_object(keyspace),
            });
            out.text(&object.to_string())?;
        } else {
            let (entries, tables) = (units::count(entries), units::count(total.tables));
            let (size, filter) = (units::bytes(total.bytes), describe::filter(options.filter_policy()));
            let ttl = ttl(ttl_of(keyspace).map_or("-".into(), window::length));
            let name = escape(keyspace.name.as_bytes());
            out.text(&row(&entries, &tables, &size, &filter, ttl, &name))?;
        }
    }
    out.finish()
}

fn row(entries: &str, tables: &str, size: &str, filter: &str, ttl: Option<String>, name: &str) -> String {
    let ttl = ttl.map_or(String::new(), |ttl| format!("{ttl:<6}  "));
    format!("{entries:>15}  {tables:>8}  {size:>10}  {filter:<24}  {ttl}{name}")
}

fn ttl_of(keyspace: &KeyspaceStats) -> Option<Duration> {
    keyspace.expiry.as_ref()?.ttl
}
