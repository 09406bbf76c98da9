//! Batched lookups. In each run, all filters are prefetched before the first probe, and tables are read in key order.

use byteorder::{ByteOrder, LittleEndian};

use super::filter_state::FilterState;
use super::handle::TableHandle;
use super::run::Run;
use super::table_lookup::Lookup;
use super::version::Version;
use crate::counters::Stripe;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag, key_prefix};
use crate::table::Verdict;

pub(crate) const TOGETHER: usize = 64;

const GROUPED_TABLES_MAX: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookups<'a> {
    pub(crate) user_keys: &'a [&'a [u8]],
    pub(crate) hashes: &'a [u64],
    pub(crate) seqno: SeqNo,
    pub(crate) stripe: Stripe,
}

impl<'a> Lookups<'a> {
    pub(super) fn one(&self, number: usize) -> Lookup<'a> {
        let (user_key, hash) = (self.user_keys[number], self.hashes[number]);
        Lookup { user_key, hash, seqno: self.seqno, stripe: self.stripe }
    }
}

struct Parts {
    of_keys: [u64; TOGETHER],
    smallest: u64,
    largest: u64,
}

impl Parts {
    fn of(user_keys: &[&[u8]]) -> Self {
        let mut parts = Self { of_keys: [0; TOGETHER], smallest: u64::MAX, largest: 0 };
        for (part, key) in parts.of_keys.iter_mut().zip(user_keys) {
            *part = key_prefix(key);
            parts.smallest = parts.smallest.min(*part);
            parts.largest = parts.largest.max(*part);
        }
        parts
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Set(u64);

impl Set {
    pub(crate) fn below(len: usize) -> Self {
        Self(u64::MAX.checked_shr((TOGETHER - len) as u32).unwrap_or(0))
    }

    fn of_answers(answers: &[bool; TOGETHER]) -> Self {
        // The multiplication gathers eight bytes, each 0 or 1, as bits of the highest byte.
        let bits = |eight: &[bool; 8]| {
            LittleEndian::read_u64(&eight.map(u8::from)).wrapping_mul(0x0102_0408_1020_4080) >> 56
        };
        Self(answers.as_chunks().0.iter().rev().fold(0, |set, eight| set << 8 | bits(eight)))
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    fn retain(&mut self, is_kept: impl Fn(usize) -> bool) {
        for number in *self {
            if !is_kept(number) {
                self.remove(number);
            }
        }
    }

    fn has(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }

    fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    pub(crate) fn remove(&mut self, number: usize) {
        self.0 &= !(1 << number);
    }
}

impl Iterator for Set {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (number < TOGETHER).then_some(number)
    }
}

#[derive(Default)]
struct Left {
    maybe: Set,
    unknown: Set,
    /// Lookups with an "absent" that must be audited or is not trusted.
    absent: Set,
}

impl Left {
    fn all(&self) -> Set {
        self.maybe.with(self.unknown).with(self.absent)
    }

    fn verdict(&self, number: usize) -> Verdict {
        if self.maybe.has(number) {
            Verdict::Maybe
        } else if self.unknown.has(number) {
            Verdict::Unknown
        } else {
            Verdict::Absent
        }
    }

    fn add(&mut self, other: &Self) {
        self.maybe = self.maybe.with(other.maybe);
        self.unknown = self.unknown.with(other.unknown);
        self.absent = self.absent.with(other.absent);
    }
}

impl Version {
    /// Calls `found` with the number and newest entry of each wanted key, in no particular order. Returns the number of
    /// reads of tables.
    pub(crate) fn get_many(
        &self,
        lookups: &Lookups<'_>,
        mut wanted: Set,
        found: &mut dyn FnMut(usize, (Tag, EntryValue)) -> Result<()>,
    ) -> Result<usize> {
        let mut reads = 0;
        let parts = Parts::of(lookups.user_keys);
        for run in self.newest_first() {
            if wanted.is_empty() {
                break;
            }
            let mut spans = [0; TOGETHER];
            let covered =
                if self.has_spans() { covered(run, wanted, lookups, &mut spans)? } else { Set::default() };
            let left = if run.tables.len() <= GROUPED_TABLES_MAX {
                self.probe_by_table(run, wanted, lookups, &parts)
            } else {
                self.probe_by_key(run, wanted, lookups, &parts)
            };
            if left.all().is_empty() {
                wanted = wanted.without(covered);
                continue;
            }
            let mut numbers = [0; TOGETHER];
            let in_order = &mut numbers[..left.all().len()];
            reads += in_order.len();
            in_order.iter_mut().zip(left.all()).for_each(|(place, number)| *place = number as u8);
            in_order.sort_unstable_by_key(|&number| lookups.user_keys[usize::from(number)]);
            for &mut number in in_order {
                let number = usize::from(number);
                let lookup = lookups.one(number);
                let Some(handle) = run.table_for(lookup.user_key) else { continue };
                if covered.has(number) && handle.meta.seqno_max <= spans[number] {
                    continue;
                }
                if let Some(entry) = handle.read(&lookup, left.verdict(number))?
                    && (!covered.has(number) || entry.0.seqno() > spans[number])
                {
                    found(number, entry)?;
                    wanted.remove(number);
                }
            }
            wanted = wanted.without(covered);
        }
        Ok(reads)
    }

    /// Probes each filter of a run with all keys of its table. Returns the lookups without a trusted "absent".
    fn probe_by_table(&self, run: &Run, wanted: Set, lookups: &Lookups<'_>, parts: &Parts) -> Left {
        let place = |number: usize| run.place_with(lookups.user_keys[number], parts.of_keys[number]);
        if let [table] = &*run.tables {
            // A filter with many hashes prefetches its own lines.
            let mut group = wanted;
            if !run.is_within(parts.smallest, parts.largest) {
                group.retain(|number| place(number).is_some());
            }
            return table.unless_absent_of(group, lookups);
        }
        let mut groups = [Set::default(); GROUPED_TABLES_MAX];
        for number in wanted {
            if let Some(place) = place(number) {
                groups[place].add(number);
            }
        }
        let groups = || run.tables.iter().zip(groups);
        if self.is_far() {
            groups().for_each(|(handle, group)| handle.prefetch_filter_for(group, lookups));
        }
        let mut left = Left::default();
        groups().for_each(|(handle, group)| left.add(&handle.unless_absent_of(group, lookups)));
        left
    }

    /// For runs of so many tables that few keys share a table.
    fn probe_by_key(&self, run: &Run, wanted: Set, lookups: &Lookups<'_>, parts: &Parts) -> Left {
        let (mut in_range, mut left) = (Set::default(), Left::default());
        let mut places = [0; TOGETHER];
        for number in wanted {
            let Some(place) = run.place_with(lookups.user_keys[number], parts.of_keys[number]) else {
                continue;
            };
            if self.is_far() {
                run.tables[place].prefetch_filter(lookups.hashes[number]);
            }
            places[number] = place;
            in_range.add(number);
        }
        for number in in_range {
            match run.tables[places[number]].unless_absent(lookups.hashes[number], lookups.stripe) {
                None => continue,
                Some(Verdict::Maybe) => left.maybe.add(number),
                Some(Verdict::Unknown) => left.unknown.add(number),
                Some(Verdict::Absent) => left.absent.add(number),
            }
        }
        left
    }
}

/// Ends a covered lookup, because all older entries are hidden.
#[cold]
fn covered(run: &Run, wanted: Set, lookups: &Lookups<'_>, spans: &mut [SeqNo; TOGETHER]) -> Result<Set> {
    let mut covered = Set::default();
    for number in wanted {
        let user_key = lookups.user_keys[number];
        let Some(handle) = run.table_for(user_key) else { continue };
        if let Some(span) = handle.covering(user_key, lookups.seqno)? {
            spans[number] = span;
            covered.add(number);
        }
    }
    Ok(covered)
}

impl TableHandle {
    fn prefetch_filter_for(&self, group: Set, lookups: &Lookups<'_>) {
        if let Some(filter) = self.filter.state() {
            group.for_each(|number| filter.prefetch(lookups.hashes[number]));
        }
    }

    fn unless_absent_of(&self, group: Set, lookups: &Lookups<'_>) -> Left {
        if group.is_empty() {
            return Left::default();
        }
        let Some(FilterState::Loaded(filter)) = self.filter.state() else {
            return Left { unknown: group, ..Left::default() };
        };
        self.note_use();
        let mut answers = [true; TOGETHER];
        let maybe = if group == Set::below(lookups.hashes.len()) {
            filter.may_contain_many(lookups.hashes, &mut answers);
            Set::of_answers(&answers)
        } else {
            let mut hashes = [0; TOGETHER];
            hashes.iter_mut().zip(group).for_each(|(hash, number)| *hash = lookups.hashes[number]);
            filter.may_contain_many(&hashes[..group.len()], &mut answers);
            let mut maybe = Set::default();
            group.zip(answers).filter(|&(_, answer)| answer).for_each(|(number, _)| maybe.add(number));
            maybe
        };
        let (maybe, absent) = (group.and(maybe), group.without(maybe));
        if self.counts_as_absent(lookups.stripe, absent.len() as u64) {
            Left { maybe, ..Left::default() }
        } else {
            Left { maybe, absent, ..Left::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn keys_in_many_runs_of_one_table_are_answered_and_counted_like_each_alone() {
        for prefix in ["", "id"] {
            let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
            let db = options.default_keyspace(KeyspaceOptions::new().l0_runs(12)).open("/db").unwrap();
            let key = |number: u16| [prefix.as_bytes(), &number.to_be_bytes(), b"behind"].concat();
            // Ranges that begin and end within a batch, and two runs with a single key.
            for run in 0..12 {
                let numbers = if run % 6 == 5 { 500..501 } else { run * 70..1000 - run * 70 };
                numbers.step_by(3).for_each(|number| db.put(key(number), "").unwrap());
                db.flush().unwrap();
            }
            db.open_tables().unwrap();
            let counts = || {
                let counts = db.stats().keyspaces[0].total().filter;
                [counts.negatives, counts.false_positives, counts.true_positives]
            };
            let keys: Vec<_> = (0..1100).map(key).collect();
            let before = counts();
            let alone: Vec<bool> = keys.iter().map(|key| db.contains(key).unwrap()).collect();
            let between = counts();
            assert!(alone.contains(&true) && between[0] - before[0] > 500, "{between:?}");
            for together in [keys.len(), 7, 1] {
                let before = counts();
                let found: Vec<bool> =
                    keys.chunks(together).flat_map(|keys| db.multi_contains(keys).unwrap()).collect();
                assert_eq!(found, alone);
                let grown = |from: [u64; 3], to: [u64; 3]| [0, 1, 2].map(|at| to[at] - from[at]);
                assert_eq!(grown(before, counts()), grown([0; 3], between), "{prefix:?} {together}");
            }
        }
    }

    #[test]
    fn a_set_has_the_numbers_whose_answers_are_yes() {
        for round in 0..200_u64 {
            let bits = round.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(round as u32) ^ round;
            let answers: [bool; TOGETHER] = std::array::from_fn(|number| bits >> number & 1 == 1);
            let set = Set::of_answers(&answers);
            assert_eq!((set, set.len()), (Set(bits), bits.count_ones() as usize));
            assert!((0..TOGETHER).all(|number| set.has(number) == answers[number]));
            assert!(set.eq((0..TOGETHER).filter(|&number| answers[number])));
        }
        assert_eq!([0, 1, 63, 64].map(Set::below), [0, 1, u64::MAX >> 1, u64::MAX].map(Set));
    }
}
