//! A visible entry, borrowed from a half.

use std::ops::Range;

use bytes::Bytes;

use crate::block::PlainEntry;
use crate::iter::{EntryValue, InternalIterator};

pub(crate) type Entry = (Bytes, EntryValue);

pub(crate) struct Visible<'h, S> {
    pub(crate) key: &'h [u8],
    value: Lent<'h, S>,
}

enum Lent<'h, S> {
    At(&'h S),
    In(&'h Bytes, Range<usize>),
    Kept(&'h mut EntryValue),
}

impl<'h, S: InternalIterator> Visible<'h, S> {
    #[inline]
    pub(super) fn at(key: &'h [u8], source: &'h S) -> Self {
        Self { key, value: Lent::At(source) }
    }

    #[inline(always)]
    pub(super) fn inside(entry: PlainEntry<'h>) -> Self {
        Self { key: entry.user_key, value: Lent::In(entry.payload, entry.value) }
    }

    #[inline]
    pub(crate) fn kept(key: &'h [u8], value: &'h mut EntryValue) -> Self {
        Self { key, value: Lent::Kept(value) }
    }

    #[inline(always)]
    pub(crate) fn value(self) -> EntryValue {
        match self.value {
            Lent::At(source) => source.value(),
            Lent::In(payload, value) => EntryValue::Inline(payload.slice(value)),
            Lent::Kept(value) => std::mem::replace(value, EntryValue::Inline(Bytes::new())),
        }
    }

    pub(crate) fn into_entry(self) -> Entry {
        (Bytes::copy_from_slice(self.key), self.value())
    }
}
