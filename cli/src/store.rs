//! Opening a store, each command the way it may: readers read-only, so that several can run at once; only
//! `load`, `put` and `demo` create one.

use std::path::Path;

use sievedb::limits::KEYSPACE_NAME_BYTES_MAX;
use sievedb::{Db, Keyspace, KeyspaceOptions, Options};

use crate::escape::escape;
use crate::failure::{Failure, Result, warn};
use crate::units;

/// The keyspace a command works on if none is named.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

/// Which keyspace a command works on.
#[derive(Debug, clap::Args)]
pub(crate) struct Within {
    /// The keyspace to work on, instead of "default".
    #[arg(long, value_name = "NAME", value_parser = keyspace_name)]
    pub(crate) keyspace: Option<String>,
}

impl Within {
    /// The keyspace, which is there.
    pub(crate) fn existing(&self, db: &Db) -> Result<Keyspace> {
        let Some(name) = &self.keyspace else { return Ok(db.default_keyspace()) };
        existing_keyspace(db, name)
    }

    /// The keyspace, created if it is missing.
    pub(crate) fn or_create(&self, db: &Db) -> Result<Keyspace> {
        let Some(name) = &self.keyspace else { return Ok(db.default_keyspace()) };
        Ok(db.keyspace(name, KeyspaceOptions::default())?)
    }
}

/// The argument of `--keyspace`.
pub(crate) fn keyspace_name(name: &str) -> Result<String, String> {
    match name.len() {
        0 => Err("a keyspace has a name".into()),
        1..=KEYSPACE_NAME_BYTES_MAX => Ok(name.to_owned()),
        _ => Err(format!("a keyspace's name has at most {KEYSPACE_NAME_BYTES_MAX} bytes")),
    }
}

/// Opens a store that exists, writing nothing.
pub(crate) fn open_for_reading(dir: &Path) -> Result<Db> {
    noted(Options::new().read_only().open(dir)?)
}

/// Opens a store that exists.
pub(crate) fn open_existing(dir: &Path) -> Result<Db> {
    noted(Options::new().create_if_missing(false).open(dir)?)
}

/// Opens a store, created if need be.
pub(crate) fn open_or_create(dir: &Path) -> Result<Db> {
    noted(Options::new().open(dir)?)
}

/// Something to know that is no failure.
pub(crate) fn note(message: &str) {
    warn("sievedb", &format!("note: {message}"));
}

/// Says what opening found that is not as it should be.
fn noted(db: Db) -> Result<Db> {
    for tail in &db.open_report().dropped {
        note(&format!(
            "the last {} of {} from offset {} on are the torn end of a write that was never synced, \
             and are left out ({})",
            units::counted(tail.bytes, "byte", "bytes"),
            tail.file.display(),
            tail.offset,
            tail.reason
        ));
    }
    Ok(db)
}

/// The keyspace of this name.
pub(crate) fn existing_keyspace(db: &Db, name: &str) -> Result<Keyspace> {
    db.existing_keyspace(name).ok_or_else(|| {
        let names: Vec<String> = db.keyspaces().iter().map(|name| escape(name.as_bytes())).collect();
        Failure::Refused(format!(
            "there is no keyspace {} in {}; it has {}",
            escape(name.as_bytes()),
            db.path().display(),
            names.join(", ")
        ))
    })
}

/// Says so if filters turned out to be unusable.
pub(crate) fn note_filters(db: &Db) {
    let unusable = db.stats().unusable_filters;
    if unusable > 0 {
        note(&format!(
            "{} cannot be used; answers are right all the same, but take longer",
            units::counted(unusable, "filter", "filters")
        ));
    }
}

/// Bytes of all files in the store's directory.
pub(crate) fn disk_bytes(dir: &Path) -> Result<u64> {
    let cannot = |error| Failure::io(format!("list {}", dir.display()), error);
    let mut total = 0;
    for entry in std::fs::read_dir(dir).map_err(cannot)? {
        // A file that went away since the listing takes no space.
        total += entry.map_err(cannot)?.metadata().map_or(0, |metadata| metadata.len());
    }
    Ok(total)
}
