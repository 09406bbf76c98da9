//! A version: which tables make up a tree, at one moment. It never changes; an edit makes the next one.
//!
//! A version has [`LEVELS`] levels, a level has runs, a run has tables that are sorted and do not overlap.
//! Level 0 has a run per flush, newest first; a level below it has at most one run. Of two entries of a key
//! the one in the upper level, and within a level the one in the newer run, is the newer.
//!
//! Readers hold a version and with it its [`TableHandle`]s; a table's file is removed only when a manifest
//! edit has dropped the table *and* the last version that names it is gone ([`ObsoleteFiles`]); and so is the file
//! of a filter.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use byteorder::{BigEndian, ByteOrder};

use crate::counters::{FilterCounters, RecentRate};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::filter::Probe;
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag};
use crate::manifest::edit::LEVELS;
use crate::obsolete_files::{ObsoleteFiles, SharedFile};
use crate::sync::lock;
use crate::table::{FilterState, Table, TableContext, Verdict};
use crate::table_meta::{FilterRef, TableMeta};

/// How many new filters of a table in a row may turn out unusable before the background makes no more of them.
pub(crate) const REBUILDS_MAX: u32 = 4;

/// Lookups that a table is taken to have seen before the first.
const PRIOR_LOOKUPS: f64 = 4096.0;

/// A table of the tree: known from its metadata, opened when first asked.
pub(crate) struct TableHandle {
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) counters: FilterCounters,
    /// How many lookups had reached the tree when the table was made.
    made_at: AtomicU64,
    /// How often handles of the table before this one were asked for absent keys since then.
    absent_before: u64,
    /// How often it is asked for absent keys of late, once somebody wanted to know.
    recently_asked: Mutex<Option<RecentRate>>,
    context: Arc<TableContext>,
    table: OnceLock<Arc<Table>>,
    opening: Mutex<()>,
    file: Arc<SharedFile>,
    /// The files of those filters that lie beside the table.
    filters: Vec<Arc<SharedFile>>,
    /// No new filter could be made for it.
    rebuild_failed: AtomicBool,
    /// How many handles of the table before this one had a filter that could not be used, one after the other.
    worn_before: u32,
    /// Why no compaction can read it.
    set_aside: OnceLock<Arc<Error>>,
}

impl TableHandle {
    pub(crate) fn new(
        meta: Arc<TableMeta>,
        context: Arc<TableContext>,
        obsolete_files: Arc<ObsoleteFiles>,
    ) -> Arc<Self> {
        let file = SharedFile::new(FileName::Table(meta.number), obsolete_files);
        Arc::new(Self::over(meta, context, file, &[]))
    }

    /// The same table with other filters, to take the place of this handle.
    pub(crate) fn with_filters(&self, filters: Vec<FilterRef>) -> Arc<Self> {
        let meta = TableMeta { filters, ..(*self.meta).clone() };
        let (context, file) = (Arc::clone(&self.context), Arc::clone(&self.file));
        let is_worn = self.if_open().is_some_and(|table| table.filter_error().is_some());
        Arc::new(Self {
            set_aside: self.set_aside.clone(),
            worn_before: if is_worn { self.worn_before + 1 } else { 0 },
            ..Self::over(Arc::new(meta), context, file, &self.filters)
        })
    }

    /// A handle that shares the table's file, and of the filters those that are `known`.
    fn over(
        meta: Arc<TableMeta>,
        context: Arc<TableContext>,
        file: Arc<SharedFile>,
        known: &[Arc<SharedFile>],
    ) -> Self {
        let shared = |number| {
            let name = FileName::Filter(number);
            let known = known.iter().find(|known| known.name() == name).cloned();
            known.unwrap_or_else(|| SharedFile::new(name, Arc::clone(file.obsolete_files())))
        };
        let filters = meta.filters.iter().filter_map(|filter| filter.file).map(shared).collect();
        Self {
            meta,
            counters: FilterCounters::default(),
            made_at: AtomicU64::new(0),
            absent_before: 0,
            recently_asked: Mutex::default(),
            context,
            table: OnceLock::new(),
            opening: Mutex::new(()),
            file,
            filters,
            rebuild_failed: AtomicBool::new(false),
            worn_before: 0,
            set_aside: OnceLock::new(),
        }
    }

    /// The open table. The first call reads its footer, root index and filter; later ones cost nothing.
    pub(crate) fn open(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let _one_opens = lock(&self.opening);
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let opened = Table::open(&self.context, Arc::clone(&self.meta))?;
        let table = self.table.get_or_init(|| opened);
        if table.filter_error().is_some() {
            self.file.obsolete_files().wake();
        }
        Ok(table)
    }

    /// The same table with so many column groups of its filter in memory, to take the place of this handle. `None` if there is
    /// no room.
    pub(crate) fn with_column_groups(&self, column_groups: usize) -> Option<Arc<Self>> {
        let table = self.if_open()?.with_column_groups(&self.meta, column_groups)?;
        if table.filter_error().is_some() {
            self.file.obsolete_files().wake();
        }
        let (meta, context) = (Arc::clone(&self.meta), Arc::clone(&self.context));
        Some(Arc::new(Self {
            made_at: AtomicU64::new(self.made_at()),
            absent_before: self.absent_asked(),
            recently_asked: Mutex::new(*lock(&self.recently_asked)),
            table: OnceLock::from(table),
            rebuild_failed: AtomicBool::new(self.rebuild_failed()),
            worn_before: self.worn_before,
            set_aside: self.set_aside.clone(),
            ..Self::over(meta, context, Arc::clone(&self.file), &self.filters)
        }))
    }

    /// How many column groups of its filter are in memory.
    pub(crate) fn column_groups(&self) -> usize {
        self.if_open().map_or(0, |open| open.filter().column_groups())
    }

    /// The table if it has been opened already.
    pub(crate) fn if_open(&self) -> Option<&Arc<Table>> {
        self.table.get()
    }

    /// Notes how many lookups have reached the tree in which the table is new.
    pub(crate) fn set_made_at(&self, lookups: u64) {
        self.made_at.store(lookups, Ordering::Relaxed);
    }

    pub(crate) fn made_at(&self) -> u64 {
        self.made_at.load(Ordering::Relaxed)
    }

    /// How often it was asked for a key that it did not hold, since [`TableHandle::made_at`].
    pub(crate) fn absent_asked(&self) -> u64 {
        self.absent_before + self.counters.counts().absent()
    }

    /// How often it is asked of late for keys that it does not hold, per lookup in the store, of which there have been so
    /// many; taken to be `prior` for a new table.
    pub(crate) fn recently_asked(&self, prior: f64, lookups: u64) -> f64 {
        let count = self.absent_asked();
        let start = || {
            // A table that was there when the store was opened has counted from then on.
            let (count, lookups) = if self.made_at() == 0 { (0, 0) } else { (count, lookups) };
            RecentRate::new(prior, PRIOR_LOOKUPS, count, lookups)
        };
        let mut recent = lock(&self.recently_asked);
        recent.get_or_insert_with(start).at(count, lookups)
    }

    /// How many false positives its filter predicts for the absent keys that it was asked for.
    pub(crate) fn expected_false_positives(&self) -> f64 {
        let counts = self.counters.counts();
        let asked = counts.negatives + counts.false_positives;
        self.if_open()
            .and_then(|table| table.filter().predicted_rate())
            .map_or(0.0, |rate| rate * asked as f64)
    }

    /// Whether rewriting the table would mend its filter: one that cannot be used, or that could not be made anew.
    pub(crate) fn gains_by_rewriting(&self) -> bool {
        // A table that cannot be opened has other troubles; whoever reads it will be told.
        self.rebuild_failed() || self.open().is_ok_and(|table| table.filter_error().is_some())
    }

    /// Whether the table is known to need a new filter, and nobody has failed to make one that lasts.
    pub(crate) fn wants_filter(&self) -> bool {
        let is_worn = self.if_open().is_some_and(|table| table.filter_error().is_some());
        is_worn && !self.rebuild_failed() && self.worn_before < REBUILDS_MAX
    }

    /// Whether an "absent" of the filter holds. It is counted, and one in so many is held against the data.
    #[inline]
    fn is_absent(&self, table: &Table, user_key: &[u8]) -> Result<bool> {
        if table.is_distrusted() {
            return Ok(false);
        }
        let one_in = self.context.trust.audit_one_in;
        if one_in == 0 {
            self.counters.negative_about();
            return Ok(true);
        }
        if self.counters.negative().is_multiple_of(one_in) { self.audit(table, user_key) } else { Ok(true) }
    }

    #[cold]
    fn audit(&self, table: &Table, user_key: &[u8]) -> Result<bool> {
        let is_right = table.audit_absent(user_key)?;
        if !is_right {
            self.file.obsolete_files().wake();
        }
        Ok(is_right)
    }

    /// What a filter says that is not in memory, from the pages that the key leads to.
    #[cold]
    fn ask_pages(&self, table: &Table, filter: &FilterState, hash: u64) -> Verdict {
        table.ask_pages(filter, hash).unwrap_or_else(|_| {
            self.file.obsolete_files().wake();
            Verdict::Unknown
        })
    }

    /// In a strict store, the error of a filter that cannot be used.
    #[inline]
    fn check_filter(&self, table: &Table) -> Result<()> {
        if !self.context.trust.strict {
            return Ok(());
        }
        table.filter_error().map_or(Ok(()), |error| Err((**error).clone()))
    }

    /// Remembers that no filter can be made for it; the background does not try again.
    pub(crate) fn set_rebuild_failed(&self) {
        self.rebuild_failed.store(true, Ordering::Release);
    }

    pub(crate) fn rebuild_failed(&self) -> bool {
        self.rebuild_failed.load(Ordering::Acquire)
    }

    /// Remembers that a compaction could not read the table, so that none tries again.
    pub(crate) fn set_aside(&self, error: Error) {
        let _ = self.set_aside.set(Arc::new(error));
    }

    /// Why compactions leave the table alone, if they do.
    pub(crate) fn set_aside_for(&self) -> Option<&Arc<Error>> {
        self.set_aside.get()
    }

    /// To be called when no manifest edit names the table any more: its files go with the last handle.
    pub(crate) fn set_obsolete(&self) {
        self.file.set_obsolete();
        self.filters.iter().for_each(|filter| filter.set_obsolete());
    }

    /// To be called when the manifest names the filters of `other`, a handle of the same table, instead: those
    /// that only this one has go with the last handle that reads them.
    pub(crate) fn set_filters_obsolete(&self, other: &Self) {
        let is_kept = |filter: &Arc<SharedFile>| other.filters.iter().any(|kept| Arc::ptr_eq(kept, filter));
        self.filters.iter().filter(|filter| !is_kept(filter)).for_each(|filter| filter.set_obsolete());
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.meta.number)
    }
}

/// Tables that are sorted by key and do not overlap; no user key lies in two of them.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Orders the runs of a level: the newer one has the larger id.
    pub(crate) id: u64,
    pub(crate) tables: Vec<Arc<TableHandle>>,
    fences: Fences,
}

/// The largest keys of a run's tables, as far as eight bytes tell them apart, side by side: a lookup finds its table
/// without a look at the others, whose keys are all over the memory.
#[derive(Debug, Clone, Default)]
struct Fences {
    /// What all keys of the run begin with.
    prefix: Box<[u8]>,
    /// The bytes after that of each table's largest key, in order.
    parts: Vec<u64>,
}

impl Fences {
    fn of(tables: &[Arc<TableHandle>]) -> Self {
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else { return Self::default() };
        let (smallest, largest) = (&first.meta.smallest, &last.meta.largest);
        let common = smallest.iter().zip(largest.iter()).take_while(|(one, other)| one == other).count();
        let rest = |table: &Arc<TableHandle>| part(table.meta.largest.get(common..).unwrap_or_default());
        Self { prefix: smallest[..common].into(), parts: tables.iter().map(rest).collect() }
    }
}

/// The first eight bytes, in the order of keys: a key with a smaller part is smaller.
fn part(key: &[u8]) -> u64 {
    let mut part = [0; 8];
    let len = key.len().min(8);
    part[..len].copy_from_slice(&key[..len]);
    BigEndian::read_u64(&part)
}

impl Run {
    fn new(id: u64, tables: Vec<Arc<TableHandle>>) -> Self {
        Self { id, fences: Fences::of(&tables), tables }
    }

    /// The one table that can hold `user_key`.
    pub(crate) fn table_for(&self, user_key: &[u8]) -> Option<&Arc<TableHandle>> {
        let Fences { prefix, parts } = &self.fences;
        let part = part(user_key.strip_prefix(&**prefix)?);
        let mut index = parts.partition_point(|&fence| fence < part);
        if parts.get(index) == Some(&part) {
            let alike = parts[index..].partition_point(|&fence| fence == part);
            let tables = &self.tables[index..index + alike];
            index += tables.partition_point(|table| &table.meta.largest[..] < user_key);
        }
        self.tables.get(index).filter(|table| &table.meta.smallest[..] <= user_key)
    }

    /// The tables whose key range meets `smallest..=largest`.
    pub(crate) fn overlapping(&self, smallest: &[u8], largest: &[u8]) -> &[Arc<TableHandle>] {
        let start = self.tables.partition_point(|table| &table.meta.largest[..] < smallest);
        let end = self.tables.partition_point(|table| &table.meta.smallest[..] <= largest);
        &self.tables[start..end.max(start)]
    }
}

/// The tables of a tree. Immutable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    levels: [Vec<Run>; LEVELS],
}

/// A point lookup: what is asked, hashed once for all tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) seqno: SeqNo,
    pub(crate) hash: u64,
}

/// How many tables of a lookup are looked up in the filters before the first data block is touched.
const WAVE: usize = 16;

impl Version {
    /// The runs of a level, newest first.
    pub(crate) fn runs(&self, level: usize) -> &[Run] {
        &self.levels[level]
    }

    /// All runs, newest first, with their levels.
    pub(crate) fn all_runs(&self) -> impl Iterator<Item = (usize, &Run)> {
        self.levels.iter().enumerate().flat_map(|(level, runs)| runs.iter().map(move |run| (level, run)))
    }

    pub(crate) fn tables(&self, level: usize) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.levels[level].iter().flat_map(|run| &run.tables)
    }

    pub(crate) fn all_tables(&self) -> impl Iterator<Item = (usize, &Arc<TableHandle>)> {
        self.all_runs().flat_map(|(level, run)| run.tables.iter().map(move |table| (level, table)))
    }

    /// Sum of the file lengths of a level.
    pub(crate) fn bytes(&self, level: usize) -> u64 {
        // Lengths are what a manifest claims until a table is opened.
        self.tables(level).map(|table| table.meta.len).fold(0, u64::saturating_add)
    }

    /// The version without the tables of these numbers and with new ones, each in a run of a level.
    pub(crate) fn apply(&self, removed: &HashSet<u64>, added: Vec<(usize, u64, Arc<TableHandle>)>) -> Self {
        let mut levels = self.levels.clone();
        for run in levels.iter_mut().flatten() {
            run.tables.retain(|table| !removed.contains(&table.meta.number));
        }
        for (level, id, table) in added {
            match levels[level].iter_mut().find(|run| run.id == id) {
                Some(run) => run.tables.push(table),
                None => levels[level].push(Run::new(id, vec![table])),
            }
        }
        for runs in &mut levels {
            runs.retain(|run| !run.tables.is_empty());
            runs.sort_by_key(|run| std::cmp::Reverse(run.id));
            for run in runs {
                run.tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
                run.fences = Fences::of(&run.tables);
            }
        }
        Self { levels }
    }

    /// The version with another handle for a table that it has, in the same place.
    pub(crate) fn replace(&self, table: &Arc<TableHandle>) -> Self {
        let mut levels = self.levels.clone();
        let tables = levels.iter_mut().flatten().flat_map(|run| &mut run.tables);
        tables.filter(|old| old.meta.number == table.meta.number).for_each(|old| *old = Arc::clone(table));
        Self { levels }
    }

    /// The tables that no compaction can read.
    pub(crate) fn set_aside(&self) -> impl Iterator<Item = u64> {
        let tables = self.all_tables().map(|(_, table)| table);
        tables.filter(|table| table.set_aside_for().is_some()).map(|table| table.meta.number)
    }

    /// The table of this number, and its level.
    pub(crate) fn find(&self, number: u64) -> Option<(usize, Arc<TableHandle>)> {
        let mut tables = self.all_tables();
        tables.find(|(_, table)| table.meta.number == number).map(|(level, table)| (level, Arc::clone(table)))
    }

    /// The first pair of tables of one run that overlap, if there is one: then the version is unusable.
    pub(crate) fn overlap_in_a_run(&self) -> Option<(u64, u64)> {
        self.all_runs().find_map(|(_, run)| {
            let mut pairs = run.tables.windows(2);
            let overlap = pairs.find(|pair| pair[0].meta.largest >= pair[1].meta.smallest);
            overlap.map(|pair| (pair[0].meta.number, pair[1].meta.number))
        })
    }

    /// The newest entry of the key that the lookup can see.
    ///
    /// First the range check of all candidate tables, and the memory of their filters is asked for; then the filters,
    /// without touching a block; then, newest first, the index and data block of those whose filter did not say
    /// "absent". A filter that is not in memory is asked when its table's turn comes, for it is read then. A table
    /// that cannot be opened is an error only when its turn comes: what is newer is found.
    pub(crate) fn get(&self, lookup: Lookup<'_>) -> Result<Option<(Tag, EntryValue)>> {
        let mut candidates = self.all_runs().filter_map(|(_, run)| run.table_for(lookup.user_key)).peekable();
        while candidates.peek().is_some() {
            let mut wave: [Option<(&TableHandle, &Table, &FilterState, Probe)>; WAVE] = [None; WAVE];
            let mut unopened = None;
            for (slot, handle) in wave.iter_mut().zip(candidates.by_ref().take(WAVE)) {
                let table = match handle.open() {
                    Ok(table) => table,
                    Err(error) => {
                        unopened = Some(error);
                        break;
                    }
                };
                let filter = table.filter();
                *slot = Some((handle, table, filter, filter.prefetch(lookup.hash)));
            }
            let mut verdicts = [Verdict::Unknown; WAVE];
            for (verdict, (_, _, filter, probe)) in verdicts.iter_mut().zip(wave.iter().flatten()) {
                *verdict = filter.test(*probe);
            }
            for ((handle, table, filter, _), mut verdict) in wave.iter().flatten().zip(verdicts) {
                if verdict == Verdict::Absent && handle.is_absent(table, lookup.user_key)? {
                    continue;
                }
                if verdict == Verdict::Unknown {
                    verdict = handle.ask_pages(table, filter, lookup.hash);
                    if verdict == Verdict::Absent && handle.is_absent(table, lookup.user_key)? {
                        continue;
                    }
                }
                handle.check_filter(table)?;
                let found = table.get(lookup.user_key, lookup.seqno)?;
                match verdict {
                    Verdict::Maybe => handle.counters.positive(found.is_some()),
                    _ if found.is_none() => handle.counters.unfiltered_miss(),
                    _ => {}
                }
                if found.is_some() {
                    return Ok(found);
                }
            }
            if let Some(error) = unopened {
                return Err(error);
            }
        }
        Ok(None)
    }

    /// Whether a table may hold the key, as far as memory knows: a table not opened yet may.
    pub(crate) fn may_contain(&self, user_key: &[u8], hash: u64) -> bool {
        let mut candidates = self.all_runs().filter_map(|(_, run)| run.table_for(user_key));
        candidates
            .any(|handle| handle.if_open().is_none_or(|table| table.ask_filter(hash) != Verdict::Absent))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::manifest::edit::tests::meta;

    /// A handle that is never opened.
    pub(crate) fn handle(number: u64, smallest: &str, largest: &str, len: u64) -> Arc<TableHandle> {
        let context = Arc::new(TableContext::for_tests());
        TableHandle::new(Arc::new(meta(number, smallest, largest, len)), context, Arc::default())
    }

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
    fn a_run_finds_the_table_of_a_key_and_those_of_a_range() {
        let run = Run::new(0, vec![handle(1, "b", "d", 1), handle(2, "f", "h", 1), handle(3, "j", "l", 1)]);
        let at = |key: &str| run.table_for(key.as_bytes()).map(|table| table.meta.number);
        assert_eq!(
            [at("a"), at("b"), at("d"), at("e"), at("h"), at("m")],
            [None, Some(1), Some(1), None, Some(2), None]
        );
        let over = |a: &str, b: &str| run.overlapping(a.as_bytes(), b.as_bytes()).len();
        assert_eq!(
            [over("a", "a"), over("a", "b"), over("d", "f"), over("e", "e"), over("a", "z")],
            [0, 1, 2, 0, 3]
        );
    }

    #[test]
    fn the_table_of_a_key_is_the_one_whose_range_has_it_whatever_the_keys_have_in_common() {
        let mut random = 3u64;
        let mut below = |most: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % most
        };
        let mut found = 0;
        for round in 0..400 {
            // Few letters, one of them the zero that keys are filled up with, behind more or less that all begin with.
            let common = ["", "k", "https://example.org/", "\0\0"][round % 4];
            let most = [3, 9, 12][round % 3];
            let mut keys: Vec<String> = (0..40)
                .map(|_| {
                    let letters = (0..below(most)).map(|_| ['\0', 'a', 'b'][below(3) as usize]);
                    common.chars().chain(letters).collect()
                })
                .collect();
            keys.sort();
            keys.dedup();
            let bounds: Vec<&[String]> = keys.chunks(3).filter(|keys| keys.len() > 1).collect();
            let tables: Vec<_> = (0..)
                .zip(bounds.iter().skip(usize::from(round % 5 == 0)))
                .map(|(number, keys)| handle(number, &keys[0], &keys[1], 1))
                .collect();
            let run = Run::new(0, tables);
            for key in keys.iter().map(String::as_str).chain(["", "a", "https://example.org/\u{7f}", "z"]) {
                let key = key.as_bytes();
                let holds = |table: &&Arc<TableHandle>| {
                    &table.meta.smallest[..] <= key && key <= &table.meta.largest[..]
                };
                let expected = run.tables.iter().find(holds).map(|table| table.meta.number);
                assert_eq!(run.table_for(key).map(|table| table.meta.number), expected, "{round} {key:?}");
                found += usize::from(expected.is_some());
            }
        }
        assert!(found > 1000, "{found}");
    }

    #[test]
    fn overlapping_tables_of_a_run_are_found() {
        let good = vec![(1, 0, handle(1, "a", "b", 1)), (1, 0, handle(2, "c", "d", 1))];
        assert_eq!(Version::default().apply(&HashSet::new(), good).overlap_in_a_run(), None);
        let bad = vec![(1, 0, handle(1, "a", "c", 1)), (1, 0, handle(2, "c", "d", 1))];
        assert_eq!(Version::default().apply(&HashSet::new(), bad).overlap_in_a_run(), Some((1, 2)));
    }

    #[test]
    fn a_table_outlives_the_filters_that_were_beside_it() {
        let obsolete_files = Arc::new(ObsoleteFiles::default());
        let cleared = || {
            let mut names = Vec::new();
            obsolete_files.clear(|name| names.push(name));
            names.sort_unstable();
            names
        };
        let beside = |number| FilterRef {
            file: Some(number),
            kind: 1,
            domain: 0,
            offset: 4096,
            len: 256,
            header_checksum: 0,
        };
        let context = Arc::new(TableContext::for_tests());
        let first = TableHandle::new(Arc::new(meta(1, "a", "b", 1)), context, Arc::clone(&obsolete_files));
        let second = first.with_filters(vec![beside(2), beside(3)]);
        let third = second.with_filters(vec![beside(3), beside(4)]);
        first.set_filters_obsolete(&second);
        second.set_filters_obsolete(&third);
        let reader = Arc::clone(&second);
        drop((first, second));
        assert_eq!(cleared(), [], "a reader holds the second");
        drop(reader);
        assert_eq!(cleared(), [FileName::Filter(2)]);
        third.set_obsolete();
        drop(third);
        assert_eq!(cleared(), [FileName::Table(1), FileName::Filter(3), FileName::Filter(4)]);
    }
}
