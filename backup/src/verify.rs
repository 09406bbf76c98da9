//! Reads every file of every backup.

use std::collections::BTreeMap;

use crate::content::Content;
use crate::control::{Control, Stage};
use crate::error::{Error, Result};
use crate::index::IndexedFile;
use crate::repository::Repository;
use crate::stored::DamagedFile;

/// The result of [`Repository::verify`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Backups whose index is intact.
    pub backups: u64,
    /// Files that they use. One that several backups share is read once.
    pub files: u64,
    /// The lengths of these files together.
    pub bytes: u64,
    /// Files that are missing or damaged, each with the ids of the backups that use it.
    pub damage: Vec<(DamagedFile, Vec<String>)>,
    /// The error of each index that cannot be read.
    pub unreadable: Vec<Error>,
}

impl VerifyReport {
    /// Whether everything is as it was written.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.unreadable.is_empty()
    }
}

impl Repository {
    /// Reads every file of every backup, and compares its bytes with its checksums. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be listed, [`Error::Cancelled`]. Damage is in the report, and no error.
    pub fn verify(&self, control: &mut Control<'_>) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let mut files: BTreeMap<Content, (IndexedFile, Vec<String>)> = BTreeMap::new();
        report.unreadable = self.each_index(&self.ids()?, |id, index| {
            report.backups += 1;
            for file in index.files {
                let (_, ids) = files.entry(file.content).or_insert_with(|| (file, Vec::new()));
                if ids.last().is_none_or(|last| last != id) {
                    ids.push(id.to_owned());
                }
            }
            Ok(())
        })?;
        // Listed after the indexes: a file that is deleted later was unused.
        let stored = self.stored()?;
        report.files = files.len() as u64;
        report.bytes = files.keys().map(|content| content.len).sum();
        control.begin(Stage::Verifying, report.bytes)?;
        for (file, ids) in files.into_values() {
            let damaged = self.read_stored(&stored, &file, |part| control.done(part.len() as u64))?;
            report.damage.extend(damaged.map(|damaged| (damaged, ids)));
        }
        Ok(report)
    }
}
