//! The engine: an open store, its handles, and the flows between the layers below.

mod build;
mod check;
mod commit;
pub(in crate::db) mod engine;
mod generation;
mod handles;
mod jobs;
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
pub use handles::conditional::answers::{Mismatch, NewKeys};
pub use handles::iteration::cursor::Cursor;
pub use handles::iteration::iter::{Iter, Keys, LazyIter, LazyValue, Values};
pub use handles::keyspace::Keyspace;
pub use handles::snapshot::{KeyspaceSnapshot, Snapshot};
pub use handles::stats::store_stats::{KeyspaceStats, LevelStats, Stats};
pub use handles::store::Db;
pub use queues::value::Value;
pub use state::durability::Durability;
pub use state::open_report::{DroppedTail, IgnoredFile, OpenReport};
pub use state::progress::Progress;
pub use transaction::handle::{KeyspaceTransaction, Transaction};
pub use transaction::indexed_batch::{BatchView, IndexedBatch, ReadHandle};
pub use write::completion::Commit;
