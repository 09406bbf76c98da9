//! Blocks: the units of a table file. This module does no I/O.
//!
//! ```text
//! table file   file header · block* · filter block? · block* · footer
//! block        envelope (kind, compression, lengths, checksum) · payload
//! payload      entries · hash index? · restart offsets       of data and index blocks
//!              bytes                                         of value chunks, properties and padding
//! ```
//!
//! - [`envelope`](mod@envelope) seals a payload for one offset of one file, and opens it.
//! - [`builder`](mod@builder) and [`iter`](mod@iter) write and read entries; in an index block, values are block
//!   handles.
//! - [`find`](mod@find) is a point lookup; [`fences`](mod@fences) caches the separators of an index block.
//! - [`trailer`](mod@trailer) encodes the restarts and the hash index.
//! - [`handle`](mod@handle) and [`chunk_ref`](mod@chunk_ref) refer to blocks.
//! - [`separator`](mod@separator) chooses the keys of the index.
//!
//! Invariant: a payload may be hostile, because anyone can compute a checksum. Offsets and lengths are checked before
//! use.

mod builder;
mod chunk_ref;
mod entry;
mod envelope;
mod fences;
mod find;
mod handle;
mod iter;
mod separator;
mod trailer;
mod value;
mod walk;

pub(crate) use builder::BlockBuilder;
pub(crate) use chunk_ref::ChunkRef;
pub use envelope::Compression;
pub(crate) use envelope::{BlockKind, ENVELOPE_BYTES, Envelope, Sealer, open, unseal};
pub(crate) use fences::{Fences, Sought};
#[cfg(any(test, fuzzing))]
pub(crate) use find::Found;
pub(crate) use find::{find, find_user_key};
pub(crate) use handle::BlockHandle;
pub(crate) use iter::{BlockIter, PlainEntry};
pub(crate) use separator::{separator, separator_of_last};
pub(crate) use trailer::Trailer;
pub(crate) use value::BlockValues;
pub(crate) use walk::{WalkedEntry, walk_entries};
