//! A version: the tables of a tree at one moment. Immutable; an edit makes the next one.
//!
//! It has [`LEVELS`](crate::manifest::edit::LEVELS) levels of runs. The tables of a run are sorted and do not
//! overlap. Level 0 has a run per flush, newest first; each deeper level has at most one. The newer of two entries of
//! a key is in the upper level, or in the newer run.
//!
//! - `handle`: a table, its counters and files; `open_tables` closes some;
//! - `filter`, `filter_state`, `filter_load`: the filter of a table, its part in memory, loading it;
//! - `run`, `version`: the tables of a run, and all runs;
//! - `table_lookup`, `lookup`, `lookup_many`: lookups in a table, in a version, and in batches;
//! - `resident_spans`, `table_spans`: the range deletes of a table.
//!
//! Readers hold a version, and thereby its [`TableHandle`]s and their files
//! ([`obsolete_files`](crate::obsolete_files)).

mod filter;
mod filter_load;
mod filter_state;
mod handle;
mod lookup;
mod lookup_many;
mod open_tables;
mod resident_spans;
mod run;
mod table_lookup;
mod table_spans;
#[expect(clippy::module_inception, reason = "the folder is about versions, and this file has the type")]
mod version;

#[cfg(any(test, fuzzing))]
pub(crate) use filter_load::read_filter;
pub(crate) use filter_state::FilterState;
pub(crate) use handle::{OpenTables, SharedByTables, TableHandle};
pub(crate) use lookup_many::{Lookups, Set, TOGETHER};
pub(crate) use run::Run;
pub(crate) use table_lookup::Lookup;
pub(crate) use version::Version;

#[cfg(test)]
pub(crate) use filter::REBUILDS_MAX;
#[cfg(test)]
pub(crate) use handle::tests::handle;
#[cfg(test)]
pub(crate) use version::VISITED;
