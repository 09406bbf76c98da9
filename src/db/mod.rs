//! The engine: an open store, its handles, and the flows between the layers below.
//!
//! | file | what happens there |
//! |---|---|
//! | `engine` | the state that all handles share, in groups; closing |
//! | `files`, `keyspaces`, `health` | groups of it: directory, keyspaces, failure that disabled writing |
//! | `open`, `recover`, `log_part`, `replay_to_memtables` | from files to an open store |
//! | `begin` | the new files of a store that was closed, before its first change |
//! | `write`, `queue`, `apply`, `log`, `pressure` | group commit, memtables, durability, back-pressure |
//! | `completion` | commits whose durability is told later: callbacks, futures |
//! | `attempt`, `decide`, `departed`, `pop` | writes that depend on what is there |
//! | `read`, `snapshot` | lookups; sequence numbers that compactions respect |
//! | `iter`, `cursor`, `sources` | iteration: what is made of the entries; what they are read from |
//! | `sizes` | estimates of the number and the size of entries |
//! | `tree`, `memtables` | one keyspace: memtables and version, published as a view; the memtables of all |
//! | `background`, `pending` | the next job; which keyspaces have work |
//! | `reservations`, `jobs`, `parallel` | what running jobs work on; flush, compaction, its parts in threads |
//! | `retry`, `resume` | work that failed and is tried again; new files after an append that failed |
//! | `refilter` | new filters for existing tables |
//! | `maintain`, `compact`, `progress` | calls that wait for background work, or do it themselves |
//! | `publish` | the one place where the tree changes |
//! | `keyspace`, `store` | the public handles |
//! | `reads`, `value` | the calls that read, of all handles; what they return |
//! | `writes`, `conditional`, `answers` | the calls that write one key, of all handles; what they return |
//! | `transaction` | batches that can be read, transactions |
//! | `stats`, `stats_text`, `verify` | counters, as text; checks |
//! | `repair` | a new store from what is left of a damaged one |

mod answers;
mod apply;
mod attempt;
mod background;
mod begin;
mod bits;
mod compact;
mod completion;
mod conditional;
mod cursor;
mod decide;
mod departed;
mod engine;
mod files;
mod health;
mod iter;
mod jobs;
mod key_copies;
mod keyspace;
mod keyspaces;
pub(crate) mod log;
mod log_part;
mod maintain;
mod memtables;
mod next_log;
mod open;
mod open_all;
mod parallel;
mod pending;
mod pop;
mod pressure;
mod progress;
mod publish;
mod queue;
mod read;
mod read_many;
mod reads;
#[cfg(test)]
mod reads_tell;
mod recover;
mod refilter;
mod repair;
mod replay_to_memtables;
mod reservations;
mod reserve;
mod residency;
mod resume;
mod retry;
mod schedule;
mod sizes;
mod snapshot;
mod sources;
mod stats;
mod stats_text;
mod store;
mod transaction;
mod tree;
mod tries;
mod value;
mod verify;
mod write;
mod writes;

pub use answers::{Mismatch, NewKeys};
pub use completion::Commit;
pub use cursor::Cursor;
pub use iter::{Iter, Keys, LazyIter, LazyValue, Values};
pub use keyspace::Keyspace;
pub use open::{DroppedTail, IgnoredFile, OpenReport};
pub use progress::Progress;
pub use repair::{
    DoubtfulKeys, LostEntries, LostRange, LostWrites, ManifestCondition, RepairProgress, RepairReport,
    RepairedKeyspace,
};
pub use snapshot::{KeyspaceSnapshot, Snapshot};
pub use stats::{KeyspaceStats, LevelStats, Stats};
pub use store::Db;
pub use transaction::{BatchView, IndexedBatch, KeyspaceTransaction, ReadHandle, Transaction};
pub use value::Value;
pub use verify::{Concerned, Damage, DamagedKeys, VerifyProgress, VerifyReport};
pub use write::Durability;
