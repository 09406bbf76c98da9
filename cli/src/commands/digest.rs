use std::path::PathBuf;

use serde_json::json;
use sievedb_sketches::{Sketch, store as sketches};

use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::{Store, Within};
use crate::whole_file;

/// Writes a digest: a small file with an approximate set of the keys of a store, for `Digest::decode` of `sievedb-sketches`.
///
/// A key of the store is always found, any other key with the given rate. Its seed is public, not the secret seed of the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb digest my.db --output my.digest
  sievedb digest my.db --output my.digest --rate 0.001 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The share of absent keys that may be found.
    #[arg(long, value_name = "RATE", default_value_t = 0.01, value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate < 1.0 => Ok(rate),
        _ => Err("a number over 0 and below 1".into()),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = args.store.for_reading()?;
    let keyspace = args.within.existing(&db)?;
    args.within.note_left_out(&db);
    let digest = sketches::digest(&db.snapshot().keyspace(&keyspace), args.rate)?;
    let bytes = digest.encode();
    whole_file::write(&args.output, &bytes)?;
    let mut out = Output::new();
    if args.format.json {
        let summary = json!({
            "keyspace": keyspace.name(),
            "keys": digest.len(),
            "bytes": bytes.len(),
            "rate": digest.predicted_rate(),
            "seconds_since_1970": digest.time(),
        });
        out.text(&summary.to_string())?;
        return out.finish();
    }
    out.text(&format!("{} bytes in {}", bytes.len(), args.output.display()))?;
    out.raw(digest.summary().to_string().as_bytes())?;
    out.finish()
}
