//! Joins lists of spans, each newer than the next, and keeps the newest number of each key.

use super::builder::SpansBuilder;
use super::list::Spans;

/// Each list has one number per span.
pub(crate) fn overlay(newest_first: &[&Spans]) -> Spans {
    let mut places = vec![0; newest_first.len()];
    let mut builder = SpansBuilder::default();
    let next = |places: &[usize]| {
        newest_first.iter().zip(places).filter_map(|(spans, &place)| spans.bound_at(place)).min()
    };
    while let Some(bound) = next(&places) {
        for (spans, place) in newest_first.iter().zip(&mut places) {
            *place += usize::from(spans.bound_at(*place) == Some(bound));
        }
        let mut stretches = newest_first.iter().zip(&places).map(|(spans, &place)| spans.seqnos_of(place));
        builder.begin(bound, stretches.find(|seqnos| !seqnos.is_empty()).unwrap_or_default());
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{RangeDelete, fragment};
    use super::*;

    #[test]
    fn lists_laid_over_each_other_are_what_their_range_deletes_together_are() {
        let mut random = 7u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % most
        };
        let mut spans = 0;
        for _ in 0..500 {
            let mut seqno = 100;
            let mut lists = Vec::new();
            for _ in 0..below(5) {
                let mut list = Vec::new();
                for _ in 0..below(6) {
                    let start = below(20) as u8;
                    let end = (below(5) > 0).then(|| Arc::from([start + 1 + below(5) as u8]));
                    seqno -= 1;
                    list.push(RangeDelete { start: Arc::from([start]), end, seqno });
                }
                lists.push(list);
            }
            let each: Vec<_> = lists.iter().map(|list| fragment(list.iter().cloned(), &[])).collect();
            let all = overlay(&each.iter().collect::<Vec<_>>());
            assert_eq!(all, fragment(lists.into_iter().flatten(), &[]));
            spans += all.len();
        }
        assert!(spans > 1000, "{spans}");
    }
}
