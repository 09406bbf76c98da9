//! A version: which tables make up a tree, at one moment. It never changes; an edit makes the next one.
//!
//! A version has [`LEVELS`](crate::manifest::edit::LEVELS) levels, a level has runs, a run has tables that
//! are sorted and do not overlap. Level 0 has a run per flush, newest first; a level below it has at most one
//! run. Of two entries of a key the one in the upper level, and within a level the one in the newer run, is
//! the newer.
//!
//! | file | what is in it |
//! |---|---|
//! | `handle` | a table of the tree: opened when first needed, with its counters and files |
//! | `open_tables` | the queue of open tables, from which some are closed to make room for others |
//! | `filter_state` | what of a filter is in memory |
//! | `filter` | the filter of a table: its state, and whether it can be used |
//! | `filter_load` | loading a filter: as much as there is room for, or a given number of column groups |
//! | `run` | tables that do not overlap, and the search for the one of a key |
//! | `version` | all runs of a tree |
//! | `table_lookup` | a point lookup in one table |
//! | `resident_spans` | the range deletes of a table, in memory |
//! | `table_spans` | the same of a handle, which reads them if they are not there |
//! | `lookup` | a point lookup in all of them |
//! | `lookup_many` | lookups of many keys together |
//!
//! Readers hold a version and with it its [`TableHandle`]s. A table's file is removed only when a manifest
//! edit has dropped the table *and* the last version that names it is gone
//! ([`ObsoleteFiles`](crate::obsolete_files)); so is the file of a filter.

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
