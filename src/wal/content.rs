//! What the records of a write-ahead log hold, and the order that they must have.

use super::promise::{EditMark, decode_close, decode_promise};
use super::record::RecordKind;
use crate::batch::BatchReader;
use crate::codec::DecodeError;
use crate::key::SeqNo;

/// What a record of a log holds.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// The entries are not decoded yet.
    Batch(BatchReader<'a>),
    Promise(EditMark),
    Close(SeqNo, EditMark),
}

/// Decodes the records of logs in their order, and checks their sequence numbers against it.
#[derive(Debug, Default)]
pub(crate) struct ContentReader {
    /// The last sequence number of the batches so far.
    last_batch: SeqNo,
}

impl ContentReader {
    /// Decodes the next record. Errors count from the start of its payload.
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
            RecordKind::Edit => Err(DecodeError::corrupt(0, "log record", "an edit in a log")),
        }
    }

    /// [`ContentReader::decode`], and every entry of a batch.
    pub(crate) fn check(&mut self, kind: RecordKind, bytes: &[u8]) -> Result<(), DecodeError> {
        match self.decode(kind, bytes)? {
            Content::Batch(mut batch) => batch.try_for_each(|entry| entry.map(drop)),
            Content::Promise(_) | Content::Close(..) => Ok(()),
        }
    }
}
