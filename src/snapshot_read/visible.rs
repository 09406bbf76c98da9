//! A visible entry, as a half lends it.

use bytes::Bytes;

use super::Entry;
use crate::iter::{EntryValue, InternalIterator};

/// An entry that can be seen. Nothing of it is copied or kept before it is asked for.
pub(crate) struct Visible<'h> {
    pub(crate) key: &'h [u8],
    value: Lent<'h>,
}

enum Lent<'h> {
    /// That of the entry at which this source stands.
    At(&'h dyn InternalIterator),
    Kept(&'h mut EntryValue),
}

impl<'h> Visible<'h> {
    /// The entry at which the source stands, whose user key this is.
    pub(super) fn at(key: &'h [u8], source: &'h dyn InternalIterator) -> Self {
        Self { key, value: Lent::At(source) }
    }

    /// An entry whose value may be taken.
    pub(crate) fn kept(key: &'h [u8], value: &'h mut EntryValue) -> Self {
        Self { key, value: Lent::Kept(value) }
    }

    /// The value, to keep.
    #[inline]
    pub(crate) fn value(self) -> EntryValue {
        match self.value {
            Lent::At(source) => source.value(),
            Lent::Kept(value) => std::mem::replace(value, EntryValue::Inline(Bytes::new())),
        }
    }

    /// The entry, to keep.
    pub(crate) fn into_entry(self) -> Entry {
        (Bytes::copy_from_slice(self.key), self.value())
    }
}
