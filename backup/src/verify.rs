//! Reads every file of every backup, and marks damaged ones so that they are copied again.

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
    /// Their files; shared ones count once.
    pub files: u64,
    /// The sum of their lengths.
    pub bytes: u64,
    /// Missing, unreadable and damaged files, with the ids of the backups that use them.
    pub damage: Vec<(DamagedFile, Vec<String>)>,
    /// The error of each index that cannot be read.
    pub unreadable: Vec<Error>,
    /// The first error of creating or removing a marker: the next backup does not copy that damaged file again, or copies an
    /// intact one.
    pub not_marked: Option<Error>,
}

impl VerifyReport {
    /// Whether no damage was found.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.unreadable.is_empty()
    }
}

impl Repository {
    /// Reads every file of every backup, and compares it with its checksums.
    ///
    /// A file with wrong bytes or a wrong length stays where it is, and gets an empty marker `files/NAME.damaged`. Its backups
    /// are incomplete until a backup of a store that still has the file copies it again, or another call finds it intact:
    /// both remove the marker. A file that cannot be read is reported, but not marked.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a directory cannot be listed or a file cannot be opened, [`Error::Cancelled`]. Damage is not an
    /// error.
    pub fn verify(&self, control: &mut Control<'_>) -> Result<VerifyReport> {
        control.begin_call();
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
        // Files are listed after the indexes: a missing file is then not of a pruned backup.
        let stored = self.stored()?;
        report.files = files.len() as u64;
        report.bytes = files.keys().map(|content| content.len).sum();
        control.begin(Stage::Verifying, report.bytes)?;
        for (file, ids) in files.into_values() {
            let damaged = self.read_stored(&stored, &file, |part| control.copied(part.len() as u64))?;
            let is_marked = stored.is_marked(file.content);
            let marked = match &damaged {
                None if is_marked => self.unmark(file.content),
                Some(damaged) if damaged.is_wrong && !is_marked => self.mark(file.content),
                _ => Ok(()),
            };
            if let Err(error) = marked {
                report.not_marked.get_or_insert(error);
            }
            report.damage.extend(damaged.map(|damaged| (damaged, ids)));
        }
        Ok(report)
    }
}
