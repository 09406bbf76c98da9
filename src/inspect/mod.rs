//! Describes files of a store: their kinds and the meaning of each byte.
//!
//! ```
//! use sievedb::inspect::{self, Text, View};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # sievedb::Db::open(dir.path())?.close()?;
//! let bytes = std::fs::read(dir.path().join("CURRENT")).unwrap();
//! let mut text = Text::new(Vec::new());
//! let report = inspect::describe_bytes(&bytes, &View::new(), &mut text).unwrap();
//! assert!(report.is_intact());
//! assert!(String::from_utf8(text.into_inner()).unwrap().starts_with("CURRENT, 96 bytes"));
//! # Ok::<(), sievedb::Error>(())
//! ```
//!
//! A walker for each kind of file passes [`Event`]s to a [`Sink`]. [`Text`] prints them; the [`Report`] has the result.
//!
//! | folder or file | noun |
//! |---|---|
//! | `output` | events, damage, their writer, text; the selected detail |
//! | `file` | a file through one buffer; the common header; `CURRENT` |
//! | `extensible` | records of tagged fields |
//! | `framed` | logs and manifests |
//! | `filter_block` | filter blocks |
//! | `table` | tables |
//! | `describe` | the entry points, by kind of file |
//! | `verify` | the damage of a table, a log or a manifest, for `Db::verify` |
//! | `probe` | a filter probed with the keys of its table and with absent keys |
//! | `salvage` | the readable part of a damaged table, log or manifest, for `Options::repair` |
//! | `tree` | the shape of a store and its tables |
//!
//! A part imports only from the parts above it.
//!
//! # Invariants
//!
//! - Files are read without a lock, up to their length at opening, and never changed.
//! - No input causes a panic. Memory is bounded: blocks of 4 MiB, records and backup indexes of 64 MiB, filters of 256 MiB, a few
//!   words per index block and per chunk of one value. Time is linear in the file, plus a bounded search after damage.
//! - Damage is reported with its position and the keys that it may affect; the walk continues.
//! - Only [`View::secrets`] shows the store's hash seed. Keys and values are shown.

mod describe;
mod extensible;
mod file;
mod filter_block;
mod framed;
mod output;
mod probe;
mod salvage;
mod table;
pub mod tree;
mod verify;

#[cfg(test)]
pub(crate) mod tests;

pub use describe::{describe, describe_bytes, describe_filter, kind_of};
pub use output::{
    Detail, Entries, Entry, Event, FileDamage, Keys, Kind, Place, Report, Sink, Span, Stop, Text, Value,
    View, escape, verdict,
};
pub use probe::{Measured, Sample, Trouble, Verified, measure_filter, verify_filter};
pub(crate) use salvage::{
    LogItem, ManifestRemains, TableFacts, TableStream, as_errors, read_log, read_manifest,
};
pub(crate) use verify::{verify_framed, verify_table};
