//! A table of the tree, opened when first needed.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::filter::TableFilter;
use super::filter_state::FilterState;
use super::open_tables::Queue;
use super::resident_spans::ResidentSpans;
use crate::batch::KeyspaceId;
use crate::counters::{FilterCounters, RecentRate};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::memory::Entry;
use crate::number_map::NumberSet;
use crate::obsolete_files::{ObsoleteFiles, SharedFile};
use crate::sync::lock;
use crate::table::{Table, TableContext};
use crate::table_meta::{FilterRef, TableMeta};

/// Limits the effect of the first lookups on the rate.
const PRIOR_LOOKUPS: f64 = 4096.0;

pub(crate) struct TableHandle {
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) counters: FilterCounters,
    pub(crate) filter: TableFilter,
    /// After a merge within level 0, the smallest table number among its inputs; 0 means its own number.
    merged_since: AtomicU64,
    made_at: AtomicU64,
    absent_before: u64,
    absent_rate: Mutex<Option<RecentRate>>,
    pub(super) shared: SharedByTables,
    me: Weak<Self>,
    table: OnceLock<Arc<Table>>,
    /// Whether the table was used since the last visit of [`OpenTables::used_least`].
    used: AtomicBool,
    opening: Mutex<()>,
    file: Arc<SharedFile>,
    filter_files: Box<[Arc<SharedFile>]>,
    set_aside: OnceLock<Arc<Error>>,
    /// Shared by the table's handles. Stays in memory when the table is closed. `None` if the table has no spans.
    pub(super) spans: Option<Arc<ResidentSpans>>,
    _entry: Entry,
}

/// Memory for the states of file and filter and the place in a run.
const ENTRY_BYTES: usize = 288;

/// Memory for the state of spans that were not read yet.
const SPANS_BYTES: usize = size_of::<ResidentSpans>() + 16;

#[derive(Clone)]
pub(crate) struct SharedByTables {
    pub(crate) context: Arc<TableContext>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,
    pub(crate) open_tables: Arc<OpenTables>,
    pub(crate) keyspace: KeyspaceId,
}

#[cfg(test)]
impl SharedByTables {
    pub(crate) fn for_tests() -> Self {
        let context = Arc::new(TableContext::for_tests());
        Self { context, obsolete_files: Arc::default(), open_tables: Arc::default(), keyspace: 0 }
    }
}

#[derive(Default)]
pub(crate) struct OpenTables {
    open: Queue<TableHandle>,
    filters: Queue<TableHandle>,
}

impl OpenTables {
    pub(crate) fn take_needs_room(&self) -> bool {
        self.open.take_needs_room()
    }

    pub(crate) fn used_least(
        &self,
        bytes: u64,
        mut may_close: impl FnMut(&TableHandle) -> bool,
    ) -> Vec<Arc<TableHandle>> {
        self.open.take(bytes, |table| {
            let was_used = table.used.swap(false, Ordering::Relaxed);
            (!was_used && may_close(table)).then(|| Table::bytes_of(&table.meta))
        })
    }

    pub(crate) fn keyspaces(&self) -> Vec<KeyspaceId> {
        let tables = self.open.all().into_iter().chain(self.filters.all());
        tables.map(|table| table.keyspace()).collect::<NumberSet<_>>().into_iter().collect()
    }

    #[cfg(test)]
    pub(crate) fn lens(&self) -> (usize, usize) {
        (self.open.len(), self.filters.len())
    }
}

pub(crate) enum Opened<'a> {
    Kept(&'a Arc<Table>),
    /// The table is closed when this is dropped, because memory is short.
    Brief(Arc<Table>),
}

impl Deref for Opened<'_> {
    type Target = Arc<Table>;

    fn deref(&self) -> &Arc<Table> {
        match self {
            Self::Kept(table) => table,
            Self::Brief(table) => table,
        }
    }
}

impl TableHandle {
    pub(crate) fn new(meta: Arc<TableMeta>, shared: &SharedByTables) -> Arc<Self> {
        let file =
            SharedFile::new(FileName::Table(meta.number), meta.len, Arc::clone(&shared.obsolete_files));
        Self::over(meta, shared, file, &[]).share()
    }

    fn share(self) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: Weak::clone(me), ..self })
    }

    pub(crate) fn with_filters(&self, filters: Vec<FilterRef>) -> Arc<Self> {
        let meta = TableMeta { filters, ..(*self.meta).clone() };
        let file = Arc::clone(&self.file);
        let new = Self {
            merged_since: AtomicU64::new(self.since()),
            set_aside: self.set_aside.clone(),
            spans: self.spans.clone(),
            filter: self.filter.successor(&self.shared.context, &meta),
            ..Self::over(Arc::new(meta), &self.shared, file, &self.filter_files)
        };
        new.share()
    }

    fn over(
        meta: Arc<TableMeta>,
        shared: &SharedByTables,
        file: Arc<SharedFile>,
        known: &[Arc<SharedFile>],
    ) -> Self {
        let beside = |filter: &FilterRef| {
            let name = FileName::Filter(filter.file?);
            let known = known.iter().find(|known| known.name() == name).cloned();
            let new = || SharedFile::new(name, filter.len, Arc::clone(file.obsolete_files()));
            Some(known.unwrap_or_else(new))
        };
        let filter_files = meta.filters.iter().filter_map(beside).collect();
        let bounds = meta.smallest.len() + meta.largest.len();
        let spans = meta.spans.as_ref().map_or(0, |_| SPANS_BYTES);
        let entry_bytes = size_of::<Self>() + size_of::<TableMeta>() + ENTRY_BYTES + bounds + spans;
        Self {
            filter: TableFilter::new(&shared.context, &meta),
            spans: meta.spans.as_ref().map(|_| Arc::default()),
            meta,
            counters: FilterCounters::default(),
            merged_since: AtomicU64::new(0),
            made_at: AtomicU64::new(0),
            absent_before: 0,
            absent_rate: Mutex::default(),
            shared: shared.clone(),
            me: Weak::new(),
            table: OnceLock::new(),
            used: AtomicBool::new(false),
            opening: Mutex::new(()),
            file,
            filter_files,
            set_aside: OnceLock::new(),
            _entry: shared.context.memory.enter(entry_bytes),
        }
    }

    /// The first call reads footer, root index and filter. Later calls are O(1); if memory is short, they read footer
    /// and root again.
    pub(crate) fn open(&self) -> Result<Opened<'_>> {
        if let Some(table) = self.table.get() {
            return Ok(Opened::Kept(table));
        }
        let _one_opens = lock(&self.opening);
        if let Some(table) = self.table.get() {
            return Ok(Opened::Kept(table));
        }
        let opened = Table::open(&self.shared.context, Arc::clone(&self.meta))?;
        // Read before the table is published, so that a reader of an open table finds its filter.
        let read = self.filter.read(&opened, &self.meta, &self.shared.context);
        if matches!(read, Ok(true)) {
            self.wake_for_filter();
        }
        if !opened.has_room() {
            self.ask_for_room();
            if matches!(read, Ok(true)) {
                self.shared.open_tables.filters.add(Weak::clone(&self.me));
            }
            return Ok(Opened::Brief(opened));
        }
        if read.is_err() {
            return Ok(Opened::Brief(opened));
        }
        let table = self.table.get_or_init(|| opened);
        self.used.store(false, Ordering::Relaxed);
        self.shared.open_tables.open.add(Weak::clone(&self.me));
        Ok(Opened::Kept(table))
    }

    #[inline]
    pub(crate) fn open_filter(&self) -> Result<Option<&FilterState>> {
        match self.filter.state() {
            Some(state) => {
                self.note_use();
                Ok(Some(state))
            }
            None => self.open_for_filter(),
        }
    }

    #[cold]
    fn open_for_filter(&self) -> Result<Option<&FilterState>> {
        self.open()?;
        Ok(self.filter.state())
    }

    /// Usually costs one load. The lookup that opens a table does not count, so tables used once are closed first.
    #[inline]
    pub(crate) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    fn ask_for_room(&self) {
        if self.shared.open_tables.open.ask_for_room() {
            self.file.obsolete_files().wake();
        }
    }

    pub(crate) fn keyspace(&self) -> KeyspaceId {
        self.shared.keyspace
    }

    fn wake_for_filter(&self) {
        if self.filter.error().is_some() {
            self.wake_background();
        } else if !self.shared.context.memory.is_short()
            && self.filter.state().is_some_and(FilterState::lacks_groups)
        {
            // Later missing groups are found at intervals.
            self.file.obsolete_files().wake();
        }
    }

    pub(super) fn wake_background(&self) {
        self.file.obsolete_files().wake_for_unusable(self.keyspace());
    }

    pub(crate) fn with_column_groups(&self, column_groups: usize) -> Option<Arc<Self>> {
        let (open, context) = (self.if_open(), &self.shared.context);
        let table = match open {
            Some(table) => Arc::clone(table),
            None => Table::open(context, Arc::clone(&self.meta)).ok()?,
        };
        let filter = self.filter.with_column_groups(&table, &self.meta, context, column_groups)?;
        if filter.error().is_some() {
            self.wake_background();
        }
        let is_open = open.is_some();
        let table = if is_open { OnceLock::from(table) } else { OnceLock::new() };
        let new = Self { table, filter, ..self.unopened() }.share();
        let tables = &self.shared.open_tables;
        let queue = if is_open { &tables.open } else { &tables.filters };
        queue.add(Weak::clone(&new.me));
        Some(new)
    }

    pub(crate) fn closed(&self) -> Arc<Self> {
        let new = Self { filter: self.filter.share(), ..self.unopened() }.share();
        self.shared.open_tables.filters.add(Weak::clone(&new.me));
        new
    }

    fn unopened(&self) -> Self {
        let (meta, file) = (Arc::clone(&self.meta), Arc::clone(&self.file));
        Self {
            merged_since: AtomicU64::new(self.since()),
            made_at: AtomicU64::new(self.made_at()),
            absent_before: self.absent_lookups(),
            absent_rate: Mutex::new(*lock(&self.absent_rate)),
            set_aside: self.set_aside.clone(),
            spans: self.spans.clone(),
            ..Self::over(meta, &self.shared, file, &self.filter_files)
        }
    }

    pub(crate) fn if_open(&self) -> Option<&Arc<Table>> {
        self.table.get()
    }

    pub(crate) fn since(&self) -> u64 {
        match self.merged_since.load(Ordering::Relaxed) {
            0 => self.meta.number,
            since => since,
        }
    }

    pub(crate) fn set_since(&self, number: u64) {
        self.merged_since.store(number, Ordering::Relaxed);
    }

    pub(crate) fn set_made_at(&self, lookups: u64) {
        self.made_at.store(lookups, Ordering::Relaxed);
    }

    pub(crate) fn made_at(&self) -> u64 {
        self.made_at.load(Ordering::Relaxed)
    }

    pub(crate) fn absent_lookups(&self) -> u64 {
        self.absent_before + self.counters.counts().absent()
    }

    /// Lookups of absent keys in this table per lookup in the store. Recent lookups have more weight. A new table
    /// starts with `prior`.
    pub(crate) fn absent_rate(&self, prior: f64, lookups: u64) -> f64 {
        let count = self.absent_lookups();
        let start = || {
            // Tables from before the opening are counted from 0.
            let (count, lookups) = if self.made_at() == 0 { (0, 0) } else { (count, lookups) };
            RecentRate::new(prior, PRIOR_LOOKUPS, count, lookups)
        };
        lock(&self.absent_rate).get_or_insert_with(start).at(count, lookups)
    }

    pub(crate) fn expected_false_positives(&self) -> f64 {
        let counts = self.counters.counts();
        let probes = (counts.negatives + counts.false_positives) as f64;
        let Some(state) = self.filter.state() else { return 0.0 };
        let whole = state.header().map_or(0.0, |header| header.column_groups_rate(usize::MAX));
        // Pages on disk excluded some keys that passed the groups in memory.
        let passed = state.predicted_rate().map_or(0.0, |rate| rate * probes);
        (passed - self.counters.denials_by_page() as f64).max(passed.min(whole * probes))
    }

    /// Whether a compaction would repair the filter. Opens the table if needed.
    pub(crate) fn read_needs_rewriting(&self) -> bool {
        // If the table cannot be opened, its readers get the error.
        self.filter.rebuild_failed() || self.open().is_ok() && self.filter.error().is_some()
    }

    /// Parts on disk are checked, but not kept in memory.
    pub(crate) fn read_and_check_filter(&self) -> Result<()> {
        let table = self.open()?;
        if let Some(error) = self.filter.error() {
            return Err((**error).clone());
        }
        let state = self.filter.state();
        if !state.is_some_and(FilterState::lacks_groups) {
            return Ok(());
        }
        let mut filters = self.meta.whole_key_filters();
        filters.try_for_each(|filter| table.filter_source(&self.meta, filter)?.read().map(drop))
    }

    pub(crate) fn set_aside(&self, error: Error) {
        let _ = self.set_aside.set(Arc::new(error));
    }

    pub(crate) fn set_aside_for(&self) -> Option<&Arc<Error>> {
        self.set_aside.get()
    }

    /// Requires that no manifest edit names the table.
    pub(crate) fn set_obsolete(&self) {
        self.file.set_obsolete();
        self.filter_files.iter().for_each(|filter| filter.set_obsolete());
    }

    /// Removes filters that the manifest no longer names; `other` has the present ones.
    pub(crate) fn set_filters_obsolete(&self, other: &Self) {
        let is_kept =
            |filter: &Arc<SharedFile>| other.filter_files.iter().any(|kept| Arc::ptr_eq(kept, filter));
        self.filter_files.iter().filter(|filter| !is_kept(filter)).for_each(|filter| filter.set_obsolete());
    }
}

impl fmt::Debug for TableHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}", self.meta.number)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::manifest::edit::tests::meta;

    /// A handle that is never opened.
    pub(crate) fn handle(number: u64, smallest: &str, largest: &str, len: u64) -> Arc<TableHandle> {
        TableHandle::new(Arc::new(meta(number, smallest, largest, len)), &SharedByTables::for_tests())
    }

    #[test]
    fn a_table_outlives_the_filters_that_were_beside_it() {
        let shared = SharedByTables::for_tests();
        let obsolete_files = Arc::clone(&shared.obsolete_files);
        let cleared = || {
            let mut names = Vec::new();
            obsolete_files.clear(|name| {
                names.push(name);
                true
            });
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
        let first = TableHandle::new(Arc::new(meta(1, "a", "b", 1)), &shared);
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
