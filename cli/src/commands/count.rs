use crate::bounds::Bounds;
use crate::failure::Result;
use crate::json::{Format, Object};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, Store, Within};

const STEP: u64 = 1024;

/// Counts the keys of one keyspace, and names the other keyspaces in a note.
///
/// Overwritten and deleted keys do not count. It takes as long as `scan`; `stats` and `keyspaces` print the number of stored
/// entries at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb count my.db
  sievedb count my.db --prefix user/ --json")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let range = args.bounds.decode()?;
    let db = args.store.for_reading()?;
    let keyspace = args.within.existing(&db)?;
    args.within.note_left_out(&db);
    // The number of stored entries approximates the number of keys.
    let total = range.is_full().then(|| store::total(&db, Some(keyspace.name())).entries);
    let mut progress = Progress::of_items("counting", total);
    let mut count = 0;
    for entry in range.entries(&keyspace) {
        entry?;
        count += 1;
        if count % STEP == 0 {
            progress.at(count);
        }
    }
    drop(progress);
    let mut out = Output::new();
    if args.format.json {
        let mut object = Object::new();
        object.insert("keyspace".into(), keyspace.name().into());
        object.insert("count".into(), count.into());
        out.object(object)?;
    } else {
        out.text(&count.to_string())?;
    }
    out.finish()
}
