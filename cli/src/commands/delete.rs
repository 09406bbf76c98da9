//! `sievedb delete`: deletes one key, or many; durable when the command ends.

use sievedb::{Durability, WriteBatch};

use crate::arguments::check_limits;
use crate::bulk::write_lines;
use crate::failure::{Failure, Result};
use crate::json::Object;
use crate::keys::Keys;
use crate::output::Output;
use crate::store::Settling;
use crate::units;

/// Deletes a key, or each key on standard input, durably.
///
/// Deleting an absent key succeeds. With `-` for the key, keys are read from standard input, one a line, and
/// deleted in batches. The first line that is not a key ends the command, as in
/// `load`. The key "-" itself is `--escaped '\x2d'`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb delete my.db planet
  sievedb scan my.db --prefix tmp/ | cut -f1 | sievedb delete my.db - --escaped")]
pub(crate) struct Args {
    #[command(flatten)]
    keys: Keys,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(key) = args.keys.single()? else { return delete_many(args) };
    if args.keys.format.json {
        return Err(Failure::Usage(
            "--json is for keys from standard input; deleting a single key prints nothing".into(),
        ));
    }
    check_limits(&key, b"")?;
    let db = args.keys.store.existing()?;
    let keyspace = args.keys.within.existing(&db)?;
    let mut batch = WriteBatch::new();
    batch.delete_in(&keyspace, key);
    db.write_with(batch, Durability::Synced)?;
    Ok(db.close()?)
}

fn delete_many(args: &Args) -> Result<()> {
    let mut lines = args.keys.lines_of_input()?;
    let db = args.keys.store.existing()?;
    let keyspace = args.keys.within.existing(&db)?;
    let tally = write_lines(db, &mut lines, Settling::NEVER, "deleted", |line, batch| {
        let key = args.keys.lines.decode(line)?;
        check_limits(&key, b"")?;
        batch.delete_in(&keyspace, &key);
        Ok(key.len() as u64)
    })?;
    let mut out = Output::new();
    if args.keys.format.json {
        let mut summary = Object::new();
        summary.insert("lines".into(), tally.lines.into());
        summary.insert("blank_lines".into(), lines.blank().into());
        summary.insert("seconds".into(), tally.time.as_secs_f64().into());
        out.object(summary)?;
    } else {
        let keys = units::counted(tally.lines, "key", "keys");
        out.text(&format!("{keys} deleted in {}", units::seconds(tally.time)))?;
    }
    out.finish()
}
