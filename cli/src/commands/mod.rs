//! One file per command.

pub(crate) mod backup;
pub(crate) mod backups;
pub(crate) mod cas;
pub(crate) mod checkpoint;
pub(crate) mod compact;
pub(crate) mod completion;
pub(crate) mod contains;
pub(crate) mod count;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod digest;
pub(crate) mod drop_keyspace;
pub(crate) mod get;
pub(crate) mod keyspaces;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod put;
pub(crate) mod refilter;
pub(crate) mod repair;
pub(crate) mod report;
pub(crate) mod restore;
pub(crate) mod scan;
pub(crate) mod stats;
pub(crate) mod uniq;
pub(crate) mod verify;
mod watch;
