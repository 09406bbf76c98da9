//! The nodes of a skiplist by the first bytes of their keys: where the writer finds the place of an entry. It says which of
//! them are on the next levels, too.
//!
//! It is a tree of sorted arrays: nodes in leaves, leaves in branches, [`FULL`] of each at most, and any number of
//! branches. A full leaf or branch is divided in two halves; only what comes after all others begins one of its own. A
//! search reads a branch and a leaf, and no node of the list. So it waits for memory about three times, however many
//! nodes there are. A node takes up to 18 bytes here.

use super::node::{HEAD, NodeId};

/// The most that a node takes in the index, on average over all.
pub(super) const SLOT_BYTES: usize = 18;

/// Nodes that are paid for at once.
const AHEAD: usize = 8;

/// What they take.
pub(super) const AHEAD_BYTES: usize = AHEAD * SLOT_BYTES;

/// What the first ones take at once.
pub(super) const FIRST_BYTES: usize = 320;

/// The levels above the lowest of which the index knows the nodes.
pub(super) const LEVELS: usize = 2;

/// Nodes of a leaf at most, as many as a word has bits; and leaves of a branch.
const FULL: usize = u64::BITS as usize;

/// So many nodes are free in a leaf at most. As many prefixes are in a cache line.
const STEP: usize = 8;

pub(super) struct Index {
    /// The first prefix of each branch but the first.
    bounds: Vec<u64>,
    branches: Vec<Branch>,
    len: usize,
}

#[derive(Default)]
struct Branch {
    /// The first prefix of each leaf but the first.
    bounds: Vec<u64>,
    leaves: Vec<Leaf>,
}

/// For each prefix, the last node with it.
#[derive(Default)]
struct Leaf {
    prefixes: Vec<u64>,
    last: Vec<NodeId>,
    /// For each level from 1, a bit for each node that reaches it.
    high: [u64; LEVELS],
    /// A bit for each prefix that several nodes have.
    tied: u64,
}

/// The place of a prefix in the index: that of the first one that is not smaller, or the end of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slot {
    branch: usize,
    leaf: usize,
    at: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        let first = Branch { bounds: Vec::new(), leaves: vec![Leaf::default()] };
        Self { bounds: Vec::new(), branches: vec![first], len: 0 }
    }

    #[inline]
    pub(super) fn find(&self, prefix: u64) -> Slot {
        self.find_in_leaf(self.find_leaf(prefix), prefix)
    }

    /// The first slot of the leaf in which [`Index::find`] finds the prefix.
    #[inline]
    pub(super) fn find_leaf(&self, prefix: u64) -> Slot {
        let branch = self.bounds.partition_point(|&bound| bound <= prefix);
        let leaf = self.branches[branch].bounds.partition_point(|&bound| bound <= prefix);
        Slot { branch, leaf, at: 0 }
    }

    #[inline]
    pub(super) fn find_in_leaf(&self, first: Slot, prefix: u64) -> Slot {
        Slot { at: self.leaf(first).count_below(prefix), ..first }
    }

    /// How many nodes are in the leaf of this slot.
    pub(super) fn leaf_len(&self, slot: Slot) -> usize {
        self.leaf(slot).prefixes.len()
    }

    /// [`Index::find`] of a prefix that is not smaller than any in the index.
    #[inline]
    pub(super) fn find_last(&self, prefix: u64) -> Slot {
        let branch = self.branches.len() - 1;
        let leaf = self.branches[branch].leaves.len() - 1;
        let prefixes = &self.branches[branch].leaves[leaf].prefixes;
        let is_there = prefixes.last() == Some(&prefix);
        Slot { branch, leaf, at: prefixes.len() - usize::from(is_there) }
    }

    #[inline]
    fn leaf(&self, slot: Slot) -> &Leaf {
        &self.branches[slot.branch].leaves[slot.leaf]
    }

    /// The last node with the prefix whose slot this is.
    #[inline]
    pub(super) fn last_with(&self, slot: Slot, prefix: u64) -> Option<NodeId> {
        let leaf = self.leaf(slot);
        (leaf.prefixes.get(slot.at) == Some(&prefix)).then(|| leaf.last[slot.at])
    }

    /// The node in this slot, if no other has its prefix.
    #[inline]
    pub(super) fn only(&self, slot: Slot) -> Option<NodeId> {
        let leaf = self.leaf(slot);
        (slot.at < leaf.last.len() && leaf.tied >> slot.at & 1 == 0).then(|| leaf.last[slot.at])
    }

    /// The last node before all with the prefix whose slot this is, perhaps the sentinel.
    #[inline]
    pub(super) fn before(&self, slot: Slot) -> NodeId {
        match slot.at.checked_sub(1) {
            Some(at) => self.leaf(slot).last[at],
            None => self.leaves_before(slot).find_map(|leaf| leaf.last.last().copied()).unwrap_or(HEAD),
        }
    }

    /// A node on this level, 1 to [`LEVELS`], before all with the prefix whose slot this is, perhaps the sentinel. Between them
    /// are only nodes after which another one has the same prefix.
    #[inline]
    pub(super) fn high_before(&self, slot: Slot, level: usize) -> NodeId {
        let leaf = self.leaf(slot);
        let here = leaf.last_high(level, leaf.high[level - 1] & below(slot.at));
        let before = || self.leaves_before(slot).find_map(|leaf| leaf.last_high(level, leaf.high[level - 1]));
        here.or_else(before).unwrap_or(HEAD)
    }

    /// The leaves before that of this slot, the last one first.
    fn leaves_before(&self, slot: Slot) -> impl Iterator<Item = &Leaf> {
        let here = self.branches[slot.branch].leaves[..slot.leaf].iter().rev();
        here.chain(self.branches[..slot.branch].iter().rev().flat_map(|branch| branch.leaves.iter().rev()))
    }

    /// Adds a node to the slot of its prefix. `is_last`: all others with the prefix come before it. Returns how many bytes were
    /// allocated.
    #[inline]
    pub(super) fn add(
        &mut self,
        slot: Slot,
        prefix: u64,
        (id, height): (NodeId, usize),
        is_last: bool,
    ) -> usize {
        let leaf = &mut self.branches[slot.branch].leaves[slot.leaf];
        if leaf.prefixes.get(slot.at) == Some(&prefix) {
            leaf.tied |= 1 << slot.at;
            if is_last {
                leaf.replace(slot.at, id, height);
            }
            return 0;
        }
        if leaf.prefixes.len() < FULL {
            leaf.insert(slot.at, prefix, id, height);
        } else {
            self.divide(slot, prefix, id, height);
        }
        self.len += 1;
        if self.len % AHEAD == 1 { AHEAD_BYTES } else { 0 }
    }

    /// Adds a node to a full leaf.
    #[inline(never)]
    fn divide(&mut self, slot: Slot, prefix: u64, id: NodeId, height: usize) {
        let Self { bounds, branches, .. } = self;
        let is_last_branch = slot.branch + 1 == branches.len();
        let branch = &mut branches[slot.branch];
        let is_last = is_last_branch && slot.leaf + 1 == branch.leaves.len() && slot.at == FULL;
        let half = if is_last { FULL } else { FULL / 2 };
        let leaf = &mut branch.leaves[slot.leaf];
        let mut after = leaf.split_off(half);
        match slot.at.checked_sub(half) {
            None => leaf.insert(slot.at, prefix, id, height),
            Some(at) => after.insert(at, prefix, id, height),
        }
        branch.insert(slot.leaf, after);
        if branch.leaves.len() > FULL {
            let (bound, after) = branch.split_off(half);
            bounds.insert(slot.branch, bound);
            branches.insert(slot.branch + 1, after);
        }
    }
}

impl Branch {
    /// Inserts a leaf, which has a node, behind another.
    fn insert(&mut self, before: usize, leaf: Leaf) {
        if self.leaves.len() == self.leaves.capacity() {
            let more = self.leaves.len() / STEP + 1;
            self.leaves.reserve_exact(more);
            self.bounds.reserve_exact(more);
        }
        self.bounds.insert(before, leaf.prefixes[0]);
        self.leaves.insert(before + 1, leaf);
    }

    /// Takes the leaves from this one, not the first. Returns the first prefix of the other branch, too.
    fn split_off(&mut self, at: usize) -> (u64, Self) {
        let after = Self { bounds: self.bounds.split_off(at), leaves: self.leaves.split_off(at) };
        let bound = self.bounds[at - 1];
        self.bounds.truncate(at - 1);
        self.bounds.shrink_to_fit();
        self.leaves.shrink_to_fit();
        (bound, after)
    }
}

impl Leaf {
    /// How many prefixes are smaller. One of each cache line is compared first, so that no wait follows another.
    #[inline]
    fn count_below(&self, prefix: u64) -> usize {
        let (lines, rest) = self.prefixes.as_chunks::<STEP>();
        let line = lines.iter().filter(|line| line[STEP - 1] < prefix).count();
        let line = lines.get(line).map_or((rest, lines.len()), |found| (found, line));
        line.0.iter().filter(|&&other| other < prefix).count() + STEP * line.1
    }

    /// Of the nodes on this level that these bits are for, the last one.
    fn last_high(&self, level: usize, bits: u64) -> Option<NodeId> {
        debug_assert_eq!(bits & !self.high[level - 1], 0);
        bits.checked_ilog2().map(|at| self.last[at as usize])
    }

    /// There is room in the leaf.
    #[inline]
    fn insert(&mut self, at: usize, prefix: u64, id: NodeId, height: usize) {
        if self.prefixes.len() == self.prefixes.capacity() {
            self.prefixes.reserve_exact(STEP);
            self.last.reserve_exact(STEP);
        }
        self.prefixes.insert(at, prefix);
        self.last.insert(at, id);
        let insert = |bits: u64, bit| (bits & !below(at)) << 1 | u64::from(bit) << at | bits & below(at);
        for (high, level) in self.high.iter_mut().zip(1..) {
            *high = insert(*high, height > level);
        }
        self.tied = insert(self.tied, false);
    }

    /// Puts another node in the place of one.
    fn replace(&mut self, at: usize, id: NodeId, height: usize) {
        self.last[at] = id;
        for (high, level) in self.high.iter_mut().zip(1..) {
            *high = *high & !(1 << at) | u64::from(height > level) << at;
        }
    }

    /// Takes the nodes from this one out of a full leaf.
    fn split_off(&mut self, at: usize) -> Self {
        let split_off = |bits: u64| (bits & below(at), bits.checked_shr(at as u32).unwrap_or_default());
        let after = Self {
            prefixes: self.prefixes.split_off(at),
            last: self.last.split_off(at),
            high: self.high.map(|high| split_off(high).1),
            tied: split_off(self.tied).1,
        };
        (self.high, self.tied) = (self.high.map(|high| split_off(high).0), split_off(self.tied).0);
        self.prefixes.shrink_to_fit();
        self.last.shrink_to_fit();
        after
    }
}

/// The bits below this one.
#[inline]
fn below(at: usize) -> u64 {
    1u64.checked_shl(at as u32).map_or(u64::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn add(index: &mut Index, prefix: u64, id: NodeId, height: usize) -> usize {
        let slot = index.find(prefix);
        let is_last = index.last_with(slot, prefix).is_none_or(|other| other < id);
        index.add(slot, prefix, (id, height), is_last)
    }

    fn around(index: &Index, prefix: u64) -> (NodeId, Option<NodeId>) {
        let slot = index.find(prefix);
        (index.before(slot), index.last_with(slot, prefix))
    }

    #[test]
    fn the_index_gives_the_last_nodes_of_the_prefix_and_of_the_one_before() {
        let mut index = Index::new();
        let added = [(5, 10), (5, 12), (5, 11), (9, 30)].map(|(prefix, id)| add(&mut index, prefix, id, 1));
        assert_eq!(added, [AHEAD_BYTES, 0, 0, 0]);
        let found = [0, 5, 6, 9, u64::MAX].map(|prefix| around(&index, prefix));
        assert_eq!(found, [(HEAD, None), (HEAD, Some(12)), (12, None), (12, Some(30)), (30, None)]);
    }

    #[test]
    fn the_index_answers_like_a_sorted_map_however_it_is_divided() {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let nodes = if cfg!(miri) { 300 } else { 6000 };
        // Of many nodes each prefix, in no order, ascending, descending, and with few nodes on higher levels.
        let orders = [(1, 4), (MIX, 4), (1 << 16, 4), ((1u64 << 16).wrapping_neg(), 4), (MIX, 500)];
        for (mix, rare) in orders {
            let (mut index, mut map, mut charged) = (Index::new(), BTreeMap::new(), 0);
            let mut alike = BTreeMap::new();
            let is_in = |id: NodeId, rare| usize::from(id.is_multiple_of(rare));
            let height = |id| 1 + is_in(id, rare) + is_in(id, 3 * rare);
            for id in 1..nodes {
                let prefix = u64::from(id).wrapping_mul(mix) >> 8 << 2;
                if map.last_key_value().is_none_or(|(&last, _)| last <= prefix) {
                    assert_eq!(index.find_last(prefix), index.find(prefix));
                }
                charged += add(&mut index, prefix, id, height(id));
                map.insert(prefix, id);
                *alike.entry(prefix).or_insert(0) += 1;
                for prefix in [prefix.saturating_sub(1), prefix, prefix + 1] {
                    let before = map.range(..prefix).next_back().map_or(HEAD, |(_, &id)| id);
                    let expected = (before, map.get(&prefix).copied());
                    assert_eq!(around(&index, prefix), expected, "{prefix} after {id}");
                    let next = map.range(prefix..).next().filter(|&(prefix, _)| alike[prefix] == 1);
                    let (only, next) = (index.only(index.find(prefix)), next.map(|(_, &id)| id));
                    assert!(only == next || only.is_none() && index.is_end(prefix), "{prefix} after {id}");
                    for level in 1..=LEVELS {
                        let mut below = map.range(..prefix).rev();
                        let before = below.find(|&(_, &id)| height(id) > level).map_or(HEAD, |(_, &id)| id);
                        let found = index.high_before(index.find(prefix), level);
                        assert_eq!(found, before, "{prefix} after {id}, level {level}");
                    }
                }
                if id.is_multiple_of(7) || id < 300 {
                    let taken = taken(&index);
                    assert!(taken <= FIRST_BYTES + charged, "{taken}, not {charged}, of {id}");
                }
            }
            assert!(charged <= AHEAD_BYTES + SLOT_BYTES * map.len());
        }
    }

    impl Index {
        /// Whether all prefixes of the leaf are smaller.
        fn is_end(&self, prefix: u64) -> bool {
            let slot = self.find(prefix);
            slot.at == self.leaf_len(slot)
        }
    }

    /// What an index takes, in bytes.
    fn taken(index: &Index) -> usize {
        let leaf = |leaf: &Leaf| 8 * leaf.prefixes.capacity() + 4 * leaf.last.capacity();
        let branch = |branch: &Branch| {
            let lists = 8 * branch.bounds.capacity() + size_of::<Leaf>() * branch.leaves.capacity();
            lists + branch.leaves.iter().map(leaf).sum::<usize>()
        };
        let lists = 8 * index.bounds.capacity() + size_of::<Branch>() * index.branches.capacity();
        lists + index.branches.iter().map(branch).sum::<usize>()
    }

    #[test]
    fn of_a_prefix_the_last_node_says_which_levels_it_reaches() {
        let mut index = Index::new();
        for (id, height, before) in
            [(10, 3, [10, 10]), (20, 1, [HEAD; 2]), (15, 3, [HEAD; 2]), (30, 2, [30, HEAD])]
        {
            add(&mut index, 5, id, height);
            let high = |prefix| [1, 2].map(|level| index.high_before(index.find(prefix), level));
            assert_eq!((high(5), high(6)), ([HEAD; 2], before));
        }
    }
}
