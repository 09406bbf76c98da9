//! The manifest: the durable description of the tree, as a log of version edits.

pub(crate) mod current;
pub(crate) mod edit;
pub(crate) mod keyspace_options;
pub(crate) mod log;
pub(crate) mod overlap;
pub(crate) mod state;
