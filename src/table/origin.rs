//! The origin of a table's entries: a field of its properties.
//!
//! ```text
//! keyspace id varint · name of the keyspace string · newest varint · from bound · to bound ·
//! replaced numbers · earlier numbers
//! bound      kind u8 (0 none, 1 with the key, 2 without it) · key string, unless the kind is 0
//! numbers    count varint · the largest varint · each other as its difference to the one before varint
//! ```
//!
//! Between the bounds, the table replaces the tables in `replaced`. Those had replaced the tables in `earlier`,
//! directly or indirectly; this list has only the newest. Repair uses the origin if the manifest is damaged.

use std::ops::Bound;

use bytes::Bytes;

use crate::batch::KeyspaceId;
use crate::codec::{DecodeError, Reader, put_length_prefixed, put_varint};
use crate::key::SeqNo;
use crate::limits::{FILE_NUMBER_MAX, KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, SEQNO_MAX};

pub(crate) const EARLIER_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) name: String,
    /// The newest sequence number of the inputs, before any number was set to 0 or dropped.
    pub(crate) newest: SeqNo,
    pub(crate) from: Bound<Bytes>,
    pub(crate) to: Bound<Bytes>,
    pub(crate) replaced: Vec<u64>,
    pub(crate) earlier: Vec<u64>,
}

impl Origin {
    /// Tables missing in `earlier` have smaller numbers than this one.
    pub(crate) fn unlisted_below(&self) -> Option<u64> {
        self.earlier.last().copied().filter(|_| self.earlier.len() >= EARLIER_MAX)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.keyspace));
        put_length_prefixed(out, self.name.as_bytes());
        put_varint(out, self.newest);
        for bound in [&self.from, &self.to] {
            let (kind, key) = match bound {
                Bound::Unbounded => (0, None),
                Bound::Included(key) => (1, Some(key)),
                Bound::Excluded(key) => (2, Some(key)),
            };
            out.push(kind);
            key.into_iter().for_each(|key| put_length_prefixed(out, key));
        }
        for numbers in [&self.replaced, &self.earlier] {
            put_varint(out, numbers.len() as u64);
            let before = std::iter::once(0).chain(numbers.iter().copied());
            before.zip(numbers).for_each(|(before, &number)| put_varint(out, before.abs_diff(number)));
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let keyspace = reader.length(u64::from(u32::MAX), "keyspace of the table")? as KeyspaceId;
        let start = reader.offset();
        let name = reader.length_prefixed(KEYSPACE_NAME_BYTES_MAX as u64, "name of the keyspace")?;
        let name = std::str::from_utf8(name)
            .map_err(|error| DecodeError::corrupt(start, "name of the keyspace", error.to_string()))?;
        Ok(Self {
            keyspace,
            name: name.to_owned(),
            newest: reader.varint_up_to(SEQNO_MAX, "newest sequence number")?,
            from: bound(reader)?,
            to: bound(reader)?,
            replaced: numbers(reader)?,
            earlier: numbers(reader)?,
        })
    }
}

fn bound(reader: &mut Reader<'_>) -> Result<Bound<Bytes>, DecodeError> {
    let start = reader.offset();
    let kind = reader.u8("kind of a bound")?;
    let mut key = || reader.length_prefixed(KEY_BYTES_MAX as u64, "bound").map(Bytes::copy_from_slice);
    match kind {
        0 => Ok(Bound::Unbounded),
        1 => key().map(Bound::Included),
        2 => key().map(Bound::Excluded),
        _ => Err(DecodeError::corrupt(start, "kind of a bound", format!("{kind} is not 0, 1 or 2"))),
    }
}

fn numbers(reader: &mut Reader<'_>) -> Result<Vec<u64>, DecodeError> {
    let count = reader.length(reader.remaining() as u64, "number of tables")?;
    let mut numbers = Vec::with_capacity(count);
    for index in 0..count {
        let start = reader.offset();
        let difference = reader.varint_up_to(FILE_NUMBER_MAX, "table number")?;
        let number = match numbers.last() {
            None => Some(difference),
            Some(&before) => u64::checked_sub(before, difference),
        };
        match number.filter(|&number| number > 0 && (index == 0 || difference > 0)) {
            Some(number) => numbers.push(number),
            None => {
                return Err(DecodeError::corrupt(start, "table number", "the numbers do not descend to 1"));
            }
        }
    }
    Ok(numbers)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn origin() -> Origin {
        Origin {
            keyspace: 3,
            name: "users".into(),
            newest: 900,
            from: Bound::Excluded(Bytes::from_static(b"apple")),
            to: Bound::Unbounded,
            replaced: vec![300, 17, 16],
            earlier: vec![9],
        }
    }

    fn encoded(origin: &Origin) -> Vec<u8> {
        let mut bytes = Vec::new();
        origin.encode(&mut bytes);
        bytes
    }

    #[test]
    fn an_origin_comes_back() {
        let flushed = Origin {
            from: Bound::Unbounded,
            to: Bound::Included(Bytes::from_static(b"")),
            replaced: Vec::new(),
            earlier: Vec::new(),
            ..origin()
        };
        for origin in [origin(), flushed] {
            let bytes = encoded(&origin);
            let mut reader = Reader::new(&bytes);
            assert_eq!((Origin::decode(&mut reader), reader.remaining()), (Ok(origin), 0));
        }
    }

    #[test]
    fn a_truncated_origin_is_an_error_at_every_length() {
        let bytes = encoded(&origin());
        for len in 0..bytes.len() {
            assert!(Origin::decode(&mut Reader::new(&bytes[..len])).is_err(), "{len}");
        }
    }

    #[test]
    fn numbers_that_do_not_descend_to_one_are_refused() {
        for wrong in [&[2, 5, 0][..], &[2, 5, 5], &[2, 5, 9], &[1, 0], &[200]] {
            let error = numbers(&mut Reader::new(wrong)).unwrap_err();
            assert!(matches!(error.what, "table number" | "number of tables"), "{wrong:?}: {error}");
        }
        assert_eq!(numbers(&mut Reader::new(&[2, 5, 4])), Ok(vec![5, 1]));
    }
}
