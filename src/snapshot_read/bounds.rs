//! Ranges as callers write them.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `..`, `"a".."b"`, `"a"..="b"`, `"a"..`, `.."b"`, `..="b"`, or a pair of [`Bound`]s, of `&str`,
/// `&[u8]`, `Vec<u8>`, an array, or other byte strings. A range whose start is after its end is empty.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// use std::ops::Bound;
///
/// db.put("a", "1")?;
/// db.put("b", "2")?;
/// assert_eq!(db.range(..).count(), 2);
/// assert_eq!(db.range(.."b").count(), 1);
/// assert_eq!(db.range((Bound::Excluded("a"), Bound::Unbounded)).count(), 1);
/// # Ok::<(), sievedb::Error>(())
/// ```
pub trait KeyBounds {
    /// The lower bound.
    fn lower(&self) -> Bound<&[u8]>;

    /// The upper bound.
    fn upper(&self) -> Bound<&[u8]>;
}

impl KeyBounds for RangeFull {
    fn lower(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    fn upper(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

macro_rules! key_bounds {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> KeyBounds for $range {
            fn lower(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::start_bound(self).map(AsRef::as_ref)
            }

            fn upper(&self) -> Bound<&[u8]> {
                RangeBounds::<K>::end_bound(self).map(AsRef::as_ref)
            }
        }
    )*};
}

key_bounds!(Range<K>, RangeFrom<K>, RangeTo<K>, RangeInclusive<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

impl<R: KeyBounds + ?Sized> KeyBounds for &R {
    fn lower(&self) -> Bound<&[u8]> {
        (**self).lower()
    }

    fn upper(&self) -> Bound<&[u8]> {
        (**self).upper()
    }
}
