//! Options of a store. The units below have small configurations of their own; this file composes them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::compaction::pick::Shape;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::fs::{Fs, StdFs};
pub use crate::manifest::keyspace_options::KeyspaceOptions;

/// How a store is opened. Every setting has a default that needs no thought.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let db = sievedb::Options::new().memory_budget(64 << 20).open(dir.path())?;
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) memory_budget: usize,
    pub(crate) background_threads: usize,
    pub(crate) log_bytes_max: u64,
    pub(crate) open_files_max: usize,
    pub(crate) strict_filters: bool,
    pub(crate) audit_absent: u64,
    pub(crate) default_keyspace: Option<KeyspaceOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs: Arc::new(StdFs),
            read_only: false,
            create: true,
            memory_budget: 512 << 20,
            background_threads: 2,
            log_bytes_max: 0,
            open_files_max: 256,
            strict_filters: false,
            audit_absent: 0,
            default_keyspace: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("read_only", &self.read_only)
            .field("create", &self.create)
            .field("memory_budget", &self.memory_budget)
            .field("background_threads", &self.background_threads)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("open_files_max", &self.open_files_max)
            .field("strict_filters", &self.strict_filters)
            .field("audit_absent", &self.audit_absent)
            .field("default_keyspace", &self.default_keyspace)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the store in `path`.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if it is open elsewhere, [`Error::NoStore`] if there is none and it may not be
    /// created, [`Error::Corruption`] if its files do not fit together, [`Error::Unsupported`] if they are
    /// of a newer version, [`Error::InvalidArgument`] if an option is out of range.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        Db::open_with(path.as_ref(), self)
    }

    /// Memory for everything that grows with data, in bytes; 512 MiB by default, 1 MiB at least.
    ///
    /// - A quarter for memtables, those that wait to be flushed included. A writer waits before they would hold more;
    ///   only a batch that is larger than the whole quarter passes it, alone.
    /// - An eighth for flushes and compactions: what a table takes while it is written, its filter included. Each
    ///   thread has an equal part, and begins another table when that is full; but eight blocks at least, which is more than
    ///   its part if the budget is small and [`KeyspaceOptions::block_bytes`](crate::KeyspaceOptions::block_bytes) large.
    ///   What a new filter for an existing table lacks comes from the blocks, or it is not built: see
    ///   [`Keyspace::refilter`](crate::Keyspace::refilter).
    /// - The rest for open tables, filters and blocks. Tables and filters come first, and blocks have what these
    ///   leave, an eighth of it at least. Where filters do not fit, those are in memory that answer most for their size, ribbon
    ///   filters as far as only half of their columns; lookups in the tables of the others read a page of a filter.
    ///
    /// What a caller holds on to (values, iterators with the blocks and memtables that these keep alive, batches) is
    /// the caller's, and not counted. Nor is a block or a chunk of a long value for each table that a lookup or a job
    /// is just reading; nor the bounds of tables; nor what the logs hold in a store that is opened for reading, which
    /// cannot flush it. Opening for writing flushes as the memtables fill, however much the logs hold.
    /// [`Stats::memory`](crate::Stats) has the parts and their sum.
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Opens for reading: writes nothing at all, not even a lock file. Many readers or one writer have a
    /// store open at a time. What is in the logs is read into memory, all of it, whatever the memory budget.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Whether a missing store is created; it is by default.
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Threads that flush and compact; 2 by default. With 0 nothing happens in the background: the caller
    /// drives it with [`Db::step`], and a writer that would have to wait does a step itself.
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads;
        self
    }

    /// Size of all logs together, in bytes, at which keyspaces that hold old ones back are flushed; by default
    /// (and with 0) half the memory budget. It bounds the time that opening after a crash takes, and the memory of a store that
    /// is opened for reading then.
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Self {
        self.log_bytes_max = bytes;
        self
    }

    /// Most table files open at a time; 256 by default. More tables than that are reopened when needed.
    #[must_use]
    pub fn open_files_max(mut self, files: usize) -> Self {
        self.open_files_max = files;
        self
    }

    /// Whether a filter that cannot be used is an error to the reader who would ask it; by default it means
    /// "maybe", and the reader gets the answer from the data. Either way it is counted, reported and rebuilt
    /// in the background; after that readers get answers again. Scans ask no filter, and
    /// [`Db::may_contain`] never fails.
    #[must_use]
    pub fn strict_filters(mut self, strict: bool) -> Self {
        self.strict_filters = strict;
        self
    }

    /// Holds one in so many "absent" answers of filters against the data of the table, with a read; by default
    /// (and with 0) none. A filter that is found wrong is not believed any more: the answer is that of the data,
    /// the error is counted and reported, and the filter rebuilt. Where the data cannot be read, the lookup
    /// fails with that error.
    #[must_use]
    pub fn audit_absent(mut self, one_in: u64) -> Self {
        self.audit_absent = one_in;
        self
    }

    /// Options of the default keyspace. Without them a new store takes the defaults and an existing one
    /// keeps those it has; with them an existing one changes over.
    #[must_use]
    pub fn default_keyspace(mut self, options: KeyspaceOptions) -> Self {
        self.default_keyspace = Some(options);
        self
    }

    /// The file system to work on; the machine's own by default.
    #[must_use]
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.memory_budget < 1 << 20 {
            return Err(Error::invalid("memory_budget is below 1 MiB"));
        }
        if self.open_files_max < 8 {
            return Err(Error::invalid("open_files_max is below 8"));
        }
        if self.background_threads > 256 {
            return Err(Error::invalid("background_threads is above 256"));
        }
        self.default_keyspace.as_ref().map_or(Ok(()), KeyspaceOptions::validate)
    }

    pub(crate) fn logs_bytes(&self) -> u64 {
        if self.log_bytes_max > 0 { self.log_bytes_max } else { self.memory_budget as u64 / 2 }
    }
}

/// Immutable memtables a keyspace may have waiting before writers must wait.
pub(crate) const IMMUTABLES_MAX: usize = 3;

impl KeyspaceOptions {
    pub(crate) fn memtable_bytes_in(&self, memory_budget: usize) -> usize {
        let bytes =
            if self.memtable_bytes > 0 { self.memtable_bytes } else { (memory_budget / 16).min(64 << 20) };
        // All memtables together may hold a quarter: one alone is flushed then at the latest.
        bytes.min(memory_budget / 4)
    }

    pub(crate) fn shape(&self, memory_budget: usize) -> Shape {
        let memtable_bytes = self.memtable_bytes_in(memory_budget) as u64;
        Shape {
            l0_runs: self.l0_runs,
            level_base_bytes: if self.level_base_bytes > 0 {
                self.level_base_bytes
            } else {
                memtable_bytes.saturating_mul(4)
            },
            level_ratio: self.level_ratio,
            table_bytes: self.table_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterKind, FilterPolicy};

    #[test]
    fn a_memtable_is_never_more_than_a_quarter_of_the_budget() {
        let huge = KeyspaceOptions::new().memtable_bytes(usize::MAX);
        assert_eq!(huge.memtable_bytes_in(1 << 20), 1 << 18);
        assert_eq!(huge.shape(1 << 20).level_base_bytes, 1 << 20);
        assert!(huge.shape(usize::MAX).level_base_bytes >= 1 << 62, "nor does it overflow");
    }

    #[test]
    fn options_out_of_range_are_invalid_arguments() {
        for options in [
            Options::new().memory_budget(0),
            Options::new().open_files_max(1),
            Options::new().default_keyspace(KeyspaceOptions::new().block_bytes(1)),
            Options::new().default_keyspace(KeyspaceOptions::new().level_ratio(1)),
            Options::new().default_keyspace(
                KeyspaceOptions::new().filter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(f64::NAN)),
            ),
        ] {
            assert!(matches!(options.validate(), Err(Error::InvalidArgument { .. })), "{options:?}");
        }
    }
}
