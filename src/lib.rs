//! An embedded, ordered key-value store that answers lookups of absent keys from memory.
//!
//! Start with [`Db`]. The [`guide`] covers durability, conditional writes, transactions, iteration, live reads,
//! filters, memory, errors and repair.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! let db = sievedb::Db::open(dir.path())?;
//! if db.insert_if_absent("https://example.org/", "seen")? {
//!     println!("never seen before, by any thread");
//! }
//! for item in db.prefix("https://") {
//!     let (url, value) = item?;
//! }
//! # Ok::<(), sievedb::Error>(())
//! ```

#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests spell out keys and the bytes that they expect")
)]

// Layer 0: bytes. Codec, checksum and hash are in the filter crate.
mod allocator;
mod counters;
mod error;
mod histogram;
pub mod limits;
mod number_map;
mod sorting;
mod sync;
// Layer 1: keys.
mod batch;
mod key;
// Layer 2: units, without files.
mod block;
mod file_header;
mod iter;
mod memtable;
mod spans;
mod table_meta;
// Layer 3: files.
mod cache;
mod expiry;
mod filename;
pub mod fs;
mod manifest;
mod memory;
mod table;
mod wal;
// Layer 4: the tree.
mod compaction;
mod merge;
mod obsolete_files;
mod snapshot_read;
mod version;
// Layer 5: the engine.
mod db;
mod options;
#[cfg(feature = "serde")]
mod serialized_options;

// In the engine, only `db/check` imports it.
pub mod inspect;
// Documents.
pub mod guide;
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(any(test, fuzzing))]
mod testing;
#[doc(inline)]
pub use sievedb_filter as filter;
pub use sievedb_filter::hash;
use sievedb_filter::{checksum, codec};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use testing::fuzzing;

pub use batch::WriteBatch;
pub use codec::{DecodeError, DecodeErrorKind};
pub use counters::FilterCounts;
#[doc(hidden)]
pub use db::SimulatedClock;
pub use db::{
    AsOf, BatchView, BucketStats, Commit, Concerned, Cursor, Damage, DamagedKeys, Db, DoubtfulKeys,
    DroppedTail, Durability, ExpiryStats, IgnoredFile, IndexedBatch, Iter, Keys, Keyspace, KeyspaceSnapshot,
    KeyspaceStats, KeyspaceTransaction, LatencyStats, LazyIter, LazyValue, LevelStats, LiveFile, LiveFiles,
    LostEntries, LostRange, LostWrites, ManifestCondition, Mismatch, NewKeys, OpenReport, Progress,
    ReadHandle, RepairProgress, RepairReport, RepairedKeyspace, Snapshot, Stats, Transaction, Value, Values,
    VerifyProgress, VerifyReport,
};
pub use error::{Error, Result};
pub use expiry::options::{Refresh, TimeSource};
pub use file_header::{FileHeader, FileKind};
pub use filter::{FilterAllocation, FilterKind, FilterPolicy};
pub use histogram::{CallLatency, LatencyBucket};
pub use memory::MemoryStats;
pub use options::{BudgetSource, KeyspaceOptions, Options};
pub use snapshot_read::KeyBounds;
pub use table::Compression;
