//! Stable sorting for lists that are sorted rarely.
//!
//! The compiler makes six kilobytes of code for each type that the standard library sorts. Here one sort of places serves
//! all types.

use std::cmp::Ordering;
use std::mem::replace;

/// Like [`slice::sort_by`]. Takes memory for one number per item.
pub(crate) fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    if items.len() < 2 {
        return;
    }
    let mut order = order(items.len(), &mut |a, b| compare(&items[a], &items[b]));
    for start in 0..items.len() {
        let mut place = start;
        loop {
            let from = replace(&mut order[place], place);
            if from == start {
                break;
            }
            items.swap(place, from);
            place = from;
        }
    }
}

pub(crate) fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// The places of the items, in order.
fn order(len: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|&a, &b| compare(a, b));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_all_lengths_are_sorted_and_equal_items_keep_their_order() {
        for len in 0..200_usize {
            for kinds in [1, 3, len + 1] {
                let mut items: Vec<(usize, usize)> =
                    (0..len).map(|n| (n * n % 7919 * (n + 5) % kinds, n)).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|&(kind, _)| kind);
                sort_by_key(&mut items, |&(kind, _)| kind);
                assert_eq!(items, expected);
                expected.sort_by(|a, b| b.cmp(a));
                sort_by(&mut items, |a, b| b.cmp(a));
                assert_eq!(items, expected);
            }
        }
    }
}
