//! Bits per key and false-positive rates.

use alloc::format;

#[cfg(feature = "std")]
use std::sync::{Mutex, PoisonError};

use super::header::Kind;
use super::{blocked, bloom, ribbon};
use crate::error::FilterError;

/// Maximum bits per key of a policy.
pub const BITS_PER_KEY_MAX: f64 = 64.0;

pub(super) fn check_bits_per_key(bits: f64) -> Result<(), FilterError> {
    if bits > 0.0 && bits <= BITS_PER_KEY_MAX {
        return Ok(());
    }
    Err(FilterError::invalid(format!("{bits} bits per key must be over 0 and at most {BITS_PER_KEY_MAX}")))
}

pub(super) fn millibits(bits_per_key: f64) -> u32 {
    (bits_per_key * 1000.0) as u32
}

pub(super) fn rate(kind: Kind, millibits: u32) -> f64 {
    let bits = f64::from(millibits.max(1)) / 1000.0;
    match kind {
        Kind::Bloom => bloom::rate(bits, bloom::best_probes(millibits)),
        Kind::BlockedBloom => blocked::rate(bits, blocked::best_probes(millibits)),
        Kind::Ribbon => ribbon::rate(bits),
    }
}

/// Returns the fewest thousandths of a bit per key for this rate. Cached, because a search takes 2 ms.
#[cfg(feature = "std")]
pub(super) fn bits_for_rate(kind: Kind, wanted: f64) -> Option<f64> {
    static FOUND: Mutex<Found> = Mutex::new(Found { searches: [None; SEARCHES_KEPT], next: 0 });
    let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    let search = (kind, wanted.to_bits());
    if let Some(bits) = found().get(search) {
        return bits;
    }
    // The lock is not held during the search.
    let bits = search_bits_for_rate(kind, wanted);
    found().keep(search, bits);
    bits
}

#[cfg(not(feature = "std"))]
pub(super) fn bits_for_rate(kind: Kind, wanted: f64) -> Option<f64> {
    search_bits_for_rate(kind, wanted)
}

#[cfg(feature = "std")]
const SEARCHES_KEPT: usize = 64;

#[cfg(feature = "std")]
type Search = (Kind, u64);

#[cfg(feature = "std")]
struct Found {
    searches: [Option<(Search, Option<f64>)>; SEARCHES_KEPT],
    next: usize,
}

#[cfg(feature = "std")]
impl Found {
    fn get(&self, wanted: Search) -> Option<Option<f64>> {
        let mut kept = self.searches.iter().flatten();
        kept.find(|(search, _)| *search == wanted).map(|(_, bits)| *bits)
    }

    fn keep(&mut self, search: Search, bits: Option<f64>) {
        if self.get(search).is_none() {
            self.searches[self.next] = Some((search, bits));
            self.next = (self.next + 1) % SEARCHES_KEPT;
        }
    }
}

fn search_bits_for_rate(kind: Kind, wanted: f64) -> Option<f64> {
    #[cfg(all(test, feature = "std"))]
    tests::SEARCHES.with(|searches| searches.set(searches.get() + 1));
    let (mut low, mut high) = (0, millibits(BITS_PER_KEY_MAX));
    if rate(kind, high) > wanted {
        return None;
    }
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if rate(kind, middle) <= wanted { high = middle } else { low = middle }
    }
    Some(f64::from(high) / 1000.0)
}

#[cfg(all(test, feature = "std"))]
pub(super) mod tests {
    use core::cell::Cell;

    use super::*;
    use crate::{FilterKind, FilterPolicy};

    std::thread_local! {
        pub(super) static SEARCHES: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_policy_with_a_rate_searches_for_its_bits_once_however_many_tables_it_is_resolved_for() {
        for (number, kind) in FilterKind::ALL.into_iter().enumerate() {
            let policy = FilterPolicy::new(kind).false_positive_rate(0.010_203 + number as f64 * 1e-6);
            let before = SEARCHES.get();
            let first = policy.resolve(100_000);
            let searched = SEARCHES.get() - before;
            assert!(
                searched <= 2,
                "{kind:?}: {searched} searches, at most one for each kind that it may build"
            );
            for keys in 0..1000 {
                assert!(policy.resolve(100_000 + keys) == first);
                policy.validate().unwrap();
            }
            assert_eq!(SEARCHES.get() - before, searched, "{kind:?}");
        }
    }

    #[test]
    fn a_result_that_was_kept_is_that_of_a_search() {
        for kind in Kind::ALL {
            for number in 1..2 * SEARCHES_KEPT as u32 {
                let rate = 0.5 / f64::from(number);
                let searched = if number % 16 == 0 { search_bits_for_rate(kind, rate) } else { continue };
                assert_eq!(bits_for_rate(kind, rate), searched);
                assert_eq!(bits_for_rate(kind, rate), searched);
            }
            assert_eq!((bits_for_rate(kind, 1e-300), bits_for_rate(kind, 1e-300)), (None, None));
        }
    }
}
