//! Which keyspaces have work for the background, most urgent first.
//!
//! A keyspace is *marked* when something changes that may give it work: its view, its options, what running
//! jobs have reserved of it. Before a job is chosen, the marked keyspaces are looked at and put into two
//! queues, one of memtables to flush and one of compactions. No other keyspace is looked at, so the choice
//! takes O(log n) of n keyspaces with work, and those without cost nothing.
//!
//! *Flushes*: keyspaces whose writers are slowed, because more than one memtable waits, come first; then those
//! with most bytes waiting. Every fourth choice is the keyspace that has waited longest, so that none waits
//! for ever (an old memtable also keeps old logs). *Compactions*: by [`Urgency`]. *Idle compactions*:
//! keyspaces whose level 0 is merged early once they have had nothing else to do for some time.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::batch::KeyspaceId;
use crate::compaction::task::Urgency;
use crate::key::SeqNo;

/// How much a flush is needed: the memtables that wait beyond the first, then the bytes that it frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::db) struct FlushUrgency {
    pub(in crate::db) beyond_first: usize,
    pub(in crate::db) bytes: usize,
}

/// Each fourth flush is that of the keyspace that has waited longest.
const OLDEST_ONE_IN: u64 = 4;

/// The keyspaces with work.
#[derive(Default)]
pub(in crate::db) struct Pending {
    flushes: Queue<FlushUrgency>,
    compactions: Queue<Urgency>,
    /// Keyspaces with tombstones that snapshots hold back, by the number of the snapshot that would not.
    held_back: BTreeSet<(SeqNo, KeyspaceId)>,
    held_back_until: HashMap<KeyspaceId, SeqNo>,
    /// When the idle compaction of a keyspace is due.
    idle: BTreeSet<(Instant, KeyspaceId)>,
    idle_at: HashMap<KeyspaceId, Instant>,
    /// No idle compaction is due before.
    idle_not_before: Option<Instant>,
    /// Flushes chosen so far.
    chosen: u64,
    /// How often a keyspace was looked at, for tests.
    looks: u64,
}

impl Pending {
    /// Sets what a keyspace has to do, as far as no running job does it.
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

    /// Sets that compactions in a keyspace become possible when the oldest snapshot has this number.
    pub(in crate::db) fn set_held_back(&mut self, keyspace: KeyspaceId, until: Option<SeqNo>) {
        if let Some(before) = self.held_back_until.remove(&keyspace) {
            self.held_back.remove(&(before, keyspace));
        }
        if let Some(until) = until {
            self.held_back.insert((until, keyspace));
            self.held_back_until.insert(keyspace, until);
        }
    }

    /// The keyspaces that are no longer held back if this is the oldest snapshot.
    pub(in crate::db) fn released(&self, oldest_snapshot: SeqNo) -> Vec<KeyspaceId> {
        let held_back = self.held_back.iter();
        held_back.take_while(|(until, _)| *until <= oldest_snapshot).map(|&(_, keyspace)| keyspace).collect()
    }

    /// The first number of an oldest snapshot at which a keyspace is no longer held back.
    pub(in crate::db) fn awaited(&self) -> SeqNo {
        self.held_back.first().map_or(SeqNo::MAX, |&(until, _)| until)
    }

    /// Sets when level 0 of a keyspace is to be merged if there is nothing else to do then.
    pub(in crate::db) fn set_idle(&mut self, keyspace: KeyspaceId, at: Option<Instant>) {
        if let Some(before) = self.idle_at.remove(&keyspace) {
            self.idle.remove(&(before, keyspace));
        }
        if let Some(at) = at {
            self.idle.insert((at, keyspace));
            self.idle_at.insert(keyspace, at);
        }
    }

    /// Takes the keyspace whose idle compaction is next if it is due.
    pub(in crate::db) fn take_idle(&mut self, now: Instant) -> Option<KeyspaceId> {
        self.next_idle().filter(|at| *at <= now)?;
        let &(_, keyspace) = self.idle.first()?;
        self.set_idle(keyspace, None);
        Some(keyspace)
    }

    /// When the next idle compaction is due.
    pub(in crate::db) fn next_idle(&self) -> Option<Instant> {
        self.idle.first().map(|&(at, _)| self.idle_not_before.map_or(at, |not_before| at.max(not_before)))
    }

    /// Puts all idle compactions off.
    pub(in crate::db) fn put_off_idle(&mut self, until: Instant) {
        self.idle_not_before = Some(until);
    }

    /// Makes all idle compactions due. Whether some were not.
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

    /// Takes the keyspace whose flush is next. It is marked again when its flush has ended.
    pub(in crate::db) fn take_flush(&mut self) -> Option<KeyspaceId> {
        let is_turn_of_oldest = self.chosen % OLDEST_ONE_IN == OLDEST_ONE_IN - 1;
        let next = if is_turn_of_oldest { self.flushes.oldest() } else { self.flushes.first() }?;
        self.chosen += 1;
        self.flushes.set(next, None);
        Some(next)
    }

    /// Takes the keyspace with the most urgent flush if it frees at most so many bytes and slows no writer.
    pub(in crate::db) fn take_small_flush(&mut self, bytes_max: usize) -> Option<KeyspaceId> {
        let next = self.flushes.first()?;
        let (FlushUrgency { beyond_first, bytes }, _) = self.flushes.places[&next];
        (beyond_first == 0 && bytes <= bytes_max).then(|| self.flushes.set(next, None))?;
        Some(next)
    }

    /// Takes the keyspace whose compaction is next. It is marked again when its job has been reserved.
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

/// Keyspaces by urgency, and by how long they have been in the queue.
struct Queue<U> {
    places: HashMap<KeyspaceId, (U, u64)>,
    by_urgency: BTreeSet<(U, std::cmp::Reverse<u64>, KeyspaceId)>,
    by_arrival: BTreeSet<(u64, KeyspaceId)>,
    arrivals: u64,
}

impl<U> Default for Queue<U> {
    fn default() -> Self {
        Self { places: HashMap::new(), by_urgency: BTreeSet::new(), by_arrival: BTreeSet::new(), arrivals: 0 }
    }
}

impl<U: Copy + Ord> Queue<U> {
    /// Puts a keyspace into the queue, changes its urgency, or takes it out.
    fn set(&mut self, keyspace: KeyspaceId, urgency: Option<U>) {
        let place = self.places.remove(&keyspace);
        if let Some((urgency, arrival)) = place {
            self.by_urgency.remove(&(urgency, std::cmp::Reverse(arrival), keyspace));
            self.by_arrival.remove(&(arrival, keyspace));
        }
        if let Some(urgency) = urgency {
            let arrival = place.map_or(self.arrivals, |(_, arrival)| arrival);
            self.arrivals += 1;
            self.places.insert(keyspace, (urgency, arrival));
            self.by_urgency.insert((urgency, std::cmp::Reverse(arrival), keyspace));
            self.by_arrival.insert((arrival, keyspace));
        }
    }

    /// The most urgent; of equals the one that arrived first.
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
