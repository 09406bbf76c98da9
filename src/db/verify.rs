//! Verifying a store: everything is read back and compared, and all damage is collected.

use std::sync::Arc;

use super::engine::Engine;
use super::store::Db;
use crate::error::{Error, Result};

/// What [`Db::verify`] read and what it found.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables that were read.
    pub tables: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// Their entries, as the manifest counts them.
    pub entries: u64,
    /// Everything that is wrong, with file and offset. Empty if the store is sound.
    pub damage: Vec<Error>,
}

impl Db {
    /// Reads every table from the disk, past the caches, and checks all of it: checksums, order of keys,
    /// counts, index against data, every key against its filter. Goes on after damage and lists all of it.
    /// (Logs and manifest were checked when the store was opened.)
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]. Damage and unreadable files are in the report, not errors.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.engine().verify()
    }
}

impl Engine {
    fn verify(&self) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        for tree in self.trees.load_full().values() {
            let view = tree.view();
            if let Some((a, b)) = view.version.overlap_in_a_run() {
                let path = crate::filename::FileName::Table(b).path(&self.dir);
                report.damage.push(Error::corruption(
                    &path,
                    0,
                    "table",
                    format!("its keys overlap those of table {a}"),
                ));
            }
            for (_, handle) in view.version.all_tables() {
                report.tables += 1;
                report.bytes += handle.meta.len;
                report.entries += handle.meta.entries;
                // Opened anew, so that what an open handle holds in memory is checked on the disk as well.
                match crate::table::Table::open(&self.context, Arc::clone(&handle.meta)) {
                    Ok(table) => report.damage.extend(table.verify(self.hash_seed)),
                    Err(error) => report.damage.push(error),
                }
            }
        }
        Ok(report)
    }
}
