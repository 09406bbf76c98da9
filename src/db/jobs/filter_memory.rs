//! Residency of filters: the column groups in memory.
//!
//! A filter has one or more *column groups*, loaded in order; missing groups are probed page by page. The *worth* of a
//! group is its gain in absent answers per lookup, estimated from the tables' counters, divided by its bytes. When
//! no urgent job is left, the search makes one change ([`choose`]) among keyspaces with open tables or resident
//! filters:
//!
//! 1. If filters exceed their memory, drop the groups of least worth.
//! 2. Otherwise load the missing group of most worth that fits, or that can replace groups of clearly less worth.
//!    Memory for first groups of more worth in tables that are not open yet is kept free.
//!
//! A tree with [`FilterAllocation::Optimal`] may exceed its policy's total until planned merges are done, or after a
//! change of tree or policy. Then later groups of its filters are dropped, and loaded again when the total permits.
//!
//! Every change except a drop for lack of memory increases the absent answers. So if the counters are constant, the
//! changes end.
//!
//! A change replaces the handle of an unreserved table (`TableHandle::with_column_groups`); running lookups keep the
//! old filter. Similarly, the least used tables are closed if open tables exceed their part of the budget
//! (`version/open_tables`). Their filters are kept, so that lookups of absent keys do not reopen them.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::batch::KeyspaceId;
use crate::compaction::claimed_ranges::Busy;
use crate::compaction::filters::bits_in_total;
use crate::db::engine::Engine;
use crate::db::queues::reservations::{Job, Reservation, Reserved, Residency, ResidencyChange};
use crate::db::state::keyspace::tree::Tree;
use crate::filter::{FilterAllocation, FilterPolicy, Header};
use crate::number_map::NumberMap;
use crate::sorting::sort_by;
use crate::table::FilterPages;
use crate::version::{FilterState, TableHandle, Version};

const EDGE: f64 = 1.25;

const GROUPS_MAX: usize = 3;

#[derive(Debug, Clone, Copy, Default)]
struct ColumnGroup {
    bytes: u64,
    answers: f64,
    /// `answers` / `bytes`, at most the worth of earlier groups.
    worth: f64,
}

#[derive(Debug, Clone, Default)]
struct Candidate {
    column_groups: [ColumnGroup; GROUPS_MAX],
    count: usize,
    loaded: usize,
    /// The table is not open: a lookup that opens it loads the group.
    is_unread: bool,
}

impl Candidate {
    /// `asked` is the share of all lookups that reach the table for an absent key.
    fn new(header: &Header, loaded: usize, asked: f64) -> Self {
        let mut candidate =
            Self { count: header.column_group_count().min(GROUPS_MAX), loaded, ..Self::default() };
        let mut worth = f64::INFINITY;
        for (index, group) in candidate.column_groups.iter_mut().enumerate().take(candidate.count) {
            group.bytes = header.column_groups_len(index + 1) - header.column_groups_len(index);
            group.answers =
                asked * (header.column_groups_rate(index) - header.column_groups_rate(index + 1)).max(0.0);
            worth = (group.answers / group.bytes.max(1) as f64).min(worth);
            group.worth = worth;
        }
        candidate
    }

    /// A first group has about half of the filter.
    fn unread(filter_bytes: u64, asked: f64) -> Self {
        let bytes = filter_bytes / 2;
        let group = ColumnGroup { bytes, answers: asked, worth: asked / bytes.max(1) as f64 };
        Self { column_groups: [group; GROUPS_MAX], count: 1, loaded: 0, is_unread: true }
    }

    fn bytes(&self, column_groups: usize) -> u64 {
        self.column_groups[..column_groups].iter().map(|group| group.bytes).sum()
    }

    fn missed(&self) -> Option<&ColumnGroup> {
        self.column_groups[..self.count].get(self.loaded)
    }
}

type Step = (usize, usize);

/// Returns drops, then loads; none if no change is better. `room` is the memory left by loaded groups; it may be
/// negative.
fn choose(candidates: &[Candidate], room: i64) -> Vec<Step> {
    let loaded = Loaded::new(candidates);
    if room < 0 {
        let bytes = room.unsigned_abs().min(loaded.bytes.last().copied().unwrap_or_default());
        return loaded.without(bytes, f64::INFINITY).map_or_else(Vec::new, |(steps, _)| steps);
    }
    let mut room = room.unsigned_abs();
    let missed = |index: usize| candidates[index].missed().map(|group| (index, group));
    let mut missed: Vec<_> = (0..candidates.len()).filter_map(missed).collect();
    sort_by(&mut missed, |(_, a), (_, b)| b.worth.total_cmp(&a.worth));
    for (index, group) in missed {
        if candidates[index].is_unread {
            room = room.saturating_sub(group.bytes);
            continue;
        }
        let more = group.bytes.saturating_sub(room);
        let freed = if more == 0 { Some((Vec::new(), 0.0)) } else { loaded.without(more, group.worth) };
        if let Some((mut steps, lost)) = freed
            && (more == 0 || lost * EDGE < group.answers)
        {
            steps.push((index, candidates[index].loaded + 1));
            return steps;
        }
    }
    Vec::new()
}

/// Bytes of a policy's total that loaded groups leave; may be negative.
fn spare_of_total(policy: &FilterPolicy, version: &Version) -> Option<i64> {
    if policy.allocation != FilterAllocation::Optimal {
        return None;
    }
    let (mut bits, mut overhead, mut loaded_bytes) = (0.0, 0, 0);
    for (level, table) in version.all_tables() {
        let level = if version.is_in_buckets() { level.max(1) } else { level };
        let share = bits_in_total(policy, level, table.meta.keys)?;
        let Some(filter) = table.meta.filters.first() else {
            // With `expect_hits` this table has no share; otherwise other tables have used its share.
            bits += if policy.expect_hits { 0.0 } else { share };
            continue;
        };
        bits += share;
        // Header, checksums and rounding are not in the total.
        overhead = (filter.len / 64 + 1024).saturating_add(overhead);
        let loaded = |state: &FilterState| {
            state.header().map_or(0, |header| header.column_groups_len(state.column_groups()))
        };
        let held = table.filter.state().map_or(filter.len, loaded);
        loaded_bytes = held.saturating_add(loaded_bytes);
    }
    Some(((bits / 8.0) as i64).saturating_add_unsigned(overhead).saturating_sub_unsigned(loaded_bytes))
}

pub(super) fn may_change_groups(tree: &Tree) -> bool {
    let (options, view) = (tree.options.load(), tree.view());
    let mut tables = view.version.all_tables().filter_map(|(_, table)| table.filter.state());
    let spare = spare_of_total(&options.filter, &view.version);
    spare.is_some_and(|spare| spare < 0 || tables.any(FilterState::lacks_groups))
}

/// Keeps a tree within its total, by whole groups. Drops the loaded later group of least worth if the others still use
/// up the total, and loads no group beyond the total. This prevents alternation.
fn keep_to_total(candidates: &mut [Candidate], spare: i64) -> Option<Step> {
    for candidate in candidates.iter_mut().filter(|candidate| candidate.loaded > 0) {
        if candidate.missed().is_some_and(|group| group.bytes as i64 > spare) {
            candidate.count = candidate.loaded;
        }
    }
    let last = |candidate: &Candidate| candidate.column_groups[candidate.loaded - 1];
    let goes = |candidate: &Candidate| candidate.loaded > 1 && last(candidate).bytes as i64 <= -spare;
    let going = candidates.iter().enumerate().filter(|(_, candidate)| goes(candidate));
    let least = going.min_by(|(_, a), (_, b)| last(a).worth.total_cmp(&last(b).worth));
    least.map(|(index, candidate)| (index, candidate.loaded - 1))
}

#[derive(Default)]
struct Survey {
    candidates: Vec<Candidate>,
    tables: Vec<(Arc<Tree>, u64)>,
    loaded_bytes: u64,
    /// For opening more tables with the heads of their filters.
    unread_bytes: u64,
    unasked: Option<(usize, u64)>,
    beyond: Option<Step>,
    is_other_short: bool,
}

impl Survey {
    fn new(trees: &[Arc<Tree>], busy: &NumberMap<KeyspaceId, Busy>, lookups: u64) -> Self {
        let mut survey = Self::default();
        let versions: Vec<_> = trees.iter().map(|tree| Arc::clone(&tree.view().version)).collect();
        let tables = || versions.iter().flat_map(|version| version.all_tables());
        let keys = tables().map(|(_, table)| table.meta.keys).fold(0, u64::saturating_add);
        for (tree, version) in trees.iter().zip(&versions) {
            let first = survey.candidates.len();
            for (_, table) in version.all_tables() {
                let is_busy = busy.get(&tree.id).is_some_and(|busy| busy.has(table));
                let share = table.meta.keys as f64 / keys.max(1) as f64;
                survey.add(tree, table, is_busy, || table.absent_rate(share, lookups));
            }
            if let Some(spare) = spare_of_total(&tree.options.load().filter, version) {
                let step = keep_to_total(&mut survey.candidates[first..], spare);
                survey.beyond = survey.beyond.or(step.map(|(index, groups)| (first + index, groups)));
            }
        }
        survey
    }

    fn add(&mut self, tree: &Arc<Tree>, table: &TableHandle, is_busy: bool, asked: impl FnOnce() -> f64) {
        let Some(filter) = table.filter.state() else {
            let about = table.filter.bytes_about();
            self.unread_bytes += about.head;
            self.candidates.push(Candidate::unread(about.whole, asked()));
            self.tables.push((Arc::clone(tree), table.meta.number));
            return;
        };
        let Some(header) = filter.header() else { return };
        let loaded = filter.column_groups();
        let head = FilterPages::memory_bytes_of(header);
        self.loaded_bytes += header.column_groups_len(loaded) + head;
        if is_busy || table.filter.is_defective() {
            self.is_other_short |= filter.lacks_groups();
            return;
        }
        if matches!(filter, FilterState::Unloaded(_)) {
            self.unasked.get_or_insert((self.candidates.len(), head));
        }
        self.candidates.push(Candidate::new(header, loaded, asked()));
        self.tables.push((Arc::clone(tree), table.meta.number));
    }

    fn is_short(&self) -> bool {
        let is_short = |candidate: &Candidate| !candidate.is_unread && candidate.missed().is_some();
        self.is_other_short || self.candidates.iter().any(is_short)
    }
}

/// Loaded groups by increasing worth; within a filter, the last group is first.
struct Loaded<'a> {
    candidates: &'a [Candidate],
    column_groups: Vec<(usize, usize)>,
    bytes: Vec<u64>,
}

impl<'a> Loaded<'a> {
    fn new(candidates: &'a [Candidate]) -> Self {
        let groups_of = |index: usize| (0..candidates[index].loaded).map(move |group| (index, group));
        let mut column_groups: Vec<_> = (0..candidates.len()).flat_map(groups_of).collect();
        let worth = |&(index, group): &(usize, usize)| candidates[index].column_groups[group].worth;
        sort_by(&mut column_groups, |a, b| {
            worth(a).total_cmp(&worth(b)).then_with(|| Reverse(a.1).cmp(&Reverse(b.1)))
        });
        let sum = |sum: &mut u64, &(index, group): &(usize, usize)| {
            *sum += candidates[index].column_groups[group].bytes;
            Some(*sum)
        };
        let bytes = column_groups.iter().scan(0, sum).collect();
        Self { candidates, column_groups, bytes }
    }

    fn group(&self, (index, group): (usize, usize)) -> ColumnGroup {
        self.candidates[index].column_groups[group]
    }

    /// Finds the fewest groups that free `bytes`, each of clearly less than `worth`. Returns the remaining groups per
    /// filter, and the lost answers.
    fn without(&self, bytes: u64, worth: f64) -> Option<(Vec<Step>, f64)> {
        let last = self.bytes.partition_point(|&sum| sum < bytes);
        let enough = self.column_groups.get(..=last)?;
        if self.group(enough[last]).worth * EDGE >= worth {
            return None;
        }
        let (mut spare, mut lost) = (self.bytes[last] - bytes, 0.0);
        let mut kept = NumberMap::new();
        // By decreasing worth: an unneeded group stays, unless its filter loses an earlier one.
        for &(index, group) in enough.iter().rev() {
            let ColumnGroup { bytes, answers, .. } = self.group((index, group));
            if bytes <= spare && !kept.contains_key(&index) {
                spare -= bytes;
            } else {
                kept.get_or_insert_with(index, || group);
                lost += answers;
            }
        }
        Some((kept.into_iter().collect(), lost))
    }
}

impl Engine {
    /// Returns `None` if no change is better. The search holds no lock; a concurrent change or reservation repeats
    /// it.
    pub(super) fn reserve_residency(&self) -> Option<Reservation> {
        let reservations = &self.background.reservations;
        if self.lifecycle.is_suspended() || reservations.is_stopping() {
            return None;
        }
        let look = |reserved: &mut Reserved<'_>| {
            (!reserved.is_residency()).then(|| (reserved.residencies(), reserved.all_busy()))
        };
        let (before, busy) = reservations.look(look)?;
        if !self.may_change_residency() {
            return None;
        }
        let changes = self.residency_changes(&busy);
        if changes.is_empty() {
            return None;
        }
        let reservation = reservations.reserve_next(|reserved| {
            let is_free = |change: &ResidencyChange| !reserved.busy(&change.tree).has_number(change.number);
            let is_valid = reserved.residencies() == before && changes.iter().all(is_free);
            is_valid.then_some(Job::Residency(changes))
        });
        if reservation.is_none() {
            self.background.set_residency_due();
        }
        reservation
    }

    /// Whether the expensive search may find a change: memory is short, or a tree with a total has changed.
    fn may_change_residency(&self) -> bool {
        let (memory, background) = (&self.context.memory, &self.background);
        let [was_refused, is_due] = [memory.take_was_short(), background.take_residency_due()];
        was_refused || is_due || memory.is_short() || memory.is_over()
    }

    /// Closes the least used unreserved tables if a table could not be opened for lack of room.
    pub(super) fn closing_job(&self, reserved: &Reserved<'_>) -> Option<Job> {
        if reserved.is_residency() || !self.keyspaces.open_tables.take_needs_room() {
            return None;
        }
        let excess = self.context.memory.open_tables_excess();
        let mut known = HashMap::new();
        let mut may_close = |table: &TableHandle| {
            let find = || {
                let tree = self.keyspaces.get(table.keyspace())?;
                let busy = reserved.busy(&tree);
                Some((tree, busy))
            };
            let free = known.entry(table.keyspace()).or_insert_with(find).as_ref();
            free.is_some_and(|(_, busy)| !busy.has(table))
        };
        let closing = self.keyspaces.open_tables.used_least(excess, &mut may_close);
        let change = |table: Arc<TableHandle>| {
            let (tree, _) = known.get(&table.keyspace())?.as_ref()?;
            let (tree, number) = (Arc::clone(tree), table.meta.number);
            Some(ResidencyChange { tree, number, residency: Residency::Closed })
        };
        let changes: Vec<_> = closing.into_iter().filter_map(change).collect();
        (!changes.is_empty()).then_some(Job::Residency(changes))
    }

    pub(super) fn change_residency(&self, changes: &[ResidencyChange]) -> bool {
        let closed = self.close_tables(changes);
        let is_open = |_: &&ResidencyChange| !self.background.is_stopping();
        let changed = changes.iter().take_while(is_open).filter(|change| match change.residency {
            Residency::ColumnGroups(groups) => self.change_column_groups(&change.tree, change.number, groups),
            Residency::Closed => false,
        });
        let made = changed.count() + closed;
        self.counters.residency_changes.fetch_add(made as u64, Ordering::Relaxed);
        made > 0
    }

    fn close_tables(&self, changes: &[ResidencyChange]) -> usize {
        let mut numbers: NumberMap<KeyspaceId, (&Arc<Tree>, HashSet<u64>)> = NumberMap::new();
        for change in changes.iter().filter(|change| change.residency == Residency::Closed) {
            let new = || (&change.tree, HashSet::new());
            numbers.get_or_insert_with(change.tree.id, new).1.insert(change.number);
        }
        let mut closed = 0;
        for (_, (tree, numbers)) in numbers {
            let view = tree.view();
            let tables = view.version.all_tables().filter(|(_, table)| numbers.contains(&table.meta.number));
            let old: Vec<_> = tables.map(|(level, table)| (level, Arc::clone(table))).collect();
            let new: Vec<_> = old.iter().map(|(_, table)| table.closed()).collect();
            tree.replace_handles(&old, &new);
            closed += old.len();
            tracing::debug!(keyspace = tree.name, tables = old.len(), "closed the tables used least");
        }
        closed
    }

    fn residency_changes(&self, busy: &NumberMap<KeyspaceId, Busy>) -> Vec<ResidencyChange> {
        let trees = self.keyspaces.with_open_tables();
        let lookups = self.background.count_lookups(&trees);
        let survey = Survey::new(&trees, busy, lookups);
        self.context.memory.set_short(survey.is_short());
        let steps = self.steps(&survey);
        let change = |(index, column_groups): Step| {
            let (tree, number) = &survey.tables[index];
            let residency = Residency::ColumnGroups(column_groups);
            ResidencyChange { tree: Arc::clone(tree), number: *number, residency }
        };
        steps.into_iter().map(change).collect()
    }

    fn steps(&self, survey: &Survey) -> Vec<Step> {
        let memory = &self.context.memory;
        let filters_max = memory.filters_max();
        let kept = survey.unread_bytes.min(filters_max / 8);
        let room = filters_max as i64 - (survey.loaded_bytes + kept) as i64;
        let mut steps = survey.beyond.map_or_else(|| choose(&survey.candidates, room), |step| vec![step]);
        if let (Some((index, bytes)), true) = (survey.unasked, steps.is_empty())
            && memory.has_room_instead(bytes, 0)
        {
            steps.push((index, 0));
        }
        if let [(index, column_groups)] = steps[..] {
            // The drops are done before the load, which waits for memory here.
            let candidate = &survey.candidates[index];
            let (wanted, loaded) = (candidate.bytes(column_groups), candidate.bytes(candidate.loaded));
            if column_groups > candidate.loaded && !memory.has_room_instead(wanted, loaded) {
                return Vec::new();
            }
        }
        steps
    }

    fn change_column_groups(&self, tree: &Tree, number: u64, column_groups: usize) -> bool {
        let Some((level, table)) = tree.view().version.find(number) else { return false };
        let before = table.filter.state().map_or(0, FilterState::column_groups);
        // If there is no memory for a copy, the remaining groups are read again later.
        let without = || (column_groups < before).then(|| table.with_column_groups(0)).flatten();
        let Some(new) = table.with_column_groups(column_groups).or_else(without) else { return false };
        tree.replace_handles(&[(level, table)], &[new]);
        tracing::debug!(
            keyspace = tree.name,
            table = number,
            before,
            column_groups,
            "changed the resident part of a filter"
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::batch::WriteBatch;
    use crate::db::handles::keyspace::Keyspace;
    use crate::db::handles::store::Db;
    use crate::db::queues::workers::Jobs;
    use crate::filter::FilterKind;
    use crate::fs::MemFs;
    use crate::memory::LeaseKind;
    use crate::options::{KeyspaceOptions, Options};

    fn candidate(column_groups: &[(u64, f64)], loaded: usize) -> Candidate {
        let mut candidate = Candidate { count: column_groups.len(), loaded, ..Candidate::default() };
        let mut worth = f64::INFINITY;
        for (group, &(bytes, answers)) in candidate.column_groups.iter_mut().zip(column_groups) {
            worth = (answers / bytes.max(1) as f64).min(worth);
            *group = ColumnGroup { bytes, answers, worth };
        }
        candidate
    }

    fn bytes(candidates: &[Candidate]) -> u64 {
        let of = |candidate: &Candidate| -> u64 {
            candidate.column_groups[..candidate.loaded].iter().map(|group| group.bytes).sum()
        };
        candidates.iter().map(of).sum()
    }

    fn answers(candidates: &[Candidate]) -> f64 {
        let of = |candidate: &Candidate| -> f64 {
            candidate.column_groups[..candidate.loaded].iter().map(|group| group.answers).sum()
        };
        candidates.iter().map(of).sum()
    }

    #[test]
    fn the_group_with_most_answers_for_its_size_is_loaded_first_if_it_fits() {
        let candidates = [(100, 1.0), (10, 0.5), (1000, 90.0)].map(|group| candidate(&[group], 0));
        assert_eq!(choose(&candidates, 1000), [(2, 1)]);
        assert_eq!(choose(&candidates, 999), [(1, 1)]);
        assert_eq!(choose(&candidates, 9), []);
    }

    #[test]
    fn the_second_group_of_a_filter_probed_less_is_dropped_for_a_first_group() {
        let halves = [(50, 97.0), (50, 3.0)];
        let candidates =
            [candidate(&halves, 2), candidate(&[(50, 48.0), (50, 1.5)], 2), candidate(&halves, 0)];
        assert_eq!(choose(&candidates, 49), [(1, 1), (2, 1)], "it goes before anything is read");
        assert_eq!(choose(&candidates, 50), [(2, 1)]);
        // A group of only slightly less worth is kept.
        let candidates = [candidate(&[(50, 90.0)], 1), candidate(&[(50, 100.0)], 0)];
        assert_eq!(choose(&candidates, 0), []);
        let candidates = [candidate(&[(50, 70.0)], 1), candidate(&[(50, 100.0)], 0)];
        assert_eq!(choose(&candidates, 0), [(0, 0), (1, 1)]);
        // Many answers are not dropped for few.
        let candidates = [candidate(&[(500, 70.0)], 1), candidate(&[(5, 10.0)], 0)];
        assert_eq!(choose(&candidates, 0), []);
    }

    #[test]
    fn no_more_groups_are_dropped_than_needed() {
        let candidates = [
            candidate(&[(10, 0.1)], 1),
            candidate(&[(50, 97.0), (100, 2.0)], 2),
            candidate(&[(100, 200.0)], 0),
        ];
        assert_eq!(choose(&candidates, 0), [(1, 1), (2, 1)]);
        assert_eq!(choose(&candidates, 95), [(0, 0), (2, 1)]);
    }

    #[test]
    fn with_too_little_room_the_groups_of_least_worth_are_dropped() {
        let halves = [(50, 97.0), (50, 3.0)];
        let candidates = [candidate(&halves, 2), candidate(&[(50, 48.0), (50, 1.5)], 2)];
        assert_eq!(choose(&candidates, -1), [(1, 1)]);
        assert_eq!(choose(&candidates, -100), [(0, 1), (1, 1)]);
        assert_eq!(choose(&candidates, -101), [(0, 1), (1, 0)]);
        assert_eq!(choose(&candidates, -1000), [(0, 0), (1, 0)]);
    }

    #[test]
    fn changes_never_make_it_worse_never_pass_the_room_and_come_to_an_end() {
        fn holds(sizes: Vec<(u8, u8, u8, u8)>, room: u16) -> bool {
            let mut candidates: Vec<_> = sizes
                .iter()
                .map(|&(first, second, asked, loaded)| {
                    let (asked, count) = (f64::from(asked), if second % 3 == 0 { 1 } else { 2 });
                    // Includes filters with a better second group.
                    let column_groups =
                        [(u64::from(first) + 1, asked * 0.6), (u64::from(second) + 1, asked * 0.4)];
                    candidate(&column_groups[..count], usize::from(loaded) % (count + 1))
                })
                .collect();
            let most = i64::from(room);
            for _ in 0..1000 {
                let left = most - bytes(&candidates) as i64;
                let before = (answers(&candidates), left < 0);
                let steps = choose(&candidates, left);
                if steps.is_empty() {
                    let missed = candidates.iter().filter_map(Candidate::missed);
                    return left >= 0 && missed.map(|group| group.bytes as i64).all(|bytes| bytes > left);
                }
                for (index, loaded) in steps {
                    candidates[index].loaded = loaded;
                }
                let now = answers(&candidates);
                let is_better = before.1
                    || now > before.0
                    || now == before.0 && most - (bytes(&candidates) as i64) < left;
                if bytes(&candidates) as i64 > most || !is_better {
                    return false;
                }
            }
            false
        }
        quickcheck::QuickCheck::new().tests(2000).quickcheck(holds as fn(Vec<(u8, u8, u8, u8)>, u16) -> bool);
    }

    #[test]
    fn filters_without_room_cost_reads_until_there_is_room_and_are_loaded_then() {
        let fs = MemFs::new();
        let filter = FilterPolicy::new(FilterKind::Bloom);
        let options = Options::new().fs(Arc::new(fs)).memory_budget(1 << 20).background_threads(0);
        let options = options.default_keyspace(KeyspaceOptions::new().filter(filter));
        let dir = Path::new("/db");
        let db = options.clone().open(dir).unwrap();
        (0..3000u32).for_each(|key| db.put(key.to_be_bytes(), [1]).unwrap());
        db.compact().unwrap();
        db.close().unwrap();

        let db = options.open(dir).unwrap();
        // Takes all memory.
        let memory = &db.engine().context.memory;
        let lease = memory.try_lease(LeaseKind::Filters, memory.room()).unwrap();
        db.open_tables().unwrap();
        while db.step().unwrap() {}
        let absent = |key: u32| [&key.to_be_bytes()[..], b"x"].concat();
        assert!((0..2999).all(|key| db.get(absent(key)).unwrap().is_none() && db.may_contain(absent(key))));
        let total = db.stats().keyspaces[0].total();
        assert!(total.unloaded_filters > 0 && total.unloaded_filters == total.tables);
        assert_eq!((total.filter.negatives, total.filter.unfiltered_misses), (0, 2999));
        drop(lease);
        assert!(!db.engine().step(Jobs::Urgent).unwrap(), "writers do not wait for it");
        while db.step().unwrap() {}
        let before = db.stats().keyspaces[0].total();
        assert_eq!(before.unloaded_filters, 0);
        assert!((0..2999).all(|key| db.get(absent(key)).unwrap().is_none()));
        let after = db.stats().keyspaces[0].total();
        assert!(after.filter.negatives > 2900 && after.filter.unfiltered_misses == 2999);
        assert!((0..3000u32).all(|key| db.contains(key.to_be_bytes()).unwrap()));
    }

    /// Keys for a ribbon filter of two groups.
    const KEYS: u32 = 40_000;

    fn two_keyspaces(fs: &MemFs, budget: usize) -> (Db, [Keyspace; 2]) {
        let filter = FilterPolicy::new(FilterKind::Ribbon);
        let options = Options::new().fs(Arc::new(fs.clone())).memory_budget(budget).background_threads(0);
        let db = options.audit_absent(7).open("/db").unwrap();
        let keyspaces =
            ["a", "b"].map(|name| db.keyspace(name, KeyspaceOptions::new().filter(filter)).unwrap());
        (db, keyspaces)
    }

    fn fill(keyspace: &Keyspace) {
        (0..KEYS).for_each(|key| keyspace.put(key.to_be_bytes(), []).unwrap());
        keyspace.compact().unwrap();
    }

    fn ask_absent(keyspace: &Keyspace, count: u32) {
        assert!((0..count).all(|key| !keyspace.contains([&key.to_be_bytes()[..], b"x"].concat()).unwrap()));
    }

    fn settle(db: &Db) -> usize {
        (0..100).take_while(|_| db.step().unwrap()).count()
    }

    /// The number of loaded groups, their memory, and the false-positive rate of the filter.
    fn loaded(db: &Db, name: &str) -> (u64, u64, f64) {
        let total = db.stats().keyspace(name).unwrap().total();
        assert_eq!(total.filter_column_groups, 2 * total.tables);
        (total.loaded_filter_column_groups, total.filter_memory_bytes, total.predicted_rate.unwrap_or(1.0))
    }

    #[test]
    fn closing_ends_a_change_of_filters_before_the_next_table() {
        let (db, [keyspace, _]) = two_keyspaces(&MemFs::new(), 8 << 20);
        fill(&keyspace);
        let before = loaded(&db, "a").0;
        let tree = &keyspace.tree;
        let unload = |number| ResidencyChange {
            tree: Arc::clone(tree),
            number,
            residency: Residency::ColumnGroups(0),
        };
        let version = Arc::clone(&tree.view().version);
        let changes: Vec<_> = version.all_tables().map(|(_, table)| unload(table.meta.number)).collect();
        assert!(before > 0 && !changes.is_empty());
        db.engine().background.stop();
        assert!(!db.engine().change_residency(&changes));
        assert_eq!(loaded(&db, "a").0, before);
    }

    #[test]
    fn memory_goes_to_the_filters_that_are_probed_one_column_group_at_a_time() {
        let fs = MemFs::new();
        let (db, keyspaces) = two_keyspaces(&fs, 8 << 20);
        keyspaces.iter().for_each(fill);
        let [a, b] = &keyspaces;
        let (column_groups, whole, rate) = loaded(&db, "a");
        // The store's random seed affects the length of a filter.
        let whole_b = loaded(&db, "b").1;
        assert!(column_groups == 2 && rate < 0.0012, "{rate}");
        // Takes all memory but a half of a filter.
        let memory = &db.engine().context.memory;
        let lease = memory.lease(LeaseKind::Tables, (memory.room() - whole * 7 / 10) as usize);
        ask_absent(a, 5000);
        assert_eq!(settle(&db), 0, "both fit");
        let more = memory.lease(LeaseKind::Tables, whole as usize);
        assert_eq!(settle(&db), 1);
        let (column_groups, half, rate) = loaded(&db, "b");
        assert_eq!(
            (column_groups, rate),
            (1, 2f64.powi(-5)),
            "b, which nobody asks, does with its first group"
        );
        assert!(half < whole * 6 / 10 && half > whole / 2);
        assert_eq!(loaded(&db, "a").0, 2);
        let reads = db.stats().unusable_filters;
        // Now b has lookups, and a has none.
        ask_absent(b, 40_000);
        assert_eq!(settle(&db), 1);
        assert_eq!((loaded(&db, "a").0, loaded(&db, "b").0), (1, 2));
        assert_eq!(loaded(&db, "b").1, whole_b, "it is all there, only what was missing was read");
        let all = memory.lease(LeaseKind::Tables, (2 * whole) as usize);
        settle(&db);
        assert_eq!((loaded(&db, "a").0, loaded(&db, "b").0), (0, 0));
        ask_absent(a, 10);
        drop((lease, more, all));
        assert!(settle(&db) >= 4);
        assert_eq!((loaded(&db, "a").1, loaded(&db, "b").1), (whole, whole_b));
        assert_eq!(db.stats().memory.filters, whole + whole_b);
        assert_eq!(db.stats().unusable_filters, reads);
        for keyspace in [a, b] {
            assert!((0..KEYS).all(|key| keyspace.contains(key.to_be_bytes()).unwrap()));
            ask_absent(keyspace, 1000);
        }
    }

    #[test]
    fn groups_that_a_reader_still_uses_are_waited_for_and_no_more_are_dropped() {
        let fs = MemFs::new();
        let (db, [a, b]) = two_keyspaces(&fs, 8 << 20);
        [&a, &b].into_iter().for_each(fill);
        let whole = loaded(&db, "a").1;
        let memory = &db.engine().context.memory;
        let lease = memory.lease(LeaseKind::Tables, (memory.room() + whole / 10) as usize);
        ask_absent(&a, 5000);
        assert_eq!(settle(&db), 1);
        assert_eq!((loaded(&db, "a").0, loaded(&db, "b").0), (2, 1));
        // Readers of the existing views, and memory for three halves of filters, while lookups of b increase.
        let (over_a, over_b) = (a.iter(), b.iter());
        ask_absent(&b, 40_000);
        assert_eq!(settle(&db), 1);
        assert_eq!((loaded(&db, "a").0, loaded(&db, "b").0), (1, 1), "what a's reader uses is not free yet");
        assert!(db.stats().memory.filters > loaded(&db, "a").1 + loaded(&db, "b").1);
        assert_eq!(settle(&db), 0);
        drop(over_a);
        assert_eq!(settle(&db), 1);
        assert_eq!((loaded(&db, "a").0, loaded(&db, "b").0), (1, 2));
        assert_eq!(over_b.map(Result::unwrap).count(), KEYS as usize);
        drop(lease);
    }

    #[test]
    fn with_little_memory_a_filter_opens_with_its_first_column_group() {
        let fs = MemFs::new();
        let (db, [a, b]) = two_keyspaces(&fs, 8 << 20);
        fill(&a);
        let whole = loaded(&db, "a").1;
        drop((a, b));
        db.close().unwrap();
        let (db, [a, _b]) = two_keyspaces(&fs, 8 << 20);
        let memory = &db.engine().context.memory;
        let lease = memory.lease(LeaseKind::Tables, (memory.room() - whole * 7 / 10) as usize);
        ask_absent(&a, 20_000);
        assert_eq!(loaded(&db, "a").0, 1);
        let counts = db.stats().keyspace("a").unwrap().total();
        let (found, expected) = (counts.filter.false_positives as f64, counts.expected_false_positives);
        let in_memory = counts.predicted_rate.unwrap() * 20_000.0;
        assert!(
            in_memory > 600.0 && found < 60.0,
            "{found} of {in_memory}: the second one is probed by pages"
        );
        assert!((0.0..in_memory / 4.0).contains(&(expected - found).abs()), "{found} {expected}");
        drop(lease);
        assert_eq!(settle(&db), 1);
        ask_absent(&a, 20_000);
        let counts = db.stats().keyspace("a").unwrap().total();
        assert!(counts.filter.false_positives as f64 - found < 60.0, "both groups are in memory");
        assert_eq!(counts.filter.negatives + counts.filter.false_positives, 40_000, "nothing is lost");
    }

    /// Filter pages and data blocks read by 10,000 lookups of absent keys below `keys`.
    fn reads(db: &Db, keys: u32) -> (u64, u64) {
        let count = || {
            let stats = db.stats();
            let pages = stats.filter_page_reads + stats.filter_page_cache_hits;
            (pages, stats.data_block_reads + stats.data_block_cache_hits)
        };
        let (pages, blocks) = count();
        let absent = |n: u32| [&(n * (keys / 10_000)).to_be_bytes()[..], b"x"].concat();
        assert!((0..10_000).all(|n| !db.contains(absent(n)).unwrap()));
        (count().0 - pages, count().1 - blocks)
    }

    #[test]
    fn the_first_lookups_after_opening_with_little_memory_read_as_much_as_later_ones() {
        // The last table is also large enough for two groups.
        const KEYS: u32 = 253_000;
        let fs = MemFs::new();
        let open = || {
            let filter = FilterPolicy::new(FilterKind::Ribbon).bits_per_key(16.0);
            let keyspace = KeyspaceOptions::new().filter(filter).table_bytes(100_000);
            let options =
                Options::new().fs(Arc::new(fs.clone())).memory_budget(32 << 20).background_threads(0);
            options.default_keyspace(keyspace).open("/db").unwrap()
        };
        let db = open();
        for first in (0..KEYS).step_by(1000) {
            let mut batch = WriteBatch::new();
            (first..first + 1000).for_each(|key| _ = batch.put(key.to_be_bytes(), []));
            db.write(batch).unwrap();
        }
        db.compact().unwrap();
        // A run on top, which every lookup reaches.
        (0..KEYS).step_by(100).for_each(|key| db.put(key.to_be_bytes(), [1]).unwrap());
        db.flush().unwrap();
        let total = db.stats().keyspaces[0].total();
        assert!(total.filter_column_groups > 24, "{total:?}");
        db.close().unwrap();
        for (quarters, is_lazy) in [(1, true), (1, false), (3, true), (3, false)] {
            let db = open();
            let memory = &db.engine().context.memory;
            let opened = 3000 * total.tables;
            let _taken = memory.lease(
                LeaseKind::Tables,
                (memory.room() - opened - total.filter_bytes * quarters / 4) as usize,
            );
            if !is_lazy {
                db.open_tables().unwrap();
            }
            let (pages, blocks) = reads(&db, KEYS);
            for _ in 0..3 {
                settle(&db);
                reads(&db, KEYS);
            }
            let later = reads(&db, KEYS);
            // Which of the second groups are in memory differs.
            assert!(pages <= later.0 * 11 / 10 + 20 && pages <= 11_000, "{pages} pages, later {}", later.0);
            assert!(blocks <= later.1 * 11 / 10, "{blocks} blocks, later {}", later.1);
            assert!(if quarters == 1 { later.0 > 3000 } else { later.0 < 1000 }, "{later:?}");
        }
    }

    #[test]
    fn a_reader_loads_the_whole_filters_of_the_keyspace_that_it_uses() {
        const KEYS: u32 = 70_000;
        let fs = MemFs::new();
        let options =
            || Options::new().fs(Arc::new(fs.clone())).memory_budget(32 << 20).background_threads(0);
        let db = options().open("/db").unwrap();
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let filter = FilterPolicy::new(FilterKind::Ribbon).bits_per_key(40.0);
            let keyspace =
                db.keyspace(name, KeyspaceOptions::new().filter(filter).table_bytes(4 << 20)).unwrap();
            for first in (0..KEYS).step_by(1000) {
                let mut batch = WriteBatch::new();
                let put = |key: u32| _ = batch.put_in(&keyspace, (2 * key).to_be_bytes(), []);
                (first..first + 1000).for_each(put);
                db.write(batch).unwrap();
            }
            keyspace.compact().unwrap();
        }
        let stored: u64 = db.stats().keyspaces.iter().map(|keyspace| keyspace.total().filter_bytes).sum();
        assert!(stored > 1 << 20, "the filters do not fit together");
        db.close().unwrap();
        let db = options().memory_budget(1 << 20).read_only().open("/db").unwrap();
        let keyspace = db.existing_keyspace("d").unwrap();
        assert!((0..KEYS).all(|key| !keyspace.contains((2 * key + 1).to_be_bytes()).unwrap()));
        let total = db.stats().keyspace("d").unwrap().total();
        assert!(total.filter_column_groups > 1, "{total:?}");
        assert_eq!(total.loaded_filter_column_groups, total.filter_column_groups, "{total:?}");
    }

    #[test]
    fn a_tree_over_its_filter_total_drops_column_groups_and_loads_them_again() {
        let fs = MemFs::new();
        let (db, [a, _b]) = two_keyspaces(&fs, 64 << 20);
        let optimal = |bits| {
            let policy = FilterPolicy::new(FilterKind::Ribbon).bits_per_key(bits);
            let options = KeyspaceOptions::new().memtable_bytes(16 << 20);
            options.filter(policy.allocation(FilterAllocation::Optimal))
        };
        a.set_options(optimal(10.0)).unwrap();
        fill(&a);
        assert_eq!((settle(&db), loaded(&db, "a").0), (0, 2));
        (0..KEYS).for_each(|key| a.put((key * 2).to_be_bytes(), [1]).unwrap());
        a.flush().unwrap();
        let total = |db: &Db| db.stats().keyspace("a").unwrap().total();
        assert_eq!(
            (settle(&db), total(&db).filter_column_groups, total(&db).loaded_filter_column_groups),
            (0, 4, 4)
        );
        // A total of three quarters is exceeded by one group, a half by two.
        a.set_options(optimal(7.2)).unwrap();
        assert_eq!((settle(&db), total(&db).loaded_filter_column_groups), (1, 3));
        let lease = total(&db).filter_memory_bytes as f64 * 8.0 / total(&db).filter_keys as f64;
        assert!(lease > 7.2 && lease < 8.3, "{lease} bits a key");
        a.set_options(optimal(4.0)).unwrap();
        assert_eq!((settle(&db), total(&db).loaded_filter_column_groups), (1, 2));
        a.set_options(optimal(5.4)).unwrap();
        assert_eq!(settle(&db), 0, "no group has room within that");
        a.set_options(optimal(10.0)).unwrap();
        assert_eq!((settle(&db), total(&db).loaded_filter_column_groups), (2, 4));
        assert!((0..KEYS).all(|key| a.contains(key.to_be_bytes()).unwrap()));
        assert_eq!(total(&db).unusable_filters, 0);
    }

    /// A store with `count` keyspaces of one table each; the budget has room for 138 open tables.
    fn many_tables(count: u32) -> (Db, Vec<Keyspace>) {
        let options = Options::new().fs(Arc::new(MemFs::new())).memory_budget(1 << 20).background_threads(0);
        let db = options.open("/db").unwrap();
        let keyspace = |n: u32| {
            let keyspace = db.keyspace(&format!("{n}"), KeyspaceOptions::new()).unwrap();
            keyspace.put(n.to_be_bytes(), [1]).unwrap();
            keyspace
        };
        let keyspaces = (0..count).map(keyspace).collect();
        db.flush().unwrap();
        (db, keyspaces)
    }

    fn open_tables(keyspaces: &[Keyspace]) -> usize {
        let views: Vec<_> = keyspaces.iter().map(|keyspace| keyspace.tree.view()).collect();
        let tables = views.iter().flat_map(|view| view.version.all_tables());
        tables.filter(|(_, table)| table.if_open().is_some()).count()
    }

    #[test]
    fn of_more_tables_than_the_budget_has_room_for_those_used_least_are_closed() {
        let (db, keyspaces) = many_tables(500);
        let most = 138;
        let in_budget = || {
            let memory = db.stats().memory;
            assert!(memory.total() <= memory.budget && memory.tables <= most * 2100, "{memory:?}");
        };
        in_budget();
        db.open_tables().unwrap();
        in_budget();
        assert_eq!(open_tables(&keyspaces), most as usize, "no more than there is room for");
        settle(&db);
        in_budget();
        let left = open_tables(&keyspaces);
        assert!((most as usize * 6 / 8..=most as usize * 7 / 8 + 1).contains(&left), "{left} are left");

        // Fifty tables are in constant use; the others are used in turn.
        let (hot, cold) = keyspaces.split_at(50);
        let has = |n: usize| keyspaces[n].contains((n as u32).to_be_bytes()).unwrap();
        let mut closed = 0;
        for n in 0..3 * cold.len() {
            assert!(has(50 + n % cold.len()) && has(n % 50) && has((n + 25) % 50));
            if n % 10 == 0 {
                settle(&db);
                in_budget();
                // The hot tables have to be opened in the first round.
                closed += if n > cold.len() { hot.len() - open_tables(hot) } else { 0 };
            }
        }
        let opened = db.stats().index_block_reads;
        (0..50).for_each(|n| assert!(has(n)));
        assert_eq!((closed, db.stats().index_block_reads), (0, opened), "the hot ones are open");
        let (open, with_filters) = db.engine().keyspaces.open_tables.lens();
        assert!(open < 500 && with_filters < 1500, "{open} {with_filters}");
    }

    #[test]
    fn a_table_that_is_closed_stays_open_for_its_readers_and_keeps_its_counts() {
        let (db, keyspaces) = many_tables(200);
        let (first, rest) = keyspaces.split_first().unwrap();
        settle(&db);
        assert!(first.contains(0u32.to_be_bytes()).unwrap() && !first.contains("absent").unwrap());
        assert_eq!(open_tables(&keyspaces[..1]), 1);
        let counts = || db.stats().keyspace("0").unwrap().total().filter;
        let before = counts();
        assert_eq!(before.true_positives, 1);
        let reader = first.iter();
        let view = first.tree.view();
        for round in 0..4 {
            (0..).zip(rest).for_each(|(n, keyspace)| {
                assert!(keyspace.contains(u32::to_be_bytes(n + 1)).unwrap(), "{round}")
            });
            settle(&db);
        }
        assert_eq!(open_tables(&keyspaces[..1]), 0, "nobody has used it for long");
        assert_eq!(counts(), before);
        assert!(view.version.all_tables().all(|(_, table)| table.if_open().is_some()));
        assert_eq!(reader.count(), 1);
        assert!(first.contains(0u32.to_be_bytes()).unwrap());
    }

    #[test]
    fn tables_that_compactions_have_replaced_do_not_add_up_among_the_open_ones() {
        let (db, keyspaces) = many_tables(1);
        for n in 0..100u32 {
            keyspaces[0].put(n.to_be_bytes(), [2]).unwrap();
            keyspaces[0].compact().unwrap();
        }
        let (open, with_filters) = db.engine().keyspaces.open_tables.lens();
        assert!(open < 8 && with_filters < 8, "{open} and {with_filters} for one table");
    }
}
