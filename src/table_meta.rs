//! The metadata of a table in the tree and in the manifest. The table writer creates it.

use std::sync::LazyLock;

use bytes::Bytes;

use crate::checksum::FileId;
use crate::codec::{
    CRITICAL, DecodeError, Field, Reader, Seen, put_field, put_length_prefixed, put_u32, put_u64, put_varint,
    put_varints,
};
use crate::filter::header::DOMAIN_WHOLE_KEY;
use crate::key::{SeqNo, after_prefix};
use crate::limits::{BOUND_BYTES_MAX, FILE_NUMBER_MAX, KEY_BYTES_MAX, SEQNO_MAX};

pub(crate) const FILTER_ALIGN: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FilterRef {
    /// `None` if it is in the table file.
    pub file: Option<u64>,
    /// As in the filter header.
    pub kind: u8,
    /// As in the filter header; 0 means whole user keys.
    pub domain: u8,
    /// A multiple of [`FILTER_ALIGN`].
    pub offset: u64,
    pub len: u64,
    /// Identifies the filter.
    pub header_checksum: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub number: u64,
    pub file_id: FileId,
    pub len: u64,
    /// Identifies the file's contents.
    pub footer_checksum: u32,
    pub entries: u64,
    pub tombstones: u64,
    pub keys: u64,
    pub data_bytes: u64,
    pub seqno_min: SeqNo,
    pub seqno_max: SeqNo,
    /// The smallest user key of entries and spans.
    pub smallest: Bytes,
    /// The largest user key of entries and spans; for spans, the [`last_key`] before their end.
    pub largest: Bytes,
    /// In the order of probes.
    pub filters: Vec<FilterRef>,
    /// Whether a bound is only the first [`BOUND_BYTES_MAX`] bytes of the key. Only `true` in the manifest.
    pub trimmed: bool,
    pub spans: Option<Box<TableSpans>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSpans {
    pub count: u64,
    pub start: Bytes,
    /// The end of the last span, exclusive; empty means no end.
    pub end: Bytes,
    /// Whether `start` or `end` is only the first [`BOUND_BYTES_MAX`] bytes.
    pub trimmed: bool,
    pub points: Option<PointBounds>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PointBounds {
    pub smallest: Bytes,
    pub largest: Bytes,
    /// Whether a bound is only the first [`BOUND_BYTES_MAX`] bytes.
    pub trimmed: bool,
}

static LARGEST_KEY: LazyLock<Bytes> = LazyLock::new(|| vec![0xff; KEY_BYTES_MAX].into());

/// Returns the last key before `end`, or `end` itself if that key is longer.
///
/// Spans are cut directly after a table's last key, but not where the result would be the end itself
/// ([`has_shorter_next`](crate::key::has_shorter_next)). So the tables of a run do not overlap.
pub(crate) fn last_key(end: &Bytes) -> Bytes {
    match end.split_last() {
        None => LARGEST_KEY.clone(),
        Some((0, key)) => end.slice(..key.len()),
        Some((last, key)) if end.len() == KEY_BYTES_MAX => [key, &[last - 1]].concat().into(),
        Some(_) => end.clone(),
    }
}

// Field numbers of a table record, shifted left by one. Append only, see format.md.
pub(crate) const FILE: u64 = 1 << 1 | CRITICAL;
pub(crate) const COUNTS: u64 = 2 << 1 | CRITICAL;
pub(crate) const SEQNOS: u64 = 3 << 1 | CRITICAL;
pub(crate) const POINT_BOUNDS: u64 = 4 << 1 | CRITICAL;
pub(crate) const FILTER: u64 = 5 << 1;
pub(crate) const SPANS: u64 = 6 << 1 | CRITICAL;
// Reserved: 7 global sequence number.

impl FilterRef {
    fn decode_payload(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            file: Some(reader.varint_up_to(FILE_NUMBER_MAX, "filter file")?).filter(|&number| number != 0),
            kind: reader.u8("filter kind")?,
            domain: reader.u8("filter domain")?,
            offset: reader.varint("filter offset")?,
            len: reader.varint("filter length")?,
            header_checksum: reader.u32("filter header checksum")?,
        })
    }

    pub(crate) fn encode_all(filters: &[Self], out: &mut Vec<u8>) {
        for filter in filters {
            put_field(out, FILTER, |out| {
                put_varint(out, filter.file.unwrap_or(0));
                out.extend_from_slice(&[filter.kind, filter.domain]);
                put_varints(out, &[filter.offset, filter.len]);
                put_u32(out, filter.header_checksum);
            });
        }
    }

    pub(crate) fn decode_all(mut reader: Reader<'_>) -> Result<Vec<Self>, DecodeError> {
        let mut filters = Vec::new();
        while let Some(mut field) = reader.field()? {
            if field.tag == FILTER {
                filters.push(Self::decode_payload(&mut field.reader)?);
                field.finish("filter")?;
            } else {
                field.skip_unknown()?;
            }
        }
        Ok(filters)
    }
}

impl TableMeta {
    pub(crate) fn whole_key_filters(&self) -> impl Iterator<Item = &FilterRef> {
        self.filters.iter().filter(|filter| filter.domain == DOMAIN_WHOLE_KEY)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_field(out, FILE, |out| {
            put_u64(out, self.number);
            out.extend_from_slice(&self.file_id);
            put_u64(out, self.len);
            put_u32(out, self.footer_checksum);
        });
        let counts = [self.entries, self.tombstones, self.keys, self.data_bytes];
        put_field(out, COUNTS, |out| put_varints(out, &counts));
        put_field(out, SEQNOS, |out| put_varints(out, &[self.seqno_min, self.seqno_max]));
        if let Some(points) = self.points() {
            put_field(out, POINT_BOUNDS, |out| {
                put_bounds(out, points.trimmed, [&points.smallest, &points.largest])
            });
        }
        FilterRef::encode_all(&self.filters, out);
        if let Some(spans) = &self.spans {
            put_field(out, SPANS, |out| {
                put_varint(out, spans.count);
                put_bounds(out, spans.trimmed, [&spans.start, &spans.end]);
            });
        }
    }

    pub(crate) fn decode(mut reader: Reader<'_>) -> Result<Self, DecodeError> {
        let mut meta = Self::default();
        let start = reader.offset();
        let mut seen = Seen::new("table record", [FILE, COUNTS, SEQNOS, POINT_BOUNDS, SPANS]);
        while let Some(mut field) = reader.field()? {
            seen.note(&field)?;
            meta.decode_field(&mut field)?;
        }
        seen.expect(&[FILE, COUNTS, SEQNOS], start)?;
        let has_bounds = seen.expect(&[POINT_BOUNDS], start);
        if meta.entries > 0 {
            has_bounds?;
        } else if has_bounds.is_ok() {
            return Err(DecodeError::corrupt(start, "table record", "bounds of no entries"));
        }
        meta.validate().map_err(|error| error.at(start))?;
        if let Some(spans) = meta.spans.take() {
            let TableMeta { smallest, largest, trimmed, .. } = meta.clone();
            let points = (meta.entries > 0).then_some(PointBounds { smallest, largest, trimmed });
            meta.set_spans(TableSpans { points, ..*spans });
        }
        Ok(meta)
    }

    /// Sets the spans and extends the bounds to include them.
    pub(crate) fn set_spans(&mut self, spans: TableSpans) {
        let is_prefix = spans.trimmed && spans.end.len() == BOUND_BYTES_MAX;
        let last = if is_prefix { spans.end.clone() } else { last_key(&spans.end) };
        (self.smallest, self.largest, self.trimmed) = match &spans.points {
            Some(points) => {
                let smallest = points.smallest.clone().min(spans.start.clone());
                (smallest, points.largest.clone().max(last), points.trimmed || spans.trimmed)
            }
            None => (spans.start.clone(), last, spans.trimmed),
        };
        self.spans = Some(Box::new(spans));
    }

    pub(crate) fn points(&self) -> Option<PointBounds> {
        match &self.spans {
            Some(spans) => spans.points.clone(),
            None => {
                let (smallest, largest) = (self.smallest.clone(), self.largest.clone());
                Some(PointBounds { smallest, largest, trimmed: self.trimmed })
            }
        }
    }

    pub(crate) fn decode_field(&mut self, field: &mut Field<'_>) -> Result<(), DecodeError> {
        let reader = &mut field.reader;
        match field.tag {
            FILE => {
                self.number = reader.u64("table number")?;
                self.file_id = reader.array("table file id")?;
                self.len = reader.u64("table length")?;
                self.footer_checksum = reader.u32("table footer checksum")?;
            }
            COUNTS => {
                self.entries = reader.varint("entry count")?;
                self.tombstones = reader.varint("tombstone count")?;
                self.keys = reader.varint("key count")?;
                self.data_bytes = reader.varint("data bytes")?;
            }
            SEQNOS => {
                self.seqno_min = reader.varint("smallest sequence number")?;
                self.seqno_max = reader.varint("largest sequence number")?;
            }
            POINT_BOUNDS => {
                let bounds = read_bounds(reader, ["smallest key", "largest key"])?;
                (self.trimmed, [self.smallest, self.largest]) = bounds;
            }
            SPANS => {
                let count = reader.varint("span count")?;
                let (trimmed, [start, end]) =
                    read_bounds(reader, ["start of the spans", "end of the spans"])?;
                self.spans = Some(Box::new(TableSpans { count, start, end, trimmed, points: None }));
            }
            FILTER => {
                self.filters.reserve_exact(1);
                self.filters.push(FilterRef::decode_payload(reader)?);
            }
            _ => return field.skip_unknown(),
        }
        field.finish("table record")
    }

    /// Returns bounds that include all keys: a trimmed largest key represents every key with that prefix.
    pub(crate) fn wide_bounds(&self) -> (Bytes, Bytes) {
        let largest = match self.trimmed && self.largest.len() == BOUND_BYTES_MAX {
            true => after_prefix(&self.largest).unwrap_or_else(|| vec![0xff; KEY_BYTES_MAX]).into(),
            false => self.largest.clone(),
        };
        (self.smallest.clone(), largest)
    }

    fn validate(&self) -> Result<(), DecodeError> {
        let wrong = |what, detail: String| Err(DecodeError::corrupt(0, what, detail));
        if !(1..=FILE_NUMBER_MAX).contains(&self.number) {
            return wrong("table number", format!("{} is not in 1..={FILE_NUMBER_MAX}", self.number));
        }
        check_counts(self.entries, self.tombstones, self.keys, self.data_bytes, self.spans.is_some())?;
        if self.seqno_min > self.seqno_max || self.seqno_max > SEQNO_MAX {
            return wrong("sequence range", format!("{}..={}", self.seqno_min, self.seqno_max));
        }
        if self.smallest > self.largest {
            return wrong("key bounds", "the smallest key is after the largest".into());
        }
        if let Some(TableSpans { count, start, end, trimmed, .. }) = self.spans.as_deref() {
            let is_range = end.is_empty() || start < end || *trimmed && start == end;
            if *count == 0 || !is_range || self.seqno_max == 0 {
                return wrong("span bounds", format!("{count} spans, from {start:?} to {end:?}"));
            }
        }
        Ok(())
    }
}

/// A table must have entries or spans.
pub(crate) fn check_counts(
    entries: u64,
    tombstones: u64,
    keys: u64,
    data_bytes: u64,
    has_spans: bool,
) -> Result<(), DecodeError> {
    let is_right = match entries {
        0 => has_spans && (tombstones, keys, data_bytes) == (0, 0, 0),
        _ => (1..=entries).contains(&keys) && tombstones <= entries,
    };
    if is_right {
        return Ok(());
    }
    let counts = (entries, tombstones, keys);
    Err(DecodeError::corrupt(0, "table counts", format!("(entries, tombstones, keys) = {counts:?}")))
}

/// Trimmed bounds stay trimmed in the next manifest.
fn put_bounds(out: &mut Vec<u8>, trimmed: bool, bounds: [&Bytes; 2]) {
    out.push(u8::from(trimmed || bounds.iter().any(|bound| bound.len() > BOUND_BYTES_MAX)));
    for bound in bounds {
        put_length_prefixed(out, &bound[..bound.len().min(BOUND_BYTES_MAX)]);
    }
}

fn read_bounds(reader: &mut Reader<'_>, names: [&'static str; 2]) -> Result<(bool, [Bytes; 2]), DecodeError> {
    let start = reader.offset();
    let wrong = |detail: String| Err(DecodeError::corrupt(start, "bounds flag", detail));
    let trimmed = reader.u8("bounds flag")?;
    if trimmed > 1 {
        return wrong(format!("{trimmed} is neither 0 nor 1"));
    }
    let mut bound = |what| reader.length_prefixed(BOUND_BYTES_MAX as u64, what).map(Bytes::copy_from_slice);
    let bounds = [bound(names[0])?, bound(names[1])?];
    if trimmed == 1 && bounds.iter().all(|bound| bound.len() < BOUND_BYTES_MAX) {
        return wrong(format!("is 1, but neither key has {BOUND_BYTES_MAX} bytes"));
    }
    Ok((trimmed == 1, bounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> TableMeta {
        TableMeta {
            number: 12,
            file_id: [9; 16],
            len: 70_000,
            footer_checksum: 0xdead_beef,
            entries: 300,
            tombstones: 3,
            keys: 290,
            data_bytes: 65_000,
            seqno_min: 7,
            seqno_max: 400,
            smallest: Bytes::from_static(b""),
            largest: Bytes::from_static(b"zz"),
            filters: vec![FilterRef {
                file: None,
                kind: 2,
                domain: 0,
                offset: 65_536,
                len: 512,
                header_checksum: 5,
            }],
            trimmed: false,
            spans: None,
        }
    }

    fn with_spans(has_points: bool, start: &[u8], end: &[u8]) -> TableMeta {
        let mut meta = meta();
        let points = has_points.then(|| meta.points().unwrap());
        if !has_points {
            (meta.entries, meta.tombstones, meta.keys, meta.data_bytes) = (0, 0, 0, 0);
            meta.filters.clear();
        }
        let (start, end) = (Bytes::copy_from_slice(start), Bytes::copy_from_slice(end));
        meta.set_spans(TableSpans { count: 3, start, end, trimmed: false, points });
        meta
    }

    #[test]
    fn spans_come_back_and_reach_the_bounds() {
        for has_points in [true, false] {
            for (start, end, largest) in [
                (&b"a"[..], &b"c"[..], &b"c"[..]),
                (b"a", b"zzz\0", b"zzz"),
                (b"a", b"", &LARGEST_KEY[..]),
                (b"", b"c", b"c"),
            ] {
                let meta = with_spans(has_points, start, end);
                assert_eq!(TableMeta::decode(Reader::new(&encoded(&meta))), Ok(meta.clone()));
                let (least, most) = if has_points { (&b""[..], &b"zz"[..]) } else { (start, largest) };
                assert_eq!((&meta.smallest[..], &meta.largest[..]), (least.min(start), most.max(largest)));
            }
        }
    }

    #[test]
    fn an_end_as_long_as_a_key_can_be_has_the_key_before_it() {
        let end = Bytes::from([&[7; KEY_BYTES_MAX - 1][..], &[9]].concat());
        assert_eq!(last_key(&end), [&[7; KEY_BYTES_MAX - 1][..], &[8]].concat());
        assert_eq!(last_key(&Bytes::from_static(b"k\0\0")), &b"k\0"[..]);
    }

    #[test]
    fn long_ends_of_spans_are_trimmed_and_stand_for_all_keys_that_begin_with_them() {
        let long = [b'm'; 5000];
        let back = TableMeta::decode(Reader::new(&encoded(&with_spans(false, b"a", &long)))).unwrap();
        assert!(back.trimmed && back.spans.as_ref().unwrap().trimmed);
        assert!(back.wide_bounds().1[..] > long[..]);
        let again = TableMeta::decode(Reader::new(&encoded(&back))).unwrap();
        assert_eq!(again, back);
    }

    #[test]
    fn impossible_spans_and_a_table_of_nothing_are_refused() {
        let refused = |meta: &TableMeta| TableMeta::decode(Reader::new(&encoded(meta))).unwrap_err().what;
        let changed = |change: fn(&mut TableMeta)| {
            let mut meta = with_spans(true, b"c", b"d");
            change(&mut meta);
            refused(&meta)
        };
        assert_eq!(changed(|meta| meta.spans.as_mut().unwrap().count = 0), "span bounds");
        assert_eq!(
            changed(|meta| meta.spans.as_mut().unwrap().end = Bytes::from_static(b"c")),
            "span bounds"
        );
        assert_eq!(changed(|meta| (meta.seqno_min, meta.seqno_max) = (0, 0)), "span bounds");
        assert_eq!(changed(|meta| meta.spans.as_mut().unwrap().points = None), "table record");
        let mut empty = with_spans(false, b"c", b"d");
        empty.keys = 1;
        assert_eq!(refused(&empty), "table counts");
        empty.keys = 0;
        empty.spans.as_mut().unwrap().points = Some(PointBounds::default());
        assert_eq!(refused(&empty), "table record");
        let nothing = TableMeta { spans: None, filters: Vec::new(), ..empty };
        assert_eq!(refused(&nothing), "table record");
        let mut bytes = encoded(&with_spans(false, b"c", b"d"));
        let spans = payloads(&bytes).last().unwrap().1 - 2;
        bytes.truncate(spans);
        assert_eq!(TableMeta::decode(Reader::new(&bytes)).unwrap_err().what, "table counts");
    }

    fn encoded(meta: &TableMeta) -> Vec<u8> {
        let mut out = Vec::new();
        meta.encode(&mut out);
        out
    }

    #[test]
    fn a_record_comes_back_and_unknown_optional_fields_are_ignored() {
        let mut bytes = encoded(&meta());
        assert_eq!(TableMeta::decode(Reader::new(&bytes)), Ok(meta()));
        put_field(&mut bytes, 99 << 1, |out| out.push(1));
        assert_eq!(TableMeta::decode(Reader::new(&bytes)), Ok(meta()));
        put_field(&mut bytes, 99 << 1 | CRITICAL, |out| out.push(1));
        assert_eq!(TableMeta::decode(Reader::new(&bytes)).unwrap_err().what, "critical field");
    }

    #[test]
    fn long_bounds_are_trimmed_and_flagged() {
        let mut long = meta();
        long.largest = vec![b'z'; 5000].into();
        let back = TableMeta::decode(Reader::new(&encoded(&long))).unwrap();
        assert!(back.trimmed);
        assert_eq!((back.smallest.len(), back.largest.len()), (0, BOUND_BYTES_MAX));
        let again = TableMeta::decode(Reader::new(&encoded(&back))).unwrap();
        assert!(again.trimmed, "what is trimmed stays so from manifest to manifest");
    }

    fn payloads(record: &[u8]) -> Vec<(u64, usize)> {
        let mut reader = Reader::new(record);
        let next = || reader.field().unwrap().map(|field| (field.tag, field.reader.offset() as usize));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn an_error_has_the_offset_of_the_wrong_field_in_the_record() {
        let good = encoded(&meta());
        let mut unknown = good.clone();
        put_field(&mut unknown, 99 << 1 | CRITICAL, |out| out.push(1));
        let error = TableMeta::decode(Reader::new(&unknown)).unwrap_err();
        assert_eq!((error.offset, error.what), (good.len() as u64, "critical field"));

        let payloads = payloads(&good);
        let at = |tag| payloads.iter().find(|(found, _)| *found == tag).unwrap().1;
        let mut flag = good.clone();
        flag[at(POINT_BOUNDS)] = 2;
        let error = TableMeta::decode(Reader::new(&flag)).unwrap_err();
        assert_eq!((error.offset, error.what), (at(POINT_BOUNDS) as u64, "bounds flag"));

        let mut counts = good[..at(COUNTS) - 2].to_vec();
        put_field(&mut counts, COUNTS, |out| out.push(7));
        let error = TableMeta::decode(Reader::new(&counts)).unwrap_err();
        assert_eq!((error.offset, error.what), (counts.len() as u64, "tombstone count"));
        let mut counts = good[..at(COUNTS) - 2].to_vec();
        put_field(&mut counts, COUNTS, |out| out.extend_from_slice(&[7, 0, 7, 9, 9]));
        let error = TableMeta::decode(Reader::new(&counts)).unwrap_err();
        assert_eq!((error.offset, error.what), (counts.len() as u64 - 1, "table record"));

        let mut longer = vec![0; 100];
        longer.extend_from_slice(&unknown);
        let mut reader = Reader::new(&longer);
        reader.bytes(100, "what stands before").unwrap();
        let error = TableMeta::decode(reader.rest()).unwrap_err();
        assert_eq!(error.offset, 100 + good.len() as u64);

        let filters = [&good[at(FILTER) - 2..], &[99 << 1 | 1, 0][..]].concat();
        let error = FilterRef::decode_all(Reader::new(&filters)).unwrap_err();
        assert_eq!(error.offset, filters.len() as u64 - 2);
    }

    #[test]
    fn bounds_are_as_long_as_the_flag_says() {
        let record = |trimmed: u8, smallest: usize, largest: usize| {
            let good = encoded(&TableMeta { filters: Vec::new(), ..meta() });
            let bounds = payloads(&good).last().unwrap().1 - 2;
            let mut out = good[..bounds].to_vec();
            put_field(&mut out, POINT_BOUNDS, |out| {
                out.push(trimmed);
                put_length_prefixed(out, &vec![b'a'; smallest]);
                put_length_prefixed(out, &vec![b'b'; largest]);
            });
            TableMeta::decode(Reader::new(&out)).map_err(|error| error.what)
        };
        for (trimmed, smallest, largest) in [(0, 0, 1024), (0, 1024, 1024), (1, 1024, 1), (1, 3, 1024)] {
            assert!(record(trimmed, smallest, largest).is_ok(), "{trimmed} {smallest} {largest}");
        }
        assert_eq!(record(0, 3, 1025), Err("largest key"));
        assert_eq!(record(1, 1025, 3), Err("smallest key"));
        assert_eq!(record(1, 1023, 3), Err("bounds flag"));
    }

    #[test]
    fn very_many_unknown_fields_are_passed_over_in_one_pass() {
        // A search among all fields seen would take minutes.
        let mut bytes = encoded(&meta());
        (100..600_000u64).for_each(|number| put_field(&mut bytes, number << 1, |_| ()));
        assert_eq!(TableMeta::decode(Reader::new(&bytes)), Ok(meta()));
    }

    #[test]
    fn no_key_is_outside_the_wide_bounds_even_if_they_were_trimmed() {
        let of = |largest: Vec<u8>| {
            let whole = TableMeta { largest: largest.into(), ..meta() };
            let mut bytes = Vec::new();
            whole.encode(&mut bytes);
            (whole.largest.clone(), TableMeta::decode(Reader::new(&bytes)).unwrap().wide_bounds().1)
        };
        for byte in [b'a', 0xfe, 0xff] {
            let (largest, wide) = of(vec![byte; 3 * BOUND_BYTES_MAX]);
            assert!(wide >= largest, "{byte}");
        }
        let (largest, wide) = of(vec![0xff; KEY_BYTES_MAX]);
        assert_eq!(wide, largest);
        let (largest, wide) = of(vec![b'a'; BOUND_BYTES_MAX]);
        assert_eq!(wide, largest, "it was not cut");
    }

    #[test]
    fn a_truncated_record_is_an_error_at_every_length() {
        let bytes = encoded(&TableMeta { filters: Vec::new(), ..meta() });
        for len in 0..bytes.len() {
            assert!(TableMeta::decode(Reader::new(&bytes[..len])).is_err(), "{len}");
        }
    }
}
