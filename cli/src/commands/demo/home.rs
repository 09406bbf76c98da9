//! Where the demo keeps its store, and how it makes sure that what it clears is its own.
//!
//! The demo removes no file and no directory. It works in keyspaces, and before it writes into one for the
//! first time it notes the name in a keyspace of its own, [`LEDGER`]. It begins afresh by deleting every
//! entry of a keyspace that is noted there, and refuses one that is not, unless it is new.

use std::path::{Path, PathBuf};

use sievedb::{Db, Durability, Keyspace, KeyspaceOptions, Options, WriteBatch};

use crate::failure::{Failure, Result};
use crate::store::DEFAULT_KEYSPACE;

/// The keyspace whose keys are the names of the keyspaces that the demo may clear.
const LEDGER: &str = "sievedb-demo";

/// Size at which a batch of deletions is written.
const BATCH_BYTES: usize = 256 << 10;

/// Where the store is kept if nobody says otherwise.
pub(super) fn default_path() -> PathBuf {
    std::env::temp_dir().join("sievedb-demo")
}

/// Opens the store; its background work is done in steps, by whoever calls [`Db::step`].
pub(super) fn open(dir: &Path) -> Result<Db> {
    Ok(Options::new().background_threads(0).open(dir)?)
}

/// A keyspace that is empty, has these options, and is the demo's. The number says how many entries of an
/// earlier run were deleted.
pub(super) fn claim(db: &Db, name: &str, options: &KeyspaceOptions) -> Result<(Keyspace, u64)> {
    let existing = db.existing_keyspace(name);
    let is_new = existing.is_none() || (name == DEFAULT_KEYSPACE && db.open_report().created);
    let is_ours = match db.existing_keyspace(LEDGER) {
        Some(ledger) => ledger.contains(name)?,
        None => false,
    };
    if name == LEDGER || !(is_new || is_ours) {
        return Err(Failure::Usage(format!(
            "keyspace {name} of {} was not made by the demo, which would clear it; give the demo another \
             directory, or a new keyspace with --keyspace",
            db.path().display()
        )));
    }
    let mut batch = WriteBatch::new();
    batch.put_in(&db.keyspace(LEDGER, KeyspaceOptions::default())?, name, "");
    db.write_with(batch, Durability::Synced)?;
    let keyspace = db.keyspace(name, options.clone())?;
    let deleted = clear(db, &keyspace)?;
    keyspace.set_options(options.clone())?;
    Ok((keyspace, deleted))
}

/// Deletes every entry, and then the tombstones too.
fn clear(db: &Db, keyspace: &Keyspace) -> Result<u64> {
    let mut deleted = 0;
    let mut batch = WriteBatch::new();
    for entry in keyspace.iter() {
        batch.delete_in(keyspace, entry?.0);
        deleted += 1;
        if batch.size_bytes() >= BATCH_BYTES {
            db.write(std::mem::take(&mut batch))?;
        }
    }
    db.write(batch)?;
    keyspace.compact()?;
    Ok(deleted)
}
