//! The manifest: the durable description of the tree, as a log of version edits.
//!
//! `edit` is the vocabulary and its bytes, `state` what a sequence of edits amounts to, `log` the file that
//! holds them, `current` the file that names the manifest in force, `keyspace_options` what keyspaces are kept by.

pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod keyspace_options;
pub(crate) mod log;
pub(crate) mod state;
