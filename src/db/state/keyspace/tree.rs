//! One keyspace: memtables and version, published together as a [`View`].
//!
//! A loaded view keeps everything in it readable. The commit leader and background work replace the view, serialised
//! by `replacing`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;

use super::expiring::Expiring;
use super::flushed_memtables::Running;
use super::memtables::Memtables;
use crate::batch::KeyspaceId;
use crate::compaction::debt;
use crate::compaction::shape::Shape;
use crate::counters::{FilterCounts, Stripe, Striped};
use crate::db::state::keyspace::pace::{Pace, has_no_pressure};
use crate::error::{Error, Result};
use crate::expiry::buckets::Buckets;
use crate::filter::{FilterPlan, FilterPolicy};
use crate::key::SeqNo;
use crate::manifest::edit::LEVELS;
use crate::memory;
use crate::memtable::{Memtable, Newest};
use crate::options::KeyspaceOptions;
use crate::snapshot_read::EmptyRanges;
use crate::sync::lock;
use crate::version::{TableHandle, Version};

/// Skipping this many hidden entries costs scans as much as a flush or a compaction.
const SKIPPED_MAX: u64 = 1 << 18;

const SLOW_ENTRIES_MIN: u64 = 512;

const RANGE_DELETES_MAX: usize = 1 << 17;

pub(in crate::db) struct LoggedMemtable {
    pub(in crate::db) memtable: Arc<Memtable>,
    first_log: u64,
}

impl LoggedMemtable {
    pub(in crate::db) fn first_log(&self) -> Option<u64> {
        Some(self.first_log).filter(|&number| number != 0)
    }
}

/// A view is immutable, except that its active memtable grows.
pub(in crate::db) struct View {
    pub(in crate::db) active: Option<Arc<LoggedMemtable>>,
    pub(in crate::db) immutables: Vec<Arc<LoggedMemtable>>,
    pub(in crate::db) version: Arc<Version>,
}

impl View {
    /// Newest first.
    pub(in crate::db) fn memtables(&self) -> impl Iterator<Item = &Arc<LoggedMemtable>> {
        self.active.iter().chain(&self.immutables)
    }

    pub(in crate::db) fn has_newer(&self, seqno: SeqNo) -> bool {
        self.memtables().any(|memtable| memtable.memtable.seqno_max() > Some(seqno))
            || self.version.totals().seqno_max > seqno
    }

    pub(in crate::db) fn has_newer_than_or_at(&self, seqno: SeqNo) -> bool {
        seqno.checked_sub(1).map_or_else(|| self.has_any(), |before| self.has_newer(before))
    }

    /// Returns a lower bound of the numbers of visible entries; `None` if no entry has a number of at least `horizon`.
    pub(in crate::db) fn oldest_from(&self, horizon: SeqNo) -> Option<SeqNo> {
        let memtables = self.memtables().map(|memtable| &memtable.memtable);
        let in_memory = memtables.filter(|memtable| memtable.seqno_max() >= Some(horizon));
        let tables = self.version.all_tables().map(|(_, table)| &table.meta);
        let on_disk = tables.filter(|meta| meta.seqno_max >= horizon).map(|meta| meta.seqno_min);
        in_memory.filter_map(|memtable| memtable.seqno_min()).chain(on_disk).min()
    }

    fn has_any(&self) -> bool {
        self.memtables().any(|memtable| memtable.memtable.seqno_max().is_some())
            || self.version.all_tables().next().is_some()
    }

    #[inline]
    pub(in crate::db) fn has_memtables(&self) -> bool {
        self.active.is_some() || !self.immutables.is_empty()
    }

    #[inline(never)]
    pub(in crate::db) fn get_in_memtables(
        &self,
        user_key: &[u8],
        hash: u64,
        seqno: SeqNo,
    ) -> Option<Newest<'_>> {
        self.memtables().find_map(|memtable| memtable.memtable.get(hash, user_key, seqno))
    }

    fn active_bytes(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.memtable.size_bytes())
    }

    fn immutable_bytes(&self) -> usize {
        self.immutables.iter().map(|memtable| memtable.memtable.size_bytes()).sum()
    }
}

pub(in crate::db) struct Tree {
    pub(in crate::db) id: KeyspaceId,
    pub(in crate::db) name: String,
    pub(in crate::db) options: ArcSwap<KeyspaceOptions>,
    pub(super) memtables: Arc<Memtables>,
    view: ArcSwap<View>,
    /// Serialises changes of the view. Holds the numbers of the oldest logs that the memtables need.
    replacing: Mutex<Vec<u64>>,
    forgotten: Arc<AtomicU64>,
    pub(in crate::db) empty_ranges: Arc<EmptyRanges>,
    dropped: AtomicBool,
    pub(super) expiring: Expiring,
    /// The active memtable may have grown since [`Tree::has_grown_full`], or is full.
    has_grown: AtomicBool,
    counted_bytes: Mutex<(usize, usize)>,
    pub(in crate::db) pace: Pace,
    debt: AtomicU64,
    is_behind: AtomicBool,
    memtable_bytes: AtomicUsize,
    /// Skipped entries in total, before the last seal, and before the last compaction that removed them.
    skipped: AtomicU64,
    skipped_before_seal: AtomicU64,
    skipped_before_compaction: AtomicU64,
    idle_tried: AtomicU64,
    /// Counted by level, so that sums never decrease.
    retired: Mutex<[Retired; LEVELS]>,
    lookups: Striped<1>,
    counted_lookups: AtomicU64,
    planned_filters: Mutex<Vec<PlannedFilter>>,
    unsurveyed: AtomicUsize,
    _entry: memory::Entry,
}

const ENTRY_BYTES: usize = 1 << 10;

const TABLES_PER_CHANGE: usize = 64;

struct PlannedFilter {
    place: (usize, u32),
    policy: FilterPolicy,
    filter: Option<FilterPlan>,
    uses_left: usize,
}

#[derive(Debug, Clone, Copy, Default)]
pub(in crate::db) struct Retired {
    pub(in crate::db) counts: FilterCounts,
    pub(in crate::db) expected_false_positives: f64,
}

impl Tree {
    pub(in crate::db) fn new(
        id: KeyspaceId,
        name: String,
        options: KeyspaceOptions,
        memtables: &Arc<Memtables>,
        version: Arc<Version>,
        buckets: Buckets,
    ) -> Arc<Self> {
        memtables.marks.add(id);
        let expiry = options.expiry();
        memtables.set_expiring(id, expiry.is_some());
        let version = match (buckets.horizon(), buckets.last()) {
            (0, None) => version,
            (horizon, _) => Arc::new(version.with_horizon(horizon).with_buckets(Arc::new(buckets.clone()))),
        };
        let shape = || options.shape(memtables.memory.memtables_max(), memtables.disk.table);
        let is_behind = AtomicBool::new(!has_no_pressure(0, debt::pressing_runs(&version, &shape), 0));
        let memtable_bytes = memtable_bytes(&options, memtables);
        memtables.set_step(id, Some((debt::largest_step(&version), memtable_bytes as u64)));
        let memtable_bytes = AtomicUsize::new(memtable_bytes);
        Arc::new(Self {
            id,
            name,
            options: ArcSwap::from_pointee(options),
            memtables: Arc::clone(memtables),
            view: ArcSwap::from_pointee(View { active: None, immutables: Vec::new(), version }),
            replacing: Mutex::default(),
            forgotten: Arc::default(),
            empty_ranges: EmptyRanges::new(&memtables.memory),
            dropped: AtomicBool::new(false),
            expiring: Expiring::new(expiry, buckets, &memtables.memory),
            has_grown: AtomicBool::new(false),
            counted_bytes: Mutex::default(),
            pace: Pace::default(),
            debt: AtomicU64::new(0),
            is_behind,
            memtable_bytes,
            skipped: AtomicU64::new(0),
            idle_tried: AtomicU64::new(0),
            skipped_before_seal: AtomicU64::new(0),
            skipped_before_compaction: AtomicU64::new(0),
            retired: Mutex::default(),
            lookups: Striped::default(),
            counted_lookups: AtomicU64::new(0),
            planned_filters: Mutex::default(),
            unsurveyed: AtomicUsize::new(0),
            _entry: memtables.memory.enter(size_of::<Self>() + ENTRY_BYTES),
        })
    }

    pub(in crate::db) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    #[inline(always)]
    pub(in crate::db) fn view_ref(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    pub(in crate::db) fn replace(&self, next: impl FnOnce(&View) -> View) {
        let logs = lock(&self.replacing);
        let old = self.view.load_full();
        self.show(logs, &old, Arc::new(next(&old)));
    }

    fn show(&self, mut logs: MutexGuard<'_, Vec<u64>>, old: &View, new: Arc<View>) {
        let needed = new.memtables().filter(|_| self.is_alive());
        let needed: Vec<u64> = needed.filter_map(|memtable| memtable.first_log()).collect();
        let is_gone =
            |memtable: &&Arc<LoggedMemtable>| !new.memtables().any(|kept| Arc::ptr_eq(kept, memtable));
        let gone = old.memtables().filter(is_gone).map(|gone| &gone.memtable);
        gone.for_each(|memtable| self.memtables.flushed.add(self.id, memtable, &self.forgotten));
        let has_no_pressure =
            has_no_pressure(new.immutables.len(), debt::pressing_runs(&new.version, &|| self.shape()), 0);
        self.is_behind.store(!has_no_pressure, Ordering::Relaxed);
        self.view.store(Arc::clone(&new));
        if !Arc::ptr_eq(&old.version, &new.version) || !self.is_alive() {
            let step = || (debt::largest_step(&new.version), self.memtable_bytes() as u64);
            self.memtables.set_step(self.id, self.is_alive().then(step));
        }
        if *logs != needed {
            self.memtables.set_logs(self.id, &logs, &needed);
            *logs = needed;
        }
        drop(logs);
        drop(self.count_memtables());
        self.mark();
    }

    pub(in crate::db) fn mark(&self) {
        self.memtables.marks.add(self.id);
    }

    #[inline]
    pub(in crate::db) fn has_no_pressure(&self) -> bool {
        !self.is_behind.load(Ordering::Relaxed) && has_no_pressure(0, 0, self.debt())
    }

    /// The caller ensures that calls do not overlap.
    pub(in crate::db) fn set_options(&self, options: KeyspaceOptions) {
        self.memtable_bytes.store(memtable_bytes(&options, &self.memtables), Ordering::Relaxed);
        self.set_grown();
        let expiry = options.expiry();
        self.options.store(Arc::new(options));
        self.expiring.set(expiry, &self.memtables.memory);
        self.memtables.set_expiring(self.id, expiry.is_some());
        if expiry.is_none() && self.view_ref().version.is_in_buckets() {
            self.show_buckets(0);
        }
    }

    pub(in crate::db) fn debt(&self) -> u64 {
        self.debt.load(Ordering::Relaxed)
    }

    /// Returns whether the debt has fallen.
    pub(in crate::db) fn set_debt(&self, bytes: u64) -> bool {
        self.debt.swap(bytes, Ordering::Relaxed) > bytes
    }

    /// Creates the memtable for `log` if it is missing. Called by the commit leader only.
    #[inline]
    pub(in crate::db) fn memtable_for(&self, log: u64) -> Arc<LoggedMemtable> {
        if let Some(active) = &self.view_ref().active {
            return Arc::clone(active);
        }
        self.new_memtable(log)
    }

    fn new_memtable(&self, log: u64) -> Arc<LoggedMemtable> {
        let memtable = Arc::new(Memtable::new(self.memtable_bytes(), self.memtables.hash_seed));
        let active = Arc::new(LoggedMemtable { memtable, first_log: log });
        self.set_grown();
        self.replace(|view| View {
            active: Some(Arc::clone(&active)),
            immutables: view.immutables.clone(),
            version: Arc::clone(&view.version),
        });
        active
    }

    /// Returns `None` if one of the memtables was released. Called by the commit leader only.
    pub(in crate::db) fn memtables_since(&self, seqno: SeqNo) -> Option<Vec<Arc<Memtable>>> {
        // The order matters: a memtable is retained or forgotten before it leaves the view, and forgotten before it
        // is evicted.
        let view = self.view();
        let kept = self.memtables.flushed.of(self.id);
        if self.forgotten.load(Ordering::Acquire) > seqno {
            return None;
        }
        let all = view.memtables().map(|memtable| Arc::clone(&memtable.memtable)).chain(kept);
        Some(all.filter(|memtable| memtable.seqno_max().is_some_and(|max| max > seqno)).collect())
    }

    /// For a call that began at this sequence number, retains flushed memtables for [`Tree::memtables_since`].
    pub(in crate::db) fn keep_memtables(&self, began_at: SeqNo) -> Running<'_> {
        self.memtables.flushed.begin(self.id, began_at)
    }

    pub(in crate::db) fn growth_max(&self) -> usize {
        match &self.view_ref().active {
            Some(active) => active.memtable.growth_max(),
            None => Memtable::first_growth_max(self.memtable_bytes()),
        }
    }

    pub(in crate::db) fn is_filled(&self) -> bool {
        self.view_ref().active.as_ref().is_some_and(|active| !active.memtable.is_empty())
    }

    pub(in crate::db) fn replace_handles(&self, old: &[(usize, Arc<TableHandle>)], new: &[Arc<TableHandle>]) {
        self.replace(|view| {
            old.iter().for_each(|(level, old)| self.retire(*level, old));
            View {
                active: view.active.clone(),
                immutables: view.immutables.clone(),
                version: Arc::new(view.version.replace(new)),
            }
        });
    }

    pub(in crate::db) fn seal(&self) {
        self.skipped_before_seal.store(self.skipped(), Ordering::Relaxed);
        self.replace(|view| View {
            active: None,
            immutables: view.memtables().cloned().collect(),
            version: Arc::clone(&view.version),
        });
    }

    /// Call after marking the tree as dropped, so that a reader of the empty view also sees the mark.
    pub(in crate::db) fn clear(&self) {
        self.replace(|_| View { active: None, immutables: Vec::new(), version: Arc::default() });
    }

    pub(in crate::db) fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn shape(&self) -> Shape {
        self.options.load().shape(self.memtables.memory.memtables_max(), self.memtables.disk.table)
    }

    pub(in crate::db) fn active_bytes(&self) -> usize {
        self.view_ref().active_bytes()
    }

    /// Updates the totals and the order of memtables with this tree's sizes. Called by the commit leader and after
    /// each change of the view. The update is atomic, so calls may come in any order.
    pub(in crate::db) fn count_memtables(&self) -> arc_swap::Guard<Arc<View>> {
        let mut counted = lock(&self.counted_bytes);
        let view = self.view_ref();
        let active = if self.is_alive() { view.active_bytes() } else { 0 };
        let now = (active, view.immutable_bytes());
        if now != *counted {
            self.memtables.memory.count_memtables(*counted, now);
            self.memtables.resize(self.id, counted.0, active);
            *counted = now;
        }
        view
    }

    /// Call while the view is replaced, so that [`Tree::view_and_retired`] counts the table once.
    pub(super) fn retire(&self, level: usize, table: &TableHandle) {
        let mut retired = lock(&self.retired);
        retired[level].counts.add(table.counters.counts());
        retired[level].expected_false_positives += table.expected_false_positives();
    }

    pub(in crate::db) fn view_and_retired(&self) -> (Arc<View>, [Retired; LEVELS]) {
        let _one_replaces = lock(&self.replacing);
        (self.view(), *lock(&self.retired))
    }

    pub(in crate::db) fn count_skipped(&self, entries: u64) -> bool {
        let before = self.skipped.fetch_add(entries, Ordering::Relaxed);
        let is_much = before / SKIPPED_MAX != (before + entries) / SKIPPED_MAX;
        if is_much {
            self.mark();
        }
        is_much
    }

    pub(in crate::db) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn skipped_since_compaction(&self) -> u64 {
        let since = self.skipped().saturating_sub(self.skipped_before_compaction.load(Ordering::Relaxed));
        if since < SKIPPED_MAX { 0 } else { since }
    }

    pub(in crate::db) fn idle_tried(&self) -> u64 {
        self.idle_tried.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn set_idle_tried(&self, newest: u64) {
        self.idle_tried.store(newest, Ordering::Relaxed);
    }

    /// Call when a compaction that removes tombstones begins.
    pub(in crate::db) fn forget_skipped(&self) {
        self.skipped_before_compaction.store(self.skipped(), Ordering::Relaxed);
    }

    pub(in crate::db) fn set_grown(&self) {
        self.has_grown.store(true, Ordering::Release);
    }

    /// Whether the active memtable is large, or scans since the last seal have skipped more hidden entries than a
    /// flush costs.
    #[inline]
    pub(super) fn has_grown_full(&self) -> bool {
        let skipped = self.skipped().saturating_sub(self.skipped_before_seal.load(Ordering::Relaxed));
        let is_slow = skipped >= SKIPPED_MAX;
        (is_slow || self.has_grown.load(Ordering::Relaxed)) && self.is_full(is_slow)
    }

    /// Whether the active memtable is large, or not small while scans are slow.
    fn is_full(&self, is_slow: bool) -> bool {
        // Read before the options, which may change concurrently.
        self.has_grown.swap(false, Ordering::AcqRel);
        let view = self.count_memtables();
        let Some(active) = &view.active else { return false };
        let is_full = active.memtable.size_bytes() >= self.memtable_bytes()
            || active.memtable.spans().len() >= RANGE_DELETES_MAX
            || is_slow && active.memtable.len() >= SLOW_ENTRIES_MIN;
        if is_full {
            self.set_grown();
        }
        is_full
    }

    #[inline]
    pub(in crate::db) fn count_lookups(&self, stripe: Stripe, lookups: u64) {
        self.lookups.add_about(stripe, 0, lookups);
    }

    pub(in crate::db) fn lookups(&self) -> u64 {
        self.lookups.sum(0)
    }

    pub(in crate::db) fn planned_filter(
        &self,
        policy: FilterPolicy,
        (level, keys): (usize, u64),
        tables: usize,
        plan: impl FnOnce() -> Option<FilterPlan>,
    ) -> Option<FilterPlan> {
        let place = (level, keys.max(1).ilog2());
        let fits = |known: &&mut PlannedFilter| {
            known.place == place && known.policy == policy && known.uses_left > 0
        };
        if let Some(known) = lock(&self.planned_filters).iter_mut().find(fits) {
            known.uses_left -= 1;
            return known.filter;
        }
        let filter = plan();
        let planned = PlannedFilter { place, policy, filter, uses_left: tables / TABLES_PER_CHANGE };
        let mut all = lock(&self.planned_filters);
        all.retain(|known| known.place != place);
        all.push(planned);
        filter
    }

    pub(in crate::db) fn is_survey_due(&self) -> bool {
        let changes = self.unsurveyed.fetch_add(1, Ordering::Relaxed) + 1;
        let is_due = changes.saturating_mul(TABLES_PER_CHANGE) >= self.view_ref().version.totals().tables;
        if is_due {
            self.unsurveyed.store(0, Ordering::Relaxed);
        }
        is_due
    }

    pub(in crate::db) fn take_new_lookups(&self) -> u64 {
        let now = self.lookups();
        now.saturating_sub(self.counted_lookups.swap(now, Ordering::Relaxed))
    }

    pub(super) fn set_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    #[inline]
    pub(in crate::db) fn check_alive(&self) -> Result<()> {
        if self.is_alive() { Ok(()) } else { Err(self.dropped_error()) }
    }

    #[cold]
    fn dropped_error(&self) -> Error {
        Error::KeyspaceDropped { name: self.name.clone() }
    }

    #[inline]
    pub(in crate::db) fn is_alive(&self) -> bool {
        !self.dropped.load(Ordering::Acquire)
    }
}

impl Drop for Tree {
    /// Returns the memory to the budget, which a refreshed reader keeps for its new trees.
    fn drop(&mut self) {
        let counted = *lock(&self.counted_bytes);
        self.memtables.memory.count_memtables(counted, (0, 0));
    }
}

fn memtable_bytes(options: &KeyspaceOptions, memtables: &Memtables) -> usize {
    let (most, part) = (memtables.memory.memtables_max(), memtables.disk.memtable);
    options.memtable_bytes_in(most, part).min(Memtable::FLUSH_BYTES_MAX)
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keyspace {:?}", self.name)
    }
}
