//! The formulas of Bloom filters.
//!
//! With `m` bits, `n` keys and `k` probes, a bit is clear with probability `(1 - 1/m)^(kn)`, near `e^(-kn/m)`:
//!
//! ```text
//! rate = (1 - e^(-kn/m))^k        least, for given m/n, at k = m/n · ln 2, where it is 2^-k = 0.6185^(m/n)
//! ```
//!
//! (Bloom 1970; Broder and Mitzenmacher 2004, section 2.) It is 1 % too low at a thousand bits (Bose, Guo, Kranakis and others
//! 2008).
//!
//! Tables often give 4e-14 for `m = 32n` and `k = 44`. The rate is 2.7e-6: 44 probes fill three quarters of the bits.
//!
//! ```
//! use sievedb_sketches::arithmetic::{optimal_probes, rate};
//!
//! assert_eq!(format!("{:.1e}", rate(32.0, 44.0)), "2.7e-6");
//! assert_eq!(format!("{:.1e}", rate(32.0, 22.0)), "2.1e-7");
//! assert_eq!(optimal_probes(32.0), 22);
//! ```

use std::f64::consts::LN_2;

use crate::error::Error;

/// The false-positive rate.
#[must_use]
pub fn rate(bits_per_key: f64, probes: f64) -> f64 {
    (-(-probes / bits_per_key).exp_m1()).powf(probes)
}

/// The bits per key for this rate: `log2(1/rate) / ln 2`, 9.6 for 1 %.
#[must_use]
pub fn bits_per_key(rate: f64) -> f64 {
    -rate.log2() / LN_2
}

/// [`bits_per_key`] for `keys` keys, rounded up.
///
/// ```
/// # use sievedb_sketches::arithmetic::{optimal_bits, optimal_probes};
/// assert_eq!(optimal_bits(1000, 0.001), 14_378);
/// assert_eq!(optimal_probes(14.378), 10);
/// ```
#[must_use]
pub fn optimal_bits(keys: u64, rate: f64) -> u64 {
    (keys as f64 * bits_per_key(rate)).ceil() as u64
}

/// The best number of probes, at least 1.
#[must_use]
pub fn optimal_probes(bits_per_key: f64) -> u64 {
    let fraction = bits_per_key * LN_2;
    let (below, above) = (fraction.floor().max(1.0), fraction.ceil().max(1.0));
    if rate(bits_per_key, below) <= rate(bits_per_key, above) { below as u64 } else { above as u64 }
}

/// The number of keys that fit at this rate.
#[must_use]
pub fn keys_that_fit(bits: u64, rate: f64) -> u64 {
    (bits as f64 / bits_per_key(rate)) as u64
}

/// The number of distinct keys that set `ones` of `bits` bits: `-(m/k) · ln(1 - ones/m)` (Swamidass and Baldi 2007).
#[must_use]
pub fn keys_of_ones(bits: u64, probes: u64, ones: u64) -> Option<f64> {
    let (bits, ones) = (bits as f64, ones as f64);
    (ones < bits).then(|| -(-ones / bits).ln_1p() * bits / probes as f64)
}

/// The probability that [`HashCompaction`](crate::HashCompaction) omits a new state.
#[must_use]
pub fn compaction_rate(states: u64, cells: u64, signature_bits: u32) -> f64 {
    let load = (states as f64 / cells as f64).min(1.0 - 0.5 / cells as f64);
    let equal_hashes = states as f64 / 64f64.exp2();
    (-2.0 * (-load).ln_1p() - load) / (f64::from(signature_bits).exp2() - 1.0) + equal_hashes
}

/// The average number of omissions of [`HashCompaction`](crate::HashCompaction): the integral of [`compaction_rate`].
#[must_use]
pub fn compaction_omissions(states: u64, cells: u64, signature_bits: u32) -> f64 {
    let load = (states as f64 / cells as f64).min(1.0 - 0.5 / cells as f64);
    let equal_hashes = (states as f64).powi(2) / 65f64.exp2();
    let shares = 2.0 * ((1.0 - load) * (-load).ln_1p() + load) - load * load / 2.0;
    cells as f64 * shares / (f64::from(signature_bits).exp2() - 1.0) + equal_hashes
}

/// The divisor of Golomb's code for `numbers` random numbers below `range`: the least `M` with `(1-p)^M + (1-p)^(M+1) <= 1`
/// (Gallager and Van Voorhis 1975).
#[must_use]
pub fn golomb_divisor(numbers: u64, range: u64) -> u64 {
    if numbers == 0 {
        return 1;
    }
    let share = (numbers as f64 / range.max(1) as f64).min(0.999);
    (((1.0 - share).ln_1p() / -(-share).ln_1p()).ceil() as u64).max(1)
}

pub(crate) fn checked_rate(rate: f64) -> Result<f64, Error> {
    if rate > 0.0 && rate < 1.0 {
        return Ok(rate);
    }
    Err(Error::invalid(format!("the rate {rate} must be above 0 and below 1")))
}

/// A rate in units of 2^-64.
#[must_use]
pub fn rate_to_bits(rate: f64) -> u64 {
    (rate * 2f64.powi(64)) as u64
}

/// The rate from units of 2^-64.
#[must_use]
pub fn rate_from_bits(bits: u64) -> f64 {
    bits as f64 / 2f64.powi(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_cent_takes_9_6_bits_a_key() {
        assert_eq!(format!("{:.1}", bits_per_key(0.01)), "9.6");
    }

    #[test]
    fn a_thousand_keys_at_one_in_a_thousand_take_14_378_bits_and_10_probes() {
        assert_eq!(optimal_bits(1000, 0.001), 14_378);
        assert_eq!(optimal_probes(14.378), 10);
        assert_eq!(keys_that_fit(14_378, 0.001), 1000);
    }

    #[test]
    fn the_textbook_examples_are_those_of_the_formula() {
        assert_eq!(format!("{:.3}", rate(8.0, 6.0)), "0.022");
        assert!((rate(8.0, 6.0) - 0.021_577).abs() < 1e-6);
        assert_eq!(format!("{:.2}", rate(32.0, 1.0)), "0.03");
        // Printed as 4e-14.
        assert_eq!(format!("{:.1e}", rate(32.0, 44.0)), "2.7e-6");
        let least = (1..=64).map(|probes| rate(32.0, f64::from(probes))).fold(1.0, f64::min);
        assert_eq!(format!("{least:.1e}"), "2.1e-7");
        assert_eq!(optimal_probes(32.0), 22);
    }

    /// m/n, and the rates for 1 to 8 probes, from "Summary Cache" (Fan and others 2000).
    const SUMMARY_CACHE: [(f64, [f64; 8]); 6] = [
        (2.0, [0.393, 0.400, 0.469, 0.559, 0.652, 0.736, 0.807, 0.863]),
        (4.0, [0.221, 0.155, 0.147, 0.160, 0.185, 0.220, 0.263, 0.312]),
        (8.0, [0.118, 0.0489, 0.0306, 0.0240, 0.0217, 0.0216, 0.0229, 0.0255]),
        (10.0, [0.0952, 0.0329, 0.0174, 0.0118, 0.009_43, 0.008_44, 0.008_19, 0.008_46]),
        (16.0, [0.0606, 0.0138, 0.005_00, 0.002_39, 0.001_39, 9.35e-4, 7.02e-4, 5.74e-4]),
        (32.0, [0.0308, 0.003_67, 7.17e-4, 1.91e-4, 6.33e-5, 2.50e-5, 1.13e-5, 5.73e-6]),
    ];

    #[test]
    fn the_rates_are_those_of_the_summary_cache_to_three_figures() {
        for (bits, row) in SUMMARY_CACHE {
            for (probes, known) in (1..).zip(row) {
                let found = rate(bits, f64::from(probes));
                assert!((found / known - 1.0).abs() < 0.006, "m/n = {bits}, k = {probes}: {found}");
            }
        }
    }

    #[test]
    fn no_other_number_of_probes_is_better() {
        for tenths in 1..640 {
            let bits = f64::from(tenths) / 10.0;
            let best = rate(bits, optimal_probes(bits) as f64);
            assert!((1..=50).all(|probes| rate(bits, f64::from(probes)) >= best), "{bits}");
        }
    }

    #[test]
    fn keys_are_told_from_the_bits_that_they_expect_to_set() {
        for keys in [1.0, 100.0, 10_000.0_f64] {
            let ones = -(-7.0 * keys / 100_000.0).exp_m1() * 100_000.0;
            let found = keys_of_ones(100_000, 7, ones.round() as u64).unwrap();
            assert!((found - keys).abs() < 0.5 + keys / 1000.0, "{keys}: {found}");
        }
        assert_eq!(keys_of_ones(10, 1, 10), None);
        assert_eq!(keys_of_ones(10, 1, 0), Some(0.0));
    }

    #[test]
    fn rates_without_meaning_are_refused() {
        for rate in [0.0, -1.0, 1.0, f64::NAN, f64::INFINITY] {
            assert!(checked_rate(rate).is_err());
        }
        assert_eq!(rate_from_bits(rate_to_bits(0.01)), 0.01);
    }
}
