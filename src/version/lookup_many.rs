//! Lookups of many keys at a time: run by run, the memory of all filters is fetched before the first is tested,
//! and tables are read in the order of their keys.

use super::filter::FilterState;
use super::handle::TableHandle;
use super::lookup::Lookup;
use super::run::Run;
use super::version::Version;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::key::Tag;
use crate::table::Verdict;

/// How many keys are looked up together at most.
pub(crate) const TOGETHER: usize = 64;

/// In a run of no more tables, all keys of a table are probed together.
const GROUPED_TABLES_MAX: usize = 8;

/// A set of numbers below [`TOGETHER`].
#[derive(Clone, Copy, Default)]
struct Set(u64);

impl Set {
    fn below(len: usize) -> Self {
        Self(u64::MAX.checked_shr((TOGETHER - len) as u32).unwrap_or(0))
    }

    fn of(number: usize) -> Self {
        Self(1 << number)
    }

    fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, others: Self) {
        self.0 |= others.0;
    }

    fn remove(&mut self, others: Self) {
        self.0 &= !others.0;
    }
}

/// In ascending order.
impl Iterator for Set {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let number = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (number < TOGETHER).then_some(number)
    }
}

impl Version {
    /// [`Version::get`] of up to [`TOGETHER`] lookups. Calls `found` with the number of a lookup and its newest
    /// entry, in no particular order; not for those without one.
    ///
    /// Run by run, newest first: find the table of each key, and prefetch its filter; then probe the filters, each
    /// for all of its keys at once if the tables are few; then read the tables for the keys that are left, in the
    /// order of these, so that blocks are read in the order in which they lie in the file.
    pub(crate) fn get_many(
        &self,
        lookups: &[Lookup<'_>],
        mut found: impl FnMut(usize, (Tag, EntryValue)) -> Result<()>,
    ) -> Result<()> {
        let mut wanted = Set::below(lookups.len());
        for run in self.newest_first() {
            let mut places = [0; TOGETHER];
            let mut verdicts = [Verdict::Absent; TOGETHER];
            let left = if run.tables.len() <= GROUPED_TABLES_MAX {
                self.probe_by_table(run, wanted, lookups, &mut places, &mut verdicts)
            } else {
                self.probe_by_key(run, wanted, lookups, &mut places, &mut verdicts)
            };
            let mut candidates = [0; TOGETHER];
            let mut len = 0;
            for number in left {
                candidates[len] = number as u8;
                len += 1;
            }
            let candidates = &mut candidates[..len];
            candidates.sort_unstable_by_key(|&number| lookups[usize::from(number)].user_key);
            for &mut number in candidates {
                let number = usize::from(number);
                let handle = &run.tables[places[number]];
                if let Some(entry) = handle.read(&lookups[number], verdicts[number])? {
                    found(number, entry)?;
                    wanted.remove(Set::of(number));
                }
            }
        }
        Ok(())
    }

    /// Probes the filters of a run, each for all of its keys at once. Returns the lookups of which "absent" is not
    /// said, or not to be believed; puts down their verdicts and the places of their tables.
    fn probe_by_table(
        &self,
        run: &Run,
        wanted: Set,
        lookups: &[Lookup<'_>],
        places: &mut [usize; TOGETHER],
        verdicts: &mut [Verdict; TOGETHER],
    ) -> Set {
        let mut groups = [Set::default(); GROUPED_TABLES_MAX];
        for number in wanted {
            if let Some(place) = run.place_of(lookups[number].user_key) {
                places[number] = place;
                groups[place].add(Set::of(number));
            }
        }
        let groups = || run.tables.iter().zip(groups).filter(|(_, group)| !group.is_empty());
        if self.is_far() {
            groups().for_each(|(handle, group)| handle.prefetch_filter_for(group, lookups));
        }
        let mut left = Set::default();
        groups().for_each(|(handle, group)| left.add(handle.unless_absent_of(group, lookups, verdicts)));
        left
    }

    /// [`Version::probe_by_table`] of a run of so many tables that few keys share one: key by key.
    fn probe_by_key(
        &self,
        run: &Run,
        wanted: Set,
        lookups: &[Lookup<'_>],
        places: &mut [usize; TOGETHER],
        verdicts: &mut [Verdict; TOGETHER],
    ) -> Set {
        let (mut in_range, mut left) = (Set::default(), Set::default());
        for number in wanted {
            let Lookup { user_key, hash, .. } = lookups[number];
            let Some(place) = run.place_of(user_key) else { continue };
            if self.is_far() {
                run.tables[place].prefetch_filter(hash);
            }
            places[number] = place;
            in_range.add(Set::of(number));
        }
        for number in in_range {
            if let Some(verdict) = run.tables[places[number]].unless_absent(&lookups[number]) {
                verdicts[number] = verdict;
                left.add(Set::of(number));
            }
        }
        left
    }
}

impl TableHandle {
    /// [`TableHandle::prefetch_filter`] for a group of lookups.
    fn prefetch_filter_for(&self, group: Set, lookups: &[Lookup<'_>]) {
        if let Some(filter) = self.filter.state() {
            group.for_each(|number| filter.prefetch(lookups[number].hash));
        }
    }

    /// [`TableHandle::unless_absent`] of a group of lookups: those of which "absent" is not said, or not to be
    /// believed, and their verdicts.
    fn unless_absent_of(
        &self,
        group: Set,
        lookups: &[Lookup<'_>],
        verdicts: &mut [Verdict; TOGETHER],
    ) -> Set {
        let mut left = Set::default();
        let mut leave = |number: usize, verdict| {
            verdicts[number] = verdict;
            left.add(Set::of(number));
        };
        let Some(FilterState::Loaded(filter)) = self.filter.state() else {
            group.for_each(|number| leave(number, Verdict::Unknown));
            return left;
        };
        self.note_use();
        let (mut hashes, mut answers) = ([0; TOGETHER], [true; TOGETHER]);
        let mut len = 0;
        for number in group {
            hashes[len] = lookups[number].hash;
            len += 1;
        }
        filter.may_contain_many(&hashes[..len], &mut answers);
        let absent = answers.iter().filter(|&&answer| !answer).count();
        let counts = absent > 0 && self.counts_as_absent(lookups[0].stripe, absent as u64);
        for (number, &may_be_there) in group.zip(&answers) {
            if may_be_there {
                leave(number, Verdict::Maybe);
            } else if !counts {
                leave(number, Verdict::Absent);
            }
        }
        left
    }
}
