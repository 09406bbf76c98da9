//! The framed log: records in a file that may end anywhere, as the write-ahead log and the manifest use it.
//!
//! A log is the one kind of file whose end is not known to be good: power may be lost while it is appended
//! to. A reader must therefore tell two things apart that look the same where they lie: a *torn tail*, which
//! nobody was promised and which is dropped (and reported), and *corruption*, which destroys what somebody
//! was promised and which must stop the store.
//!
//! 1. The file is divided into pages of 32 KiB and a record into fragments that never cross a page's end
//!    ([`record`]). Each fragment's checksum is bound to the file and to the fragment's offset. So a damaged
//!    length hides nothing: every page is a place to begin again, and within a page every multiple of 8 is.
//! 2. Each fragment states `synced`: up to which offset the writer *knew* the file to be durable when it
//!    framed this fragment ([`writer`]). `synced` is never beyond the fragment itself.
//! 3. The reader stops at the first damage, at offset `d`, and looks at everything after it ([`reader`]). An
//!    intact fragment with `synced > d` proves that the damaged bytes were once durable: corruption. If there
//!    is none, the damage lies above every promise: a torn tail, even if intact fragments follow, since a
//!    power loss may keep a later sector and lose an earlier one.
//!
//! A writer may make a log longer than what is in it. The zeros behind the last record are no damage.
//!
//! A file whose every record is synced before the next one is appended (the manifest) so protects all but
//! its last record. A log in which nothing follows a sync protects what was synced by a promise record.
//!
//! The invariant that makes rule 3 sound: [`FramedWriter`] takes as synced only what it has handed to the
//! file, whole fragments, so no promise ever covers half of one.
//!
//! Of what records hold this module knows promises ([`durable_mark`]); batches are in [`crate::batch`], edits in
//! [`crate::manifest::edit`].

mod boundary;
mod content;
mod durable_mark;
#[cfg(test)]
pub(crate) mod format_vectors;
mod log_checksums;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod search;
mod sequence;
mod writer;

pub(crate) use boundary::Boundary;
#[cfg(any(test, fuzzing))]
pub(crate) use boundary::{decode_boundaries, encode_boundaries};
pub(crate) use content::{Content, ContentReader};
pub(crate) use durable_mark::{EditMark, decode_close, decode_promise, encode_close, encode_promise};
pub(crate) use reader::{Ending, Expected, FramedReader, READER_BYTES};
pub(crate) use record::RecordKind;
pub(crate) use sequence::{Refused, Sequence};
pub(crate) use writer::FramedWriter;
