//! Allocates bits to the filters of a tree for the fewest wasted reads.
//!
//! A filter of `n` keys and rate `ε`, probed by a share `q` of the absent lookups, takes `n·bits(ε)` bits and wastes `q·ε`
//! reads. If every bit halves the rate, the sum of wasted reads is least at
//!
//! ```text
//! ε = c · n / q, at most 1                          c such that the bits add up to the total
//! ```
//!
//! This is Monkey (Dayan, Athanassoulis, Idreos 2017), extended to different probe rates.
//!
//! # Algorithm
//!
//! Columns and probes are whole numbers, so the rate falls with the bits per key in *steps*, a convex chain. The steps that
//! save the most reads per bit are taken until the total is spent; the last step may be taken in part. O(s log s) for s
//! steps, about thirty per filter.
//!
//! ```
//! use sievedb_filter::Kind;
//! use sievedb_filter::allocation::{Share, Total, allocate, uniform};
//!
//! // Five levels, each ten times as large as the one above it. Every absent lookup probes all of them.
//! let shares: Vec<Share> =
//!     (0..5).map(|level| Share::new(Kind::Ribbon, 1000 * 10u64.pow(level), 1.0)).collect();
//! let total = Total::bits_per_key(10.0).unwrap();
//! let optimal = allocate(&shares, total);
//! assert!(optimal.bits_per_key[0] > 22.0 && optimal.bits_per_key[4] < 10.0);
//! assert!(optimal.wasted_reads < 0.0016);
//! assert!(uniform(&shares, total).wasted_reads > 0.004);
//! ```

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use std::sync::OnceLock;

use super::bits::{BITS_PER_KEY_MAX, millibits, rate};
use super::header::Kind;
use super::ribbon;
use crate::error::FilterError;
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;

/// A filter, or the filters of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The filter kind.
    pub kind: Kind,
    /// Distinct user keys.
    pub keys: u64,
    /// Share of the absent lookups that probe the filter, 0 to 1.
    pub probe_rate: f64,
    /// Minimum bits per key.
    pub bits_min: f64,
    /// Maximum bits per key.
    pub bits_max: f64,
}

impl Share {
    /// A filter of any size.
    #[must_use]
    pub fn new(kind: Kind, keys: u64, probe_rate: f64) -> Self {
        Self { kind, keys, probe_rate, bits_min: 0.0, bits_max: BITS_PER_KEY_MAX }
    }

    /// Sets the range of bits per key.
    #[must_use]
    pub fn between(mut self, bits_min: f64, bits_max: f64) -> Self {
        self.bits_min = bits_min.clamp(0.0, BITS_PER_KEY_MAX);
        self.bits_max = bits_max.clamp(self.bits_min, BITS_PER_KEY_MAX);
        self
    }

    /// The rate at this size; 1 with 0 bits.
    #[must_use]
    pub fn rate(&self, bits_per_key: f64) -> f64 {
        if bits_per_key <= 0.0 {
            return 1.0;
        }
        if self.kind == Kind::Ribbon
            && let Some(rate) = ribbon::rate_of_one_layer(self.keys, bits_per_key)
        {
            return rate;
        }
        let steps = self.steps();
        let after = steps.partition_point(|step| step.bits < bits_per_key);
        let (Some(&before), Some(&after)) = (steps.get(after.wrapping_sub(1)), steps.get(after)) else {
            return steps.last().map_or(1.0, |last| last.rate);
        };
        let part = (bits_per_key - before.bits) / (after.bits - before.bits);
        before.rate + part * (after.rate - before.rate)
    }

    /// Returns the convex chain of rates, from 0 bits with rate 1.
    fn steps(&self) -> Vec<Step> {
        match self.kind {
            Kind::Ribbon => ribbon_steps(self.keys),
            Kind::Bloom | Kind::BlockedBloom => bloom_steps(self.kind),
        }
    }
}

/// The bits to allocate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total(Unit);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    BitsPerKey(f64),
    Bytes(u64),
}

impl Total {
    /// This many bits for each key of all shares.
    ///
    /// # Errors
    ///
    /// [`FilterError::InvalidArgument`] for a negative, infinite or NaN number.
    pub fn bits_per_key(bits: f64) -> Result<Self, FilterError> {
        if bits.is_finite() && bits >= 0.0 {
            return Ok(Self(Unit::BitsPerKey(bits)));
        }
        Err(FilterError::invalid(format!("a total of {bits} bits per key must be finite and at least 0")))
    }

    /// Bytes of all shares together.
    #[must_use]
    pub fn bytes(bytes: u64) -> Self {
        Self(Unit::Bytes(bytes))
    }

    fn bits(self, shares: &[Share]) -> f64 {
        match self.0 {
            Unit::BitsPerKey(bits) => bits * shares.iter().map(|share| share.keys as f64).sum::<f64>(),
            Unit::Bytes(bytes) => bytes as f64 * 8.0,
        }
    }
}

/// The result of [`allocate`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Allocation {
    /// Bits per key of each share; 0 means no filter.
    pub bits_per_key: Vec<f64>,
    /// Rate of each share.
    pub rates: Vec<f64>,
    /// Sum of bits, without headers and checksums.
    pub bits: f64,
    /// Expected wasted reads per absent lookup.
    pub wasted_reads: f64,
}

impl Allocation {
    fn of(shares: &[Share], bits_per_key: Vec<f64>) -> Self {
        let rates: Vec<f64> =
            shares.iter().zip(&bits_per_key).map(|(share, &bits)| share.rate(bits)).collect();
        let wasted_reads = shares.iter().zip(&rates).map(|(share, rate)| share.probe_rate * rate).sum();
        let bits = shares.iter().zip(&bits_per_key).map(|(share, bits)| share.keys as f64 * bits).sum();
        Self { bits_per_key, rates, bits, wasted_reads }
    }
}

/// Returns the allocation with the fewest wasted reads. A share with probe rate 0 gets its minimum.
#[must_use]
pub fn allocate(shares: &[Share], total: Total) -> Allocation {
    let mut left = total.bits(shares);
    let mut bits_per_key = Vec::with_capacity(shares.len());
    let mut purchases = Vec::new();
    for (index, share) in shares.iter().enumerate() {
        let keys = share.keys.max(1) as f64;
        bits_per_key.push(share.bits_min);
        left -= share.bits_min * keys;
        let mut from = Step { bits: share.bits_min, rate: share.rate(share.bits_min) };
        for step in share.steps() {
            let to = step.bits.min(share.bits_max);
            if to <= from.bits || step.rate >= from.rate {
                continue;
            }
            let gain = share.probe_rate * (from.rate - step.rate) / (step.bits - from.bits) / keys;
            if gain > 0.0 {
                purchases.push(Purchase { gain, index, to });
            }
            from = step;
        }
    }
    purchases.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    for Purchase { index, to, .. } in purchases {
        let keys = shares[index].keys.max(1) as f64;
        let bits = to - bits_per_key[index];
        if bits * keys > left {
            bits_per_key[index] += left.max(0.0) / keys;
            break;
        }
        bits_per_key[index] = to;
        left -= bits * keys;
    }
    Allocation::of(shares, bits_per_key)
}

/// Returns an allocation with the same bits for every key.
#[must_use]
pub fn uniform(shares: &[Share], total: Total) -> Allocation {
    let keys: f64 = shares.iter().map(|share| share.keys as f64).sum();
    let bits = (total.bits(shares) / keys.max(1.0)).clamp(0.0, BITS_PER_KEY_MAX);
    Allocation::of(shares, vec![bits; shares.len()])
}

struct Purchase {
    /// The number of wasted reads saved per bit.
    gain: f64,
    index: usize,
    to: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    bits: f64,
    rate: f64,
}

fn ribbon_steps(keys: u64) -> Vec<Step> {
    let none = Step { bits: 0.0, rate: 1.0 };
    let columns = (1..=ribbon::COLUMNS_MAX).map(|columns| Step {
        bits: ribbon::bits_for_columns(keys, columns.into()),
        rate: (-f64::from(columns)).exp2(),
    });
    core::iter::once(none).chain(columns).take_while(|step| step.bits <= BITS_PER_KEY_MAX).collect()
}

#[cfg(feature = "std")]
fn bloom_steps(kind: Kind) -> Vec<Step> {
    static STEPS: [OnceLock<Vec<Step>>; Kind::ALL.len()] = [const { OnceLock::new() }; Kind::ALL.len()];
    STEPS[kind as usize - Kind::ALL[0] as usize].get_or_init(|| hull(kind)).clone()
}

#[cfg(not(feature = "std"))]
fn bloom_steps(kind: Kind) -> Vec<Step> {
    hull(kind)
}

/// Returns the convex hull of sizes at every quarter of a bit.
fn hull(kind: Kind) -> Vec<Step> {
    let mut hull = vec![Step { bits: 0.0, rate: 1.0 }];
    for quarters in 1..=4 * BITS_PER_KEY_MAX as u32 {
        let bits = f64::from(quarters) / 4.0;
        let step = Step { bits, rate: rate(kind, millibits(bits)) };
        while let [.., before, last] = hull[..]
            && slope(before, last) >= slope(last, step)
        {
            hull.pop();
        }
        hull.push(step);
    }
    hull
}

fn slope(from: Step, to: Step) -> f64 {
    (to.rate - from.rate) / (to.bits - from.bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expect, Filter, FilterBuilder};

    #[test]
    fn small_ribbon_filters_are_built_with_the_rate_that_was_planned() {
        for keys in [1u64, 60, 127, 128, 129, 150, 200, 256, 300, 700, 1500, 6000] {
            for bits in [5.0, 7.3, 9.5, 10.0, 10.9, 16.0] {
                let planned = Share::new(Kind::Ribbon, keys, 1.0).rate(bits);
                let mut builder = FilterBuilder::new(Kind::Ribbon, bits, 1, keys, [3; 16]).unwrap();
                (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
                let block = builder.finish().unwrap();
                let filter = Filter::open(&block, Expect::anything()).unwrap();
                let off = filter.predicted_rate() / planned - 1.0;
                assert!(off.abs() < 0.005, "{keys} {bits}: {planned} and {}", filter.predicted_rate());
                let taken = filter.header().bits() as f64 / keys as f64;
                assert!(keys < 128 || (taken / bits - 1.0).abs() < 0.13, "{keys} {bits}: {taken}");
            }
        }
        let rate = |keys| Share::new(Kind::Ribbon, keys, 1.0).rate(10.0);
        assert_eq!((rate(128), rate(200)), (1.0 / 1024.0, 1.0 / 1024.0));
    }

    fn levels(kind: Kind, count: u32, ratio: u64) -> Vec<Share> {
        (0..count).map(|level| Share::new(kind, 100_000 * ratio.pow(level), 1.0)).collect()
    }

    #[test]
    fn five_levels_of_ribbon_filters_waste_a_thirtieth_of_the_reads_of_uniform_bloom() {
        for (ratio, bits) in [(10u64, 10.0), (10, 5.0), (4, 8.0)] {
            let shares = levels(Kind::Ribbon, 5, ratio);
            let optimal = allocate(&shares, Total::bits_per_key(bits).unwrap());
            let t = ratio as f64;
            let formula = t / (t - 1.0) * (-(bits - t.log2() / (t - 1.0))).exp2();
            let found = optimal.wasted_reads / formula;
            assert!((1.0..1.09).contains(&found), "{ratio} {bits}: {found}");
            // A level that is `ratio` times larger gets log2(ratio) fewer bits, to within a column.
            for pair in optimal.bits_per_key.windows(2) {
                assert!((pair[0] - pair[1] - t.log2()).abs() <= 1.1, "{:?}", optimal.bits_per_key);
            }
        }
        let ribbon = allocate(&levels(Kind::Ribbon, 5, 10), Total::bits_per_key(10.0).unwrap()).wasted_reads;
        let bloom =
            uniform(&levels(Kind::BlockedBloom, 5, 10), Total::bits_per_key(10.0).unwrap()).wasted_reads;
        assert!(ribbon < 0.00155 && bloom > 0.045, "{ribbon} {bloom}");
    }

    #[test]
    fn the_total_is_met_and_no_exchange_of_bits_would_be_better() {
        for kind in Kind::ALL {
            for bits in [0.3, 2.0, 9.7, 16.0] {
                let mut shares = levels(kind, 4, 7);
                shares[1].probe_rate = 0.1;
                shares[2].kind = Kind::Ribbon;
                let best = allocate(&shares, Total::bits_per_key(bits).unwrap());
                let keys: f64 = shares.iter().map(|share| share.keys as f64).sum();
                assert!((best.bits / keys - bits).abs() < 1e-6, "{kind:?} {bits}: {}", best.bits / keys);
                for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
                    let moved = 0.3 * shares[from.min(to)].keys as f64;
                    let mut other = best.bits_per_key.clone();
                    other[from] -= moved / shares[from].keys as f64;
                    other[to] += moved / shares[to].keys as f64;
                    if from != to && other[from] >= 0.0 {
                        let waste = Allocation::of(&shares, other).wasted_reads;
                        assert!(waste >= best.wasted_reads - 1e-12, "{kind:?} {bits} {from} {to}");
                    }
                }
            }
        }
    }

    #[test]
    fn filters_probed_less_get_a_higher_rate_and_those_never_probed_get_nothing() {
        let ask = |probe_rate| Share::new(Kind::Ribbon, 1_000_000, probe_rate);
        let shares = [ask(1.0), ask(1.0 / 16.0), ask(0.0), ask(0.0).between(3.0, 5.0)];
        let plan = allocate(&shares, Total::bits_per_key(5.0).unwrap());
        assert!((plan.bits_per_key[0] - plan.bits_per_key[1] - 4.0).abs() < 1.1, "{plan:?}");
        assert_eq!(plan.bits_per_key[2..], [0.0, 3.0]);
        assert_eq!(plan.rates[2], 1.0);
        let plan = allocate(&shares, Total::bits_per_key(1000.0).unwrap());
        // Miri changes the last digits of `exp2` and `powi`.
        assert!(plan.bits_per_key[0] > 32.0 && (plan.rates[0] / 2f64.powi(-32) - 1.0).abs() < 1e-12);
        assert_eq!(plan.bits_per_key[2], 0.0);
    }

    #[test]
    fn totals_that_are_no_size_are_refused() {
        for bits in [f64::NAN, -1.0, -f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(Total::bits_per_key(bits), Err(FilterError::InvalidArgument { .. })), "{bits}");
        }
        let nothing = allocate(&levels(Kind::Ribbon, 3, 10), Total::bits_per_key(0.0).unwrap());
        assert_eq!(nothing.bits_per_key, [0.0; 3]);
    }

    #[test]
    fn limits_are_kept_and_a_total_in_bytes_is_one_in_bits() {
        let mut shares = levels(Kind::Ribbon, 3, 10);
        let keys: u64 = shares.iter().map(|share| share.keys).sum();
        assert_eq!(
            allocate(&shares, Total::bytes(keys)),
            allocate(&shares, Total::bits_per_key(8.0).unwrap())
        );
        shares[0] = shares[0].between(4.0, 4.0);
        shares[2] = shares[2].between(9.0, 64.0);
        let plan = allocate(&shares, Total::bits_per_key(8.0).unwrap());
        assert_eq!(plan.bits_per_key, [4.0, 0.0, 9.0], "the least is given even if it is more than there is");
        assert_eq!(allocate(&[], Total::bits_per_key(8.0).unwrap()).wasted_reads, 0.0);
    }

    #[test]
    fn every_chain_is_convex_and_has_the_rates_of_its_kind() {
        for kind in Kind::ALL {
            for keys in [1, 100, 1000, 100_000, 1 << 40] {
                let share = Share::new(kind, keys, 1.0);
                let steps = share.steps();
                let slopes: Vec<f64> = steps.windows(2).map(|pair| slope(pair[0], pair[1])).collect();
                assert!(slopes.windows(2).all(|pair| pair[0] <= pair[1]), "{kind:?} {keys}");
                assert!(slopes.iter().all(|&slope| slope < 0.0));
            }
            let share = Share::new(kind, 1 << 30, 1.0);
            for tenths in if kind == Kind::Ribbon { 1 } else { 20 }..300 {
                let bits = f64::from(tenths) / 10.0;
                let (found, expected) = (share.rate(bits), rate(kind, millibits(bits)));
                assert!((found / expected - 1.0).abs() < 0.02, "{kind:?} {bits}: {found} {expected}");
            }
        }
    }
}
