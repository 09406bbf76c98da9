//! The state of one keyspace: its memtables and its version, published together as a [`View`].
//!
//! A reader loads the view once and holds it. Everything that the view names stays readable as long as it is
//! held. The commit leader replaces the view (a full memtable becomes immutable), and so does background work
//! (other tables), one at a time under `replacing`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

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

/// Hidden entries skipped by scans that are worth a flush or a compaction: about as long as these take.
const SKIPPED_MAX: u64 = 1 << 18;

/// A memtable of fewer entries is not flushed because of scans.
const SLOW_ENTRIES_MIN: u64 = 512;

/// A memtable with so many range deletes is flushed.
const RANGE_DELETES_MAX: usize = 1 << 17;

/// A memtable and the log that its oldest entry is in.
pub(in crate::db) struct LoggedMemtable {
    pub(in crate::db) memtable: Arc<Memtable>,
    /// 0 in a store that is opened for reading.
    first_log: u64,
}

impl LoggedMemtable {
    /// The oldest log that holds entries of this memtable.
    pub(in crate::db) fn first_log(&self) -> Option<u64> {
        Some(self.first_log).filter(|&number| number != 0)
    }
}

/// What readers of a keyspace see. Immutable, except that the active memtable grows.
pub(in crate::db) struct View {
    /// `None` if everything is in tables or immutable memtables: the next entry makes one.
    pub(in crate::db) active: Option<Arc<LoggedMemtable>>,
    /// Memtables that wait to be flushed, newest first.
    pub(in crate::db) immutables: Vec<Arc<LoggedMemtable>>,
    pub(in crate::db) version: Arc<Version>,
}

impl View {
    /// All memtables, newest first.
    pub(in crate::db) fn memtables(&self) -> impl Iterator<Item = &Arc<LoggedMemtable>> {
        self.active.iter().chain(&self.immutables)
    }

    /// Whether there are entries above this number.
    pub(in crate::db) fn has_newer(&self, seqno: SeqNo) -> bool {
        self.memtables().any(|memtable| memtable.memtable.seqno_max() > Some(seqno))
            || self.version.totals().seqno_max > seqno
    }

    /// Whether there are entries with this number or a larger one.
    pub(in crate::db) fn has_newer_than_or_at(&self, seqno: SeqNo) -> bool {
        seqno.checked_sub(1).map_or_else(|| self.has_any(), |before| self.has_newer(before))
    }

    fn has_any(&self) -> bool {
        self.memtables().any(|memtable| memtable.memtable.seqno_max().is_some())
            || self.version.all_tables().next().is_some()
    }

    #[inline]
    pub(in crate::db) fn has_memtables(&self) -> bool {
        self.active.is_some() || !self.immutables.is_empty()
    }

    /// What the memtables say of the key at this number: an entry or a range delete. `hash` is that of the key.
    #[inline(never)]
    pub(in crate::db) fn get_in_memtables(
        &self,
        user_key: &[u8],
        hash: u64,
        seqno: SeqNo,
    ) -> Option<Newest<'_>> {
        self.memtables().find_map(|memtable| memtable.memtable.get(hash, user_key, seqno))
    }

    /// Bytes of the active memtable.
    fn active_bytes(&self) -> usize {
        self.active.as_ref().map_or(0, |active| active.memtable.size_bytes())
    }

    /// Bytes of the memtables that wait to be flushed. They do not grow.
    fn immutable_bytes(&self) -> usize {
        self.immutables.iter().map(|memtable| memtable.memtable.size_bytes()).sum()
    }
}

/// One keyspace.
pub(in crate::db) struct Tree {
    pub(in crate::db) id: KeyspaceId,
    pub(in crate::db) name: String,
    pub(in crate::db) options: ArcSwap<KeyspaceOptions>,
    pub(super) memtables: Arc<Memtables>,
    view: ArcSwap<View>,
    /// One at a time replaces the view; the oldest logs that its memtables need.
    replacing: Mutex<Vec<u64>>,
    /// The largest sequence number in the flushed memtables that are not kept.
    forgotten: Arc<AtomicU64>,
    pub(in crate::db) empty_ranges: Arc<EmptyRanges>,
    dropped: AtomicBool,
    pub(super) expiring: Expiring,
    /// Whether the active memtable may have grown since [`Tree::has_grown_full`] looked, or is full.
    has_grown: AtomicBool,
    /// Sizes of the active memtable, and of those that wait to be flushed, when they were last counted into the sums over
    /// all trees.
    counted_bytes: Mutex<(usize, usize)>,
    /// The rate of its writers under pressure.
    pub(in crate::db) pace: Pace,
    /// What compactions have to write, in bytes, when the background last looked.
    debt: AtomicU64,
    /// Whether memtables that wait to be flushed, or the runs of level 0, are a reason to slow writers down.
    is_behind: AtomicBool,
    /// [`Tree::memtable_bytes`] by the current options.
    memtable_bytes: AtomicUsize,
    /// Hidden entries that scans have skipped: in all, before the last seal, before the last compaction for
    /// them.
    skipped: AtomicU64,
    skipped_before_seal: AtomicU64,
    skipped_before_compaction: AtomicU64,
    /// The newest table of level 0 when an idle compaction was last begun.
    idle_tried: AtomicU64,
    /// Filter counts of tables that have left the tree, by level, so that sums never decrease.
    retired: Mutex<[Retired; LEVELS]>,
    /// Lookups that no memtable answered; approximate.
    lookups: Striped<1>,
    /// How many of them were counted into the sum for all keyspaces.
    counted_lookups: AtomicU64,
    /// Filters that were planned for flushes and small compactions, and may be used for the next ones: by level, and by
    /// the logarithm of the number of keys.
    planned_filters: Mutex<Vec<PlannedFilter>>,
    /// Changes since [`Tree::is_survey_due`] was last true.
    unsurveyed: AtomicUsize,
    _entry: memory::Entry,
}

/// What a keyspace takes in memory beside its state: its view, its options, and its entry in the manifest.
const ENTRY_BYTES: usize = 1 << 10;

/// A look at all tables is made once for so many of them, so that each change of the tree pays for this many.
const TABLES_PER_CHANGE: usize = 64;

/// A filter that was planned.
struct PlannedFilter {
    place: (usize, u32),
    policy: FilterPolicy,
    filter: Option<FilterPlan>,
    uses_left: usize,
}

/// Counts of the filters of tables that have left the tree.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::db) struct Retired {
    pub(in crate::db) counts: FilterCounts,
    pub(in crate::db) expected_false_positives: f64,
}

impl Tree {
    /// A keyspace with these tables and without memtables.
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
        let is_behind = AtomicBool::new(!has_no_pressure(0, debt::pressing_runs(&version, shape), 0));
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
            expiring: Expiring::new(expiry, buckets),
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

    /// The current view, as an `Arc`.
    pub(in crate::db) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// The current view, for the length of a lookup: one atomic load.
    #[inline(always)]
    pub(in crate::db) fn view_ref(&self) -> arc_swap::Guard<Arc<View>> {
        self.view.load()
    }

    /// Replaces the view by what `next` makes of it.
    pub(in crate::db) fn replace(&self, next: impl FnOnce(&View) -> View) {
        let mut logs = lock(&self.replacing);
        let old = self.view.load_full();
        let new = Arc::new(next(&old));
        // A dropped tree needs no log.
        let needed = new.memtables().filter(|_| self.is_alive());
        let needed: Vec<u64> = needed.filter_map(|memtable| memtable.first_log()).collect();
        let is_gone =
            |memtable: &&Arc<LoggedMemtable>| !new.memtables().any(|kept| Arc::ptr_eq(kept, memtable));
        let gone = old.memtables().filter(is_gone).map(|gone| &gone.memtable);
        gone.for_each(|memtable| self.memtables.flushed.add(self.id, memtable, &self.forgotten));
        let has_no_pressure =
            has_no_pressure(new.immutables.len(), debt::pressing_runs(&new.version, || self.shape()), 0);
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

    /// Has the background look for work in this keyspace before it chooses the next job.
    pub(in crate::db) fn mark(&self) {
        self.memtables.marks.add(self.id);
    }

    /// Whether nothing is a reason to slow writers down.
    #[inline]
    pub(in crate::db) fn has_no_pressure(&self) -> bool {
        !self.is_behind.load(Ordering::Relaxed) && has_no_pressure(0, 0, self.debt())
    }

    /// Replaces the options. One caller at a time.
    pub(in crate::db) fn set_options(&self, options: KeyspaceOptions) {
        self.memtable_bytes.store(memtable_bytes(&options, &self.memtables), Ordering::Relaxed);
        self.set_grown();
        let expiry = options.expiry();
        self.options.store(Arc::new(options));
        self.expiring.set(expiry);
        self.memtables.set_expiring(self.id, expiry.is_some());
        if expiry.is_none() && self.view_ref().version.is_in_buckets() {
            self.show_buckets(0);
        }
    }

    /// What compactions have to write, in bytes, when the background last looked.
    pub(in crate::db) fn debt(&self) -> u64 {
        self.debt.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn set_debt(&self, bytes: u64) {
        self.debt.store(bytes, Ordering::Relaxed);
    }

    /// The active memtable, for entries of this log; makes one if there is none. Only the commit leader calls
    /// this.
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

    /// The memtables with entries above this number. `None` if one of them is gone. Only the commit leader calls
    /// this.
    pub(in crate::db) fn memtables_since(&self, seqno: SeqNo) -> Option<Vec<Arc<Memtable>>> {
        // In this order: a memtable is kept or forgotten before it leaves the view, and forgotten before it is evicted.
        let view = self.view();
        let kept = self.memtables.flushed.of(self.id);
        if self.forgotten.load(Ordering::Acquire) > seqno {
            return None;
        }
        let all = view.memtables().map(|memtable| Arc::clone(&memtable.memtable)).chain(kept);
        Some(all.filter(|memtable| memtable.seqno_max().is_some_and(|max| max > seqno)).collect())
    }

    /// Keeps the memtables that are flushed from now on for [`Tree::memtables_since`], for a call that began at this
    /// sequence number.
    pub(in crate::db) fn keep_memtables(&self, began_at: SeqNo) -> Running<'_> {
        self.memtables.flushed.begin(self.id, began_at)
    }

    /// The most by which inserting an entry lets the active memtable grow, beside the entry itself.
    pub(in crate::db) fn growth_max(&self) -> usize {
        match &self.view_ref().active {
            Some(active) => active.memtable.growth_max(),
            None => Memtable::first_growth_max(self.memtable_bytes()),
        }
    }

    /// Whether there is an active memtable with entries.
    pub(in crate::db) fn is_filled(&self) -> bool {
        self.view_ref().active.as_ref().is_some_and(|active| !active.memtable.is_empty())
    }

    /// Replaces handles of tables on these levels by others, and keeps the counts of the old ones.
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

    /// Makes the active memtable immutable. The next entry makes a new one.
    pub(in crate::db) fn seal(&self) {
        self.skipped_before_seal.store(self.skipped(), Ordering::Relaxed);
        self.replace(|view| View {
            active: None,
            immutables: view.memtables().cloned().collect(),
            version: Arc::clone(&view.version),
        });
    }

    /// Drops everything that the tree holds. Called after the tree is marked as dropped, so that a reader
    /// that finds it empty also sees the mark.
    pub(in crate::db) fn clear(&self) {
        self.replace(|_| View { active: None, immutables: Vec::new(), version: Arc::default() });
    }

    /// Size at which the memtable is flushed.
    pub(in crate::db) fn memtable_bytes(&self) -> usize {
        self.memtable_bytes.load(Ordering::Relaxed)
    }

    /// The shape that compaction keeps the tree in.
    pub(in crate::db) fn shape(&self) -> Shape {
        self.options.load().shape(self.memtables.memory.memtables_max(), self.memtables.disk.table)
    }

    /// Memory of the active memtable, in bytes.
    pub(in crate::db) fn active_bytes(&self) -> usize {
        self.view_ref().active_bytes()
    }

    /// Updates the sums of all memtables, and the order of the active ones, by the growth of this tree's. The active
    /// one of a dropped tree counts as 0. The commit leader calls this, and whoever replaces the view. The counted sizes,
    /// the sums and the order change together, so the order of the calls does not matter.
    /// Returns the view that was counted.
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

    /// Keeps the counts of a table that leaves the tree, so that sums over a level never decrease. Called while the view is
    /// replaced, so that [`Tree::view_and_retired`] counts it once.
    pub(super) fn retire(&self, level: usize, table: &TableHandle) {
        let mut retired = lock(&self.retired);
        retired[level].counts.add(table.counters.counts());
        retired[level].expected_false_positives += table.expected_false_positives();
    }

    /// The view, and for each level the counts of the tables that have left it.
    pub(in crate::db) fn view_and_retired(&self) -> (Arc<View>, [Retired; LEVELS]) {
        let _one_replaces = lock(&self.replacing);
        (self.view(), *lock(&self.retired))
    }

    /// Counts hidden entries (tombstones, and what newer entries hide) that a scan has skipped. `true` if they
    /// have become a reason for the background to look for work here.
    pub(in crate::db) fn count_skipped(&self, entries: u64) -> bool {
        let before = self.skipped.fetch_add(entries, Ordering::Relaxed);
        let is_much = before / SKIPPED_MAX != (before + entries) / SKIPPED_MAX;
        if is_much {
            self.mark();
        }
        is_much
    }

    /// How many hidden entries scans have skipped since the store was opened.
    pub(in crate::db) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// How many of them since tables were last compacted because of them; 0 as long as these are few.
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

    /// To be called when a compaction begins that gets rid of tombstones.
    pub(in crate::db) fn forget_skipped(&self) {
        self.skipped_before_compaction.store(self.skipped(), Ordering::Relaxed);
    }

    /// Has [`Tree::has_grown_full`] look at the active memtable.
    pub(in crate::db) fn set_grown(&self) {
        self.has_grown.store(true, Ordering::Release);
    }

    /// Counts what the active memtable has grown. Returns whether it is to be flushed: it is large, or scans have
    /// skipped so many hidden entries since the last seal that a flush, which drops most of them, costs less.
    #[inline]
    pub(super) fn has_grown_full(&self) -> bool {
        let skipped = self.skipped().saturating_sub(self.skipped_before_seal.load(Ordering::Relaxed));
        let is_slow = skipped >= SKIPPED_MAX;
        (is_slow || self.has_grown.load(Ordering::Relaxed)) && self.is_full(is_slow)
    }

    /// Counts what the active memtable has grown. Returns whether it is large, or, if scans are slow, not small.
    fn is_full(&self, is_slow: bool) -> bool {
        // Before the options are read, which somebody may change.
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

    /// Counts lookups that no memtable answered.
    #[inline]
    pub(in crate::db) fn count_lookups(&self, stripe: Stripe, lookups: u64) {
        self.lookups.add_about(stripe, 0, lookups);
    }

    /// How many lookups reached the tables since the store was opened; approximate.
    pub(in crate::db) fn lookups(&self) -> u64 {
        self.lookups.sum(0)
    }

    /// The filter of an output of so many keys on a level, in a tree of so many tables: by `plan`, or as it was planned
    /// for an earlier output of about as many.
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

    /// Whether a look at all tables is due after another change of the tree.
    pub(in crate::db) fn is_survey_due(&self) -> bool {
        let changes = self.unsurveyed.fetch_add(1, Ordering::Relaxed) + 1;
        let is_due = changes.saturating_mul(TABLES_PER_CHANGE) >= self.view_ref().version.totals().tables;
        if is_due {
            self.unsurveyed.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// How many there were since this was last called.
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
    /// A reader that is refreshed gets new trees, and the budget remains.
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
