//! The manifest: the durable description of the tree, as a log of version edits.
//!
//! `edit` has the items of an edit and their bytes, `state` the result of a sequence of edits, `log` the file
//! that holds them, `overlap` the tables of one run that overlap, `current` the file that names the current
//! manifest, `keyspace_options` the options of a keyspace.

pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod keyspace_options;
pub(crate) mod log;
pub(crate) mod overlap;
pub(crate) mod state;
