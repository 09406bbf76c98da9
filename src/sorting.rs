//! Stable sorting for lists that are sorted rarely.
//!
//! The standard library's sort takes six kilobytes of code for each type. Here one sort of indexes serves all types.

use std::cmp::Ordering;
use std::mem::replace;

/// Like [`slice::sort_by`]. Takes memory for one number per item.
pub(crate) fn sort_by<T>(items: &mut [T], compare: impl FnMut(&T, &T) -> Ordering) {
    sort(items.len(), &mut By { items, compare });
}

pub(crate) fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// A trait of its own, because the vtable of a closure has each function twice.
trait Items {
    fn compare(&mut self, a: usize, b: usize) -> Ordering;

    fn swap(&mut self, a: usize, b: usize);
}

struct By<'a, T, F> {
    items: &'a mut [T],
    compare: F,
}

impl<T, F: FnMut(&T, &T) -> Ordering> Items for By<'_, T, F> {
    fn compare(&mut self, a: usize, b: usize) -> Ordering {
        (self.compare)(&self.items[a], &self.items[b])
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
    }
}

fn sort(len: usize, items: &mut dyn Items) {
    if len < 2 {
        return;
    }
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by(|&a, &b| items.compare(a, b));
    for start in 0..len {
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
