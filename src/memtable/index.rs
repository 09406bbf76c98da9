//! The nodes on one level of a skiplist, by the first bytes of their keys: where the writer begins to search.
//!
//! One node in 16 is in it, so it takes two bytes for each entry of the memtable.

use std::collections::BTreeMap;

use super::node::{HEAD, NodeId};

/// About what a node takes in the index.
pub(super) const SLOT_BYTES: usize = 32;

/// What the first ones take at once.
pub(super) const FIRST_BYTES: usize = 160;

#[derive(Default)]
pub(super) struct Index {
    /// For each prefix, the last node with it.
    last: BTreeMap<u64, NodeId>,
}

impl Index {
    /// The last node before all keys with this prefix, perhaps the sentinel. `None` if there are nodes with this prefix:
    /// the first bytes do not tell which of them are before such a key.
    pub(super) fn before(&self, prefix: u64) -> Option<NodeId> {
        match self.last.range(..=prefix).next_back() {
            None => Some(HEAD),
            Some((&found, &id)) => (found != prefix).then_some(id),
        }
    }

    /// Adds a node. `is_before` says whether another one comes before it. Returns how many bytes were allocated.
    pub(super) fn add(&mut self, prefix: u64, id: NodeId, is_before: impl Fn(NodeId) -> bool) -> usize {
        let mut allocated = 0;
        let last = self.last.entry(prefix).or_insert_with(|| {
            allocated = SLOT_BYTES;
            id
        });
        if *last != id && is_before(*last) {
            *last = id;
        }
        allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_gives_the_last_node_of_the_prefix_before_and_nothing_of_the_same() {
        let mut index = Index::default();
        let mut add = |prefix, id| index.add(prefix, id, |other| other < id);
        assert_eq!([add(5, 10), add(5, 12), add(5, 11), add(9, 30)], [SLOT_BYTES, 0, 0, SLOT_BYTES]);
        let before = [0, 5, 6, 9, u64::MAX].map(|prefix| index.before(prefix));
        assert_eq!(before, [Some(HEAD), None, Some(12), None, Some(30)]);
    }
}
