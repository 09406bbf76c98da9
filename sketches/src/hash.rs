//! The hash of all structures. Frozen: part of the format, as hash id 1.
//!
//! A key is hashed once, by XXH3-64 with the structure's seed ([`key_hash`]). Two structures can be combined
//! or compared only if they have the same seed. Keep the seed secret if keys come from untrusted sources;
//! publish it if structures are exchanged. Functions named `.._hash` take that hash, so a program with
//! several structures of one seed hashes each key once. All bits of a hash must be as good as random: do not
//! pass counters or pointers.

pub use sievedb_filter::hash::{key_hash, reduce};

use sievedb_filter::hash::table_hash;

/// Hash id 1 of the header: [`key_hash`], then [`spread`].
pub const HASH_ID: u8 = 1;

/// 2^64 divided by the golden ratio; odd.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash that places a key: the filter crate's table hash with salt 0.
///
/// It keeps a structure's bits independent of the caller's other uses of the hash, such as sharding by its
/// high bits.
#[inline]
#[must_use]
pub fn spread(hash: u64) -> u64 {
    table_hash(hash, 0)
}

/// Hash number `n` of a key, independent of the others; number 0 is [`spread`].
#[inline]
#[must_use]
pub fn nth(hash: u64, n: u64) -> u64 {
    table_hash(hash, n.wrapping_mul(STEP))
}

/// A second hash from a spread hash. No part of it is a linear function of the high bits of the first.
#[inline]
#[must_use]
pub fn remix(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_pinned_by_vectors() {
        assert_eq!(key_hash(0, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(spread(1), STEP);
        assert_eq!(nth(7, 0), spread(7));
        assert_eq!(nth(STEP, 1), 0);
        assert_eq!(remix(1), 0xd6e8_feb8_6659_fd93);
    }
}
