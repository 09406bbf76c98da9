//! The engine: an open store, its handles, and the flows between the layers below.
//!
//! A room is a folder with one responsibility. Its files import from their own room and from rooms in earlier rows of this
//! table; the rooms of one row do not import from each other. The tests in `testing/layers` enforce that. The last column
//! follows from it, or is a convention.
//!
//! | room | responsibility | never |
//! |---|---|---|
//! | `state/` | what an open store consists of | starts work |
//! | `latencies` | how long calls and jobs take, as histograms | decides anything |
//! | `queues/` | who waits for what: writers, jobs, work that failed; conditions of batches as data | does the work |
//! | `engine` | assembles both, and decides which failure ends writing | |
//! | `read/` | lookups, and the sources of scans | changes what later reads return |
//! | `build/` | new tables from a memtable or from compaction inputs | publishes them |
//! | `generation/` | which log and which manifest are in force; edits of the manifest | runs background jobs, enters the commit queue |
//! | `commit/` | one commit group, as its leader carries it out | runs background jobs |
//! | `jobs/`, `open/` | background work, and calls that wait for it; from files to an open store | |
//! | `copy/` | checkpoints, the list of files to copy | changes the store that it copies |
//! | `write/` | a write in the thread of its caller: wait, queue, look again | writes to the log or to a memtable |
//! | `handles/` | what users call | |
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
