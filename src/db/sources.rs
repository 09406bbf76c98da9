//! What a scan or a compaction reads from.

use std::sync::Arc;

use super::tree::View;
use crate::error::Result;
use crate::iter::InternalIterator;
use crate::key::SeqNo;
use crate::merge::{MergeIter, RunIter, RunSource};
use crate::snapshot_read::KeyRange;
use crate::version::TableHandle;

/// The entries of a view in a range, newest source first.
pub(super) fn sources(view: &View, range: &KeyRange) -> Box<dyn InternalIterator> {
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    for memtable in view.memtables().filter(|memtable| !memtable.memtable.is_empty()) {
        sources.push(Box::new(memtable.memtable.iter()));
    }
    for (_, run) in view.version.all_runs() {
        let part = run.between(|key| range.starts_after(key), |key| range.ends_before(key));
        if !part.is_empty() {
            let tables = Arc::clone(&run.tables);
            sources.push(Box::new(RunIter::new(Tables { tables, part, fill_cache: true })));
        }
    }
    match sources.len() {
        1 => sources.remove(0),
        _ => Box::new(MergeIter::new(sources)),
    }
}

/// What has entries above a sequence number, and may have them from `start` on, up to `end`: memtables, and the
/// tables of each run.
pub(super) fn newer_sources(
    view: &View,
    start: &[u8],
    end: Option<&[u8]>,
    above: SeqNo,
) -> Vec<Box<dyn InternalIterator>> {
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    for memtable in view.memtables().filter(|memtable| memtable.memtable.seqno_max() > Some(above)) {
        sources.push(Box::new(memtable.memtable.iter()));
    }
    for (_, run) in view.version.all_runs() {
        let part = run.between(|key| key < start, |key| end.is_some_and(|end| key >= end));
        let newer = run.tables[part].iter().filter(|table| table.meta.seqno_max > above).cloned();
        let tables: Arc<[_]> = newer.collect();
        if !tables.is_empty() {
            sources.push(Box::new(RunIter::new(Tables { part: 0..tables.len(), tables, fill_cache: true })));
        }
    }
    sources
}

/// Tables of one run as the source of a [`RunIter`].
pub(crate) struct Tables {
    tables: Arc<[Arc<TableHandle>]>,
    /// Which of them.
    part: std::ops::Range<usize>,
    fill_cache: bool,
}

impl Tables {
    /// The inputs of a compaction: what it reads is not cached.
    pub(crate) fn to_compact(tables: Vec<Arc<TableHandle>>) -> Self {
        Self { part: 0..tables.len(), tables: tables.into(), fill_cache: false }
    }

    fn part(&self) -> &[Arc<TableHandle>] {
        &self.tables[self.part.clone()]
    }
}

impl RunSource for Tables {
    fn len(&self) -> usize {
        self.part.len()
    }

    fn bounds(&self, table: usize) -> (&[u8], &[u8]) {
        let meta = &self.part()[table].meta;
        (&meta.smallest, &meta.largest)
    }

    fn open(&self, table: usize) -> Result<Box<dyn InternalIterator>> {
        let table = &self.part()[table];
        if self.fill_cache && table.if_open().is_some() {
            table.note_use();
        }
        Ok(Box::new(table.open()?.iter(self.fill_cache)))
    }
}
