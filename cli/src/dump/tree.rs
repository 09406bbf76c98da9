use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sievedb::fs::StdFs;
use sievedb::inspect::tree::{KeyspaceShape, RunShape, TableShape, Tree};

use super::draw::draw;
use super::opening::print_damage;
use crate::failure::{Result, answered};
use crate::json::put_bytes;
use crate::output::Output;

/// The width without a terminal, and the minimum width.
const COLUMNS: (usize, usize) = (80, 40);

/// Shows the shape of a store: levels, runs, tables, key ranges, sizes, filters.
///
/// Each run is a line with its tables at the positions of their keys; newer runs are above. Takes no lock; reads only the filter
/// headers of tables. Without CURRENT and manifest, lists the tables with their own data.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the store.
    dir: PathBuf,
    /// List all tables and logs.
    #[arg(long)]
    all: bool,
    /// Print JSON, one object a table. Bytes that are not UTF-8 are base64 under NAME_base64. Without a manifest, level and run
    /// are null, and the keyspace is the table's.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    show(&args.dir, args.all, args.json)
}

pub(super) fn show(dir: &Path, all: bool, json: bool) -> Result<()> {
    let tree = Tree::read(&StdFs, dir)?;
    let mut out = Output::new();
    let printed = if json {
        objects(&tree).try_for_each(|object| out.text(&object.to_string()))
    } else {
        draw(&tree, all, columns()).iter().try_for_each(|line| out.text(line))
    };
    answered(printed.and_then(|()| out.finish()), print_damage(&tree))
}

fn columns() -> usize {
    let width = terminal_size::terminal_size().filter(|_| stdout().is_terminal());
    width.map_or(COLUMNS.0, |(width, _)| usize::from(width.0)).max(COLUMNS.1)
}

fn objects(tree: &Tree) -> impl Iterator<Item = Json> {
    let owned = tree.keyspaces.iter().flat_map(|keyspace| {
        let runs = keyspace.runs.iter().flat_map(|run| run.tables.iter().map(move |table| (run, table)));
        runs.map(|(run, table)| object(Some((keyspace, run)), table))
    });
    owned.chain(tree.unplaced.iter().map(|table| object(None, table)))
}

fn object(owner: Option<(&KeyspaceShape, &RunShape)>, table: &TableShape) -> Json {
    let filters: Vec<Json> = table
        .filters
        .iter()
        .map(|filter| {
            let (kind, rate) = filter
                .found
                .map_or((Json::Null, Json::Null), |(kind, rate)| (kind.to_string().into(), rate.into()));
            json!({"file": filter.file, "bytes": filter.bytes, "kind": kind, "rate": rate})
        })
        .collect();
    let origin = table.origin.as_ref();
    let mut object = json!({
        "keyspace": owner.map(|(keyspace, _)| &keyspace.name).or(origin.map(|origin| &origin.name)),
        "level": owner.map(|(_, run)| run.level),
        "run": owner.map(|(_, run)| run.run),
        "table": table.number,
        "bytes": table.bytes,
        "entries": table.entries,
        "tombstones": table.tombstones,
        "spans": table.spans,
        "keys": table.keys,
        "sequence_min": table.seqnos.0,
        "sequence_max": table.seqnos.1,
        "filters": filters,
        "replaced": origin.map(|origin| &origin.replaced),
    });
    if let Some((keyspace, run)) = owner
        && let (Some(expiry), Some(bucket)) = (&keyspace.expiry, run.bucket)
    {
        object["bucket_begins_ms"] = bucket.begins.into();
        object["bucket_ends_ms"] = bucket.ends.into();
        object["bucket_expires_ms"] = bucket.expires.into();
        object["horizon"] = expiry.horizon.into();
        object["next_expiry_ms"] = expiry.next_expiry.into();
    }
    if let Some(object) = object.as_object_mut() {
        put_bytes(object, "smallest", &table.smallest);
        put_bytes(object, "largest", &table.largest);
    }
    object
}
