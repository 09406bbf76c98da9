//! The input of a page.

use std::path::Path;
use std::time::SystemTime;

use sievedb::fs::StdFs;
use sievedb::inspect::tree::Tree;
use sievedb::{Db, Result, Stats, VerifyReport};

use crate::history::History;
use crate::observed::{self, Observed};
use crate::page;
use crate::units;

/// A store at one moment, with further data to show.
#[derive(Debug)]
pub struct Report {
    pub(crate) path: String,
    pub(crate) disk_bytes: u64,
    pub(crate) made: String,
    pub(crate) tree: Tree,
    pub(crate) stats: Option<Stats>,
    pub(crate) history: Option<History>,
    pub(crate) damage: Vec<String>,
    in_files: usize,
    pub(crate) omitted_damage: u64,
    pub(crate) is_verified: bool,
}

impl Report {
    /// An open store: its tree, its memory, and the answers of its filters since the opening.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](sievedb::Error::Closed), or [`Error::Io`](sievedb::Error::Io) if the directory of a read-only
    /// store cannot be read.
    pub fn of_db(db: &Db) -> Result<Self> {
        Ok(Self::of_tree(db.path(), db.tree()?, Some(db.stats())))
    }

    /// A closed store: the readable part of its tree. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`](sievedb::Error::NoStore) or [`Error::Io`](sievedb::Error::Io). The page lists damage, which
    /// is not an error.
    pub fn of_dir(dir: &Path) -> Result<Self> {
        Ok(Self::of_tree(dir, Tree::read(&StdFs, dir)?, None))
    }

    pub(crate) fn of_tree(path: &Path, tree: Tree, stats: Option<Stats>) -> Self {
        let name = |file: &Path| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        let damage = tree.damage.iter().map(|(file, damage)| {
            format!("{} at offset {}: {}: {}", name(file), damage.offset, damage.what, damage.detail)
        });
        Self {
            path: path.display().to_string(),
            disk_bytes: disk_bytes(path),
            made: units::moment(SystemTime::now()),
            damage: damage.collect(),
            in_files: tree.damage.len(),
            omitted_damage: 0,
            is_verified: false,
            tree,
            stats,
            history: None,
        }
    }

    /// Adds statistics of earlier moments.
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        self.history = Some(history);
        self
    }

    /// Adds the result of a verification, which replaces the damage found so far.
    #[must_use]
    pub fn verified(mut self, report: &VerifyReport) -> Self {
        self.damage.splice(..self.in_files, report.damage.iter().map(ToString::to_string));
        self.in_files = report.damage.len();
        (self.omitted_damage, self.is_verified) = (report.omitted, true);
        self
    }

    /// Whether the page lists damage.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !self.damage.is_empty() || self.omitted_damage > 0
    }

    /// Adds a sentence about damage.
    #[must_use]
    pub fn damaged(mut self, sentence: String) -> Self {
        self.damage.push(sentence);
        self
    }

    /// Returns the page: a self-contained HTML document.
    #[must_use]
    pub fn page(&self) -> String {
        page::page(self)
    }

    pub(crate) fn observed(&self) -> Observed {
        let live = self.stats.as_ref().map(observed::of_stats).unwrap_or_default();
        if live.is_empty() { self.history.as_ref().map(History::observed).unwrap_or_default() } else { live }
    }
}

fn disk_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tree_of;

    #[test]
    fn a_verification_does_not_hide_that_a_store_cannot_be_opened() {
        let report = || Report::of_tree(Path::new("/db"), tree_of(vec![]), None);
        assert!(!report().is_damaged());
        let report =
            report().damaged("The store cannot be opened: why".into()).verified(&VerifyReport::default());
        assert!(report.is_damaged() && report.verified(&VerifyReport::default()).is_damaged());
        let report = Report::of_tree(Path::new("/db"), tree_of(vec![]), None)
            .damaged("The store cannot be opened: why".into())
            .verified(&VerifyReport::default());
        let page = report.page();
        assert!(page.contains("cannot be opened: why") && !page.contains("There is no damage"), "{page}");
    }
}
