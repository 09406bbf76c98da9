//! A range of user keys with owned bounds.

use std::borrow::Cow;
use std::ops::Bound;

use bytes::Bytes;

use super::KeyBounds;
use crate::error::{Error, Result};
use crate::key::after_prefix;
use crate::limits::KEY_BYTES_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(super) start: Bound<Bytes>,
    pub(super) end: Bound<Bytes>,
}

impl KeyRange {
    pub(crate) fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    pub(crate) fn new(range: &impl KeyBounds) -> Self {
        Self { start: range.lower().map(shared_copy), end: range.upper().map(shared_copy) }
    }

    pub(crate) fn half_open_of(start: Bytes, end: Option<Bytes>) -> Self {
        Self { start: Bound::Included(start), end: end.map_or(Bound::Unbounded, Bound::Excluded) }
    }

    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        if prefix.is_empty() {
            return Self::all();
        }
        let end = after_prefix(prefix).map_or(Bound::Unbounded, |end| Bound::Excluded(end.into()));
        Self { start: Bound::Included(shared_copy(prefix)), end }
    }

    pub(crate) fn is_empty(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.start, &self.end) {
            (Unbounded, Excluded(end)) => end.is_empty(),
            (Unbounded, _) | (_, Unbounded) => false,
            (Included(start), Included(end)) => start > end,
            (Included(start) | Excluded(start), Included(end) | Excluded(end)) => start >= end,
        }
    }

    #[inline]
    pub(crate) fn starts_after(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => key < &start[..],
            Bound::Excluded(start) => key <= &start[..],
            Bound::Unbounded => false,
        }
    }

    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key > &end[..],
            Bound::Excluded(end) => key >= &end[..],
            Bound::Unbounded => false,
        }
    }

    pub(crate) fn first(&self) -> Option<Cow<'_, [u8]>> {
        match &self.start {
            Bound::Included(start) => Some(Cow::Borrowed(start)),
            Bound::Excluded(start) => Some(Cow::Owned(successor(start))),
            Bound::Unbounded => None,
        }
    }

    pub(crate) fn beyond(&self) -> Option<Cow<'_, [u8]>> {
        match &self.end {
            Bound::Included(end) => Some(Cow::Owned(successor(end))),
            Bound::Excluded(end) => Some(Cow::Borrowed(end)),
            Bound::Unbounded => None,
        }
    }

    /// Returns the first key of the range and the first key after it, within the limit of keys. The latter is empty if
    /// there is no upper bound. Returns `None` for an empty range.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the start is after the end, [`Error::LimitExceeded`] if a bound is too long.
    pub(crate) fn to_delete(&self) -> Result<Option<(Bytes, Bytes)>> {
        let (start, end) = (key_of(&self.start), key_of(&self.end));
        if let Some(long) = [start, end].into_iter().flatten().find(|key| key.len() > KEY_BYTES_MAX) {
            return Err(Error::limit("key length", KEY_BYTES_MAX as u64, long.len() as u64));
        }
        if start.is_some_and(|start| end.is_some_and(|end| start > end)) {
            return Err(Error::invalid("the range of keys to delete starts after its end"));
        }
        if self.is_empty() {
            return Ok(None);
        }
        let next = |key: Bytes| match key.len() > KEY_BYTES_MAX {
            true => after_prefix(&key[..KEY_BYTES_MAX]).map(Bytes::from),
            false => Some(key),
        };
        let (start, end) = self.half_open();
        let Some(start) = next(start) else { return Ok(None) };
        let end = end.and_then(next).unwrap_or_default();
        Ok((end.is_empty() || start < end).then_some((start, end)))
    }

    pub(crate) fn half_open(&self) -> (Bytes, Option<Bytes>) {
        let start = match &self.start {
            Bound::Included(start) => start.clone(),
            Bound::Excluded(start) => successor(start).into(),
            Bound::Unbounded => Bytes::new(),
        };
        let end = match &self.end {
            Bound::Included(end) => Some(successor(end).into()),
            Bound::Excluded(end) => Some(end.clone()),
            Bound::Unbounded => None,
        };
        (start, end)
    }
}

/// The longest key that [`shared_copy`] stores next to the reference count.
const SHORT_BYTES_MAX: usize = 39;

/// Makes a copy that is cheap to clone: one allocation for a short key. [`Bytes::copy_from_slice`] and the first clone
/// take two.
fn shared_copy(key: &[u8]) -> Bytes {
    struct Short {
        len: u8,
        bytes: [u8; SHORT_BYTES_MAX],
    }
    impl AsRef<[u8]> for Short {
        fn as_ref(&self) -> &[u8] {
            &self.bytes[..self.len.into()]
        }
    }
    if key.is_empty() || key.len() > SHORT_BYTES_MAX {
        return Bytes::copy_from_slice(key);
    }
    let mut short = Short { len: key.len() as u8, bytes: [0; SHORT_BYTES_MAX] };
    short.bytes[..key.len()].copy_from_slice(key);
    Bytes::from_owner(short)
}

fn key_of(bound: &Bound<Bytes>) -> Option<&Bytes> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// The result may exceed the key limit by a byte, because it is only used in seeks.
pub(crate) fn successor(key: &[u8]) -> Vec<u8> {
    let mut successor = Vec::with_capacity(key.len() + 1);
    successor.extend_from_slice(key);
    successor.push(0);
    successor
}

#[cfg(test)]
mod tests {
    use std::ops::RangeBounds;

    use super::*;

    fn holds(range: &KeyRange, key: &[u8]) -> bool {
        !range.starts_after(key) && !range.ends_before(key)
    }

    #[test]
    fn a_prefix_holds_the_keys_that_start_with_it_and_no_others() {
        let keys: [&[u8]; 9] =
            [b"", b"\0", b"a", b"a\xff", b"a\xff\xff\xff", b"b", b"\xff", b"\xff\xff", b"\xff\xff\x01"];
        for prefix in keys {
            let range = KeyRange::prefix(prefix);
            assert!(!range.is_empty());
            for key in keys {
                assert_eq!(holds(&range, key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
        assert_eq!(KeyRange::prefix(b""), KeyRange::all());
        assert_eq!(KeyRange::prefix(b"\xff\xff").end, Bound::Unbounded);
        assert_eq!(KeyRange::prefix(b"a\xff").end, Bound::Excluded(Bytes::from_static(b"b")));
    }

    #[test]
    fn bounds_of_all_lengths_are_copied() {
        let key: Vec<u8> = (0..2 * SHORT_BYTES_MAX as u8).collect();
        for len in 0..key.len() {
            let copy = shared_copy(&key[..len]);
            assert_eq!(copy, key[..len]);
            assert_eq!(copy.clone(), key[..len]);
        }
    }

    type Kind = fn(&'static [u8]) -> Bound<&'static [u8]>;

    #[test]
    fn bounds_of_every_kind_contain_the_keys_that_the_standard_library_defines() {
        let keys: [&[u8]; 4] = [b"", b"\0", b"a", b"a\0"];
        let kinds: [Kind; 3] = [Bound::Included, Bound::Excluded, |_| Bound::Unbounded];
        for (start, end) in keys.into_iter().flat_map(|start| keys.map(|end| (start, end))) {
            for (start, end) in kinds.iter().flat_map(|s| kinds.map(|e| (s(start), e(end)))) {
                let range = KeyRange::new(&(start, end));
                for key in keys {
                    let expected = RangeBounds::<&[u8]>::contains(&(start, end), &key);
                    assert_eq!(holds(&range, key), expected, "{range:?} {key:?}");
                    assert!(!(range.is_empty() && holds(&range, key)));
                    let within = range.first().is_none_or(|first| *first <= *key)
                        && range.beyond().is_none_or(|beyond| *key < *beyond);
                    assert_eq!(within, holds(&range, key));
                }
            }
        }
    }

    #[test]
    fn a_range_to_delete_has_the_keys_of_the_range_and_bounds_that_keys_can_have() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"a\0\0", b"b"];
        let kinds: [Kind; 3] = [Bound::Included, Bound::Excluded, |_| Bound::Unbounded];
        for (start, end) in keys.into_iter().flat_map(|start| keys.map(|end| (start, end))) {
            for (start, end) in kinds.iter().flat_map(|s| kinds.map(|e| (s(start), e(end)))) {
                let range = KeyRange::new(&(start, end));
                let Ok(deleted) = range.to_delete() else {
                    assert!(range.is_empty(), "{range:?}");
                    continue;
                };
                for key in keys {
                    let is_deleted = deleted
                        .as_ref()
                        .is_some_and(|(start, end)| start <= key && (end.is_empty() || key < end));
                    assert_eq!(is_deleted, holds(&range, key), "{range:?} {key:?}");
                }
            }
        }
        let reversed = KeyRange::new(&("b".."a")).to_delete();
        assert!(matches!(reversed, Err(Error::InvalidArgument { .. })));
        assert!(KeyRange::new(&("a".."a")).to_delete().unwrap().is_none());

        let long = |last: u8| [&[b'k'; KEY_BYTES_MAX - 1][..], &[last]].concat();
        let after =
            |last| KeyRange::new(&(Bound::Excluded(long(last)), Bound::Unbounded)).to_delete().unwrap();
        assert_eq!(after(7).unwrap().0, long(8));
        assert_eq!(after(0xff).unwrap().0, [&[b'k'; KEY_BYTES_MAX - 2][..], b"l"].concat());
        assert_eq!(KeyRange::new(&(..=long(7))).to_delete().unwrap().unwrap().1, long(8));
        let last = vec![0xff; KEY_BYTES_MAX];
        assert_eq!(KeyRange::new(&(..=&last)).to_delete().unwrap(), Some((Bytes::new(), Bytes::new())));
        assert_eq!(KeyRange::new(&(Bound::Excluded(&last), Bound::Unbounded)).to_delete().unwrap(), None);
        let too_long = KeyRange::new(&(vec![0; KEY_BYTES_MAX + 1]..)).to_delete();
        assert!(matches!(too_long, Err(Error::LimitExceeded { what: "key length", .. })));
    }

    #[test]
    fn a_range_whose_start_is_after_its_end_is_empty() {
        let empty = |range: KeyRange| assert!(range.is_empty(), "{range:?}");
        empty(KeyRange::new(&("b".."a")));
        empty(KeyRange::new(&("a".."a")));
        empty(KeyRange::new(&("b"..="a")));
        empty(KeyRange::new(&(.."")));
        empty(KeyRange::new(&(Bound::Excluded("a"), Bound::Included("a"))));
        empty(KeyRange::new(&(Bound::Excluded("a"), Bound::Excluded("a"))));
        assert!(!KeyRange::new(&("a"..="a")).is_empty());
        assert!(!KeyRange::new(&(..="")).is_empty());
    }
}
