//! The nodes on one level of a skiplist, by the first bytes of their keys: where the writer begins to search. It says
//! which of them are on the next level, too.
//!
//! One node in four is in it, so it takes five bytes for each entry of the memtable.
//!
//! It is a sorted array in parts of up to [`PART_MAX`] nodes, found by binary search over the first prefix of each. A full
//! part is divided in two halves; only what comes after all others begins a part of its own.

use super::node::{HEAD, NodeId};

/// The most that a node takes in the index, on average over all.
pub(super) const SLOT_BYTES: usize = 20;

/// Nodes that are paid for at once.
const AHEAD: usize = 8;

/// What they take.
pub(super) const AHEAD_BYTES: usize = AHEAD * SLOT_BYTES;

/// What the first ones take at once.
pub(super) const FIRST_BYTES: usize = 256;

/// Nodes of a part: as many as a word has bits.
const PART_MAX: usize = u64::BITS as usize;

/// So many nodes are free in a part at most.
const PART_STEP: usize = 8;

#[derive(Default)]
pub(super) struct Index {
    /// The first prefix of each part but the first, and the parts.
    bounds: Vec<u64>,
    parts: Vec<Part>,
    len: usize,
}

/// For each prefix, the last node with it.
#[derive(Default)]
struct Part {
    prefixes: Vec<u64>,
    last: Vec<NodeId>,
    /// A bit for each node that is on the next level, too.
    high: u64,
}

impl Index {
    /// The last node before all keys with this prefix, perhaps the sentinel; and the last one with this prefix.
    pub(super) fn around(&self, prefix: u64) -> (NodeId, Option<NodeId>) {
        let number = self.part_of(prefix);
        let Some(part) = self.parts.get(number) else { return (HEAD, None) };
        let at = part.prefixes.partition_point(|&other| other < prefix);
        let before = match at.checked_sub(1) {
            Some(before) => part.last[before],
            None => {
                number.checked_sub(1).map_or(HEAD, |before| *self.parts[before].last.last().unwrap_or(&HEAD))
            }
        };
        (before, (part.prefixes.get(at) == Some(&prefix)).then(|| part.last[at]))
    }

    /// A node before all keys with this prefix that is on the next level, perhaps the sentinel. Between them are few.
    pub(super) fn high_before(&self, prefix: u64) -> NodeId {
        let number = self.part_of(prefix);
        let Some(part) = self.parts.get(number) else { return HEAD };
        let below = below(part.prefixes.partition_point(|&other| other < prefix));
        let others = self.parts[..number].iter().rev().map(|part| (part, part.high));
        let mut all = std::iter::once((part, part.high & below)).chain(others);
        all.find_map(|(part, high)| Some(part.last[high.checked_ilog2()? as usize])).unwrap_or(HEAD)
    }

    fn part_of(&self, prefix: u64) -> usize {
        if self.bounds.last().is_none_or(|&last| last <= prefix) {
            return self.bounds.len();
        }
        self.bounds.partition_point(|&bound| bound <= prefix)
    }

    /// Adds a node. `is_before` says whether another one comes before it. Returns how many bytes were allocated.
    pub(super) fn add(
        &mut self,
        prefix: u64,
        id: NodeId,
        is_high: bool,
        is_before: impl Fn(NodeId) -> bool,
    ) -> usize {
        let number = self.part_of(prefix);
        if self.parts.is_empty() {
            self.parts.push(Part::default());
        }
        let part = &mut self.parts[number];
        let at = part.prefixes.partition_point(|&other| other < prefix);
        if part.prefixes.get(at) == Some(&prefix) {
            if is_before(part.last[at]) {
                part.last[at] = id;
                part.high = part.high & !(1 << at) | u64::from(is_high) << at;
            }
            return 0;
        }
        if part.prefixes.len() < PART_MAX {
            part.insert(at, prefix, id, is_high);
        } else {
            let is_last = number == self.bounds.len() && at == PART_MAX;
            let half = if is_last { PART_MAX } else { PART_MAX / 2 };
            let mut after = part.split_off(half);
            if at < half {
                part.insert(at, prefix, id, is_high);
            } else {
                after.insert(at - half, prefix, id, is_high);
            }
            self.bounds.insert(number, after.prefixes[0]);
            self.parts.insert(number + 1, after);
        }
        self.len += 1;
        if self.len % AHEAD == 1 { AHEAD_BYTES } else { 0 }
    }
}

impl Part {
    /// There is room in the part.
    fn insert(&mut self, at: usize, prefix: u64, id: NodeId, is_high: bool) {
        if self.prefixes.len() == self.prefixes.capacity() {
            self.prefixes.reserve_exact(PART_STEP);
            self.last.reserve_exact(PART_STEP);
        }
        self.prefixes.insert(at, prefix);
        self.last.insert(at, id);
        let before = self.high & below(at);
        self.high = (self.high & !below(at)) << 1 | u64::from(is_high) << at | before;
    }

    /// Takes the nodes from this one out of a full part.
    fn split_off(&mut self, at: usize) -> Self {
        let high = self.high & !below(at);
        self.high &= below(at);
        let after = Self {
            prefixes: self.prefixes[at..].to_vec(),
            last: self.last[at..].to_vec(),
            high: high.checked_shr(at as u32).unwrap_or_default(),
        };
        self.prefixes.truncate(at);
        self.prefixes.shrink_to(at);
        self.last.truncate(at);
        self.last.shrink_to(at);
        after
    }
}

/// The bits below this one.
fn below(at: usize) -> u64 {
    1u64.checked_shl(at as u32).map_or(u64::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_index_gives_the_last_nodes_of_the_prefix_and_of_the_one_before() {
        let mut index = Index::default();
        let mut add = |prefix, id| index.add(prefix, id, true, |other| other < id);
        assert_eq!([add(5, 10), add(5, 12), add(5, 11), add(9, 30)], [AHEAD_BYTES, 0, 0, 0]);
        let around = [0, 5, 6, 9, u64::MAX].map(|prefix| index.around(prefix));
        assert_eq!(around, [(HEAD, None), (HEAD, Some(12)), (12, None), (12, Some(30)), (30, None)]);
    }

    #[test]
    fn the_index_answers_like_a_sorted_map_however_its_parts_are_divided() {
        for (mix, high) in [(1, 4), (0x9e37_79b9_7f4a_7c15, 4), (u64::MAX, 4), (0x9e37_79b9_7f4a_7c15, 500)] {
            let (mut index, mut map, mut charged) = (Index::default(), BTreeMap::new(), 0);
            for id in 1..3000 {
                let prefix = u64::from(id).wrapping_mul(mix) >> 8 << 2;
                charged += index.add(prefix, id, id % high == 0, |_| true);
                map.insert(prefix, id);
                for prefix in [prefix.saturating_sub(1), prefix, prefix + 1] {
                    let before = map.range(..prefix).next_back().map_or(HEAD, |(_, &id)| id);
                    let around = (before, map.get(&prefix).copied());
                    assert_eq!(index.around(prefix), around, "{prefix} after {id}");
                    let mut below = map.range(..prefix).rev();
                    let before = below.find(|&(_, id)| id % high == 0).map_or(HEAD, |(_, &id)| id);
                    assert_eq!(index.high_before(prefix), before, "{prefix} after {id}");
                }
                let taken: usize = index.parts.iter().map(|part| 12 * part.prefixes.capacity()).sum();
                let lists = 8 * index.bounds.capacity() + size_of::<Part>() * index.parts.capacity();
                assert!(taken + lists <= FIRST_BYTES + charged, "{taken} + {lists}, not {charged}");
            }
            assert!(charged <= AHEAD_BYTES + SLOT_BYTES * map.len());
        }
    }

    #[test]
    fn of_a_prefix_the_last_node_says_whether_it_is_on_the_next_level() {
        let mut index = Index::default();
        for (id, is_high, before) in [(10, true, 10), (20, false, HEAD), (15, true, HEAD), (30, true, 30)] {
            index.add(5, id, is_high, |other| other < id);
            assert_eq!((index.high_before(5), index.high_before(6)), (HEAD, before));
        }
    }
}
