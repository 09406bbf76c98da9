//! What a scan or a compaction reads from.

use std::sync::Arc;

use super::tree::View;
use crate::error::{Error, Result, Step};
use crate::iter::{EntryValue, InternalIterator, LentValue};
use crate::key::{InternalKey, SeqNo};
use crate::memtable::MemtableIter;
use crate::merge::{MergeIter, RunIter, RunSource};
use crate::snapshot_read::KeyRange;
use crate::table::TableIter;
use crate::version::TableHandle;

/// The entries of a view in a range, newest source first.
pub(super) fn sources(view: &View, range: &KeyRange) -> Box<dyn InternalIterator> {
    let mut sources = Vec::new();
    for memtable in view.memtables().filter(|memtable| !memtable.memtable.is_empty()) {
        sources.push(Source::Memtable(memtable.memtable.iter()));
    }
    for (_, run) in view.version.all_runs() {
        let part = run.between(|key| range.starts_after(key), |key| range.ends_before(key));
        if !part.is_empty() {
            let tables = Arc::clone(&run.tables);
            sources.push(Source::run(Tables { tables, part, fill_cache: true }));
        }
    }
    match sources.pop() {
        Some(Source::Memtable(only)) if sources.is_empty() => Box::new(only),
        Some(Source::Run(only)) if sources.is_empty() => only,
        last => {
            sources.extend(last);
            Box::new(MergeIter::new(sources))
        }
    }
}

/// What has entries above a sequence number, and may have them from `start` on, up to `end`: memtables, and the
/// tables of each run.
pub(super) fn newer_sources(view: &View, start: &[u8], end: Option<&[u8]>, above: SeqNo) -> Vec<Source> {
    let mut sources = Vec::new();
    for memtable in view.memtables().filter(|memtable| memtable.memtable.seqno_max() > Some(above)) {
        sources.push(Source::Memtable(memtable.memtable.iter()));
    }
    for (_, run) in view.version.all_runs() {
        let part = run.between(|key| key < start, |key| end.is_some_and(|end| key >= end));
        let newer = run.tables[part].iter().filter(|table| table.meta.seqno_max > above).cloned();
        let tables: Arc<[_]> = newer.collect();
        if !tables.is_empty() {
            sources.push(Source::run(Tables { part: 0..tables.len(), tables, fill_cache: true }));
        }
    }
    sources
}

/// What a scan reads from.
pub(super) enum Source {
    Memtable(MemtableIter),
    Run(Box<RunIter<Tables>>),
}

impl Source {
    fn run(tables: Tables) -> Self {
        Self::Run(Box::new(RunIter::new(tables)))
    }
}

macro_rules! of_either {
    ($source:expr, $iter:ident => $call:expr) => {
        match $source {
            Source::Memtable($iter) => $call,
            Source::Run($iter) => $call,
        }
    };
}

impl InternalIterator for Source {
    fn seek_first(&mut self) -> Step {
        of_either!(self, iter => iter.seek_first())
    }

    fn seek_last(&mut self) -> Step {
        of_either!(self, iter => iter.seek_last())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        of_either!(self, iter => iter.seek(target))
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        of_either!(self, iter => iter.seek_before(target))
    }

    #[inline]
    fn next(&mut self) -> Step {
        of_either!(self, iter => iter.next())
    }

    #[inline]
    fn prev(&mut self) -> Step {
        of_either!(self, iter => iter.prev())
    }

    #[inline]
    fn key(&self) -> Option<InternalKey<'_>> {
        of_either!(self, iter => iter.key())
    }

    #[inline]
    fn value(&self) -> EntryValue {
        of_either!(self, iter => iter.value())
    }

    #[inline]
    fn lent_value(&self) -> LentValue<'_> {
        of_either!(self, iter => iter.lent_value())
    }

    fn out_of_order(&self) -> Box<Error> {
        of_either!(self, iter => iter.out_of_order())
    }
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
    type Iter = TableIter;

    fn len(&self) -> usize {
        self.part.len()
    }

    fn bounds(&self, table: usize) -> (&[u8], &[u8]) {
        let meta = &self.part()[table].meta;
        (&meta.smallest, &meta.largest)
    }

    fn open(&self, table: usize) -> Result<TableIter> {
        let table = &self.part()[table];
        if self.fill_cache && table.if_open().is_some() {
            table.note_use();
        }
        Ok(table.open()?.iter(self.fill_cache))
    }
}
