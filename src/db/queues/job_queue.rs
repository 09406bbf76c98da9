//! Keyspaces with background work, by urgency.
//!
//! A keyspace is *marked* when its view, options or reservations change. Marked keyspaces are examined before a job is chosen,
//! which is O(log n); idle ones cost nothing.
//!
//! - *Flushes*: first for keyspaces with slowed writers (more than one waiting memtable), then by waiting bytes. Every
//!   fourth time, the oldest request comes first, to free old logs.
//! - *Compactions*: by [`Urgency`].
//! - *Idle compactions*: level 0 of a keyspace, after some time without other work.

use std::time::{Duration, Instant};

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
    held_back: Ordered,
    /// By the nanoseconds since `begun` at which they are idle.
    idle: Ordered,
    begun: Begun,
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

    /// Compactions become possible when the oldest snapshot is at least `until`.
    pub(in crate::db) fn set_held_back(&mut self, keyspace: KeyspaceId, until: Option<SeqNo>) {
        self.held_back.set(keyspace, until);
    }

    pub(in crate::db) fn released(&self, oldest_snapshot: SeqNo) -> Vec<KeyspaceId> {
        let held_back = self.held_back.order.iter();
        held_back.take_while(|(until, _)| *until <= oldest_snapshot).map(|&(_, keyspace)| keyspace).collect()
    }

    pub(in crate::db) fn awaited(&self) -> SeqNo {
        self.held_back.order.first().map_or(SeqNo::MAX, |&(until, _)| until)
    }

    pub(in crate::db) fn set_idle(&mut self, keyspace: KeyspaceId, at: Option<Instant>) {
        let begun = self.begun.0;
        let nanos = |at: Instant| at.saturating_duration_since(begun).as_nanos() as u64;
        self.idle.set(keyspace, at.map(nanos));
    }

    pub(in crate::db) fn take_idle(&mut self, now: Instant) -> Option<KeyspaceId> {
        self.next_idle().filter(|at| *at <= now)?;
        let &(_, keyspace) = self.idle.order.first()?;
        self.idle.set(keyspace, None);
        Some(keyspace)
    }

    pub(in crate::db) fn next_idle(&self) -> Option<Instant> {
        let &(nanos, _) = self.idle.order.first()?;
        let at = self.begun.0 + Duration::from_nanos(nanos);
        Some(self.idle_not_before.map_or(at, |not_before| at.max(not_before)))
    }

    pub(in crate::db) fn put_off_idle(&mut self, until: Instant) {
        self.idle_not_before = Some(until);
    }

    pub(in crate::db) fn make_idle_due(&mut self, now: Instant) -> bool {
        let were_due = self.idle_not_before.take().is_none_or(|not_before| not_before <= now);
        let due = now.saturating_duration_since(self.begun.0).as_nanos() as u64;
        let later = self.idle.order.iter().rev().take_while(|(nanos, _)| *nanos > due);
        let later: Vec<KeyspaceId> = later.map(|&(_, keyspace)| keyspace).collect();
        let any = !later.is_empty();
        later.into_iter().for_each(|keyspace| self.idle.set(keyspace, Some(due)));
        any || !were_due
    }

    pub(in crate::db) fn is_any_idle(&self) -> bool {
        !self.idle.order.is_empty()
    }

    pub(in crate::db) fn take_flush(&mut self) -> Option<KeyspaceId> {
        let is_turn_of_oldest = self.chosen % OLDEST_ONE_IN == OLDEST_ONE_IN - 1;
        let next = if is_turn_of_oldest { self.flushes.oldest() } else { self.flushes.first() }?;
        self.chosen += 1;
        self.flushes.set(next, None);
        Some(next)
    }

    /// Takes the most urgent flush if it frees at most `bytes_max` and the writers of its keyspace are not slowed.
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

/// Keyspaces in the order of a number of each.
#[derive(Default)]
struct Ordered {
    order: NumberSet<(u64, KeyspaceId)>,
    numbers: NumberMap<KeyspaceId, u64>,
}

impl Ordered {
    fn set(&mut self, keyspace: KeyspaceId, number: Option<u64>) {
        if let Some(before) = self.numbers.remove(&keyspace) {
            self.order.remove(&(before, keyspace));
        }
        if let Some(number) = number {
            self.order.insert((number, keyspace));
            self.numbers.insert(keyspace, number);
        }
    }
}

struct Begun(Instant);

impl Default for Begun {
    fn default() -> Self {
        Self(Instant::now())
    }
}

struct Queue<U> {
    places: NumberMap<KeyspaceId, (U, u64)>,
    /// By arrival, for each urgency.
    by_urgency: NumberMap<u128, NumberSet<(u64, KeyspaceId)>>,
    by_arrival: NumberSet<(u64, KeyspaceId)>,
    arrivals: u64,
}

impl<U> Default for Queue<U> {
    fn default() -> Self {
        Self {
            places: NumberMap::new(),
            by_urgency: NumberMap::new(),
            by_arrival: NumberSet::new(),
            arrivals: 0,
        }
    }
}

impl<U: Number> Queue<U> {
    fn set(&mut self, keyspace: KeyspaceId, urgency: Option<U>) {
        let place = self.places.remove(&keyspace);
        if let Some((urgency, arrival)) = place {
            let urgency = urgency.to_u128();
            let equal = self.by_urgency.get_or_insert_with(urgency, NumberSet::new);
            equal.remove(&(arrival, keyspace));
            if equal.is_empty() {
                self.by_urgency.remove(&urgency);
            }
            self.by_arrival.remove(&(arrival, keyspace));
        }
        if let Some(urgency) = urgency {
            let arrival = place.map_or(self.arrivals, |(_, arrival)| arrival);
            self.arrivals += 1;
            self.places.insert(keyspace, (urgency, arrival));
            let equal = self.by_urgency.get_or_insert_with(urgency.to_u128(), NumberSet::new);
            equal.insert((arrival, keyspace));
            self.by_arrival.insert((arrival, keyspace));
        }
    }

    fn first(&self) -> Option<KeyspaceId> {
        self.by_urgency.last_key_value()?.1.first().map(|&(_, keyspace)| keyspace)
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
