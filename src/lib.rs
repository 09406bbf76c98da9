//! An embedded, ordered key-value store that answers "it is not there" from memory.

// Layer 0: bytes.
mod checksum;
mod codec;
mod error;
pub mod hash;
pub mod limits;
// Layer 1: keys.
mod batch;
mod key;
// Layer 2: units. Bytes in, bytes out, no files.
mod file_header;
pub mod filter;
mod iter;
mod memtable;
mod table_meta;
// Layer 3: files.
pub mod fs;
mod wal;
// Layer 4: the tree.
mod merge;
mod visible;

pub use batch::WriteBatch;
pub use codec::{DecodeError, DecodeErrorKind};
pub use error::{Error, Result};
