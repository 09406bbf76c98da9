//! The payloads of a table's span blocks.
//!
//! ```text
//! payload  span*
//! span     start string · end string · count varint · sequence numbers
//! numbers  the largest varint · each other as its difference to the one before varint*
//! ```
//!
//! An empty end means no upper bound. Only the last span can have it, because the spans of a table ascend without
//! overlap. The numbers are the sequence numbers of the range deletes over the span.

use std::ops::Range;

use super::{Span, Spans};
use crate::codec::{DecodeError, Reader, put_length_prefixed, put_varint, put_varints};
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::limits::{BLOCK_BYTES_MAX, KEY_BYTES_MAX, SEQNO_MAX};

const BLOCK_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SpanTotals {
    pub(crate) count: u64,
    pub(crate) deletes: u64,
    pub(crate) seqnos: Option<(SeqNo, SeqNo)>,
}

impl SpanTotals {
    pub(crate) fn add(&mut self, seqnos: &[SeqNo]) {
        let (Some(&newest), Some(&oldest)) = (seqnos.first(), seqnos.last()) else { return };
        self.count += 1;
        self.deletes += seqnos.len() as u64;
        let (min, max) = self.seqnos.unwrap_or((oldest, newest));
        self.seqnos = Some((min.min(oldest), max.max(newest)));
    }
}

/// # Errors
///
/// [`Error::LimitExceeded`] if a span is too long for a block.
pub(crate) fn encode(spans: &Spans) -> Result<Vec<Vec<u8>>> {
    let (mut payloads, mut block) = (Vec::new(), Vec::new());
    for Span { start, end, seqnos } in spans.iter() {
        let mut span = Vec::new();
        put_length_prefixed(&mut span, start);
        put_length_prefixed(&mut span, end.map_or(&[], |end| &**end));
        put_varints(&mut span, &[seqnos.len() as u64, seqnos[0]]);
        seqnos.windows(2).for_each(|pair| put_varint(&mut span, pair[0] - pair[1]));
        if span.len() > BLOCK_BYTES_MAX {
            return Err(Error::limit("span length", BLOCK_BYTES_MAX as u64, span.len() as u64));
        }
        if !block.is_empty() && block.len() + span.len() > BLOCK_BYTES {
            payloads.push(std::mem::take(&mut block));
        }
        block.extend_from_slice(&span);
    }
    payloads.extend(Some(block).filter(|block| !block.is_empty()));
    Ok(payloads)
}

#[derive(Debug)]
pub(crate) struct SpanAt<'a> {
    pub(crate) at: usize,
    pub(crate) start: Range<usize>,
    pub(crate) end: Range<usize>,
    /// Sequence numbers, descending.
    pub(crate) seqnos: &'a [SeqNo],
    pub(crate) next: usize,
}

#[derive(Debug, Default)]
pub(crate) struct SpanReader {
    last_end: Option<Vec<u8>>,
    totals: SpanTotals,
}

impl SpanReader {
    pub(crate) fn totals(&self) -> SpanTotals {
        self.totals
    }

    /// Returns the end of the last span; an empty end means no upper bound.
    pub(crate) fn last_end(&self) -> Option<&[u8]> {
        self.last_end.as_deref()
    }

    /// Error offsets are relative to the payload.
    pub(crate) fn read<E: From<DecodeError>>(
        &mut self,
        payload: &[u8],
        visit: &mut dyn FnMut(&SpanAt<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = Reader::new(payload);
        if reader.is_empty() {
            return Err(reader.corrupt("span block", "has no span").into());
        }
        let mut seqnos = Vec::new();
        while !reader.is_empty() {
            let at = reader.position();
            let start = string(&mut reader, "start of a span")?;
            let end = string(&mut reader, "end of a span")?;
            self.check(at, &payload[start.clone()], &payload[end.clone()])?;
            read_seqnos(&mut reader, &mut seqnos)?;
            self.totals.add(&seqnos);
            visit(&SpanAt { at, start, end, seqnos: &seqnos, next: reader.position() })?;
        }
        Ok(())
    }

    fn check(&mut self, at: usize, start: &[u8], end: &[u8]) -> Result<(), DecodeError> {
        let wrong = |detail: &str| Err(DecodeError::corrupt(at as u64, "span order", detail));
        if !end.is_empty() && start >= end {
            return wrong("the start is not before the end");
        }
        match &mut self.last_end {
            Some(last) if last.is_empty() => return wrong("it follows a span without an end"),
            Some(last) if start < &last[..] => {
                return wrong("the start is before the end of the span before");
            }
            Some(last) => {
                last.clear();
                last.extend_from_slice(end);
            }
            None => self.last_end = Some(end.to_vec()),
        }
        Ok(())
    }
}

fn string(reader: &mut Reader<'_>, what: &'static str) -> Result<Range<usize>, DecodeError> {
    let len = reader.length_prefixed(KEY_BYTES_MAX as u64, what)?.len();
    Ok(reader.position() - len..reader.position())
}

/// Reads at least one number; numbers strictly descend.
fn read_seqnos(reader: &mut Reader<'_>, seqnos: &mut Vec<SeqNo>) -> Result<(), DecodeError> {
    seqnos.clear();
    let at = reader.offset();
    let count = reader.length(reader.remaining() as u64, "sequence numbers of a span")?;
    let wrong = |at, detail: String| Err(DecodeError::corrupt(at, "sequence numbers of a span", detail));
    if count == 0 {
        return wrong(at, "are none".into());
    }
    while seqnos.len() < count {
        let at = reader.offset();
        let number = reader.varint("sequence number of a span")?;
        let seqno = match seqnos.last() {
            None => Some(number).filter(|&newest| newest <= SEQNO_MAX),
            Some(last) => last.checked_sub(number).filter(|seqno| seqno < last),
        };
        match seqno.filter(|&seqno| seqno > 0) {
            Some(seqno) => seqnos.push(seqno),
            None => return wrong(at, format!("{number} after {:?}", seqnos.last())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::spans::SpansBuilder;

    type Owned = (Vec<u8>, Vec<u8>, Vec<SeqNo>);

    fn decode(payloads: &[Vec<u8>]) -> Result<Vec<Owned>, DecodeError> {
        let (mut reader, mut all) = (SpanReader::default(), Vec::new());
        for payload in payloads {
            reader.read::<DecodeError>(payload, &mut |span| {
                let (start, end) = (payload[span.start.clone()].to_vec(), payload[span.end.clone()].to_vec());
                all.push((start, end, span.seqnos.to_vec()));
                Ok(())
            })?;
        }
        Ok(all)
    }

    fn spans(all: &[(&[u8], &[u8], &[SeqNo])]) -> Spans {
        let mut builder = SpansBuilder::default();
        for (start, end, seqnos) in all {
            let end = (!end.is_empty()).then(|| Arc::from(*end));
            builder.push(&Arc::from(*start), end.as_ref(), seqnos);
        }
        builder.finish()
    }

    #[test]
    fn spans_come_back() {
        let list = spans(&[(b"", b"b", &[9]), (b"b", b"c", &[9, 4, 1]), (b"f", b"", &[SEQNO_MAX, 1])]);
        let payloads = encode(&list).unwrap();
        let expected: [Owned; 3] = [
            (b"".to_vec(), b"b".to_vec(), vec![9]),
            (b"b".to_vec(), b"c".to_vec(), vec![9, 4, 1]),
            (b"f".to_vec(), b"".to_vec(), vec![SEQNO_MAX, 1]),
        ];
        assert_eq!(decode(&payloads).unwrap(), expected);
        assert_eq!(encode(&Spans::default()).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn many_spans_take_many_blocks_that_follow_each_other() {
        let keys: Vec<_> = (0..20_000u32).map(u32::to_be_bytes).collect();
        let ends: Vec<_> = keys.iter().map(|key| [&key[..], &[0]].concat()).collect();
        let all: Vec<_> =
            keys.iter().zip(&ends).map(|(key, end)| (&key[..], &end[..], &[7, 3][..])).collect();
        let mut payloads = encode(&spans(&all)).unwrap();
        let (last, full) = payloads.split_last().unwrap();
        assert!(full.len() > 2 && last.len() <= BLOCK_BYTES);
        assert!(full.iter().all(|payload| (BLOCK_BYTES - 100..=BLOCK_BYTES).contains(&payload.len())));
        assert_eq!(decode(&payloads).unwrap().len(), 20_000);
        let (mut reader, none) = (SpanReader::default(), &mut |_: &SpanAt<'_>| Ok::<_, DecodeError>(()));
        payloads.iter().for_each(|payload| reader.read(payload, none).unwrap());
        let totals = SpanTotals { count: 20_000, deletes: 40_000, seqnos: Some((3, 7)) };
        assert_eq!((reader.totals(), reader.last_end()), (totals, Some(&ends[19_999][..])));
        payloads.swap(0, 1);
        assert_eq!(decode(&payloads).unwrap_err().what, "span order");
    }

    #[test]
    fn spans_that_break_a_rule_are_refused() {
        let span = |start: &[u8], end: &[u8], numbers: &[u64]| {
            let mut out = Vec::new();
            put_length_prefixed(&mut out, start);
            put_length_prefixed(&mut out, end);
            numbers.iter().for_each(|&number| put_varint(&mut out, number));
            out
        };
        let good = span(b"b", b"d", &[1, 7]);
        for (next, what, at) in [
            (span(b"c", b"e", &[1, 7]), "span order", 0),
            (span(b"e", b"e", &[1, 7]), "span order", 0),
            (span(b"f", b"e", &[1, 7]), "span order", 0),
            (span(b"e", b"f", &[0]), "sequence numbers of a span", 4),
            (span(b"e", b"f", &[1, 0]), "sequence numbers of a span", 5),
            (span(b"e", b"f", &[1, SEQNO_MAX + 1]), "sequence numbers of a span", 5),
            (span(b"e", b"f", &[2, 7, 0]), "sequence numbers of a span", 6),
            (span(b"e", b"f", &[2, 7, 7]), "sequence numbers of a span", 6),
            (span(b"e", b"f", &[2, 7, 8]), "sequence numbers of a span", 6),
            (span(b"e", b"f", &[9, 7]), "sequence numbers of a span", 4),
            (span(&[1; KEY_BYTES_MAX + 1], b"f", &[1, 7]), "start of a span", 0),
            (span(b"e", &[1; KEY_BYTES_MAX + 1], &[1, 7]), "end of a span", 2),
        ] {
            let error = decode(&[[&good[..], &next].concat()]).unwrap_err();
            assert_eq!((error.what, error.offset), (what, good.len() as u64 + at));
            assert_eq!(decode(&[good.clone(), next]).unwrap_err().what, what);
        }
        assert_eq!(decode(&[span(b"b", b"", &[1, 7]), good.clone()]).unwrap_err().what, "span order");
        assert_eq!(decode(&[Vec::new()]).unwrap_err().what, "span block");
        for len in 0..good.len() {
            assert!(decode(&[good[..len].to_vec()]).is_err(), "{len}");
        }
    }
}
