//! The directory of the demo's store. The demo removes no file, and deletes only its own entries (`claim`). The default directory
//! is in the shared temporary directory, so its name contains the user's number and it must belong to the user.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sievedb::{Db, Error, KeyspaceOptions};

use super::claim::Claim;
use crate::failure::{Failure, Result};
use crate::store::{self, Opening};

const DIRECTORIES_MAX: u32 = 9;

pub(super) struct Home {
    pub(super) dir: PathBuf,
    pub(super) db: Db,
    pub(super) claims: [Claim; 2],
}

impl Home {
    pub(super) fn open(
        dir: &Path,
        opening: Opening,
        keyspaces: [(&str, &KeyspaceOptions); 2],
    ) -> Result<Self> {
        let db = opening.options().background_threads(0).open(dir)?;
        keyspaces.iter().try_for_each(|(name, _)| Claim::check(&db, name))?;
        let [first, second] = keyspaces;
        let claims = [Claim::take(&db, first.0, first.1)?, Claim::take(&db, second.0, second.1)?];
        Ok(Self { dir: dir.to_owned(), db, claims })
    }

    /// Skips a store that is in use, damaged or another user's.
    pub(super) fn open_temporary(opening: Opening, keyspaces: [(&str, &KeyspaceOptions); 2]) -> Result<Self> {
        let mut number = 1;
        loop {
            let dir = std::env::temp_dir().join(name(number));
            match check_owner(&dir).and_then(|()| Self::open(&dir, opening, keyspaces)) {
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

#[cfg(unix)]
fn name(number: u32) -> String {
    let user = rustix::process::geteuid().as_raw();
    if number == 1 { format!("sievedb-demo-{user}") } else { format!("sievedb-demo-{user}-{number}") }
}

#[cfg(not(unix))]
fn name(number: u32) -> String {
    if number == 1 { "sievedb-demo".into() } else { format!("sievedb-demo-{number}") }
}

#[cfg(unix)]
fn check_owner(dir: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = dir.symlink_metadata() else { return Ok(()) };
    if found.is_symlink() {
        return Err(Failure::Usage("it is a symbolic link".into()));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Failure::Usage("it belongs to another user".into()));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_owner(_dir: &Path) -> Result<()> {
    Ok(())
}

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
