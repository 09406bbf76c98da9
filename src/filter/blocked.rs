//! Kind 2, the cache-line blocked Bloom filter: each key has all its bits in one line of 64 bytes.
//!
//! From the table hash `h` (Putze, Sanders and Singler 2007 for the idea):
//!
//! ```text
//! line:  reduce(h, lines), the high bits of h · lines
//! bits:  g = remix(h); seven probes take nine bits of g each, from the top: bits 55..64, 46..55, .. 1..10;
//!        for the next seven g = remix(g)
//! ```
//!
//! A query touches one cache line whatever its answer, and up to seven probes cost one multiplication. The
//! price is the rate: lines differ in how many keys they drew, and the full ones dominate. With `b` bits per
//! key and `k` probes it is the sum over i of `Poisson(512/b, i) · E((ones/512)^k)` after `ik` throws into 512
//! bits: 0.967 % at 10 bits per key where a standard Bloom filter has 0.819 %. (The mean of the power, not the
//! power of the mean that is often printed: that is 1 % too low there and 3 % at 20 bits.) For the same
//! reason fewer probes are best than `b · ln 2`.

use super::arch::Simd;
use super::bloom::{fraction, ones, power, remix};
use crate::hash::reduce;

/// Length of a line.
pub(super) const LINE_BYTES: usize = 64;

/// Bits in a line.
pub(super) const LINE_BITS: u64 = 8 * LINE_BYTES as u64;

/// Probes that one 64-bit word has bits for.
pub(super) const PROBES_PER_WORD: u8 = 7;

/// As in `bloom`: the largest number of thousandths of a bit per key for which `k` probes are best, from the
/// formula above. Frozen: part of the format.
const MILLIBITS: [u32; 19] = [
    2081, 3584, 5103, 6673, 8316, 10057, 11919, 13930, 16119, 18521, 21175, 24125, 27423, 31129, 35313,
    40057, 45460, 51635, 58720,
];

/// The number of probes with which this many bits per key give the lowest rate.
pub(super) fn best_probes(millibits: u32) -> u8 {
    1 + MILLIBITS.partition_point(|&most| most < millibits) as u8
}

/// The expected false-positive rate, by the sum in the module's description.
pub(super) fn rate(bits_per_key: f64, probes: u8) -> f64 {
    let mean = LINE_BITS as f64 / bits_per_key;
    let spread = 12.0 * mean.sqrt() + 40.0;
    let middle = mean.floor();
    // Poisson weights outwards from the mean, so that none underflows before it has ceased to matter.
    let (mut sum, mut total) = (0.0, 0.0);
    let mut add = |keys: f64, weight: f64| {
        sum += weight * line_rate(keys, f64::from(probes));
        total += weight;
    };
    let (mut weight, mut keys) = (1.0, middle);
    while keys <= middle + spread {
        add(keys, weight);
        keys += 1.0;
        weight *= mean / keys;
    }
    let (mut weight, mut keys) = (1.0, middle);
    while keys > 0.0 && keys > middle - spread {
        weight *= keys / mean;
        keys -= 1.0;
        add(keys, weight);
    }
    sum / total
}

/// The rate of a line that has `keys` keys: the mean of the `probes`-th power of the share of its bits that
/// are set, from mean and variance of that share.
fn line_rate(keys: f64, probes: f64) -> f64 {
    if keys == 0.0 {
        return 0.0;
    }
    let bits = LINE_BITS as f64;
    let throws = keys * probes;
    let one_clear = ((-1.0 / bits).ln_1p() * throws).exp();
    let two_clear = ((-2.0 / bits).ln_1p() * throws).exp();
    let variance = ((one_clear + (bits - 1.0) * two_clear) / bits - one_clear * one_clear).max(0.0);
    let set = 1.0 - one_clear;
    set.powf(probes) * (1.0 + probes * (probes - 1.0) / 2.0 * variance / (set * set))
}

/// The shape of one blocked Bloom filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) lines: u64,
    pub(super) probes: u8,
}

impl Blocked {
    /// Number of the line, and the word that the bits in it come from.
    #[inline(always)]
    pub(super) fn locate(self, hash: u64) -> (u64, u64) {
        (reduce(hash, self.lines), remix(hash))
    }

    pub(super) fn insert(self, body: &mut [u8], hash: u64) {
        let (line, word) = self.locate(hash);
        let start = line as usize * LINE_BYTES;
        let line = &mut body[start..start + LINE_BYTES];
        positions(word, self.probes).for_each(|bit| line[bit >> 3] |= 1 << (bit & 7));
    }

    /// Whether all bits of the probe are set in `body`. A line outside of it counts as full.
    #[inline(always)]
    pub(super) fn test(self, simd: Simd, body: &[u8], (line, word): (u64, u64)) -> bool {
        let start = (line as usize).checked_mul(LINE_BYTES);
        let rest = start.and_then(|start| body.get(start..));
        let Some(line) = rest.and_then(|rest| rest.first_chunk::<LINE_BYTES>()) else {
            return true;
        };
        simd.line_has(line, word, self.probes)
    }

    /// The false-positive rate of these very bits in units of 2^-64: the mean over the lines of
    /// `(ones / 512)^probes`.
    pub(super) fn stored_rate(self, body: &[u8]) -> u64 {
        let mut lines_with = [0u64; LINE_BITS as usize + 1];
        for line in body.chunks(LINE_BYTES) {
            lines_with[line.chunks(8).map(ones).sum::<u32>() as usize] += 1;
        }
        let rates = (0..)
            .zip(lines_with)
            .map(|(set, lines)| u128::from(lines) * u128::from(power(fraction(set, LINE_BITS), self.probes)));
        (rates.sum::<u128>() / u128::from(self.lines.max(1))) as u64
    }
}

/// Seven probes at a time without a branch, then one branch: an absent key seldom needs a second word.
#[inline]
pub(super) fn test_line(line: &[u8; LINE_BYTES], mut word: u64, mut probes: u8) -> bool {
    loop {
        let now = probes.min(PROBES_PER_WORD);
        let mut bits = word;
        let mut all = 1;
        for _ in 0..now {
            let bit = (bits >> 55) as usize;
            all &= line[bit >> 3] >> (bit & 7);
            bits <<= 9;
        }
        if all & 1 == 0 {
            return false;
        }
        probes -= now;
        if probes == 0 {
            return true;
        }
        word = remix(word);
    }
}

/// The bits of one key in its line.
fn positions(word: u64, probes: u8) -> impl Iterator<Item = usize> {
    let (mut word, mut bits) = (word, word);
    (0..probes).map(move |probe| {
        if probe > 0 && probe % PROBES_PER_WORD == 0 {
            word = remix(word);
            bits = word;
        }
        let bit = (bits >> 55) as usize;
        bits <<= 9;
        bit
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_bits_per_key_give_less_than_0_97_per_cent() {
        let expected = rate(10.0, best_probes(10_000));
        assert!((expected - 0.009_664_6).abs() < 1e-6, "{expected}");
        assert!((rate(16.0, 9) - 8.438e-4).abs() < 1e-6);
    }

    #[test]
    fn the_frozen_table_holds_the_best_number_of_probes() {
        for millibits in (500..64_000).step_by(137) {
            let bits = f64::from(millibits) / 1000.0;
            let probes = best_probes(millibits);
            let best = (1..=30).map(|probes| rate(bits, probes)).fold(1.0, f64::min);
            assert!(rate(bits, probes) <= best * 1.001, "{bits} bits: {probes} probes");
        }
        assert_eq!((best_probes(0), best_probes(10_000), best_probes(u32::MAX)), (1, 6, 20));
    }

    #[test]
    fn what_was_inserted_is_found_with_any_number_of_probes() {
        for probes in 1..=30 {
            let blocked = Blocked { lines: 5, probes };
            let mut body = [0; 5 * LINE_BYTES];
            for hash in (0..20).map(|seed| remix(seed + 1)) {
                blocked.insert(&mut body, hash);
                assert!(blocked.test(Simd::detect(), &body, blocked.locate(hash)));
            }
            let word = remix(1);
            let mut line = [0; LINE_BYTES];
            positions(word, probes).for_each(|bit| line[bit >> 3] |= 1 << (bit & 7));
            assert!(test_line(&line, word, probes));
            for bit in positions(word, probes) {
                let mut without = line;
                without[bit >> 3] &= !(1 << (bit & 7));
                assert!(!test_line(&without, word, probes), "every one of {probes} probes counts");
            }
        }
    }

    #[test]
    fn a_line_beyond_the_body_counts_as_full() {
        let blocked = Blocked { lines: 1 << 60, probes: 6 };
        for line in [1, 1 << 57, 1 << 58, u64::MAX] {
            assert!(blocked.test(Simd::detect(), &[0; LINE_BYTES], (line, 1)), "{line}");
        }
        assert!(!blocked.test(Simd::detect(), &[0; LINE_BYTES], (0, 1)));
    }
}
