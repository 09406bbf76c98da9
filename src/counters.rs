//! Counters that many threads increment often and read rarely.
//!
//! Each counter has [`STRIPES`] cache lines, and a thread always uses the same one. A sum is not atomic: it reads the
//! stripes one after the other.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 8;

thread_local! {
    static STRIPE: Cell<Option<Stripe>> = const { Cell::new(None) };
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stripe(u8);

impl Stripe {
    #[inline]
    pub(crate) fn of_thread() -> Self {
        STRIPE.get().unwrap_or_else(Self::choose)
    }

    #[cold]
    fn choose() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let stripe = Self((NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES) as u8);
        STRIPE.set(Some(stripe));
        stripe
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line<const N: usize>([AtomicU64; N])
where
    [AtomicU64; N]: Default;

#[derive(Debug, Default)]
pub(crate) struct Striped<const N: usize>
where
    [AtomicU64; N]: Default,
{
    stripes: [Line<N>; STRIPES],
}

impl<const N: usize> Striped<N>
where
    [AtomicU64; N]: Default,
{
    #[inline]
    pub(crate) fn add(&self, counter: usize, amount: u64) -> u64 {
        self.line(Stripe::of_thread())[counter].fetch_add(amount, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn add_alone(&self, counter: usize, amount: u64) -> u64 {
        let stripe = Stripe::of_thread();
        let before = self.line(stripe)[counter].load(Ordering::Relaxed);
        self.add_about(stripe, counter, amount);
        before
    }

    /// Adds about `amount`, at a fifth of the cost of [`Striped::add`]. Concurrent increments in one stripe may be
    /// lost.
    #[inline]
    pub(crate) fn add_about(&self, stripe: Stripe, counter: usize, amount: u64) {
        let count = &self.line(stripe)[counter];
        count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    #[inline]
    fn line(&self, stripe: Stripe) -> &[AtomicU64; N] {
        &self.stripes[usize::from(stripe.0) % STRIPES].0
    }

    pub(crate) fn sum(&self, counter: usize) -> u64 {
        self.stripes.iter().map(|line| line.0[counter].load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct FilterCounters(Striped<5>);

/// Answers of filters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FilterCounts {
    /// "Absent" answers, each of which saved a block read. Concurrent threads may lose a few counts, except with
    /// [`Options::audit_absent`](crate::Options::audit_absent).
    pub negatives: u64,
    /// "Maybe" answers for keys that the table does not have: wasted reads.
    pub false_positives: u64,
    /// "Maybe" answers for keys that the table has.
    pub true_positives: u64,
    /// Reads of a table that has neither the key nor a usable filter.
    pub unfiltered_misses: u64,
}

impl FilterCounters {
    #[inline]
    pub(crate) fn negative(&self) -> u64 {
        self.0.add(0, 1)
    }

    #[inline]
    pub(crate) fn negatives_about(&self, stripe: Stripe, answers: u64) {
        self.0.add_about(stripe, 0, answers);
    }

    #[inline]
    pub(crate) fn positive(&self, found: bool) {
        self.0.add(if found { 2 } else { 1 }, 1);
    }

    pub(crate) fn denied_by_page(&self) {
        self.0.add(4, 1);
    }

    pub(crate) fn denials_by_page(&self) -> u64 {
        self.0.sum(4)
    }

    #[inline]
    pub(crate) fn unfiltered_miss(&self) {
        self.0.add(3, 1);
    }

    pub(crate) fn counts(&self) -> FilterCounts {
        FilterCounts {
            negatives: self.0.sum(0),
            false_positives: self.0.sum(1),
            true_positives: self.0.sum(2),
            unfiltered_misses: self.0.sum(3),
        }
    }
}

impl FilterCounts {
    /// The number of probes.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.negatives + self.false_positives + self.true_positives
    }

    /// False positives divided by the probes for absent keys; `None` before the first such probe.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("a", "")?;
    /// db.put("z", "")?;
    /// db.flush()?;
    /// assert!(!db.contains("k")?);
    /// let counts = db.stats().keyspaces[0].total().filter;
    /// assert_eq!(counts.probes(), 1);
    /// assert!(counts.false_positive_rate().is_some());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn false_positive_rate(&self) -> Option<f64> {
        let absent = self.negatives + self.false_positives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }

    pub(crate) fn absent(&self) -> u64 {
        self.negatives + self.false_positives + self.unfiltered_misses
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.negatives += other.negatives;
        self.false_positives += other.false_positives;
        self.true_positives += other.true_positives;
        self.unfiltered_misses += other.unfiltered_misses;
    }
}

/// After this many lookups, the rate so far gets the weight of a quarter as many lookups.
const WINDOW_LOOKUPS: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(crate) struct RecentRate {
    rate: f32,
    weight: f32,
    count_mark: u64,
    lookups_mark: u64,
}

impl RecentRate {
    pub(crate) fn new(rate: f64, weight: f64, count: u64, lookups: u64) -> Self {
        let (rate, weight) = (rate as f32, weight as f32);
        Self { rate, weight, count_mark: count, lookups_mark: lookups }
    }

    pub(crate) fn at(&mut self, count: u64, lookups: u64) -> f64 {
        let since = lookups.saturating_sub(self.lookups_mark);
        let more = count.saturating_sub(self.count_mark) as f64;
        let (rate, weight) = (f64::from(self.rate), f64::from(self.weight));
        let rate = (rate * weight + more) / (weight + since as f64);
        if since >= WINDOW_LOOKUPS {
            *self = Self::new(rate, WINDOW_LOOKUPS as f64 / 4.0, count, lookups);
        }
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recent_rate_forgets_old_lookups_and_a_few_new_ones_do_not_change_it() {
        let mut rate = RecentRate::new(0.5, 4096.0, 0, 0);
        assert_eq!(rate.at(0, 0), 0.5);
        assert!((rate.at(100, 100) - 0.51).abs() < 0.01);
        let (mut count, mut lookups) = (0, 0);
        for _ in 0..1000 {
            lookups += WINDOW_LOOKUPS;
            count += WINDOW_LOOKUPS / 10;
            rate.at(count, lookups);
        }
        assert!((rate.at(count, lookups) - 0.1).abs() < 1e-4);
        assert_eq!(rate.at(count, lookups), rate.at(count, lookups), "it stays when nothing happens");
        (1..=3).for_each(|window| _ = rate.at(count, lookups + window * WINDOW_LOOKUPS));
        assert!(rate.at(count, lookups + 3 * WINDOW_LOOKUPS) < 0.001);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let counters = FilterCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * STRIPES {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counters.negative();
                        counters.positive(true);
                        counters.positive(false);
                    }
                });
            }
        });
        let n = 3 * STRIPES as u64 * 1000;
        let expected =
            FilterCounts { negatives: n, false_positives: n, true_positives: n, unfiltered_misses: 0 };
        assert_eq!(counters.counts(), expected);
        assert_eq!(expected.probes(), 3 * n);
        assert_eq!(expected.false_positive_rate(), Some(0.5));
    }
}
