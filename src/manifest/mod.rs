//! The manifest: the durable description of the tree, as a log of version edits.
//!
//! `edit` has the items of an edit and their encoding, `state` the result of a sequence of edits, `log` the manifest
//! file, `overlap` the check for overlapping tables of one run, `current` the file that names the current
//! manifest, `keyspace_options` the options of a keyspace.

pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod keyspace_options;
pub(crate) mod log;
pub(crate) mod overlap;
pub(crate) mod state;
