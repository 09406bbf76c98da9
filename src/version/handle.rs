//! A table of the tree: known from its metadata, opened when first needed.

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
use crate::obsolete_files::{ObsoleteFiles, SharedFile};
use crate::sync::lock;
use crate::table::{Table, TableContext};
use crate::table_meta::{FilterRef, TableMeta};

/// The weight of the prior rate of a new table, in lookups, so that its first lookups do not change the rate
/// much.
const PRIOR_LOOKUPS: f64 = 4096.0;

/// A table of the tree: known from its metadata, opened when first needed.
pub(crate) struct TableHandle {
    pub(crate) meta: Arc<TableMeta>,
    pub(crate) counters: FilterCounters,
    pub(crate) filter: TableFilter,
    /// The least number of a table whose entries it has, if it was merged within level 0; 0: its own number.
    merged_since: AtomicU64,
    /// How many lookups had reached the tree when the table was made.
    made_at: AtomicU64,
    /// How many lookups of absent keys since then reached earlier handles of the table.
    absent_before: u64,
    /// The recent rate of lookups of absent keys; set by the first call of [`TableHandle::absent_rate`].
    absent_rate: Mutex<Option<RecentRate>>,
    pub(super) shared: SharedByTables,
    /// This handle, for the list of open tables.
    me: Weak<Self>,
    table: OnceLock<Arc<Table>>,
    /// Whether it was used since [`OpenTables::used_least`] last met it.
    used: AtomicBool,
    opening: Mutex<()>,
    file: Arc<SharedFile>,
    /// The files of those filters that lie beside the table.
    filter_files: Vec<Arc<SharedFile>>,
    /// The error of the compaction that could not read the table.
    set_aside: OnceLock<Arc<Error>>,
    /// Shared with other handles of the table: they stay in memory when the table is closed.
    pub(super) spans: Arc<ResidentSpans>,
    _entry: Entry,
}

/// What a table takes in memory beside its handle, its metadata and its bounds: the states of its file and its filter, its
/// place in a run, allocation units.
const ENTRY_BYTES: usize = 320;

/// What the handles of all tables of a keyspace share.
#[derive(Clone)]
pub(crate) struct SharedByTables {
    pub(crate) context: Arc<TableContext>,
    pub(crate) obsolete_files: Arc<ObsoleteFiles>,
    pub(crate) open_tables: Arc<OpenTables>,
    pub(crate) keyspace: KeyspaceId,
}

#[cfg(test)]
impl SharedByTables {
    /// What handles share that are never opened.
    pub(crate) fn for_tests() -> Self {
        let context = Arc::new(TableContext::for_tests());
        Self { context, obsolete_files: Arc::default(), open_tables: Arc::default(), keyspace: 0 }
    }
}

/// The open tables of a store, and those that are closed while their filters are in memory.
#[derive(Default)]
pub(crate) struct OpenTables {
    open: Queue<TableHandle>,
    filters: Queue<TableHandle>,
}

impl OpenTables {
    /// Whether a table was opened for which there was no room, since this was last called.
    pub(crate) fn take_needs_room(&self) -> bool {
        self.open.take_needs_room()
    }

    /// Tables used least that together take at least `bytes`, if there are enough that `may_close`.
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

    /// The keyspaces of all of them, in order of creation.
    pub(crate) fn keyspaces(&self) -> Vec<KeyspaceId> {
        let tables = self.open.all().into_iter().chain(self.filters.all());
        let mut keyspaces: Vec<_> = tables.map(|table| table.keyspace()).collect();
        keyspaces.sort_unstable();
        keyspaces.dedup();
        keyspaces
    }

    /// The lengths of both queues.
    #[cfg(test)]
    pub(crate) fn lens(&self) -> (usize, usize) {
        (self.open.len(), self.filters.len())
    }
}

/// A table that was opened.
pub(crate) enum Opened<'a> {
    /// It stays open with its handle.
    Kept(&'a Arc<Table>),
    /// There was no room: it is closed when this is dropped.
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

    /// A new handle of the same table, with other filters.
    pub(crate) fn with_filters(&self, filters: Vec<FilterRef>) -> Arc<Self> {
        let meta = TableMeta { filters, ..(*self.meta).clone() };
        let file = Arc::clone(&self.file);
        let new = Self {
            merged_since: AtomicU64::new(self.since()),
            set_aside: self.set_aside.clone(),
            spans: Arc::clone(&self.spans),
            filter: self.filter.successor(),
            ..Self::over(Arc::new(meta), &self.shared, file, &self.filter_files)
        };
        new.share()
    }

    /// A handle that shares the table's file, and the filter files in `known`.
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
        let entry_bytes = size_of::<Self>() + size_of::<TableMeta>() + ENTRY_BYTES + bounds;
        Self {
            meta,
            counters: FilterCounters::default(),
            merged_since: AtomicU64::new(0),
            made_at: AtomicU64::new(0),
            absent_before: 0,
            absent_rate: Mutex::default(),
            filter: TableFilter::new(shared.context.trust.audit_one_in > 0),
            shared: shared.clone(),
            me: Weak::new(),
            table: OnceLock::new(),
            used: AtomicBool::new(false),
            opening: Mutex::new(()),
            file,
            filter_files,
            set_aside: OnceLock::new(),
            spans: Arc::default(),
            _entry: shared.context.memory.enter(entry_bytes),
        }
    }

    /// The open table. The first call reads its footer, root index and filter; later ones are O(1), if the
    /// memory budget has room for it. Otherwise each call reads its footer and root index. Its filter stays in memory.
    pub(crate) fn open(&self) -> Result<Opened<'_>> {
        if let Some(table) = self.table.get() {
            return Ok(Opened::Kept(table));
        }
        let _one_opens = lock(&self.opening);
        if let Some(table) = self.table.get() {
            return Ok(Opened::Kept(table));
        }
        let opened = Table::open(&self.shared.context, Arc::clone(&self.meta))?;
        // The filter is set before the table, so that a reader that sees an open table also sees its filter.
        let read = self.filter.read(&opened, &self.meta, &self.shared.context);
        if matches!(read, Ok(true)) && self.filter.error().is_some() {
            self.wake_background();
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
        // Its filter may have been probed before.
        self.used.store(false, Ordering::Relaxed);
        self.shared.open_tables.open.add(Weak::clone(&self.me));
        Ok(Opened::Kept(table))
    }

    /// The filter of the table. Opens the table if its filter was not read yet. `None` if it cannot be read now.
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

    /// Notes that an open table is used, at the price of a load. The lookup that opens it does not count: a
    /// table that is used once is closed before those that are used again and again.
    #[inline]
    pub(crate) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Asks the background to close other tables.
    fn ask_for_room(&self) {
        if self.shared.open_tables.open.ask_for_room() {
            self.file.obsolete_files().wake();
        }
    }

    /// The keyspace that the table is in.
    pub(crate) fn keyspace(&self) -> KeyspaceId {
        self.shared.keyspace
    }

    pub(super) fn wake_background(&self) {
        self.file.obsolete_files().wake_for_unusable(self.keyspace());
    }

    /// A new handle of the same table with another number of column groups in memory. `None` if there is no room.
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

    /// A new handle of the same table, which is not open. Its filter stays in memory.
    pub(crate) fn closed(&self) -> Arc<Self> {
        let new = Self { filter: self.filter.share(), ..self.unopened() }.share();
        self.shared.open_tables.filters.add(Weak::clone(&new.me));
        new
    }

    /// A handle of the same table with the same filters and rates, which is not open.
    fn unopened(&self) -> Self {
        let (meta, file) = (Arc::clone(&self.meta), Arc::clone(&self.file));
        Self {
            merged_since: AtomicU64::new(self.since()),
            made_at: AtomicU64::new(self.made_at()),
            absent_before: self.absent_lookups(),
            absent_rate: Mutex::new(*lock(&self.absent_rate)),
            set_aside: self.set_aside.clone(),
            spans: Arc::clone(&self.spans),
            ..Self::over(meta, &self.shared, file, &self.filter_files)
        }
    }

    /// The table if it has been opened already.
    pub(crate) fn if_open(&self) -> Option<&Arc<Table>> {
        self.table.get()
    }

    /// The least number of a table whose entries it has, as far as tables of level 0 were merged since the store was opened.
    pub(crate) fn since(&self) -> u64 {
        match self.merged_since.load(Ordering::Relaxed) {
            0 => self.meta.number,
            since => since,
        }
    }

    /// Stores that the table was merged from tables since this number.
    pub(crate) fn set_since(&self, number: u64) {
        self.merged_since.store(number, Ordering::Relaxed);
    }

    /// Stores how many lookups had reached the tree when the table was added.
    pub(crate) fn set_made_at(&self, lookups: u64) {
        self.made_at.store(lookups, Ordering::Relaxed);
    }

    pub(crate) fn made_at(&self) -> u64 {
        self.made_at.load(Ordering::Relaxed)
    }

    /// How many lookups of keys that are not in the table have reached it since [`TableHandle::made_at`].
    pub(crate) fn absent_lookups(&self) -> u64 {
        self.absent_before + self.counters.counts().absent()
    }

    /// Lookups of absent keys that reach the table, per lookup in the store; recent lookups have more weight.
    /// `lookups` is the number of lookups in the store so far. A new table starts with the rate `prior`.
    pub(crate) fn absent_rate(&self, prior: f64, lookups: u64) -> f64 {
        let count = self.absent_lookups();
        let start = || {
            // A table that existed when the store was opened has counted from then on.
            let (count, lookups) = if self.made_at() == 0 { (0, 0) } else { (count, lookups) };
            RecentRate::new(prior, PRIOR_LOOKUPS, count, lookups)
        };
        lock(&self.absent_rate).get_or_insert_with(start).at(count, lookups)
    }

    /// How many false positives its filter predicts for the lookups of absent keys so far.
    pub(crate) fn expected_false_positives(&self) -> f64 {
        let counts = self.counters.counts();
        let probes = (counts.negatives + counts.false_positives) as f64;
        let Some(state) = self.filter.state() else { return 0.0 };
        let whole = state.header().map_or(0.0, |header| header.column_groups_rate(usize::MAX));
        // Of those that pass what is in memory, pages have denied some.
        let passed = state.predicted_rate().map_or(0.0, |rate| rate * probes);
        (passed - self.counters.denials_by_page() as f64).max(passed.min(whole * probes))
    }

    /// Whether a compaction of the table would repair its filter: the filter is unusable, or its rebuild
    /// failed. Opens the table if it is not open.
    pub(crate) fn read_needs_rewriting(&self) -> bool {
        // If the table cannot be opened, its readers get the error.
        self.filter.rebuild_failed() || self.open().is_ok() && self.filter.error().is_some()
    }

    /// Checks the filter, if there is one. Parts that are not in memory are read and checked, but not kept.
    pub(crate) fn read_and_check_filter(&self) -> Result<()> {
        let table = self.open()?;
        if let Some(error) = self.filter.error() {
            return Err((**error).clone());
        }
        let state = self.filter.state();
        let is_whole = match state.and_then(FilterState::header) {
            Some(header) => state.map(FilterState::column_groups) == Some(header.column_group_count()),
            None => true,
        };
        if is_whole {
            return Ok(());
        }
        let mut filters = self.meta.whole_key_filters();
        filters.try_for_each(|filter| table.filter_source(&self.meta, filter)?.read().map(drop))
    }

    /// Stores that a compaction could not read the table, so that no other tries.
    pub(crate) fn set_aside(&self, error: Error) {
        let _ = self.set_aside.set(Arc::new(error));
    }

    /// The error of the compaction that could not read the table. Compactions skip such a table.
    pub(crate) fn set_aside_for(&self) -> Option<&Arc<Error>> {
        self.set_aside.get()
    }

    /// To be called when the manifest does not name the table any more. Its files are removed with the last
    /// handle.
    pub(crate) fn set_obsolete(&self) {
        self.file.set_obsolete();
        self.filter_files.iter().for_each(|filter| filter.set_obsolete());
    }

    /// To be called when the manifest names the filters of `other`, another handle of the same table. Filter
    /// files that only this handle has are removed with the last handle that uses them.
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
