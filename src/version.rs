//! A version: which tables make up a tree, at one moment. It never changes; an edit makes the next one.
//!
//! A version has [`LEVELS`] levels, a level has runs, a run has tables that are sorted and do not overlap.
//! Level 0 has a run per flush, newest first; a level below it has at most one run. Of two entries of a key
//! the one in the upper level, and within a level the one in the newer run, is the newer.
//!
//! Readers hold a version and with it its [`TableHandle`]s; a table's file is removed only when a manifest
//! edit has dropped the table *and* the last version that names it is gone ([`Graveyard`]).

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::counters::FilterCounters;
use crate::error::Result;
use crate::filter::Probe;
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag};
use crate::manifest::edit::LEVELS;
use crate::table::{FilterState, Table, TableContext, Verdict};
use crate::table_meta::TableMeta;

/// A table of the tree: known from its metadata, opened when first asked.
pub(crate) struct TableHandle {
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) counters: FilterCounters,
    /// How many lookups had reached the tree when the table was made.
    made_at: AtomicU64,
    context: Arc<TableContext>,
    table: OnceLock<Arc<Table>>,
    opening: Mutex<()>,
    graveyard: Arc<Graveyard>,
    obsolete: AtomicBool,
}

impl TableHandle {
    pub(crate) fn new(
        meta: Arc<TableMeta>,
        context: Arc<TableContext>,
        graveyard: Arc<Graveyard>,
    ) -> Arc<Self> {
        Arc::new(Self {
            meta,
            counters: FilterCounters::default(),
            made_at: AtomicU64::new(0),
            context,
            table: OnceLock::new(),
            opening: Mutex::new(()),
            graveyard,
            obsolete: AtomicBool::new(false),
        })
    }

    /// The open table. The first call reads its footer, root index and filter; later ones cost nothing.
    pub(crate) fn open(&self) -> Result<&Arc<Table>> {
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let _one_opens = self.opening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(table) = self.table.get() {
            return Ok(table);
        }
        let table = Table::open(&self.context, Arc::clone(&self.meta))?;
        Ok(self.table.get_or_init(|| table))
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

    /// How many false positives its filter predicts for the absent keys that it was asked for.
    pub(crate) fn expected_false_positives(&self) -> f64 {
        let counts = self.counters.counts();
        let asked = counts.negatives + counts.false_positives;
        match self.if_open().map(|table| table.filter()) {
            Some(FilterState::Ready(filter)) => filter.predicted_rate() * asked as f64,
            _ => 0.0,
        }
    }

    /// Whether the table has a filter that cannot be used: rewriting it would mend that.
    pub(crate) fn has_unusable_filter(&self) -> bool {
        // A table that cannot be opened has other troubles; whoever reads it will be told.
        self.open().is_ok_and(|table| matches!(table.filter(), FilterState::Unusable(_)))
    }

    /// To be called when no manifest edit names the table any more: its file goes with the last handle.
    pub(crate) fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.graveyard.bury(self.meta.number);
        }
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.meta.number)
    }
}

/// Numbers of tables that nobody can read any more; background work removes their files.
#[derive(Default)]
pub(crate) struct Graveyard {
    numbers: Mutex<Vec<u64>>,
    clearing: Mutex<()>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Graveyard {
    /// Sets what is called after a burial.
    pub(crate) fn wake_with(&self, waker: impl Fn() + Send + Sync + 'static) {
        let _ = self.waker.set(Box::new(waker));
    }

    fn bury(&self, number: u64) {
        self.numbers.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(number);
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Hands every buried table to `remove`, and returns when those that another thread was removing are gone
    /// too. `true` if there were any.
    pub(crate) fn clear(&self, remove: impl FnMut(u64)) -> bool {
        let _one_at_a_time = self.clearing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let numbers =
            std::mem::take(&mut *self.numbers.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let any = !numbers.is_empty();
        numbers.into_iter().for_each(remove);
        any
    }
}

/// Tables that are sorted by key and do not overlap; no user key lies in two of them.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    /// Orders the runs of a level: the newer one has the larger id.
    pub(crate) id: u64,
    pub(crate) tables: Vec<Arc<TableHandle>>,
}

impl Run {
    /// The one table that can hold `user_key`.
    pub(crate) fn table_for(&self, user_key: &[u8]) -> Option<&Arc<TableHandle>> {
        let index = self.tables.partition_point(|table| &table.meta.largest[..] < user_key);
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
        self.tables(level).map(|table| table.meta.len).sum()
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
                None => levels[level].push(Run { id, tables: vec![table] }),
            }
        }
        for runs in &mut levels {
            runs.retain(|run| !run.tables.is_empty());
            runs.sort_by_key(|run| std::cmp::Reverse(run.id));
            for run in runs {
                run.tables.sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
            }
        }
        Self { levels }
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
    /// First the range check of all candidate tables, and the memory of their filters is asked for; then the
    /// filters, without touching a block; then, newest first, the index and data block of those whose filter did
    /// not say "absent".
    pub(crate) fn get(&self, lookup: Lookup<'_>) -> Result<Option<(Tag, EntryValue)>> {
        let mut candidates = self.all_runs().filter_map(|(_, run)| run.table_for(lookup.user_key)).peekable();
        while candidates.peek().is_some() {
            let mut wave: [Option<(&TableHandle, &Table, Probe)>; WAVE] = [None; WAVE];
            for (slot, handle) in wave.iter_mut().zip(candidates.by_ref().take(WAVE)) {
                let table = handle.open()?;
                *slot = Some((handle, table, table.filter().prefetch(lookup.hash)));
            }
            let mut verdicts = [Verdict::Unknown; WAVE];
            for (verdict, (_, table, probe)) in verdicts.iter_mut().zip(wave.iter().flatten()) {
                *verdict = table.filter().test(*probe);
            }
            for ((handle, table, _), verdict) in wave.iter().flatten().zip(verdicts) {
                if verdict == Verdict::Absent {
                    handle.counters.negative();
                    continue;
                }
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
        let run = Run {
            id: 0,
            tables: vec![handle(1, "b", "d", 1), handle(2, "f", "h", 1), handle(3, "j", "l", 1)],
        };
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
    fn overlapping_tables_of_a_run_are_found() {
        let good = vec![(1, 0, handle(1, "a", "b", 1)), (1, 0, handle(2, "c", "d", 1))];
        assert_eq!(Version::default().apply(&HashSet::new(), good).overlap_in_a_run(), None);
        let bad = vec![(1, 0, handle(1, "a", "c", 1)), (1, 0, handle(2, "c", "d", 1))];
        assert_eq!(Version::default().apply(&HashSet::new(), bad).overlap_in_a_run(), Some((1, 2)));
    }

    #[test]
    fn a_file_goes_only_when_it_is_obsolete_and_nobody_holds_it() {
        let graveyard = Arc::new(Graveyard::default());
        let context = Arc::new(TableContext::for_tests());
        let kept =
            TableHandle::new(Arc::new(meta(1, "a", "b", 1)), Arc::clone(&context), Arc::clone(&graveyard));
        let gone = TableHandle::new(Arc::new(meta(2, "a", "b", 1)), context, Arc::clone(&graveyard));
        gone.set_obsolete();
        let reader = Arc::clone(&gone);
        drop((kept, gone));
        assert!(!graveyard.clear(|_| panic!("a reader holds it")));
        drop(reader);
        let mut cleared = Vec::new();
        assert!(graveyard.clear(|number| cleared.push(number)));
        assert_eq!(cleared, [2]);
    }
}
