//! A cursor over a memtable. It owns a share of the memtable, so it may outlive everything else.
//!
//! It never fails. It sees every entry that was inserted before it was made, and may see later ones; readers
//! skip those by their sequence numbers.

use std::sync::Arc;

use super::Memtable;
use super::arena::{HEAD, NodeId};
use crate::error::Step;
use crate::iter::{EntryValue, InternalIterator, LentValue};
use crate::key::InternalKey;

/// The [`InternalIterator`] of a [`Memtable`].
pub(crate) struct MemtableIter {
    memtable: Arc<Memtable>,
    /// The current node; the sentinel if the cursor is not valid.
    at: NodeId,
}

impl MemtableIter {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        Self { memtable, at: HEAD }
    }
}

impl InternalIterator for MemtableIter {
    fn seek_first(&mut self) -> Step {
        self.at = self.memtable.list.next(HEAD);
        Ok(())
    }

    fn seek_last(&mut self) -> Step {
        self.at = self.memtable.list.prev(HEAD);
        Ok(())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.at = self.memtable.list.at_or_after(target);
        Ok(())
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.at = self.memtable.list.before(target);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Step {
        if self.at != HEAD {
            self.at = self.memtable.list.next(self.at);
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Step {
        if self.at != HEAD {
            self.at = self.memtable.list.prev(self.at);
        }
        Ok(())
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        (self.at != HEAD).then(|| self.memtable.list.entry(self.at).internal_key())
    }

    fn value(&self) -> EntryValue {
        EntryValue::Inline(self.memtable.list.entry(self.at).value())
    }

    fn lent_value(&self) -> LentValue<'_> {
        LentValue::Inline(self.memtable.list.entry(self.at).lent_value())
    }
}
