//! Wasted reads: data blocks read for absent keys.
//!
//! 1. Stores of several sizes with default options, after loading and after settling, and the best filters of the same
//!    size (`sievedb-dump filter plan`).
//! 2. A tree of five levels for each filter policy: 30 MB with tables of 64 KiB and a ratio of 10. A tree of 30 GB with
//!    default sizes has the same shape.

use std::path::{Path, PathBuf};

use sievedb::filter::Kind;
use sievedb::filter::allocation::{Share, Total, allocate};
use sievedb::fs::StdFs;
use sievedb::inspect::tree::{RunShape, Tree};
use sievedb::{Db, FilterAllocation, FilterKind, FilterPolicy, KeyspaceOptions, Options, Stats, WriteBatch};

use crate::report::{Report, Table, count};
use crate::store::{self, Level};
use crate::{Result, machine};

pub(crate) const KEYS: u64 = 700_000;

const LOOKUPS: u64 = 500_000;

const VALUE_BYTES: usize = 32;

const LAST_KEYS: u64 = 200;

const BITS_PER_KEY: f64 = 10.0;

const DEFAULT_VALUE_BYTES: usize = 100;

const KEYS_PER_STEP: u64 = 40_000;

/// Counts the wasted reads of absent lookups, with default options and in a tree of five levels.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys in the stores with default options.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 1_000_000, 10_000_000])]
    default_keys: Vec<u64>,
    /// Keys in the tree of five levels.
    #[arg(long, default_value_t = KEYS)]
    keys: u64,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

pub(crate) struct Outcome {
    name: &'static str,
    levels: Vec<Level>,
    wasted: f64,
}

const OPENING: &str = "A wasted read is a data block that is read for an absent key, after a false positive of a filter. A shorter bar is \
     better. The policies differ in the kind of filter and in the distribution of bits over the levels.";

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::new(
        "Wasted reads: measurements",
        "cargo run --release -p sievedb-bench -- wasted --write docs/benchmarks/wasted.md",
    );
    report.text(&machine::describe());
    describe_defaults(&args.default_keys, &mut report)?;
    let by_policy = describe(&measure(args.keys)?, &mut report);
    report.open_with(OPENING, "data blocks per absent lookup, 10 bits per key", &by_policy, 1, 4);
    report.write(args.write.as_deref())
}

struct State {
    name: &'static str,
    runs: usize,
    bits_per_key: f64,
    wasted: f64,
    /// Data blocks read per absent lookup, predicted for the best filters of this size.
    best: f64,
}

fn default_states(keys: u64) -> Result<Vec<State>> {
    let dir = tempfile::tempdir()?;
    let db = Options::new().background_threads(0).open(dir.path())?;
    let mut value = [0; DEFAULT_VALUE_BYTES];
    let mut batch = WriteBatch::new();
    for index in 0..keys {
        store::fill_value(index, &mut value);
        batch.put(store::key(index), value);
        if (index + 1).is_multiple_of(1000) || index + 1 == keys {
            db.write(std::mem::take(&mut batch))?;
        }
        if (index + 1).is_multiple_of(KEYS_PER_STEP) {
            db.step()?;
        }
    }
    db.flush()?;
    let mut states = vec![state("as loaded, compactions behind", &db, dir.path())?];
    db.settle()?;
    while db.step()? {}
    states.push(state("settled", &db, dir.path())?);
    db.compact()?;
    states.push(state("compacted into one run", &db, dir.path())?);
    db.close()?;
    Ok(states)
}

fn state(name: &'static str, db: &Db, dir: &Path) -> Result<State> {
    db.open_tables()?;
    let before = store::data_blocks(&db.stats());
    for index in 0..LOOKUPS {
        if db.contains(store::absent_key(index))? {
            return Err("an absent key was found".into());
        }
    }
    let blocks = store::data_blocks(&db.stats()) - before;
    let tree = Tree::read(&StdFs, dir)?;
    let runs: Vec<&RunShape> = tree.keyspaces.iter().flat_map(|keyspace| &keyspace.runs).collect();
    let shares: Vec<Share> = runs.iter().map(|run| Share::new(Kind::Ribbon, run.keys(), 1.0)).collect();
    let bytes = runs.iter().map(|run| run.filter_bytes()).sum();
    let keys: u64 = runs.iter().map(|run| run.keys()).sum();
    Ok(State {
        name,
        runs: runs.len(),
        bits_per_key: 8.0 * bytes as f64 / keys as f64,
        wasted: blocks as f64 / LOOKUPS as f64,
        best: allocate(&shares, Total::bytes(bytes)).wasted_reads,
    })
}

fn describe_defaults(sizes: &[u64], report: &mut Report) -> Result<()> {
    report.heading("Default options");
    report.text(&format!(
        "Data blocks per absent lookup, for {} random absent keys, including cache hits. Keys in random \
         order, values of {DEFAULT_VALUE_BYTES} bytes. *As loaded*: one step of background work per {} \
         keys, then a flush. *The best*: ribbon filters of the same size on every run, as computed by \
         `sievedb-dump filter plan`.",
        count(LOOKUPS),
        count(KEYS_PER_STEP)
    ));
    let mut table = Table::new([
        "keys",
        "state",
        "runs",
        "filter bits/key",
        "data blocks per absent lookup",
        "best",
        "÷ best",
    ]);
    for &keys in sizes {
        eprintln!("{keys} keys with default options …");
        for state in default_states(keys)? {
            table.row([
                count(keys),
                state.name.into(),
                state.runs.to_string(),
                format!("{:.2}", state.bits_per_key),
                format!("{:.5}", state.wasted),
                format!("{:.5}", state.best),
                format!("{:.2}", state.wasted / state.best),
            ]);
        }
    }
    report.table(&table);
    Ok(())
}

fn policies() -> [(&'static str, FilterPolicy); 5] {
    let of = |kind, allocation| FilterPolicy::new(kind).bits_per_key(BITS_PER_KEY).allocation(allocation);
    [
        ("Bloom, uniform", of(FilterKind::Bloom, FilterAllocation::Uniform)),
        ("Auto, uniform", of(FilterKind::Auto, FilterAllocation::Uniform)),
        ("Auto, optimal (the default)", of(FilterKind::Auto, FilterAllocation::Optimal)),
        ("Ribbon, uniform", of(FilterKind::Ribbon, FilterAllocation::Uniform)),
        ("Ribbon, optimal", of(FilterKind::Ribbon, FilterAllocation::Optimal)),
    ]
}

pub(crate) fn measure(keys: u64) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (name, policy) in policies() {
        eprintln!("a tree with {name} …");
        outcomes.push(one(name, policy, keys)?);
    }
    Ok(outcomes)
}

fn one(name: &'static str, policy: FilterPolicy, keys: u64) -> Result<Outcome> {
    let dir = tempfile::tempdir()?;
    let db = store::open_stepwise(dir.path())?;
    let options = KeyspaceOptions::new()
        .filter(policy)
        .memtable_bytes(32 << 10)
        .table_bytes(64 << 10)
        .level_base_bytes(32 << 10)
        .level_ratio(10);
    let keyspace = db.keyspace("tree", options)?;
    store::load(&db, &keyspace, 0..keys, VALUE_BYTES)?;
    let runs = |stats: &Stats| stats.keyspace("tree").map_or(0, |tree| tree.levels[0].runs);
    let mut more = keys;
    while runs(&db.stats()) != 1 {
        store::load(&db, &keyspace, more..more + LAST_KEYS, VALUE_BYTES)?;
        more += LAST_KEYS;
    }
    let before = db.stats();
    for index in 0..LOOKUPS {
        if keyspace.contains(store::absent_key(index))? {
            return Err("an absent key was found".into());
        }
    }
    let after = db.stats();
    let levels = store::levels(&before, &after, keyspace.name());
    let blocks = store::data_blocks(&after) - store::data_blocks(&before);
    db.close()?;
    Ok(Outcome { name, levels, wasted: blocks as f64 / LOOKUPS as f64 })
}

pub(crate) fn summary(outcomes: &[Outcome]) -> [f64; 3] {
    [0, 2, 4].map(|index| outcomes.get(index).map_or(f64::NAN, |outcome: &Outcome| outcome.wasted))
}

pub(crate) fn describe(outcomes: &[Outcome], report: &mut Report) -> Table {
    report.heading("Wasted reads of data blocks");
    report.text(&format!(
        "Per absent lookup, for {} random absent keys, including cache hits; {BITS_PER_KEY} bits per key in \
         total; tables of 64 KiB, ratio 10.",
        count(LOOKUPS)
    ));
    let mut table =
        Table::new(["policy", "levels", "runs", "filter bits/key", "data blocks per absent lookup"]);
    for outcome in outcomes {
        let sum = |part: fn(&Level) -> u64| outcome.levels.iter().map(part).sum::<u64>();
        let bits = sum(|level| level.stats.filter_bytes * 8) as f64;
        table.row([
            outcome.name.into(),
            outcome.levels.len().to_string(),
            sum(|level| level.stats.runs).to_string(),
            format!("{:.2}", bits / sum(|level| level.stats.filter_keys) as f64),
            format!("{:.5}", outcome.wasted),
        ]);
    }
    report.table(&table);
    for outcome in outcomes {
        report.text(&format!("{}:", outcome.name));
        report.table(&store::level_table(&outcome.levels));
    }
    table
}
