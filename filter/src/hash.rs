//! The hash of a user key, the base of every filter. Frozen: part of the file format.
//!
//! A lookup computes one [`key_hash`] for all tables: XXH3-64 with a random, secret seed of the store, so
//! that outsiders cannot prepare colliding keys. Each filter mixes it with the salt of its table
//! ([`table_hash`]), which makes the false positives of two tables independent.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hash id 1 of the filter header: [`key_hash`] followed by [`table_hash`].
pub const HASH_ID: u8 = 1;

/// Multiplier of [`table_hash`]: 2^64 divided by the golden ratio, odd.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of a user key in a store with this secret seed.
#[inline]
pub fn key_hash(seed: u64, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// The hash of one table's filter: the 128-bit product of (hash ^ salt) and a constant, folded.
///
/// Adding only the salt would not suffice. A filter places a key by the high bits of its hash. Under any
/// affine function (a sum, an exclusive or, a multiplication, a rotation), two hashes that are close under
/// one salt are close under every salt, so keys that collide in one table would collide in the next. In the
/// product, the low half depends on the low bits and the high half on all bits. Their exclusive or is linear
/// neither in sums nor in single bits, so equal differences do not remain equal under another salt.
#[inline]
pub fn table_hash(hash: u64, salt: u64) -> u64 {
    let product = u128::from(hash ^ salt) * u128::from(MIX);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Maps a hash to `0..n` by its high bits (Lemire's multiply-shift), without a division.
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
