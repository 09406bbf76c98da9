//! `sievedb digest`: a small file that contains the keys of a store in approximate form.

use std::path::PathBuf;

use serde_json::json;
use sievedb_sketches::{Sketch, store as sketches};

use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::{Store, Within};
use crate::whole_file;

/// Writes a digest: a small file that contains the keys of a store in approximate form.
///
/// The digest is a filter of all keys, with its own public seed (it does not contain the secret seed of the store).
/// Other processes can probe it before they send a lookup to this one. A key of the store is always found in it; any
/// other key is found with the given rate. `sievedb-sketches` reads it: `Digest::decode`.
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
    /// How many of the keys that are not there may be found.
    #[arg(long, value_name = "RATE", default_value_t = 0.01, value_parser = rate, allow_negative_numbers = true)]
    rate: f64,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

/// The argument of `--rate`.
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
