//! Memtables that have left the view of a keyspace because their entries are in tables.
//!
//! A conditional write is decided by the entries that are newer than its probes. The leader looks for them in
//! memtables only, so it must know whether one of those has been flushed meanwhile ([`Departed::since`]). A
//! caller to whom that happens again and again has them kept while it tries ([`Departed::keep`]), up to a limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::key::SeqNo;
use crate::memtable::Memtable;
use crate::sync::lock;

/// The memtables that have left a view.
#[derive(Default)]
pub(super) struct Departed(Mutex<State>);

/// The most memtables that are kept. A caller whose entries have left in more of them looks again.
const KEPT_MAX: usize = 4;

#[derive(Default)]
struct State {
    /// The number from which on each keeper needs memtables.
    keepers: Vec<SeqNo>,
    /// Those that left while there was a keeper who needs them, the oldest first.
    kept: VecDeque<Arc<Memtable>>,
    /// The largest sequence number of the others.
    forgotten: SeqNo,
}

impl State {
    /// Forgets what no keeper needs, and the oldest if there are too many. The caller frees them when the lock
    /// is released.
    fn forget(&mut self) -> Vec<Arc<Memtable>> {
        let needed_above = self.keepers.iter().min().copied().unwrap_or(SeqNo::MAX);
        let mut gone = Vec::new();
        while let Some(oldest) = self.kept.front() {
            let largest = oldest.seqno_max().unwrap_or(0);
            if largest > needed_above && self.kept.len() <= KEPT_MAX {
                break;
            }
            self.forgotten = self.forgotten.max(largest);
            gone.extend(self.kept.pop_front());
        }
        gone
    }
}

/// While it exists, memtables that leave the view with entries above its number are kept, up to a limit.
pub(in crate::db) struct Keeper<'d> {
    departed: &'d Departed,
    above: SeqNo,
}

impl Departed {
    /// To be called before a memtable leaves the view.
    pub(in crate::db) fn add(&self, memtable: &Arc<Memtable>) {
        let mut state = lock(&self.0);
        state.kept.push_back(Arc::clone(memtable));
        let gone = state.forget();
        drop(state);
        drop(gone);
    }

    /// The memtables that are kept. `None` if another one held entries above this number.
    pub(in crate::db) fn since(&self, seqno: SeqNo) -> Option<Vec<Arc<Memtable>>> {
        let state = lock(&self.0);
        (state.forgotten <= seqno).then(|| state.kept.iter().cloned().collect())
    }

    /// Keeps memtables with entries above this number.
    pub(in crate::db) fn keep(&self, above: SeqNo) -> Keeper<'_> {
        lock(&self.0).keepers.push(above);
        Keeper { departed: self, above }
    }

    /// Changes the number of a keeper, or removes it.
    fn change(&self, old: SeqNo, new: Option<SeqNo>) {
        let mut state = lock(&self.0);
        if let Some(at) = state.keepers.iter().position(|&above| above == old) {
            state.keepers.swap_remove(at);
        }
        state.keepers.extend(new);
        let gone = state.forget();
        drop(state);
        drop(gone);
    }
}

impl Keeper<'_> {
    /// What has entries up to this number only is not needed any more.
    pub(in crate::db) fn advance(&mut self, above: SeqNo) {
        self.departed.change(self.above, Some(above));
        self.above = above;
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        self.departed.change(self.above, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Tag};

    fn memtable(seqno: SeqNo) -> Arc<Memtable> {
        let memtable = Arc::new(Memtable::new(1 << 10, 0));
        memtable.insert(b"k", Tag::new(seqno, EntryKind::Put), b"v");
        memtable
    }

    #[test]
    fn a_memtable_that_has_left_is_at_hand_only_if_somebody_keeps_it() {
        let departed = Departed::default();
        let since = |seqno| departed.since(seqno).map(|kept| kept.len());
        assert_eq!(since(0), Some(0));
        departed.add(&memtable(5));
        assert_eq!((since(4), since(5)), (None, Some(0)), "nothing above 5 is gone");
        let (first, second) = (departed.keep(5), departed.keep(5));
        departed.add(&memtable(9));
        drop(first);
        departed.add(&memtable(12));
        assert_eq!((since(4), since(5), since(20)), (None, Some(2), Some(2)));
        drop(second);
        assert_eq!((since(11), since(12)), (None, Some(0)));
    }

    #[test]
    fn a_keeper_that_has_read_later_lets_older_memtables_go() {
        let departed = Departed::default();
        let since = |seqno| departed.since(seqno).map(|kept| kept.len());
        let mut keeper = departed.keep(0);
        departed.add(&memtable(5));
        departed.add(&memtable(9));
        keeper.advance(5);
        assert_eq!((since(4), since(5)), (None, Some(1)));
        keeper.advance(9);
        assert_eq!((since(8), since(9)), (None, Some(0)));
    }

    #[test]
    fn a_keeper_that_never_ends_holds_no_more_than_the_limit() {
        let departed = Departed::default();
        let _keeper = departed.keep(0);
        (1..=100).for_each(|seqno| departed.add(&memtable(seqno)));
        let kept = KEPT_MAX as u64;
        assert_eq!(departed.since(100 - kept).map(|kept| kept.len()), Some(KEPT_MAX));
        assert_eq!(departed.since(100 - kept - 1).map(|kept| kept.len()), None);
    }
}
