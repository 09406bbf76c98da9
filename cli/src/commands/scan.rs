//! `sievedb scan`: prints entries in the order of their keys.

use std::path::PathBuf;

use crate::bounds::Bounds;
use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::{self, Within};

/// Prints entries as `key<TAB>value`, in the order of their keys.
///
/// `load --escaped` reads the output back, byte for byte; with --json, `load --from-json` does. `--prefix` together with `--from` or `--to` prints the keys
/// that all of them allow. Other keyspaces are named in a note on standard error, if --keyspace is not given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb scan my.db --prefix user/ --limit 10
  sievedb scan my.db --from b --to c --reverse
  sievedb scan my.db --json | jq -r .key")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    #[command(flatten)]
    bounds: Bounds,
    /// Print the last key first.
    #[arg(long)]
    reverse: bool,
    /// Print at most this many entries.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let range = args.bounds.decode()?;
    let db = store::open_for_reading(&args.db)?;
    let entries = range.entries(&args.within.existing(&db)?);
    args.within.note_left_out(&db);
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut out = Output::new();
    if args.reverse {
        print(entries.rev(), limit, args.format, &mut out)?;
    } else {
        print(entries, limit, args.format, &mut out)?;
    }
    out.finish()
}

type Entry = sievedb::Result<(sievedb::Value, sievedb::Value)>;

fn print(
    mut entries: impl Iterator<Item = Entry>,
    limit: u64,
    format: Format,
    out: &mut Output,
) -> Result<()> {
    for _ in 0..limit {
        let Some(next) = entries.next() else { break };
        let (key, value) = next?;
        if format.json {
            out.entry(&key, &value)?;
        } else {
            out.columns(&[&key, &value])?;
        }
    }
    Ok(())
}
