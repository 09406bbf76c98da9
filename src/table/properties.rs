//! The properties of a table: the payload of its properties block.
//!
//! A record of fields (`tag varint · length varint · payload`); the lowest bit of a tag marks a critical field:
//!
//! ```text
//! 1  critical  counts   entries · tombstones · keys · key bytes · value bytes          varints
//! 2  critical  seqnos   smallest · largest                                             varints
//! 3  critical  bounds   length varint · smallest user key · length varint · largest    in full
//! 4  critical  layout   index depth u8 · data end · data blocks · chunk blocks · index blocks  varints
//! 5            shape    compression u8 · block bytes varint                            the writer's options
//! 6            filter   kind u8 · domain u8 · offset varint · length varint · header checksum u32; once per filter
//! 7            origin   keyspace, tables that this one replaced: see [`Origin`]
//! 8  critical  spans    spans varint · range deletes varint · start string · end string · handle of a span block*
//! ```
//!
//! Field 3 is present if the table has entries, field 8 if it has spans. Header, footer and properties suffice to
//! rebuild the [`TableMeta`].

use bytes::Bytes;

use crate::block::{BlockHandle, Compression};
use crate::checksum::FileId;
use crate::codec::{
    CRITICAL, DecodeError, Field, Reader, Seen, put_field, put_length_prefixed, put_u32, put_varint,
    put_varints,
};
use crate::key::SeqNo;
use crate::limits::{BOUND_BYTES_MAX, KEY_BYTES_MAX, SEQNO_MAX};
use crate::table_meta::{FilterRef, PointBounds, TableMeta, TableSpans, check_counts};

use super::origin::Origin;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Properties {
    pub(crate) entries: u64,
    pub(crate) tombstones: u64,
    pub(crate) keys: u64,
    pub(crate) key_bytes: u64,
    pub(crate) value_bytes: u64,
    pub(crate) seqno_min: SeqNo,
    pub(crate) seqno_max: SeqNo,
    pub(crate) smallest: Bytes,
    pub(crate) largest: Bytes,
    pub(crate) index_depth: u8,
    pub(crate) data_end: u64,
    pub(crate) data_blocks: u64,
    pub(crate) chunk_blocks: u64,
    pub(crate) index_blocks: u64,
    /// `None` if the compression is not supported.
    pub(crate) compression: Option<Compression>,
    pub(crate) block_bytes: u64,
    pub(crate) filters: Vec<FilterRef>,
    /// `None` in tables of older versions, and in memory after `open`.
    pub(crate) origin: Option<Box<Origin>>,
    pub(crate) spans: Option<Box<SpanProperties>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpanProperties {
    pub(crate) count: u64,
    pub(crate) deletes: u64,
    pub(crate) start: Bytes,
    /// Exclusive; an empty key means no end.
    pub(crate) end: Bytes,
    pub(crate) blocks: Vec<BlockHandle>,
}

// The field number shifted left by one. Append only, see format.md.
pub(crate) const COUNTS: u64 = 1 << 1 | CRITICAL;
pub(crate) const SEQNOS: u64 = 2 << 1 | CRITICAL;
pub(crate) const BOUNDS: u64 = 3 << 1 | CRITICAL;
pub(crate) const LAYOUT: u64 = 4 << 1 | CRITICAL;
pub(crate) const SHAPE: u64 = 5 << 1;
pub(crate) const FILTER: u64 = 6 << 1;
pub(crate) const ORIGIN: u64 = 7 << 1;
pub(crate) const SPANS: u64 = 8 << 1 | CRITICAL;

impl Properties {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let varints = |out: &mut Vec<u8>, numbers: &[u64]| numbers.iter().for_each(|&n| put_varint(out, n));
        put_field(&mut out, COUNTS, |out| {
            let counts = [self.entries, self.tombstones, self.keys, self.key_bytes, self.value_bytes];
            varints(out, &counts);
        });
        put_field(&mut out, SEQNOS, |out| varints(out, &[self.seqno_min, self.seqno_max]));
        if self.entries > 0 {
            put_field(&mut out, BOUNDS, |out| {
                put_length_prefixed(out, &self.smallest);
                put_length_prefixed(out, &self.largest);
            });
        }
        put_field(&mut out, LAYOUT, |out| {
            out.push(self.index_depth);
            varints(out, &[self.data_end, self.data_blocks, self.chunk_blocks, self.index_blocks]);
        });
        if let Some(compression) = self.compression {
            put_field(&mut out, SHAPE, |out| {
                out.push(compression as u8);
                put_varint(out, self.block_bytes);
            });
        }
        for filter in &self.filters {
            put_field(&mut out, FILTER, |out| {
                out.extend_from_slice(&[filter.kind, filter.domain]);
                varints(out, &[filter.offset, filter.len]);
                put_u32(out, filter.header_checksum);
            });
        }
        if let Some(origin) = &self.origin {
            put_field(&mut out, ORIGIN, |out| origin.encode(out));
        }
        if let Some(spans) = &self.spans {
            put_field(&mut out, SPANS, |out| spans.encode(out));
        }
        out
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let mut properties = Self::default();
        let mut seen = Seen::new("properties", [COUNTS, SEQNOS, BOUNDS, LAYOUT, SHAPE, ORIGIN, SPANS]);
        while let Some(mut field) = reader.field()? {
            seen.note(&field)?;
            properties.decode_field(&mut field)?;
        }
        seen.expect(&[COUNTS, SEQNOS, LAYOUT], 0)?;
        let has_bounds = seen.expect(&[BOUNDS], 0);
        if properties.entries > 0 {
            has_bounds?;
        } else if has_bounds.is_ok() {
            return Err(DecodeError::corrupt(0, "properties", "bounds of no entries"));
        }
        properties.validate()?;
        Ok(properties)
    }

    pub(crate) fn decode_field(&mut self, field: &mut Field<'_>) -> Result<(), DecodeError> {
        let reader = &mut field.reader;
        match field.tag {
            COUNTS => {
                self.entries = reader.varint("entry count")?;
                self.tombstones = reader.varint("tombstone count")?;
                self.keys = reader.varint("key count")?;
                self.key_bytes = reader.varint("key bytes")?;
                self.value_bytes = reader.varint("value bytes")?;
            }
            SEQNOS => {
                self.seqno_min = reader.varint("smallest sequence number")?;
                self.seqno_max = reader.varint("largest sequence number")?;
            }
            BOUNDS => {
                let mut bound = |what| reader.length_prefixed(KEY_BYTES_MAX as u64, what);
                self.smallest = Bytes::copy_from_slice(bound("smallest key")?);
                self.largest = Bytes::copy_from_slice(bound("largest key")?);
            }
            LAYOUT => {
                self.index_depth = reader.u8("index depth")?;
                self.data_end = reader.varint("data end")?;
                self.data_blocks = reader.varint("data block count")?;
                self.chunk_blocks = reader.varint("chunk block count")?;
                self.index_blocks = reader.varint("index block count")?;
            }
            SHAPE => {
                self.compression = Compression::from_u8(reader.u8("compression")?);
                self.block_bytes = reader.varint("block bytes")?;
            }
            FILTER => self.filters.push(FilterRef {
                file: None,
                kind: reader.u8("filter kind")?,
                domain: reader.u8("filter domain")?,
                offset: reader.varint("filter offset")?,
                len: reader.varint("filter length")?,
                header_checksum: reader.u32("filter header checksum")?,
            }),
            ORIGIN => self.origin = Some(Box::new(Origin::decode(reader)?)),
            SPANS => self.spans = Some(Box::new(SpanProperties::decode(reader)?)),
            _ => return field.skip_unknown(),
        }
        field.finish("properties")
    }

    fn validate(&self) -> Result<(), DecodeError> {
        let wrong = |what, detail: String| Err(DecodeError::corrupt(0, what, detail));
        let Some(data_bytes) = self.key_bytes.checked_add(self.value_bytes) else {
            return wrong("table counts", "key and value bytes overflow".into());
        };
        check_counts(self.entries, self.tombstones, self.keys, data_bytes, self.spans.is_some())?;
        if self.entries == 0 {
            let parts = (
                self.index_depth,
                self.data_blocks,
                self.chunk_blocks,
                self.index_blocks,
                self.filters.len(),
            );
            if parts != (0, 0, 0, 0, 0) {
                return wrong("properties", format!("no entries, but (depth, blocks, filters) {parts:?}"));
            }
        }
        if self.seqno_min > self.seqno_max || self.seqno_max > SEQNO_MAX {
            return wrong("sequence range", format!("{}..={}", self.seqno_min, self.seqno_max));
        }
        if self.smallest > self.largest {
            return wrong("key bounds", "the smallest key is after the largest".into());
        }
        if self.spans.is_some() && self.seqno_max == 0 {
            return wrong("sequence range", "spans without a sequence number".into());
        }
        Ok(())
    }

    pub(crate) fn to_meta(&self, number: u64, file_id: FileId, len: u64, footer_checksum: u32) -> TableMeta {
        let mut meta = TableMeta {
            number,
            file_id,
            len,
            footer_checksum,
            entries: self.entries,
            tombstones: self.tombstones,
            keys: self.keys,
            data_bytes: self.key_bytes + self.value_bytes,
            seqno_min: self.seqno_min,
            seqno_max: self.seqno_max,
            smallest: self.smallest.clone(),
            largest: self.largest.clone(),
            filters: self.filters.clone(),
            trimmed: false,
            spans: None,
        };
        if let Some(SpanProperties { count, start, end, .. }) = self.spans.as_deref() {
            let points = meta.points().filter(|_| self.entries > 0);
            let (start, end) = (start.clone(), end.clone());
            meta.set_spans(TableSpans { count: *count, start, end, trimmed: false, points });
        }
        meta
    }

    /// Compares the fields that are also in the manifest, except filters, because the manifest may list newer ones.
    pub(crate) fn agree_with(&self, meta: &TableMeta) -> Result<(), DecodeError> {
        let counts = |meta: &TableMeta| [meta.entries, meta.tombstones, meta.keys, meta.data_bytes];
        let own = self.to_meta(meta.number, meta.file_id, meta.len, meta.footer_checksum);
        let wrong = |what, detail: String| Err(DecodeError::corrupt(0, what, detail));
        if counts(&own) != counts(meta) {
            let detail = format!("expected {:?}, found {:?}", counts(meta), counts(&own));
            return wrong("table counts", detail);
        }
        if (own.seqno_min, own.seqno_max) != (meta.seqno_min, meta.seqno_max) {
            let range = |meta: &TableMeta| format!("{}..={}", meta.seqno_min, meta.seqno_max);
            return wrong("sequence range", format!("expected {}, found {}", range(meta), range(&own)));
        }
        if !are_same_points(own.points(), meta.points()) {
            return wrong("key bounds", "differ from the manifest".into());
        }
        if !are_same_spans(own.spans.as_deref(), meta.spans.as_deref()) {
            return wrong("spans", "differ from the manifest".into());
        }
        Ok(())
    }
}

fn is_same_key(whole: &Bytes, stated: &Bytes, trimmed: bool) -> bool {
    let most = if trimmed { BOUND_BYTES_MAX } else { usize::MAX };
    whole[..whole.len().min(most)] == stated[..]
}

fn are_same_points(whole: Option<PointBounds>, stated: Option<PointBounds>) -> bool {
    match (whole, stated) {
        (Some(whole), Some(stated)) => {
            is_same_key(&whole.smallest, &stated.smallest, stated.trimmed)
                && is_same_key(&whole.largest, &stated.largest, stated.trimmed)
        }
        (whole, stated) => whole == stated,
    }
}

fn are_same_spans(whole: Option<&TableSpans>, stated: Option<&TableSpans>) -> bool {
    match (whole, stated) {
        (Some(whole), Some(stated)) => {
            whole.count == stated.count
                && is_same_key(&whole.start, &stated.start, stated.trimmed)
                && is_same_key(&whole.end, &stated.end, stated.trimmed)
        }
        (whole, stated) => whole.is_none() && stated.is_none(),
    }
}

impl SpanProperties {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varints(out, &[self.count, self.deletes]);
        put_length_prefixed(out, &self.start);
        put_length_prefixed(out, &self.end);
        self.blocks.iter().for_each(|handle| handle.encode(out));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let wrong = |detail: String| Err(DecodeError::corrupt(at, "spans", detail));
        let (count, deletes) = (reader.varint("span count")?, reader.varint("range delete count")?);
        let mut key = |what| reader.length_prefixed(KEY_BYTES_MAX as u64, what).map(Bytes::copy_from_slice);
        let (start, end) = (key("start of the spans")?, key("end of the spans")?);
        let mut blocks: Vec<BlockHandle> = Vec::new();
        while blocks.is_empty() || !reader.is_empty() {
            let (offset, len) = (reader.varint("span block offset")?, reader.varint("span block length")?);
            if blocks.last().is_some_and(|last| last.offset.checked_add(last.len) != Some(offset)) {
                return wrong(format!("the block at {offset} does not follow the one before"));
            }
            blocks.push(BlockHandle { offset, len });
        }
        if count == 0 || deletes < count || !(end.is_empty() || start < end) {
            return wrong(format!("{count} spans of {deletes} range deletes from {start:?} to {end:?}"));
        }
        Ok(Self { count, deletes, start, end, blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties() -> Properties {
        Properties {
            entries: 300,
            tombstones: 4,
            keys: 200,
            key_bytes: 3000,
            value_bytes: 40_000,
            seqno_min: 0,
            seqno_max: 900,
            smallest: Bytes::from_static(b""),
            largest: Bytes::from(vec![b'z'; 3000]),
            index_depth: 1,
            data_end: 50_000,
            data_blocks: 11,
            chunk_blocks: 1,
            index_blocks: 1,
            compression: Some(Compression::Lz4),
            block_bytes: 4096,
            filters: vec![FilterRef {
                file: None,
                kind: 1,
                domain: 0,
                offset: 53_248,
                len: 640,
                header_checksum: 77,
            }],
            origin: Some(Box::new(crate::table::origin::tests::origin())),
            spans: None,
        }
    }

    fn spans() -> SpanProperties {
        SpanProperties {
            count: 3,
            deletes: 4,
            start: Bytes::from_static(b"a"),
            end: Bytes::from(vec![b'z'; 4000]),
            blocks: vec![BlockHandle { offset: 60_000, len: 70 }, BlockHandle { offset: 60_070, len: 30 }],
        }
    }

    fn with_spans(has_points: bool) -> Properties {
        let spans = Some(Box::new(spans()));
        if has_points {
            return Properties { spans, ..properties() };
        }
        let (seqno_min, seqno_max, data_end) = (5, 9, 64);
        Properties { spans, seqno_min, seqno_max, data_end, ..Properties::default() }
    }

    #[test]
    fn spans_are_decoded_and_match_the_manifest() {
        for has_points in [true, false] {
            let own = with_spans(has_points);
            assert_eq!(Properties::decode(&own.encode()), Ok(own.clone()));
            let good = own.to_meta(7, [1; 16], 90_000, 5);
            assert_eq!(own.agree_with(&good), Ok(()));
            let mut bytes = Vec::new();
            good.encode(&mut bytes);
            let trimmed = TableMeta::decode(Reader::new(&bytes)).unwrap();
            assert!(trimmed.trimmed && own.agree_with(&trimmed).is_ok());
            let changes: [fn(&mut TableSpans); 3] = [
                |spans| spans.count += 1,
                |spans| spans.start = Bytes::from_static(b"b"),
                |spans| spans.end = Bytes::new(),
            ];
            for (index, change) in changes.iter().enumerate() {
                let mut bad = good.clone();
                change(bad.spans.as_mut().unwrap());
                assert_eq!(own.agree_with(&bad).unwrap_err().what, "spans", "change {index}");
            }
            let without = TableMeta { spans: None, ..good };
            assert!(own.agree_with(&without).is_err());
        }
    }

    #[test]
    fn impossible_spans_and_a_table_of_nothing_are_refused() {
        let refused = |has_points, change: fn(&mut Properties)| {
            let mut bad = with_spans(has_points);
            change(&mut bad);
            Properties::decode(&bad.encode()).unwrap_err().what
        };
        fn of(properties: &mut Properties) -> &mut SpanProperties {
            properties.spans.as_mut().unwrap()
        }
        for has_points in [true, false] {
            assert_eq!(refused(has_points, |p| of(p).count = 0), "spans");
            assert_eq!(refused(has_points, |p| of(p).deletes = 2), "spans");
            assert_eq!(refused(has_points, |p| of(p).end = Bytes::from_static(b"a")), "spans");
            assert_eq!(refused(has_points, |p| of(p).blocks[1].offset += 1), "spans");
            assert_eq!(refused(has_points, |p| of(p).blocks.clear()), "span block offset");
        }
        assert_eq!(refused(false, |p| p.spans = None), "table counts");
        assert_eq!(refused(false, |p| p.keys = 1), "table counts");
        assert_eq!(refused(false, |p| p.value_bytes = 1), "table counts");
        assert_eq!(refused(false, |p| p.index_depth = 1), "properties");
        assert_eq!(refused(false, |p| p.filters = properties().filters), "properties");
        assert_eq!(refused(false, |p| (p.seqno_min, p.seqno_max) = (0, 0)), "sequence range");
        let mut bounds = with_spans(false).encode();
        put_field(&mut bounds, BOUNDS, |out| out.extend_from_slice(&[0, 0]));
        assert_eq!(Properties::decode(&bounds).unwrap_err().what, "properties");
    }

    #[test]
    fn properties_come_back_and_unknown_optional_fields_are_ignored() {
        let mut bytes = properties().encode();
        assert_eq!(Properties::decode(&bytes), Ok(properties()));
        put_field(&mut bytes, 99 << 1, |out| out.push(1));
        assert_eq!(Properties::decode(&bytes), Ok(properties()));
        put_field(&mut bytes, 99 << 1 | CRITICAL, |out| out.push(1));
        assert_eq!(Properties::decode(&bytes).unwrap_err().what, "critical field");
    }

    #[test]
    fn an_error_has_the_offset_of_the_wrong_field_in_the_record() {
        let mut bytes = properties().encode();
        let len = bytes.len() as u64;
        put_field(&mut bytes, 99 << 1 | CRITICAL, |out| out.push(1));
        assert_eq!(Properties::decode(&bytes).unwrap_err().offset, len);
        bytes.truncate(len as usize);
        put_field(&mut bytes, FILTER, |out| out.push(1));
        let error = Properties::decode(&bytes).unwrap_err();
        assert_eq!((error.offset, error.what), (bytes.len() as u64, "filter domain"));
        bytes.truncate(len as usize);
        put_field(&mut bytes, SHAPE, |out| out.extend_from_slice(&[1, 1]));
        assert_eq!(Properties::decode(&bytes).unwrap_err().offset, len, "a field stands twice");
    }

    #[test]
    fn a_truncated_or_repeated_record_is_an_error() {
        let bytes =
            Properties { filters: Vec::new(), compression: None, origin: None, ..properties() }.encode();
        for len in 0..bytes.len() {
            assert!(Properties::decode(&bytes[..len]).is_err(), "{len}");
        }
        assert!(Properties::decode(&bytes.repeat(2)).is_err());
    }

    #[test]
    fn impossible_properties_are_refused() {
        let changes: [fn(&mut Properties); 7] = [
            |p| p.keys = 0,
            |p| p.keys = 301,
            |p| p.tombstones = 301,
            |p| p.key_bytes = u64::MAX,
            |p| p.seqno_min = 901,
            |p| p.seqno_max = 1 << 56,
            |p| p.smallest = Bytes::from_static(b"zzzz").repeat(1000).into(),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut bad = properties();
            change(&mut bad);
            assert!(Properties::decode(&bad.encode()).is_err(), "change {index}");
        }
    }

    #[test]
    fn a_manifest_that_describes_another_table_is_noticed() {
        let good = properties().to_meta(7, [1; 16], 60_000, 5);
        assert_eq!(properties().agree_with(&good), Ok(()));
        let mut trimmed = TableMeta { trimmed: true, ..good.clone() };
        assert!(properties().agree_with(&trimmed).is_err());
        trimmed.largest.truncate(BOUND_BYTES_MAX);
        assert_eq!(properties().agree_with(&trimmed), Ok(()));
        let changes: [fn(&mut TableMeta); 7] = [
            |m| m.entries += 1,
            |m| m.tombstones += 1,
            |m| m.keys -= 1,
            |m| m.data_bytes += 1,
            |m| m.seqno_max += 1,
            |m| m.seqno_min += 1,
            |m| m.smallest = Bytes::from_static(b"a"),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(properties().agree_with(&bad).is_err(), "change {index}");
        }
    }
}
