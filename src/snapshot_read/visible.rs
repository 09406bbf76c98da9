//! A visible entry, as a half lends it.

use std::ops::Range;

use bytes::Bytes;

use crate::block::PlainEntry;
use crate::iter::{EntryValue, InternalIterator};

/// An entry that can be seen, to keep.
pub(crate) type Entry = (Bytes, EntryValue);

/// A visible entry. It is copied or kept only on request.
pub(crate) struct Visible<'h, S> {
    pub(crate) key: &'h [u8],
    value: Lent<'h, S>,
}

enum Lent<'h, S> {
    /// The tag of the current entry of this source.
    At(&'h S),
    /// This part of the payload of a block.
    In(&'h Bytes, Range<usize>),
    Kept(&'h mut EntryValue),
}

impl<'h, S: InternalIterator> Visible<'h, S> {
    /// The entry at which the source stands, whose user key this is.
    #[inline]
    pub(super) fn at(key: &'h [u8], source: &'h S) -> Self {
        Self { key, value: Lent::At(source) }
    }

    /// An entry of a block whose value is in it.
    #[inline(always)]
    pub(super) fn inside(entry: PlainEntry<'h>) -> Self {
        Self { key: entry.user_key, value: Lent::In(entry.payload, entry.value) }
    }

    /// An entry whose value may be taken.
    #[inline]
    pub(crate) fn kept(key: &'h [u8], value: &'h mut EntryValue) -> Self {
        Self { key, value: Lent::Kept(value) }
    }

    /// The value, to keep.
    #[inline(always)]
    pub(crate) fn value(self) -> EntryValue {
        match self.value {
            Lent::At(source) => source.value(),
            Lent::In(payload, value) => EntryValue::Inline(payload.slice(value)),
            Lent::Kept(value) => std::mem::replace(value, EntryValue::Inline(Bytes::new())),
        }
    }

    /// The entry, to keep.
    pub(crate) fn into_entry(self) -> Entry {
        (Bytes::copy_from_slice(self.key), self.value())
    }
}
