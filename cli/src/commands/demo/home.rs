//! The store of the demo, and how the demo makes sure that it clears only its own keyspaces.
//!
//! The demo removes no file and no directory. Before it writes into a keyspace for the first time it records
//! its name in a keyspace of its own, [`OWN_KEYSPACES`]. It starts by deleting every entry of its keyspaces,
//! and refuses a keyspace that exists and is not recorded there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sievedb::{Db, Durability, Error, Keyspace, KeyspaceOptions, Options, WriteBatch};

use crate::failure::{Failure, Result};
use crate::store::{self, DEFAULT_KEYSPACE};

/// The keyspace whose keys are the names of the keyspaces that the demo may clear.
const OWN_KEYSPACES: &str = "sievedb-demo";

/// Size at which a batch of deletions is written.
const BATCH_BYTES: usize = 256 << 10;

/// Number of directories that are tried, one after the other, if none is given.
const DIRECTORIES_MAX: u32 = 9;

/// A store with the two keyspaces of the demo, both empty.
pub(super) struct Home {
    pub(super) dir: PathBuf,
    pub(super) db: Db,
    pub(super) keyspaces: [Keyspace; 2],
    /// Entries of an earlier demo that were deleted from the first.
    pub(super) deleted: u64,
}

impl Home {
    /// Opens the store in `dir` with the demo's keyspaces and their options. The caller does its background
    /// work with [`Db::step`].
    pub(super) fn open(dir: &Path, keyspaces: [(&str, &KeyspaceOptions); 2]) -> Result<Self> {
        let db = Options::new().background_threads(0).open(dir)?;
        let [(first, deleted), (second, _)] =
            [claim(&db, keyspaces[0].0, keyspaces[0].1)?, claim(&db, keyspaces[1].0, keyspaces[1].1)?];
        Ok(Self { dir: dir.to_owned(), db, keyspaces: [first, second], deleted })
    }

    /// The same in the system's temporary directory. A store there may be in use, damaged, or somebody
    /// else's: it is left as it is, and the next name is tried.
    pub(super) fn open_temporary(keyspaces: [(&str, &KeyspaceOptions); 2]) -> Result<Self> {
        let temporary = std::env::temp_dir();
        let mut number = 1;
        loop {
            let name = if number == 1 { "sievedb-demo".into() } else { format!("sievedb-demo-{number}") };
            let dir = temporary.join(name);
            match Self::open(&dir, keyspaces) {
                Err(Failure::Store(error)) if number < DIRECTORIES_MAX && concerns_this_directory(&error) => {
                    store::note(&format!("{} is left as it is: {error}", dir.display()));
                }
                Err(Failure::Usage(why)) if number < DIRECTORIES_MAX => {
                    store::note(&format!("{} is left as it is: {why}", dir.display()));
                }
                outcome => return outcome,
            }
            number += 1;
        }
    }
}

/// Whether the error concerns this directory only, so that another one may work.
fn concerns_this_directory(error: &Error) -> bool {
    match error {
        Error::Corruption { .. }
        | Error::Unsupported { .. }
        | Error::Locked { .. }
        | Error::NoStore { .. }
        | Error::OtherFiles { .. } => true,
        Error::Io { source, .. } => source.kind() == ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// Empties a keyspace of the demo and sets its options. The number is that of the entries deleted.
fn claim(db: &Db, name: &str, options: &KeyspaceOptions) -> Result<(Keyspace, u64)> {
    let existing = db.existing_keyspace(name);
    let is_new = existing.is_none() || (name == DEFAULT_KEYSPACE && db.open_report().created);
    let is_ours = match db.existing_keyspace(OWN_KEYSPACES) {
        Some(own) => own.contains(name)?,
        None => false,
    };
    if name == OWN_KEYSPACES || !(is_new || is_ours) {
        return Err(Failure::Usage(format!(
            "keyspace {name} of {} was not made by the demo, which would clear it; give the demo another \
             directory, or a new keyspace with --keyspace",
            db.path().display()
        )));
    }
    if !is_ours {
        let mut batch = WriteBatch::new();
        batch.put_in(&db.keyspace(OWN_KEYSPACES, KeyspaceOptions::default())?, name, "");
        db.write_with(batch, Durability::Synced)?;
    }
    let keyspace = db.keyspace(name, options.clone())?;
    let deleted = clear(db, &keyspace)?;
    keyspace.set_options(options.clone())?;
    Ok((keyspace, deleted))
}

/// Deletes every entry, and compacts the tombstones away.
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
