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
//! A walker for each kind of file reads it once, front to back, and passes [`Event`]s to a [`Sink`]. [`Text`] prints
//! them, another sink may count them or make JSON of them, and `Db::verify` collects the damage. First come facts
//! about the whole file, then the bytes, then the sums that must agree; the [`Report`] states whether everything did.
//!
//! | folder or file | noun |
//! |---|---|
//! | `output` | events and damage, the writer of events, events as text; how much of them is wanted |
//! | `file` | a file through one buffer; the header of every file; `CURRENT` |
//! | `extensible` | records of tagged fields |
//! | `framed` | the walk over records; logs and manifests, which are made of them |
//! | `filter_block` | filter blocks, wherever they are |
//! | `table` | the walk over the blocks of a table, and the index, chunks and filters that are followed with it |
//! | `describe` | what is this file? |
//! | `verify` | the damage of a table, a log or a manifest of a store, for `Db::verify` |
//! | `probe` | filters probed with keys: proved, measured |
//! | `salvage` | what is left of a damaged table, log or manifest, for `Options::repair` |
//! | `tree` | the shape of a whole store, and of its tables |
//!
//! A part imports only from the parts above it.
//!
//! # What holds for every file
//!
//! - It is only read: nothing is locked, created or changed. A file that is being written is described as
//!   long as it was when it was opened.
//! - For any bytes there is no panic. The memory is two blocks of 4 MiB and ten of an index, a record or an index of a
//!   backup of up to 64 MiB, or a filter of up to 256 MiB, and a few words for each index block and each chunk of one value. The time is
//!   linear in the length of the file, with a bounded search after damage.
//! - Damage is reported at its position, with the keys that it can concern, and the walk continues after it. A
//!   damaged block that may be a part of a long value is reported with the key of that value, which follows it.
//! - The hash seed of a store is a secret; only [`View::secrets`] shows it. Keys and values are shown.

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
