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
mod block;
mod file_header;
mod iter;
mod table_meta;
// Layer 3: files.
mod cache;
pub mod fs;
mod table;

pub use batch::WriteBatch;
pub use block::Compression;
pub use codec::{DecodeError, DecodeErrorKind};
pub use error::{Error, Result};
