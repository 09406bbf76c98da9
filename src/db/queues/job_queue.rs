//! Keyspaces with background work, by urgency.
//!
//! A keyspace is *marked* when its view, options or reservations change. Marked keyspaces are examined before a job is chosen,
//! which is O(log n); idle ones cost nothing.
//!
//! - *Flushes*: first keyspaces with slowed writers (more than one waiting memtable), then by waiting bytes; every
//!   fourth time the oldest request, which frees old logs.
//! - *Compactions*: by [`Urgency`].
//! - *Idle compactions*: level 0 of a keyspace, after some time without other work.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::batch::KeyspaceId;
use crate::compaction::task::Urgency;
use crate::key::SeqNo;
use crate::number_map::{Number, NumberMap, NumberSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) struct FlushUrgency {
    pub(in crate::db) beyond_first: usize,
    pub(in crate::db) bytes: usize,
}

impl Number for FlushUrgency {
    fn to_u128(self) -> u128 {
        (self.beyond_first as u64, self.bytes as u64).to_u128()
    }
}

const OLDEST_ONE_IN: u64 = 4;

#[derive(Default)]
pub(in crate::db) struct Pending {
    flushes: Queue<FlushUrgency>,
    compactions: Queue<Urgency>,
    /// Keyspaces with tombstones that snapshots protect, by the snapshot that releases them.
    held_back: NumberSet<(SeqNo, KeyspaceId)>,
    held_back_until: NumberMap<KeyspaceId, SeqNo>,
    idle: BTreeSet<(Instant, KeyspaceId)>,
    idle_at: NumberMap<KeyspaceId, Instant>,
    idle_not_before: Option<Instant>,
    chosen: u64,
    looks: u64,
}

impl Pending {
    pub(in crate::db) fn set(
        &mut self,
        keyspace: KeyspaceId,
        flush: Option<FlushUrgency>,
        compaction: Option<Urgency>,
    ) {
        self.looks += 1;
        self.flushes.set(keyspace, flush);
        self.compactions.set(keyspace, compaction);
    }

    /// `until` is the oldest snapshot at which compactions become possible.
    pub(in crate::db) fn set_held_back(&mut self, keyspace: KeyspaceId, until: Option<SeqNo>) {
        if let Some(before) = self.held_back_until.remove(&keyspace) {
            self.held_back.remove(&(before, keyspace));
        }
        if let Some(until) = until {
            self.held_back.insert((until, keyspace));
            self.held_back_until.insert(keyspace, until);
        }
    }

    pub(in crate::db) fn released(&self, oldest_snapshot: SeqNo) -> Vec<KeyspaceId> {
        let held_back = self.held_back.iter();
        held_back.take_while(|(until, _)| *until <= oldest_snapshot).map(|&(_, keyspace)| keyspace).collect()
    }

    pub(in crate::db) fn awaited(&self) -> SeqNo {
        self.held_back.first().map_or(SeqNo::MAX, |&(until, _)| until)
    }

    pub(in crate::db) fn set_idle(&mut self, keyspace: KeyspaceId, at: Option<Instant>) {
        if let Some(before) = self.idle_at.remove(&keyspace) {
            self.idle.remove(&(before, keyspace));
        }
        if let Some(at) = at {
            self.idle.insert((at, keyspace));
            self.idle_at.insert(keyspace, at);
        }
    }

    pub(in crate::db) fn take_idle(&mut self, now: Instant) -> Option<KeyspaceId> {
        self.next_idle().filter(|at| *at <= now)?;
        let &(_, keyspace) = self.idle.first()?;
        self.set_idle(keyspace, None);
        Some(keyspace)
    }

    pub(in crate::db) fn next_idle(&self) -> Option<Instant> {
        self.idle.first().map(|&(at, _)| self.idle_not_before.map_or(at, |not_before| at.max(not_before)))
    }

    pub(in crate::db) fn put_off_idle(&mut self, until: Instant) {
        self.idle_not_before = Some(until);
    }

    pub(in crate::db) fn make_idle_due(&mut self, now: Instant) -> bool {
        let were_due = self.idle_not_before.take().is_none_or(|not_before| not_before <= now);
        let later: Vec<KeyspaceId> =
            self.idle.iter().rev().map_while(|&(at, keyspace)| (at > now).then_some(keyspace)).collect();
        let any = !later.is_empty();
        later.into_iter().for_each(|keyspace| self.set_idle(keyspace, Some(now)));
        any || !were_due
    }

    pub(in crate::db) fn is_any_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    pub(in crate::db) fn take_flush(&mut self) -> Option<KeyspaceId> {
        let is_turn_of_oldest = self.chosen % OLDEST_ONE_IN == OLDEST_ONE_IN - 1;
        let next = if is_turn_of_oldest { self.flushes.oldest() } else { self.flushes.first() }?;
        self.chosen += 1;
        self.flushes.set(next, None);
        Some(next)
    }

    /// Takes the most urgent flush if it frees at most `bytes_max` and slows no writer.
    pub(in crate::db) fn take_small_flush(&mut self, bytes_max: usize) -> Option<KeyspaceId> {
        let next = self.flushes.first()?;
        let (FlushUrgency { beyond_first, bytes }, _) = self.flushes.places[&next];
        (beyond_first == 0 && bytes <= bytes_max).then(|| self.flushes.set(next, None))?;
        Some(next)
    }

    pub(in crate::db) fn take_compaction(&mut self) -> Option<KeyspaceId> {
        let next = self.compactions.first()?;
        self.compactions.set(next, None);
        Some(next)
    }

    pub(in crate::db) fn is_empty(&self) -> bool {
        self.flushes.places.is_empty() && self.compactions.places.is_empty()
    }

    #[cfg(test)]
    pub(in crate::db) fn looks(&self) -> u64 {
        self.looks
    }
}

struct Queue<U> {
    places: NumberMap<KeyspaceId, (U, u64)>,
    by_urgency: BTreeSet<(u128, std::cmp::Reverse<u64>, KeyspaceId)>,
    by_arrival: NumberSet<(u64, KeyspaceId)>,
    arrivals: u64,
}

impl<U> Default for Queue<U> {
    fn default() -> Self {
        Self {
            places: NumberMap::new(),
            by_urgency: BTreeSet::new(),
            by_arrival: NumberSet::new(),
            arrivals: 0,
        }
    }
}

impl<U: Number> Queue<U> {
    fn set(&mut self, keyspace: KeyspaceId, urgency: Option<U>) {
        let place = self.places.remove(&keyspace);
        if let Some((urgency, arrival)) = place {
            self.by_urgency.remove(&(urgency.to_u128(), std::cmp::Reverse(arrival), keyspace));
            self.by_arrival.remove(&(arrival, keyspace));
        }
        if let Some(urgency) = urgency {
            let arrival = place.map_or(self.arrivals, |(_, arrival)| arrival);
            self.arrivals += 1;
            self.places.insert(keyspace, (urgency, arrival));
            self.by_urgency.insert((urgency.to_u128(), std::cmp::Reverse(arrival), keyspace));
            self.by_arrival.insert((arrival, keyspace));
        }
    }

    fn first(&self) -> Option<KeyspaceId> {
        self.by_urgency.last().map(|&(_, _, keyspace)| keyspace)
    }

    fn oldest(&self) -> Option<KeyspaceId> {
        self.by_arrival.first().map(|&(_, keyspace)| keyspace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(beyond_first: usize, bytes: usize) -> Option<FlushUrgency> {
        Some(FlushUrgency { beyond_first, bytes })
    }

    #[test]
    fn flushes_that_slow_writers_come_first_then_large_ones_and_in_their_turn_old_ones() {
        let mut pending = Pending::default();
        for (keyspace, urgency) in
            [(1, flush(0, 5)), (2, flush(0, 90)), (3, flush(1, 10)), (4, flush(0, 90)), (5, flush(0, 6))]
        {
            pending.set(keyspace, urgency, None);
        }
        let order: Vec<_> = std::iter::from_fn(|| pending.take_flush()).collect();
        assert_eq!(order, [3, 2, 4, 1, 5], "the fourth is the one that came first");
        assert!(pending.is_empty());
    }

    #[test]
    fn a_flush_joins_others_only_if_it_is_small_and_slows_no_writer() {
        let mut pending = Pending::default();
        pending.set(1, flush(0, 9), None);
        pending.set(2, flush(0, 8), None);
        assert_eq!(
            [8, 9, 7, 8, 8].map(|bytes| pending.take_small_flush(bytes)),
            [None, Some(1), None, Some(2), None]
        );
        pending.set(3, flush(1, 1), None);
        assert_eq!((pending.take_small_flush(9), pending.take_flush()), (None, Some(3)));
    }

    #[test]
    fn a_keyspace_that_becomes_more_urgent_keeps_its_age() {
        let mut pending = Pending::default();
        pending.set(1, flush(0, 1), None);
        pending.set(2, flush(0, 1), None);
        pending.set(1, flush(0, 2), None);
        assert_eq!(pending.flushes.oldest(), Some(1));
        pending.set(1, None, None);
        assert_eq!((pending.flushes.oldest(), pending.flushes.first()), (Some(2), Some(2)));
    }
}
