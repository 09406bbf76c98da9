//! [`Value`]: a value, or a key of an iterator, as returned to callers.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

use crate::error::Result;
use crate::iter::{EntryValue, read_whole};
use crate::key::copy_key;

/// A value, or a key of an iterator. Cheap to clone; compares with bytes and text; converts from and into [`Vec<u8>`] and
/// [`Bytes`].
///
/// A value keeps its block alive; a key keeps a chunk of keys of at most 1 KiB. Values of at most 1 KiB in memtables,
/// and short keys, are copies. [`Value::to_vec`] copies the bytes.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("planet", "Saturn")?;
/// let value = db.get("planet")?.expect("it was just written");
/// assert_eq!(value, "Saturn");
/// assert_eq!(value, b"Saturn");
/// assert_eq!(value.len(), 6); // derefs to `[u8]`
/// assert_eq!(format!("the planet {value}"), "the planet Saturn");
/// let copy: Vec<u8> = value.into();
/// # Ok::<(), sievedb::Error>(())
/// ```
#[doc(alias = "Slice")]
#[doc(alias = "IVec")]
#[doc(alias = "UserValue")]
#[derive(Clone)]
pub struct Value(Repr);

#[derive(Clone)]
enum Repr {
    Slice(Bytes),
    Short(u8, [u8; SHORT_BYTES_MAX]),
}

const SHORT_BYTES_MAX: usize = 23;

impl Value {
    #[inline]
    pub(in crate::db) fn new(bytes: Bytes) -> Self {
        Self(Repr::Slice(bytes))
    }

    #[inline]
    pub(in crate::db) fn short(bytes: &[u8]) -> Option<Self> {
        let mut copy = [0; SHORT_BYTES_MAX];
        copy_key(bytes, copy.get_mut(..bytes.len())?);
        Some(Self(Repr::Short(bytes.len() as u8, copy)))
    }

    #[inline]
    pub(in crate::db) fn read(value: EntryValue) -> Result<Self> {
        match value {
            EntryValue::Inline(bytes) => Ok(Self::new(bytes)),
            EntryValue::Chunked(value) => read_whole(&*value).map(Self::new),
        }
    }

    /// A copy of the bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// assert_eq!(db.get("k")?.unwrap().to_vec(), b"v");
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        (**self).to_vec()
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Slice(bytes) => bytes,
            Repr::Short(len, bytes) => &bytes[..usize::from(*len)],
        }
    }
}

impl Default for Value {
    fn default() -> Self {
        Self::new(Bytes::new())
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

/// As text, with `\u{fffd}` for invalid UTF-8.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self))
    }
}

/// Copies a key, shared bytes, or a part of a block or memtable; otherwise moves the bytes.
impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        Bytes::from(value).into()
    }
}

/// Copies a short key only.
impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        match value.0 {
            Repr::Slice(bytes) => bytes,
            Repr::Short(..) => Bytes::copy_from_slice(&value),
        }
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::new(text.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::new(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

macro_rules! compares_with {
    ($([$($generics:tt)*] $other:ty),* $(,)?) => {$(
        impl<$($generics)*> PartialEq<$other> for Value {
            fn eq(&self, other: &$other) -> bool {
                let other: &[u8] = other.as_ref();
                **self == *other
            }
        }

        impl<$($generics)*> PartialEq<Value> for $other {
            fn eq(&self, other: &Value) -> bool {
                other == self
            }
        }
    )*};
}

compares_with!(
    [] [u8],
    [] &[u8],
    [const N: usize] [u8; N],
    [const N: usize] &[u8; N],
    [] Vec<u8>,
    [] Bytes,
    [] str,
    [] &str,
    [] String,
);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_value_equals_the_same_bytes_whatever_holds_them() {
        let value = Value::from("Saturn");
        let text = String::from("Saturn");
        assert!(value == *"Saturn" && value == "Saturn" && value == text);
        assert!(value == *b"Saturn" && value == b"Saturn" && value == *text.as_bytes());
        assert!("Saturn" == value && b"Saturn" == value && text == value && *"Saturn" == value);
        let (bytes, shared) = (text.clone().into_bytes(), Bytes::from(text));
        assert!(value == bytes && shared == value);
        assert!(bytes == value && value == shared);
        for other in ["", "saturn", "Saturn\0", "Satur"] {
            assert_ne!(value, other);
            assert_ne!(other, value);
            assert_ne!(value, other.as_bytes());
        }
    }

    #[test]
    fn a_value_converts_into_bytes_and_back() {
        let bytes = vec![0, 0xff, b'k'];
        let value = Value::from(bytes.clone());
        let at = value.as_ptr();
        assert_eq!(Bytes::from(value.clone()), bytes);
        assert_eq!(Value::from(Bytes::from(value.clone())), value);
        assert_eq!(Value::from(&bytes[..]), Value::from(&[0, 0xff, b'k']));
        let back = Vec::from(value);
        assert!(back == bytes && back.as_ptr() == at, "nothing is copied");
        assert_eq!(Vec::from(Value::from(String::from("k"))), b"k");
    }

    #[test]
    fn a_short_copy_is_like_a_slice_of_the_same_bytes_and_takes_no_more() {
        assert_eq!(size_of::<Value>(), size_of::<Bytes>());
        for len in 0..=SHORT_BYTES_MAX {
            let bytes = vec![len as u8; len];
            let (short, slice) = (Value::short(&bytes).unwrap(), Value::from(bytes.clone()));
            assert!(matches!(short.0, Repr::Short(..)) && short == slice && short == bytes);
            assert_eq!(HashSet::from([short.clone()]).get(&bytes[..]), Some(&slice));
            let longer = Value::from([&bytes[..], b"x"].concat());
            assert!(short.cmp(&slice).is_eq() && short < longer);
            assert_eq!((Bytes::from(short.clone()), Vec::from(short)), (Bytes::from(bytes.clone()), bytes));
        }
        assert_eq!(Value::short(&[1; SHORT_BYTES_MAX + 1]), None);
    }

    #[test]
    fn what_is_no_text_is_displayed_as_replacement_characters() {
        let shown = |bytes: &[u8]| Value::from(bytes).to_string();
        assert_eq!(shown("größe".as_bytes()), "größe");
        assert_eq!(shown(b"a\xffb\xc3"), "a\u{fffd}b\u{fffd}");
        assert_eq!(format!("{:>5}|{:<4}|", Value::from("ab"), Value::from(b"\xff")), "   ab|\u{fffd}   |");
    }
}
