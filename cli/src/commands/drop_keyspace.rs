use crate::escape::escape;
use crate::failure::Result;
use crate::output::Output;
use crate::store::{self, JOURNALS, Store};
use crate::units;

/// Drops a keyspace with all its entries and files, durably.
///
/// The keyspace "default" cannot be dropped. Also drops the record of its `uniq` journal; the journal's file stays.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb drop-keyspace my.db users")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The keyspace.
    #[arg(value_parser = store::keyspace_name)]
    name: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let db = args.store.existing()?;
    drop(store::existing_keyspace(&db, &args.name)?);
    let entries = store::total(&db, Some(&args.name)).entries;
    db.drop_keyspace(&args.name)?;
    if let Some(journals) = db.existing_keyspace(JOURNALS) {
        journals.remove(&args.name)?;
    }
    db.close()?;
    let mut out = Output::new();
    let entries = units::counted(entries, "entry", "entries");
    out.text(&format!("keyspace {} dropped, {entries}", escape(args.name.as_bytes())))?;
    out.finish()
}
