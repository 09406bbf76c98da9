//! The runs of level 0 by bucket of time: a pure function of a version and its boundaries.
//!
//! A run belongs to the bucket of its largest sequence number. Sequence numbers ascend from run to run, so the runs of
//! a bucket are neighbours. The newest run's bucket is *open*; all others are *closed* and get no more flushes. Expired
//! runs are ignored. In the open bucket, flushed runs and small runs merged from them are *young*; the older ones are
//! *merged*.

use crate::compaction::shape::Shape;
use crate::key::SeqNo;
use crate::version::{Run, Version};

/// Runs shorter than this and than an eighth of a table are cheap to rewrite.
const SMALL_BYTES: u64 = 1 << 20;

pub(crate) struct BucketRuns<'v> {
    runs: &'v [Run],
    buckets: Vec<&'v [Run]>,
}

impl<'v> BucketRuns<'v> {
    /// Returns `None` if entries do not expire. O(r log b) for r runs and b boundaries.
    pub(crate) fn of(version: &'v Version) -> Option<Self> {
        let buckets = version.buckets()?;
        let bucket = |run: &Run| buckets.bucket_of(newest(run));
        let all = version.runs(0);
        let visible = all.iter().take_while(|run| newest(run) >= version.horizon()).count();
        let runs = &all[..visible];
        let buckets = runs.chunk_by(|newer, older| bucket(newer) == bucket(older)).collect();
        Some(Self { runs, buckets })
    }

    pub(crate) fn all(&self) -> &[&'v [Run]] {
        &self.buckets
    }

    pub(super) fn open(&self) -> &'v [Run] {
        self.buckets.first().copied().unwrap_or_default()
    }

    pub(super) fn closed(&self) -> &[&'v [Run]] {
        self.buckets.get(1..).unwrap_or_default()
    }

    pub(super) fn closed_runs(&self) -> &'v [Run] {
        &self.runs[self.open().len()..]
    }

    /// The number of young runs in excess of the merged runs: they put pressure on writers.
    pub(crate) fn pressing(&self, shape: &Shape) -> usize {
        let young = young(self.open(), shape, |_| true).len();
        young.saturating_sub(self.open().len() - young)
    }

    /// Bytes of closed buckets with several runs, except the newest closed bucket.
    pub(crate) fn debt(&self) -> u64 {
        let unmerged = self.closed().iter().skip(1).filter(|runs| runs.len() > 1);
        unmerged.map(|runs| len_of_runs(runs)).fold(0, u64::saturating_add)
    }

    pub(crate) fn largest_step(&self) -> u64 {
        self.buckets.iter().map(|runs| len_of_runs(runs)).max().unwrap_or(0)
    }
}

/// The newest runs of the open bucket to merge, up to the first that is reserved or too long. A flushed run is never
/// too long; a small merged run may be twice as long as the newer ones together.
pub(super) fn young<'v>(open: &'v [Run], shape: &Shape, is_free: impl Fn(&Run) -> bool) -> &'v [Run] {
    let mut bytes = 0_u64;
    let joins = |run: &&Run| {
        let len = run.totals().bytes;
        let joins = is_flushed(run) || len < small_bytes(shape) && len <= bytes.saturating_mul(2);
        bytes = bytes.saturating_add(len);
        joins && is_free(run)
    };
    &open[..open.iter().take_while(joins).count()]
}

pub(super) fn small_bytes(shape: &Shape) -> u64 {
    SMALL_BYTES.min(shape.table_bytes / 8)
}

/// Whether a flush wrote the run: its id is then the number of its first table. A merge keeps the newest input's id,
/// but its tables have new numbers.
pub(in crate::compaction) fn is_flushed(run: &Run) -> bool {
    run.tables.iter().any(|table| table.meta.number == run.id())
}

fn newest(run: &Run) -> SeqNo {
    run.totals().seqno_max
}

fn len_of_runs(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.totals().bytes).fold(0, u64::saturating_add)
}
