//! All tables of a tree.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::{iter, slice};

use super::handle::TableHandle;
use super::run::{Run, Totals};
use crate::expiry::buckets::Buckets;
use crate::key::SeqNo;
use crate::manifest::edit::LEVELS;
use crate::sorting::sort_by_key;

#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    runs: Vec<Run>,
    ends: [usize; LEVELS],
    is_far: bool,
    has_spans: bool,
    horizon: SeqNo,
    buckets: Option<Arc<Buckets>>,
}

/// Typical size of a core's own cache. Smaller filters are not prefetched.
const NEAR_BYTES: u64 = 1 << 20;

#[cfg(test)]
thread_local! {
    pub(crate) static VISITED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl Version {
    fn of(levels: [Vec<Run>; LEVELS]) -> Self {
        let (mut runs, mut ends) = (Vec::new(), [0; LEVELS]);
        for (level, end) in levels.into_iter().zip(&mut ends) {
            runs.extend(level);
            *end = runs.len();
        }
        Self::with(runs, ends)
    }

    fn with(runs: Vec<Run>, ends: [usize; LEVELS]) -> Self {
        let totals: Totals = runs.iter().map(Run::totals).sum();
        let (is_far, has_spans) = (totals.filter_bytes > NEAR_BYTES, totals.with_spans > 0);
        Self { runs, ends, is_far, has_spans, horizon: 0, buckets: None }
    }

    fn with_tables_of(&self, tables: Self) -> Self {
        Self { horizon: self.horizon, buckets: self.buckets.clone(), ..tables }
    }

    pub(crate) fn with_buckets(&self, buckets: Arc<Buckets>) -> Self {
        Self { buckets: Some(buckets).filter(|buckets| buckets.last().is_some()), ..self.clone() }
    }

    pub(crate) fn buckets(&self) -> Option<&Arc<Buckets>> {
        self.buckets.as_ref()
    }

    pub(crate) fn is_in_buckets(&self) -> bool {
        self.buckets.is_some()
    }

    pub(crate) fn runs(&self, level: usize) -> &[Run] {
        let start = if level == 0 { 0 } else { self.ends[level - 1] };
        &self.runs[start..self.ends[level]]
    }

    #[inline]
    pub(super) fn newest_first(&self) -> &[Run] {
        &self.runs
    }

    #[inline]
    pub(super) fn is_far(&self) -> bool {
        self.is_far
    }

    #[inline]
    pub(crate) fn has_spans(&self) -> bool {
        self.has_spans
    }

    #[inline]
    pub(crate) fn horizon(&self) -> SeqNo {
        self.horizon
    }

    pub(crate) fn with_horizon(&self, horizon: SeqNo) -> Self {
        Self { horizon, ..self.clone() }
    }

    pub(crate) fn all_runs(&self) -> impl Iterator<Item = (usize, &Run)> {
        let level = move |at| self.ends.partition_point(|&end| end <= at);
        self.runs.iter().enumerate().map(move |(at, run)| (level(at), run))
    }

    pub(crate) fn newest_run(&self, tables: &HashSet<u64>) -> u64 {
        let has_one = |run: &&Run| run.tables.iter().any(|table| tables.contains(&table.meta.number));
        self.runs.iter().find(has_one).map_or(0, |run| run.id)
    }

    pub(crate) fn tables(&self, level: usize) -> impl Iterator<Item = &Arc<TableHandle>> {
        tables_of(self.runs(level).iter().map(move |run| (level, run))).map(|(_, table)| table)
    }

    pub(crate) fn all_tables(&self) -> impl Iterator<Item = (usize, &Arc<TableHandle>)> {
        tables_of(self.all_runs())
    }

    pub(crate) fn bytes(&self, level: usize) -> u64 {
        self.runs(level).iter().map(Run::totals).sum::<Totals>().bytes
    }

    pub(crate) fn totals(&self) -> Totals {
        self.runs.iter().map(Run::totals).sum()
    }

    /// `added` has the level, run id and table of each new table. Unchanged runs are shared.
    pub(crate) fn apply(
        &self,
        removed: &HashSet<u64>,
        mut added: Vec<(usize, u64, Arc<TableHandle>)>,
    ) -> Self {
        let place = |&(level, id, _): &(usize, u64, Arc<TableHandle>)| (level, id);
        sort_by_key(&mut added, place);
        let is_kept = |table: &&Arc<TableHandle>| !removed.contains(&table.meta.number);
        let mut levels: [Vec<Run>; LEVELS] = Default::default();
        for (level, run) in self.all_runs() {
            let start = added.partition_point(|table| place(table) < (level, run.id));
            let more = added[start..].iter().take_while(|table| place(table) == (level, run.id));
            let is_same = || removed.is_empty() || run.tables.iter().all(|table| is_kept(&table));
            if more.clone().next().is_none() && is_same() {
                levels[level].push(run.clone());
                continue;
            }
            let kept = run.tables.iter().filter(is_kept);
            let tables: Vec<_> = kept.chain(more.map(|(.., table)| table)).cloned().collect();
            if !tables.is_empty() {
                levels[level].push(Run::new(run.id, tables));
            }
        }
        for run in added.chunk_by(|one, next| place(one) == place(next)) {
            let (level, id) = place(&run[0]);
            if self.runs(level).iter().all(|old| old.id != id) {
                levels[level].push(Run::new(id, run.iter().map(|(.., table)| Arc::clone(table)).collect()));
            }
        }
        for runs in &mut levels {
            sort_by_key(runs, |run| std::cmp::Reverse(run.id));
        }
        self.with_tables_of(Self::of(levels))
    }

    pub(crate) fn replace(&self, tables: &[Arc<TableHandle>]) -> Self {
        let new: HashMap<u64, &Arc<TableHandle>> =
            tables.iter().map(|table| (table.meta.number, table)).collect();
        let mut runs = self.runs.clone();
        runs.iter_mut().for_each(|run| run.replace(&new));
        self.with_tables_of(Self::with(runs, self.ends))
    }

    pub(crate) fn set_aside(&self) -> impl Iterator<Item = u64> {
        let tables = self.all_tables().map(|(_, table)| table);
        tables.filter(|table| table.set_aside_for().is_some()).map(|table| table.meta.number)
    }

    pub(crate) fn find(&self, number: u64) -> Option<(usize, Arc<TableHandle>)> {
        let mut tables = self.all_tables();
        tables.find(|(_, table)| table.meta.number == number).map(|(level, table)| (level, Arc::clone(table)))
    }

    /// Checks the changed tables and their neighbours. O(n log t) for n changes among t tables.
    pub(crate) fn overlap_after(
        &self,
        removed: &HashSet<u64>,
        added: &[(usize, u64, Arc<TableHandle>)],
    ) -> Option<(u64, u64)> {
        let mut added: Vec<_> =
            added.iter().map(|(level, run, table)| ((*level, *run), &table.meta)).collect();
        sort_by_key(&mut added, |(place, meta)| (*place, &meta.smallest));
        let among = added.windows(2).find_map(|pair| {
            let [(place, meta), (next_place, next)] = pair else { return None };
            (place == next_place && meta.largest >= next.smallest).then_some((meta.number, next.number))
        });
        let with_kept = || {
            added.iter().find_map(|&((level, run), meta)| {
                let run = self.runs(level).iter().find(|other| other.id == run)?;
                let mut met = run.overlapping(&meta.smallest, &meta.largest).iter();
                let kept = met.find(|table| !removed.contains(&table.meta.number))?;
                Some((kept.meta.number, meta.number))
            })
        };
        among.or_else(with_kept)
    }

    pub(crate) fn overlap_in_a_run(&self) -> Option<(u64, u64)> {
        self.all_runs().find_map(|(_, run)| {
            let mut pairs = run.tables.windows(2);
            let overlap = pairs.find(|pair| pair[0].meta.largest >= pair[1].meta.smallest);
            overlap.map(|pair| (pair[0].meta.number, pair[1].meta.number))
        })
    }
}

/// A single loop: with nested `flat_map`s, the compiler copies the code of the caller nine times.
fn tables_of<'v>(
    mut runs: impl Iterator<Item = (usize, &'v Run)>,
) -> impl Iterator<Item = (usize, &'v Arc<TableHandle>)> {
    let (mut level, mut tables) = (0, slice::Iter::default());
    iter::from_fn(move || {
        loop {
            if let Some(table) = tables.next() {
                #[cfg(test)]
                VISITED.set(VISITED.get() + 1);
                return Some((level, table));
            }
            let run;
            (level, run) = runs.next()?;
            tables = run.tables.iter();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::handle;

    #[test]
    fn applying_an_edit_leaves_the_old_version_as_it_was() {
        let old = Version::default().apply(
            &HashSet::new(),
            vec![
                (0, 1, handle(1, "a", "m", 10)),
                (0, 2, handle(2, "b", "z", 10)),
                (1, 0, handle(3, "a", "c", 10)),
            ],
        );
        let new = old.apply(&HashSet::from([1, 3]), vec![(1, 0, handle(4, "a", "m", 20))]);
        let numbers =
            |version: &Version| version.all_tables().map(|(_, t)| t.meta.number).collect::<Vec<_>>();
        assert_eq!(numbers(&old), [2, 1, 3], "level 0 newest first");
        assert_eq!(numbers(&new), [2, 4]);
        assert_eq!((new.bytes(0), new.bytes(1)), (10, 20));
    }

    #[test]
    fn overlapping_tables_of_a_run_are_found() {
        let good = vec![(1, 0, handle(1, "a", "b", 1)), (1, 0, handle(2, "c", "d", 1))];
        assert_eq!(Version::default().apply(&HashSet::new(), good).overlap_in_a_run(), None);
        let bad = vec![(1, 0, handle(1, "a", "c", 1)), (1, 0, handle(2, "c", "d", 1))];
        assert_eq!(Version::default().apply(&HashSet::new(), bad).overlap_in_a_run(), Some((1, 2)));
    }

    #[test]
    fn tables_that_would_overlap_what_stays_in_their_run_are_found_before_they_are_added() {
        let version = Version::default().apply(
            &HashSet::new(),
            vec![
                (0, 1, handle(1, "a", "z", 1)),
                (1, 0, handle(2, "a", "c", 1)),
                (1, 0, handle(3, "m", "n", 1)),
                (1, 0, handle(4, "x", "z", 1)),
            ],
        );
        let after = |removed: &[u64], added: &[(usize, u64, u64, &str, &str)]| {
            let handles =
                added.iter().map(|&(level, run, number, a, b)| (level, run, handle(number, a, b, 1)));
            let (removed, added) = (removed.iter().copied().collect(), handles.collect::<Vec<_>>());
            let found = version.overlap_after(&removed, &added);
            assert_eq!(found.is_some(), version.apply(&removed, added).overlap_in_a_run().is_some());
            found
        };
        assert_eq!(after(&[2, 4], &[(1, 0, 9, "a", "z")]), Some((3, 9)));
        assert_eq!(after(&[2, 3, 4], &[(1, 0, 9, "a", "z")]), None);
        assert_eq!(after(&[2], &[(1, 0, 9, "a", "m")]), Some((3, 9)));
        assert_eq!(after(&[], &[(1, 0, 9, "d", "l"), (0, 9, 10, "a", "z")]), None);
        assert_eq!(after(&[], &[(1, 0, 9, "g", "h"), (1, 0, 10, "d", "g")]), Some((10, 9)));
        assert_eq!(after(&[], &[(2, 0, 9, "a", "c"), (3, 0, 10, "b", "d"), (0, 5, 11, "b", "c")]), None);
        assert_eq!(after(&[], &[(0, 1, 9, "b", "c")]), Some((1, 9)));
        assert_eq!(after(&[3], &[(1, 0, 3, "m", "n")]), None, "in its place again");
    }
}
