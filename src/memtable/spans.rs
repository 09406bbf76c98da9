//! The range deletes of a memtable, in lists that merge as they grow.
//!
//! Each range delete begins as its own list. [`FAN`] lists of one rank are merged into a list of the next rank. So
//! there are O(log n) lists, and each range delete is merged O(log n) times.
//!
//! Lists cover consecutive ranges of sequence numbers. For each key, a list has only the newest range delete. It also
//! keeps the lists from which it was merged, for readers whose snapshot is within its range. The writer stores a new
//! head; readers take no lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwapOption;

use crate::key::SeqNo;
use crate::spans::{RangeDelete, Spans, SpansBuilder, overlay};
use crate::sync::lock;

const FAN: usize = 4;

const LIST_BYTES: usize = size_of::<Layer>() + size_of::<Link>() + size_of::<[usize; 8]>() + 96;

/// Bytes of a bound in a list: the bound, its fence and part of a guide, its end, and its number.
const BOUND_BYTES: usize =
    size_of::<Arc<[u8]>>() + size_of::<u64>() + 1 + size_of::<u32>() + size_of::<SeqNo>();

const RANKS_MAX: usize = 16;

pub(crate) struct SpanStack {
    newest: ArcSwapOption<Link>,
    len: AtomicUsize,
    writer: Mutex<()>,
}

struct Link {
    layer: Arc<Layer>,
    older: Option<Arc<Self>>,
}

struct Layer {
    rank: u32,
    oldest: SeqNo,
    newest: SeqNo,
    spans: Arc<Spans>,
    parts: Box<[Arc<Self>]>,
}

impl SpanStack {
    pub(crate) const fn new() -> Self {
        Self { newest: ArcSwapOption::const_empty(), len: AtomicUsize::new(0), writer: Mutex::new(()) }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts the newest range delete. Returns the bytes allocated. O(log n), amortised.
    pub(crate) fn insert(&self, start: &[u8], end: Option<&[u8]>, seqno: SeqNo) -> usize {
        let _turn = lock(&self.writer);
        let mut layer = Arc::new(Layer::of_one(start, end, seqno));
        let mut allocated = LIST_BYTES + layer.spans.size_bytes();
        let mut older = self.newest.load_full();
        debug_assert!(older.as_ref().is_none_or(|older| older.layer.newest < seqno), "the newest comes last");
        while let Some((parts, rest)) = same_rank(&layer, older.as_ref()) {
            layer = Arc::new(Layer::merged(parts));
            allocated += LIST_BYTES + layer.spans.list_bytes();
            older = rest;
        }
        self.newest.store(Some(Arc::new(Link { layer, older })));
        self.len.store(self.len() + 1, Ordering::Release);
        allocated
    }

    /// Maximum bytes that later merges allocate for the present range deletes.
    pub(crate) fn growth_max(&self) -> usize {
        // A merge of all range deletes takes two bounds each; merges of a quarter, a 16th and so on precede it.
        3 * self.len() * BOUND_BYTES
    }

    pub(crate) fn bytes_max(range_deletes: usize, bytes: usize) -> usize {
        let each = 2 * LIST_BYTES + 2 * (RANKS_MAX * BOUND_BYTES + 32);
        range_deletes.saturating_mul(each).saturating_add(bytes)
    }

    /// The newest range delete over the key that is visible at `seqno`. O(log² n).
    #[inline(never)]
    pub(crate) fn covering(&self, key: &[u8], seqno: SeqNo) -> Option<SeqNo> {
        let newest = self.newest.load();
        let mut next = newest.as_ref();
        while let Some(link) = next {
            if let found @ Some(_) = link.layer.covering(key, seqno) {
                return found;
            }
            next = link.older.as_ref();
        }
        None
    }

    pub(crate) fn lists_at(&self, seqno: SeqNo) -> Vec<Arc<Spans>> {
        let mut lists = Vec::new();
        self.each_link(|layer| {
            layer.lists_at(seqno, &mut lists);
            true
        });
        lists
    }

    pub(crate) fn above(&self, seqno: SeqNo) -> Vec<RangeDelete> {
        let mut all = Vec::new();
        self.each_link(|layer| {
            layer.above(seqno, &mut all);
            layer.oldest > seqno
        });
        all
    }

    fn each_link(&self, mut visit: impl FnMut(&Layer) -> bool) {
        let mut next = self.newest.load_full();
        while let Some(link) = next.filter(|link| visit(&link.layer)) {
            next = link.older.clone();
        }
    }
}

/// Returns the new list, the lists to merge with it, and the rest of the stack; `None` if there are too few.
#[expect(clippy::type_complexity, reason = "two parts of one stack")]
fn same_rank(layer: &Arc<Layer>, older: Option<&Arc<Link>>) -> Option<(Vec<Arc<Layer>>, Option<Arc<Link>>)> {
    let (mut parts, mut next) = (vec![Arc::clone(layer)], older);
    while parts.len() < FAN {
        let link = next.filter(|link| link.layer.rank == layer.rank)?;
        parts.push(Arc::clone(&link.layer));
        next = link.older.as_ref();
    }
    Some((parts, next.cloned()))
}

impl Layer {
    fn of_one(start: &[u8], end: Option<&[u8]>, seqno: SeqNo) -> Self {
        let mut spans = SpansBuilder::default();
        spans.push(&start.into(), end.map(Arc::from).as_ref(), &[seqno]);
        Self { rank: 0, oldest: seqno, newest: seqno, spans: Arc::new(spans.finish()), parts: Box::default() }
    }

    fn merged(parts: Vec<Arc<Self>>) -> Self {
        let lists: Vec<&Spans> = parts.iter().map(|part| &*part.spans).collect();
        let (rank, newest) = (parts[0].rank + 1, parts[0].newest);
        let oldest = parts[parts.len() - 1].oldest;
        Self { rank, oldest, newest, spans: Arc::new(overlay(&lists)), parts: parts.into() }
    }

    fn covering(&self, key: &[u8], seqno: SeqNo) -> Option<SeqNo> {
        if seqno >= self.newest {
            return self.spans.covering(key, seqno);
        }
        if seqno < self.oldest {
            return None;
        }
        self.parts.iter().find_map(|part| part.covering(key, seqno))
    }

    fn lists_at(&self, seqno: SeqNo, lists: &mut Vec<Arc<Spans>>) {
        if seqno >= self.newest {
            lists.push(Arc::clone(&self.spans));
        } else if seqno >= self.oldest {
            self.parts.iter().for_each(|part| part.lists_at(seqno, lists));
        }
    }

    fn above(&self, seqno: SeqNo, all: &mut Vec<RangeDelete>) {
        if self.newest <= seqno {
        } else if self.parts.is_empty() {
            all.extend(self.spans.to_range_deletes());
        } else {
            self.parts.iter().for_each(|part| part.above(seqno, all));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SEQNO_MAX;
    use crate::spans::fragment;

    struct Random(u64);

    impl Random {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (self.0 >> 33) % most
        }
    }

    /// Random range deletes with even sequence numbers, as a stack and as a list.
    fn sample(len: u64) -> (SpanStack, Vec<RangeDelete>) {
        let (stack, mut random, mut all) = (SpanStack::new(), Random(len), Vec::new());
        for number in 1..=len {
            let start = random.below(200) as u8;
            let end = (random.below(20) > 0).then(|| [start + 1 + random.below(40) as u8]);
            let end = end.as_ref().map(|end| &end[..]);
            stack.insert(&[start], end, 2 * number);
            all.push(RangeDelete { start: [start].into(), end: end.map(Arc::from), seqno: 2 * number });
        }
        (stack, all)
    }

    #[test]
    fn a_reader_at_any_number_finds_the_newest_range_delete_that_it_sees() {
        for len in [0, 1, 3, 4, 5, 63, 64, 85, 100] {
            let (stack, all) = sample(len);
            assert_eq!(stack.len(), len as usize);
            for seqno in 0..=2 * len + 2 {
                let seen = all.iter().filter(|one| one.seqno <= seqno).cloned();
                let spans = fragment(seen, &[]);
                let lists = stack.lists_at(seqno);
                assert!(lists.len() <= 2 * FAN * 5, "{} lists", lists.len());
                for key in (0..=250_u8).map(|key| [key]) {
                    let expected = spans.covering(&key, SEQNO_MAX);
                    assert_eq!(stack.covering(&key, seqno), expected, "{len} {key:?} at {seqno}");
                    assert_eq!(lists.iter().find_map(|list| list.covering(&key, SEQNO_MAX)), expected);
                }
                let newer: Vec<_> = all.iter().rev().filter(|one| one.seqno > seqno).cloned().collect();
                assert_eq!(stack.above(seqno), newer);
            }
        }
    }

    #[test]
    fn nested_range_deletes_take_memory_in_proportion_and_no_more_than_was_announced() {
        let stack = SpanStack::new();
        let (len, mut bytes) = (20_000_u32, 0);
        for number in 0..len {
            let (start, end) = (number.to_be_bytes(), (3 * len - number).to_be_bytes());
            let most = stack.growth_max() + SpanStack::bytes_max(1, 8);
            let allocated = stack.insert(&start, Some(&end), u64::from(number) + 1);
            assert!(allocated <= most, "{number}: {allocated} of {most}");
            bytes += allocated;
        }
        let each = bytes / len as usize;
        assert!(each < 1000 && bytes <= SpanStack::bytes_max(len as usize, 8 * len as usize), "{each} bytes");
        assert!(stack.lists_at(SEQNO_MAX).len() < FAN * 8);
        assert_eq!(stack.covering(&(2 * len).to_be_bytes(), SEQNO_MAX), Some(u64::from(len)));
        assert_eq!(stack.covering(&7_u32.to_be_bytes(), SEQNO_MAX), Some(8));
    }
}
