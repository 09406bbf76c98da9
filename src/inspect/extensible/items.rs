//! The items of a manifest edit, and the records inside them, as text.

use std::ops::Bound;

use bytes::Bytes;

use super::record::Described;
use crate::block::Compression;
use crate::checksum::FileId;
use crate::codec::{Field, Reader, varint_len};
use crate::expiry::options::{Expiry, Refresh, TimeSource};
use crate::inspect::output::{Value, counted, escape, short};
use crate::manifest::edit::{EditItem, LogEnd};
use crate::manifest::keyspace_options;
use crate::table::Origin;
use crate::table::properties::{self, Properties, SpanProperties};
use crate::table_meta::{self, FilterRef, TableMeta, TableSpans};
use crate::wal::Boundary;

pub(in crate::inspect) fn describe_item(field: &Field<'_>, secrets: bool) -> Described {
    let item = match EditItem::decode(&mut field.clone()) {
        Ok(Some(item)) => item,
        Ok(None) => return Described::new("unknown item", ""),
        Err(error) => return Described::new("item", error.to_string()),
    };
    let (name, value) = match &item {
        EditItem::Base(mark) => {
            ("base", format!("goes on after edit {}, hash {:016x}", mark.count, mark.hash))
        }
        EditItem::HashSeed(seed) if secrets => ("hash seed", format!("{seed:016x}")),
        EditItem::HashSeed(_) => return Described::new("hash seed", Value::Secret),
        EditItem::NextFile(number) => ("next file", number.to_string()),
        EditItem::NextKeyspace(id) => ("next keyspace", id.to_string()),
        EditItem::LastSeqno(seqno) => ("last sequence number", seqno.to_string()),
        EditItem::LogCreated { number, predecessor: 0, .. } => {
            ("log created", format!("{number:06}.wal, the first"))
        }
        EditItem::LogCreated { number, predecessor, .. } => {
            ("log created", format!("{number:06}.wal, after {predecessor:06}.wal"))
        }
        EditItem::LogEnded { number, end: LogEnd { len, last_seqno, is_cut: false } } => {
            ("log closed", format!("{number:06}.wal, {len} bytes, last sequence number {last_seqno}"))
        }
        EditItem::LogEnded { number, end: LogEnd { len, last_seqno, is_cut: true } } => {
            ("log cut", format!("{number:06}.wal, after {len} bytes, last sequence number {last_seqno}"))
        }
        EditItem::LogFloor(number) => ("log floor", format!("logs below {number} are forgotten")),
        EditItem::KeyspaceCreated { id, name, options } => {
            let described =
                Described::new("keyspace created", format!("{id}, \"{}\"", escape(name.as_bytes())));
            return described.with_record(field.reader.remaining() - options.len(), describe_option);
        }
        EditItem::KeyspaceDropped(id) => ("keyspace dropped", id.to_string()),
        EditItem::KeyspaceOptions { id, options } => {
            let described = Described::new("keyspace options", format!("of {id}"));
            return described.with_record(field.reader.remaining() - options.len(), describe_option);
        }
        EditItem::Flushed { keyspace, seqno } => ("flushed", format!("keyspace {keyspace} up to {seqno}")),
        EditItem::TableAdded { keyspace, level, run, meta } => {
            let place = format!("{:06}.sst to keyspace {keyspace}, level {level}, run {run}", meta.number);
            let start = varint_len((*keyspace).into()) + 1 + varint_len(*run);
            return Described::new("table added", place).with_record(start, describe_table);
        }
        EditItem::TableRemoved { keyspace, number } => {
            ("table removed", format!("{number:06}.sst from keyspace {keyspace}"))
        }
        EditItem::FiltersReplaced { keyspace, number, .. } => {
            let place = format!("filters of {number:06}.sst in keyspace {keyspace}");
            let start = varint_len((*keyspace).into()) + varint_len(*number);
            return Described::new("filters replaced", place).with_record(start, describe_table);
        }
        EditItem::StoreIds(ids) => ("store ids", ids.iter().map(hex).collect::<Vec<_>>().join(" ")),
        EditItem::BucketBoundary { keyspace, boundary: Boundary { time, seqno } } => {
            ("boundary", format!("time {time} begins at sequence {seqno} in keyspace {keyspace}"))
        }
        EditItem::Horizon { keyspace, seqno } => {
            ("horizon", format!("entries below sequence {seqno} of keyspace {keyspace} are hidden"))
        }
    };
    Described::new(name, value)
}

fn hex(id: &FileId) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn describe_table(field: &Field<'_>, _: bool) -> Described {
    let mut one = TableMeta::default();
    if let Err(error) = one.decode_field(&mut field.clone()) {
        return Described::new("field", error.to_string());
    }
    let (name, words) = match field.tag {
        table_meta::FILE => {
            let TableMeta { number, len, footer_checksum, .. } = one;
            let id = hex(&one.file_id);
            ("file", format!("{number:06}.sst, id {id}, {len} bytes, footer checksum {footer_checksum:08x}"))
        }
        table_meta::COUNTS => {
            let TableMeta { entries, tombstones, keys, data_bytes, .. } = one;
            let counts = format!("{entries} entries, {tombstones} deletes, {keys} keys");
            ("counts", format!("{counts}, {data_bytes} bytes of data"))
        }
        table_meta::SEQNOS => ("sequence numbers", format!("{}..={}", one.seqno_min, one.seqno_max)),
        table_meta::POINT_BOUNDS => {
            let cut = if one.trimmed { ", cut" } else { "" };
            ("bounds", bounds(&one.smallest, &one.largest) + cut)
        }
        table_meta::FILTER => {
            let place = |own: &FilterRef| match own.file {
                Some(number) => format!("in {number:06}.filter, {}", filter(own)),
                None => format!("in the table, {}", filter(own)),
            };
            ("filter", one.filters.iter().map(place).collect())
        }
        table_meta::SPANS => ("spans", one.spans.map_or_else(String::new, |own| spans_of_record(&own))),
        _ => ("unknown field", String::new()),
    };
    Described::new(name, words)
}

fn spans_of_record(spans: &TableSpans) -> String {
    let cut = if spans.trimmed { ", cut" } else { "" };
    let counts = counted(spans.count, "span", "spans");
    format!("{counts}, {}{cut}", range(&spans.start, &spans.end))
}

pub(in crate::inspect) fn range(start: &[u8], end: &[u8]) -> String {
    let end = if end.is_empty() { "no end".to_owned() } else { format!("before {}", short(end)) };
    format!("from {} to {end}", short(start))
}

pub(in crate::inspect) fn describe_property(field: &Field<'_>, _: bool) -> Described {
    let mut one = Properties::default();
    if let Err(error) = one.decode_field(&mut field.clone()) {
        return Described::new("field", error.to_string());
    }
    let (name, words) = match field.tag {
        properties::COUNTS => {
            let Properties { entries, tombstones, keys, key_bytes, value_bytes, .. } = one;
            let counts = format!("{entries} entries, {tombstones} tombstones, {keys} keys");
            ("counts", format!("{counts}, {key_bytes} + {value_bytes} bytes of data"))
        }
        properties::SEQNOS => ("sequence numbers", format!("{}..={}", one.seqno_min, one.seqno_max)),
        properties::BOUNDS => ("bounds", bounds(&one.smallest, &one.largest)),
        properties::LAYOUT => {
            let Properties { index_depth, data_end, data_blocks, chunk_blocks, index_blocks, .. } = one;
            let blocks = format!("{data_blocks} data, {chunk_blocks} chunk, {index_blocks} index blocks");
            ("layout", format!("index depth {index_depth}, data ends at {data_end}, {blocks}"))
        }
        properties::SHAPE => {
            let compression = match one.compression {
                Some(Compression::None) => "no compression",
                Some(Compression::Lz4) => "LZ4",
                None => "unknown compression",
            };
            ("shape", format!("{compression}, data blocks of {} bytes", one.block_bytes))
        }
        properties::FILTER => ("filter", one.filters.iter().map(filter).collect()),
        properties::ORIGIN => ("origin", one.origin.as_deref().map_or_else(String::new, origin)),
        properties::SPANS => ("spans", one.spans.map_or_else(String::new, |own| spans_of_properties(&own))),
        _ => ("unknown field", String::new()),
    };
    Described::new(name, words)
}

fn spans_of_properties(spans: &SpanProperties) -> String {
    let SpanProperties { count, deletes, start, end, blocks } = spans;
    let counts = format!("{} of {deletes} range deletes", counted(*count, "span", "spans"));
    let (number, bytes) = (blocks.len() as u64, blocks.iter().map(|block| block.len).sum::<u64>());
    let blocks = format!("{} of {bytes} bytes at {}", counted(number, "block", "blocks"), blocks[0].offset);
    format!("{counts}, {}, {blocks}", range(start, end))
}

fn origin(origin: &Origin) -> String {
    let Origin { keyspace, name, newest, replaced, earlier, .. } = origin;
    let place = format!("keyspace {keyspace} {}, sequence up to {newest}", short(name.as_bytes()));
    let bound = |bound: &Bound<Bytes>, included, excluded| match bound {
        Bound::Unbounded => String::new(),
        Bound::Included(key) => format!(" {included} {}", short(key)),
        Bound::Excluded(key) => format!(" {excluded} {}", short(key)),
    };
    let (from, to) = (bound(&origin.from, "from", "after"), bound(&origin.to, "up to", "before"));
    match (replaced.is_empty(), earlier.is_empty()) {
        (true, _) => format!("{place}; a flush"),
        (false, true) => format!("{place}; replaces{from}{to} tables {}", joined(replaced)),
        (false, false) => {
            let (replaced, earlier) = (joined(replaced), joined(earlier));
            format!("{place}; replaces{from}{to} tables {replaced}, which replaced {earlier}")
        }
    }
}

fn joined(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn bounds(smallest: &[u8], largest: &[u8]) -> String {
    format!("{} to {}", short(smallest), short(largest))
}

fn filter(filter: &FilterRef) -> String {
    let FilterRef { kind, domain, offset, len, header_checksum, .. } = filter;
    format!("kind {kind}, domain {domain}, {len} bytes at {offset}, header checksum {header_checksum:08x}")
}

/// Shows the stored number: the engine replaces out-of-range numbers by defaults.
fn describe_option(field: &Field<'_>, _: bool) -> Described {
    let mut reader = field.reader.clone();
    let name = match field.tag {
        keyspace_options::FILTER => return Described::new("filter", filter_option(&mut reader)),
        keyspace_options::HINTS => {
            let hints = reader.varint("hints").map_or_else(|error| error.to_string(), hints);
            return Described::new("hints", hints);
        }
        keyspace_options::EXPIRY => return Described::new("expiry", expiry_option(&mut reader)),
        keyspace_options::COMPARATOR => "comparator",
        keyspace_options::HASH_DOMAIN => "hash domain",
        keyspace_options::BLOCK_BYTES => "block bytes",
        keyspace_options::COMPRESSION => "compression",
        keyspace_options::SHAPE => "shape",
        _ => return Described::new("unknown field", ""),
    };
    let numbers = std::iter::from_fn(|| reader.varint("number").ok());
    let numbers: Vec<u64> = numbers.collect();
    Described::new(name, joined(&numbers))
}

fn hints(hints: u64) -> String {
    let expect_hits = hints & keyspace_options::EXPECT_HITS != 0;
    if expect_hits { "nearly all lookups are for keys that are there".into() } else { "none".into() }
}

fn expiry_option(reader: &mut Reader<'_>) -> String {
    match Expiry::decode(reader) {
        Ok(Expiry { ttl, buckets, refresh, time_source }) => {
            let refresh = if refresh == Refresh::OnSight { "on sight" } else { "on write" };
            let clock = if time_source == TimeSource::Caller { "time of the caller" } else { "system time" };
            format!("after {ttl} ms, {}, refreshed {refresh}, {clock}", counted(buckets, "bucket", "buckets"))
        }
        Err(error) => error.to_string(),
    }
}

fn filter_option(reader: &mut Reader<'_>) -> String {
    let policy = match keyspace_options::decode_filter(reader) {
        Ok(Some(policy)) => policy,
        Ok(None) => return "unknown".into(),
        Err(error) => return error.to_string(),
    };
    let (code, size) = policy.size.code();
    let unit = if code == 0 { "bits per key" } else { "false-positive rate" };
    let allocation = if policy.allocation.code() == 0 { "uniform" } else { "optimal" };
    format!("kind {}, {size} {unit}, {allocation}", policy.kind.code())
}
