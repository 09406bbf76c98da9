//! Sorted inputs of the merge: chains of disjoint tables, and the writes of the logs.
//!
//! A chain opens one table at a time. Its unreadable bytes form a [`Gap`] of keys until the merge has passed them.

use std::collections::VecDeque;
use std::ops::Bound;

use bytes::Bytes;

use super::plan::{KeyRange, Planned, Rank};
use super::report::{LostEntries, LostRange};
use super::spill::LoggedWrites;
use super::survey::Survey;
use crate::db::check::repair::plan::Head;
use crate::error::Result;
use crate::filename::FileName;
use crate::inspect::TableStream;
use crate::key::SeqNo;
use crate::sorting::sort_by;

#[derive(Debug)]
struct Gap {
    range: LostRange,
    seqno_max: Option<SeqNo>,
}

pub(super) enum Source<'a> {
    Tables(Box<Chain<'a>>),
    Log(Box<LoggedWrites>),
}

impl Source<'_> {
    pub(super) fn head(&self) -> Option<&Head> {
        match self {
            Self::Tables(chain) => chain.head.as_ref(),
            Self::Log(writes) => writes.head(),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        match self {
            Self::Tables(chain) => chain.rank,
            Self::Log(_) => Rank::Log,
        }
    }

    pub(super) fn is_covered(&self) -> bool {
        matches!(self, Self::Tables(chain) if chain.is_covered())
    }

    pub(super) fn value(&self) -> Result<Option<Bytes>> {
        match self {
            Self::Tables(chain) => Ok(chain.stream().and_then(TableStream::value)),
            Self::Log(writes) => writes.value(),
        }
    }

    /// Skips all entries of `user`. If a table ends here, reports its losses.
    pub(super) fn pass(&mut self, user: &[u8], lost: &mut Vec<LostEntries>) -> Result<()> {
        match self {
            Self::Tables(chain) => chain.pass(user, lost),
            Self::Log(writes) => writes.pass(user),
        }
    }

    pub(super) fn may_hide(&self, user: &[u8], seqno: SeqNo) -> bool {
        match self {
            Self::Tables(chain) => chain.may_hide(user, seqno),
            Self::Log(_) => false,
        }
    }

    pub(super) fn lose_value(&mut self) {
        if let Self::Tables(chain) = self {
            chain.lose_value();
        }
    }
}

pub(super) struct Chain<'a> {
    survey: &'a Survey,
    keyspace: Option<String>,
    rank: Rank,
    rest: VecDeque<Planned>,
    current: Option<Current>,
    head: Option<Head>,
    gaps: VecDeque<Gap>,
}

struct Current {
    planned: Planned,
    stream: TableStream,
    lost: LostEntries,
    values: u64,
}

impl<'a> Chain<'a> {
    pub(super) fn new(
        survey: &'a Survey,
        keyspace: Option<String>,
        tables: Vec<Planned>,
        lost: &mut Vec<LostEntries>,
    ) -> Result<Self> {
        let rank = tables.first().map_or(Rank::Log, |planned| planned.rank);
        let (rest, gaps) = (tables.into(), VecDeque::new());
        let mut chain = Self { survey, keyspace, rank, rest, current: None, head: None, gaps };
        chain.advance(lost)?;
        Ok(chain)
    }

    fn stream(&self) -> Option<&TableStream> {
        self.current.as_ref().map(|current| &current.stream)
    }

    fn is_covered(&self) -> bool {
        let (Some(current), Some(head)) = (&self.current, &self.head) else { return false };
        let holds = |(from, to): &KeyRange| LostRange::new(from, to).contains(&head.user);
        current.planned.covered.iter().any(holds)
    }

    fn may_hide(&self, user: &[u8], seqno: SeqNo) -> bool {
        self.gaps.iter().any(|gap| {
            gap.range.contains(user) && (seqno == 0 || gap.seqno_max.is_none_or(|max| seqno <= max))
        })
    }

    fn lose_value(&mut self) {
        if let (Some(current), Some(head)) = (&mut self.current, &self.head) {
            let key = Bound::Included(head.user.clone());
            current.lost.add(LostRange::new(&key, &key));
            current.values += 1;
        }
    }

    fn pass(&mut self, user: &[u8], lost: &mut Vec<LostEntries>) -> Result<()> {
        while self.head.as_ref().is_some_and(|head| head.user == user) {
            self.advance(lost)?;
        }
        let is_behind = |gap: &Gap| match &gap.range.to {
            Bound::Unbounded => false,
            Bound::Included(to) | Bound::Excluded(to) => &to[..] <= user,
        };
        while self.gaps.front().is_some_and(is_behind) {
            self.gaps.pop_front();
        }
        Ok(())
    }

    fn advance(&mut self, lost: &mut Vec<LostEntries>) -> Result<()> {
        loop {
            if self.current.is_none() {
                match self.rest.pop_front() {
                    Some(planned) => self.open(planned, lost)?,
                    None => {
                        self.head = None;
                        return Ok(());
                    }
                }
                continue;
            }
            if self.step() {
                return Ok(());
            }
            if let Some(mut current) = self.current.take() {
                let expected = current.planned.table.entries;
                let missing = expected.map(|expected| expected.saturating_sub(current.stream.entries));
                current.lost.entries = missing.map(|missing| missing + current.values);
                if !current.lost.ranges.is_empty() {
                    lost.push(current.lost);
                }
            }
            self.head = None;
        }
    }

    /// Returns `false` at the end of the table. If all entries were read, other damage has caused no loss.
    fn step(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        let before = self.head.take().map(|head| head.user);
        current.stream.next();
        let table = &current.planned.table;
        let key = current.stream.key();
        let is_whole = key.is_none() && table.entries == Some(current.stream.entries);
        if current.stream.lost_before() && !is_whole {
            let bounds = table.bounds.as_ref();
            let first = || bounds.map_or(Bound::Unbounded, |bounds| Bound::Included(bounds.0.clone()));
            let from = before.map_or_else(first, Bound::Excluded);
            let to = match &key {
                // A newer entry of this key may be lost, unless each key has one entry.
                Some(key) if table.has_single_entries => Bound::Excluded(Bytes::copy_from_slice(key.user)),
                Some(key) => Bound::Included(Bytes::copy_from_slice(key.user)),
                None => bounds.map_or(Bound::Unbounded, |bounds| Bound::Included(bounds.1.clone())),
            };
            let range = LostRange::new(&from, &to);
            current.lost.add(range.clone());
            self.gaps.push_back(Gap { range, seqno_max: table.seqno_max });
        }
        let Some(key) = key else { return false };
        self.head = Some(Head {
            user: Bytes::copy_from_slice(key.user),
            tag: key.tag,
            certainty: current.planned.certainty,
            age: if key.tag.seqno() > 0 { key.tag.seqno() } else { table.newest().unwrap_or(0) },
            number: table.number,
        });
        true
    }

    fn open(&mut self, planned: Planned, lost: &mut Vec<LostEntries>) -> Result<()> {
        let table = &planned.table;
        let mut own = LostEntries {
            file: FileName::Table(table.number).to_string(),
            keyspace: self.keyspace.clone(),
            ranges: Vec::new(),
            entries: None,
            whole: false,
        };
        match self.survey.open_table(table.number) {
            Some((file, facts)) if table.is_readable => {
                let stream = TableStream::new(file, &facts);
                self.current = Some(Current { planned, stream, lost: own, values: 0 });
            }
            _ if planned.is_all_covered => {}
            _ => {
                let bound = |bound: Option<&Bytes>| {
                    bound.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()))
                };
                let bounds = table.bounds.as_ref();
                let range = LostRange::new(
                    &bound(bounds.map(|bounds| &bounds.0)),
                    &bound(bounds.map(|bounds| &bounds.1)),
                );
                own.add(range.clone());
                (own.entries, own.whole) = (table.entries, true);
                lost.push(own);
                self.gaps.push_back(Gap { range, seqno_max: table.seqno_max });
            }
        }
        Ok(())
    }
}

pub(super) fn chains(mut tables: Vec<Planned>) -> Vec<Vec<Planned>> {
    sort_by(&mut tables, |a, b| {
        let smallest = |planned: &Planned| planned.table.bounds.as_ref().map(|bounds| bounds.0.clone());
        (a.rank, smallest(a), a.table.number).cmp(&(b.rank, smallest(b), b.table.number))
    });
    let mut chains: Vec<Vec<Planned>> = Vec::new();
    for planned in tables {
        let follows = |chain: &&mut Vec<Planned>| {
            let last = chain.last().filter(|last| last.rank == planned.rank);
            let end = last.and_then(|last| last.table.bounds.as_ref());
            end.zip(planned.table.bounds.as_ref()).is_some_and(|(end, bounds)| end.1 < bounds.0)
        };
        match chains.iter_mut().find(follows) {
            Some(chain) => chain.push(planned),
            None => chains.push(vec![planned]),
        }
    }
    chains
}
