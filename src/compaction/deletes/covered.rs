//! Drops tables without reading them, because of range deletes. There are two kinds:
//!
//! - A table whose keys are all covered by newer range deletes of one newer run. Every snapshot that sees an entry of
//!   the table must see these range deletes. The range deletes must be in tables, because the log may be lost.
//! - A table that has only range deletes, which every snapshot sees, if no older run has a table in its bounds.

use std::sync::Arc;

use bytes::Bytes;

use crate::compaction::claimed_ranges::Busy;
use crate::compaction::task::{Task, Urgency};
use crate::key::{SeqNo, key_after};
use crate::manifest::edit::LEVELS;
use crate::spans::Spans;
use crate::table_meta::TableMeta;
use crate::version::{Run, TableHandle, Version};

/// `snapshots` are in ascending order. If a table's spans cannot be read, its run hides no tables.
pub(crate) fn pick(version: &Version, busy: &Busy, snapshots: &[SeqNo]) -> Option<(Urgency, Task)> {
    if !version.has_spans() {
        return None;
    }
    let oldest_snapshot = snapshots.first().copied().unwrap_or(SeqNo::MAX);
    let runs: Vec<(usize, &Run)> = version.all_runs().collect();
    let (mut newer, mut dropped): (Vec<RunSpans>, Vec<(usize, Arc<TableHandle>)>) = (Vec::new(), Vec::new());
    for (at, (level, run)) in runs.iter().enumerate() {
        for table in run.tables.iter().filter(|table| !busy.has(table)) {
            let is_hidden = newer.iter().any(|spans| hides(spans, &table.meta, snapshots));
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

/// The spans of each table of a run. A span that continues in the next table is cut in two.
type RunSpans = Vec<Arc<Spans>>;

fn spans_of(run: &Run) -> Option<RunSpans> {
    let tables = run.tables.iter().filter(|table| table.meta.spans.is_some());
    tables.map(|table| table.spans().ok()?).collect()
}

fn hides(lists: &RunSpans, meta: &TableMeta, snapshots: &[SeqNo]) -> bool {
    let end = end_of(meta);
    let newer = &snapshots[snapshots.partition_point(|&seqno| seqno < meta.seqno_min)..];
    let seen_by = newer.first().copied().unwrap_or(SeqNo::MAX);
    let (mut from, end) = (&meta.smallest[..], end.as_deref());
    let first = lists.partition_point(|list| matches!(list.end(), Some(Some(reached)) if **reached <= *from));
    for list in &lists[first..] {
        let reached = list.end().flatten().map(|reached| &**reached);
        let is_last = reached.is_none() || end.is_some_and(|end| reached >= Some(end));
        let to = if is_last { end } else { reached };
        if !list.covers(from, to, meta.seqno_max, seen_by) {
            return false;
        }
        match to {
            Some(to) if !is_last => from = to,
            _ => return true,
        }
    }
    false
}

fn end_of(meta: &TableMeta) -> Option<Vec<u8>> {
    key_after(&meta.largest)
}

fn has_ended(meta: &TableMeta, older: &[(usize, &Run)], oldest_snapshot: SeqNo) -> bool {
    let overlaps =
        |key: &Bytes, to: &Bytes| older.iter().any(|(_, run)| !run.overlapping(key, to).is_empty());
    meta.entries == 0 && meta.seqno_max <= oldest_snapshot && !overlaps(&meta.smallest, &meta.largest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn a_table_under_a_range_delete_is_dropped_unless_a_snapshot_sees_it_without_the_range_delete() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.default_keyspace(KeyspaceOptions::new().l0_runs(8)).open("/db").unwrap();
        db.put("z", "").unwrap();
        db.flush().unwrap();
        // Because of this snapshot, later entries keep their sequence numbers.
        let _older = db.snapshot();
        db.put("a", "").unwrap();
        db.put("b", "").unwrap();
        db.flush().unwrap();
        db.delete_range("a".."c").unwrap();
        db.flush().unwrap();
        let (_, versions) = db.versions();
        let metas =
            || versions[0].all_tables().map(|(_, table)| (table.meta.seqno_min, table.meta.seqno_max));
        assert!(metas().eq([(4, 4), (2, 3), (0, 0)]));
        let cases: [(&[SeqNo], usize); 8] = [
            (&[], 1),
            (&[1], 1),
            (&[2], 0),
            (&[3], 0),
            (&[4], 1),
            (&[1, 4], 1),
            (&[1, 3], 0),
            (&[1, 2, 4], 0),
        ];
        for (snapshots, dropped) in cases {
            let task = pick(&versions[0], &Busy::default(), snapshots).map(|(_, task)| task.inputs);
            let numbers: Vec<_> = task.into_iter().flatten().map(|(_, table)| table.meta.seqno_min).collect();
            assert_eq!(numbers, vec![2; dropped], "{snapshots:?}");
        }
    }
}
