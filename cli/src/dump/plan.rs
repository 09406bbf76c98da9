//! `sievedb-dump filter plan`: the filters of a store, the best of the same size, and other sizes.
//!
//! Assumes that each absent lookup probes every run: an upper bound. Present filters count with predicted rates; the best are
//! ribbon filters planned by `sievedb::filter::allocation`.

use std::path::PathBuf;

use serde_json::{Value as Json, json};
use sievedb::filter::Kind;
use sievedb::filter::allocation::{Share, Total, allocate, uniform};
use sievedb::fs::StdFs;
use sievedb::inspect::tree::{KeyspaceShape, RunShape, Tree};

use super::opening::print_damage;
use crate::escape::escape;
use crate::failure::{Result, answered};
use crate::json::Format;
use crate::output::Output;
use crate::units::{bytes, count, counted, share};

const BUDGETS: [f64; 10] = [2.0, 4.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 20.0];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// Plan for this many bits per key [default: the bits per key of the present filters]
    #[arg(long, value_name = "BITS", value_parser = bits_per_key)]
    bits_per_key: Option<f64>,
    #[command(flatten)]
    format: Format,
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
    let printed = tree.keyspaces.iter().enumerate().try_for_each(|(index, keyspace)| {
        let plan = Plan::of(keyspace, args.bits_per_key)?;
        if args.format.json {
            return out.text(&plan.object().to_string());
        }
        if index > 0 {
            out.text("")?;
        }
        plan.print(&mut out)
    });
    answered(printed.and_then(|()| out.finish()), print_damage(&tree))
}

struct Plan<'k> {
    keyspace: &'k KeyspaceShape,
    keys: u64,
    filter_bytes: u64,
    now: f64,
    wasted: f64,
    budget: f64,
    total: Total,
    shares: Vec<Share>,
}

impl<'k> Plan<'k> {
    fn of(keyspace: &'k KeyspaceShape, wanted: Option<f64>) -> Result<Self> {
        let runs = &keyspace.runs;
        let keys = runs.iter().map(RunShape::keys).fold(0, u64::saturating_add);
        let filter_bytes = runs.iter().map(RunShape::filter_bytes).fold(0, u64::saturating_add);
        let now = 8.0 * filter_bytes as f64 / keys.max(1) as f64;
        let budget = wanted.unwrap_or(now);
        Ok(Self {
            keyspace,
            keys,
            filter_bytes,
            now,
            wasted: runs.iter().map(RunShape::rate).sum(),
            budget,
            total: Total::bits_per_key(budget).map_err(sievedb::Error::from)?,
            shares: runs.iter().map(|run| Share::new(Kind::Ribbon, run.keys(), 1.0)).collect(),
        })
    }

    fn object(&self) -> Json {
        if self.keys == 0 {
            return json!({ "keyspace": self.keyspace.name, "keys": 0, "runs": [] });
        }
        let best = allocate(&self.shares, self.total);
        let runs = self.keyspace.runs.iter().zip(&best.bits_per_key).zip(&best.rates);
        let runs = runs.map(|((run, bits), rate)| {
            json!({
                "level": run.level,
                "run": run.run,
                "keys": run.keys(),
                "bits_per_key": bits_per_key_of(run),
                "rate": run.rate(),
                "best_bits_per_key": bits,
                "best_rate": rate,
            })
        });
        let budgets = BUDGETS.iter().map(|&bits| {
            let (memory, best, even) = self.with_bits(bits);
            json!({
                "bits_per_key": bits,
                "bytes": memory,
                "best_wasted_reads": best,
                "even_wasted_reads": even,
            })
        });
        json!({
            "keyspace": self.keyspace.name,
            "keys": self.keys,
            "filter_bytes": self.filter_bytes,
            "bits_per_key": self.now,
            "wasted_reads": self.wasted,
            "planned_bits_per_key": self.budget,
            "best_wasted_reads": best.wasted_reads,
            "runs": runs.collect::<Json>(),
            "budgets": budgets.collect::<Json>(),
        })
    }

    /// Bytes of filters; wasted reads per absent lookup with the best and with an even allocation.
    fn with_bits(&self, bits: f64) -> (u64, f64, f64) {
        let memory = (bits * self.keys as f64 / 8.0) as u64;
        let total = Total::bytes(memory);
        (memory, allocate(&self.shares, total).wasted_reads, uniform(&self.shares, total).wasted_reads)
    }

    fn print(&self, out: &mut Output) -> Result<()> {
        let Self { keys, now, wasted, budget, .. } = *self;
        let runs = &self.keyspace.runs;
        let name = escape(self.keyspace.name.as_bytes());
        if keys == 0 {
            return out.text(&format!("keyspace \"{name}\": nothing in tables"));
        }
        out.text(&format!(
            "keyspace \"{name}\": {} in {}",
            counted(keys, "key", "keys"),
            counted(runs.len() as u64, "run", "runs")
        ))?;
        out.text(&format!(
            "filters {}, {now:.2} bits per key; {wasted:.5} wasted reads per absent lookup",
            bytes(self.filter_bytes)
        ))?;
        out.text("")?;
        let best = allocate(&self.shares, self.total);
        out.text(&format!("{:>43}  best with {budget:.2} bits per key", "now"))?;
        out.text("level    run          keys   bits      rate    bits      rate")?;
        for ((run, bits), rate) in runs.iter().zip(&best.bits_per_key).zip(&best.rates) {
            out.text(&format!(
                "{:>5} {:>6} {:>13} {:>6.2} {:>9} {bits:>7.2} {:>9}",
                run.level,
                run.run,
                count(run.keys()),
                bits_per_key_of(run),
                share(run.rate()),
                share(*rate)
            ))?;
        }
        out.text(&format!(
            "{:>25} {now:>6.2} {wasted:>9.5} {:>7.2} {:>9.5}",
            "wasted reads", budget, best.wasted_reads
        ))?;
        out.text("")?;
        out.text("Other sizes, with ribbon filters on every run:")?;
        out.text("")?;
        out.text("bits per key      memory   wasted reads per absent lookup")?;
        out.text("                              best     the same bits for every key")?;
        for bits in BUDGETS {
            let (memory, best, even) = self.with_bits(bits);
            out.text(&format!("{bits:>12.1}  {:>10}  {best:>9.6}   {even:>9.6}", bytes(memory)))?;
        }
        Ok(())
    }
}

fn bits_per_key_of(run: &RunShape) -> f64 {
    8.0 * run.filter_bytes() as f64 / run.keys().max(1) as f64
}
