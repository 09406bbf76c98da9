//! The range deletes over the sources of a scan, newest first.
//!
//! Neighbouring keys usually have the same result. So each result includes its bounds, and each list caches its
//! position.

use std::ops::Range;
use std::sync::Arc;

use crate::db::state::expiry::horizons::Past;
use crate::error::Result;
use crate::key::{SeqNo, compare_keys};
use crate::limits::SEQNO_MAX;
use crate::snapshot_read::{KeyRange, successor};
use crate::spans::{Spans, Stretch};
use crate::version::{Run, TableHandle};

#[derive(Clone)]
pub(in crate::db) struct Covers {
    lists: Vec<List>,
    seqno: SeqNo,
    horizon: SeqNo,
}

#[derive(Clone)]
enum List {
    Whole {
        spans: Arc<Spans>,
        near: usize,
    },
    /// The tables of one run. Each is examined separately, because its spans may have to be read.
    Run {
        tables: Arc<[Arc<TableHandle>]>,
        open: Option<(usize, Arc<Spans>)>,
        near: usize,
    },
}

/// The newest range delete over a key, and the bounds of this answer.
#[derive(Default)]
pub(super) struct Over {
    start: Vec<u8>,
    end: Vec<u8>,
    is_open: bool,
    /// The number of the newest range delete, or the horizon if larger; 0 if there is neither.
    pub(super) newest: SeqNo,
    /// `newest` is the horizon, so an entry with this number is visible.
    is_horizon: bool,
}

impl Over {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        compare_keys(&self.start, key).is_le() && (self.is_open || compare_keys(key, &self.end).is_lt())
    }

    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    pub(super) fn end(&self) -> Option<&[u8]> {
        (!self.is_open).then_some(&self.end)
    }

    pub(super) fn hides_all(&self, seqno_max: SeqNo) -> bool {
        self.newest > seqno_max || self.newest == seqno_max && !self.is_horizon
    }

    fn begin(&mut self) {
        self.start.clear();
        self.is_open = true;
        self.newest = 0;
    }

    fn enter(&mut self, stretch: Stretch<'_>, seqno: SeqNo) -> usize {
        self.newest = stretch.newest_at(seqno).unwrap_or(0);
        self.narrow(stretch.start, stretch.end);
        stretch.place
    }

    fn narrow(&mut self, start: Option<&[u8]>, end: Option<&[u8]>) {
        if let Some(start) = start.filter(|start| **start > *self.start) {
            self.start.clear();
            self.start.extend_from_slice(start);
        }
        if let Some(end) = end.filter(|end| self.is_open || **end < *self.end) {
            self.is_open = false;
            self.end.clear();
            self.end.extend_from_slice(end);
        }
    }
}

impl Covers {
    pub(super) fn new(past: Past) -> Self {
        let Past { seqno, horizon } = past;
        Self { lists: Vec::new(), seqno, horizon }
    }

    pub(super) fn is_empty(&self, seqno_min: SeqNo) -> bool {
        self.lists.is_empty() && self.horizon <= seqno_min
    }

    pub(super) fn add(&mut self, spans: &Arc<Spans>, range: &KeyRange) {
        let starts_in = spans.start().is_some_and(|start| !range.ends_before(start));
        let ends_in = spans.end().is_some_and(|end| end.is_none_or(|end| !range.starts_after(end)));
        if starts_in && ends_in {
            self.lists.push(List::Whole { spans: Arc::clone(spans), near: 0 });
        }
    }

    pub(super) fn add_run(&mut self, run: &Run, part: &Range<usize>) {
        let with_spans = run.tables[part.clone()].iter().filter(|table| table.meta.spans.is_some());
        let tables: Arc<[_]> = with_spans.cloned().collect();
        if !tables.is_empty() {
            self.lists.push(List::Run { tables, open: None, near: 0 });
        }
    }

    pub(super) fn find(&mut self, key: &[u8], over: &mut Over) -> Result<()> {
        over.begin();
        for list in &mut self.lists {
            list.narrow(key, self.seqno, over)?;
            if over.newest > 0 {
                break;
            }
        }
        over.is_horizon = self.horizon > over.newest;
        over.newest = over.newest.max(self.horizon);
        Ok(())
    }
}

impl List {
    fn narrow(&mut self, key: &[u8], seqno: SeqNo, over: &mut Over) -> Result<()> {
        match self {
            Self::Whole { spans, near } => *near = over.enter(spans.stretch_near(key, *near), SEQNO_MAX),
            Self::Run { tables, open, near } => {
                let at = tables.partition_point(|table| compare_keys(&table.meta.largest, key).is_lt());
                let table = tables.get(at).filter(|table| compare_keys(&table.meta.smallest, key).is_le());
                if let Some(table) = table {
                    let spans = match open.take() {
                        Some((of, spans)) if of == at => spans,
                        _ => table.spans()?.unwrap_or_default(),
                    };
                    *near = over.enter(spans.stretch_near(key, *near), seqno);
                    *open = Some((at, spans));
                }
                // Other tables may begin at the bounds of this one.
                let before = at.checked_sub(1).map(|before| successor(&tables[before].meta.largest));
                let next = tables.get(at + usize::from(table.is_some()));
                over.narrow(before.as_deref(), next.map(|next| &*next.meta.smallest));
            }
        }
        Ok(())
    }
}
