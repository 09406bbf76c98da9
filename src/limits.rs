//! Every limit of the format and of the interface, in one place. Sizes are bytes.

/// Longest user key: 64 KiB. The empty key is a key like any other.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Longest value: 256 MiB.
pub const VALUE_BYTES_MAX: usize = 256 << 20;

/// Longest batch, counted as its encoded bytes: 1 GiB.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Longest name of a keyspace, in bytes of UTF-8.
pub const KEYSPACE_NAME_BYTES_MAX: usize = 255;

/// Most keyspaces that exist at one time.
pub const KEYSPACES_MAX: usize = 65_536;

/// Values longer than this are stored in separate chunk blocks, not in the data block.
pub const VALUE_INLINE_MAX: usize = 32 << 10;

/// Length of a chunk of such a value, before compression; the last one may be shorter.
pub const VALUE_CHUNK_BYTES: usize = 1 << 20;

/// Largest block, before and after compression: the most that a reader allocates for one.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;

/// Largest number of a file; the smallest is 1.
pub const FILE_NUMBER_MAX: u64 = (1 << 62) - 1;

/// Largest sequence number: 56 bits, so that it shares a word with the entry kind.
pub const SEQNO_MAX: u64 = (1 << 56) - 1;

/// Longest bound of a table that the manifest stores in full; a longer one is trimmed and flagged.
pub const BOUND_BYTES_MAX: usize = 1 << 10;
