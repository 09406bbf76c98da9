//! The contents of the records of a write-ahead log, and their order.

use super::boundary::{Boundary, decode_boundaries};
use super::durable_mark::{EditMark, decode_close, decode_promise};
use super::record::RecordKind;
use crate::batch::{BatchReader, KeyspaceId};
use crate::codec::DecodeError;
use crate::key::SeqNo;
use crate::number_map::NumberMap;

#[derive(Debug)]
pub(crate) enum Content<'a> {
    Batch(BatchReader<'a>),
    Promise(EditMark),
    Close(SeqNo, EditMark),
    Boundaries(Vec<(KeyspaceId, Boundary)>),
}

#[derive(Debug, Default)]
pub(crate) struct ContentReader {
    last_batch: SeqNo,
    boundaries: NumberMap<KeyspaceId, SeqNo>,
}

impl ContentReader {
    pub(crate) fn last_batch(&self) -> SeqNo {
        self.last_batch
    }

    pub(crate) fn decode<'a>(
        &mut self,
        kind: RecordKind,
        bytes: &'a [u8],
    ) -> Result<Content<'a>, DecodeError> {
        let last = self.last_batch;
        match kind {
            RecordKind::Batch => {
                let batch = BatchReader::open(bytes)?;
                self.last_batch = last.max(batch.last_seqno());
                if batch.first <= last {
                    let detail = format!("{} is not above {last}, the last one before it", batch.first);
                    return Err(DecodeError::corrupt(0, "batch sequence number", detail));
                }
                Ok(Content::Batch(batch))
            }
            RecordKind::Promise => Ok(Content::Promise(decode_promise(bytes)?)),
            RecordKind::Close => {
                let (stated, mark) = decode_close(bytes)?;
                if stated < last {
                    let detail = format!("{stated} is below {last}, the last one of the batches");
                    return Err(DecodeError::corrupt(0, "last sequence number of the log", detail));
                }
                Ok(Content::Close(stated, mark))
            }
            RecordKind::Boundaries => {
                let boundaries = decode_boundaries(bytes)?;
                boundaries.iter().try_for_each(|&(keyspace, boundary)| self.follow(keyspace, boundary))?;
                Ok(Content::Boundaries(boundaries))
            }
            RecordKind::Edit => Err(DecodeError::corrupt(0, "log record", "an edit in a log")),
        }
    }

    fn follow(&mut self, keyspace: KeyspaceId, boundary: Boundary) -> Result<(), DecodeError> {
        match self.boundaries.insert(keyspace, boundary.seqno) {
            Some(last) if boundary.seqno < last => {
                let detail = format!("{boundary:?} after sequence number {last} of keyspace {keyspace}");
                Err(DecodeError::corrupt(0, "bucket boundary", detail))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn check(&mut self, kind: RecordKind, bytes: &[u8]) -> Result<(), DecodeError> {
        match self.decode(kind, bytes)? {
            Content::Batch(mut batch) => batch.try_for_each(|entry| entry.map(drop)),
            Content::Promise(_) | Content::Close(..) | Content::Boundaries(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{WriteBatch, stamp};
    use crate::wal::{encode_boundaries, encode_close, encode_promise};

    const MARK: EditMark = EditMark { count: 7, hash: 8 };

    fn batch(first: SeqNo) -> Vec<u8> {
        let mut batch = WriteBatch::new();
        batch.put("a", "1").delete("b");
        let (mut bytes, ..) = batch.into_parts().unwrap();
        stamp(&mut bytes, first);
        bytes
    }

    #[test]
    fn each_kind_of_record_is_decoded_as_what_it_holds() {
        let mut reader = ContentReader::default();
        let bytes = batch(5);
        let Ok(Content::Batch(found)) = reader.decode(RecordKind::Batch, &bytes) else { panic!("no batch") };
        assert_eq!((found.first, found.last_seqno()), (5, 6));
        let promise = encode_promise(MARK);
        assert!(matches!(reader.decode(RecordKind::Promise, &promise), Ok(Content::Promise(MARK))));
        let close = encode_close(6, MARK);
        assert!(matches!(reader.decode(RecordKind::Close, &close), Ok(Content::Close(6, MARK))));
        assert!(reader.decode(RecordKind::Edit, &promise).is_err(), "a log holds no edits");
    }

    #[test]
    fn sequence_numbers_rise_and_a_close_record_is_not_below_them() {
        let read = |records: &[(RecordKind, Vec<u8>)]| {
            let mut reader = ContentReader::default();
            let mut results = records.iter().map(|(kind, bytes)| reader.check(*kind, bytes).is_ok());
            results.by_ref().take(records.len() - 1).for_each(|is_right| assert!(is_right));
            results.next().unwrap()
        };
        use RecordKind::{Batch, Close};
        assert!(read(&[(Batch, batch(5)), (Batch, batch(7))]), "5, 6, 7, 8");
        assert!(!read(&[(Batch, batch(5)), (Batch, batch(6))]), "6 was given out");
        assert!(read(&[(Batch, batch(5)), (Close, encode_close(6, MARK))]));
        assert!(read(&[(Batch, batch(5)), (Close, encode_close(60, MARK))]), "numbers may be left out");
        assert!(!read(&[(Batch, batch(5)), (Close, encode_close(5, MARK))]));
    }

    #[test]
    fn the_numbers_of_boundaries_of_a_keyspace_never_fall_from_record_to_record() {
        let mut reader = ContentReader::default();
        let mut read = |keyspace, time, seqno| {
            let bytes = encode_boundaries(&[(keyspace, Boundary { time, seqno })]);
            reader.check(RecordKind::Boundaries, &bytes).map_err(|error| error.what)
        };
        assert!(read(1, 1000, 5).is_ok() && read(2, 7, 1).is_ok() && read(1, 1000, 5).is_ok());
        assert!(read(1, 999, 6).is_ok(), "its options were changed in between");
        assert_eq!(read(1, 2000, 5), Err("bucket boundary"));
        assert_eq!(read(2, 8, 0), Err("bucket boundary"));
    }

    #[test]
    fn check_looks_at_each_entry_of_a_batch() {
        let mut bytes = batch(5);
        assert!(ContentReader::default().check(RecordKind::Batch, &bytes).is_ok());
        bytes.pop();
        assert!(
            ContentReader::default().decode(RecordKind::Batch, &bytes).is_ok(),
            "entries are not decoded"
        );
        assert!(ContentReader::default().check(RecordKind::Batch, &bytes).is_err());
    }
}
