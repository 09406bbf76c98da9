use std::time::Instant;

use clap::ValueEnum;
use serde_json::json;
use sievedb::{Db, FilterAllocation, FilterKind, FilterPolicy, LevelStats};

use crate::failure::{Failure, Result};
use crate::json::Format;
use crate::output::Output;
use crate::store::Store;
use crate::{progress, store, units};

/// Gives existing tables new filters.
///
/// Without options, the filters of a new store. The keyspace keeps the policy for later tables. Tables are not rewritten; each
/// new filter is a separate file. After an interrupt every filter is valid; run the command again to continue.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb refilter my.db
  sievedb refilter my.db --keyspace users --kind ribbon --bits-per-key 12
  sievedb refilter my.db --false-positive-rate 0.001")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Only this keyspace [default: all]
    #[arg(long, value_name = "NAME", value_parser = store::keyspace_name)]
    keyspace: Option<String>,
    /// The kind of filter.
    #[arg(long, value_enum, default_value_t = Kind::Auto)]
    kind: Kind,
    /// Bits per key, fractions included [default: 10, without a rate]
    #[arg(long, value_name = "BITS", conflicts_with = "false_positive_rate")]
    bits_per_key: Option<f64>,
    /// The false-positive rate instead of the bits: 0.01 is 1 %.
    #[arg(long, value_name = "RATE")]
    false_positive_rate: Option<f64>,
    /// Use the same bits per key on every level, instead of more where they save most reads.
    #[arg(long)]
    uniform: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Chosen for each table by cost: ribbon for nearly all.
    Auto,
    /// No filters: every lookup reads a block.
    None,
    /// Standard Bloom.
    Bloom,
    /// Bloom in lines of 64 bytes: one cache line a probe.
    BlockedBloom,
    /// Ribbon: the fewest bits, the slowest to build.
    Ribbon,
}

impl Kind {
    fn filter_kind(self) -> FilterKind {
        match self {
            Self::Auto => FilterKind::Auto,
            Self::None => FilterKind::None,
            Self::Bloom => FilterKind::Bloom,
            Self::BlockedBloom => FilterKind::BlockedBloom,
            Self::Ribbon => FilterKind::Ribbon,
        }
    }
}

impl Args {
    fn policy(&self) -> FilterPolicy {
        let mut policy = FilterPolicy::new(self.kind.filter_kind());
        if let Some(bits) = self.bits_per_key {
            policy = policy.bits_per_key(bits);
        }
        if let Some(rate) = self.false_positive_rate {
            policy = policy.false_positive_rate(rate);
        }
        if self.uniform { policy.allocation(FilterAllocation::Uniform) } else { policy }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let policy = args.policy();
    policy.validate().map_err(|error| Failure::Usage(error.to_string()))?;
    let db = args.store.existing()?;
    let start = Instant::now();
    let name = args.keyspace.as_deref();
    let keyspace = name.map(|name| store::existing_keyspace(&db, name)).transpose()?;
    let before = filters(&db, name)?;
    progress::watch("building filters", |progress| match &keyspace {
        Some(keyspace) => keyspace.refilter_with(policy, progress),
        None => db.refilter_with(policy, progress),
    })?;
    let after = filters(&db, name)?;
    drop(keyspace);
    db.close()?;
    let mut out = Output::new();
    if args.format.json {
        let seconds = start.elapsed().as_secs_f64();
        let summary = json!({ "before": object(&before), "after": object(&after), "seconds": seconds });
        out.text(&summary.to_string())?;
    } else {
        out.text(&format!("before  {}", describe(&before)))?;
        out.text(&format!("after   {} (in {})", describe(&after), units::seconds(start.elapsed())))?;
    }
    out.finish()
}

/// Tables that cannot be opened count with the manifest's data.
fn filters(db: &Db, keyspace: Option<&str>) -> Result<LevelStats> {
    db.open_tables()?;
    Ok(store::total(db, keyspace))
}

fn describe(total: &LevelStats) -> String {
    let tables = units::counted(total.tables, "table", "tables");
    match total.filter_bits_per_key() {
        Some(bits) => {
            let rate = total.predicted_rate.map_or_else(String::new, |rate| {
                format!(", {} false positives predicted", units::share(rate))
            });
            let size = units::bytes(total.filter_bytes);
            format!("{tables}, filters {size}, {bits:.2} bits per key{rate}")
        }
        None => format!("{tables}, no filters"),
    }
}

fn object(total: &LevelStats) -> serde_json::Value {
    json!({
        "tables": total.tables,
        "keys": total.keys,
        "filter_bytes": total.filter_bytes,
        "filter_bits_per_key": total.filter_bits_per_key(),
        "predicted_rate": total.predicted_rate,
    })
}
