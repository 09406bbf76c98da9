//! Options of a store and of its keyspaces, and how the latter are written down in the manifest.
//!
//! The units below have small configurations of their own; this file composes them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::codec::{CRITICAL, DecodeError, Reader, put_field, put_u64, put_varint};
use crate::compaction::pick::Shape;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::filter::{FilterAllocation, FilterKind, FilterPolicy, FilterSize};
use crate::fs::{Fs, StdFs};
use crate::manifest::edit::LEVELS;
use crate::table::Compression;

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

/// How one keyspace keeps its data. Kept in the store; see [`Db::keyspace`](crate::Db::keyspace).
#[derive(Debug, Clone, PartialEq)]
pub struct KeyspaceOptions {
    pub(crate) filter: FilterPolicy,
    pub(crate) block_bytes: usize,
    pub(crate) compression: [Compression; LEVELS],
    pub(crate) table_bytes: u64,
    /// 0: a share of the memory budget.
    pub(crate) memtable_bytes: usize,
    pub(crate) l0_runs: usize,
    /// 0: four memtables.
    pub(crate) level_base_bytes: u64,
    pub(crate) level_ratio: u64,
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        let mut compression = [Compression::Lz4; LEVELS];
        compression[..2].fill(Compression::None);
        Self {
            filter: FilterPolicy::default(),
            block_bytes: 4 << 10,
            compression,
            table_bytes: 64 << 20,
            memtable_bytes: 0,
            l0_runs: 4,
            level_base_bytes: 0,
            level_ratio: 10,
        }
    }
}

impl KeyspaceOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Which filters new tables get; about 10 bits per key by default.
    #[must_use]
    pub fn filter(mut self, policy: FilterPolicy) -> Self {
        self.filter = policy;
        self
    }

    /// Size of a data block before compression, in bytes: 512 to 1 MiB, 4 KiB by default. An entry is never
    /// split, so a block may be longer.
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// The same compression for all levels.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = [compression; LEVELS];
        self
    }

    /// Compression of one level (0 to 6). By default levels 0 and 1 have none and the others LZ4.
    /// A level that does not exist is ignored.
    #[must_use]
    pub fn compression_at(mut self, level: usize, compression: Compression) -> Self {
        if let Some(slot) = self.compression.get_mut(level) {
            *slot = compression;
        }
        self
    }

    /// Length at which a table is cut, in bytes; 64 MiB by default.
    #[must_use]
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.table_bytes = bytes;
        self
    }

    /// Size at which the memtable is flushed, in bytes; by default a sixteenth of the memory budget, at most
    /// 64 MiB. It is never more than a quarter of the memory budget.
    #[must_use]
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// Runs in level 0 at which it is compacted; 4 by default.
    #[must_use]
    pub fn l0_runs(mut self, runs: usize) -> Self {
        self.l0_runs = runs;
        self
    }

    /// Size of level 1 in bytes; four memtables by default.
    #[must_use]
    pub fn level_base_bytes(mut self, bytes: u64) -> Self {
        self.level_base_bytes = bytes;
        self
    }

    /// How much larger than the level above it a level may be; 10 by default.
    #[must_use]
    pub fn level_ratio(mut self, ratio: u64) -> Self {
        self.level_ratio = ratio;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        self.filter.validate()?;
        if !(512..=1 << 20).contains(&self.block_bytes) {
            return Err(Error::invalid("block_bytes is not between 512 and 1 MiB"));
        }
        if self.table_bytes < 1 << 10 {
            return Err(Error::invalid("table_bytes is below 1 KiB"));
        }
        if !(1..=1000).contains(&self.l0_runs) || !(2..=1000).contains(&self.level_ratio) {
            return Err(Error::invalid(
                "l0_runs is not between 1 and 1000 or level_ratio not between 2 and 1000",
            ));
        }
        Ok(())
    }

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

// Field numbers of a keyspace's options in the manifest, shifted left by one; append only, see format.md.
const COMPARATOR: u64 = 1 << 1 | CRITICAL;
const HASH_DOMAIN: u64 = 2 << 1 | CRITICAL;
const FILTER: u64 = 3 << 1;
const BLOCK_BYTES: u64 = 4 << 1;
const COMPRESSION: u64 = 5 << 1;
const SHAPE: u64 = 6 << 1;
const HINTS: u64 = 7 << 1;

/// Hint: lookups are for keys that are there.
const EXPECT_HITS: u64 = 1;

/// The only order of keys so far: as bytes.
const BYTEWISE: u64 = 1;
/// The only thing filters hash so far: whole user keys.
const WHOLE_KEY: u64 = 0;

impl KeyspaceOptions {
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_field(&mut out, COMPARATOR, |out| put_varint(out, BYTEWISE));
        put_field(&mut out, HASH_DOMAIN, |out| put_varint(out, WHOLE_KEY));
        put_field(&mut out, FILTER, |out| {
            let (code, number) = match self.filter.size {
                FilterSize::FalsePositiveRate(rate) => (1, rate),
                FilterSize::BitsPerKey(bits) => (0, bits),
                _ => unreachable!("every size has a code"),
            };
            out.extend_from_slice(&[
                kind_code(self.filter.kind),
                code,
                allocation_code(self.filter.allocation),
            ]);
            put_u64(out, number.to_bits());
        });
        if self.filter.expect_hits {
            put_field(&mut out, HINTS, |out| put_varint(out, EXPECT_HITS));
        }
        put_field(&mut out, BLOCK_BYTES, |out| put_varint(out, self.block_bytes as u64));
        put_field(&mut out, COMPRESSION, |out| out.extend(self.compression.iter().map(|kind| *kind as u8)));
        put_field(&mut out, SHAPE, |out| {
            let shape = [
                self.table_bytes,
                self.memtable_bytes as u64,
                self.l0_runs as u64,
                self.level_base_bytes,
                self.level_ratio,
            ];
            shape.iter().for_each(|&number| put_varint(out, number));
        });
        out.into()
    }

    /// Decodes the options of a keyspace. What is unknown or out of range in a field that is not critical
    /// falls back to the default: it decides how new tables are written, not how old ones are read.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut options = Self::default();
        let mut hints = 0;
        let mut reader = Reader::new(bytes);
        while let Some(mut field) = reader.field()? {
            let payload = &mut field.reader;
            match field.tag {
                COMPARATOR => expect(payload.varint("comparator")?, BYTEWISE, "comparator")?,
                HASH_DOMAIN => expect(payload.varint("hash domain")?, WHOLE_KEY, "hash domain")?,
                FILTER => options.filter = decode_filter(payload)?.unwrap_or_default(),
                BLOCK_BYTES => options.block_bytes = size(payload, "block bytes")?,
                COMPRESSION => {
                    for slot in &mut options.compression {
                        *slot = Compression::from_u8(payload.u8("compression")?).unwrap_or(Compression::None);
                    }
                }
                SHAPE => {
                    options.table_bytes = payload.varint("table bytes")?;
                    options.memtable_bytes = size(payload, "memtable bytes")?;
                    options.l0_runs = size(payload, "level 0 runs")?;
                    options.level_base_bytes = payload.varint("level base bytes")?;
                    options.level_ratio = payload.varint("level ratio")?;
                }
                HINTS => hints = payload.varint("hints")?,
                _ => field.skip_unknown()?,
            }
        }
        options.filter.expect_hits = hints & EXPECT_HITS != 0;
        Ok(if options.validate().is_ok() { options } else { Self::default() })
    }
}

/// A number whose range is checked later; one that the machine cannot hold is as good as the largest.
fn size(reader: &mut Reader<'_>, what: &'static str) -> Result<usize, DecodeError> {
    Ok(usize::try_from(reader.varint(what)?).unwrap_or(usize::MAX))
}

fn expect(found: u64, known: u64, what: &'static str) -> Result<(), DecodeError> {
    if found == known { Ok(()) } else { Err(DecodeError::unsupported(0, what, found, known)) }
}

/// The code of a filter kind in a policy: that of the filter block, 0 for none and 255 for "choose".
fn kind_code(kind: FilterKind) -> u8 {
    match kind {
        FilterKind::None => 0,
        FilterKind::Bloom => 1,
        FilterKind::BlockedBloom => 2,
        FilterKind::Ribbon => 3,
        FilterKind::Auto => 255,
        _ => unreachable!("every kind has a code"),
    }
}

fn allocation_code(allocation: FilterAllocation) -> u8 {
    match allocation {
        FilterAllocation::Uniform => 0,
        FilterAllocation::Optimal => 1,
        _ => unreachable!("every allocation has a code"),
    }
}

fn decode_filter(reader: &mut Reader<'_>) -> Result<Option<FilterPolicy>, DecodeError> {
    let kind = reader.u8("filter kind")?;
    let kind = FilterKind::ALL.into_iter().find(|known| kind_code(*known) == kind);
    let code = reader.u8("filter size code")?;
    let allocation = reader.u8("filter allocation")?;
    let allocation =
        [FilterAllocation::Uniform, FilterAllocation::Optimal].get(usize::from(allocation)).copied();
    let number = f64::from_bits(reader.u64("filter size")?);
    let (Some(kind), Some(allocation)) = (kind, allocation) else { return Ok(None) };
    let policy = FilterPolicy::new(kind).allocation(allocation);
    let policy = match code {
        0 => policy.bits_per_key(number),
        1 => policy.false_positive_rate(number),
        _ => return Ok(None),
    };
    Ok(policy.validate().is_ok().then_some(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspace_options_come_back() {
        let options = KeyspaceOptions::new()
            .filter(FilterPolicy::new(FilterKind::Bloom).false_positive_rate(0.004).expect_hits(true))
            .block_bytes(16 << 10)
            .compression(Compression::None)
            .compression_at(6, Compression::Lz4)
            .table_bytes(1 << 20)
            .memtable_bytes(1 << 19)
            .l0_runs(2)
            .level_base_bytes(1 << 21)
            .level_ratio(4);
        assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
        let default = KeyspaceOptions::default();
        assert_eq!(KeyspaceOptions::decode(&default.encode()), Ok(default));
    }

    #[test]
    fn every_kind_of_filter_has_its_code_and_comes_back() {
        assert_eq!(FilterKind::ALL.map(kind_code), [0, 255, 1, 2, 3]);
        for kind in FilterKind::ALL {
            let options = KeyspaceOptions::new().filter(FilterPolicy::new(kind).bits_per_key(7.5));
            assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options), "{kind:?}");
        }
    }

    #[test]
    fn another_order_of_keys_is_refused_and_a_strange_filter_is_not() {
        let mut other = Vec::new();
        put_field(&mut other, COMPARATOR, |out| put_varint(out, 2));
        assert!(KeyspaceOptions::decode(&other).is_err());
        let mut strange = Vec::new();
        put_field(&mut strange, FILTER, |out| out.extend_from_slice(&[200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(KeyspaceOptions::decode(&strange), Ok(KeyspaceOptions::default()));
        for size in [0, 1 << 23, u64::MAX] {
            let mut strange = Vec::new();
            put_field(&mut strange, BLOCK_BYTES, |out| put_varint(out, size));
            assert_eq!(KeyspaceOptions::decode(&strange), Ok(KeyspaceOptions::default()), "{size}");
        }
    }

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
