use std::path::PathBuf;

use serde_json::json;
use sievedb::Error;

use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::store::{Store, as_of_object, check_parent};

/// Tries of a checkpoint if the writer removes files meanwhile.
const TRIES_MAX: u32 = 10;

/// Makes a checkpoint: a store of its own in the new directory DIR, with all keyspaces at one moment.
///
/// Tables are hard links, or copies in another file system. It works next to a writer and changes nothing in the store. DIR
/// appears when it is complete and durable; a failure leaves nothing. An interrupt leaves DIR.checkpoint-incomplete, which the
/// next checkpoint to DIR removes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb checkpoint my.db my.db.monday
  sievedb checkpoint my.db /other/disk/copy && sievedb verify /other/disk/copy")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The directory of the checkpoint, which must not exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    check_parent(&args.dir)?;
    let mut tries = 0;
    let as_of = loop {
        tries += 1;
        let db = args.store.for_reading()?;
        match db.checkpoint(&args.dir) {
            // The view could not hold all files open, and one was removed.
            Err(Error::Changed { .. }) if tries < TRIES_MAX => {}
            made => {
                made?;
                break db.open_report().as_of;
            }
        }
    };
    let mut out = Output::new();
    let seqno = as_of.map_or(0, |as_of| as_of.seqno);
    match args.format.json {
        true => out.text(&json!({ "as_of": as_of_object(as_of) }).to_string())?,
        false => {
            out.text(&format!("{} is a checkpoint as of sequence number {seqno}", args.dir.display()))?
        }
    }
    out.finish()
}
