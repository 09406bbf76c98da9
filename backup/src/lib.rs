#![doc = include_str!("../README.md")]
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `error` | every error |
//! | `content` | the checksum and length of a file, which are its name in the repository |
//! | `index` | the index of a backup |
//! | `control` | progress, rate limit, cancellation |
//! | `repository` | the directory: names, listings, indexes |
//! | `stored` | a file of the repository, read and checked |
//! | `backup`, `restore`, `prune`, `verify` | one call each |
//!
//! A file imports only from files above it, and uses only the public interface of `sievedb`.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests spell out the bytes that they expect"))]

mod backup;
mod content;
mod control;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod index;
mod prune;
mod repository;
mod restore;
mod stored;
mod verify;

pub use backup::BackupReport;
pub use control::{Control, Progress, Stage};
pub use error::{Error, Result};
pub use prune::{PruneReport, UNUSED_SECONDS_MIN};
pub use repository::{Backup, Backups, Repository};
pub use restore::{Restore, RestoreReport};
pub use stored::DamagedFile;
pub use verify::VerifyReport;
