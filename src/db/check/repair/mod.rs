//! Repairs a damaged store into a new one.
//!
//! | file | what happens there |
//! |---|---|
//! | `survey` | what is there: manifest, tables, logs |
//! | `plan` | which tables count, in which order, how certain that is |
//! | `logs`, `spill` | the writes of the logs, sorted by the new store |
//! | `reused_seqnos` | which of them have failed, as newer logs show |
//! | `sources`, `merge` | tables and writes merged, key by key, into the new store |
//! | `range_deletes` | those of tables and logs, and what they leave of an entry |
//! | `run` | the whole of it |
//! | `report` | what is gone, and what is doubtful |
//!
//! Three rules:
//!
//! - The damaged store is only read.
//! - What goes to a keyspace of the old name is certain as of a sequence number that the report states: no
//!   write up to that one deleted or replaced it. Without lost writes it is the last one. All else that can
//!   be read goes to a keyspace `doubtful`.
//! - What is lost is reported, as ranges of keys or as sequence numbers.

mod logs;
mod losses;
mod merge;
mod plan;
mod range_deletes;
mod report;
mod reused_seqnos;
mod run;
mod sources;
mod spill;
mod survey;
#[cfg(test)]
mod tests;

pub use report::{
    DoubtfulKeys, LostEntries, LostRange, LostWrites, ManifestCondition, RepairReport, RepairedKeyspace,
};
pub use run::RepairProgress;
