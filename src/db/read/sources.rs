//! Sources of scans and compactions.

use std::sync::Arc;

use super::covered::Covered;
use super::covers::Covers;
use crate::block::BlockIter;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::View;
use crate::error::{Error, Result, Step};
use crate::iter::{EntryValue, InternalIterator, LentValue};
use crate::key::{InternalKey, SeqNo};
use crate::memtable::MemtableIter;
use crate::merge::{MergeIter, RunIter, RunSource};
use crate::snapshot_read::KeyRange;
use crate::spans::Spans;
use crate::table::TableIter;
use crate::version::TableHandle;

#[expect(clippy::large_enum_variant, reason = "a box would be one more allocation for each scan")]
pub(in crate::db) enum Sources {
    One(Source),
    Merge(MergeIter<Source>),
}

impl Sources {
    pub(in crate::db) fn new(view: &View, range: &KeyRange, past: Past, own: Option<&Arc<Spans>>) -> Self {
        let Past { seqno, horizon } = past;
        let (mut covers, mut first, mut others) = (Covers::new(past), None, Vec::new());
        let mut add = |source: Source| match first.take() {
            None if others.is_empty() => first = Some(source),
            earlier => {
                others.extend(earlier);
                others.push(source);
            }
        };
        own.into_iter().for_each(|own| covers.add(own, range));
        for memtable in view.memtables().map(|memtable| &memtable.memtable) {
            let spans = memtable.spans();
            if !spans.is_empty() {
                spans.lists_at(seqno).iter().for_each(|list| covers.add(list, range));
            }
            let seqno_max = memtable.seqno_max().unwrap_or(0);
            if matches!(memtable.len(), 1..) && seqno_max >= horizon {
                let source = Source::Memtable(memtable.iter());
                add(source.under(&covers, seqno, (0, || seqno_max)));
            }
        }
        for (_, run) in view.version.all_runs() {
            let part = run.between(|key| range.starts_after(key), |key| range.ends_before(key));
            if part.is_empty() {
                continue;
            }
            if view.version.has_spans() {
                covers.add_run(run, &part);
            }
            let tables = Arc::clone(&run.tables);
            let metas = || run.tables[part.clone()].iter().map(|table| &table.meta);
            let newest = || metas().map(|meta| meta.seqno_max).max().unwrap_or(0);
            if horizon > 0 && newest() < horizon {
                continue;
            }
            let oldest = if horizon == 0 { 0 } else { metas().map(|meta| meta.seqno_min).min().unwrap_or(0) };
            let source = Source::run(Tables { tables, part: part.clone(), fill_cache: true });
            add(source.under(&covers, seqno, (oldest, newest)));
        }
        first.map_or_else(|| Self::Merge(MergeIter::new(others)), Self::One)
    }
}

/// Returns, for each run, the tables with entries above a number that overlap `start..end`.
pub(in crate::db) fn newer_runs(view: &View, start: &[u8], end: Option<&[u8]>, above: SeqNo) -> Vec<Source> {
    let mut sources = Vec::new();
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

#[expect(clippy::large_enum_variant, reason = "a box would be one more allocation for each run of a scan")]
pub(in crate::db) enum Source {
    Memtable(MemtableIter),
    Run(RunIter<Tables>),
    Covered(Box<Covered<Self>>),
}

impl Source {
    fn run(tables: Tables) -> Self {
        Self::Run(RunIter::new(tables))
    }

    /// `seqno_max` returns the largest number in the source; all numbers are at least `seqno_min`.
    fn under(
        self,
        covers: &Covers,
        seqno: SeqNo,
        (seqno_min, seqno_max): (SeqNo, impl FnOnce() -> SeqNo),
    ) -> Self {
        if covers.is_empty(seqno_min) {
            return self;
        }
        Self::Covered(Box::new(Covered::new(self, covers.clone(), seqno.min(seqno_max()))))
    }
}

macro_rules! iterate_by_variant {
    ($iterator:ident: $($variant:ident),*) => {
        impl InternalIterator for $iterator {
            fn seek_first(&mut self) -> Step {
                match self { $(Self::$variant(iter) => iter.seek_first(),)* }
            }

            fn seek_last(&mut self) -> Step {
                match self { $(Self::$variant(iter) => iter.seek_last(),)* }
            }

            fn seek(&mut self, target: InternalKey<'_>) -> Step {
                match self { $(Self::$variant(iter) => iter.seek(target),)* }
            }

            fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
                match self { $(Self::$variant(iter) => iter.seek_before(target),)* }
            }

            #[inline(always)]
            fn next(&mut self) -> Step {
                match self { $(Self::$variant(iter) => iter.next(),)* }
            }

            #[inline(always)]
            fn prev(&mut self) -> Step {
                match self { $(Self::$variant(iter) => iter.prev(),)* }
            }

            #[inline(always)]
            fn key(&self) -> Option<InternalKey<'_>> {
                match self { $(Self::$variant(iter) => iter.key(),)* }
            }

            #[inline(always)]
            fn value(&self) -> EntryValue {
                match self { $(Self::$variant(iter) => iter.value(),)* }
            }

            #[inline]
            fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
                match self { $(Self::$variant(iter) => iter.lent(),)* }
            }

            #[inline(always)]
            fn block(&self) -> Option<&BlockIter> {
                match self { $(Self::$variant(iter) => iter.block(),)* }
            }

            #[inline(always)]
            fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
                match self { $(Self::$variant(iter) => iter.leading_block(limit),)* }
            }

            #[inline(always)]
            fn step_apart(&mut self) -> bool {
                match self { $(Self::$variant(iter) => iter.step_apart(),)* }
            }

            fn out_of_order(&self) -> Box<Error> {
                match self { $(Self::$variant(iter) => iter.out_of_order(),)* }
            }
        }
    };
}

iterate_by_variant!(Source: Memtable, Run, Covered);
iterate_by_variant!(Sources: One, Merge);

pub(in crate::db) struct Tables {
    tables: Arc<[Arc<TableHandle>]>,
    part: std::ops::Range<usize>,
    fill_cache: bool,
}

impl Tables {
    pub(in crate::db) fn to_compact(tables: Vec<Arc<TableHandle>>) -> Self {
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
