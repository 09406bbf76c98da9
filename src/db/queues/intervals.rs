//! Disjoint intervals of keys. Adjacent and overlapping ones are merged.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

const INTERVAL_BYTES: usize = 112;

/// The start and the exclusive end; `None` is unbounded.
pub(in crate::db) type Interval<'a> = (&'a Bytes, Option<&'a Bytes>);

#[derive(Debug, Clone, Default)]
pub(in crate::db) struct Intervals(BTreeMap<Bytes, Option<Bytes>>);

fn bytes_of((start, end): Interval<'_>) -> usize {
    INTERVAL_BYTES + start.len() + end.map_or(0, Bytes::len)
}

fn is_at_least(one: Option<&Bytes>, other: Option<&Bytes>) -> bool {
    one.is_none_or(|one| other.is_some_and(|other| one >= other))
}

impl Intervals {
    pub(in crate::db) fn iter(&self) -> impl Iterator<Item = Interval<'_>> {
        self.0.iter().map(|(start, end)| (start, end.as_ref()))
    }

    pub(in crate::db) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::db) fn contains(&self, key: &[u8]) -> bool {
        self.around(key).is_some()
    }

    fn around(&self, key: &[u8]) -> Option<Interval<'_>> {
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let around = before.filter(|(_, end)| end.as_ref().is_none_or(|end| key < end));
        around.map(|(start, end)| (start, end.as_ref()))
    }

    /// The first key of `start..end` in the set; an empty `end` is unbounded. O(log n).
    pub(in crate::db) fn first_in<'a>(&'a self, start: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
        if self.contains(start) {
            return Some(start);
        }
        let (next, _) = self.0.range::<[u8], _>((Bound::Excluded(start), Bound::Unbounded)).next()?;
        (end.is_empty() || **next < *end).then_some(next)
    }

    pub(in crate::db) fn bytes(&self) -> usize {
        self.iter().map(bytes_of).sum()
    }

    /// Adds a non-empty interval, and its memory to `bytes`. Returns the memory of merged intervals. O(log n)
    /// amortised.
    pub(in crate::db) fn add(
        &mut self,
        mut start: Bytes,
        mut end: Option<Bytes>,
        bytes: &mut usize,
    ) -> usize {
        let mut freed = 0;
        if let Some((first, last)) = self.0.range_mut::<Bytes, _>(..=&start).next_back()
            && last.as_ref().is_none_or(|last| *last >= start)
        {
            if is_at_least(last.as_ref(), end.as_ref()) {
                return 0;
            }
            freed += bytes_of((first, last.as_ref()));
            start = first.clone();
        }
        let next = |intervals: &BTreeMap<Bytes, Option<Bytes>>, end: &Option<Bytes>| {
            let (next, last) =
                intervals.range::<Bytes, _>((Bound::Excluded(&start), Bound::Unbounded)).next()?;
            end.as_ref().is_none_or(|end| next <= end).then(|| (next.clone(), last.clone()))
        };
        while let Some((met, last)) = next(&self.0, &end) {
            freed += bytes_of((&met, last.as_ref()));
            self.0.remove(&met);
            if is_at_least(last.as_ref(), end.as_ref()) {
                end = last;
            }
        }
        *bytes += bytes_of((&start, end.as_ref()));
        self.0.insert(start, end);
        freed
    }

    pub(in crate::db) fn join_neighbours(&mut self) {
        let mut old = std::mem::take(&mut self.0).into_iter();
        while let Some((start, end)) = old.next() {
            self.0.insert(start, old.next().map_or(end, |(_, end)| end));
        }
    }
}
