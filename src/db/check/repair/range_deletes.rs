//! The surviving range deletes of a keyspace.
//!
//! A certain range delete hides older entries; a doubtful one makes them doubtful. Unreadable spans are reported as
//! lost. They are treated as one doubtful range delete over the table, with the table's largest sequence number.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::plan::{Certainty, Head, KeyRange, Planned};
use super::report::{LostEntries, LostRange};
use super::survey::Survey;
use crate::error::Result;
use crate::filename::FileName;
use crate::key::{SeqNo, key_after};
use crate::limits::SEQNO_MAX;
use crate::spans::{RangeDelete, Spans, fragment};

pub(super) type Logged = (RangeDelete, Certainty);

struct Source {
    spans: Spans,
    certainty: Certainty,
    covered: Vec<KeyRange>,
}

#[derive(Default)]
pub(super) struct RangeDeletes(Vec<Source>);

impl RangeDeletes {
    pub(super) fn read(
        survey: &Survey,
        keyspace: Option<&str>,
        tables: &[Planned],
        logged: &[Logged],
        lost: &mut Vec<LostEntries>,
    ) -> Result<Self> {
        let mut all = Self::default();
        for planned in tables {
            all.read_table(survey, keyspace, planned, lost);
        }
        for certainty in [Certainty::Certain, Certainty::Doubtful] {
            let own = logged.iter().filter(|(_, other)| *other == certainty).map(|(own, _)| own.clone());
            all.add(own, certainty, Vec::new());
        }
        Ok(all)
    }

    fn add(
        &mut self,
        range_deletes: impl IntoIterator<Item = RangeDelete>,
        certainty: Certainty,
        covered: Vec<KeyRange>,
    ) {
        let spans = fragment(range_deletes, &[]);
        if !spans.is_empty() {
            self.0.push(Source { spans, certainty, covered });
        }
    }

    fn read_table(
        &mut self,
        survey: &Survey,
        keyspace: Option<&str>,
        planned: &Planned,
        lost: &mut Vec<LostEntries>,
    ) {
        let table = &planned.table;
        let opened = survey.open_table(table.number).filter(|_| table.is_readable);
        let has_spans = match survey.metas.get(&table.number) {
            Some(meta) => meta.spans.is_some(),
            None => opened.as_ref().is_some_and(|(_, facts)| facts.has_spans()),
        };
        if planned.is_all_covered || !has_spans {
            return;
        }
        if let Some(spans) = opened.and_then(|(file, facts)| facts.read_spans(&*file)) {
            return self.add(spans, planned.certainty, planned.covered.clone());
        }
        let key = |key: &Bytes| Arc::from(&key[..]);
        let bounds = table.bounds.as_ref();
        let start = bounds.map_or_else(|| Arc::from(&[][..]), |(smallest, _)| key(smallest));
        let end = bounds.and_then(|(_, largest)| key_after(largest)).map(Arc::from);
        let seqno = table.seqno_max.unwrap_or(SEQNO_MAX);
        self.add([RangeDelete { start, end, seqno }], Certainty::Doubtful, planned.covered.clone());
        let bound = |key: Option<&Bytes>| key.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()));
        let (from, to) = (bound(bounds.map(|own| &own.0)), bound(bounds.map(|own| &own.1)));
        let mut own = LostEntries {
            file: FileName::Table(table.number).to_string(),
            keyspace: keyspace.map(str::to_owned),
            ranges: Vec::new(),
            entries: None,
            whole: false,
        };
        own.add(LostRange::new(&from, &to));
        lost.push(own);
    }

    pub(super) fn leave(&self, head: &Head, certainty: Certainty) -> Option<Certainty> {
        // A zeroed number may be as new as the newest number in its table.
        let seqno = if certainty == Certainty::Certain { head.tag.seqno() } else { head.age };
        let over = |certainty| self.over(&head.user, certainty).is_some_and(|span| span > seqno);
        match (over(Certainty::Certain), over(Certainty::Doubtful)) {
            (true, _) => None,
            (false, true) => Some(Certainty::Doubtful),
            (false, false) => Some(certainty),
        }
    }

    fn over(&self, user: &[u8], certainty: Certainty) -> Option<SeqNo> {
        let counts = |source: &&Source| {
            let is_covered = |(from, to): &KeyRange| LostRange::new(from, to).contains(user);
            source.certainty == certainty && !source.covered.iter().any(is_covered)
        };
        self.0.iter().filter(counts).filter_map(|source| source.spans.covering(user, SEQNO_MAX)).max()
    }
}
