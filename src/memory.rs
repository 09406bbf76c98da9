//! The memory budget of a store: the share and the current use of each purpose.
//!
//! ```text
//! 1/4   memtables     or `Options::memtable_budget`; active and waiting; a writer waits rather than exceed it (`db/write/stall`)
//! 1/8   builders      tables being written: hashes, index, buffers. Each job has an equal part,
//!                     at least a few blocks, and ends its table when that is full (`compaction/run`). A new
//!                     filter for an existing table cannot be split: it may also use memory of the rest;
//!                     if that is too little, it is not built (`db/jobs/refilter`)
//! 5/8   the rest      open tables (metadata, roots and fences of their indexes), filters, and blocks
//! ```
//!
//! The block cache has the rest and the unused memory of memtables and builders ([`Part`]), minus other uses, but at
//! least an eighth of the rest. It shrinks before other uses get memory. Memtables and builders are counted after they
//! have grown, so each part in use keeps two or three sixteenths of its maximum free. Before a batch that needs more,
//! the cache shrinks ([`Growth`]).
//!
//! - If there is no room, index roots are read through the cache, and filters stay on disk, in whole or in part.
//! - Tables and filters use at most seven eighths of the rest. Beyond half of this maximum, no fences are created.
//! - Open tables use at most half of this maximum. Other tables are opened for each use.
//!
//! A [`Lease`] releases its memory when dropped. [`Held`] and [`Entry`] are outside the budget. While tables are opened
//! one after the other, [`Unread`] filters have memory kept for them (`version/filter_load`).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::cache::BlockCache;
use crate::sync::{Waker, lock};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// Open tables, without their index roots.
    OpenTables,
    /// Index roots and fences, buffers for logs and read-ahead, empty ranges.
    Tables,
    Filters,
    Histograms,
    /// Blocks are evicted for flushed memtables, and flushed memtables for all other uses ([`Memory::evict_with`]).
    FlushedMemtables,
}

/// About three blocks for the writer, the other blocks for hashes and index.
const BUILDER_BLOCKS_MIN: usize = 8;

const BUILDER_BLOCK_BYTES_MIN: usize = 2 << 10;

/// The cache grows in steps of at least this fraction of the budget, because each change locks all its shards.
const BLOCKS_GROW_BY: u64 = 64;

const STEPS: u64 = 16;

#[derive(Debug, Clone, Copy, Default)]
struct Leased([u64; LeaseKind::FlushedMemtables as usize + 1]);

impl Leased {
    fn of(&self, kind: LeaseKind) -> u64 {
        self.0[kind as usize]
    }

    fn sum(&self) -> u64 {
        self.all() - self.of(LeaseKind::FlushedMemtables)
    }

    fn all(&self) -> u64 {
        self.0.into_iter().fold(0, u64::saturating_add)
    }
}

#[derive(Debug, Default)]
struct Shares {
    leased: Leased,
    growing_to: u64,
    entries: u64,
    blocks: u64,
}

/// A part in use keeps the used memory plus two or three sixteenths of its maximum, and lends the rest.
#[derive(Debug)]
struct Part {
    max: u64,
    used: AtomicU64,
    kept: AtomicU64,
}

impl Part {
    fn new(max: u64) -> Self {
        Self { max, used: AtomicU64::new(0), kept: AtomicU64::new(0) }
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn step(&self) -> u64 {
        (self.max / STEPS).max(1)
    }

    fn ahead(&self) -> u64 {
        2 * self.step()
    }

    fn kept_for(&self, used: u64) -> u64 {
        let kept = used.div_ceil(self.step()).saturating_mul(self.step()).saturating_add(self.ahead());
        if used == 0 { 0 } else { kept.min(self.max) }
    }

    fn is_short(&self, used: u64) -> bool {
        let kept = self.kept.load(Ordering::SeqCst);
        kept < used + self.ahead() && kept < self.kept_for(used)
    }

    fn lent(&self) -> u64 {
        self.max - self.kept.load(Ordering::SeqCst)
    }

    fn keep(&self, least: u64) {
        loop {
            let kept = self.kept_for(self.used.load(Ordering::SeqCst)).max(least.min(self.max));
            if self.kept.swap(kept, Ordering::SeqCst) == kept {
                return;
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Memory {
    budget: u64,
    memtables: Part,
    builders: Part,
    blocks_max: u64,
    blocks: BlockCache,
    shares: Mutex<Shares>,
    refused: AtomicBool,
    was_short: AtomicBool,
    is_short: AtomicBool,
    keeps_first_groups: AtomicBool,
    waker: Waker,
    evictor: Waker,
    held: AtomicU64,
    immutables: AtomicU64,
    unread: [AtomicU64; 2],
    /// Memtables and builders freed so far.
    freed: AtomicU64,
}

/// Memory in use, in bytes; see [`Options::memory_budget`](crate::Options::memory_budget).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryStats {
    /// The memory budget.
    pub budget: u64,
    /// Memtables: active, waiting to be flushed, and flushed ones still needed by conditional writes or transactions.
    pub memtables: u64,
    /// The limit of active and waiting memtables: [`Options::memtable_budget`](crate::Options::memtable_budget).
    pub memtables_max: u64,
    /// Tables being written by flushes and compactions.
    pub builders: u64,
    /// Open tables, their indexes in memory, and read-ahead buffers.
    pub tables: u64,
    /// Filters.
    pub filters: u64,
    /// Histograms of latencies: [`Options::latency_histograms`](crate::Options::latency_histograms).
    pub histograms: u64,
    /// Blocks in the cache.
    pub blocks: u64,
    /// Outside the budget: memory that only values, iterators and running lookups still use, and incomplete
    /// [`Commit`](crate::Commit)s. [`Stats::held_file_bytes`](crate::Stats::held_file_bytes) counts the files that they
    /// hold.
    pub held: u64,
    /// Outside the budget: entries of tables (1.8 KiB each) and keyspaces (2.5 KiB each, and 32 to 64 bytes per
    /// boundary of buckets). Cached blocks are evicted for them.
    pub entries: u64,
}

impl MemoryStats {
    /// Sum of the used parts of the budget, in bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// let memory = db.stats().memory;
    /// assert!(memory.total() <= memory.budget);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn total(&self) -> u64 {
        self.memtables + self.builders + self.tables + self.filters + self.histograms + self.blocks
    }
}

impl Memory {
    pub(crate) fn new(budget: usize, memtables_max: usize) -> Arc<Self> {
        Self::with_blocks(budget as u64, memtables_max as u64, u64::MAX)
    }

    #[cfg(test)]
    pub(crate) fn with_blocks_max(budget: u64, blocks_max: u64) -> Arc<Self> {
        Self::with_blocks(budget, budget / 4, blocks_max)
    }

    fn with_blocks(budget: u64, memtables_max: u64, blocks_max: u64) -> Arc<Self> {
        let (memtables, builders) = (Part::new(memtables_max), Part::new(budget / 8));
        let least = blocks_max.min(budget - memtables.max - builders.max);
        let memory = Self {
            budget,
            memtables,
            builders,
            blocks_max: blocks_max.min(budget),
            blocks: BlockCache::new(least),
            shares: Mutex::new(Shares { blocks: least, ..Shares::default() }),
            refused: AtomicBool::new(false),
            was_short: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            keeps_first_groups: AtomicBool::new(true),
            waker: Waker::default(),
            evictor: Waker::default(),
            held: AtomicU64::new(0),
            immutables: AtomicU64::new(0),
            unread: Default::default(),
            freed: AtomicU64::new(0),
        };
        memory.fit_blocks(&mut lock(&memory.shares));
        Arc::new(memory)
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget as usize
    }

    fn rest(&self) -> u64 {
        self.budget - self.memtables.max - self.builders.max
    }

    pub(crate) fn blocks(&self) -> &BlockCache {
        &self.blocks
    }

    pub(crate) fn memtables_max(&self) -> usize {
        self.memtables.max as usize
    }

    #[inline]
    pub(crate) fn memtables(&self) -> usize {
        self.memtables.used() as usize
    }

    #[inline]
    pub(crate) fn active(&self) -> usize {
        self.memtables().saturating_sub(self.immutables())
    }

    #[inline]
    pub(crate) fn immutables(&self) -> usize {
        self.immutables.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn count_memtables(&self, before: (usize, usize), now: (usize, usize)) {
        // May wrap: only the sum over all trees is meaningful.
        let immutable = (now.1 as u64).wrapping_sub(before.1 as u64);
        let active = (now.0 as u64).wrapping_sub(before.0 as u64);
        let gives_back = now.0.saturating_add(now.1) < before.0.saturating_add(before.1);
        self.count(&self.memtables, active.wrapping_add(immutable), gives_back);
        self.immutables.fetch_add(immutable, Ordering::Relaxed);
    }

    pub(crate) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    pub(crate) fn memtables_ahead(&self) -> usize {
        self.memtables.ahead() as usize
    }

    /// Prepares for memtables that grow by at most `more` before they are counted. Returns `None` if the free part is
    /// large enough. Only for the commit leader.
    pub(crate) fn grow_memtables(&self, more: usize) -> Option<Growth<'_>> {
        if more <= self.memtables_ahead() {
            return None;
        }
        self.set_growing_to(self.memtables.used().saturating_add(more as u64));
        Some(Growth(self))
    }

    fn set_growing_to(&self, bytes: u64) {
        let mut shares = lock(&self.shares);
        shares.growing_to = bytes;
        self.memtables.keep(bytes);
        self.fit_blocks(&mut shares);
    }

    /// A wrapped `more` subtracts. Excess memory is lent to blocks only if `gives_back`.
    fn count(&self, part: &Part, more: u64, gives_back: bool) {
        if gives_back {
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
        let used = part.used.load(Ordering::SeqCst).wrapping_add(more);
        if part.is_short(used) {
            let mut shares = lock(&self.shares);
            part.keep(part.kept_for(part.used().wrapping_add(more)).max(part.kept.load(Ordering::SeqCst)));
            self.fit_blocks(&mut shares);
            part.used.fetch_add(more, Ordering::SeqCst);
            return;
        }
        let used = part.used.fetch_add(more, Ordering::SeqCst).wrapping_add(more);
        let is_too_much = || part.kept.load(Ordering::SeqCst) > part.kept_for(used);
        if part.is_short(used) || gives_back && is_too_much() {
            let mut shares = lock(&self.shares);
            self.memtables.keep(shares.growing_to);
            self.builders.keep(0);
            self.fit_blocks(&mut shares);
        }
    }

    fn fit_blocks(&self, shares: &mut Shares) {
        let most = self.rest() + self.memtables.lent() + self.builders.lent();
        let left = most.saturating_sub(shares.leased.all());
        let blocks = left.saturating_sub(shares.entries).max(left.min(self.rest() / 8)).min(self.blocks_max);
        if blocks < shares.blocks || blocks > shares.blocks + self.blocks_max / BLOCKS_GROW_BY {
            shares.blocks = blocks;
            self.blocks.set_capacity(blocks);
        }
    }

    pub(crate) fn enter(self: &Arc<Self>, bytes: usize) -> Entry {
        let bytes = bytes as u64;
        self.count_entries(bytes);
        Entry { memory: Arc::clone(self), bytes }
    }

    fn count_entries(&self, more: u64) {
        let mut shares = lock(&self.shares);
        shares.entries = shares.entries.wrapping_add(more);
        self.fit_blocks(&mut shares);
    }

    pub(crate) fn hold(self: &Arc<Self>, bytes: u64) -> Held {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Held { memory: Arc::clone(self), bytes }
    }

    /// At least a few blocks, even if the job's part is smaller: with less, each key would become a table.
    pub(crate) fn builder_max(&self, jobs: usize, block_bytes: usize) -> usize {
        let least = BUILDER_BLOCKS_MIN * block_bytes.max(BUILDER_BLOCK_BYTES_MIN);
        (self.budget() / 8 / jobs.max(1)).max(least)
    }

    pub(crate) fn expect_filter(self: &Arc<Self>, bytes: FilterBytes) -> Unread {
        Unread::new(self, bytes)
    }

    /// Wrapped values subtract.
    fn count_unread(&self, whole: u64, head: u64) {
        self.unread[0].fetch_add(whole, Ordering::Relaxed);
        self.unread[1].fetch_add(head, Ordering::Relaxed);
    }

    fn lease_if(
        self: &Arc<Self>,
        kind: LeaseKind,
        bytes: u64,
        fits: impl Fn(&Leased) -> bool,
    ) -> Option<Lease> {
        self.change(kind, 0, bytes, fits).then(|| Lease { memory: Arc::clone(self), kind, bytes })
    }

    pub(crate) fn lease(self: &Arc<Self>, kind: LeaseKind, bytes: usize) -> Lease {
        self.change(kind, 0, bytes as u64, |_| true);
        Lease { memory: Arc::clone(self), kind, bytes: bytes as u64 }
    }

    pub(crate) fn try_lease(self: &Arc<Self>, kind: LeaseKind, bytes: u64) -> Option<Lease> {
        self.try_lease_instead(kind, bytes, 0)
    }

    /// After success, the caller releases `before` bytes; until then, cached blocks may have less than their eighth.
    pub(crate) fn try_lease_instead(
        self: &Arc<Self>,
        kind: LeaseKind,
        bytes: u64,
        before: u64,
    ) -> Option<Lease> {
        let most = self.most_instead(before);
        let lease = self.lease_if(kind, bytes, |leased| leased.sum() <= most);
        if lease.is_none() {
            self.note_refused();
        }
        lease
    }

    /// Requires that `left` bytes of the part of tables and filters stay free.
    pub(crate) fn try_lease_leaving(
        self: &Arc<Self>,
        kind: LeaseKind,
        bytes: u64,
        left: u64,
    ) -> Option<Lease> {
        let most = self.loaded_max();
        let lease = self.lease_if(kind, bytes, |leased| leased.sum().saturating_add(left) <= most);
        if lease.is_none() {
            self.note_refused();
        }
        lease
    }

    /// Cached blocks may have less than their eighth until filters are evicted.
    pub(crate) fn try_lease_open_table(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        let (kind, most) = (LeaseKind::OpenTables, self.open_tables_max());
        self.lease_if(kind, bytes, |leased| leased.of(kind) <= most)
    }

    pub(crate) fn open_tables_excess(&self) -> u64 {
        let most = self.open_tables_max();
        lock(&self.shares).leased.of(LeaseKind::OpenTables).saturating_sub(most - most / 8)
    }

    /// Requires that half of the maximum of tables and filters stays free.
    pub(crate) fn try_lease_if_plenty(self: &Arc<Self>, kind: LeaseKind, bytes: u64) -> Option<Lease> {
        let most = self.loaded_max() / 2;
        self.lease_if(kind, bytes, |leased| leased.sum() <= most)
    }

    /// Cached blocks may temporarily have no memory.
    pub(crate) fn try_lease_briefly(self: &Arc<Self>, kind: LeaseKind, bytes: u64) -> Option<Lease> {
        self.try_lease_instead(kind, bytes, u64::MAX)
    }

    /// Whether [`Memory::try_lease_instead`] would succeed. If not, the waker is called when memory is released.
    pub(crate) fn has_room_instead(&self, bytes: u64, before: u64) -> bool {
        let has_room = lock(&self.shares).leased.sum() + bytes <= self.most_instead(before);
        if !has_room {
            self.note_refused();
        }
        has_room
    }

    fn note_refused(&self) {
        self.refused.store(true, Ordering::Relaxed);
        self.was_short.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_was_short(&self) -> bool {
        self.was_short.swap(false, Ordering::Relaxed)
    }

    /// While column groups are missing, a thread re-selects the resident ones at intervals.
    pub(crate) fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// For a reader, which never changes the groups that an opening has loaded.
    pub(crate) fn load_whole_filters(&self) {
        self.keeps_first_groups.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.shares).leased.sum() > self.loaded_max()
    }

    pub(crate) fn try_lease_flushed(self: &Arc<Self>, bytes: u64) -> Option<Lease> {
        self.lease_if(LeaseKind::FlushedMemtables, bytes, |leased| leased.all() <= self.rest())
    }

    pub(crate) fn lacks_room_for_flushed(&self, more: u64) -> bool {
        lock(&self.shares).leased.all().saturating_add(more) > self.rest()
    }

    /// The callback may release memory.
    pub(crate) fn evict_with(&self, evictor: impl Fn() + Send + Sync + 'static) {
        self.evictor.set(evictor);
    }

    fn most_instead(&self, before: u64) -> u64 {
        self.loaded_max().saturating_add(before).min(self.rest())
    }

    pub(crate) fn wake_with(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.waker.set(waker);
    }

    fn loaded_max(&self) -> u64 {
        self.rest() - self.rest() / 8
    }

    fn open_tables_max(&self) -> u64 {
        self.loaded_max() / 2
    }

    pub(crate) fn filters_max(&self) -> u64 {
        let leased = lock(&self.shares).leased;
        self.loaded_max().saturating_sub(leased.sum() - leased.of(LeaseKind::Filters))
    }

    pub(crate) fn room_briefly(&self) -> u64 {
        self.rest().saturating_sub(lock(&self.shares).leased.sum())
    }

    #[cfg(test)]
    pub(crate) fn room(&self) -> u64 {
        self.loaded_max().saturating_sub(lock(&self.shares).leased.sum())
    }

    /// An increase must fit.
    fn change(&self, kind: LeaseKind, before: u64, after: u64, fits: impl Fn(&Leased) -> bool) -> bool {
        let mut shares = lock(&self.shares);
        let mut next = shares.leased;
        next.0[kind as usize] = (next.of(kind) - before).saturating_add(after);
        if after > before && !fits(&next) {
            return false;
        }
        shares.leased = next;
        self.fit_blocks(&mut shares);
        drop(shares);
        if after > before && next.all() > self.rest() {
            self.evictor.wake();
        }
        true
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        // Locked to the end, so that memory that changes its use is not counted twice.
        let shares = lock(&self.shares);
        let leased = shares.leased;
        MemoryStats {
            budget: self.budget,
            memtables: self.memtables.used() + leased.of(LeaseKind::FlushedMemtables),
            memtables_max: self.memtables.max,
            builders: self.builders.used(),
            tables: leased.of(LeaseKind::OpenTables) + leased.of(LeaseKind::Tables),
            filters: leased.of(LeaseKind::Filters),
            histograms: leased.of(LeaseKind::Histograms),
            blocks: self.blocks.bytes(),
            held: self.blocks.held_bytes() + self.held.load(Ordering::Relaxed),
            entries: shares.entries,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Growth<'m>(&'m Memory);

impl Drop for Growth<'_> {
    fn drop(&mut self) {
        self.0.set_growing_to(0);
    }
}

#[derive(Debug)]
pub(crate) struct Lease {
    memory: Arc<Memory>,
    kind: LeaseKind,
    bytes: u64,
}

impl Lease {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.memory.change(self.kind, self.bytes, bytes, |_| true);
        if bytes < self.bytes && self.memory.refused.swap(false, Ordering::Relaxed) {
            self.memory.waker.wake();
        }
        self.bytes = bytes;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

#[derive(Debug)]
pub(crate) struct Held {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    memory: Arc<Memory>,
    bytes: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.memory.count_entries(self.bytes.wrapping_neg());
    }
}

/// Bytes in memory of a whole filter, and of an open table with the part of the filter that permits probes of pages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilterBytes {
    pub(crate) whole: u64,
    pub(crate) head: u64,
}

/// A filter that was not read yet, because its table was not opened.
#[derive(Debug)]
pub(crate) struct Unread {
    memory: Arc<Memory>,
    whole: AtomicU32,
    head: AtomicU32,
}

impl Unread {
    /// Lengths are counted in units of this many bytes, because each table has an [`Unread`].
    const UNIT: u64 = 64;

    fn new(memory: &Arc<Memory>, bytes: FilterBytes) -> Self {
        let units = |bytes: u64| u32::try_from(bytes.div_ceil(Self::UNIT)).unwrap_or(u32::MAX);
        let (memory, whole, head) = (Arc::clone(memory), units(bytes.whole), units(bytes.head));
        let unread = Self { memory, whole: AtomicU32::new(whole), head: AtomicU32::new(head) };
        let FilterBytes { whole, head } = unread.bytes();
        unread.memory.count_unread(whole, head);
        unread
    }

    /// 0 after [`Self::set_read`].
    pub(crate) fn bytes(&self) -> FilterBytes {
        let bytes = |units: &AtomicU32| u64::from(units.load(Ordering::Relaxed)) * Self::UNIT;
        FilterBytes { whole: bytes(&self.whole), head: bytes(&self.head) }
    }

    /// The sum of all other unread filters. Heads have at most an eighth of the part of tables and filters.
    pub(crate) fn others(&self) -> FilterBytes {
        if !self.memory.keeps_first_groups.load(Ordering::Relaxed) {
            return FilterBytes::default();
        }
        let [whole, head] = self.memory.unread.each_ref().map(|sum| sum.load(Ordering::Relaxed));
        let own = self.bytes();
        let head = head.saturating_sub(own.head).min(self.memory.loaded_max() / 8);
        FilterBytes { whole: whole.saturating_sub(own.whole), head }
    }

    pub(crate) fn set_read(&self) {
        let taken = |units: &AtomicU32| u64::from(units.swap(0, Ordering::Relaxed)) * Self::UNIT;
        self.memory.count_unread(taken(&self.whole).wrapping_neg(), taken(&self.head).wrapping_neg());
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.set_read();
    }
}

#[derive(Debug)]
pub(crate) struct Building {
    memory: Arc<Memory>,
    bytes: AtomicU64,
}

impl Building {
    pub(crate) fn new(memory: &Arc<Memory>) -> Self {
        Self { memory: Arc::clone(memory), bytes: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, bytes: usize) {
        if bytes as u64 != self.bytes.load(Ordering::Relaxed) {
            self.count(bytes, false);
        }
    }

    fn count(&self, bytes: usize, is_last: bool) {
        let before = self.bytes.swap(bytes as u64, Ordering::Relaxed);
        // May wrap: only the sum over all jobs is meaningful.
        self.memory.count(&self.memory.builders, (bytes as u64).wrapping_sub(before), is_last);
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        self.count(0, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::BlockKey;
    use bytes::Bytes;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn blocks_give_way_to_entries_down_to_their_eighth_and_get_back_what_these_release() {
        let memory = Memory::new(8 << 20, 8 << 18);
        let blocks = || lock(&memory.shares).blocks;
        let all = blocks();
        assert_eq!(all, 8 << 20, "nothing else is in use");
        let some = memory.enter(1 << 20);
        assert_eq!((blocks(), memory.stats().entries, memory.stats().total()), (7 << 20, 1 << 20, 0));
        let more = memory.enter(64 << 20);
        assert_eq!(blocks(), memory.rest() / 8);
        assert!(memory.try_lease(LeaseKind::Filters, memory.room()).is_some(), "filters lose nothing");
        drop((some, more));
        assert_eq!((blocks(), memory.stats().entries), (all, 0));
    }

    #[test]
    fn what_only_saves_time_leaves_half_of_the_room_to_filters() {
        let memory = Memory::new(8 << 20, 8 << 18);
        let half = memory.room() / 2;
        let first = memory.try_lease_if_plenty(LeaseKind::Tables, half).unwrap();
        assert!(memory.try_lease_if_plenty(LeaseKind::Tables, 1).is_none());
        assert!(memory.try_lease(LeaseKind::Filters, half - 1).is_some());
        drop(first);
        let filters = memory.try_lease(LeaseKind::Filters, half + 1).unwrap();
        assert!(memory.try_lease_if_plenty(LeaseKind::Tables, 1).is_none());
        drop(filters);
        assert!(memory.try_lease_if_plenty(LeaseKind::Tables, 1).is_some());
    }

    fn fill(memory: &Memory, table: u64) {
        for offset in 0..4000 {
            let page = BlockKey::filter_page(table, offset, 4000);
            memory.blocks().get_or_read(page, || Ok(Bytes::from(vec![1; 4000]))).unwrap();
        }
    }

    #[test]
    fn blocks_have_what_memtables_and_builders_do_not_use_and_give_way_before_it_is_counted() {
        let memory = Memory::new(8 << 20, 8 << 18);
        let blocks = || {
            fill(&memory, 1);
            let stats = memory.stats();
            assert!(stats.total() <= 8 << 20, "{stats:?}");
            stats.blocks
        };
        let all = blocks();
        assert!(all > 31 << 18, "{all}");
        let ahead = memory.memtables_ahead() as u64;
        memory.count_memtables((0, 0), (1, 0));
        assert!((all - (1 << 20)..all - ahead).contains(&blocks()));
        for bytes in (0..64).map(|step| step << 15) {
            memory.count_memtables((1 + bytes, 0), (1 + bytes + (1 << 15), 0));
            assert!(memory.stats().total() <= 8 << 20, "{:?}", memory.stats());
        }
        memory.count_memtables((1 << 20, 0), (0, 1 << 20));
        assert_eq!((memory.active(), memory.immutables()), ((1 << 20) + 1, 1 << 20));
        let (one, two) = (Building::new(&memory), Building::new(&memory));
        for bytes in (0..8).map(|step| step << 16) {
            one.set(bytes);
            two.set(bytes / 2);
            assert!(memory.stats().total() <= 8 << 20, "{:?}", memory.stats());
        }
        one.set(1);
        assert!(blocks() <= 21 << 18, "a job may need it again");
        drop((one, two));
        assert!((23 << 18..=6 << 20).contains(&blocks()));
        memory.count_memtables(((1 << 20) + 1, 1 << 20), (0, 0));
        assert_eq!(blocks(), all);
        assert_eq!((memory.memtables(), memory.room_briefly()), (0, 5 << 20));
        assert!(memory.try_lease(LeaseKind::Filters, (5 << 20) - (5 << 17) + 1).is_none());
    }

    #[test]
    fn blocks_give_way_to_a_large_batch_before_it_is_applied() {
        let memory = Memory::new(8 << 20, 8 << 18);
        fill(&memory, 1);
        let all = memory.stats().blocks;
        assert!(memory.grow_memtables(memory.memtables_ahead()).is_none());
        let growth = memory.grow_memtables(1 << 20);
        assert!(growth.is_some() && memory.stats().blocks <= 7 << 20);
        memory.count_memtables((0, 0), (1 << 10, 0));
        memory.count_memtables((1 << 10, 0), (0, 0));
        fill(&memory, 2);
        assert!(memory.stats().blocks <= 7 << 20, "{:?}", memory.stats());
        drop(growth);
        fill(&memory, 3);
        assert_eq!(memory.stats().blocks, all);
        let growth = memory.grow_memtables(usize::MAX);
        assert!(growth.is_some() && memory.stats().blocks <= 6 << 20, "beyond their part it is not honoured");
    }

    #[test]
    fn cached_blocks_shrink_for_tables_and_filters_and_grow_again() {
        let memory = Memory::new(8 << 20, 8 << 18);
        memory.count_memtables((0, 0), (8 << 18, 0));
        let building = Building::new(&memory);
        building.set(1 << 20);
        let total = || memory.stats().total() - (3 << 20);
        let fill = |table| fill(&memory, table);
        fill(1);
        let full = memory.blocks().bytes();
        assert!(full > 4 << 20 && full <= 5 << 20, "{full}");
        let filter = memory.try_lease(LeaseKind::Filters, 3 << 20).unwrap();
        assert!(memory.blocks().bytes() <= 2 << 20 && total() <= 5 << 20);
        assert!(memory.try_lease(LeaseKind::Filters, 3 << 20).is_none(), "an eighth is left to blocks");
        let table = memory.lease(LeaseKind::Tables, 1 << 20);
        fill(2);
        assert!(total() <= 5 << 20, "{:?}", memory.stats());
        drop(table);
        assert!(!memory.has_room_instead((2 << 20) + 1, 3 << 20));
        assert!(memory.try_lease_instead(LeaseKind::Filters, (2 << 20) + 1, 3 << 20).is_none());
        assert!(memory.has_room_instead(2 << 20, 3 << 20));
        let less = memory.try_lease_instead(LeaseKind::Filters, 2 << 20, 3 << 20).unwrap();
        assert_eq!((total(), memory.blocks().bytes()), (5 << 20, 0));
        drop(filter);
        assert_eq!(memory.stats().filters, 2 << 20);
        assert!(
            memory.try_lease_instead(LeaseKind::Filters, 5 << 20, 2 << 20).is_none(),
            "more than there is"
        );
        drop(less);
        fill(3);
        assert_eq!(total(), memory.blocks().bytes());
        assert!(memory.blocks().bytes() > 4 << 20);
    }

    #[test]
    fn the_waker_is_called_only_when_memory_is_released_after_a_refused_lease() {
        let memory = Memory::new(8 << 20, 8 << 18);
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        memory.wake_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let one = memory.try_lease(LeaseKind::Filters, 4 << 20).unwrap();
        drop(memory.lease(LeaseKind::Tables, 1));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        assert!(memory.try_lease(LeaseKind::Filters, 4 << 20).is_none());
        drop(one);
        drop(memory.lease(LeaseKind::Tables, 1));
        assert_eq!(told.load(Ordering::Relaxed), 1);
        let mut one = memory.try_lease(LeaseKind::Filters, 4 << 20).unwrap();
        assert!(memory.try_lease(LeaseKind::Filters, 4 << 20).is_none());
        let mut shrink = |bytes| {
            one.shrink(bytes);
            (memory.stats().filters, told.load(Ordering::Relaxed))
        };
        assert_eq!([4 << 20, 1 << 20, 2 << 20].map(&mut shrink), [(4 << 20, 1), (1 << 20, 2), (1 << 20, 2)]);
    }

    #[test]
    fn jobs_are_counted_while_they_last() {
        let memory = Memory::new(1 << 20, 1 << 18);
        let (one, two) = (Building::new(&memory), Building::new(&memory));
        one.set(100);
        two.set(50);
        one.set(20);
        assert_eq!(memory.stats().builders, 70);
        drop(one);
        assert_eq!([memory.builder_max(2, 1 << 20), memory.builder_max(256, 512)], [8 << 20, 16 << 10]);
        assert_eq!((memory.stats().builders, memory.builder_max(2, 4096)), (50, 1 << 16));
    }
}
