//! The cost of a filter. [`FilterKind::Auto`](crate::FilterKind) uses it to choose the kind.
//!
//! An absent lookup that reaches a table costs, in nanoseconds,
//!
//! ```text
//! PROBE + rate · READ + BUILD / probes per key                for each kind, at the same size
//! ```
//!
//! # The figures
//!
//! `docs/benchmarks/costs.md` measures the terms for 100,000 keys. The build times here are for a million keys, because
//! such a filter does not fit into the processor's cache (`docs/benchmarks/filters.md`).
//!
//! A wasted read takes 60 µs: it reads 4 KiB that are not in the page cache. A read from the page cache takes 3.3 µs;
//! with this time, another kind is best for middle sizes:
//!
//! | bits per key | least at 60 µs | least at 3.3 µs |
//! |---|---|---|
//! | up to 12.3 | ribbon | ribbon |
//! | 12.4 to 20.2 | ribbon | blocked Bloom |
//! | from 20.3 | blocked Bloom | blocked Bloom |
//!
//! For tables larger than memory, the blocked filter chosen at 3.3 µs would cost 95 ns more per probe at 14 bits per
//! key. A wrong choice for cached tables costs up to 11 ns per probe.
//!
//! A filter is expected to be probed 20 times per key. If the filters of the replaced tables were probed more often,
//! that number is used. The minimum of 20 exists because a table written before any reads may exist for years.
//!
//! # Consequences
//!
//! At 10 bits on average, only tables with less than a thousandth of their tree's keys get 20.3 bits and thus blocked
//! Bloom. Fewer than 96 keys get a Bloom filter, because a ribbon filter has at least 128 slots. For more keys, Bloom
//! costs at least nine tenths of the better kind and is not considered.
//!
//! # Hysteresis
//!
//! The kind of the replaced tables is kept unless another kind costs at most four fifths, so that rewrites do not
//! alternate between kinds.

use crate::allocation::Share;
use crate::header::Kind;
use crate::ribbon;

/// A wasted read of a data block, in nanoseconds.
pub const READ_NS: f64 = 60_000.0;

/// The minimum of the expected number of probes per key.
pub const PROBES_PER_KEY_MIN: f64 = 20.0;

/// Another kind replaces the present kind if its cost is at most this share.
pub const SWITCH_AT: f64 = 0.8;

/// The time of a probe for an absent key, in nanoseconds.
#[must_use]
pub const fn probe_ns(kind: Kind) -> f64 {
    match kind {
        Kind::BlockedBloom => 4.0,
        Kind::Bloom | Kind::Ribbon => 8.0,
    }
}

/// The time of building, in nanoseconds per key.
#[must_use]
pub const fn build_ns(kind: Kind) -> f64 {
    match kind {
        Kind::BlockedBloom => 40.0,
        Kind::Bloom => 80.0,
        Kind::Ribbon => 180.0,
    }
}

/// A table that needs a filter kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableUse {
    /// Distinct user keys.
    pub keys: u64,
    /// Number of probes for absent keys in the replaced tables' filters, per key.
    pub probes_per_key: f64,
    /// The kind with the most keys in the replaced tables.
    pub present: Option<Kind>,
}

impl TableUse {
    /// A table that replaces no tables.
    #[must_use]
    pub fn new(keys: u64) -> Self {
        Self { keys, probes_per_key: 0.0, present: None }
    }

    /// The cost in nanoseconds per lookup that reaches the table.
    ///
    /// ```
    /// use sievedb_filter::Kind;
    /// use sievedb_filter::cost::TableUse;
    ///
    /// let table = TableUse::new(1_000_000);
    /// assert!(table.cost_ns(Kind::Ribbon, 10.0) < 80.0);
    /// assert!(table.cost_ns(Kind::BlockedBloom, 10.0) > 580.0);
    /// ```
    #[must_use]
    pub fn cost_ns(&self, kind: Kind, bits_per_key: f64) -> f64 {
        self.cost_with(READ_NS, kind, bits_per_key)
    }

    fn cost_with(&self, read_ns: f64, kind: Kind, bits_per_key: f64) -> f64 {
        let rate = Share::new(kind, self.keys, 1.0).rate(bits_per_key);
        probe_ns(kind) + rate * read_ns + build_ns(kind) / self.probes_per_key.max(PROBES_PER_KEY_MIN)
    }

    /// Returns the cheapest kind, or the present kind if it costs little more. O(1).
    #[must_use]
    pub fn cheapest(&self, bits_per_key: f64) -> Kind {
        let kinds = self.kinds();
        let cost = |kind: &Kind| self.cost_ns(*kind, bits_per_key);
        let least = kinds.into_iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).unwrap_or(kinds[0]);
        match self.present {
            Some(present) if kinds.contains(&present) && cost(&least) > SWITCH_AT * cost(&present) => present,
            _ => least,
        }
    }

    pub(crate) fn smallest(&self) -> Kind {
        self.kinds()[0]
    }

    fn kinds(&self) -> [Kind; 2] {
        let small = if self.keys < ribbon::KEYS_MIN { Kind::Bloom } else { Kind::Ribbon };
        [small, Kind::BlockedBloom]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_CACHE_READ_NS: f64 = 3_300.0;

    #[test]
    fn the_cheapest_kind_is_that_of_the_sum() {
        for keys in [1, 95, 96, 1000, 100_000, 10_000_000] {
            for probes_per_key in [0.0, 1.0, 1000.0] {
                let table = TableUse { keys, probes_per_key, present: None };
                let small = if keys < 96 { Kind::Bloom } else { Kind::Ribbon };
                let kinds = [2.0, 6.0, 10.0, 14.0, 17.0, 28.0, 40.0].map(|bits| table.cheapest(bits));
                assert_eq!(kinds[..5], [small; 5], "{keys} {probes_per_key}");
                assert_eq!(kinds[5..], [Kind::BlockedBloom; 2], "{keys} {probes_per_key}");
            }
        }
    }

    #[test]
    fn the_documented_sums_and_thresholds_are_those_of_the_constants() {
        let table = TableUse::new(1_000_000);
        let costs = [Kind::Ribbon, Kind::Bloom, Kind::BlockedBloom].map(|kind| table.cost_ns(kind, 10.0));
        assert_eq!(costs.map(|cost| cost.round()), [78.0, 504.0, 586.0], "{costs:?}");
        let first = (100..300).find(|tenths| table.cheapest(f64::from(*tenths) / 10.0) == Kind::BlockedBloom);
        assert_eq!(first, Some(203));
        assert!((0.0001..0.0002).contains(&Share::new(Kind::BlockedBloom, 1_000_000, 1.0).rate(20.0)));
    }

    #[test]
    fn the_documented_differences_between_disk_and_page_cache_are_those_of_the_constants() {
        let table = TableUse::new(1_000_000);
        let more = |read_ns, bits| {
            let of = |kind| table.cost_with(read_ns, kind, bits);
            of(Kind::BlockedBloom) - of(Kind::Ribbon)
        };
        let sizes = || (40..300).map(|tenths| f64::from(tenths) / 10.0);
        for (read_ns, first) in [(READ_NS, 20.3), (PAGE_CACHE_READ_NS, 12.4), (6000.0, 14.0)] {
            assert!(sizes().all(|bits| (more(read_ns, bits) < 0.0) == (bits >= first)), "{read_ns}");
        }
        let saved = -more(0.0, 10.0);
        let reads = more(PAGE_CACHE_READ_NS, 10.0) + saved;
        assert_eq!((reads.round(), saved.round()), (29.0, 11.0), "{reads} {saved}");
        assert_eq!(more(READ_NS, 14.0).round(), 95.0);
        let lost = sizes().filter(|&bits| bits < 20.3).map(|bits| -more(PAGE_CACHE_READ_NS, bits));
        let most = lost.fold(0.0, f64::max);
        assert_eq!(most.ceil(), 11.0, "{most}");
    }

    #[test]
    fn a_kind_that_hardly_costs_more_is_kept_and_one_that_costs_much_more_is_not() {
        let of = |present| TableUse { present: Some(present), ..TableUse::new(100_000) };
        let (ribbon, blocked) = (of(Kind::Ribbon), of(Kind::BlockedBloom));
        for tenths in 195..=212 {
            let bits = f64::from(tenths) / 10.0;
            assert_eq!(ribbon.cheapest(bits), Kind::Ribbon, "{bits}");
            assert_eq!(blocked.cheapest(bits), Kind::BlockedBloom, "{bits}");
        }
        assert_eq!((ribbon.cheapest(28.0), blocked.cheapest(28.0)), (Kind::BlockedBloom, Kind::BlockedBloom));
        assert_eq!((ribbon.cheapest(14.0), blocked.cheapest(14.0)), (Kind::Ribbon, Kind::Ribbon));
        assert_eq!(of(Kind::Bloom).cheapest(10.0), Kind::Ribbon);
    }

    #[test]
    fn what_is_probed_more_than_expected_gets_ribbon_filters_up_to_more_bits() {
        let busy = TableUse { probes_per_key: 10_000.0, ..TableUse::new(100_000) };
        let first = |table: &TableUse| {
            (100..400).find(|tenths| table.cheapest(f64::from(*tenths) / 10.0) == Kind::BlockedBloom)
        };
        assert!(first(&busy) > first(&TableUse::new(100_000)));
        let idle = TableUse { probes_per_key: 0.001, ..busy };
        assert_eq!(first(&idle), first(&TableUse::new(100_000)));
    }
}
