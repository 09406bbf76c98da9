//! The nodes on one level of a skiplist, by the first bytes of their keys: where the writer begins to search.
//!
//! One node in 16 is in it, so it takes two bytes for each entry of the memtable.
//!
//! It is a sorted array in parts of up to [`PART_MAX`] nodes, found by binary search over the first prefix of each. A full
//! part is divided in two halves; only what comes after all others begins a part of its own.

use super::node::{HEAD, NodeId};

/// About what a node takes in the index.
pub(super) const SLOT_BYTES: usize = 32;

/// What the first ones take at once.
pub(super) const FIRST_BYTES: usize = 256;

/// Nodes of a part.
const PART_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Index {
    /// The first prefix of each part but the first, and the parts.
    bounds: Vec<u64>,
    parts: Vec<Part>,
}

/// For each prefix, the last node with it.
#[derive(Default)]
struct Part {
    prefixes: Vec<u64>,
    last: Vec<NodeId>,
}

impl Index {
    /// The last node before all keys with this prefix, perhaps the sentinel. `None` if there are nodes with this prefix:
    /// the first bytes do not tell which of them are before such a key.
    pub(super) fn before(&self, prefix: u64) -> Option<NodeId> {
        let Some(part) = self.parts.get(self.part_of(prefix)) else { return Some(HEAD) };
        match part.prefixes.partition_point(|&other| other <= prefix).checked_sub(1) {
            None => Some(HEAD),
            Some(at) => (part.prefixes[at] != prefix).then_some(part.last[at]),
        }
    }

    fn part_of(&self, prefix: u64) -> usize {
        self.bounds.partition_point(|&bound| bound <= prefix)
    }

    /// Adds a node. `is_before` says whether another one comes before it. Returns how many bytes were allocated.
    pub(super) fn add(&mut self, prefix: u64, id: NodeId, is_before: impl Fn(NodeId) -> bool) -> usize {
        let number = self.part_of(prefix);
        if self.parts.is_empty() {
            self.parts.push(Part::default());
        }
        let part = &mut self.parts[number];
        let at = part.prefixes.partition_point(|&other| other < prefix);
        if part.prefixes.get(at) == Some(&prefix) {
            if is_before(part.last[at]) {
                part.last[at] = id;
            }
            return 0;
        }
        if part.prefixes.len() < PART_MAX {
            part.prefixes.insert(at, prefix);
            part.last.insert(at, id);
            return SLOT_BYTES;
        }
        let is_last = number == self.bounds.len() && at == PART_MAX;
        let half = if is_last { PART_MAX } else { PART_MAX / 2 };
        let mut after = Part::with_room();
        after.prefixes.extend(part.prefixes.drain(half..));
        after.last.extend(part.last.drain(half..));
        let (part, at) = if at < half { (part, at) } else { (&mut after, at - half) };
        part.prefixes.insert(at, prefix);
        part.last.insert(at, id);
        self.bounds.insert(number, after.prefixes[0]);
        self.parts.insert(number + 1, after);
        SLOT_BYTES
    }
}

impl Part {
    fn with_room() -> Self {
        Self { prefixes: Vec::with_capacity(PART_MAX), last: Vec::with_capacity(PART_MAX) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_index_gives_the_last_node_of_the_prefix_before_and_nothing_of_the_same() {
        let mut index = Index::default();
        let mut add = |prefix, id| index.add(prefix, id, |other| other < id);
        assert_eq!([add(5, 10), add(5, 12), add(5, 11), add(9, 30)], [SLOT_BYTES, 0, 0, SLOT_BYTES]);
        let before = [0, 5, 6, 9, u64::MAX].map(|prefix| index.before(prefix));
        assert_eq!(before, [Some(HEAD), None, Some(12), None, Some(30)]);
    }

    #[test]
    fn the_index_answers_like_a_sorted_map_however_its_parts_are_divided() {
        for mix in [1, 0x9e37_79b9_7f4a_7c15, u64::MAX] {
            let (mut index, mut map) = (Index::default(), BTreeMap::new());
            for id in 1..3000 {
                let prefix = u64::from(id).wrapping_mul(mix) >> 8 << 2;
                index.add(prefix, id, |_| true);
                map.insert(prefix, id);
                for prefix in [prefix.saturating_sub(1), prefix, prefix + 1] {
                    let before = map.range(..=prefix).next_back();
                    let before = before.map_or(Some(HEAD), |(&at, &id)| (at != prefix).then_some(id));
                    assert_eq!(index.before(prefix), before, "{prefix} after {id}");
                }
                let taken: usize = index.parts.iter().map(|part| 12 * part.prefixes.capacity()).sum();
                let lists = 8 * index.bounds.capacity() + size_of::<Part>() * index.parts.capacity();
                assert!(taken + lists <= FIRST_BYTES + SLOT_BYTES * map.len(), "{taken} + {lists}");
            }
        }
    }
}
