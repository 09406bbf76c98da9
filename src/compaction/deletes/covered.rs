//! Which tables to drop without reading them: a range delete hides all that they have.
//!
//! - A table of which every key is under a newer range delete of a newer table, if every snapshot sees that range delete.
//!   The range delete is durable, because its table is in the tree. One that is in a log alone drops nothing: the log may
//!   be lost, and the edit that drops the table not.
//! - A table of range deletes alone with no table below that has a key in its bounds, if every snapshot sees them.

use std::sync::Arc;

use bytes::Bytes;

use crate::compaction::claimed_ranges::Busy;
use crate::compaction::task::{Task, Urgency};
use crate::key::{SeqNo, key_after};
use crate::manifest::edit::LEVELS;
use crate::spans::Spans;
use crate::table_meta::TableMeta;
use crate::version::{Run, TableHandle, Version};

/// The tables that can be dropped, if there are any. A table whose spans cannot be read drops nothing: readers get the
/// error.
pub(crate) fn pick(version: &Version, busy: &Busy, oldest_snapshot: SeqNo) -> Option<(Urgency, Task)> {
    if !version.has_spans() {
        return None;
    }
    let runs: Vec<(usize, &Run)> = version.all_runs().collect();
    let (mut newer, mut dropped): (Vec<RunSpans>, Vec<(usize, Arc<TableHandle>)>) = (Vec::new(), Vec::new());
    for (at, (level, run)) in runs.iter().enumerate() {
        for table in run.tables.iter().filter(|table| !busy.has(table)) {
            let is_hidden = newer.iter().any(|spans| hides(spans, &table.meta, oldest_snapshot));
            if is_hidden || has_ended(&table.meta, &runs[at + 1..], oldest_snapshot) {
                dropped.push((*level, Arc::clone(table)));
            }
        }
        newer.extend(spans_of(run).filter(|lists| !lists.is_empty()));
    }
    let is_any = !dropped.is_empty();
    let task =
        is_any.then(|| busy.allowed(Task { inputs: dropped, output_level: LEVELS, trivial_move: true }))?;
    Some((Urgency::of_score(f64::from(u32::MAX)), task?))
}

/// The spans of a run, by table. A span that was cut between two tables ends in one list where the next list begins.
type RunSpans = Vec<Arc<Spans>>;

/// `None` if those of a table cannot be read.
fn spans_of(run: &Run) -> Option<RunSpans> {
    let tables = run.tables.iter().filter(|table| table.meta.spans.is_some());
    tables.map(|table| table.spans().ok()?).collect()
}

/// Whether all of a table is under newer range deletes that the oldest snapshot sees.
fn hides(lists: &RunSpans, meta: &TableMeta, oldest_snapshot: SeqNo) -> bool {
    let end = end_of(meta);
    let (mut from, end) = (&meta.smallest[..], end.as_deref());
    let first = lists.partition_point(|list| matches!(list.end(), Some(Some(reached)) if **reached <= *from));
    for list in &lists[first..] {
        let reached = list.end().flatten().map(|reached| &**reached);
        let is_last = reached.is_none() || end.is_some_and(|end| reached >= Some(end));
        let to = if is_last { end } else { reached };
        if !list.covers(from, to, meta.seqno_max, oldest_snapshot) {
            return false;
        }
        match to {
            Some(to) if !is_last => from = to,
            _ => return true,
        }
    }
    false
}

/// The key behind all of a table.
fn end_of(meta: &TableMeta) -> Option<Vec<u8>> {
    key_after(&meta.largest)
}

/// Whether a table has range deletes alone, and none of them hides anything.
fn has_ended(meta: &TableMeta, older: &[(usize, &Run)], oldest_snapshot: SeqNo) -> bool {
    let overlaps =
        |key: &Bytes, to: &Bytes| older.iter().any(|(_, run)| !run.overlapping(key, to).is_empty());
    meta.entries == 0 && meta.seqno_max <= oldest_snapshot && !overlaps(&meta.smallest, &meta.largest)
}
