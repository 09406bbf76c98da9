use std::time::Duration;

use serde_json::{Value, json};
use sievedb::{Db, DroppedTail, ExpiryStats, KeyspaceOptions, KeyspaceStats, LevelStats, OpenReport};

use super::watch;
use crate::escape::{escape, hex, printable};
use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::Store;
use crate::{describe, store, units, window};

/// Prints the size and shape of a store.
///
/// For each keyspace: its options, entries in memtables and in tables, and for each level its sorted runs, tables, keys, sizes,
/// and predicted false-positive rate. If entries expire: the buckets of time, and when each expires. Works next to a writer, and
/// then prints the shown moment on standard error. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb stats my.db
  sievedb stats my.db --watch 1                 also while another program writes
  sievedb stats my.db --json | jq '.keyspaces[].total.keys'")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Only this keyspace [default: all]
    #[arg(long, value_name = "NAME", value_parser = store::keyspace_name)]
    keyspace: Option<String>,
    /// Draw the entries, the writes a second, and the size of the tables, filters and logs every so many seconds, until
    /// interrupted. Files do not show the reads of another program: `Db::stats` and the crate sievedb-metrics count them there.
    #[arg(long, value_name = "SECONDS", value_parser = watch::seconds, conflicts_with = "json")]
    watch: Option<Duration>,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(interval) = args.watch {
        return watch::run(&args.store, args.keyspace.as_deref(), interval);
    }
    let db = args.store.for_reading()?;
    let keyspace = args.keyspace.as_deref();
    keyspace.map(|name| store::existing_keyspace(&db, name)).transpose()?;
    // A table that cannot be opened is printed from the manifest; its error is returned at the end.
    let opened = db.open_tables();
    let mut out = Output::new();
    let stats = db.stats();
    let keyspaces = stats.keyspaces.iter().filter(|stats| keyspace.is_none_or(|name| stats.name == name));
    if args.format.json {
        let mut store = store_object(&db)?;
        let object = |stats: &KeyspaceStats| -> Result<Value> {
            let mut object = keyspace_object(stats);
            object["options"] = describe::to_json(&options(&db, stats)?);
            Ok(object)
        };
        store["keyspaces"] = keyspaces.map(object).collect::<Result<Value>>()?;
        out.text(&store.to_string())?;
    } else {
        print_store(&db, &mut out)?;
        for stats in keyspaces {
            print_keyspace(stats, &options(&db, stats)?, &mut out)?;
        }
    }
    out.finish()?;
    Ok(opened?)
}

fn print_store(db: &Db, out: &mut Output) -> Result<()> {
    out.text(&format!("store      {}", printable(&db.path().display().to_string())))?;
    store_id(db).map_or(Ok(()), |id| out.text(&format!("id         {id}")))?;
    out.text(&format!("on disk    {}", units::bytes(store::disk_bytes(db.path())?)))?;
    let OpenReport { logs, batches, entries, dropped, ignored, .. } = db.open_report();
    out.text(&format!(
        "logs       {}, {} read, {} not yet in tables",
        units::counted(*logs, "log", "logs"),
        units::counted(*batches, "batch", "batches"),
        units::counted(*entries, "entry", "entries")
    ))?;
    for tail in dropped {
        let bytes = units::counted(tail.bytes, "byte", "bytes");
        out.text(&format!(
            "torn       {} from offset {}: {bytes}",
            printable(&tail.file.display().to_string()),
            tail.offset
        ))?;
    }
    for file in ignored {
        out.text(&format!("ignored    {}: {}", escape(file.name.as_bytes()), file.why))?;
    }
    Ok(())
}

/// `None` if a file is damaged, or was removed meanwhile.
fn store_id(db: &Db) -> Option<String> {
    db.live_files().ok().map(|live| hex(&live.store_id()))
}

fn options(db: &Db, stats: &KeyspaceStats) -> Result<KeyspaceOptions> {
    Ok(store::existing_keyspace(db, &stats.name)?.options())
}

fn print_keyspace(stats: &KeyspaceStats, options: &KeyspaceOptions, out: &mut Output) -> Result<()> {
    let total = stats.total();
    out.text("")?;
    out.text(&format!("keyspace   {}", escape(stats.name.as_bytes())))?;
    out.text(&format!("filters    {}", describe::policy(options.filter_policy())))?;
    out.text(&format!("options    {}", describe::options(options)))?;
    if stats.memtable_entries > 0 {
        out.text(&format!(
            "in memory  {}, {}",
            units::counted(stats.memtable_entries, "entry", "entries"),
            units::bytes(stats.memtable_bytes)
        ))?;
    }
    if total.tables == 0 {
        return out.text("in tables  nothing");
    }
    out.text(&format!(
        "in tables  {} ({}), {} of keys and values in {}",
        units::counted(total.entries, "entry", "entries"),
        units::counted(total.tombstones, "tombstone", "tombstones"),
        units::bytes(total.data_bytes),
        units::bytes(total.bytes)
    ))?;
    out.text("")?;
    out.text("  level   runs  tables          keys        size     filters  bits/key    rate")?;
    for (level, stats) in stats.levels.iter().enumerate().filter(|(_, level)| level.tables > 0) {
        out.text(&row(&level.to_string(), stats))?;
    }
    out.text(&row("all", &total))?;
    if total.loaded_filter_column_groups < total.filter_column_groups {
        let (loaded, all) =
            (units::count(total.loaded_filter_column_groups), units::count(total.filter_column_groups));
        let bytes = units::bytes(total.filter_memory_bytes);
        out.text(&format!("  of the filters, {loaded} of {all} column groups are in memory, {bytes}"))?;
    }
    stats.expiry.as_ref().map_or(Ok(()), |expiry| print_buckets(expiry, out))
}

fn print_buckets(expiry: &ExpiryStats, out: &mut Output) -> Result<()> {
    let moment = |millis| window::moment(millis, expiry.time_source);
    out.text("")?;
    out.text(&format!("  {}", horizon(expiry)))?;
    out.text("  bucket from           to                    expires                 runs  tables        entries        size")?;
    for bucket in &expiry.buckets {
        let held = if bucket.is_hidden { "  expired, held by a snapshot" } else { "" };
        out.text(&format!(
            "  {:<20}  {:<20}  {:<20}  {:>6}  {:>6}  {:>13}  {:>10}{held}",
            moment(bucket.begins),
            moment(bucket.ends),
            moment(bucket.expires),
            bucket.runs,
            bucket.tables,
            units::count(bucket.entries),
            units::bytes(bucket.bytes)
        ))?;
    }
    Ok(())
}

/// The sequence number below which entries are hidden, and the time of the next expiry.
fn horizon(expiry: &ExpiryStats) -> String {
    let (horizon, next) =
        (units::count(expiry.horizon), window::moment(expiry.next_expiry, expiry.time_source));
    format!("hidden below sequence number {horizon}; next expiry {next}")
}

/// The number of buckets, and [`horizon`], for reports of all keyspaces.
pub(super) fn expiry_in_short(expiry: &ExpiryStats) -> String {
    let buckets = units::counted(expiry.buckets.len() as u64, "bucket", "buckets");
    format!("{buckets} of time in tables, {}", horizon(expiry))
}

/// Null if the entries do not expire.
pub(super) fn expiry_object(stats: &KeyspaceStats) -> Value {
    serde_json::to_value(&stats.expiry).unwrap_or_default()
}

fn row(name: &str, level: &LevelStats) -> String {
    format!(
        "  {name:<5} {:>6}  {:>6}  {:>12}  {:>10}  {:>10}  {:>10}  {}",
        level.runs,
        level.tables,
        units::count(level.keys),
        units::bytes(level.bytes),
        units::bytes(level.filter_bytes),
        level.filter_bits_per_key().map_or_else(|| "none".into(), |bits| format!("{bits:.2}")),
        level.predicted_rate.map_or_else(String::new, units::share)
    )
}

fn store_object(db: &Db) -> Result<Value> {
    let OpenReport { logs, batches, entries, dropped, ignored, .. } = db.open_report();
    let torn = |tail: &DroppedTail| {
        json!({
            "file": tail.file.to_string_lossy(), "offset": tail.offset, "bytes": tail.bytes,
            "reason": tail.reason,
        })
    };
    Ok(json!({
        "store": db.path().to_string_lossy(),
        "store_id": store_id(db),
        "disk_bytes": store::disk_bytes(db.path())?,
        "as_of": store::as_of_object(db.open_report().as_of),
        "logs": { "files": logs, "batches": batches, "entries_not_in_tables": entries },
        "torn": dropped.iter().map(torn).collect::<Value>(),
        "ignored": ignored.iter().map(|file| json!({ "file": file.name, "why": file.why })).collect::<Value>(),
    }))
}

fn keyspace_object(stats: &KeyspaceStats) -> Value {
    let levels =
        stats.levels.iter().enumerate().filter(|(_, level)| level.tables > 0).map(|(level, stats)| {
            let mut object = level_object(stats);
            object["level"] = level.into();
            object
        });
    json!({
        "keyspace": stats.name,
        "memtable_entries": stats.memtable_entries,
        "memtable_bytes": stats.memtable_bytes,
        "levels": levels.collect::<Value>(),
        "total": level_object(&stats.total()),
        "expiry": expiry_object(stats),
    })
}

fn level_object(level: &LevelStats) -> Value {
    json!({
        "runs": level.runs,
        "tables": level.tables,
        "bytes": level.bytes,
        "entries": level.entries,
        "tombstones": level.tombstones,
        "keys": level.keys,
        "data_bytes": level.data_bytes,
        "filter_bytes": level.filter_bytes,
        "filter_bits_per_key": level.filter_bits_per_key(),
        "filter_column_groups": level.filter_column_groups,
        "loaded_filter_column_groups": level.loaded_filter_column_groups,
        "filter_memory_bytes": level.filter_memory_bytes,
        "unusable_filters": level.unusable_filters,
        "unbuilt_filters": level.unbuilt_filters,
        "paged_filters": level.paged_filters,
        "predicted_rate": level.predicted_rate,
    })
}
