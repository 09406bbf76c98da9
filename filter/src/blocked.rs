//! Kind 2, the blocked Bloom filter: all bits of a key are in one cache line.
//!
//! The positions are computed from the table hash `h` (Putze, Sanders and Singler 2007):
//!
//! ```text
//! line:      reduce(h, lines), the high bits of h · lines
//! bit j:     the top nine bits of w · G^(j + 1) modulo 2^32, w the low 32 bits of h, G = 0x9e3779b9
//! ```
//!
//! The multiplications are independent, so eight probes are one vector instruction.
//!
//! With `b` bits per key and `k` probes, the rate is the sum over i of `Poisson(512/b, i) · E((ones/512)^k)` after
//! `ik` throws into 512 bits. At 10 bits, it is 0.967 %; for a standard Bloom filter, 0.819 %. The common formula,
//! the power of the mean, is 1 % too low. The best `k` is below `b · ln 2`.

use super::bloom::{PROBES_MAX, fraction, ones, power};
use crate::hash::reduce;

pub(super) const LINE_BYTES: usize = 64;

pub(super) const LINE_BITS: u64 = 8 * LINE_BYTES as u64;

pub(super) const LANES: usize = 8;

const STEPS: usize = (PROBES_MAX as usize).div_ceil(LANES);

/// Powers of 2^32 divided by the golden ratio, made odd.
const MULTIPLIERS: [u32; PROBES_MAX as usize] = {
    let mut powers = [0x9e37_79b9_u32; PROBES_MAX as usize];
    let mut probe = 1;
    while probe < powers.len() {
        powers[probe] = powers[probe - 1].wrapping_mul(powers[0]);
        probe += 1;
    }
    powers
};
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;

/// Computed as in `bloom`, by the formula above. Frozen: part of the format.
const MILLIBITS: [u32; 19] = [
    2081, 3584, 5103, 6673, 8316, 10057, 11919, 13930, 16119, 18521, 21175, 24125, 27423, 31129, 35313,
    40057, 45460, 51635, 58720,
];

pub(super) fn best_probes(millibits: u32) -> u8 {
    1 + MILLIBITS.partition_point(|&most| most < millibits) as u8
}

pub(super) fn rate(bits_per_key: f64, probes: u8) -> f64 {
    let mean = LINE_BITS as f64 / bits_per_key;
    let spread = 12.0 * mean.sqrt() + 40.0;
    let middle = mean.floor();
    // Adds from the mean outward, so that no significant weight underflows.
    let (mut sum, mut total) = (0.0, 0.0);
    let mut add = |line: Line, weight: f64| {
        sum += weight * line.rate(probes);
        total += weight;
    };
    let step = Line::of(1.0, probes);
    let (mut weight, mut keys, mut line) = (1.0, middle, Line::of(middle, probes));
    while keys <= middle + spread {
        add(line, weight);
        keys += 1.0;
        line =
            Line { one_clear: line.one_clear * step.one_clear, two_clear: line.two_clear * step.two_clear };
        weight *= mean / keys;
    }
    let (mut weight, mut keys, mut line) = (1.0, middle, Line::of(middle, probes));
    while keys > 0.0 && keys > middle - spread {
        weight *= keys / mean;
        keys -= 1.0;
        line =
            Line { one_clear: line.one_clear / step.one_clear, two_clear: line.two_clear / step.two_clear };
        add(if keys > 0.0 { line } else { Line::of(0.0, probes) }, weight);
    }
    sum / total
}

/// The probabilities that one and two given bits of a line are clear.
#[derive(Clone, Copy)]
struct Line {
    one_clear: f64,
    two_clear: f64,
}

impl Line {
    /// A line with `keys` keys. Each key multiplies both probabilities by the probabilities for one key.
    fn of(keys: f64, probes: u8) -> Self {
        let (bits, throws) = (LINE_BITS as f64, keys * f64::from(probes));
        let clear = |chosen: f64| ((-chosen / bits).ln_1p() * throws).exp();
        Self { one_clear: clear(1.0), two_clear: clear(2.0) }
    }

    /// Returns the mean of the `probes`-th power of the share of set bits, from the mean and variance of this share.
    fn rate(self, probes: u8) -> f64 {
        let Self { one_clear, two_clear } = self;
        let bits = LINE_BITS as f64;
        let set = 1.0 - one_clear;
        if set == 0.0 {
            return 0.0;
        }
        let variance = ((one_clear + (bits - 1.0) * two_clear) / bits - one_clear * one_clear).max(0.0);
        let power = (0..probes).fold(1.0, |power, _| power * set);
        let probes = f64::from(probes);
        power * (1.0 + probes * (probes - 1.0) / 2.0 * variance / (set * set))
    }
}

/// [`MULTIPLIERS`] for each number of probes, in groups of eight, padded with the first one.
static STEPS_OF: [[[u32; LANES]; STEPS]; PROBES_MAX as usize + 1] = {
    let mut steps = [[[MULTIPLIERS[0]; LANES]; STEPS]; PROBES_MAX as usize + 1];
    let mut probes = 0;
    while probes < steps.len() {
        let mut probe = 0;
        while probe < probes {
            steps[probes][probe / LANES][probe % LANES] = MULTIPLIERS[probe];
            probe += 1;
        }
        probes += 1;
    }
    steps
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) lines: u64,
    pub(super) probes: u8,
}

impl Blocked {
    pub(super) fn steps(self) -> (&'static [u32; LANES], &'static [[u32; LANES]]) {
        let probes = usize::from(self.probes.clamp(1, PROBES_MAX));
        let [first, others @ ..] = &STEPS_OF[probes];
        (first, &others[..probes.div_ceil(LANES) - 1])
    }

    pub(super) fn multipliers(self) -> impl Iterator<Item = &'static [u32; LANES]> {
        let (first, others) = self.steps();
        core::iter::once(first).chain(others)
    }

    #[inline(always)]
    pub(super) fn locate(self, hash: u64) -> (u64, u32) {
        (reduce(hash, self.lines), hash as u32)
    }

    pub(super) fn insert(self, body: &mut [u8], hash: u64) {
        let (line, word) = self.locate(hash);
        let start = line as usize * LINE_BYTES;
        let line = &mut body[start..start + LINE_BYTES];
        positions(word, self.probes).for_each(|bit| line[bit >> 3] |= 1 << (bit & 7));
    }

    /// Returns the mean of `(ones / 512)^probes`, in units of 2^-64.
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

#[inline(always)]
pub(super) fn positions(word: u32, probes: u8) -> impl Iterator<Item = usize> {
    let multipliers = &MULTIPLIERS[..usize::from(probes).min(MULTIPLIERS.len())];
    multipliers.iter().map(move |multiplier| (word.wrapping_mul(*multiplier) >> 23) as usize)
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
    fn the_bits_are_those_of_the_document() {
        // G and G^2 modulo 2^32, and their top nine bits.
        assert_eq!((MULTIPLIERS[0], MULTIPLIERS[1]), (0x9e37_79b9, 0xe35e_67b1));
        assert_eq!(positions(1, 2).collect::<Vec<_>>(), [0x13c, 0x1c6]);
        assert!(MULTIPLIERS.iter().all(|multiplier| multiplier % 2 == 1));
        for probes in 0..=PROBES_MAX {
            assert_eq!(positions(7, probes).count(), probes.into());
            assert!(positions(u32::MAX, probes).all(|bit| bit < 512));
        }
    }
}
