//! A cursor over a memtable, which it keeps alive. It never fails, and may see entries inserted after its creation;
//! readers skip those by sequence number.

use std::sync::Arc;

use super::Memtable;
use super::node::{HEAD, NodeId};
use crate::error::Step;
use crate::iter::{EntryValue, InternalIterator, LentValue};
use crate::key::{InternalKey, Tag};

pub(crate) struct MemtableIter {
    memtable: Arc<Memtable>,
    at: NodeId,
    /// Loaded when the cursor arrives at `at`: all entries that the reader must find are then linked.
    next: NodeId,
    key: Vec<u8>,
    tag: Tag,
    value: Vec<u8>,
    copies_values: bool,
    has_value: bool,
}

impl MemtableIter {
    pub(super) fn new(memtable: Arc<Memtable>) -> Self {
        let (key, value, tag) = (Vec::new(), Vec::new(), Tag::newest_at(0));
        Self { memtable, at: HEAD, next: HEAD, key, tag, value, copies_values: false, has_value: false }
    }

    /// Copies values on arrival.
    pub(crate) fn with_values(self) -> Self {
        Self { copies_values: true, ..self }
    }

    fn move_to(&mut self, id: NodeId) {
        self.at = id;
        if id != HEAD {
            let entry = self.memtable.list.entry(id);
            (self.tag, self.next) = (entry.tag(), entry.next());
            self.has_value = self.copies_values && entry.copy_short(&mut self.key, &mut self.value);
            if !self.has_value {
                entry.copy_key(&mut self.key);
            }
        }
    }
}

impl InternalIterator for MemtableIter {
    fn seek_first(&mut self) -> Step {
        self.move_to(self.memtable.list.next(HEAD));
        Ok(())
    }

    fn seek_last(&mut self) -> Step {
        self.move_to(self.memtable.list.prev(HEAD));
        Ok(())
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        self.move_to(self.memtable.list.at_or_after(target));
        Ok(())
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        self.move_to(self.memtable.list.before(target));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Step {
        if self.at != HEAD {
            self.move_to(self.next);
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Step {
        if self.at != HEAD {
            self.move_to(self.memtable.list.prev(self.at));
        }
        Ok(())
    }

    fn key(&self) -> Option<InternalKey<'_>> {
        (self.at != HEAD).then(|| InternalKey::new(&self.key, self.tag))
    }

    fn value(&self) -> EntryValue {
        EntryValue::Inline(self.memtable.list.entry(self.at).value())
    }

    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        if self.at == HEAD {
            return None;
        }
        let value = match self.has_value {
            true => &self.value[..],
            false => {
                let entry = self.memtable.list.entry(self.at);
                entry.long_value().unwrap_or_else(|| {
                    entry.copy_value(&mut self.value);
                    &self.value
                })
            }
        };
        Some((InternalKey::new(&self.key, self.tag), LentValue::Inline(value)))
    }
}
