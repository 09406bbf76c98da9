//! Options of a store.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::compaction::shape::Shape;
use crate::db::SimulatedClock;
use crate::error::{Error, Result};
use crate::fs::{Fs, MemoryLimit, StdFs, memory_limit, open_files_limit};
pub use crate::manifest::keyspace_options::KeyspaceOptions;

const DEFAULT_BUDGET_MAX: u64 = 512 << 20;

const BUDGET_MIN: u64 = 1 << 20;

/// Source of the memory budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BudgetSource {
    /// The default, 512 MiB.
    #[default]
    Default,
    /// [`Options::memory_budget`].
    Option,
    /// A quarter of the memory limit of the process's control group.
    Cgroup,
    /// A quarter of the memory of the machine.
    Machine,
}

fn default_budget(root: &Path) -> (usize, BudgetSource) {
    let default = (DEFAULT_BUDGET_MAX as usize, BudgetSource::Default);
    let Some(limit) = memory_limit(root).filter(|limit| limit.bytes() / 4 < DEFAULT_BUDGET_MAX) else {
        return default;
    };
    let source = match limit {
        MemoryLimit::Cgroup(_) => BudgetSource::Cgroup,
        MemoryLimit::Machine(_) => BudgetSource::Machine,
    };
    ((limit.bytes() / 4).max(BUDGET_MIN) as usize, source)
}

/// Opens a `Db` for reading. A pointer, so that a program without readers does not link their code.
pub(crate) type OpenReader = fn(&Path, Options) -> Result<Box<dyn Any>>;

/// Options for opening a store. With the feature `serde`, options are serialized under the names of their methods; the
/// file system is not serialized.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let options = sievedb::Options::new().memory_budget(64 << 20).background_threads(1);
/// let db = options.open(dir.path())?;
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) reader: Option<OpenReader>,
    pub(crate) create: bool,
    pub(crate) create_among_other_files: bool,
    pub(crate) memory_budget: usize,
    pub(crate) budget_source: BudgetSource,
    pub(crate) memtable_budget: Option<usize>,
    pub(crate) background_threads: usize,
    pub(crate) log_bytes_max: u64,
    /// `None`: derived from the size of the store's files.
    pub(crate) reserve_bytes: Option<u64>,
    pub(crate) open_files_max: Option<usize>,
    pub(crate) strict_filters: bool,
    pub(crate) audit_absent: u64,
    pub(crate) latency_histograms: bool,
    pub(crate) default_keyspace: Option<KeyspaceOptions>,
    pub(crate) clock: Option<SimulatedClock>,
}

impl Default for Options {
    fn default() -> Self {
        static BUDGET: OnceLock<(usize, BudgetSource)> = OnceLock::new();
        let (memory_budget, budget_source) = *BUDGET.get_or_init(|| default_budget(Path::new("/")));
        Self {
            fs: Arc::new(StdFs),
            reader: None,
            create: true,
            create_among_other_files: false,
            memory_budget,
            budget_source,
            memtable_budget: None,
            background_threads: 2,
            log_bytes_max: 0,
            reserve_bytes: None,
            open_files_max: None,
            strict_filters: false,
            audit_absent: 0,
            latency_histograms: false,
            default_keyspace: None,
            clock: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("read_only", &self.reader.is_some())
            .field("create", &self.create)
            .field("create_among_other_files", &self.create_among_other_files)
            .field("memory_budget", &self.memory_budget)
            .field("budget_source", &self.budget_source)
            .field("memtable_budget", &self.memtable_budget)
            .field("background_threads", &self.background_threads)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("reserve_bytes", &self.reserve_bytes)
            .field("open_files_max", &self.open_files_max)
            .field("strict_filters", &self.strict_filters)
            .field("audit_absent", &self.audit_absent)
            .field("latency_histograms", &self.latency_histograms)
            .field("default_keyspace", &self.default_keyspace)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The default options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the memory in bytes for everything that grows with data, at least 1 MiB. The default is 512 MiB, or a
    /// quarter of the memory of the machine or of the process's control group (Linux) if that is less.
    /// [`OpenReport`](crate::OpenReport::memory_budget) has the budget in force.
    ///
    /// The [guide](crate::guide::memory) describes the parts and the memory that is not counted;
    /// [`Stats::memory`](crate::Stats) has their sizes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().memory_budget(64 << 20).open(dir.path())?;
    /// assert_eq!(db.stats().memory.budget, 64 << 20);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self.budget_source = BudgetSource::Option;
        self
    }

    /// Sets the part of [`Options::memory_budget`] for memtables, in bytes, from 64 KiB to five eighths of the budget.
    /// The default is a quarter. A larger part makes fewer and larger tables, but longer logs, and leaves less memory
    /// for filters.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().memory_budget(64 << 20).memtable_budget(8 << 20).open(dir.path())?;
    /// assert_eq!(db.stats().memory.memtables_max, 8 << 20);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn memtable_budget(mut self, bytes: usize) -> Self {
        self.memtable_budget = Some(bytes);
        self
    }

    /// Whether [`Options::open`] creates a missing store. Default: true.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let missing = sievedb::Options::new().create_if_missing(false).open(dir.path());
    /// assert!(matches!(missing, Err(sievedb::Error::NoStore { .. })));
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether a store may be created in a directory with files of other programs. By default, creating one fails with
    /// [`Error::OtherFiles`], because the path is probably a mistake.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// std::fs::write(dir.path().join("notes.txt"), "")?;
    /// let refused = sievedb::Options::new().open(dir.path());
    /// assert!(matches!(refused, Err(sievedb::Error::OtherFiles { .. })));
    /// let db = sievedb::Options::new().create_among_other_files(true).open(dir.path())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn create_among_other_files(mut self, create: bool) -> Self {
        self.create_among_other_files = create;
        self
    }

    /// Sets the number of threads that flush and compact, at most 256. The default is 2. With 0,
    /// [`Db::step`](crate::Db::step) does this work, or a writer does it instead of waiting.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().background_threads(0).open(dir.path())?;
    /// assert!(!db.step()?, "there is nothing to do yet");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads;
        self
    }

    /// Sets the maximum total size of the logs, in bytes. If the logs are larger, the keyspaces with unflushed entries
    /// in the oldest logs are flushed. This limits the time to open. The default, 0, means twice
    /// [`Options::memtable_budget`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().log_bytes_max(16 << 20).open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn log_bytes_max(mut self, bytes: u64) -> Self {
        self.log_bytes_max = bytes;
        self
    }

    /// Sets the length of the file `RESERVE`, in bytes, which keeps disk space from other programs; 0 means no file.
    /// The default is an eighth of the size of the store's files, between 1 MiB and 64 MiB, but at most three times the
    /// space needed to accept puts. On a nearly full disk, it is shorter, down to the space needed to open the store.
    /// If the file system does not report its free space, the default is five quarters of the space needed for puts.
    ///
    /// The file is removed when the disk is full, and created again later: see
    /// [`errors`](crate::guide::errors#a-full-disk).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().reserve_bytes(16 << 20).open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = Some(bytes);
        self
    }

    /// Sets the maximum number of open table files, at least 8. The default is a quarter of the process's limit
    /// (`RLIMIT_NOFILE`), at most 1024; without a reported limit, it is 256. Tables beyond this number are closed, and
    /// reopened when needed.
    ///
    /// With [`Options::read_only`], the maximum applies to table and filter files together; the default is half of the
    /// process's limit. A read of a file that is not held open returns [`Error::Changed`](crate::Error::Changed) if the
    /// writer has removed the file.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().open_files_max(64).open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn open_files_max(mut self, files: usize) -> Self {
        self.open_files_max = Some(files);
        self
    }

    /// Whether a lookup fails if it needs an unusable filter. By default, it reads the data instead. In both cases,
    /// the event is counted and reported, and the filter is rebuilt. Scans probe no filters, and
    /// [`Db::may_contain`](crate::Db::may_contain) never fails.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().strict_filters(true).open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn strict_filters(mut self, strict: bool) -> Self {
        self.strict_filters = strict;
        self
    }

    /// Compares one in `one_in` "absent" answers of filters with the table's data, at the cost of a read; 0, the
    /// default, checks none. A wrong filter is reported, counted and rebuilt; the lookup answers from the data, or
    /// fails if the data cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().audit_absent(1000).open(dir.path())?;
    /// assert_eq!(db.stats().audit_failures, 0);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn audit_absent(mut self, one_in: u64) -> Self {
        self.audit_absent = one_in;
        self
    }

    /// Whether durations of calls and background jobs are collected ([`Stats::latencies`](crate::Stats::latencies)).
    /// Default: false. Collecting takes 3 to 11 instructions per call and 356 KiB of [`Options::memory_budget`], which
    /// must be at least 4 MiB. All calls are counted. Synced writes, flushes and compactions are always timed, other
    /// calls one time in 64.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = sievedb::Options::new().latency_histograms(true).open(dir.path())?;
    /// db.put("k", "v")?;
    /// let latencies = db.stats().latencies.expect("they are on");
    /// assert_eq!(latencies.write.count, 1);
    /// println!("99 % of the writes took at most {:?}", latencies.write.p99);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn latency_histograms(mut self, on: bool) -> Self {
        self.latency_histograms = on;
        self
    }

    /// Sets the options of the keyspace `"default"`. For an existing store, this acts like
    /// [`Keyspace::set_options`](crate::Keyspace::set_options). By default, a new store uses the default options, and
    /// an existing store keeps its options.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use sievedb::{Compression, KeyspaceOptions, Options};
    ///
    /// let plain = KeyspaceOptions::new().compression(Compression::None);
    /// let db = Options::new().default_keyspace(plain).open(dir.path())?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn default_keyspace(mut self, options: KeyspaceOptions) -> Self {
        self.default_keyspace = Some(options);
        self
    }

    /// Sets the clock of expiry, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, clock: SimulatedClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the file system of the store. The default is the operating system's.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sievedb::fs::MemFs;
    ///
    /// let db = sievedb::Options::new().fs(Arc::new(MemFs::new())).open("a store in memory")?;
    /// db.put("k", "v")?;
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn fs(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if (self.memory_budget as u64) < BUDGET_MIN {
            return Err(Error::invalid("memory_budget is below 1 MiB"));
        }
        if self.memtable_budget.is_some_and(|bytes| bytes < MEMTABLE_BUDGET_MIN) {
            return Err(Error::invalid("memtable_budget is below 64 KiB"));
        }
        if self.memtables_max() > self.memory_budget / 8 * 5 {
            return Err(Error::invalid("memtable_budget is above five eighths of memory_budget"));
        }
        if self.latency_histograms && self.memory_budget < HISTOGRAMS_BUDGET_MIN {
            return Err(Error::invalid("memory_budget is below 4 MiB, which latency_histograms needs"));
        }
        if self.open_files_max.is_some_and(|files| files < 8) {
            return Err(Error::invalid("open_files_max is below 8"));
        }
        if self.background_threads > 256 {
            return Err(Error::invalid("background_threads is above 256"));
        }
        self.default_keyspace.as_ref().map_or(Ok(()), KeyspaceOptions::validate)
    }

    pub(crate) fn open_files(&self) -> usize {
        let of_limit = || open_files_limit().map_or(256, |limit| (limit / 4).clamp(8, 1024) as usize);
        self.open_files_max.unwrap_or_else(of_limit)
    }

    pub(crate) fn view_files_max(&self) -> usize {
        let of_limit =
            || open_files_limit().map_or(1024, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
        self.open_files_max.unwrap_or_else(of_limit)
    }

    pub(crate) fn memtables_max(&self) -> usize {
        self.memtable_budget.unwrap_or(self.memory_budget / 4)
    }

    pub(crate) fn logs_bytes(&self) -> u64 {
        if self.log_bytes_max > 0 { self.log_bytes_max } else { self.memtables_max() as u64 * 2 }
    }
}

const MEMTABLE_BUDGET_MIN: usize = 64 << 10;

const HISTOGRAMS_BUDGET_MIN: usize = 4 << 20;

pub(crate) const IMMUTABLES_MAX: usize = 3;

impl KeyspaceOptions {
    pub(crate) fn memtable_bytes_in(&self, memtables_max: usize, disk_part: u64) -> usize {
        let default = || (memtables_max / 2).min(64 << 20).min(disk_part as usize);
        let bytes = if self.memtable_bytes > 0 { self.memtable_bytes } else { default() };
        bytes.min(memtables_max)
    }

    pub(crate) fn shape(&self, memtables_max: usize, disk_part: u64) -> Shape {
        let memtable_bytes = self.memtable_bytes_in(memtables_max, disk_part) as u64;
        Shape {
            l0_runs: self.l0_runs,
            level_base_bytes: if self.level_base_bytes > 0 {
                self.level_base_bytes
            } else {
                memtable_bytes.saturating_mul(4)
            },
            level_ratio: self.level_ratio,
            table_bytes: self.table_bytes.min(disk_part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_budget_is_a_quarter_of_a_small_limit_and_the_report_says_where_it_comes_from() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(default_budget(root.path()), (512 << 20, BudgetSource::Default));
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/meminfo", "MemTotal: 1048576 kB\n");
        assert_eq!(default_budget(root.path()), (256 << 20, BudgetSource::Machine));
        write("proc/self/cgroup", "0::/\n");
        write("sys/fs/cgroup/memory.max", "104857600\n");
        assert_eq!(default_budget(root.path()), (25 << 20, BudgetSource::Cgroup));
        write("sys/fs/cgroup/memory.max", "1\n");
        assert_eq!(default_budget(root.path()), (1 << 20, BudgetSource::Cgroup), "the least budget");

        let fs = || Options::new().fs(Arc::new(crate::fs::MemFs::new())).background_threads(0);
        let default = fs().open("/db").unwrap().open_report().clone();
        let expected = default_budget(Path::new("/"));
        assert_eq!((default.memory_budget as usize, default.memory_budget_from), expected);
        let set = fs().memory_budget(8 << 20).open("/db").unwrap().open_report().clone();
        assert_eq!((set.memory_budget, set.memory_budget_from), (8 << 20, BudgetSource::Option));
    }
    use crate::filter::{FilterKind, FilterPolicy};

    #[test]
    fn a_memtable_is_never_more_than_all_memtables_may_take() {
        let huge = KeyspaceOptions::new().memtable_bytes(usize::MAX);
        assert_eq!(huge.memtable_bytes_in(1 << 18, u64::MAX), 1 << 18);
        assert_eq!(huge.shape(1 << 18, u64::MAX).level_base_bytes, 1 << 20);
        assert!(huge.shape(usize::MAX, u64::MAX).level_base_bytes >= 1 << 62, "nor does it overflow");
        let small_disk = KeyspaceOptions::new().shape(64 << 20, 1 << 20);
        assert_eq!((small_disk.level_base_bytes, small_disk.table_bytes), (4 << 20, 1 << 20));
        assert_eq!(huge.memtable_bytes_in(1 << 30, 1 << 20), 1 << 30, "only the default depends on the disk");
    }

    #[test]
    fn memtables_have_a_quarter_of_the_budget_or_what_is_set_and_blocks_have_the_rest() {
        use crate::memory::Memory;
        let parts = |options: Options| {
            options.validate().unwrap();
            let memory = Memory::new(options.memory_budget, options.memtables_max());
            let flushed_at = KeyspaceOptions::new().memtable_bytes_in(options.memtables_max(), u64::MAX);
            (
                memory.memtables_max() >> 10,
                flushed_at >> 10,
                options.logs_bytes() >> 10,
                memory.room_briefly() >> 10,
            )
        };
        let options = || Options::new().memory_budget(8 << 20);
        assert_eq!(parts(options()), (2048, 1024, 4096, 5120));
        assert_eq!(parts(options().memtable_budget(64 << 10)), (64, 32, 128, 7104));
        assert_eq!(parts(options().memtable_budget(5 << 20)), (5120, 2560, 10240, 2048));
    }

    #[test]
    fn options_out_of_range_are_invalid_arguments() {
        for options in [
            Options::new().memory_budget(0),
            Options::new().memtable_budget((64 << 10) - 1),
            Options::new().memory_budget(8 << 20).memtable_budget((5 << 20) + 1),
            Options::new().memtable_budget(usize::MAX),
            Options::new().open_files_max(1),
            Options::new().memory_budget((4 << 20) - 1).latency_histograms(true),
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
