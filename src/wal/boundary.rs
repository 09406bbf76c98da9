//! Bucket boundaries: times of sequence numbers, for keyspaces with expiry.
//!
//! ```text
//! record    boundary*
//! boundary  keyspace id varint · time varint · sequence number varint
//! ```
//!
//! All smaller sequence numbers of the keyspace were written before that time. Sequence numbers never decrease; times
//! may, after a change of options.

use crate::batch::KeyspaceId;
use crate::codec::{DecodeError, Reader, put_varints};
use crate::key::SeqNo;
use crate::limits::SEQNO_MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// Milliseconds since 1970-01-01 UTC, or the time of the caller's clock.
    pub(crate) time: u64,
    pub(crate) seqno: SeqNo,
}

impl Boundary {
    pub(crate) fn encode(&self, keyspace: KeyspaceId, out: &mut Vec<u8>) {
        put_varints(out, &[keyspace.into(), self.time, self.seqno]);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<(KeyspaceId, Self), DecodeError> {
        let keyspace = reader.length(u32::MAX.into(), "keyspace id")? as KeyspaceId;
        let time = reader.varint("time of a boundary")?;
        let seqno = reader.varint_up_to(SEQNO_MAX, "sequence number of a boundary")?;
        Ok((keyspace, Self { time, seqno }))
    }
}

pub(crate) fn encode_boundaries(boundaries: &[(KeyspaceId, Boundary)]) -> Vec<u8> {
    let mut out = Vec::new();
    boundaries.iter().for_each(|(keyspace, boundary)| boundary.encode(*keyspace, &mut out));
    out
}

pub(crate) fn decode_boundaries(bytes: &[u8]) -> Result<Vec<(KeyspaceId, Boundary)>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut boundaries = Vec::new();
    while !reader.is_empty() {
        boundaries.push(Boundary::decode(&mut reader)?);
    }
    Ok(boundaries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_come_back_and_a_record_cut_within_one_is_refused() {
        let boundary = |time, seqno| Boundary { time, seqno };
        let all = [(0, boundary(1 << 40, 300)), (300, boundary(u64::MAX, SEQNO_MAX))];
        let bytes = encode_boundaries(&all);
        assert_eq!(decode_boundaries(&bytes), Ok(all.to_vec()));
        let first = encode_boundaries(&all[..1]).len();
        for len in 0..bytes.len() {
            assert_eq!(decode_boundaries(&bytes[..len]).is_ok(), len == 0 || len == first, "{len}");
        }
        let over = [(0, boundary(0, SEQNO_MAX + 1))];
        assert_eq!(
            decode_boundaries(&encode_boundaries(&over)).unwrap_err().what,
            "sequence number of a boundary"
        );
    }
}
