//! `sievedb-dump tree`: the shape of a store, drawn to fit the terminal.
//!
//! Every run is a line on which its tables stand where their keys do: `[===]` goes from a table's smallest to its largest
//! key. The line is divided by the order of the bounds of all tables, not by their distance, so that what overlaps what
//! is seen however the keys are spread.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use sievedb::dump::escape;
use sievedb::dump::tree::{KeyspaceShape, RunShape, TableShape, Tree};
use sievedb::filter::Kind;
use sievedb::fs::StdFs;

use super::PROGRAM;
use super::filter::share;
use super::opening::damaged;
use crate::failure::{Failure, Result, warn};
use crate::json::put_bytes;
use crate::output::Output;
use crate::units::{bytes, count, counted};

/// Columns where standard output is no terminal, and the fewest that are drawn on.
const COLUMNS: (usize, usize) = (80, 40);

/// Tables of a keyspace that are listed without --all.
const TABLES_LISTED: usize = 40;

/// Shows the shape of a store: levels, runs, tables, key ranges, sizes, filters.
///
/// Each run is drawn on a line, its tables where their keys are in the order of all keys; those above are newer, and are
/// asked first. Nothing is locked; of tables only the headers of their filters are read.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the store.
    dir: PathBuf,
    /// List all tables, however many.
    #[arg(long)]
    all: bool,
    /// Print JSON, one object a table. Bytes that are no UTF-8 stand in base64 under NAME_base64.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let tree = Tree::read(&StdFs, &args.dir)?;
    let mut out = Output::new();
    if args.json {
        for keyspace in &tree.keyspaces {
            for run in &keyspace.runs {
                run.tables
                    .iter()
                    .try_for_each(|table| out.text(&object(keyspace, run, table).to_string()))?;
            }
        }
    } else {
        draw(&mut out, &tree, args.all, columns())?;
    }
    out.finish()?;
    told(&tree)
}

/// Says what was damaged, and fails if something was.
pub(super) fn told(tree: &Tree) -> Result<()> {
    tree.damage.iter().for_each(|(path, damage)| warn(PROGRAM, &damaged(path, damage)));
    if tree.damage.is_empty() { Ok(()) } else { Err(Failure::Told(3)) }
}

fn columns() -> usize {
    let width = terminal_size::terminal_size().filter(|_| stdout().is_terminal());
    width.map_or(COLUMNS.0, |(width, _)| usize::from(width.0)).max(COLUMNS.1)
}

fn draw(out: &mut Output, tree: &Tree, all: bool, columns: usize) -> Result<()> {
    let name = tree.manifest.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let logs: Vec<String> = tree
        .logs
        .iter()
        .map(|(number, len)| format!("{number:06}.wal {}", len.map_or("missing".into(), bytes)))
        .collect();
    let logs = if logs.is_empty() { "none".into() } else { logs.join(", ") };
    out.text(&format!("manifest   {name}"))?;
    out.text(&format!("logs       {logs}"))?;
    for keyspace in &tree.keyspaces {
        out.text("")?;
        draw_keyspace(out, keyspace, all, columns)?;
    }
    Ok(())
}

fn draw_keyspace(out: &mut Output, keyspace: &KeyspaceShape, all: bool, columns: usize) -> Result<()> {
    let runs = &keyspace.runs;
    out.text(&format!("keyspace   {}", escape(keyspace.name.as_bytes())))?;
    if runs.is_empty() {
        return out.text("           nothing in tables");
    }
    let tables: Vec<&TableShape> = runs.iter().flat_map(|run| &run.tables).collect();
    let scale = Scale::of(&tables, columns);
    for run in runs {
        out.text("")?;
        run_lines(run, columns).iter().try_for_each(|line| out.text(line))?;
        out.text(&scale.line(&run.tables))?;
    }
    out.text("")?;
    list(out, runs, if all { usize::MAX } else { TABLES_LISTED }, columns)
}

/// A run in a line, or in two where one is too long.
fn run_lines(run: &RunShape, columns: usize) -> Vec<String> {
    let name =
        if run.level == 0 { format!("level 0, run {}", run.run) } else { format!("level {}", run.level) };
    let filter = match run.filter_bytes() {
        0 => "no filters".to_owned(),
        size => {
            let bits = 8.0 * size as f64 / run.keys().max(1) as f64;
            format!("filters {bits:.1} bits per key, rate {}", share(run.rate()))
        }
    };
    let (tables, keys) = (counted(run.tables.len() as u64, "table", "tables"), count(run.keys()));
    let size = format!("{name}: {tables}, {keys} keys, {}", bytes(run.bytes()));
    match format!("{size}; {filter}") {
        line if line.len() <= columns => vec![line],
        _ => vec![size, format!("  {filter}")],
    }
}

/// Where keys stand on a line.
struct Scale<'t> {
    /// The bounds of all tables, in order.
    bounds: Vec<&'t [u8]>,
    width: usize,
}

impl<'t> Scale<'t> {
    fn of(tables: &[&'t TableShape], width: usize) -> Self {
        let mut bounds: Vec<&[u8]> =
            tables.iter().flat_map(|table| [&table.smallest[..], &table.largest]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self { bounds, width }
    }

    fn column(&self, key: &[u8]) -> usize {
        let place = self.bounds.partition_point(|bound| *bound < key);
        place * (self.width - 1) / (self.bounds.len() - 1).max(1)
    }

    fn line(&self, tables: &[TableShape]) -> String {
        let mut line = vec![b' '; self.width];
        for table in tables {
            let (from, to) = (self.column(&table.smallest), self.column(&table.largest));
            // Where several tables share a column there is no room to tell them apart.
            if from == to || line[from] != b' ' {
                line[from..=to].fill(b'|');
                continue;
            }
            line[from..=to].fill(b'=');
            (line[from], line[to]) = (b'[', b']');
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }
}

fn list(out: &mut Output, runs: &[RunShape], most: usize, columns: usize) -> Result<()> {
    out.text("level   table        keys        size  filter")?;
    let tables = runs.iter().flat_map(|run| run.tables.iter().map(move |table| (run, table)));
    let total: usize = runs.iter().map(|run| run.tables.len()).sum();
    for (run, table) in tables.take(most) {
        let (level, number) = (run.level, table.number);
        let size = format!("{level:>5}  {number:06} {:>11}  {:>10}", count(table.keys), bytes(table.bytes));
        match format!("{size}  {}", filter_words(table)) {
            line if line.len() <= columns => out.text(&line)?,
            _ => {
                out.text(&size)?;
                out.text(&format!("              {}", filter_words(table)))?;
            }
        }
        let room = columns.saturating_sub(18) / 2;
        out.text(&format!("              {} to {}", fit(&table.smallest, room), fit(&table.largest, room)))?;
    }
    match total.saturating_sub(most) {
        0 => Ok(()),
        more => out
            .text(&format!("       and {} more; --all lists them", counted(more as u64, "table", "tables"))),
    }
}

fn filter_words(table: &TableShape) -> String {
    let words = |filter: &sievedb::dump::tree::FilterShape| {
        let beside = filter.file.map_or(String::new(), |number| format!(" in {number:06}.filter"));
        match filter.found {
            Some((kind, rate)) => {
                let bits = 8.0 * filter.bytes as f64 / table.keys.max(1) as f64;
                format!("{}{beside}, {bits:.1} bits/key, {}", kind_name(kind), share(rate))
            }
            None => format!("cannot be used{beside}"),
        }
    };
    if table.filters.is_empty() {
        "none".into()
    } else {
        table.filters.iter().map(words).collect::<Vec<_>>().join("; ")
    }
}

fn kind_name(kind: Kind) -> String {
    match kind {
        Kind::Bloom => "Bloom".into(),
        Kind::BlockedBloom => "blocked Bloom".into(),
        Kind::Ribbon => "ribbon".into(),
        other => format!("{other:?}"),
    }
}

/// A key in at most `room` columns: its beginning and its end, if it is too long.
fn fit(key: &[u8], room: usize) -> String {
    let text = escape(key);
    if text.len() <= room {
        return text;
    }
    let half = room.saturating_sub(2) / 2;
    format!("{}..{}", &text[..half], &text[text.len() - half..])
}

fn object(keyspace: &KeyspaceShape, run: &RunShape, table: &TableShape) -> Json {
    let filters: Vec<Json> = table
        .filters
        .iter()
        .map(|filter| {
            let (kind, rate) = filter
                .found
                .map_or((Json::Null, Json::Null), |(kind, rate)| (kind_name(kind).into(), rate.into()));
            json!({"file": filter.file, "bytes": filter.bytes, "kind": kind, "rate": rate})
        })
        .collect();
    let mut object = json!({
        "keyspace": keyspace.name,
        "level": run.level,
        "run": run.run,
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
