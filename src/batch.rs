//! A batch of writes, in the encoding of the log and of the memtables.
//!
//! ```text
//! batch   first sequence number u64 · entry count u32 · entry*
//! entry   kind u8 · keyspace id varint · key length varint · key · (value length varint · value) if Put
//!         kind u8 · keyspace id varint · start length varint · start · end length varint · end   if RangeDelete
//! ```
//!
//! A range delete hides the keys from its start up to its end, exclusive. An empty end means no end. Entry `i` has
//! sequence number `first + i`; the commit leader sets `first`.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use byteorder::{ByteOrder, LittleEndian};

use crate::codec::{DecodeError, Reader, put_length_prefixed, put_varint};
use crate::error::{Error, Result};
use crate::key::{ENTRY_KIND_MAX, EntryKind, SeqNo};
use crate::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, SEQNO_MAX, VALUE_BYTES_MAX};

pub(crate) type KeyspaceId = u32;

pub(crate) const DEFAULT_KEYSPACE: KeyspaceId = 0;

/// Identifies an open store in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenId(u64);

impl OpenId {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) const HEADER_BYTES: usize = 12;

const FRAMING_BYTES_MAX: usize = 1 + 5 + 3 + 5;

const SPARE_BYTES_MAX: usize = 64;

/// Writes that become visible and durable atomically.
///
/// The last entry for a key wins. [`Db::write`](crate::Db::write) consumes a batch, or copies it if called with a
/// reference. A write returns the first error of the batch's methods, such as a key over the limit.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// let mut batch = sievedb::WriteBatch::new();
/// batch.put("from", "90").put("to", "110").delete("pending");
/// assert_eq!(batch.len(), 3);
/// db.write(&batch)?;
/// batch.clear();
/// batch.extend([("planet", "Saturn"), ("moon", "Titan")]);
/// db.write(batch)?;
/// # Ok::<(), sievedb::Error>(())
/// ```
#[doc(alias = "Batch")]
#[doc(alias = "OwnedWriteBatch")]
#[derive(Debug, Clone)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    keyspace: Option<KeyspaceId>,
    others: Vec<KeyspaceId>,
    refused: Option<Error>,
    store: Option<OpenId>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl From<&WriteBatch> for WriteBatch {
    fn from(batch: &WriteBatch) -> Self {
        batch.clone()
    }
}

impl From<&mut WriteBatch> for WriteBatch {
    fn from(batch: &mut WriteBatch) -> Self {
        batch.clone()
    }
}

/// Puts the entries into the default keyspace.
impl<K: AsRef<[u8]>, V: AsRef<[u8]>> Extend<(K, V)> for WriteBatch {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.put(key, value);
        }
    }
}

/// Puts the entries into the default keyspace.
///
/// ```
/// let batch: sievedb::WriteBatch = [("from", "90"), ("to", "110")].into_iter().collect();
/// assert_eq!(batch.len(), 2);
/// ```
impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, V)> for WriteBatch {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut batch = Self::new();
        batch.extend(entries);
        batch
    }
}

impl WriteBatch {
    /// An empty batch.
    ///
    /// ```
    /// assert_eq!(sievedb::WriteBatch::new().len(), 0);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty batch with room for `bytes` bytes of encoded entries.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::with_capacity(64 << 10);
    /// batch.put("k", "v");
    /// assert_eq!(batch.len(), 1);
    /// ```
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(HEADER_BYTES + bytes);
        buffer.resize(HEADER_BYTES, 0);
        Self { bytes: buffer, count: 0, keyspace: None, others: Vec::new(), refused: None, store: None }
    }

    /// Sets `key` to `value` in the default keyspace.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.put("from", "90").put("to", "110");
    /// assert_eq!(batch.len(), 2);
    /// ```
    #[doc(alias = "insert")]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push_put(DEFAULT_KEYSPACE, key.as_ref(), value.as_ref())
    }

    /// Removes `key` from the default keyspace.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.delete("pending").delete("failed");
    /// assert_eq!(batch.len(), 2);
    /// ```
    #[doc(alias = "remove")]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push_delete(DEFAULT_KEYSPACE, key.as_ref())
    }

    /// The number of entries, repeated keys included.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.put("k", "v").delete("k");
    /// assert_eq!(batch.len(), 2);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether the batch has no entries.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// assert!(batch.is_empty());
    /// batch.put("k", "v");
    /// assert!(!batch.is_empty());
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the size of the encoded batch in bytes, at most 1 GiB.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// let empty = batch.size_bytes();
    /// batch.put("key", [0; 1000]);
    /// assert!(batch.size_bytes() > empty + 1000);
    /// ```
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all entries and keeps the memory.
    ///
    /// ```
    /// let mut batch = sievedb::WriteBatch::new();
    /// batch.put("k", "v");
    /// batch.clear();
    /// assert!(batch.is_empty());
    /// ```
    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.fill(0);
        self.count = 0;
        self.keyspace = None;
        self.others.clear();
        self.refused = None;
        self.store = None;
    }

    pub(crate) fn bind(&mut self, store: OpenId) {
        if *self.store.get_or_insert(store) != store {
            self.refuse(Error::invalid("a batch holds keyspaces of two different stores"));
        }
    }

    pub(crate) fn store(&self) -> Option<OpenId> {
        self.store
    }

    pub(crate) fn push_put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> &mut Self {
        self.add_put(keyspace, key, value);
        self
    }

    pub(crate) fn add_put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Option<Range<usize>> {
        if let Err(error) = check_value(value) {
            self.refuse(error);
            return None;
        }
        let place = self.push_key(EntryKind::Put, keyspace, key, value.len() + 10)?;
        put_length_prefixed(&mut self.bytes, value);
        Some(place)
    }

    pub(crate) fn push_delete(&mut self, keyspace: KeyspaceId, key: &[u8]) -> &mut Self {
        self.push_key(EntryKind::Delete, keyspace, key, 0);
        self
    }

    pub(crate) fn push_range_delete(&mut self, keyspace: KeyspaceId, start: &[u8], end: &[u8]) -> &mut Self {
        debug_assert!(end.is_empty() || start < end, "a range of no key is not written");
        if let Err(error) = check_key(end) {
            self.refuse(error);
        } else if self.push_key(EntryKind::RangeDelete, keyspace, start, end.len() + 10).is_some() {
            put_length_prefixed(&mut self.bytes, end);
        }
        self
    }

    fn push_key(
        &mut self,
        kind: EntryKind,
        keyspace: KeyspaceId,
        key: &[u8],
        value_bytes: usize,
    ) -> Option<Range<usize>> {
        if let Err(error) = check_key(key) {
            self.refuse(error);
            return None;
        }
        let size = self.bytes.len() + 11 + key.len() + value_bytes;
        if size > BATCH_BYTES_MAX || self.count == u32::MAX {
            self.refuse(Error::limit("batch size", BATCH_BYTES_MAX as u64, size as u64));
            return None;
        }
        if *self.keyspace.get_or_insert(keyspace) != keyspace && !self.others.contains(&keyspace) {
            self.others.push(keyspace);
        }
        put_key(&mut self.bytes, kind, keyspace, key);
        self.count += 1;
        Some(self.bytes.len() - key.len()..self.bytes.len())
    }

    pub(crate) fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    pub(crate) fn into_parts(mut self) -> Result<(Vec<u8>, Vec<KeyspaceId>, u32)> {
        let (count, others) = (self.count, std::mem::take(&mut self.others));
        let keyspaces = self.keyspace.into_iter().chain(others).collect();
        Ok((self.into_bytes()?, keyspaces, count))
    }

    fn into_bytes(self) -> Result<Vec<u8>> {
        match self.refused {
            Some(error) => Err(error),
            None => {
                let mut bytes = self.bytes;
                finish(&mut bytes, self.count);
                Ok(bytes)
            }
        }
    }
}

pub(crate) fn range_deletes(bytes: &[u8]) -> (usize, usize) {
    let entries = BatchReader::open(bytes).into_iter().flatten().flatten();
    let range_deletes = entries.filter(|entry| entry.kind == EntryKind::RangeDelete);
    range_deletes.fold((0, 0), |(count, sum), entry| (count + 1, sum + entry.key.len() + entry.value.len()))
}

pub(crate) fn of_one(keyspace: KeyspaceId, key: &[u8], value: Option<&[u8]>) -> Result<Vec<u8>> {
    check_key(key)?;
    value.map_or(Ok(()), check_value)?;
    let mut bytes =
        Vec::with_capacity(HEADER_BYTES + FRAMING_BYTES_MAX + key.len() + value.map_or(0, <[u8]>::len));
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    match value {
        Some(value) => {
            put_key(&mut bytes, EntryKind::Put, keyspace, key);
            put_length_prefixed(&mut bytes, value);
        }
        None => put_key(&mut bytes, EntryKind::Delete, keyspace, key),
    }
    Ok(bytes)
}

#[inline]
fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX { Ok(()) } else { Err(over_limit("key length", KEY_BYTES_MAX, key)) }
}

#[inline]
fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_BYTES_MAX {
        Ok(())
    } else {
        Err(over_limit("value length", VALUE_BYTES_MAX, value))
    }
}

#[cold]
fn over_limit(what: &'static str, limit: usize, bytes: &[u8]) -> Error {
    Error::limit(what, limit as u64, bytes.len() as u64)
}

#[inline(always)]
fn put_key(out: &mut Vec<u8>, kind: EntryKind, keyspace: KeyspaceId, key: &[u8]) {
    out.push(kind as u8);
    put_varint(out, u64::from(keyspace));
    put_length_prefixed(out, key);
}

fn finish(bytes: &mut Vec<u8>, count: u32) {
    LittleEndian::write_u32(&mut bytes[8..12], count);
    trim(bytes);
}

pub(crate) fn select(all: &[u8], wanted: impl Fn(usize) -> bool) -> Result<Vec<u8>, DecodeError> {
    let mut selected = Vec::with_capacity(all.len());
    selected.resize(HEADER_BYTES, 0);
    let (mut start, mut count) = (HEADER_BYTES, 0);
    for (at, entry) in BatchReader::open(all)?.enumerate() {
        let end = entry?.value.end;
        if wanted(at) {
            selected.extend_from_slice(&all[start..end]);
            count += 1;
        }
        start = end;
    }
    finish(&mut selected, count);
    Ok(selected)
}

pub(crate) fn append(bytes: &mut Vec<u8>, more: &[u8]) -> Result<()> {
    let size = bytes.len() + more.len() - HEADER_BYTES;
    if size > BATCH_BYTES_MAX {
        return Err(Error::limit("batch size", BATCH_BYTES_MAX as u64, size as u64));
    }
    let count = count(bytes) + count(more);
    bytes.extend_from_slice(&more[HEADER_BYTES..]);
    finish(bytes, count);
    Ok(())
}

pub(crate) fn truncate(bytes: &mut Vec<u8>, len: usize, count: u32) {
    bytes.truncate(len);
    finish(bytes, count);
}

fn trim(bytes: &mut Vec<u8>) {
    if bytes.capacity() - bytes.len() > SPARE_BYTES_MAX + bytes.len() / 8 {
        bytes.shrink_to_fit();
    }
}

pub(crate) fn count(bytes: &[u8]) -> u32 {
    bytes.get(8..HEADER_BYTES).map_or(0, LittleEndian::read_u32)
}

pub(crate) fn stamp(bytes: &mut [u8], first: SeqNo) {
    LittleEndian::write_u64(&mut bytes[..8], first);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchEntry {
    pub(crate) seqno: SeqNo,
    pub(crate) kind: EntryKind,
    pub(crate) keyspace: KeyspaceId,
    pub(crate) key: Range<usize>,
    /// The value. Empty for a delete. For a range delete, the end of the range; empty means no end.
    pub(crate) value: Range<usize>,
}

#[derive(Debug, Clone)]
pub(crate) struct BatchReader<'a> {
    reader: Reader<'a>,
    pub(crate) first: SeqNo,
    pub(crate) count: u32,
    read: u32,
    failed: bool,
}

impl<'a> BatchReader<'a> {
    #[inline(always)]
    pub(crate) fn open(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let first = reader.u64("batch sequence number")?;
        let count = reader.u32("batch entry count")?;
        if u64::from(count) * 3 > reader.remaining() as u64 {
            return Err(wrong_header(8, "batch entry count", format_args!("{count} entries cannot fit")));
        }
        if first.checked_add(u64::from(count)).is_none_or(|end| end > SEQNO_MAX) {
            return Err(wrong_header(0, "batch sequence number", format_args!("{first} is out of range")));
        }
        Ok(Self { reader, first, count, read: 0, failed: false })
    }

    pub(crate) fn last_seqno(&self) -> SeqNo {
        (self.first + u64::from(self.count)).saturating_sub(1)
    }

    #[inline(always)]
    fn read_entry(&mut self) -> Result<BatchEntry, DecodeError> {
        let at = self.reader.position() as u64;
        let raw = self.reader.u8("entry kind")?;
        let kind = EntryKind::from_u8(raw).ok_or_else(|| {
            DecodeError::unsupported(at, "entry kind", u64::from(raw), u64::from(ENTRY_KIND_MAX))
        })?;
        let keyspace = self.reader.length(u64::from(u32::MAX), "keyspace id")? as KeyspaceId;
        let key = self.range(KEY_BYTES_MAX, "key")?;
        let value = match kind {
            EntryKind::Put => self.range(VALUE_BYTES_MAX, "value")?,
            EntryKind::Delete => key.end..key.end,
            EntryKind::RangeDelete => self.end_of_range(at, &key)?,
        };
        let seqno = self.first + u64::from(self.read);
        Ok(BatchEntry { seqno, kind, keyspace, key, value })
    }

    #[inline(never)]
    fn end_of_range(&mut self, at: u64, start: &Range<usize>) -> Result<Range<usize>, DecodeError> {
        let end = self.range(KEY_BYTES_MAX, "end of a range")?;
        let bytes = self.reader.read_so_far();
        if !end.is_empty() && bytes[start.clone()] >= bytes[end.clone()] {
            return Err(DecodeError::corrupt(at, "range delete", "the start is not before the end"));
        }
        Ok(end)
    }

    #[inline(always)]
    fn range(&mut self, limit: usize, what: &'static str) -> Result<Range<usize>, DecodeError> {
        debug_assert!(limit >= 0x80, "a short length is within every limit");
        let len = match self.reader.skip_short() {
            Some(len) => len,
            None => self.reader.length_prefixed(limit as u64, what)?.len(),
        };
        let end = self.reader.position();
        Ok(end - len..end)
    }
}

#[cold]
fn wrong_header(at: u64, what: &'static str, detail: std::fmt::Arguments<'_>) -> DecodeError {
    DecodeError::corrupt(at, what, detail.to_string())
}

impl Iterator for BatchReader<'_> {
    type Item = Result<BatchEntry, DecodeError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.read == self.count {
            if self.reader.is_empty() {
                return None;
            }
            self.failed = true;
            return Some(Err(self.reader.corrupt("batch", "bytes follow the last entry")));
        }
        let entry = self.read_entry();
        self.failed = entry.is_err();
        self.read += 1;
        Some(entry)
    }
}

#[cold]
pub(crate) fn foreign() -> Error {
    Error::invalid("a batch holds a keyspace it does not name")
}

#[cold]
pub(crate) fn own_batch(error: DecodeError) -> Error {
    Error::invalid(format!("a batch of this process cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Vec<BatchEntry>, DecodeError> {
        BatchReader::open(bytes)?.collect()
    }

    #[test]
    fn unused_capacity_is_released_when_a_batch_is_written() {
        for (room, value) in [(1 << 20, 5), (0, 100_000), (200_000, 100_000), (0, 70_000)] {
            let mut batch = WriteBatch::with_capacity(room);
            batch.put(b"a", vec![1; value / 2]).put(b"b", vec![2; value / 2]).put(b"c", b"3");
            let bytes = batch.into_parts().unwrap().0;
            let spare = bytes.capacity() - bytes.len();
            assert!(spare <= SPARE_BYTES_MAX + bytes.len() / 8, "{spare} beside {}", bytes.len());
        }
    }

    #[test]
    fn entries_come_back_in_order_with_consecutive_sequence_numbers() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"").push_put(7, b"k", b"");
        assert_eq!(batch.len(), 3);
        let (mut bytes, keyspaces, count) = batch.into_parts().unwrap();
        assert_eq!((keyspaces, count), (vec![0, 7], 3));
        stamp(&mut bytes, 41);
        let entries = decode(&bytes).unwrap();
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (e.seqno, e.kind, e.keyspace, &bytes[e.key.clone()], &bytes[e.value.clone()]))
            .collect();
        assert_eq!(
            seen,
            [
                (41, EntryKind::Put, 0, &b"a"[..], &b"1"[..]),
                (42, EntryKind::Delete, 0, b"", b""),
                (43, EntryKind::Put, 7, b"k", b""),
            ]
        );
    }

    #[test]
    fn a_part_of_a_batch_is_the_batch_of_the_wanted_entries() {
        let ops: [(&[u8], Option<&[u8]>); 5] =
            [(b"a", Some(b"1")), (b"b", None), (b"", Some(b"")), (b"b", Some(&[7; 300])), (b"e", None)];
        let batch = |wanted: u32| {
            let mut batch = WriteBatch::new();
            for (at, (key, value)) in ops.iter().enumerate().filter(|(at, _)| wanted >> at & 1 == 1) {
                let keyspace = at as u32 * 100;
                match value {
                    Some(value) => batch.push_put(keyspace, key, value),
                    None => batch.push_delete(keyspace, key),
                };
            }
            batch.into_parts().unwrap().0
        };
        for wanted in 0..32 {
            assert_eq!(select(&batch(31), |at| wanted >> at & 1 == 1).unwrap(), batch(wanted));
        }
    }

    #[test]
    fn range_deletes_come_back() {
        let mut batch = WriteBatch::new();
        batch.put("a", "1").push_range_delete(7, b"b", b"c").push_range_delete(0, b"", b"");
        let bytes = batch.into_parts().unwrap().0;
        let entries = decode(&bytes).unwrap();
        let ranges =
            entries[1..].iter().map(|entry| (entry.keyspace, entry.key.clone(), entry.value.clone()));
        let ranges: Vec<_> = ranges.map(|(id, start, end)| (id, &bytes[start], &bytes[end])).collect();
        assert_eq!(ranges, [(7, &b"b"[..], &b"c"[..]), (0, b"", b"")]);
        assert_eq!((entries[2].seqno, entries[2].kind), (2, EntryKind::RangeDelete));
    }

    #[test]
    fn a_range_of_no_key_and_every_truncation_of_a_range_delete_are_errors() {
        let read = decode;
        let range = |start: &[u8], end: &[u8]| {
            let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0];
            put_length_prefixed(&mut bytes, start);
            put_length_prefixed(&mut bytes, end);
            bytes
        };
        for (start, end) in [(&b"b"[..], &b"b"[..]), (b"c", b"b"), (b"b\0", b"b")] {
            let error = read(&range(start, end)).unwrap_err();
            assert_eq!((error.what, error.offset), ("range delete", 12));
        }
        let long = [7; KEY_BYTES_MAX + 1];
        assert_eq!(read(&range(b"", &long)).unwrap_err().what, "end of a range");
        let good = range(b"b", b"b\0");
        assert!(read(&good).is_ok());
        for len in 0..good.len() {
            assert!(read(&good[..len]).is_err(), "{len}");
        }
        let mut batch = WriteBatch::new();
        batch.push_range_delete(0, b"", &long);
        assert!(matches!(batch.into_parts(), Err(Error::LimitExceeded { what: "key length", .. })));
    }

    #[test]
    fn a_key_over_the_limit_refuses_the_batch_when_it_is_written() {
        let mut batch = WriteBatch::new();
        batch.put(b"fine", b"").put(vec![0; KEY_BYTES_MAX + 1], b"").put(b"later", b"");
        assert!(matches!(batch.into_parts(), Err(Error::LimitExceeded { what: "key length", .. })));
        let mut batch = WriteBatch::new();
        batch.put(vec![0; KEY_BYTES_MAX], b"");
        assert!(batch.into_parts().is_ok());
    }

    #[test]
    fn every_truncation_of_a_batch_is_an_error() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value").delete(b"other");
        let bytes = batch.into_parts().unwrap().0;
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "length {len}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert!(decode(&longer).is_err());
    }
}
