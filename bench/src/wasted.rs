//! Wasted reads: data blocks read for absent keys in a tree of five levels, by filter policy.
//!
//! The tree is made through the public interface. With tables of 64 KiB and a ratio of 10, thirty megabytes
//! have the shape that thirty thousand have with the default sizes.

use std::path::PathBuf;

use sievedb::{FilterAllocation, FilterKind, FilterPolicy, KeyspaceOptions, Stats};

use crate::report::{Report, Table, count};
use crate::store::{self, Level};
use crate::{Result, machine};

/// Keys that fill four levels below level 0.
pub(crate) const KEYS: u64 = 700_000;

/// Absent keys looked up.
const LOOKUPS: u64 = 500_000;

const VALUE_BYTES: usize = 32;

/// Keys of the last writes, until level 0 has one run.
const LAST_KEYS: u64 = 200;

const BITS_PER_KEY: f64 = 10.0;

/// Counts the wasted reads of absent lookups in a tree of five levels.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys in the tree.
    #[arg(long, default_value_t = KEYS)]
    keys: u64,
    /// Writes the tables to this file as well.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// A policy and its result.
pub(crate) struct Outcome {
    name: &'static str,
    levels: Vec<Level>,
    /// Data blocks per absent lookup.
    wasted: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::new("Wasted reads: measured", "cargo run --release -p sievedb-bench -- wasted");
    report.text(&machine::describe());
    describe(&measure(args.keys)?, &mut report);
    report.write(args.write.as_deref())
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

/// Loads the same keys under each policy and looks up the same absent ones.
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

/// Data blocks per absent lookup with uniform Bloom, with the default, and at best.
pub(crate) fn summary(outcomes: &[Outcome]) -> [f64; 3] {
    [0, 2, 4].map(|index| outcomes.get(index).map_or(f64::NAN, |outcome: &Outcome| outcome.wasted))
}

/// The part of a report on it.
pub(crate) fn describe(outcomes: &[Outcome], report: &mut Report) {
    report.heading("Wasted reads of data blocks");
    report.text(&format!(
        "Per absent lookup, of {} random absent keys, cache hits counted too; {BITS_PER_KEY} bits per key on the \
         whole; tables of 64 KiB, ratio 10.",
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
}
