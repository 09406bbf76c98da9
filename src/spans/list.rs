//! The list of spans: immutable, sorted, without overlaps.

use std::sync::Arc;

use super::RangeDelete;
use crate::key::{SeqNo, common_prefix, compare_keys, key_prefix};

const GROUP: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    bounds: Box<[Arc<[u8]>]>,
    /// A fence is eight bytes of a bound after the common prefix. After the fences, the last fence of each [`GROUP`] is
    /// repeated, to save cache misses.
    fences: Box<[u64]>,
    prefix_len: usize,
    /// Element `i` is the end of the numbers of stretch `i`.
    ends: Box<[u32]>,
    seqnos: Box<[SeqNo]>,
    spans: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span<'a> {
    pub(crate) start: &'a Arc<[u8]>,
    /// The exclusive end; `None` if unbounded.
    pub(crate) end: Option<&'a Arc<[u8]>>,
    /// At least one number, strictly descending.
    pub(crate) seqnos: &'a [SeqNo],
}

/// The keys between two neighbouring bounds, with the range deletes over them. A gap has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch<'a> {
    /// 0 means before the first bound.
    pub(crate) place: usize,
    pub(crate) start: Option<&'a [u8]>,
    pub(crate) end: Option<&'a [u8]>,
    pub(crate) seqnos: &'a [SeqNo],
}

impl Stretch<'_> {
    #[inline]
    pub(crate) fn newest_at(&self, seqno: SeqNo) -> Option<SeqNo> {
        newest_at(self.seqnos, seqno)
    }
}

#[inline]
fn newest_at(seqnos: &[SeqNo], seqno: SeqNo) -> Option<SeqNo> {
    match seqnos.first() {
        Some(&newest) if newest > seqno => {
            seqnos.get(seqnos.partition_point(|&newer| newer > seqno)).copied()
        }
        newest => newest.copied(),
    }
}

impl Spans {
    pub(super) fn from_parts(bounds: Vec<Arc<[u8]>>, ends: Vec<u32>, seqnos: Vec<SeqNo>) -> Self {
        let mut start = 0;
        let spans = ends.iter().filter(|&&end| std::mem::replace(&mut start, end) < end).count();
        let prefix_len = match (bounds.first(), bounds.last()) {
            (Some(first), Some(last)) => common_prefix(first, last),
            _ => 0,
        };
        let fences = bounds.iter().map(|bound| key_prefix(&bound[prefix_len..]));
        let guides = fences.clone().skip(GROUP - 1).step_by(GROUP);
        let fences = fences.chain(guides).collect();
        let (bounds, ends, seqnos) = (bounds.into(), ends.into(), seqnos.into());
        Self { bounds, fences, prefix_len, ends, seqnos, spans }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.spans
    }

    pub(crate) fn range_deletes(&self) -> usize {
        self.seqnos.len()
    }

    pub(crate) fn list_bytes(&self) -> usize {
        let each = size_of::<Arc<[u8]>>() + size_of::<u32>();
        let words = self.fences.len() + self.seqnos.len();
        size_of::<Self>() + self.bounds.len() * each + words * size_of::<u64>()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.list_bytes() + self.bounds.iter().map(|key| key_bytes(key)).sum::<usize>()
    }

    /// The newest range delete over the key that is visible at `seqno`. O(log n).
    #[inline]
    pub(crate) fn covering(&self, key: &[u8], seqno: SeqNo) -> Option<SeqNo> {
        newest_at(self.seqnos_of(self.place_of(key)), seqno)
    }

    #[cfg(test)]
    fn stretch(&self, key: &[u8]) -> Stretch<'_> {
        self.stretch_at(self.place_of(key))
    }

    /// O(1) at `near` and its neighbours, O(log n) elsewhere.
    pub(crate) fn stretch_near(&self, key: &[u8], near: usize) -> Stretch<'_> {
        let holds = |place: &usize| {
            let starts = |start: &Arc<[u8]>| compare_keys(start, key).is_le();
            place.checked_sub(1).is_none_or(|at| self.bounds.get(at).is_some_and(starts))
                && self.bounds.get(*place).is_none_or(|end| compare_keys(key, end).is_lt())
        };
        let place = [near, near + 1, near.saturating_sub(1)].into_iter().find(holds);
        self.stretch_at(place.unwrap_or_else(|| self.place_of(key)))
    }

    fn stretch_at(&self, place: usize) -> Stretch<'_> {
        let start = place.checked_sub(1).map(|at| &*self.bounds[at]);
        let end = self.bounds.get(place).map(|end| &**end);
        Stretch { place, start, end, seqnos: self.seqnos_of(place) }
    }

    /// The number of bounds up to the key.
    #[inline]
    fn place_of(&self, key: &[u8]) -> usize {
        let (start, end) = self.alike(key);
        start + self.bounds[start..end].partition_point(|bound| compare_keys(bound, key).is_le())
    }

    #[inline]
    fn alike(&self, key: &[u8]) -> (usize, usize) {
        let Some(first) = self.bounds.first() else { return (0, 0) };
        let prefix = &first[..self.prefix_len];
        match key.strip_prefix(prefix) {
            Some(rest) => {
                let part = key_prefix(rest);
                let (fences, guides) = self.fences.split_at(self.bounds.len());
                let from = guides.partition_point(|&guide| guide < part) * GROUP;
                let group = &fences[from..fences.len().min(from + GROUP)];
                let start = from + group.partition_point(|&fence| fence < part);
                let alike = match fences.get(start) {
                    Some(&fence) if fence == part => fences[start..].partition_point(|&fence| fence == part),
                    _ => 0,
                };
                (start, start + alike)
            }
            None if key < prefix => (0, 0),
            None => (self.bounds.len(), self.bounds.len()),
        }
    }

    pub(super) fn bound_at(&self, at: usize) -> Option<&Arc<[u8]>> {
        self.bounds.get(at)
    }

    #[inline]
    pub(super) fn seqnos_of(&self, place: usize) -> &[SeqNo] {
        let Some(at) = place.checked_sub(1) else { return &[] };
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.seqnos[start as usize..self.ends[at] as usize]
    }

    fn span_at(&self, place: usize) -> Option<Span<'_>> {
        let seqnos = self.seqnos_of(place);
        if seqnos.is_empty() {
            return None;
        }
        Some(Span { start: &self.bounds[place - 1], end: self.bounds.get(place), seqnos })
    }

    /// Spans in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = Span<'_>> {
        (1..=self.bounds.len()).filter_map(|place| self.span_at(place))
    }

    /// Returns the spans with a key in `start..end`.
    pub(crate) fn overlapping(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = Span<'_>> {
        let first = self.place_of(start);
        let last = end.map_or(self.bounds.len(), |end| {
            self.bounds.partition_point(|bound| compare_keys(bound, end).is_lt())
        });
        (first..last.max(first) + 1).filter_map(|place| self.span_at(place))
    }

    /// Whether range deletes with numbers in `above + 1..=seqno` cover `start..end`.
    pub(crate) fn covers(&self, start: &[u8], end: Option<&[u8]>, above: SeqNo, seqno: SeqNo) -> bool {
        let mut place = self.place_of(start);
        loop {
            let stretch = self.stretch_at(place);
            if stretch.newest_at(seqno).is_none_or(|newest| newest <= above) {
                return false;
            }
            match (stretch.end, end) {
                (None, _) => return true,
                (Some(reached), Some(end)) if reached >= end => return true,
                _ => place += 1,
            }
        }
    }

    pub(crate) fn start(&self) -> Option<&Arc<[u8]>> {
        self.bounds.first()
    }

    /// The end of the last span: `Some(None)` if unbounded, `None` without spans.
    pub(crate) fn end(&self) -> Option<Option<&Arc<[u8]>>> {
        self.iter().next_back().map(|span| span.end)
    }

    pub(crate) fn seqno_bounds(&self) -> Option<(SeqNo, SeqNo)> {
        Some((*self.seqnos.iter().min()?, *self.seqnos.iter().max()?))
    }

    pub(crate) fn to_range_deletes(&self) -> impl Iterator<Item = RangeDelete> {
        self.iter().flat_map(|span| {
            span.seqnos.iter().map(move |&seqno| RangeDelete {
                start: Arc::clone(span.start),
                end: span.end.cloned(),
                seqno,
            })
        })
    }
}

fn key_bytes(key: &[u8]) -> usize {
    key.len().next_multiple_of(8) + 2 * size_of::<usize>()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::builder::SpansBuilder;
    use super::*;

    /// `b..d` at 9 and 4, `d..f` at 4, and `h..` at 7.
    pub(in crate::spans) fn sample() -> Spans {
        let key = |key: &str| Arc::<[u8]>::from(key.as_bytes());
        let mut builder = SpansBuilder::default();
        builder.push(&key("b"), Some(&key("d")), &[9, 4]);
        builder.push(&key("d"), Some(&key("f")), &[4]);
        builder.push(&key("h"), None, &[7]);
        builder.finish()
    }

    #[test]
    fn the_largest_visible_number_over_a_key_is_found_at_and_beside_every_edge() {
        let spans = sample();
        let at = |seqno| {
            ["", "a\u{ff}", "b", "c", "d", "e", "f", "g", "h", "z"]
                .map(|key| spans.covering(key.as_bytes(), seqno))
        };
        let (n, four, seven, nine) = (None, Some(4), Some(7), Some(9));
        assert_eq!(at(9), [n, n, nine, nine, four, four, n, n, seven, seven]);
        assert_eq!(at(8), [n, n, four, four, four, four, n, n, seven, seven]);
        assert_eq!(at(4), [n, n, four, four, four, four, n, n, n, n]);
        assert_eq!(at(3), [n; 10]);
        assert_eq!((spans.len(), spans.range_deletes(), spans.seqno_bounds()), (3, 4, Some((4, 9))));
        assert_eq!(spans.start().map(|key| &**key), Some(&b"b"[..]));
        assert_eq!(spans.end(), Some(None));
    }

    #[test]
    fn the_place_of_a_key_is_that_of_a_plain_search_whatever_prefix_the_bounds_share() {
        let mut random = 5_u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % most
        };
        for round in 0..300 {
            let common = ["", "k", "https://example.org/", "\0\0"][round % 4];
            let most = [2, 4, 12][round % 3];
            let mut key = || {
                let letters = (0..below(most)).map(|_| ['\0', 'a', 'b'][below(3) as usize]);
                common.chars().chain(letters).collect::<String>().into_bytes()
            };
            let mut bounds: Vec<Vec<u8>> = (0..40).map(|_| key()).collect();
            bounds.sort();
            bounds.dedup();
            let mut builder = SpansBuilder::default();
            for (number, pair) in bounds.chunks_exact(2).enumerate() {
                let [start, end] = [0, 1].map(|at| Arc::<[u8]>::from(&*pair[at]));
                builder.push(&start, Some(&end), &[number as u64 + 1]);
            }
            let spans = builder.finish();
            for number in 0..100 {
                let sought = [key(), b"h".to_vec(), b"https://f".to_vec(), Vec::new()][number % 4].clone();
                let expected = spans.bounds.partition_point(|bound| **bound <= *sought);
                assert_eq!(spans.place_of(&sought), expected, "{round} {sought:?}");
            }
        }
    }

    #[test]
    fn a_stretch_is_found_from_any_place() {
        let spans = sample();
        for key in ["", "a", "b", "c", "d", "f", "g", "h", "z"].map(str::as_bytes) {
            let stretch = spans.stretch(key);
            assert!(
                stretch.start.is_none_or(|start| start <= key) && stretch.end.is_none_or(|end| key < end)
            );
            assert_eq!(stretch.newest_at(8), spans.covering(key, 8));
            (0..9).for_each(|near| assert_eq!(spans.stretch_near(key, near), stretch));
        }
    }
}
