//! The readable writes of a batch or transaction, by keyspace and key.
//!
//! The last write of a key wins. A range delete removes earlier writes of its keys, so in a batch all range deletes of
//! a keyspace come first. A write during an iteration first copies the keyspace's writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{KeyspaceId, OpenId, WriteBatch};
use crate::db::queues::intervals::Intervals;
use crate::db::queues::read_set::Tracker;
use crate::error::{Error, Result};
use crate::limits::{BATCH_BYTES_MAX, KEY_BYTES_MAX, SEQNO_MAX, VALUE_BYTES_MAX};
use crate::number_map::NumberMap;
use crate::snapshot_read::KeyRange;
use crate::spans::{Spans, SpansBuilder};

#[derive(Debug, Clone, Default)]
pub(in crate::db) struct Writes {
    /// `None` is a delete.
    pub(super) keys: BTreeMap<Bytes, Option<Bytes>>,
    ranges: Intervals,
}

const FRAMING_BYTES: usize = 21;

#[derive(Debug, Clone, Default)]
pub(in crate::db) struct OwnWrites {
    keyspaces: NumberMap<KeyspaceId, Arc<Writes>>,
    len: usize,
    bytes: usize,
    refused: Option<Error>,
    store: Option<OpenId>,
}

#[derive(Debug, Clone)]
pub(in crate::db) struct Own {
    writes: Option<Arc<Writes>>,
    refused: Option<Error>,
    tracker: Option<Tracker>,
}

impl OwnWrites {
    pub(in crate::db) fn bind(&mut self, store: OpenId) -> bool {
        let is_same = *self.store.get_or_insert(store) == store;
        if !is_same {
            self.refuse(Error::invalid("a batch holds keyspaces of two different stores"));
        }
        is_same
    }

    /// `None` deletes. O(log n), or O(n) while an iterator over the keyspace exists.
    pub(in crate::db) fn set(&mut self, keyspace: KeyspaceId, key: &[u8], value: Option<&[u8]>) {
        let value_len = value.map_or(0, <[u8]>::len);
        let size = |value_len| FRAMING_BYTES + key.len() + value_len;
        let before = self.keyspaces.get(&keyspace).and_then(|writes| writes.keys.get(key));
        let before = before.map(|value| size(value.as_ref().map_or(0, Bytes::len)));
        let bytes = self.bytes - before.unwrap_or(0) + size(value_len);
        let limits = [
            ("key length", KEY_BYTES_MAX, key.len()),
            ("value length", VALUE_BYTES_MAX, value_len),
            ("batch size", BATCH_BYTES_MAX, bytes),
        ];
        if let Some((what, limit, asked)) = limits.into_iter().find(|(_, limit, asked)| asked > limit) {
            return self.refuse(Error::limit(what, limit as u64, asked as u64));
        }
        let writes = Arc::make_mut(self.keyspaces.get_or_insert_with(keyspace, Arc::default));
        writes.keys.insert(Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
        self.bytes = bytes;
        self.len += usize::from(before.is_none());
    }

    /// O(log n) for each written key of the range, or O(n) while an iterator over the keyspace exists.
    pub(in crate::db) fn delete_range(&mut self, keyspace: KeyspaceId, range: &KeyRange) {
        let (start, end) = match range.to_delete() {
            Ok(Some(range)) => range,
            Ok(None) => return,
            Err(error) => return self.refuse(error),
        };
        let bytes = self.bytes + FRAMING_BYTES + start.len() + end.len();
        if bytes > BATCH_BYTES_MAX {
            return self.refuse(Error::limit("batch size", BATCH_BYTES_MAX as u64, bytes as u64));
        }
        let writes = Arc::make_mut(self.keyspaces.get_or_insert_with(keyspace, Arc::default));
        let upper = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(&end) };
        let hidden: Vec<_> = writes
            .keys
            .range::<Bytes, _>((Bound::Included(&start), upper))
            .map(|(key, _)| key.clone())
            .collect();
        let mut bytes = self.bytes;
        for key in hidden {
            let value = writes.keys.remove(&key).flatten();
            bytes -= FRAMING_BYTES + key.len() + value.map_or(0, |value| value.len());
            self.len -= 1;
        }
        let freed = writes.ranges.add(start, (!end.is_empty()).then_some(end), &mut bytes);
        self.bytes = bytes - freed;
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
    }

    pub(in crate::db) fn is_empty(&self) -> bool {
        self.len() == 0 && self.refused.is_none()
    }

    pub(in crate::db) fn len(&self) -> usize {
        self.len + self.keyspaces.values().map(|writes| writes.ranges.len()).sum::<usize>()
    }

    pub(in crate::db) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(in crate::db) fn own(&self, keyspace: KeyspaceId) -> Own {
        let writes = self.keyspaces.get(&keyspace).cloned();
        Own { writes, refused: self.refused.clone(), tracker: None }
    }

    pub(in crate::db) fn own_in(&self, store: OpenId, keyspace: KeyspaceId) -> Own {
        let mut own = self.own(keyspace);
        if self.store.is_some_and(|bound| bound != store) {
            own.refused.get_or_insert_with(|| Error::invalid("the batch holds keyspaces of another store"));
        }
        own
    }

    pub(in crate::db) fn to_batch(&self) -> WriteBatch {
        let mut batch = WriteBatch::with_capacity(self.bytes);
        if let Some(store) = self.store {
            batch.bind(store);
        }
        for (&keyspace, writes) in &self.keyspaces {
            for (start, end) in writes.ranges.iter() {
                batch.push_range_delete(keyspace, start, end.map_or(&[], |end| end));
            }
            for (key, value) in &writes.keys {
                match value {
                    Some(value) => batch.push_put(keyspace, key, value),
                    None => batch.push_delete(keyspace, key),
                };
            }
        }
        if let Some(refused) = &self.refused {
            batch.refuse(refused.clone());
        }
        batch
    }
}

impl Own {
    /// Returns the error of the first rejected write, which a read would miss.
    pub(in crate::db) fn check(&self) -> Result<()> {
        self.refused.as_ref().map_or(Ok(()), |refused| Err(refused.clone()))
    }

    pub(in crate::db) fn find(&self, key: &[u8]) -> Option<&Option<Bytes>> {
        let writes = self.writes.as_ref()?;
        writes.keys.get(key).or_else(|| writes.ranges.contains(key).then_some(&None))
    }

    pub(in crate::db) fn spans(&self) -> Option<Arc<Spans>> {
        let ranges = &self.writes.as_ref()?.ranges;
        let mut spans = SpansBuilder::default();
        for (start, end) in ranges.iter() {
            spans.push(&start[..].into(), end.map(|end| end[..].into()).as_ref(), &[SEQNO_MAX]);
        }
        (!spans.is_empty()).then(|| Arc::new(spans.finish()))
    }

    pub(in crate::db) fn tracked(self, tracker: Option<Tracker>) -> Self {
        Self { tracker, ..self }
    }

    pub(in crate::db) fn note_key(&self, key: &[u8]) {
        if let Some(tracker) = &self.tracker {
            tracker.note_key(key);
        }
    }

    pub(in crate::db) fn into_parts(self) -> (Arc<Writes>, Option<Tracker>) {
        (self.writes.unwrap_or_default(), self.tracker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchReader;

    #[test]
    fn the_last_write_of_each_key_counts_and_the_size_is_about_that_of_the_batch() {
        let mut writes = OwnWrites::default();
        for n in 0..1000_u32 {
            let key = (n % 100).to_be_bytes();
            writes.set(n % 3, &key, (n % 7 > 0).then_some(&[0; 50]));
        }
        let batch = writes.to_batch();
        assert_eq!((writes.len(), batch.len()), (300, 300));
        let spare = writes.bytes - batch.size_bytes();
        assert!(spare <= 300 * FRAMING_BYTES, "{spare}");
        let (bytes, keyspaces, _) = batch.into_parts().unwrap();
        assert_eq!(keyspaces, [0, 1, 2]);
        let entries: Vec<_> = BatchReader::open(&bytes).unwrap().map(Result::unwrap).collect();
        assert!(entries.is_sorted_by_key(|entry| (entry.keyspace, &bytes[entry.key.clone()])));
        writes.clear();
        assert_eq!((writes.len(), writes.bytes, writes.to_batch().len()), (0, 0, 0));
    }

    #[test]
    fn a_large_value_can_be_written_again_near_the_limit_of_a_batch() {
        let value = vec![0; 100 << 20];
        let mut writes = OwnWrites::default();
        (0..10_u8).for_each(|n| writes.set(0, &[n], Some(&value)));
        let bytes = writes.bytes;
        writes.set(0, &[3], Some(&value));
        assert_eq!((writes.own(0).check().is_ok(), writes.bytes, writes.len()), (true, bytes, 10));
    }

    #[test]
    fn a_write_over_a_limit_is_refused_and_what_is_read_afterwards_says_so() {
        let (key, value) = (vec![0; KEY_BYTES_MAX + 1], vec![0; 100 << 20]);
        let mut writes = OwnWrites::default();
        writes.set(0, b"k", Some(b"v"));
        assert!(writes.own(0).check().is_ok());
        let mut long = writes.clone();
        long.set(0, &key, None);
        let mut large = writes.clone();
        (0..11_u8).for_each(|n| large.set(0, &[n], Some(&value)));
        for (writes, what) in [(long, "key length"), (large, "batch size")] {
            let error = writes.own(7).check().unwrap_err();
            assert!(matches!(error, Error::LimitExceeded { what: found, .. } if found == what), "{error}");
            assert!(matches!(writes.to_batch().into_parts(), Err(Error::LimitExceeded { .. })));
        }
    }
}
