//! A value, or a key of an iterator, as a caller gets it.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

use crate::error::Result;
use crate::iter::EntryValue;

/// A value as a slice of the block or memtable that holds it, or a key of an iterator as a slice of a few keys
/// (1 KiB at most). Cheap to clone. It keeps that memory alive; [`Value::to_vec`] copies the bytes.
///
/// It is compared with bytes and with text alike, and converts from and into [`Vec<u8>`] and [`Bytes`].
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
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Bytes);

impl Value {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The whole of a value that a lookup found.
    pub(crate) fn read(value: EntryValue) -> Result<Self> {
        value.read().map(Self)
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
        self.0.to_vec()
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// As text: what is not UTF-8 is shown as `\u{fffd}`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(&self.0))
    }
}

/// Copies only if the bytes are a part of a block or memtable, or are shared.
impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.0.into()
    }
}

/// Copies nothing.
impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        value.0
    }
}

/// Copies nothing.
impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

/// Copies nothing.
impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

/// Copies nothing.
impl From<String> for Value {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// Copies the bytes.
impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

/// Copies the bytes.
impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(&bytes[..])
    }
}

/// Copies the bytes.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

/// Comparisons with what gives bytes, in both directions.
macro_rules! compares_with {
    ($([$($generics:tt)*] $other:ty),* $(,)?) => {$(
        impl<$($generics)*> PartialEq<$other> for Value {
            fn eq(&self, other: &$other) -> bool {
                let other: &[u8] = other.as_ref();
                self.0 == other
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
    fn what_is_no_text_is_displayed_as_replacement_characters() {
        let shown = |bytes: &[u8]| Value::from(bytes).to_string();
        assert_eq!(shown("größe".as_bytes()), "größe");
        assert_eq!(shown(b"a\xffb\xc3"), "a\u{fffd}b\u{fffd}");
        assert_eq!(format!("{:>5}|{:<4}|", Value::from("ab"), Value::from(b"\xff")), "   ab|\u{fffd}   |");
    }
}
