//! The engine: an open store, its handles, and the flows between the layers below.
//!
//! A room is a folder. A file imports from its own room and from rooms in earlier rows; `testing/layers` enforces
//! this.
//!
//! | room | responsibility | never |
//! |---|---|---|
//! | `state/` | state of an open store | queues or runs jobs |
//! | `latencies` | latency histograms | decides anything |
//! | `queues/` | queues of writers, jobs and failed work; conditions of batches | does the work |
//! | `engine` | the shared state of an open store; final failures | |
//! | `read/` | lookups, and the sources of scans | changes later reads |
//! | `build/` | new tables | publishes them |
//! | `generation/` | edits, and replacement of log and manifest | runs background jobs, enters the commit queue |
//! | `commit/` | one commit group | runs background jobs |
//! | `jobs/`, `open/` | background work and waiting for it; from files to an open store | |
//! | `copy/` | checkpoints, lists of files | changes the copied store |
//! | `write/` | a write in its caller's thread | writes to the log or to a memtable |
//! | `handles/` | the public API | |
//! | `transaction/`, `check/` | transactions; verify, repair, the shape of the tree | |

mod build;
mod check;
mod commit;
mod copy;
pub(in crate::db) mod engine;
mod generation;
mod handles;
mod jobs;
mod latencies;
mod open;
mod queues;
mod read;
mod state;
mod transaction;
mod write;

pub use check::repair::{
    DoubtfulKeys, LostEntries, LostRange, LostWrites, ManifestCondition, RepairProgress, RepairReport,
    RepairedKeyspace,
};
pub use check::verify::{Concerned, Damage, DamagedKeys, VerifyProgress, VerifyReport};
pub use copy::live_files::LiveFile;
pub use handles::conditional::answers::{Mismatch, NewKeys};
pub use handles::copies::LiveFiles;
pub use handles::iteration::cursor::Cursor;
pub use handles::iteration::iter::{Iter, Keys, LazyIter, LazyValue, Values};
pub use handles::keyspace::Keyspace;
pub use handles::snapshot::{KeyspaceSnapshot, Snapshot};
pub use handles::stats::expiry_stats::{BucketStats, ExpiryStats};
pub use handles::stats::latency_stats::LatencyStats;
pub use handles::stats::store_stats::{KeyspaceStats, LevelStats, Stats};
pub use handles::store::Db;
pub use queues::value::Value;
pub use state::durability::Durability;
pub use state::expiry::clock::SimulatedClock;
pub use state::open_report::{AsOf, DroppedTail, IgnoredFile, OpenReport};
pub use state::progress::Progress;
pub use transaction::handle::{KeyspaceTransaction, Transaction};
pub use transaction::indexed_batch::{BatchView, IndexedBatch, ReadHandle};
pub use write::completion::Commit;
