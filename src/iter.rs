//! The internal iterator: the interface of memtables, tables, merges, compactions and scans.
//!
//! An iterator is positioned at an entry or nowhere. Every movement may fail. An iterator that failed is
//! positioned nowhere, and every later movement fails with the same error, so that an error is never mistaken
//! for the end.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::BlockIter;
use crate::error::{Error, Result, Step};
use crate::key::InternalKey;

/// A cursor over entries in the order of internal keys.
pub(crate) trait InternalIterator: Send {
    fn seek_first(&mut self) -> Step;

    fn seek_last(&mut self) -> Step;

    /// Moves to the first entry at or after `target`.
    fn seek(&mut self, target: InternalKey<'_>) -> Step;

    /// Moves to the last entry before `target`.
    fn seek_before(&mut self, target: InternalKey<'_>) -> Step;

    /// Moves to the next entry. The iterator must be positioned at an entry.
    fn next(&mut self) -> Step;

    /// Moves to the previous entry. The iterator must be positioned at an entry.
    fn prev(&mut self) -> Step;

    /// The key of the entry, or `None` if the iterator is positioned nowhere.
    fn key(&self) -> Option<InternalKey<'_>>;

    /// The value of the entry, empty for a tombstone. The iterator must be positioned at an entry. Reads
    /// nothing from disk: a long value is returned as a reader of its chunks.
    fn value(&self) -> EntryValue;

    /// The entry with its value, lent; `None` if the iterator is positioned nowhere.
    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)>;

    /// The cursor over the current data block. A movement within the block also moves the iterator.
    #[inline(always)]
    fn block(&self) -> Option<&BlockIter> {
        None
    }

    /// The same, for moving in the direction of the last movement, if the block has every entry up to its end. With a
    /// limit, only if all keys of the block have a smaller [`key_prefix`](crate::key::key_prefix).
    #[inline(always)]
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        let _ = limit;
        None
    }

    /// Moves to the next entry, as [`next`](Self::next), if that takes at most one step in a block and the entry is
    /// known to have a greater user key. Otherwise does not move, and returns `false`.
    #[inline(always)]
    fn step_apart(&mut self) -> bool {
        false
    }

    /// The error that the entry is out of order. The iterator must be positioned at an entry.
    #[cold]
    fn out_of_order(&self) -> Box<Error> {
        let detail = "the key of an entry is not in order with the one beside it".into();
        Error::FaultyMemory { what: "the order of entries", detail }.into()
    }
}

/// The error of the movement of an iterator that failed, which every later movement repeats.
#[derive(Debug, Default)]
pub(crate) struct Failure(Option<Error>);

impl Failure {
    #[inline(always)]
    pub(crate) fn repeat(&self) -> Step {
        if self.0.is_none() { Ok(()) } else { self.repeat_error() }
    }

    #[cold]
    fn repeat_error(&self) -> Step {
        self.0.clone().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Keeps the error of a movement.
    #[cold]
    pub(crate) fn keep(&mut self, error: Box<Error>) -> Step {
        self.0 = Some((*error).clone());
        Err(error)
    }
}

/// The value of an entry, in memory or still on disk.
#[derive(Debug, Clone)]
pub(crate) enum EntryValue {
    /// A slice of the data block, or of a long entry of a memtable; a copy of a short one.
    Inline(Bytes),
    /// A value longer than [`VALUE_INLINE_MAX`](crate::limits::VALUE_INLINE_MAX), in chunks of its own.
    Chunked(Arc<dyn ChunkedValue>),
}

/// The value of the current entry, valid until the iterator moves, or still on disk.
#[derive(Debug)]
pub(crate) enum LentValue<'a> {
    Inline(&'a [u8]),
    Chunked(Arc<dyn ChunkedValue>),
}

impl LentValue<'_> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Chunked(value) => value.len(),
        }
    }
}

impl<'a> From<&'a EntryValue> for LentValue<'a> {
    fn from(value: &'a EntryValue) -> Self {
        match value {
            EntryValue::Inline(bytes) => Self::Inline(bytes),
            EntryValue::Chunked(value) => Self::Chunked(Arc::clone(value)),
        }
    }
}

pub(crate) trait ChunkedValue: Debug + Send + Sync {
    fn len(&self) -> u64;

    /// Passes the chunks in order to `take`; stops at the first error of either.
    fn read_chunks(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

impl EntryValue {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Chunked(value) => value.len(),
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn read(self) -> Result<Bytes> {
        match self {
            Self::Inline(bytes) => Ok(bytes),
            Self::Chunked(value) => read_whole(&*value),
        }
    }
}

/// The whole value in memory.
pub(crate) fn read_whole(value: &dyn ChunkedValue) -> Result<Bytes> {
    let mut whole = Vec::with_capacity(value.len() as usize);
    value.read_chunks(&mut |chunk| {
        whole.extend_from_slice(chunk);
        Ok(())
    })?;
    Ok(Bytes::from(whole))
}

impl<I: InternalIterator + ?Sized> InternalIterator for Box<I> {
    fn seek_first(&mut self) -> Step {
        (**self).seek_first()
    }

    fn seek_last(&mut self) -> Step {
        (**self).seek_last()
    }

    fn seek(&mut self, target: InternalKey<'_>) -> Step {
        (**self).seek(target)
    }

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step {
        (**self).seek_before(target)
    }

    #[inline(always)]
    fn next(&mut self) -> Step {
        (**self).next()
    }

    #[inline(always)]
    fn prev(&mut self) -> Step {
        (**self).prev()
    }

    #[inline(always)]
    fn key(&self) -> Option<InternalKey<'_>> {
        (**self).key()
    }

    #[inline(always)]
    fn value(&self) -> EntryValue {
        (**self).value()
    }

    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)> {
        (**self).lent()
    }

    #[inline(always)]
    fn block(&self) -> Option<&BlockIter> {
        (**self).block()
    }

    #[inline(always)]
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        (**self).leading_block(limit)
    }

    #[inline(always)]
    fn step_apart(&mut self) -> bool {
        (**self).step_apart()
    }

    fn out_of_order(&self) -> Box<Error> {
        (**self).out_of_order()
    }
}
