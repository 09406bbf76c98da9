//! The internal iterator: the interface of memtables, tables, merges, compactions and scans.
//!
//! An iterator is at an entry, or invalid. After a failed call it is invalid, and every later call returns the same
//! error.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::BlockIter;
use crate::error::{Error, Result, Step};
use crate::key::InternalKey;

pub(crate) trait InternalIterator: Send {
    fn seek_first(&mut self) -> Step;

    fn seek_last(&mut self) -> Step;

    fn seek(&mut self, target: InternalKey<'_>) -> Step;

    fn seek_before(&mut self, target: InternalKey<'_>) -> Step;

    /// The iterator must be at an entry.
    fn next(&mut self) -> Step;

    /// The iterator must be at an entry.
    fn prev(&mut self) -> Step;

    fn key(&self) -> Option<InternalKey<'_>>;

    /// Returns the value; empty for a tombstone. Does no I/O.
    fn value(&self) -> EntryValue;

    fn lent(&mut self) -> Option<(InternalKey<'_>, LentValue<'_>)>;

    /// Returns the cursor of the current block; moving it moves the iterator.
    #[inline(always)]
    fn block(&self) -> Option<&BlockIter> {
        None
    }

    /// Returns the current block if its remaining entries, in the last direction, are the iterator's next entries.
    /// With a limit, the [`key_prefix`](crate::key::key_prefix) of each of them must also be smaller.
    #[inline(always)]
    fn leading_block(&mut self, limit: Option<u64>) -> Option<&mut BlockIter> {
        let _ = limit;
        None
    }

    /// Moves to the next entry only if it is in the same block and has a greater user key.
    #[inline(always)]
    fn step_apart(&mut self) -> bool {
        false
    }

    #[cold]
    fn out_of_order(&self) -> Box<Error> {
        let detail = "the key of an entry is not in order with the one beside it".into();
        Error::FaultyMemory { what: "the order of entries", detail }.into()
    }
}

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

    #[cold]
    pub(crate) fn keep(&mut self, error: Box<Error>) -> Step {
        self.0 = Some((*error).clone());
        Err(error)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum EntryValue {
    /// A slice of a block or of a long memtable entry, or a copy of a short one.
    Inline(Bytes),
    /// A value longer than [`VALUE_INLINE_MAX`](crate::limits::VALUE_INLINE_MAX).
    Chunked(Arc<dyn ChunkedValue>),
}

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

    /// Stops at the first error.
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
