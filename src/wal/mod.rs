//! The framed log: records in a file that may end anywhere. The write-ahead log and the manifest use it.
//!
//! Power may be lost while a log is appended to, so its end may be incomplete. A reader must distinguish two cases
//! that look the same locally: a *torn tail*, never promised to be durable, which is dropped and reported; and
//! *corruption* of promised data, which must stop the store.
//!
//! 1. The file is divided into pages of 32 KiB and a record into fragments that never cross a page's end
//!    ([`record`]). Each fragment's checksum is bound to the file and to the fragment's offset. So a damaged
//!    length hides nothing: reading can resume at every page, and within a page at every multiple of 8.
//! 2. Each fragment states `synced`: the offset up to which the writer *knew* the file to be durable when it
//!    framed this fragment ([`writer`]). `synced` is never beyond the fragment itself.
//! 3. The reader stops at the first damage, at offset `d`, and searches everything after it ([`reader`]). An
//!    intact fragment with `synced > d` proves that the damaged bytes were once durable: corruption. If there
//!    is none, the damage lies above every promise: a torn tail, even if intact fragments follow, since a
//!    power loss may keep a later sector and lose an earlier one.
//!
//! A log may be longer than its records. Trailing zeros are not damage.
//!
//! In a file that syncs every record before it appends the next one (the manifest), this protects all but
//! the last record. In a log in which nothing follows a sync, a promise record protects the synced records.
//!
//! Invariant behind rule 3: [`FramedWriter`] counts as synced only whole fragments that it has appended to the
//! file, so no promise ever covers half of one.
//!
//! This module decodes promises ([`durable_mark`]); batches are in [`crate::batch`], edits in
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

pub(crate) use boundary::{Boundary, decode_boundaries, encode_boundaries};
pub(crate) use content::{Content, ContentReader};
pub(crate) use durable_mark::{EditMark, decode_close, decode_promise, encode_close, encode_promise};
pub(crate) use reader::{Ending, Expected, FramedReader, READER_BYTES};
pub(crate) use record::RecordKind;
pub(crate) use sequence::{Refused, Sequence};
pub(crate) use writer::FramedWriter;
