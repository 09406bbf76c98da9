//! The framed log: records in a file that may end anywhere, for the write-ahead log and the manifest.
//!
//! After a power loss, a reader must distinguish a *torn tail*, which was never promised to be durable, from
//! *corruption* of promised data.
//!
//! 1. The file is divided into pages of 32 KiB, and a record into fragments that never cross a page end ([`record`]).
//!    Checksums are bound to the file and the offset. After a damaged length, reading can therefore resume at every
//!    multiple of 8.
//! 2. Each fragment states `synced`: an offset, at most its own, up to which the writer *knew* the file to be durable
//!    ([`writer`]).
//! 3. The reader stops at the first damage, at offset `d`, and searches the rest of the file ([`reader`]). An intact
//!    fragment with `synced > d` proves corruption. Otherwise the damage is a torn tail, even if intact fragments
//!    follow: a power loss may keep a later sector and lose an earlier one.
//!
//! The manifest syncs every record before it appends the next, so all records but the last are protected. If no record
//! follows a sync in a log, a promise record is appended to protect the synced records.
//!
//! Invariant behind rule 3: [`FramedWriter`] counts only whole appended fragments as synced.

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
