//! The manifest: the durable description of the tree, as a log of version edits.
//!
//! `edit` has the items of an edit, `state` the result of edits, `log` the manifest file, `overlap` the check of runs,
//! `current` the name of the manifest, `keyspace_options` the options of a keyspace.

pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod keyspace_options;
pub(crate) mod log;
pub(crate) mod overlap;
pub(crate) mod state;
