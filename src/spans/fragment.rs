//! Makes a list of spans from overlapping range deletes, by a sweep over their bounds.
//!
//! Snapshots divide the sequence numbers into stripes. A span keeps the newest number of each stripe, because no reader
//! can distinguish numbers within a stripe.
//!
//! The sweep has a max-heap for each stripe. A range delete that has ended is removed when it reaches the top. O(n log
//! n) for n range deletes, plus a step for each bound and stripe in use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::RangeDelete;
use super::builder::SpansBuilder;
use super::list::Spans;
use crate::key::SeqNo;
use crate::sorting::sort_by;

/// `snapshots` must ascend.
pub(crate) fn fragment(range_deletes: impl IntoIterator<Item = RangeDelete>, snapshots: &[SeqNo]) -> Spans {
    fragment_all(range_deletes.into_iter().collect(), snapshots)
}

fn fragment_all(mut all: Vec<RangeDelete>, snapshots: &[SeqNo]) -> Spans {
    sort_by(&mut all, |a, b| a.start.cmp(&b.start));
    let bounds = bounds(&all);
    let mut sweep = Sweep { snapshots, stripes: Vec::new() };
    let (mut builder, mut seqnos, mut next) = (SpansBuilder::default(), Vec::new(), all.iter().peekable());
    for bound in &bounds {
        while let Some(range_delete) = next.next_if(|range_delete| range_delete.start <= *bound) {
            sweep.add(range_delete);
        }
        sweep.newest(bound, &mut seqnos);
        builder.begin(bound, &seqnos);
    }
    builder.finish()
}

/// Returns the distinct bounds in ascending order. The range deletes are sorted by start.
fn bounds(range_deletes: &[RangeDelete]) -> Vec<Arc<[u8]>> {
    let starts = range_deletes.iter().map(|range_delete| &range_delete.start);
    let ends = range_deletes.iter().filter_map(|range_delete| range_delete.end.as_ref());
    let mut bounds: Vec<_> = starts.chain(ends).cloned().collect();
    sort_by(&mut bounds, Ord::cmp);
    bounds.dedup();
    bounds
}

type Over<'a> = (SeqNo, Option<&'a Arc<[u8]>>);

struct Sweep<'a> {
    snapshots: &'a [SeqNo],
    /// Descending.
    stripes: Vec<(usize, BinaryHeap<Over<'a>>)>,
}

impl<'a> Sweep<'a> {
    fn add(&mut self, range_delete: &'a RangeDelete) {
        let seqno = range_delete.seqno;
        let stripe = self.snapshots.partition_point(|&snapshot| snapshot < seqno);
        let place = self.stripes.binary_search_by_key(&Reverse(stripe), |(stripe, _)| Reverse(*stripe));
        let place = place.unwrap_or_else(|place| {
            self.stripes.insert(place, (stripe, BinaryHeap::new()));
            place
        });
        self.stripes[place].1.push((seqno, range_delete.end.as_ref()));
    }

    /// Returns the newest number over this key in each stripe, descending.
    fn newest(&mut self, key: &Arc<[u8]>, seqnos: &mut Vec<SeqNo>) {
        seqnos.clear();
        self.stripes.retain_mut(|(_, over)| {
            while over.peek().is_some_and(|(_, end)| end.is_some_and(|end| end <= key)) {
                over.pop();
            }
            seqnos.extend(over.peek().map(|(seqno, _)| *seqno));
            !over.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Random(u64);

    impl Random {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) % most
        }
    }

    fn random_range_deletes(random: &mut Random) -> Vec<RangeDelete> {
        let count = random.below(12);
        (1..=count)
            .map(|seqno| {
                let start = random.below(15) as u8;
                let end = (random.below(6) > 0).then(|| Arc::from([start + 1 + random.below(6) as u8]));
                RangeDelete { start: Arc::from([start]), end, seqno }
            })
            .collect()
    }

    fn is_over(range_delete: &RangeDelete, key: &[u8]) -> bool {
        *range_delete.start <= *key && range_delete.end.as_ref().is_none_or(|end| *key < **end)
    }

    #[test]
    fn every_reader_finds_the_newest_range_delete_over_every_key() {
        let mut random = Random(31);
        let mut thinned = 0;
        for round in 0..2000 {
            let all = random_range_deletes(&mut random);
            let mut snapshots: Vec<_> = (0..random.below(4)).map(|_| random.below(12)).collect();
            snapshots.sort_unstable();
            let spans = fragment(all.iter().cloned(), &snapshots);
            for key in 0..25 {
                let key = [key];
                for &seqno in snapshots.iter().chain([&100]) {
                    let over = all.iter().filter(|one| is_over(one, &key) && one.seqno <= seqno);
                    let newest = over.map(|one| one.seqno).max();
                    assert_eq!(spans.covering(&key, seqno), newest, "round {round} {key:?} {seqno} {all:?}");
                }
            }
            for span in spans.iter() {
                assert!(span.seqnos.len() <= snapshots.len() + 1);
                thinned += all.iter().filter(|one| is_over(one, span.start)).count() - span.seqnos.len();
            }
            let pairs: Vec<_> = spans.iter().collect();
            for pair in pairs.windows(2) {
                let touches = pair[0].end == Some(pair[1].start);
                assert!(pair[0].end.is_some_and(|end| end <= pair[1].start));
                assert!(!touches || pair[0].seqnos != pair[1].seqnos, "equal neighbours are one");
            }
            assert_eq!(fragment(spans.to_range_deletes(), &snapshots), spans);
        }
        assert!(thinned > 1000, "{thinned}");
    }

    #[test]
    fn nested_range_deletes_have_two_spans_each_and_one_number_a_span() {
        let key = |n: u32| Arc::<[u8]>::from(n.to_be_bytes());
        let nested = (0..10_000).map(|n| RangeDelete {
            start: key(n),
            end: Some(key(30_000 - n)),
            seqno: u64::from(n) + 1,
        });
        let spans = fragment(nested, &[]);
        assert_eq!((spans.len(), spans.range_deletes()), (19_999, 19_999));
    }
}
