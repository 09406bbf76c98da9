//! Memtables that have left the view of a keyspace because their entries are in tables.
//!
//! A conditional write is decided by the entries that are newer than its probes. The leader looks for them in
//! memtables only, so it must know whether one of those has been flushed meanwhile ([`Departed::since`]). A
//! caller to whom that happens again and again has them kept while it tries ([`Departed::keep`]).

use std::sync::{Arc, Mutex};

use crate::key::SeqNo;
use crate::memtable::Memtable;
use crate::sync::lock;

/// The memtables that have left a view.
#[derive(Default)]
pub(crate) struct Departed(Mutex<State>);

#[derive(Default)]
struct State {
    keepers: usize,
    /// Those that left while there was a keeper.
    kept: Vec<Arc<Memtable>>,
    /// The largest sequence number of the others.
    forgotten: SeqNo,
}

impl State {
    fn forget(&mut self, memtable: &Memtable) {
        self.forgotten = self.forgotten.max(memtable.seqno_max().unwrap_or(0));
    }
}

/// While it exists, memtables that leave the view are kept.
pub(crate) struct Keeper<'d>(&'d Departed);

impl Departed {
    /// To be called before a memtable leaves the view.
    pub(crate) fn add(&self, memtable: &Arc<Memtable>) {
        let mut state = lock(&self.0);
        if state.keepers > 0 {
            state.kept.push(Arc::clone(memtable));
        } else {
            state.forget(memtable);
        }
    }

    /// The memtables that are kept. `None` if another one held entries above this number.
    pub(crate) fn since(&self, seqno: SeqNo) -> Option<Vec<Arc<Memtable>>> {
        let state = lock(&self.0);
        (state.forgotten <= seqno).then(|| state.kept.clone())
    }

    pub(crate) fn keep(&self) -> Keeper<'_> {
        lock(&self.0).keepers += 1;
        Keeper(self)
    }
}

impl Drop for Keeper<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.keepers -= 1;
        if state.keepers == 0 {
            for memtable in std::mem::take(&mut state.kept) {
                state.forget(&memtable);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, Tag};

    fn memtable(seqno: SeqNo) -> Arc<Memtable> {
        let memtable = Arc::new(Memtable::new(1 << 10, 0));
        memtable.insert("k".into(), Tag::new(seqno, EntryKind::Put), "v".into());
        memtable
    }

    #[test]
    fn a_memtable_that_has_left_is_at_hand_only_if_somebody_keeps_it() {
        let departed = Departed::default();
        let since = |seqno| departed.since(seqno).map(|kept| kept.len());
        assert_eq!(since(0), Some(0));
        departed.add(&memtable(5));
        assert_eq!((since(4), since(5)), (None, Some(0)), "nothing above 5 is gone");
        let (first, second) = (departed.keep(), departed.keep());
        departed.add(&memtable(9));
        drop(first);
        departed.add(&memtable(12));
        assert_eq!((since(4), since(5), since(20)), (None, Some(2), Some(2)));
        drop(second);
        assert_eq!((since(11), since(12)), (None, Some(0)));
    }
}
