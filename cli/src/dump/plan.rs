//! `sievedb-dump filter plan`: what the filters of a store are, what would be best, what another budget would buy.
//!
//! A run is asked by every absent lookup, as if all runs went over all keys: the most that can be wasted. What there is
//! is measured by the predicted rates in the filters' headers; what could be is computed by the planner of the store
//! (`sievedb::filter::allocation`) for ribbon filters on every run.

use std::path::PathBuf;

use sievedb::dump::escape;
use sievedb::dump::tree::{KeyspaceShape, RunShape, Tree};
use sievedb::filter::Kind;
use sievedb::filter::allocation::{Share, Total, allocate, uniform};
use sievedb::fs::StdFs;

use super::filter::share;
use super::tree::told;
use crate::failure::Result;
use crate::output::Output;
use crate::units::{bytes, count, counted};

/// Bits per key of the table of budgets.
const BUDGETS: [f64; 10] = [2.0, 4.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// Plan for so many bits per key; what the filters have now if not given.
    #[arg(long, value_name = "BITS", value_parser = bits_per_key)]
    bits_per_key: Option<f64>,
}

fn bits_per_key(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(bits) if bits > 0.0 && bits <= 64.0 => Ok(bits),
        _ => Err("a number over 0 and up to 64".into()),
    }
}

pub(super) fn run(args: &Args) -> Result<()> {
    let tree = Tree::read(&StdFs, &args.db)?;
    let mut out = Output::new();
    for (index, keyspace) in tree.keyspaces.iter().enumerate() {
        if index > 0 {
            out.text("")?;
        }
        plan(&mut out, keyspace, args.bits_per_key)?;
    }
    out.finish()?;
    told(&tree)
}

fn plan(out: &mut Output, keyspace: &KeyspaceShape, wanted: Option<f64>) -> Result<()> {
    let runs = &keyspace.runs;
    let name = escape(keyspace.name.as_bytes());
    let keys: u64 = runs.iter().map(RunShape::keys).sum();
    if keys == 0 {
        return out.text(&format!("keyspace \"{name}\": nothing in tables"));
    }
    let filters: u64 = runs.iter().map(RunShape::filter_bytes).sum();
    let now = 8.0 * filters as f64 / keys as f64;
    let wasted: f64 = runs.iter().map(RunShape::rate).sum();
    let budget = wanted.unwrap_or(now);
    out.text(&format!(
        "keyspace \"{name}\": {} in {}",
        counted(keys, "key", "keys"),
        counted(runs.len() as u64, "run", "runs")
    ))?;
    out.text(&format!(
        "filters {}, {now:.2} bits per key; {wasted:.5} wasted reads per absent lookup",
        bytes(filters)
    ))?;
    out.text("")?;
    let shares: Vec<Share> = runs.iter().map(|run| Share::new(Kind::Ribbon, run.keys(), 1.0)).collect();
    let best = allocate(&shares, Total::BitsPerKey(budget));
    out.text(&format!("{:>43}  best with {budget:.2} bits per key", "now"))?;
    out.text("level    run          keys   bits      rate    bits      rate")?;
    for ((run, bits), rate) in runs.iter().zip(&best.bits_per_key).zip(&best.rates) {
        let has = 8.0 * run.filter_bytes() as f64 / run.keys().max(1) as f64;
        out.text(&format!(
            "{:>5} {:>6} {:>13} {has:>6.2} {:>9} {bits:>7.2} {:>9}",
            run.level,
            run.run,
            count(run.keys()),
            share(run.rate()),
            share(*rate)
        ))?;
    }
    out.text(&format!(
        "{:>25} {now:>6.2} {wasted:>9.5} {:>7.2} {:>9.5}",
        "wasted reads", budget, best.wasted_reads
    ))?;
    out.text("")?;
    out.text("What other budgets would buy, with ribbon filters on every run:")?;
    out.text("")?;
    out.text("bits per key      memory   wasted reads per absent lookup")?;
    out.text("                              best     the same bits for every key")?;
    for bits in BUDGETS {
        let total = Total::BitsPerKey(bits);
        let memory = bytes((bits * keys as f64 / 8.0) as u64);
        let (best, even) = (allocate(&shares, total).wasted_reads, uniform(&shares, total).wasted_reads);
        out.text(&format!("{bits:>12.1}  {memory:>10}  {best:>9.6}   {even:>9.6}"))?;
    }
    Ok(())
}
