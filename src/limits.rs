//! The limits of the format and of the interface. Sizes are bytes.

/// Longest key: 64 KiB.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest value: 256 MiB.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Longest encoded batch: 1 GiB.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Longest name of a keyspace, in bytes of UTF-8.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// Most keyspaces at one time.
pub const KEYSPACES_MAX: usize = 65_536;

/// Longer values are stored in chunk blocks.
pub const VALUE_INLINE_MAX: usize = 32 << 10;

/// Length of a chunk before compression, except the last one of a value.
pub const VALUE_CHUNK_BYTES: usize = 1 << 20;

/// Largest block, before and after compression.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Largest file number; the smallest is 1.
pub const FILE_NUMBER_MAX: u64 = (1 << 62) - 1;

/// Largest sequence number: 56 bits.
pub const SEQNO_MAX: u64 = (1 << 56) - 1;

/// Longest bound of a table in the manifest. A longer bound is trimmed and flagged.
pub const BOUND_BYTES_MAX: usize = 1 << 10;
