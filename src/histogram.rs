//! A log-linear histogram of durations, on striped counters.
//!
//! The durations from one power of two nanoseconds to the next have 16 equal buckets, the resolution of `hdrhistogram`
//! with one significant digit. Durations of 73 minutes and more share the last bucket. The maximum is exact.
//!
//! Only one in [`SAMPLED_IN`] fast calls is timed, because two reads of a clock take as long as a lookup in a memtable.
//! A hash of the stripe's count selects the calls, so that periodic programs are sampled evenly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::counters::Striped;

const BUCKETS: usize = 16;
const BUCKETS_LOG: u32 = BUCKETS.ilog2();

const BITS: u32 = 42;

const GROUPS: usize = (BITS - BUCKETS_LOG) as usize + 1;

pub(crate) const SAMPLED_IN: u64 = 64;

#[derive(Debug)]
pub(crate) struct Histogram {
    groups: Box<[Striped<BUCKETS>]>,
    totals: Striped<2>,
    max: AtomicU64,
}

/// Latencies of one kind of call since the opening; see [`LatencyStats`](crate::LatencyStats).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CallLatency {
    /// Calls, including failed ones.
    pub count: u64,
    /// Timed calls: all, or one in 64.
    pub timed: u64,
    /// Sum of the durations of timed calls.
    pub total: Duration,
    /// The median. Percentiles are upper ends of buckets, at most a 16th too large.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The 99.9th percentile.
    pub p999: Duration,
    /// The longest timed call.
    pub max: Duration,
    /// The nonempty buckets, shortest durations first. Their counts add up to `timed`.
    pub buckets: Vec<LatencyBucket>,
}

/// Calls of about the same duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LatencyBucket {
    /// Shortest duration, in nanoseconds.
    pub least_nanos: u64,
    /// Longest duration, in nanoseconds.
    pub most_nanos: u64,
    /// Timed calls of these durations.
    pub count: u64,
}

#[inline]
fn is_sampled(before: u64) -> bool {
    const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
    before.wrapping_mul(GOLDEN_RATIO) <= u64::MAX / SAMPLED_IN
}

fn bucket(nanos: u64) -> (usize, usize) {
    let nanos = nanos.min((1 << BITS) - 1);
    let shift = (u64::BITS - (nanos | 1).leading_zeros()).saturating_sub(BUCKETS_LOG + 1);
    let group = shift as usize + usize::from(nanos >= BUCKETS as u64);
    (group, (nanos >> shift) as usize % BUCKETS)
}

fn bounds(group: usize, place: usize) -> (u64, u64) {
    let shift = group.saturating_sub(1) as u32;
    let least = ((if group == 0 { 0 } else { BUCKETS } + place) as u64) << shift;
    let is_last = group + 1 == GROUPS && place + 1 == BUCKETS;
    (least, if is_last { u64::MAX } else { least + (1 << shift) - 1 })
}

impl Histogram {
    pub(crate) const BYTES: u64 = (size_of::<Self>() + GROUPS * size_of::<Striped<BUCKETS>>()) as u64;

    pub(crate) fn new() -> Self {
        let groups = (0..GROUPS).map(|_| Striped::default()).collect();
        Self { groups, totals: Striped::default(), max: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn count(&self) -> bool {
        is_sampled(self.totals.add(0, 1))
    }

    #[inline]
    pub(crate) fn count_alone(&self) -> bool {
        is_sampled(self.totals.add_alone(0, 1))
    }

    pub(crate) fn record(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (group, place) = bucket(nanos);
        // Updated before the bucket, so that no percentile exceeds the maximum.
        if nanos > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(nanos, Ordering::Relaxed);
        }
        self.totals.add(1, nanos);
        self.groups[group].add(place, 1);
    }

    pub(crate) fn latency(&self) -> CallLatency {
        let mut buckets = Vec::new();
        for (group, counters) in self.groups.iter().enumerate() {
            for place in 0..BUCKETS {
                let (least_nanos, most_nanos) = bounds(group, place);
                let count = counters.sum(place);
                if count > 0 {
                    buckets.push(LatencyBucket { least_nanos, most_nanos, count });
                }
            }
        }
        // Read after the buckets, so that `count` is at least `timed`.
        let (total, max) = (self.totals.sum(1), self.max.load(Ordering::Relaxed));
        let percentile = |permille| Duration::from_nanos(percentile(&buckets, permille).min(max));
        CallLatency {
            count: self.totals.sum(0),
            timed: buckets.iter().map(|bucket| bucket.count).sum(),
            total: Duration::from_nanos(total),
            p50: percentile(500),
            p99: percentile(990),
            p999: percentile(999),
            max: Duration::from_nanos(max),
            buckets,
        }
    }
}

fn percentile(buckets: &[LatencyBucket], permille: u64) -> u64 {
    let timed: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let wanted = (u128::from(timed) * u128::from(permille)).div_ceil(1000);
    let mut up_to = 0;
    let reached = buckets.iter().find(|bucket| {
        up_to += u128::from(bucket.count);
        up_to >= wanted
    });
    reached.map_or(0, |bucket| bucket.most_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations around the bounds of each bucket.
    fn samples() -> impl Iterator<Item = u64> {
        let powers = (0..u64::BITS).map(|bit| 1_u64 << bit);
        let parts = powers.flat_map(|power| (0..33).map(move |part| power.saturating_add(power / 32 * part)));
        parts.flat_map(|nanos| [nanos.saturating_sub(1), nanos, nanos.saturating_add(1)])
    }

    #[test]
    fn each_duration_is_in_the_bucket_whose_bounds_it_is_between_and_buckets_are_narrow() {
        for nanos in samples().chain([0, u64::MAX]) {
            let (group, place) = bucket(nanos);
            let (least, most) = bounds(group, place);
            assert!((least..=most).contains(&nanos), "{nanos} is in {least}..={most}");
            assert!(most == u64::MAX || most - least <= least / BUCKETS as u64, "{least}..={most}");
        }
    }

    #[test]
    fn the_buckets_follow_each_other_without_gaps() {
        let all = (0..GROUPS).flat_map(|group| (0..BUCKETS).map(move |place| bounds(group, place)));
        let end = all.fold(0, |from, (least, most)| {
            assert_eq!(least, from);
            most.wrapping_add(1)
        });
        assert_eq!(end, 0, "the last one ends where numbers end");
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_durations_and_at_most_a_16th_too_large() {
        let histogram = Histogram::new();
        assert_eq!(histogram.latency(), CallLatency::default());
        let mut durations: Vec<u64> = (0..10_000).map(|n: u64| n * n % 7919 * (n % 13 + 1)).collect();
        for &nanos in &durations {
            histogram.count();
            histogram.record(Duration::from_nanos(nanos));
        }
        durations.sort_unstable();
        let latency = histogram.latency();
        assert_eq!((latency.count, latency.timed), (10_000, 10_000));
        assert_eq!(latency.total.as_nanos() as u64, durations.iter().sum::<u64>());
        assert_eq!(latency.max.as_nanos() as u64, durations[9_999]);
        for (percentile, place) in [(latency.p50, 4_999), (latency.p99, 9_899), (latency.p999, 9_989)] {
            let (exact, found) = (durations[place], percentile.as_nanos() as u64);
            assert!((exact..=exact + exact / 16).contains(&found), "{found} instead of {exact}");
        }
    }

    #[test]
    fn a_percentile_is_never_longer_than_the_longest_call() {
        let histogram = Histogram::new();
        histogram.record(Duration::from_nanos(1_000_001));
        histogram.record(Duration::from_secs(1 << 40));
        let latency = histogram.latency();
        assert_eq!(
            (latency.p999, latency.max),
            (Duration::from_nanos(u64::MAX), Duration::from_nanos(u64::MAX))
        );
        let histogram = Histogram::new();
        histogram.record(Duration::from_nanos(1_000_001));
        assert_eq!(histogram.latency().p50, Duration::from_nanos(1_000_001));
    }

    #[test]
    fn all_calls_are_counted_and_one_in_64_of_every_period_is_timed() {
        let histogram = Histogram::new();
        let (mut timed, mut places) = (0, [0_u64; 64]);
        for call in 0..64 * 6400 {
            if histogram.count() {
                timed += 1;
                places[call % 64] += 1;
            }
        }
        assert_eq!(histogram.latency().count, 64 * 6400);
        assert!((6398..=6402).contains(&timed), "{timed}");
        assert!(places.iter().all(|&timed| (95..=105).contains(&timed)), "{places:?}");
    }

    #[test]
    fn no_call_is_lost_between_threads() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for nanos in 0..1000 {
                        histogram.count();
                        histogram.record(Duration::from_nanos(nanos));
                    }
                });
            }
        });
        let latency = histogram.latency();
        assert_eq!((latency.count, latency.timed), (20_000, 20_000));
        assert_eq!(latency.total, Duration::from_nanos(20 * 499_500));
    }
}
