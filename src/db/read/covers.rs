//! The range deletes over what a scan reads, from the newest source to the oldest.
//!
//! A scan looks at the same stretch of keys for long. So what is found for a key is found with the bounds up to which it
//! holds, and each list remembers where it was.

use std::ops::Range;
use std::sync::Arc;

use crate::db::state::expiry::horizons::Past;
use crate::error::Result;
use crate::key::SeqNo;
use crate::limits::SEQNO_MAX;
use crate::snapshot_read::{KeyRange, successor};
use crate::spans::{Spans, Stretch};
use crate::version::{Run, TableHandle};

/// Lists of range deletes, from the newest to the oldest.
#[derive(Clone)]
pub(in crate::db) struct Covers {
    lists: Vec<List>,
    seqno: SeqNo,
    /// Entries with a smaller number have expired.
    horizon: SeqNo,
}

/// Spans that do not overlap, and where they were searched last.
#[derive(Clone)]
enum List {
    /// The reader sees all of them.
    Whole { spans: Arc<Spans>, near: usize },
    /// Those of tables of one run. They are looked at one by one, because they may have to be read.
    Run { tables: Arc<[Arc<TableHandle>]>, open: Option<(usize, Arc<Spans>)>, near: usize },
}

/// What is over a key, and for which keys around it that holds.
#[derive(Default)]
pub(super) struct Over {
    start: Vec<u8>,
    end: Vec<u8>,
    /// Whether there is no upper bound.
    is_open: bool,
    /// The number of the newest range delete, or the horizon if that is larger; 0 if there is neither.
    pub(super) newest: SeqNo,
    /// Whether that is the horizon. An entry may have its number, and is visible.
    is_horizon: bool,
}

impl Over {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        *self.start <= *key && (self.is_open || *key < *self.end)
    }

    /// The first key of the stretch, which may be the empty one.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The first key after the stretch.
    pub(super) fn end(&self) -> Option<&[u8]> {
        (!self.is_open).then_some(&self.end)
    }

    /// Whether it hides all entries up to this number.
    pub(super) fn hides_all(&self, seqno_max: SeqNo) -> bool {
        self.newest > seqno_max || self.newest == seqno_max && !self.is_horizon
    }

    fn begin(&mut self) {
        self.start.clear();
        self.is_open = true;
        self.newest = 0;
    }

    /// Takes over what is in a stretch for a reader at this number, and its bounds. Returns its place.
    fn enter(&mut self, stretch: Stretch<'_>, seqno: SeqNo) -> usize {
        self.newest = stretch.newest_at(seqno).unwrap_or(0);
        self.narrow(stretch.start, stretch.end);
        stretch.place
    }

    /// Ends where this does, if that is nearer.
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
    /// None so far, for a reader at this moment. The horizon hides entries like a range delete of all keys with its number.
    pub(super) fn new(past: Past) -> Self {
        let Past { seqno, horizon } = past;
        Self { lists: Vec::new(), seqno, horizon }
    }

    /// Whether no entry of a source is hidden whose numbers are at least this one.
    pub(super) fn is_empty(&self, seqno_min: SeqNo) -> bool {
        self.lists.is_empty() && self.horizon <= seqno_min
    }

    /// Adds older spans, which the reader sees, if any is in the range.
    pub(super) fn add(&mut self, spans: &Arc<Spans>, range: &KeyRange) {
        let starts_in = spans.start().is_some_and(|start| !range.ends_before(start));
        let ends_in = spans.end().is_some_and(|end| end.is_none_or(|end| !range.starts_after(end)));
        if starts_in && ends_in {
            self.lists.push(List::Whole { spans: Arc::clone(spans), near: 0 });
        }
    }

    /// Adds those of this part of a run, which are older.
    pub(super) fn add_run(&mut self, run: &Run, part: &Range<usize>) {
        let with_spans = run.tables[part.clone()].iter().filter(|table| table.meta.spans.is_some());
        let tables: Arc<[_]> = with_spans.cloned().collect();
        if !tables.is_empty() {
            self.lists.push(List::Run { tables, open: None, near: 0 });
        }
    }

    /// Finds what is over a key.
    pub(super) fn find(&mut self, key: &[u8], over: &mut Over) -> Result<()> {
        over.begin();
        for list in &mut self.lists {
            list.narrow(key, self.seqno, over)?;
            // What is older has smaller numbers.
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
                let at = tables.partition_point(|table| *table.meta.largest < *key);
                let table = tables.get(at).filter(|table| *table.meta.smallest <= *key);
                if let Some(table) = table {
                    let spans = match open.take() {
                        Some((of, spans)) if of == at => spans,
                        _ => table.spans()?.unwrap_or_default(),
                    };
                    *near = over.enter(spans.stretch_near(key, *near), seqno);
                    *open = Some((at, spans));
                }
                // Where the bounds of the table end, others may begin.
                let before = at.checked_sub(1).map(|before| successor(&tables[before].meta.largest));
                let next = tables.get(at + usize::from(table.is_some()));
                over.narrow(before.as_deref(), next.map(|next| &*next.meta.smallest));
            }
        }
        Ok(())
    }
}
