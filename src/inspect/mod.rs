//! Looks at files of a store: says what a file is and what each byte of it means.
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
//! A walker for each kind of file goes through it once, front to back, and hands [`Event`]s to a [`Sink`]:
//! [`Text`] prints them, another may count them or make JSON of them, and `Db::verify` collects the damage.
//! First come facts about the whole, then the bytes, then the sums that must agree; the [`Report`]
//! says whether everything did.
//!
//! | file | noun |
//! |---|---|
//! | `event` | what a description is made of |
//! | `view` | how much of it is wanted |
//! | `describe` | what is this file? |
//! | `head` | the header of every file; `CURRENT` |
//! | `framed`, `record`, `log`, `manifest`, `items` | the walk over records, one of them, and what they hold |
//! | `table`, `footer_and_properties`, `block` | tables, their two ends, their blocks |
//! | `scan`, `index`, `chunks`, `block_totals` | what a block holds, what leads to it, what all of them add up to |
//! | `filter_vs_keys` | the filters of a table, held against its keys |
//! | `collect` | the damage of a table, a log or a manifest of a store, for `Db::verify` |
//! | `search` | the way on behind damage |
//! | `salvage` | what is left of a damaged table or log, for `Options::repair` |
//! | `filter`, `filter_facts` | filter blocks; what a summary says of them |
//! | `filter_hints`, `survey` | what must be found in one, what is found |
//! | `fields` | extensible records |
//! | `tree`, `shapes` | the shape of a whole store, and of its tables |
//! | `probe` | filters asked for keys: proved, measured |
//! | `out`, `annotate` | the writer of events; fields, each an event as it is read |
//! | `window`, `lines` | a file through one buffer; how many of many lines are shown |
//! | `text`, `words` | events as text |
//!
//! # What holds for every file
//!
//! - It is only read: nothing is locked, created or changed. A file that is being written is described as
//!   long as it was when it was opened.
//! - Whatever the bytes are: no panic, and memory for two blocks of 4 MiB and ten of an index, a record of up
//!   to 64 MiB, or a filter of up to 256 MiB, and a few words for each index block and each chunk of one
//!   value; time linear in the length of the file, and a bounded search behind damage.
//! - Damage is reported where it lies, with the keys that it can concern, and the walk goes on behind it. A
//!   damaged block that may be a part of a long value is reported with the key of that value, which stands
//!   behind it.
//! - The hash seed of a store is a secret, and is not shown unless [`View::secrets`] asks for it. Keys and
//!   values are shown.

mod annotate;
mod block;
mod block_totals;
mod chunks;
mod collect;
mod describe;
mod event;
mod fields;
mod filter;
mod filter_facts;
mod filter_hints;
mod filter_vs_keys;
mod footer_and_properties;
mod framed;
mod head;
mod index;
mod items;
mod lines;
mod log;
mod manifest;
mod out;
mod probe;
mod record;
mod salvage;
mod scan;
mod search;
mod shapes;
mod survey;
mod table;
mod text;
pub mod tree;
mod view;
mod window;
mod words;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use collect::{verify_framed, verify_table};
pub use describe::{describe, describe_bytes, describe_filter, kind_of};
pub use event::{Entry, Event, FileDamage, Keys, Kind, Place, Report, Sink, Span, Value};
pub use out::Stop;
pub use probe::{Measured, Sample, Trouble, Verified, measure_filter, verify_filter};
pub(crate) use salvage::{LogItem, TableFacts, TableStream, as_errors, read_log};
pub use text::{Text, escape, verdict};
pub(crate) use tree::{ManifestRemains, read_manifest};
pub use view::{Detail, Entries, View};
