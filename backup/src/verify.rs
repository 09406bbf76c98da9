//! Reads every file of every backup, and marks damaged ones so that they are copied again.

use std::collections::{BTreeMap, BTreeSet};

use sievedb::FileKind;

use crate::content::Content;
use crate::control::{Control, Stage};
use crate::error::{Error, Result};
use crate::index::{Index, IndexedFile};
use crate::repository::{Repository, Stored};
use crate::stored::{Cause, DamagedFile, has_checksums};

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
    /// Missing, unreadable and damaged files, with the ids of the backups that use them. See also
    /// [`DamagedFile::was_copied_damaged`].
    pub damage: Vec<(DamagedFile, Vec<String>)>,
    /// The error of each index that cannot be read.
    pub unreadable: Vec<Error>,
    /// The first error of creating a marker (the next backup does not copy that damaged file again) or of removing one (it
    /// copies an intact file).
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
    /// Reads every file of every backup, and compares it with its checksums. Reads tables and filters twice: the second time
    /// finds damage that they had in the store, except in filters of a table that separate filters replaced.
    ///
    /// A file with wrong bytes or a wrong length stays where it is, and gets an empty marker `files/NAME.damaged`. Its backups
    /// are incomplete until a backup of a store that still has the file copies it again, or another call finds it intact:
    /// both remove the marker. A file that cannot be read, or was damaged before it was copied, is reported, but not marked.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a directory cannot be listed or a file cannot be opened, [`Error::Cancelled`]. Damage is not an
    /// error.
    pub fn verify(&self, control: &mut Control<'_>) -> Result<VerifyReport> {
        control.begin_call();
        let mut report = VerifyReport::default();
        let mut files: BTreeMap<Content, Used> = BTreeMap::new();
        report.unreadable = self.each_index(&self.ids()?, |id, index| {
            report.backups += 1;
            let refiltered = refiltered(&index);
            for file in index.files {
                let uses_filters = !refiltered.contains(&file.identity.file_id);
                files.entry(file.content).or_insert_with(|| Used::new(file)).add(id, uses_filters);
            }
            Ok(())
        })?;
        // Files are listed after the indexes, so the files of a backup made meanwhile are found.
        let stored = self.stored()?;
        report.files = files.len() as u64;
        report.bytes = files.keys().map(|content| content.len).sum();
        let read_twice = |file: &IndexedFile| has_checksums(file.identity.kind);
        let twice = files
            .values()
            .map(|used| &used.file)
            .filter(|file| read_twice(file))
            .map(|file| file.content.len);
        control.begin(Stage::Verifying, report.bytes + twice.sum::<u64>())?;
        for used in files.into_values() {
            let file = &used.file;
            let damaged = self.read_stored(&stored, file, |part| control.copied(part.len() as u64))?;
            let is_marked = stored.is_marked(file.content);
            let marked = match &damaged {
                None if is_marked => self.unmark(file.content),
                Some(damaged) if damaged.cause == Cause::Changed && !is_marked => self.mark(file.content),
                _ => Ok(()),
            };
            if let Err(error) = marked {
                report.not_marked.get_or_insert(error);
            }
            let (is_again, len) = (read_twice(file), file.content.len);
            report.damage.extend(match damaged {
                Some(damaged) => {
                    control.done(if is_again { len } else { 0 })?;
                    Some((damaged, used.ids))
                }
                None if is_again => {
                    let found = self.check_used(&stored, used)?;
                    control.copied(len)?;
                    found
                }
                None => None,
            });
        }
        Ok(report)
    }

    fn check_used(&self, stored: &Stored, used: Used) -> Result<Option<(DamagedFile, Vec<String>)>> {
        let Used { file, ids, filter_ids } = used;
        let check = |uses_filters| self.check_as_copied(stored, &file, uses_filters);
        let damaged = check(!filter_ids.is_empty())?;
        if damaged.is_none() || filter_ids.is_empty() || filter_ids.len() == ids.len() {
            return Ok(damaged.map(|damaged| (damaged, ids)));
        }
        // The damage may concern only the backups that use the table's own filters.
        Ok(match check(false)? {
            None => damaged.map(|damaged| (damaged, filter_ids)),
            for_all => for_all.map(|damaged| (damaged, ids)),
        })
    }
}

/// A file, and the ids of its backups.
struct Used {
    file: IndexedFile,
    ids: Vec<String>,
    /// The backups in which no separate filter replaced the filters of this table.
    filter_ids: Vec<String>,
}

impl Used {
    fn new(file: IndexedFile) -> Self {
        Self { file, ids: Vec::new(), filter_ids: Vec::new() }
    }

    fn add(&mut self, id: &str, uses_filters: bool) {
        if self.ids.last().is_some_and(|last| last == id) {
            return;
        }
        self.ids.push(id.to_owned());
        if uses_filters {
            self.filter_ids.push(id.to_owned());
        }
    }
}

/// The file ids of the tables with separate filters.
fn refiltered(index: &Index) -> BTreeSet<[u8; 16]> {
    let filters = index.files.iter().filter(|file| file.identity.kind == FileKind::Filter);
    filters.map(|file| file.identity.file_id).collect()
}
