//! Where the demo keeps its store, and how it makes sure that what it clears is its own.
//!
//! The demo removes no file and no directory. It works in keyspaces, and before it writes into one for the
//! first time it notes the name in a keyspace of its own, [`LEDGER`]. It begins afresh by deleting every
//! entry of a keyspace that is noted there, and refuses one that is not, unless it is new.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sievedb::{Db, Durability, Error, Keyspace, KeyspaceOptions, Options, WriteBatch};

use crate::failure::{Failure, Result};
use crate::store::{self, DEFAULT_KEYSPACE};

/// The keyspace whose keys are the names of the keyspaces that the demo may clear.
const LEDGER: &str = "sievedb-demo";

/// Size at which a batch of deletions is written.
const BATCH_BYTES: usize = 256 << 10;

/// Directories that are tried, one after the other, if nobody says which.
const PLACES: u32 = 9;

/// A store in which the demo has its two keyspaces, both empty.
pub(super) struct Home {
    pub(super) dir: PathBuf,
    pub(super) db: Db,
    pub(super) keyspaces: [Keyspace; 2],
    /// Entries of an earlier run that were deleted from the first.
    pub(super) deleted: u64,
}

impl Home {
    /// The demo's keyspaces, with their options, in the store in `dir`. Its background work is done in steps, by
    /// whoever calls [`Db::step`].
    pub(super) fn open(dir: &Path, keyspaces: [(&str, &KeyspaceOptions); 2]) -> Result<Self> {
        let db = Options::new().background_threads(0).open(dir)?;
        let [(first, deleted), (second, _)] =
            [claim(&db, keyspaces[0].0, keyspaces[0].1)?, claim(&db, keyspaces[1].0, keyspaces[1].1)?];
        Ok(Self { dir: dir.to_owned(), db, keyspaces: [first, second], deleted })
    }

    /// The same where nobody says where: in a folder of the system's temporary directory. One that is there already
    /// may be in use, damaged, or somebody else's; it is left as it is, and the next one is tried.
    pub(super) fn open_somewhere(keyspaces: [(&str, &KeyspaceOptions); 2]) -> Result<Self> {
        let temporary = std::env::temp_dir();
        let mut place = 1;
        loop {
            let name = if place == 1 { "sievedb-demo".into() } else { format!("sievedb-demo-{place}") };
            let dir = temporary.join(name);
            match Self::open(&dir, keyspaces) {
                Err(Failure::Store(error)) if place < PLACES && is_of_this_store(&error) => {
                    store::note(&format!("{} is left as it is: {error}", dir.display()));
                }
                Err(Failure::Usage(why)) if place < PLACES => {
                    store::note(&format!("{} is left as it is: {why}", dir.display()));
                }
                outcome => return outcome,
            }
            place += 1;
        }
    }
}

/// Whether another directory may do where this one does not.
fn is_of_this_store(error: &Error) -> bool {
    match error {
        Error::Corruption { .. }
        | Error::Unsupported { .. }
        | Error::Locked { .. }
        | Error::NoStore { .. } => true,
        Error::Io { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// A keyspace that is empty, has these options, and is the demo's. The number says how many entries of an
/// earlier run were deleted.
fn claim(db: &Db, name: &str, options: &KeyspaceOptions) -> Result<(Keyspace, u64)> {
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
    if !is_ours {
        let mut batch = WriteBatch::new();
        batch.put_in(&db.keyspace(LEDGER, KeyspaceOptions::default())?, name, "");
        db.write_with(batch, Durability::Synced)?;
    }
    let keyspace = db.keyspace(name, options.clone())?;
    // What is there is cleared with the usual large memtables: the demo's small ones would be flushed often.
    keyspace.set_options(KeyspaceOptions::default())?;
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
