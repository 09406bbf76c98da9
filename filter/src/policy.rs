//! Filter policies. [`FilterPolicy::resolve`] gives the [`FilterPlan`] of a table. A filter on disk has whole bits and
//! probes.

use alloc::format;

use super::bits::{BITS_PER_KEY_MAX, bits_for_rate, check_bits_per_key, millibits, rate};
use super::cost::TableUse;
use super::header::Kind;
use super::{blocked, bloom};
use crate::error::FilterError;

/// The filter kind of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FilterKind {
    /// No filter.
    None,
    /// The cheapest kind by [`cost`](crate::cost): a ribbon filter for nearly every table, blocked Bloom from 20 bits
    /// per key on, Bloom for fewer than 96 keys. If the policy sets a rate, the size is chosen for a ribbon filter with
    /// this rate, or for a Bloom filter if there are few keys.
    ///
    /// A ribbon filter is slow to build. For many writes and few reads, use [`FilterKind::BlockedBloom`] or
    /// [`FilterKind::None`].
    #[default]
    Auto,
    /// A standard Bloom filter: a lower rate than a blocked filter, but one cache line per tested bit.
    Bloom,
    /// A Bloom filter in lines of 64 bytes: one cache line per query, 17 % more false positives at 10 bits.
    BlockedBloom,
    /// A ribbon filter: nearly the fewest possible bits, two cache lines per query, the slowest to build.
    Ribbon,
}

impl FilterKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::None, Self::Auto, Self::Bloom, Self::BlockedBloom, Self::Ribbon];

    /// Number in stored options: the [`Kind`]'s number, 0 for `None`, 255 for `Auto`. Append only.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Bloom => Kind::Bloom as u8,
            Self::BlockedBloom => Kind::BlockedBloom as u8,
            Self::Ribbon => Kind::Ribbon as u8,
            Self::Auto => 255,
        }
    }

    /// The kind with this [`FilterKind::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The size of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FilterSize {
    /// Bits per key, possibly fractional.
    BitsPerKey(f64),
    /// The bits per key for this rate (0.01 is 1 %).
    FalsePositiveRate(f64),
}

impl FilterSize {
    /// Number and value in stored options. Append only.
    #[must_use]
    pub const fn code(self) -> (u8, f64) {
        match self {
            Self::BitsPerKey(bits) => (0, bits),
            Self::FalsePositiveRate(rate) => (1, rate),
        }
    }

    /// The size with this [`FilterSize::code`].
    #[must_use]
    pub const fn from_code(code: u8, value: f64) -> Option<Self> {
        match code {
            0 => Some(Self::BitsPerKey(value)),
            1 => Some(Self::FalsePositiveRate(value)),
            _ => None,
        }
    }
}

/// The allocation of bits to levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FilterAllocation {
    /// Every level has the same bits per key.
    Uniform,
    /// Small levels and often probed tables have more bits ([`allocation`](super::allocation)). The total is the policy's
    /// bits per key for all keys of the tree, or the memory of a uniform allocation with the policy's rate.
    ///
    /// A new table gets its share as if the tree were already compacted. While the filters exceed the total, the least
    /// useful column groups of ribbon filters stay on disk.
    #[default]
    Optimal,
}

impl FilterAllocation {
    /// Number in stored options. Append only, see format.md.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Uniform => 0,
            Self::Optimal => 1,
        }
    }

    /// The allocation with this [`FilterAllocation::code`].
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Uniform, Self::Optimal].into_iter().find(|allocation| allocation.code() == code)
    }
}

/// The filters of a keyspace. Default: `Auto`, 10 bits per key, optimal allocation.
///
/// ```
/// use sievedb_filter::{FilterKind, FilterPolicy};
/// let policy = FilterPolicy::new(FilterKind::Bloom).false_positive_rate(0.001);
/// policy.validate().unwrap();
/// assert!((policy.resolve(1_000_000).unwrap().bits_per_key - 14.38).abs() < 0.01);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct FilterPolicy {
    /// Filter kind.
    pub kind: FilterKind,
    /// Size.
    pub size: FilterSize,
    /// Allocation of bits to levels.
    pub allocation: FilterAllocation,
    /// See [`FilterPolicy::expect_hits`].
    pub expect_hits: bool,
}

/// The filter of one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterPlan {
    /// Filter kind.
    pub kind: Kind,
    /// More than 0 and at most [`BITS_PER_KEY_MAX`].
    pub bits_per_key: f64,
}

impl Default for FilterPolicy {
    fn default() -> Self {
        Self::new(FilterKind::default())
    }
}

impl FilterPolicy {
    /// A policy with this kind, 10 bits per key and optimal allocation.
    #[must_use]
    pub fn new(kind: FilterKind) -> Self {
        Self {
            kind,
            size: FilterSize::BitsPerKey(10.0),
            allocation: FilterAllocation::Optimal,
            expect_hits: false,
        }
    }

    /// Sets the bits per key, possibly fractional.
    #[must_use]
    pub fn bits_per_key(mut self, bits: f64) -> Self {
        self.size = FilterSize::BitsPerKey(bits);
        self
    }

    /// Sets the size by false-positive rate, more than 0 and less than 1.
    #[must_use]
    pub fn false_positive_rate(mut self, rate: f64) -> Self {
        self.size = FilterSize::FalsePositiveRate(rate);
        self
    }

    /// Sets the allocation.
    #[must_use]
    pub fn allocation(mut self, allocation: FilterAllocation) -> Self {
        self.allocation = allocation;
        self
    }

    /// Declares that nearly all lookups are for present keys, or that there are only scans. The last level, with about
    /// nine keys in ten, then has no filter.
    #[must_use]
    pub fn expect_hits(mut self, expect: bool) -> Self {
        self.expect_hits = expect;
        self
    }

    /// Checks the size.
    ///
    /// # Errors
    ///
    /// [`FilterError::InvalidArgument`] unless the bits per key are more than 0 and at most [`BITS_PER_KEY_MAX`], or
    /// the rate is more than 0, less than 1, and reachable within that size.
    pub fn validate(&self) -> Result<(), FilterError> {
        match self.size {
            FilterSize::BitsPerKey(bits) => check_bits_per_key(bits)?,
            FilterSize::FalsePositiveRate(rate) if !(rate > 0.0 && rate < 1.0) => {
                return Err(FilterError::invalid(format!(
                    "false-positive rate {rate} must be between 0 and 1"
                )));
            }
            FilterSize::FalsePositiveRate(rate) => {
                if let Some(kind) =
                    self.kinds_for_rate().iter().find(|kind| bits_for_rate(**kind, rate).is_none())
                {
                    return Err(FilterError::invalid(format!(
                        "a {kind:?} filter with false-positive rate {rate} takes more than {BITS_PER_KEY_MAX} bits per key"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Returns the filter of a table with about `keys` keys; `None` if the policy has no filter or is invalid. O(1).
    #[must_use]
    pub fn resolve(&self, keys: u64) -> Option<FilterPlan> {
        self.resolve_for(&TableUse::new(keys))
    }

    /// [`FilterPolicy::resolve`] for a table with a history.
    #[must_use]
    pub fn resolve_for(&self, table: &TableUse) -> Option<FilterPlan> {
        self.validate().ok()?;
        match self.size {
            FilterSize::BitsPerKey(bits_per_key) => {
                let kind = self.kind_for(table, bits_per_key)?;
                Some(FilterPlan { kind, bits_per_key })
            }
            FilterSize::FalsePositiveRate(rate) => {
                // At equal rates, the smallest kind wins.
                let kind = self.fixed_kind().or((self.kind == FilterKind::Auto).then(|| table.smallest()))?;
                Some(FilterPlan { kind, bits_per_key: bits_for_rate(kind, rate)? })
            }
        }
    }

    /// Returns the kind for this size, if any.
    #[must_use]
    pub fn kind_for(&self, table: &TableUse, bits_per_key: f64) -> Option<Kind> {
        self.fixed_kind().or_else(|| (self.kind == FilterKind::Auto).then(|| table.cheapest(bits_per_key)))
    }

    fn fixed_kind(&self) -> Option<Kind> {
        match self.kind {
            FilterKind::None | FilterKind::Auto => None,
            FilterKind::Bloom => Some(Kind::Bloom),
            FilterKind::BlockedBloom => Some(Kind::BlockedBloom),
            FilterKind::Ribbon => Some(Kind::Ribbon),
        }
    }

    fn kinds_for_rate(&self) -> &'static [Kind] {
        match self.kind {
            FilterKind::None => &[],
            FilterKind::Auto => &[Kind::Bloom, Kind::Ribbon],
            FilterKind::Bloom => &[Kind::Bloom],
            FilterKind::BlockedBloom => &[Kind::BlockedBloom],
            FilterKind::Ribbon => &[Kind::Ribbon],
        }
    }
}

impl FilterPlan {
    /// The theoretical false-positive rate of a large filter.
    ///
    /// Bloom: `(1 - e^(-k/b))^k` (Bloom 1970; Fan, Cao, Almeida and Broder 2000). Blocked Bloom: the mean of this rate
    /// over the Poisson distribution of keys to lines (Putze, Sanders and Singler 2007, section 3). Ribbon: `2^-r` for
    /// `r` columns, or a mixture (Dillinger, Hübschle-Schneider, Sanders and Walzer 2022).
    #[must_use]
    pub fn expected_rate(&self) -> f64 {
        rate(self.kind, millibits(self.bits_per_key))
    }

    /// Returns the rate with this number of probes (at least 1). For ribbon filters, `probes` is ignored.
    ///
    /// ```
    /// # use sievedb_filter::{FilterPlan, Kind};
    /// let plan = FilterPlan { kind: Kind::Bloom, bits_per_key: 10.0 };
    /// assert!((plan.expected_rate_with(3) - 0.0174).abs() < 0.00005);
    /// ```
    #[must_use]
    pub fn expected_rate_with(&self, probes: u8) -> f64 {
        match self.kind {
            Kind::Bloom => bloom::rate(self.bits_per_key, probes.max(1)),
            Kind::BlockedBloom => blocked::rate(self.bits_per_key, probes.max(1)),
            Kind::Ribbon => self.expected_rate(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_without_meaning_are_refused() {
        let policy = FilterPolicy::default();
        for bits in [f64::NAN, 0.0, -0.0, -1.0, 64.001, f64::INFINITY, f64::NEG_INFINITY] {
            let wrong = policy.bits_per_key(bits);
            assert!(matches!(wrong.validate(), Err(FilterError::InvalidArgument { .. })), "{bits}");
            assert_eq!(wrong.resolve(1_000_000), None);
        }
        for rate in [f64::NAN, 0.0, -0.1, 1.0, 2.0, 1e-300] {
            let wrong = policy.false_positive_rate(rate);
            assert!(matches!(wrong.validate(), Err(FilterError::InvalidArgument { .. })), "{rate}");
            assert_eq!(wrong.resolve(1_000_000), None);
        }
        for bits in [f64::MIN_POSITIVE, 0.001, 9.9, 64.0] {
            policy.bits_per_key(bits).validate().unwrap();
        }
    }

    #[test]
    fn auto_is_ribbon_but_for_few_keys_and_for_many_bits() {
        let plan = |bits, keys| FilterPolicy::default().bits_per_key(bits).resolve(keys).unwrap();
        assert_eq!(plan(10.0, 1_000_000), FilterPlan { kind: Kind::Ribbon, bits_per_key: 10.0 });
        assert_eq!((plan(10.0, 95).kind, plan(10.0, 96).kind), (Kind::Bloom, Kind::Ribbon));
        assert_eq!(
            (plan(30.0, 95).kind, plan(30.0, 1_000_000).kind),
            (Kind::BlockedBloom, Kind::BlockedBloom)
        );
        assert_eq!(FilterPolicy::new(FilterKind::Ribbon).resolve(95).unwrap().kind, Kind::Ribbon);
        assert_eq!(FilterPolicy::new(FilterKind::None).resolve(1_000_000), None);
        let uniform = FilterPolicy::default().allocation(FilterAllocation::Uniform);
        assert_eq!(uniform.resolve(1_000_000), FilterPolicy::default().resolve(1_000_000));
        for (rate, bits) in [(0.01, 6.74), (1e-7, 23.4)] {
            let found = FilterPolicy::default().false_positive_rate(rate).resolve(1_000_000).unwrap();
            assert!(found.kind == Kind::Ribbon && (found.bits_per_key - bits).abs() < 0.1, "{found:?}");
        }
    }

    fn documented(part: &str) -> Vec<Vec<String>> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/filter-rates.md");
        let document = std::fs::read_to_string(path).unwrap();
        let part = document.split("## ").find(|text| text.starts_with(part)).expect("a part");
        let rows = part.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
            .collect()
    }

    #[test]
    fn the_document_of_rates_has_the_formula_and_measurements_that_agree_with_it() {
        for kind in Kind::ALL {
            let rows = documented(&format!("{kind:?}\n"));
            assert!(rows.len() > 10);
            for row in rows {
                let plan = FilterPlan { kind, bits_per_key: row[0].parse().unwrap() };
                assert_eq!(format!("{:.2e}", plan.expected_rate()), row[2], "{kind:?} {row:?}");
                let [formula, predicted, measured] = [2, 3, 4].map(|cell| row[cell].parse::<f64>().unwrap());
                assert!((predicted / formula - 1.0).abs() < 0.03, "{kind:?} {row:?}");
                // About 4000 counts have a standard deviation of 1.6 %. A very low rate gives fewer counts.
                let counts = (predicted * 1e8).min(4000.0);
                assert!((measured / predicted - 1.0).abs() < 0.01 + 4.0 / counts.sqrt(), "{kind:?} {row:?}");
            }
        }
    }

    #[test]
    fn the_summary_cache_table_of_the_document_is_the_formula_and_was_measured() {
        let rows = documented("The table of the Summary Cache");
        assert_eq!(rows.len(), 16);
        for row in rows {
            let plan = FilterPlan { kind: Kind::Bloom, bits_per_key: row[0].parse().unwrap() };
            for (probes, cell) in (1..=8).zip(&row[1..]) {
                let (formula, measured) = cell.split_once(" / ").unwrap();
                let exact = plan.expected_rate_with(probes);
                assert_eq!(format!("{exact:.2e}"), formula, "{row:?}");
                let measured: f64 = measured.parse().unwrap();
                let counts = (exact * 1e8).min(4000.0);
                assert!((measured / exact - 1.0).abs() < 0.02 + 4.0 / counts.sqrt(), "{row:?} {probes}");
            }
        }
    }

    #[test]
    fn a_rate_becomes_the_fewest_bits_that_reach_it() {
        for (kind, wanted, bits) in [
            (Kind::Bloom, 0.01, 9.59),
            (Kind::Bloom, 1.0 / 256.0, 11.54),
            (Kind::Bloom, 0.001, 14.38),
            (Kind::BlockedBloom, 0.01, 9.90),
            (Kind::BlockedBloom, 1.0 / 256.0, 12.13),
            (Kind::BlockedBloom, 0.001, 15.53),
            (Kind::Ribbon, 0.01, 6.74),
            (Kind::Ribbon, 1.0 / 256.0, 8.03),
            (Kind::Ribbon, 0.001, 10.01),
        ] {
            let found = bits_for_rate(kind, wanted).unwrap();
            assert!((found - bits).abs() < 0.02, "{kind:?} {wanted}: {found}");
            assert!(rate(kind, millibits(found)) <= wanted * 1.001);
            assert!(rate(kind, millibits(found) - 2) > wanted);
        }
    }

    #[test]
    fn more_bits_never_make_the_rate_worse() {
        for kind in Kind::ALL {
            let rates: Vec<f64> = (1..640).map(|tenths| rate(kind, tenths * 100)).collect();
            assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]), "{kind:?}");
        }
    }
}
