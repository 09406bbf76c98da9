//! Builds a list in ascending order. Joins neighbours with equal numbers.

use std::sync::Arc;

use super::list::Spans;
use crate::key::SeqNo;

#[derive(Debug, Default)]
pub(crate) struct SpansBuilder {
    bounds: Vec<Arc<[u8]>>,
    /// Element `i` is the end of the numbers of stretch `i`.
    ends: Vec<u32>,
    seqnos: Vec<SeqNo>,
}

impl SpansBuilder {
    /// The span is not empty, and starts at or after the previous end. The numbers strictly descend.
    pub(crate) fn push(&mut self, start: &Arc<[u8]>, end: Option<&Arc<[u8]>>, seqnos: &[SeqNo]) {
        debug_assert!(end.is_none_or(|end| start < end), "a span is not empty");
        self.begin(start, seqnos);
        if let Some(end) = end {
            self.begin(end, &[]);
        }
    }

    /// A stretch without numbers is a gap.
    pub(super) fn begin(&mut self, start: &Arc<[u8]>, seqnos: &[SeqNo]) {
        debug_assert!(seqnos.is_sorted_by(|newer, older| newer > older), "numbers descend strictly");
        debug_assert!(self.bounds.last().is_none_or(|last| last <= start), "spans ascend");
        if self.bounds.last() == Some(start) {
            self.bounds.pop();
            self.ends.pop();
            self.seqnos.truncate(self.end());
        }
        let before = self.ends.len().checked_sub(2).map_or(0, |at| self.ends[at] as usize);
        if self.seqnos[before..] == *seqnos {
            return;
        }
        self.bounds.push(Arc::clone(start));
        self.seqnos.extend_from_slice(seqnos);
        self.ends.push(self.seqnos.len() as u32);
    }

    fn end(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    pub(crate) fn finish(self) -> Spans {
        Spans::from_parts(self.bounds, self.ends, self.seqnos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str) -> Arc<[u8]> {
        key.as_bytes().into()
    }

    #[test]
    fn equal_neighbours_are_joined_and_others_are_not() {
        let mut builder = SpansBuilder::default();
        builder.push(&key("a"), Some(&key("b")), &[7, 5]);
        builder.push(&key("b"), Some(&key("c")), &[7, 5]);
        builder.push(&key("c"), Some(&key("d")), &[7]);
        builder.push(&key("e"), Some(&key("f")), &[7]);
        builder.push(&key("f"), None, &[7]);
        let spans = builder.finish();
        let found: Vec<_> = spans.iter().map(|span| (span.start, span.end, span.seqnos.to_vec())).collect();
        type Expected = (&'static [u8], Option<&'static [u8]>, Vec<SeqNo>);
        let expected: [Expected; 3] =
            [(b"a", Some(b"c"), vec![7, 5]), (b"c", Some(b"d"), vec![7]), (b"e", None, vec![7])];
        assert!(
            found.iter().map(|(a, b, n)| (&a[..], b.map(|b| &b[..]), n.clone())).eq(expected),
            "{found:?}"
        );
        assert_eq!((spans.len(), spans.range_deletes()), (3, 4));
    }

    #[test]
    fn a_list_of_nothing_is_empty() {
        let spans = SpansBuilder::default().finish();
        assert!(spans.is_empty() && spans.iter().next().is_none());
        assert_eq!(spans.covering(b"", 9), None);
    }
}
