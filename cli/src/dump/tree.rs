//! `sievedb-dump tree`: the shape of a store, drawn to fit the terminal or as JSON.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use sievedb::fs::StdFs;
use sievedb::inspect::tree::{KeyspaceShape, RunShape, TableShape, Tree};

use super::PROGRAM;
use super::draw::draw;
use super::opening::damaged;
use crate::failure::{Failure, Result, answered, warn};
use crate::json::put_bytes;
use crate::output::Output;

/// Columns where standard output is no terminal, and the fewest that are drawn on.
const COLUMNS: (usize, usize) = (80, 40);

/// Shows the shape of a store: levels, runs, tables, key ranges, sizes, filters.
///
/// Each run is drawn on a line, its tables where their keys are in the order of all keys; those above are newer, and are
/// asked first. Nothing is locked; of tables only the headers of their filters are read.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the store.
    dir: PathBuf,
    /// List all tables and logs, however many.
    #[arg(long)]
    all: bool,
    /// Print JSON, one object a table. Bytes that are no UTF-8 stand in base64 under NAME_base64; a table of which the
    /// manifest says nothing has null for keyspace, level and run.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let tree = Tree::read(&StdFs, &args.dir)?;
    let mut out = Output::new();
    let printed = if args.json {
        objects(&tree).try_for_each(|object| out.text(&object.to_string()))
    } else {
        draw(&tree, args.all, columns()).iter().try_for_each(|line| out.text(line))
    };
    answered(printed.and_then(|()| out.finish()), told(&tree))
}

/// Says what was damaged, and fails if something was.
pub(super) fn told(tree: &Tree) -> Result<()> {
    tree.damage.iter().for_each(|(path, damage)| warn(PROGRAM, &damaged(path, damage)));
    if tree.damage.is_empty() { Ok(()) } else { Err(Failure::Printed(3)) }
}

fn columns() -> usize {
    let width = terminal_size::terminal_size().filter(|_| stdout().is_terminal());
    width.map_or(COLUMNS.0, |(width, _)| usize::from(width.0)).max(COLUMNS.1)
}

fn objects(tree: &Tree) -> impl Iterator<Item = Json> {
    let placed = tree.keyspaces.iter().flat_map(|keyspace| {
        let runs = keyspace.runs.iter().flat_map(|run| run.tables.iter().map(move |table| (run, table)));
        runs.map(|(run, table)| object(Some((keyspace, run)), table))
    });
    placed.chain(tree.unplaced.iter().map(|table| object(None, table)))
}

fn object(place: Option<(&KeyspaceShape, &RunShape)>, table: &TableShape) -> Json {
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
    let mut object = json!({
        "keyspace": place.map(|place| &place.0.name),
        "level": place.map(|place| place.1.level),
        "run": place.map(|place| place.1.run),
        "table": table.number,
        "bytes": table.bytes,
        "entries": table.entries,
        "tombstones": table.tombstones,
        "keys": table.keys,
        "sequence_min": table.seqnos.0,
        "sequence_max": table.seqnos.1,
        "filters": filters,
    });
    if let Some(object) = object.as_object_mut() {
        put_bytes(object, "smallest", &table.smallest);
        put_bytes(object, "largest", &table.largest);
    }
    object
}
