//! The items of an edit, and the records that stand in them, in words.

use super::event::Value;
use super::fields::Described;
use super::out::Result;
use super::text::{escape, short};
use crate::block::Compression;
use crate::codec::{CRITICAL, DecodeError, Field, Reader, varint_len};
use crate::manifest::edit::EditItem;

/// Describes what an item of an edit is.
pub(super) fn describe_item(field: &Field<'_>, secrets: bool) -> Described {
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
        EditItem::LogClosed { number, len, last_seqno } => {
            ("log closed", format!("{number:06}.wal, {len} bytes, last sequence number {last_seqno}"))
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
            let place = format!("those of {number:06}.sst in keyspace {keyspace}");
            let start = varint_len((*keyspace).into()) + varint_len(*number);
            return Described::new("filters replaced", place).with_record(start, describe_table);
        }
    };
    Described::new(name, value)
}

/// A field of a table record.
fn describe_table(field: &Field<'_>, _: bool) -> Described {
    let mut reader = field.reader.clone();
    let described = match (field.tag >> 1, field.tag & CRITICAL) {
        (1, CRITICAL) => file(&mut reader).map(|words| Described::new("file", words)),
        (2, CRITICAL) => numbers(&mut reader).map(|[entries, deletes, keys, bytes]| {
            let words = format!("{entries} entries, {deletes} deletes, {keys} keys, {bytes} bytes of data");
            Described::new("counts", words)
        }),
        (3, CRITICAL) => numbers(&mut reader)
            .map(|[first, last]| Described::new("sequence numbers", format!("{first}..={last}"))),
        (4, CRITICAL) => reader.u8("cut").and_then(|cut| {
            let cut = if cut == 1 { ", cut" } else { "" };
            Ok(Described::new("bounds", bounds(&mut reader)? + cut))
        }),
        (5, 0) => reader.varint("file").and_then(|number| {
            let file = if number == 0 { "in the table".to_owned() } else { format!("in {number:06}.filter") };
            Ok(Described::new("filter", format!("{file}, {}", filter(&mut reader)?)))
        }),
        _ => Ok(Described::new("unknown field", "")),
    };
    described.unwrap_or_else(|error| Described::new("field", error.to_string()))
}

/// Describes what a field of a properties block is.
pub(super) fn describe_property(field: &Field<'_>, _: bool) -> Described {
    let mut reader = field.reader.clone();
    let described = match (field.tag >> 1, field.tag & CRITICAL) {
        (1, CRITICAL) => numbers(&mut reader).map(|[entries, deletes, keys, of_keys, of_values]| {
            let words = format!(
                "{entries} entries, {deletes} tombstones, {keys} keys, {of_keys} + {of_values} bytes of data"
            );
            Described::new("counts", words)
        }),
        (2, CRITICAL) => numbers(&mut reader)
            .map(|[first, last]| Described::new("sequence numbers", format!("{first}..={last}"))),
        (3, CRITICAL) => bounds(&mut reader).map(|words| Described::new("bounds", words)),
        (4, CRITICAL) => reader.u8("index depth").and_then(|depth| {
            let [end, data, chunks, index] = numbers(&mut reader)?;
            let blocks = format!("{data} data, {chunks} chunk, {index} index blocks");
            Ok(Described::new("layout", format!("index depth {depth}, data ends at {end}, {blocks}")))
        }),
        (5, 0) => reader.u8("compression").and_then(|compression| {
            let compression = match Compression::from_u8(compression) {
                Some(Compression::None) => "no compression",
                Some(Compression::Lz4) => "LZ4",
                None => "unknown compression",
            };
            Ok(Described::new(
                "shape",
                format!("{compression}, data blocks of {} bytes", reader.varint("block bytes")?),
            ))
        }),
        (6, 0) => filter(&mut reader).map(|words| Described::new("filter", words)),
        _ => Ok(Described::new("unknown field", "")),
    };
    described.unwrap_or_else(|error| Described::new("field", error.to_string()))
}

fn numbers<const N: usize>(reader: &mut Reader<'_>) -> Result<[u64; N], DecodeError> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = reader.varint("number")?;
    }
    Ok(numbers)
}

fn file(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let (number, id) = (reader.u64("number")?, reader.array::<16>("file id")?);
    let (len, footer) = (reader.u64("length")?, reader.u32("footer checksum")?);
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{number:06}.sst, id {id}, {len} bytes, footer checksum {footer:08x}"))
}

fn bounds(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let mut bound = || reader.length_prefixed(u64::from(u32::MAX), "bound").map(short);
    Ok(format!("{} to {}", bound()?, bound()?))
}

fn filter(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let (kind, domain) = (reader.u8("kind")?, reader.u8("domain")?);
    let [offset, len] = numbers(reader)?;
    let checksum = reader.u32("header checksum")?;
    Ok(format!("kind {kind}, domain {domain}, {len} bytes at {offset}, header checksum {checksum:08x}"))
}

/// A field of a keyspace's options.
fn describe_option(field: &Field<'_>, _: bool) -> Described {
    let mut reader = field.reader.clone();
    match (field.tag >> 1, field.tag & CRITICAL) {
        (1, CRITICAL) => Described::new("comparator", all_numbers(&mut reader)),
        (2, CRITICAL) => Described::new("hash domain", all_numbers(&mut reader)),
        (3, 0) => Described::new("filter", filter_option(&mut reader).unwrap_or_default()),
        (4, 0) => Described::new("block bytes", all_numbers(&mut reader)),
        (5, 0) => Described::new("compression", all_numbers(&mut reader)),
        (6, 0) => Described::new("shape", all_numbers(&mut reader)),
        (7, 0) => {
            Described::new("hints", reader.varint("hints").map_or_else(|error| error.to_string(), hints))
        }
        _ => Described::new("unknown field", ""),
    }
}

fn hints(hints: u64) -> String {
    if hints & 1 == 1 { "nearly all lookups are for keys that are there".into() } else { "none".into() }
}

fn filter_option(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let (kind, code, allocation) = (reader.u8("kind")?, reader.u8("size code")?, reader.u8("allocation")?);
    let size = f64::from_bits(reader.u64("size")?);
    let unit = if code == 0 { "bits per key" } else { "false-positive rate" };
    let allocation = if allocation == 0 { "uniform" } else { "optimal" };
    Ok(format!("kind {kind}, {size} {unit}, {allocation}"))
}

fn all_numbers(reader: &mut Reader<'_>) -> String {
    let numbers = std::iter::from_fn(|| reader.varint("number").ok());
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}
