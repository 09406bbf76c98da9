//! The merge of sorted sources into one sorted stream, in both directions.
//!
//! The sources are given newest first. Compactions set sequence numbers to zero, so two sources may have the same
//! internal key. The newer source then comes first, or last in backward order.
//!
//! 1. Valid sources are in a list, in the order of their entries in the current direction. Each has a rank: eight bytes
//!    of its key, which decide most comparisons. If the first bytes often do not decide, the rank uses the bytes after
//!    a common prefix ([`Ranks`]).
//! 2. A step moves the first source and reinserts it in the list. If it also has the next entry, this takes one
//!    comparison. Otherwise it takes a binary search, which is cheaper than a heap, or a linear search for at most
//!    [`PASSED_MAX`] sources.
//! 3. A change of direction moves every other source to the other side of the current entry.
//! 4. A seek in the current direction moves only the sources before the target. It may miss entries that a memtable has
//!    gained since; they are newer than the reader's snapshot.
//!
//! Invariant: forward, each source is at its first entry that is not before the current one, in the order of (internal
//! key, source). Backward, it is at its last entry that is not after the current one. A source without such an entry is
//! invalid. A failed source fails the merge forever.

use std::cmp::Ordering;

use crate::block::BlockIter;
use crate::error::{Error, Step};
use crate::iter::{EntryValue, Failure, InternalIterator, LentValue};
use crate::key::{InternalKey, common_prefix, key_prefix};
use crate::limits::SEQNO_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Numbers in an order compatible with the keys, in the current direction.
#[derive(Debug)]
struct Ranks {
    direction: Direction,
    /// A rank is made of the eight bytes after this prefix. Keys without the prefix come before or after all keys with
    /// it, and have the first or the last rank.
    prefix: Vec<u8>,
    passes: u32,
}

/// The number of equal ranks before a new choice of the prefix: after a change of the prefix, and after no change.
/// Equal user keys always have equal ranks.
const PASSES: [u32; 2] = [1, 32];

impl Ranks {
    fn new(direction: Direction) -> Self {
        Self { direction, prefix: Vec::new(), passes: 0 }
    }

    #[inline(always)]
    fn of(&self, key: InternalKey<'_>) -> u64 {
        let bytes = if self.prefix.is_empty() { key_prefix(key.user) } else { self.behind_prefix(key.user) };
        match self.direction {
            Direction::Forward => bytes,
            Direction::Backward => !bytes,
        }
    }

    #[inline(never)]
    fn behind_prefix(&self, user_key: &[u8]) -> u64 {
        match user_key.strip_prefix(&*self.prefix) {
            Some(rest) => key_prefix(rest),
            None if user_key < &*self.prefix => 0,
            None => u64::MAX,
        }
    }

    fn choose(&mut self, prefix: &[u8]) -> bool {
        let is_new = prefix != self.prefix;
        self.passes = PASSES[usize::from(!is_new)];
        if is_new {
            self.prefix.clear();
            self.prefix.extend_from_slice(prefix);
        }
        is_new
    }
}

const PASSED_MAX: usize = 6;

pub(crate) struct MergeIter<I> {
    sources: Vec<I>,
    standing: Vec<Standing>,
    leads: bool,
    ranks: Ranks,
    failure: Failure,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    /// A smaller rank is earlier in the current direction.
    rank: u64,
    source: usize,
}

impl<I: InternalIterator> MergeIter<I> {
    pub(crate) fn new(sources: Vec<I>) -> Self {
        let standing = Vec::with_capacity(sources.len());
        let ranks = Ranks::new(Direction::Forward);
        Self { sources, standing, leads: false, ranks, failure: Failure::default() }
    }

    #[inline(always)]
    fn attempt(&mut self, movement: impl FnOnce(&mut Self) -> Step) -> Step {
        self.failure.repeat()?;
        match movement(self) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    #[cold]
    fn fail(&mut self, error: Box<Error>) -> Step {
        self.standing.clear();
        self.failure.keep(error)
    }

    fn place_all(&mut self, direction: Direction, mut place: impl FnMut(&mut I) -> Step) -> Step {
        for source in &mut self.sources {
            place(source)?;
        }
        self.order_all(direction);
        Ok(())
    }

    fn order_all(&mut self, direction: Direction) {
        self.ranks = Ranks::new(direction);
        self.standing.clear();
        for source in (0..self.sources.len()).rev() {
            if self.sources[source].key().is_some() {
                self.standing.insert(0, Standing { rank: 0, source });
                self.settle();
            }
        }
    }

    #[inline]
    fn precedes(&self, a: Standing, b: Standing) -> bool {
        a.rank < b.rank || (a.rank == b.rank && self.precedes_among_equals(a.source, b.source))
    }

    #[inline(never)]
    fn precedes_among_equals(&self, a: usize, b: usize) -> bool {
        let order = self.sources[a].key().cmp(&self.sources[b].key()).then(a.cmp(&b));
        match self.ranks.direction {
            Direction::Forward => order.is_lt(),
            Direction::Backward => order.is_gt(),
        }
    }

    #[inline(always)]
    fn settle(&mut self) {
        let source = self.standing[0].source;
        let Some(key) = self.sources[source].key() else {
            self.standing.remove(0);
            self.leads = false;
            return;
        };
        let rank = self.ranks.of(key);
        self.standing[0].rank = rank;
        self.leads = match self.standing.get(1) {
            Some(second) if second.rank == rank => self.leads_among_equals(),
            Some(second) => second.rank > rank,
            None => true,
        };
        if !self.leads {
            self.go_behind_others();
        }
    }

    #[inline(never)]
    fn leads_among_equals(&mut self) -> bool {
        match self.ranks.passes.checked_sub(1) {
            Some(passes) => self.ranks.passes = passes,
            None => self.choose_prefix(),
        }
        !self.precedes(self.standing[1], self.standing[0])
    }

    fn choose_prefix(&mut self) {
        let Self { sources, standing, ranks, .. } = self;
        let user = |place: Option<&Standing>| sources[place?.source].key().map(|key| key.user);
        let (Some(first), Some(second), Some(last)) =
            (user(standing.first()), user(standing.get(1)), user(standing.last()))
        else {
            return;
        };
        // No prefix distinguishes equal keys. The common prefix of the second and the last key is common to all keys
        // between them.
        let common = common_prefix(first, second).min(common_prefix(second, last));
        if first == second {
            ranks.passes = PASSES[1];
        } else if ranks.choose(&second[..common]) {
            for place in standing {
                place.rank = sources[place.source].key().map_or(place.rank, |key| ranks.of(key));
            }
        }
    }

    #[inline(always)]
    fn go_behind_others(&mut self) {
        if self.standing.len() > PASSED_MAX {
            return self.go_behind_some_of_many();
        }
        let (moved, mut at) = (self.standing[0], 0);
        while let Some(&next) = self.standing.get(at + 1)
            && (at == 0 || self.precedes(next, moved))
        {
            self.standing[at] = next;
            at += 1;
        }
        self.standing[at] = moved;
    }

    #[inline(never)]
    fn go_behind_some_of_many(&mut self) {
        let moved = self.standing[0];
        let before = 2 + self.standing[2..].partition_point(|&other| self.precedes(other, moved));
        self.standing.copy_within(1..before, 0);
        self.standing[before - 1] = moved;
    }

    #[inline(always)]
    fn step(&mut self, direction: Direction) -> Step {
        let Some(&Standing { source: top, .. }) = self.standing.first() else { return Ok(()) };
        if self.ranks.direction != direction {
            return self.turn(direction, top);
        }
        advance(&mut self.sources[top], direction)?;
        self.settle();
        Ok(())
    }

    #[inline(never)]
    fn turn(&mut self, direction: Direction, top: usize) -> Step {
        let Some(key) = self.sources[top].key() else { return Ok(()) };
        let (user, tag) = (key.user.to_vec(), key.tag);
        let key = InternalKey::new(&user, tag);
        for (index, source) in self.sources.iter_mut().enumerate() {
            // An equal key in a newer source comes before this entry; in an older source, it comes after this entry.
            match (direction, index.cmp(&top)) {
                (_, Ordering::Equal) => advance(source, direction)?,
                (Direction::Forward, Ordering::Greater) => source.seek(key)?,
                (Direction::Backward, Ordering::Greater) => source.seek_before(key)?,
                (Direction::Forward, Ordering::Less) => {
                    source.seek(key)?;
                    if source.key() == Some(key) {
                        source.next()?;
                    }
                }
                (Direction::Backward, Ordering::Less) => {
                    source.seek(key)?;
                    match source.key() {
                        Some(found) if found == key => {}
                        Some(_) => source.prev()?,
                        None => source.seek_last()?,
                    }
                }
            }
        }
        self.order_all(direction);
        Ok(())
    }

    fn is_behind(&self, target: InternalKey<'_>) -> bool {
        self.key().is_some_and(|key| match self.ranks.direction {
            Direction::Forward => key < target,
            Direction::Backward => key >= target,
        })
    }

    fn seek_towards(&mut self, direction: Direction, target: InternalKey<'_>) -> Step {
        let place = |source: &mut I| match direction {
            Direction::Forward => source.seek(target),
            Direction::Backward => source.seek_before(target),
        };
        if self.ranks.direction != direction || !self.is_behind(target) {
            return self.place_all(direction, place);
        }
        while self.is_behind(target) {
            place(&mut self.sources[self.standing[0].source])?;
            self.settle();
        }
        Ok(())
    }
}

#[inline]
fn advance(source: &mut impl InternalIterator, direction: Direction) -> Step {
    match direction {
        Direction::Forward => source.next(),
        Direction::Backward => source.prev(),
    }
}

impl<I: InternalIterator> InternalIterator for MergeIter<I> {
    fn seek_first(&mut self) -> Step {
        self.attempt(|merge| merge.place_all(Direction::Forward, I::seek_first))
    }

    fn seek_last(&mut self) -> Step {
        self.attempt(|merge| merge.place_all(Direction::Backward, I::seek_last))
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.attempt(|merge| merge.seek_towards(Direction::Forward, target))
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.attempt(|merge| merge.seek_towards(Direction::Backward, target))
    }

    #[inline(never)]
    fn next(&mut self) -> Step {
        self.attempt(|merge| merge.step(Direction::Forward))
    }

    #[inline(never)]
    fn prev(&mut self) -> Step {
        self.attempt(|merge| merge.step(Direction::Backward))
    }

    #[inline(always)]
    fn key(&self) -> Option<InternalKey<'_>> {
        self.sources[self.standing.first()?.source].key()
    }

    #[inline(always)]
    fn value(&self) -> EntryValue {
        self.sources[self.standing[0].source].value()
    }

    #[inline]
    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        self.sources[self.standing.first()?.source].lent()
    }

    #[inline(always)]
    fn block(&self) -> Option<&BlockIter> {
        self.sources[self.standing.first()?.source].block()
    }

    /// `None` if the last step changed the first source: if sources alternate, the check costs more than it saves.
    #[inline(always)]
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        let first = &mut self.sources[self.standing.first()?.source];
        match self.standing.get(1) {
            None => first.leading_block(limit),
            Some(second)
                if self.leads
                    && self.ranks.direction == Direction::Forward
                    && self.ranks.prefix.is_empty() =>
            {
                first.leading_block(Some(limit.map_or(second.rank, |limit| limit.min(second.rank))))
            }
            Some(_) => None,
        }
    }

    /// Moves only if the first bytes of the keys show that the next source has no entry of the current user key.
    #[inline(never)]
    fn step_apart(&mut self) -> bool {
        let Some(first) = self.standing.first() else { return false };
        let Some(block) = self.sources[first.source].leading_block(None) else { return false };
        let apart = match self.standing.get(1) {
            Some(second) if !self.leads => second.rank > first.rank,
            // A move of the block leaves the first source's rank outdated.
            Some(second) => block.key().is_some_and(|key| second.rank > self.ranks.of(key)),
            None => true,
        };
        if self.ranks.direction != Direction::Forward || !apart || !block.step_to_plain(SEQNO_MAX) {
            return false;
        }
        self.settle();
        true
    }

    /// Sources in order give a merge in order, so the first source is at fault.
    fn out_of_order(&self) -> Box<Error> {
        self.sources[self.standing[0].source].out_of_order()
    }
}

#[cfg(test)]
mod tests {
    use super::super::vec_iter::{BlockSource, Entry, Random, VecIter, here};
    use super::*;
    use crate::key::{EntryKind, Tag};

    /// Returns random sources, and their entries in the order of the merge. With few sequence numbers, several sources
    /// often have equal internal keys. The value names the source.
    fn sources(random: &mut Random) -> (Vec<VecIter>, Vec<Entry>) {
        let mut all = Vec::new();
        let mut sources = Vec::new();
        for source in 0..random.below(2 * PASSED_MAX as u64) {
            let entries: Vec<Entry> =
                (0..random.below(20)).map(|_| (random.key(), random.tag(3), vec![source as u8])).collect();
            let iter = VecIter::new(entries);
            all.extend(iter.entries().iter().cloned());
            sources.push(iter);
        }
        all.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)).then(a.2.cmp(&b.2)));
        (sources, all)
    }

    #[test]
    fn random_walks_agree_with_one_sorted_list() {
        let mut random = Random(1);
        for round in 0..300 {
            let (sources, all) = sources(&mut random);
            let mut merge = MergeIter::new(sources);
            let mut model = VecIter::sorted(all);
            for _ in 0..200 {
                let (key, tag) = (random.key(), random.target(3));
                let target = InternalKey::new(&key, tag);
                let moved = match random.below(20) {
                    0 => [merge.seek_first(), model.seek_first()],
                    1 => [merge.seek_last(), model.seek_last()],
                    2..5 => [merge.seek(target), model.seek(target)],
                    5..8 => [merge.seek_before(target), model.seek_before(target)],
                    8..14 if model.key().is_some() => [merge.next(), model.next()],
                    14.. if model.key().is_some() => [merge.prev(), model.prev()],
                    _ => continue,
                };
                assert!(moved.iter().all(Result::is_ok));
                assert_eq!(here(&merge), here(&model), "round {round}");
            }
        }
    }

    #[test]
    fn keys_with_a_common_beginning_are_in_order_and_few_are_compared_from_their_first_byte() {
        let mut random = Random(9);
        let starts: Vec<Vec<u8>> =
            [&b""[..], b"same start ", b"same start and more of it/", b"t"].map(<[u8]>::to_vec).into();
        let (mut steps, mut equal_ranks) = (0, 0);
        for round in 0..100 {
            let mut sources: Vec<Vec<Entry>> = vec![Vec::new(); 2 + round % 7];
            for number in 0..2000u64 {
                let start = &starts[(number / 500) as usize];
                let key = [&start[..], &(number * 2_654_435_761).to_be_bytes()].concat();
                let source = random.below(sources.len() as u64) as usize;
                sources[source].push((key, random.tag(3), Vec::new()));
            }
            let all = sources.concat();
            let mut merge = MergeIter::new(sources.into_iter().map(VecIter::new).collect());
            let mut model = VecIter::new(all);
            merge.seek_first().unwrap();
            model.seek_first().unwrap();
            while here(&model).is_some() {
                assert_eq!(here(&merge), here(&model), "round {round}");
                let ranks: Vec<u64> = merge.standing.iter().map(|place| place.rank).collect();
                assert!(ranks.is_sorted(), "{ranks:?}");
                steps += 1;
                equal_ranks += usize::from(ranks.get(1) == Some(&ranks[0]));
                merge.next().unwrap();
                model.next().unwrap();
            }
            merge.seek_last().unwrap();
            model.seek_last().unwrap();
            while here(&model).is_some() {
                assert_eq!(here(&merge), here(&model), "round {round}, back");
                merge.prev().unwrap();
                model.prev().unwrap();
            }
        }
        assert!(equal_ranks < steps / 50, "{equal_ranks} of {steps}");
    }

    #[test]
    fn a_step_apart_is_one_to_the_next_entry_if_that_is_of_a_greater_key() {
        let mut random = Random(3);
        let (mut apart, mut beside) = (0, 0);
        for _ in 0..300 {
            let mut all = Vec::new();
            let mut sources = Vec::new();
            for source in 0..1 + random.below(4) {
                let mut random_entry = || (random.key(), random.tag(3), vec![]);
                let mut entries: Vec<Entry> = (0..20).map(|_| random_entry()).collect();
                entries
                    .iter_mut()
                    .filter(|e| e.1.kind() == EntryKind::Put)
                    .for_each(|e| e.2.push(source as u8));
                all.extend(VecIter::new(entries.clone()).entries().iter().cloned());
                sources.push(BlockSource::new(entries));
            }
            all.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)));
            let mut merge = MergeIter::new(sources);
            let mut model = VecIter::sorted(all);
            merge.seek_first().unwrap();
            model.seek_first().unwrap();
            while let Some((user, ..)) = here(&model) {
                let before = here(&merge);
                model.next().unwrap();
                if merge.step_apart() {
                    assert!(here(&merge).is_none_or(|(next, ..)| next > user));
                    apart += 1;
                } else {
                    assert_eq!(here(&merge), before);
                    merge.next().unwrap();
                    beside += 1;
                }
                assert_eq!(merge.key(), model.key());
            }
            merge.seek_first().unwrap();
            while merge.key().is_some() {
                merge.next().unwrap();
                merge.prev().unwrap();
                assert!(!merge.step_apart());
                merge.next().unwrap();
            }
        }
        assert!(apart > 1000 && beside > 1000, "{apart} and {beside}");
    }

    #[test]
    fn a_merge_of_nothing_has_no_position() {
        let mut merge = MergeIter::new(Vec::<VecIter>::new());
        merge.seek_first().unwrap();
        merge.next().unwrap();
        merge.seek_last().unwrap();
        merge.prev().unwrap();
        assert_eq!(here(&merge), None);
    }

    #[test]
    fn a_source_that_fails_once_fails_the_merge_for_good() {
        for failing_at in 0..40 {
            let entries = |step: usize| {
                (0..30).map(move |n| (vec![n as u8 * 3 + step as u8], Tag::newest_at(1), vec![]))
            };
            let good = VecIter::new(entries(0).collect());
            let bad = VecIter::new(entries(1).collect()).failing_at(failing_at);
            let mut merge = MergeIter::new(vec![good, bad]);
            let mut result = merge.seek_first();
            while result.is_ok() && merge.key().is_some() {
                result = merge.next();
            }
            let failed = failing_at <= 30;
            assert_eq!(result.is_err(), failed, "movement {failing_at}");
            if failed {
                assert_eq!(here(&merge), None);
                let target = InternalKey::new(b"", Tag::newest_at(1));
                let later = [
                    merge.next(),
                    merge.prev(),
                    merge.seek_first(),
                    merge.seek_last(),
                    merge.seek(target),
                    merge.seek_before(target),
                ];
                assert!(later.iter().all(Result::is_err));
                assert_eq!(here(&merge), None);
            }
        }
    }

    #[test]
    fn a_seek_onwards_leaves_sources_beyond_the_target_alone() {
        let entry = |n: u8| (vec![n], Tag::newest_at(1), vec![]);
        let near = VecIter::new((0..50).map(entry).collect());
        let far = VecIter::new((90..99).map(entry).collect());
        let moved = far.movements();
        let mut merge = MergeIter::new(vec![near, far]);
        merge.seek_first().unwrap();
        let before = moved.load(std::sync::atomic::Ordering::Relaxed);
        merge.seek(InternalKey::new(&[40], Tag::newest_at(1))).unwrap();
        assert_eq!(merge.key().unwrap().user, [40]);
        assert_eq!(moved.load(std::sync::atomic::Ordering::Relaxed), before);
    }
}
