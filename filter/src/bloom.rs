//! Kind 1, the standard Bloom filter: each key sets `probes` of `bits` bits.
//!
//! Positions are computed from the table hash `h` by enhanced double hashing (Dillinger and Manolios 2004) in 64-bit
//! fixed point:
//!
//! ```text
//! x = h, y = remix(h) | 1, z = STEP
//! probe: bit reduce(x, bits), the high bits of x · bits         then x += y, y += z, z += STEP
//! ```
//!
//! Only the high bits of `x` matter, so `STEP` is an odd number near 2^64 divided by the golden ratio. With a small
//! `STEP`, a `y` near 0, 1/2 or 1/3 of 2^64 would probe few positions.
//!
//! Bit `i` is bit `i % 8` of byte `i / 8`. Bits of the last byte from `bits` on are 0.

use byteorder::{ByteOrder, LittleEndian};

#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;
use crate::hash::reduce;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const REMIX: u64 = 0xd6e8_feb8_6659_fd93;

/// The number of bits read before the first is tested.
const GROUP: u8 = 3;

/// If a filter is sized by its keys, its bits are a multiple of this number.
pub(super) const GRANULE_BITS: u64 = 64;

/// Maximum number of probes of any kind.
pub(super) const PROBES_MAX: u8 = 30;

/// Entry `k - 1` is the largest size, in thousandths of a bit per key, at which `k` probes are best, from `(1 - e^(-k/b))^k =
/// (1 - e^(-(k+1)/b))^(k+1)`. Frozen: part of the format.
const MILLIBITS: [u32; 29] = [
    2078, 3556, 5013, 6464, 7912, 9358, 10803, 12248, 13692, 15136, 16580, 18023, 19467, 20910, 22353, 23796,
    25240, 26683, 28126, 29569, 31012, 32455, 33898, 35340, 36783, 38226, 39669, 41112, 42555,
];

/// Returns a second hash that is not linear in the high bits of the first.
#[inline]
pub(super) fn remix(hash: u64) -> u64 {
    (hash ^ (hash >> 32)).wrapping_mul(REMIX)
}

pub(super) fn best_probes(millibits: u32) -> u8 {
    1 + MILLIBITS.partition_point(|&most| most < millibits) as u8
}

/// `(1 - e^(-k/b))^k`.
pub(super) fn rate(bits_per_key: f64, probes: u8) -> f64 {
    let probes = f64::from(probes);
    (-(-probes / bits_per_key).exp_m1()).powf(probes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bloom {
    pub(super) bits: u64,
    pub(super) probes: u8,
}

impl Bloom {
    #[inline]
    pub(super) fn locate(hash: u64) -> (u64, u64) {
        (hash, remix(hash) | 1)
    }

    pub(super) fn insert(self, body: &mut [u8], hash: u64) {
        self.positions(Self::locate(hash)).for_each(|bit| body[(bit >> 3) as usize] |= 1 << (bit & 7));
    }

    /// Bits outside `body` count as set. Bits are tested in groups, because half of the branches would be mispredicted.
    #[inline]
    pub(super) fn test(self, body: &[u8], (mut x, mut y): (u64, u64)) -> bool {
        let mut z = STEP;
        let mut probe = 0;
        while probe < self.probes {
            let mut all = 1;
            for _ in 0..GROUP {
                let bit = reduce(x, self.bits);
                let byte = body.get((bit >> 3) as usize).copied().unwrap_or(u8::MAX);
                all &= byte >> (bit & 7) | u8::from(probe >= self.probes);
                (x, y, z) = (x.wrapping_add(y), y.wrapping_add(z), z.wrapping_add(STEP));
                probe += 1;
            }
            if all & 1 == 0 {
                return false;
            }
        }
        true
    }

    #[inline]
    pub(super) fn first_byte(self, (x, _): (u64, u64)) -> usize {
        (reduce(x, self.bits) >> 3) as usize
    }

    pub(super) fn ends_with_zeros(self, body: &[u8]) -> bool {
        body.last().is_none_or(|&last| self.bits.is_multiple_of(8) || last >> (self.bits % 8) == 0)
    }

    #[inline]
    pub(super) fn positions(self, (mut x, mut y): (u64, u64)) -> impl Iterator<Item = u64> {
        let mut z = STEP;
        (0..self.probes).map(move |_| {
            let bit = reduce(x, self.bits);
            x = x.wrapping_add(y);
            y = y.wrapping_add(z);
            z = z.wrapping_add(STEP);
            bit
        })
    }

    /// `(ones / bits)^probes`, in units of 2^-64.
    pub(super) fn stored_rate(self, body: &[u8]) -> u64 {
        power(fraction(all_ones(body), self.bits), self.probes)
    }
}

pub(super) fn all_ones(body: &[u8]) -> u64 {
    body.chunks(8).map(|word| u64::from(ones(word))).sum()
}

#[inline]
pub(super) fn ones(word: &[u8]) -> u32 {
    let mut bytes = [0; 8];
    bytes[..word.len()].copy_from_slice(word);
    LittleEndian::read_u64(&bytes).count_ones()
}

pub(crate) fn rate_of(units: u64) -> f64 {
    const UNITS: f64 = (1u128 << 64) as f64;
    units as f64 / UNITS
}

/// Returns the fraction in units of 2^-64, at most 2^64 - 1.
pub(super) fn fraction(part: u64, whole: u64) -> u64 {
    u64::try_from((u128::from(part) << 64) / u128::from(whole.max(1))).unwrap_or(u64::MAX)
}

/// Computes in units of 2^-64. Products are rounded down; `exponent` is at least 1.
pub(super) fn power(base: u64, exponent: u8) -> u64 {
    (1..exponent).fold(base, |product, _| ((u128::from(product) * u128::from(base)) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits per key, and the rates for 1 to 8 probes, from "Summary Cache" (Fan and others 2000).
    const SUMMARY_CACHE: [(f64, [f64; 8]); 16] = [
        (2.0, [0.393, 0.400, 0.469, 0.559, 0.652, 0.736, 0.807, 0.863]),
        (3.0, [0.283, 0.237, 0.253, 0.294, 0.351, 0.418, 0.490, 0.562]),
        (4.0, [0.221, 0.155, 0.147, 0.160, 0.185, 0.220, 0.263, 0.312]),
        (5.0, [0.181, 0.109, 0.0918, 0.0920, 0.101, 0.116, 0.138, 0.165]),
        (6.0, [0.154, 0.0804, 0.0609, 0.0561, 0.0578, 0.0638, 0.0734, 0.0865]),
        (7.0, [0.133, 0.0618, 0.0423, 0.0359, 0.0347, 0.0364, 0.0403, 0.0463]),
        (8.0, [0.118, 0.0489, 0.0306, 0.0240, 0.0217, 0.0216, 0.0229, 0.0255]),
        (9.0, [0.105, 0.0397, 0.0228, 0.0166, 0.0141, 0.0133, 0.0135, 0.0145]),
        (10.0, [0.0952, 0.0329, 0.0174, 0.0118, 0.00943, 0.00844, 0.00819, 0.00846]),
        (11.0, [0.0869, 0.0276, 0.0136, 0.00864, 0.00650, 0.00552, 0.00513, 0.00509]),
        (12.0, [0.0800, 0.0236, 0.0108, 0.00646, 0.00459, 0.00371, 0.00329, 0.00314]),
        (14.0, [0.0689, 0.0177, 0.00718, 0.00381, 0.00244, 0.00179, 0.00146, 0.00129]),
        (16.0, [0.0606, 0.0138, 0.00500, 0.00239, 0.00139, 9.35e-4, 7.02e-4, 5.74e-4]),
        (20.0, [0.0488, 0.00906, 0.00270, 0.00108, 5.30e-4, 3.03e-4, 1.96e-4, 1.40e-4]),
        (24.0, [0.0408, 0.00639, 0.00162, 5.55e-4, 2.35e-4, 1.17e-4, 6.63e-5, 4.17e-5]),
        (32.0, [0.0308, 0.00367, 7.17e-4, 1.91e-4, 6.33e-5, 2.50e-5, 1.13e-5, 5.73e-6]),
    ];

    #[test]
    fn the_formula_gives_the_summary_cache_table_to_its_three_digits() {
        for (bits_per_key, row) in SUMMARY_CACHE {
            for (index, printed) in row.into_iter().enumerate() {
                let exact = rate(bits_per_key, index as u8 + 1);
                let unit = 10f64.powf(f64::floor(printed.log10()) - 2.0);
                assert!(
                    (exact - printed).abs() <= 0.5001 * unit,
                    "{bits_per_key} {index}: {exact} {printed}"
                );
            }
        }
    }

    #[test]
    fn the_frozen_table_holds_the_best_number_of_probes() {
        for millibits in (100..64_000).step_by(7) {
            let bits = f64::from(millibits) / 1000.0;
            let probes = best_probes(millibits);
            let best = (1..=PROBES_MAX).map(|probes| rate(bits, probes)).fold(1.0, f64::min);
            assert!(rate(bits, probes) <= best * 1.001, "{bits} bits: {probes} probes");
        }
        assert_eq!((best_probes(10_000), best_probes(2078), best_probes(2079)), (7, 1, 2));
        assert_eq!(best_probes(u32::MAX), PROBES_MAX);
    }

    #[test]
    fn powers_and_fractions_are_rounded_down_and_never_wrap() {
        assert_eq!(fraction(1, 2), 1 << 63);
        assert_eq!((fraction(0, 5), fraction(0, 0), fraction(5, 5)), (0, 0, u64::MAX));
        assert_eq!(
            (power(1 << 63, 1), power(1 << 63, 10), power(u64::MAX, 2)),
            (1 << 63, 1 << 54, u64::MAX - 1)
        );
    }

    #[test]
    fn positions_reach_all_of_a_filter_of_more_than_2_to_the_32_bits() {
        let bloom = Bloom { bits: 64 << 33, probes: 30 };
        for seed in 0..1000u64 {
            let bits: Vec<u64> = bloom.positions(Bloom::locate(remix(seed + 1))).collect();
            assert!(bits.iter().all(|&bit| bit < bloom.bits));
            assert!(bits.iter().any(|&bit| bit > u64::from(u32::MAX)));
        }
    }
}
