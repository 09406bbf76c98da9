//! The contents of promise and close records: the progress of the manifest.
//!
//! ```text
//! promise  edit count u64 · edit hash u64
//! close    last sequence number of the log u64 · promise
//! ```

use crate::codec::{DecodeError, Reader, put_u64};
use crate::key::SeqNo;
use crate::limits::SEQNO_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EditMark {
    pub(crate) count: u64,
    pub(crate) hash: u64,
}

impl EditMark {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_u64(out, self.count);
        put_u64(out, self.hash);
    }

    pub(crate) fn decode(
        reader: &mut Reader<'_>,
        count: &'static str,
        hash: &'static str,
    ) -> Result<Self, DecodeError> {
        Ok(Self { count: reader.u64(count)?, hash: reader.u64(hash)? })
    }
}

pub(crate) fn encode_promise(mark: EditMark) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    mark.encode(&mut out);
    out
}

pub(crate) fn decode_promise(bytes: &[u8]) -> Result<EditMark, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mark = EditMark::decode(&mut reader, "promised edit count", "promised edit hash")?;
    match reader.is_empty() {
        true => Ok(mark),
        false => Err(reader.corrupt("log record", "bytes follow its last field")),
    }
}

pub(crate) fn encode_close(last_seqno: SeqNo, mark: EditMark) -> Vec<u8> {
    let mut out = Vec::with_capacity(24);
    put_u64(&mut out, last_seqno);
    mark.encode(&mut out);
    out
}

pub(crate) fn decode_close(bytes: &[u8]) -> Result<(SeqNo, EditMark), DecodeError> {
    let mut reader = Reader::new(bytes);
    let last_seqno = reader.u64("last sequence number of the log")?;
    if last_seqno > SEQNO_MAX {
        return Err(DecodeError::corrupt(0, "last sequence number of the log", format!("{last_seqno}")));
    }
    let mark = decode_promise(reader.bytes(reader.remaining(), "promise")?).map_err(|error| error.at(8))?;
    Ok((last_seqno, mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: EditMark = EditMark { count: 7, hash: 0x0123_4567_89ab_cdef };

    #[test]
    fn promises_and_close_records_come_back() {
        assert_eq!(decode_promise(&encode_promise(MARK)), Ok(MARK));
        for seqno in [0, 9, SEQNO_MAX] {
            assert_eq!(decode_close(&encode_close(seqno, MARK)), Ok((seqno, MARK)));
        }
    }

    #[test]
    fn a_record_cut_anywhere_or_longer_is_refused_where_it_goes_wrong() {
        let (promise, close) = (encode_promise(MARK), encode_close(9, MARK));
        for len in 0..promise.len() {
            assert_eq!(decode_promise(&promise[..len]).unwrap_err().offset, len as u64 / 8 * 8);
        }
        for len in 0..close.len() {
            assert_eq!(decode_close(&close[..len]).unwrap_err().offset, len as u64 / 8 * 8);
        }
        let longer = |record: &[u8]| [record, &[0]].concat();
        assert_eq!(decode_promise(&longer(&promise)).unwrap_err().offset, 16);
        assert_eq!(decode_close(&longer(&close)).unwrap_err().offset, 24);
        assert_eq!(decode_close(&encode_close(SEQNO_MAX + 1, MARK)).unwrap_err().offset, 0);
    }
}
