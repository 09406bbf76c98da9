//! The hash of a user key. Frozen: part of the file format.
//!
//! A lookup computes one [`key_hash`] for all tables: XXH3-64 with a secret seed, which prevents prepared collisions.
//! Each filter mixes it with its salt ([`table_hash`]), so false positives are independent between tables.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash id 1: [`key_hash`], then [`table_hash`].
pub const HASH_ID: u8 = 1;

/// 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the hash of a user key.
#[inline]
pub fn key_hash(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// Returns the hash for one table's filter: the 128-bit product of (hash ^ salt) and a constant, folded.
///
/// Filters place keys by the high bits of the hash. An affine function (sum, exclusive or, multiplication, rotation)
/// would keep close hashes close under every salt, so keys would collide in every table.
#[inline]
pub fn table_hash(hash: u64, salt: u64) -> u64 {
    let product = u128::from(hash ^ salt) * u128::from(MIX);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Maps a hash to `0..n` by its high bits (Lemire).
#[inline]
pub fn reduce(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_pinned_by_vectors() {
        assert_eq!(key_hash(0, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(table_hash(0, 0), 0);
        assert_eq!(table_hash(1, 0), MIX);
        // (2^64 - 1) * MIX = MIX * 2^64 - MIX, so the halves are MIX - 1 and -MIX.
        assert_eq!(table_hash(u64::MAX, 0), (MIX - 1) ^ MIX.wrapping_neg());
    }

    #[test]
    fn reduce_stays_below_n() {
        for n in [1, 2, 3, 1000, u64::MAX] {
            assert!(reduce(u64::MAX, n) < n);
            assert_eq!(reduce(0, n), 0);
        }
    }
}
