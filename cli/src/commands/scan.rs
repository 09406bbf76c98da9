use sievedb::Iter;

use crate::bounds::Bounds;
use crate::failure::Result;
use crate::json::{Format, placed_entry};
use crate::output::Output;
use crate::store::{self, Store, Within};

/// Prints entries as `key<TAB>value`, in the order of their keys.
///
/// `load --escaped` reads the output back, byte for byte; with --json, `load --from-json` does. `--prefix` with `--from` or
/// `--to` prints the keys that all allow. Without --keyspace, a note on standard error names other keyspaces.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb scan my.db --prefix user/ --limit 10
  sievedb scan my.db --from b --to c --reverse
  sievedb scan my.db --json | jq -r .key
  sievedb scan my.db --all-keyspaces | sievedb load copy.db - --escaped --all-keyspaces")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    #[command(flatten)]
    bounds: Bounds,
    /// Print the last key first.
    #[arg(long)]
    reverse: bool,
    /// Print at most this many entries.
    #[arg(long, value_name = "COUNT")]
    limit: Option<u64>,
    /// Print the entries of all keyspaces, one keyspace after the other, each entry after the name of its keyspace.
    #[arg(long, conflicts_with = "keyspace")]
    all_keyspaces: bool,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.all_keyspaces {
        return scan_all(args);
    }
    let range = args.bounds.decode()?;
    let db = args.store.for_reading()?;
    let entries = range.entries(&args.within.existing(&db)?);
    args.within.note_left_out(&db);
    let mut printer = Printer::new(args);
    printer.print_in_order(entries, args.reverse)?;
    printer.out.finish()
}

fn scan_all(args: &Args) -> Result<()> {
    let db = args.store.for_reading()?;
    let snapshot = db.snapshot();
    let mut printer = Printer::new(args);
    for name in db.keyspaces() {
        let keyspace = snapshot.keyspace(&store::existing_keyspace(&db, &name)?);
        printer.keyspace = Some(name);
        printer.print_in_order(keyspace.range(args.bounds.decode()?.bounds()), args.reverse)?;
    }
    printer.out.finish()
}

type Entry = sievedb::Result<(sievedb::Value, sievedb::Value)>;

struct Printer {
    out: Output,
    format: Format,
    left: u64,
    keyspace: Option<String>,
}

impl Printer {
    fn new(args: &Args) -> Self {
        Self { out: Output::new(), format: args.format, left: args.limit.unwrap_or(u64::MAX), keyspace: None }
    }

    fn print_in_order(&mut self, entries: Iter<'static>, is_reversed: bool) -> Result<()> {
        if is_reversed { self.print(entries.rev()) } else { self.print(entries) }
    }

    fn print(&mut self, mut entries: impl Iterator<Item = Entry>) -> Result<()> {
        while self.left > 0 {
            let Some(next) = entries.next() else { break };
            let (key, value) = next?;
            match (&self.keyspace, self.format.json) {
                (None, true) => self.out.entry(&key, &value)?,
                (None, false) => self.out.columns(&[&key, &value])?,
                (Some(keyspace), true) => self.out.object(placed_entry(keyspace, &key, &value))?,
                (Some(keyspace), false) => self.out.columns(&[keyspace.as_bytes(), &key, &value])?,
            }
            self.left -= 1;
        }
        Ok(())
    }
}
