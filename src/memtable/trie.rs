//! The trie of a memtable: finds the position of a key in the list of entries.
//!
//! A radix tree with compressed paths (a Patricia trie); compare Leis, Kemper and Neumann 2013, The Adaptive Radix
//! Tree. A branch has the position of a digit ([`digits`](super::digits)), and for each value of the digit a link to
//! the next branch, or to an entry. All keys below a branch have equal digits before that position, and the branch does
//! not store them. So a search compares its target only with the entry that it reaches. This shows the position at
//! which the target leaves the path. A search passes at most two branches for each byte of a key, and 21 for its length
//! and tag.
//!
//! ```text
//! words of a branch
//! 0         1, 1 bit · size, 2 bits · digits or number of links, 8 bits · free, 2 bits · replaced, 1 bit · position, 18 bits
//! 1         the digits of the links, 4 bits each (4 and 8 links)
//! then      the links; 16 are in the order of their digits, and 0 means no link
//! ```
//!
//! A branch has room for 2, 4, 8 or 16 links. With two links, their digits are in the first word. The first bit of an
//! entry is 0 ([`node`](super::node)).
//!
//! # Memory
//!
//! An insertion allocates at most one branch: a new one with two links, or the next size of a full one, which is kept
//! for its readers. A branch with n links and its predecessors take at most 4.75 words for each link after the first.
//! This is at most 19 bytes per entry on average.
//!
//! # Readers
//!
//! One writer changes links while readers follow them. A new branch is filled before it is linked with release. A
//! link added to a branch is stored before the branch counts it. A replaced branch never changes. So a reader finds
//! each link in its state at some time after the reader's start.
//!
//! - All entries below a link always have the digits of the path to it, so [`find`] orders the target and the returned
//!   entry correctly.
//! - No entry X that was complete before the search is between the target and the returned entry L. Let d be the
//!   position at which the target leaves the path, and q the first at which X and L differ; q >= d. The path to L has a
//!   branch at q with a link to X. If q = d, the search chose the link next to the target's digit, but the link to X is
//!   nearer. If q > d, all links at q are on one side of the target, and the search chose the outermost one, which
//!   leads to X or beyond. Both are contradictions.
//! - If a complete entry has the target's user key, the returned entry has it too: each branch before the tag has a
//!   link for the target's digit.

use std::num::NonZero;
use std::sync::atomic::{AtomicU32, Ordering as Memory};

use super::arena::{Arena, Place, Room, Words};
use super::digits::{DIGIT_BITS, DIGITS, Difference, END, Target};
use super::node::{HEAD, NodeId, ROOT};

/// 0 in entries.
const BRANCH: u32 = 1 << 31;
const SIZE_SHIFT: u32 = 29;
const COUNT_SHIFT: u32 = 21;
const COUNT_MASK: u32 = (1 << 8) - 1;
const REPLACED: u32 = 1 << 18;
const POSITION_MASK: u32 = (1 << 18) - 1;

const SIZE_MAX: u32 = 3;

const WORDS: [usize; SIZE_MAX as usize + 1] = [3, 6, 10, 17];

const WORD_BYTES: usize = size_of::<AtomicU32>();

pub(super) const BRANCH_BYTES_MAX: usize = WORDS[SIZE_MAX as usize] * WORD_BYTES;

#[cfg(test)]
pub(super) const ENTRY_BYTES_MAX: usize = 19;

const ONES: u32 = u32::MAX / (DIGITS - 1);

#[derive(Clone, Copy)]
struct Branch<'a> {
    words: &'a [AtomicU32],
    head: u32,
}

impl<'a> Branch<'a> {
    #[inline]
    fn at(memory: &'a impl Words, place: Place) -> Option<Self> {
        #[cfg(test)]
        tests::BRANCHES.with(|branches| branches.set(branches.get() + 1));
        let words = memory.words(place);
        let head = words[0].load(Memory::Acquire);
        (head & BRANCH != 0).then_some(Self { words, head })
    }

    #[inline]
    fn position(&self) -> u32 {
        self.head & POSITION_MASK
    }

    #[inline]
    fn size(&self) -> u32 {
        self.head >> SIZE_SHIFT & SIZE_MAX
    }

    /// Digits of the links, their number, and the word of the first link; `None` if each digit has its word.
    #[inline]
    fn listed(&self) -> Option<(u32, u32, usize)> {
        let count = self.head >> COUNT_SHIFT & COUNT_MASK;
        match self.size() {
            SIZE_MAX => None,
            0 => Some((count, 2, 1)),
            _ => Some((self.words[1].load(Memory::Relaxed), count, 2)),
        }
    }

    #[inline]
    fn link(&self, word: usize) -> Place {
        self.words[word].load(Memory::Acquire)
    }

    #[inline]
    fn find(&self, digit: u32) -> Option<usize> {
        self.follow(digit).map(|(word, _)| word)
    }

    #[inline]
    fn follow(&self, digit: u32) -> Option<(usize, Place)> {
        let Some((digits, count, first)) = self.listed() else {
            let word = 1 + digit as usize;
            let place = self.link(word);
            return (place != HEAD).then_some((word, place));
        };
        // Only the lowest zero in `zeros` is exact.
        let other = digits ^ (ONES * digit);
        let zeros = other.wrapping_sub(ONES) & !other & (ONES << (DIGIT_BITS - 1));
        let at = zeros.trailing_zeros() / DIGIT_BITS;
        let word = first + at as usize;
        (at < count).then(|| (word, self.link(word)))
    }

    #[inline]
    fn links(&self) -> impl Iterator<Item = (u32, usize)> {
        let (listed, branch) = (self.listed(), *self);
        let count = listed.map_or(DIGITS, |(_, count, _)| count);
        (0..count).filter_map(move |at| match listed {
            Some((digits, _, first)) => {
                Some((digits >> (DIGIT_BITS * at) & (DIGITS - 1), first + at as usize))
            }
            None => (branch.link(1 + at as usize) != HEAD).then_some((at, 1 + at as usize)),
        })
    }

    #[inline]
    fn bits(&self) -> Option<u32> {
        let (digits, count, _) = self.listed()?;
        Some((0..count).fold(0, |bits, at| bits | 1 << (digits >> (DIGIT_BITS * at) & (DIGITS - 1))))
    }

    #[inline]
    fn before(&self, digit: u32) -> Option<(u32, usize)> {
        match self.bits() {
            Some(bits) => {
                let digit = (bits & ((1 << digit) - 1)).checked_ilog2()?;
                Some((digit, self.find(digit)?))
            }
            None => {
                (0..digit).rev().map(|at| (at, 1 + at as usize)).find(|&(_, word)| self.link(word) != HEAD)
            }
        }
    }

    #[inline]
    fn at_or_after(&self, digit: u32) -> Option<(u32, usize)> {
        match self.bits() {
            Some(bits) => {
                let digit = NonZero::new(bits >> digit << digit)?.trailing_zeros();
                Some((digit, self.find(digit)?))
            }
            None => {
                (digit..DIGITS).map(|at| (at, 1 + at as usize)).find(|&(_, word)| self.link(word) != HEAD)
            }
        }
    }

    #[inline]
    fn beside(&self, memory: &impl Words, digit: u32) -> (u32, NodeId) {
        match self.before(digit) {
            Some((digit, word)) => (digit, outermost(memory, self.link(word), true)),
            None => {
                // The digit may have got a link meanwhile.
                let (digit, word) = self.at_or_after(digit + 1).expect("a branch has links of two digits");
                (digit, outermost(memory, self.link(word), false))
            }
        }
    }

    fn add(&self, digit: u32, id: NodeId) -> bool {
        match self.listed() {
            None => self.words[1 + digit as usize].store(id, Memory::Release),
            Some((digits, count, first)) => {
                if first + count as usize == WORDS[self.size() as usize] {
                    return false;
                }
                self.words[first + count as usize].store(id, Memory::Relaxed);
                self.words[1].store(digits | digit << (DIGIT_BITS * count), Memory::Relaxed);
                self.words[0].store(self.head + (1 << COUNT_SHIFT), Memory::Release);
            }
        }
        true
    }
}

#[inline]
fn outermost(memory: &impl Words, mut place: Place, is_last: bool) -> NodeId {
    while let Some(branch) = Branch::at(memory, place) {
        let found = if is_last { branch.before(DIGITS) } else { branch.at_or_after(0) };
        place = branch.link(found.expect("a branch has links").1);
    }
    place
}

/// Where a search may begin: the root, or a link on the target's path, with its branch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    link: Place,
    branch: Place,
}

impl Start {
    pub(super) const ROOT: Self = Self { link: ROOT, branch: HEAD };

    #[inline]
    fn position(self, memory: &impl Words) -> Option<u32> {
        if self.branch == HEAD {
            return Some(0);
        }
        let head = memory.words(self.branch)[0].load(Memory::Relaxed);
        (head & REPLACED == 0).then_some((head & POSITION_MASK) + 1)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) place: Place,
    link: Start,
    pub(super) start: Start,
    is_apart: bool,
}

impl Ahead {
    pub(super) fn new(memory: &impl Words) -> Self {
        Self { place: follow(memory, ROOT), link: Start::ROOT, start: Start::ROOT, is_apart: false }
    }

    #[inline]
    pub(super) fn step(&mut self, memory: &impl Words, target: &Target<'_>) -> bool {
        let Some(branch) = Branch::at(memory, self.place) else { return false };
        let digit = target.digit(branch.position());
        let found = branch.find(digit);
        if !self.is_apart {
            (self.start, self.is_apart) = (self.link, found.is_none());
        }
        let beside = || branch.before(digit).or_else(|| branch.at_or_after(digit)).map(|(_, word)| word);
        let word = found.or_else(beside).expect("a branch has links");
        self.link = Start { link: self.place + word as Place, branch: self.place };
        self.place = branch.link(word);
        true
    }
}

pub(super) struct Found {
    pub(super) near: NodeId,
    pub(super) difference: Difference,
    /// The link to a branch at the position of the difference, or the place where to add it.
    link: Place,
}

#[inline]
pub(super) fn find(
    memory: &impl Words,
    start: Start,
    target: &Target<'_>,
    compare: &impl Fn(NodeId) -> Difference,
) -> Found {
    // Earlier branches have a link for the target's digit.
    let (mut link, mut from) = match start.position(memory) {
        Some(from) => (start.link, from),
        None => (ROOT, 0),
    };
    let mut place = follow(memory, link);
    while let Some(branch) = Branch::at(memory, place) {
        let position = branch.position();
        let digit = target.digit(position);
        if let Some((word, next)) = branch.follow(digit) {
            (link, from, place) = (place + word as Place, position + 1, next);
            continue;
        }
        let near = branch.beside(memory, digit).1;
        let difference = compare(near);
        if difference.at == position {
            return Found { near, difference, link };
        }
        return find_above(memory, target, difference, compare);
    }
    if place == HEAD {
        return Found { near: HEAD, difference: Difference { at: 0, entry: 0, target: 1 }, link };
    }
    let difference = compare(place);
    if difference.at >= from {
        return Found { near: place, difference, link };
    }
    find_above(memory, target, difference, compare)
}

/// Continues [`find`] if the target leaves the path above the entry with this difference.
#[inline(never)]
fn find_above(
    memory: &impl Words,
    target: &Target<'_>,
    difference: Difference,
    compare: &impl Fn(NodeId) -> Difference,
) -> Found {
    let (mut link, mut place) = (ROOT, follow(memory, ROOT));
    while let Some(branch) = Branch::at(memory, place)
        && branch.position() <= difference.at
    {
        let digit = target.digit(branch.position());
        let word = branch.find(digit);
        if branch.position() == difference.at {
            let Some(word) = word else {
                let (entry, near) = branch.beside(memory, digit);
                return Found { near, difference: Difference { entry, ..difference }, link };
            };
            // The digit got its link after the beginning of the search.
            return find(memory, Start { link: place + word as Place, branch: place }, target, compare);
        }
        let Some(word) = word else { break };
        link = place + word as Place;
        place = branch.link(word);
    }
    Found { near: outermost(memory, place, difference.is_after()), difference, link }
}

#[inline]
fn follow(memory: &impl Words, link: Place) -> Place {
    memory.words(link)[0].load(Memory::Acquire)
}

#[inline]
pub(super) fn add(room: &mut Room, arena: &Arena, found: &Found, id: NodeId) -> usize {
    let Found { difference: Difference { at, entry, target }, link, .. } = *found;
    let below = follow(room, link);
    let (place, allocated) = if below == HEAD || at == END {
        (id, 0)
    } else if let Some(branch) = Branch::at(room, below)
        && branch.position() == at
    {
        if branch.add(target, id) {
            return 0;
        }
        let mut links = [(0, HEAD); DIGITS as usize];
        let count = branch
            .links()
            .zip(&mut links)
            .map(|((digit, word), to)| *to = (digit, branch.link(word)))
            .count();
        links[count] = (target, id);
        // Release shows the links that were added before.
        branch.words[0].store(branch.head | REPLACED, Memory::Release);
        make(room, arena, branch.size() + 1, at, &links[..=count])
    } else {
        let (entry, target) = ((entry, below), (target, id));
        make(room, arena, 0, at, &[entry.min(target), entry.max(target)])
    };
    room.words(link)[0].store(place, Memory::Release);
    allocated
}

fn make(room: &mut Room, arena: &Arena, size: u32, position: u32, links: &[(u32, Place)]) -> (Place, usize) {
    let (place, allocated) = room.take(arena, WORDS[size as usize]);
    let words = room.words(place);
    let digits = links.iter().rev().fold(0, |digits, &(digit, _)| digits << DIGIT_BITS | digit);
    let count = match size {
        0 => digits,
        SIZE_MAX => 0,
        _ => links.len() as u32,
    };
    if size == SIZE_MAX {
        links.iter().for_each(|&(digit, to)| words[1 + digit as usize].store(to, Memory::Relaxed));
    } else {
        let first = if size == 0 { 1 } else { 2 };
        words[1].store(digits, Memory::Relaxed);
        words[first..].iter().zip(links).for_each(|(word, &(_, to))| word.store(to, Memory::Relaxed));
    }
    words[0].store(BRANCH | size << SIZE_SHIFT | count << COUNT_SHIFT | position, Memory::Relaxed);
    (place, allocated)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    thread_local! {
        /// Branches and entries that searches of this thread have read.
        pub(in super::super) static BRANCHES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn a_branch_of_any_size_finds_its_digits_and_those_beside_others() {
        // Several orders, so that the digits are not listed in order.
        for step in [1, 3, 7, 15] {
            let (arena, mut room) = (Arena::default(), Room::default());
            let root = room.take(&arena, 1).0;
            let mut has = Vec::new();
            for digit in (0..DIGITS).map(|at| (5 + step * at) % DIGITS) {
                // The first word of an entry is never that of a branch.
                let id = room.take(&arena, 1).0;
                let near = has.first().map_or(HEAD, |&(_, id)| id);
                let entry = has.first().map_or(0, |&(digit, _)| digit);
                let found =
                    Found { near, difference: Difference { at: 9, entry, target: digit }, link: root };
                add(&mut room, &arena, &found, id);
                has.push((digit, id));
                let Some(branch) = Branch::at(&arena, follow(&arena, root)) else { continue };
                assert_eq!(branch.position(), 9);
                for digit in 0..DIGITS {
                    let link = |(digit, word)| (digit, branch.link(word));
                    let of_digit = has.iter().find(|&&(other, _)| other == digit).map(|&(_, id)| id);
                    assert_eq!(branch.find(digit).map(|word| branch.link(word)), of_digit);
                    let before = has.iter().copied().filter(|&(other, _)| other < digit).max();
                    assert_eq!(branch.before(digit).map(link), before);
                    let after = has.iter().copied().filter(|&(other, _)| other >= digit).min();
                    assert_eq!(branch.at_or_after(digit).map(link), after);
                }
            }
        }
    }

    #[test]
    fn branches_and_all_that_they_replaced_take_no_more_than_is_said() {
        const { assert!(END <= POSITION_MASK, "every position has room") };
        let mut replaced = 0;
        for (size, words) in WORDS.into_iter().enumerate() {
            let least = if size == 0 { 2 } else { (1 << size) + 1 };
            replaced += words;
            assert!(replaced * WORD_BYTES <= ENTRY_BYTES_MAX * (least - 1), "size {size}");
        }
    }
}
