//! The hash of all structures. Frozen: part of the format.
//!
//! A key is hashed once, by XXH3-64 with the structure's seed ([`key_hash`]), which must be secret if keys are untrusted.
//! Functions named `.._hash` take a hash of random bits: do not pass counters or pointers.

pub use sievedb_filter::hash::{key_hash, reduce};

use sievedb_filter::hash::table_hash;

/// Hash id 1 of the header: [`key_hash`], then [`spread`].
pub const HASH_ID: u8 = 1;

/// 2^64 divided by the golden ratio.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash that places a key: the filter crate's table hash with salt 0.
#[inline]
#[must_use]
pub fn spread(hash: u64) -> u64 {
    table_hash(hash, 0)
}

/// Hash number `n` of a key; number 0 is [`spread`].
#[inline]
#[must_use]
pub fn nth(hash: u64, n: u64) -> u64 {
    table_hash(hash, n.wrapping_mul(STEP))
}

/// A second hash that is not linear in the high bits of the first.
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
