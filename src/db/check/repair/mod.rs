//! Repairs a damaged store into a new one.
//!
//! | file | responsibility |
//! |---|---|
//! | `survey` | finds the manifest, tables and logs |
//! | `plan` | selects and orders the tables, with their certainty |
//! | `logs`, `spill` | the writes of the logs, sorted in the new store |
//! | `reused_seqnos` | failed writes, detected by newer logs |
//! | `sources`, `merge` | merge tables and writes by key into the new store |
//! | `range_deletes` | range deletes of tables and logs |
//! | `run` | the whole repair |
//! | `report` | lost and doubtful entries |

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
