//! The vectors outside tables, filters and framing. Each check compares an encoded example with the vector's bytes.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{self, BatchReader, WriteBatch};
use crate::checksum::checksum;
use crate::codec::{Reader, put_u64, put_varint};
use crate::expiry::options::{Expiry, Refresh, TimeSource};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::filter::{FilterAllocation, FilterKind, FilterPolicy, FilterSize};
use crate::fs::{Fs, MemFs};
use crate::key::EntryKind;
use crate::manifest::current::Current;
use crate::manifest::edit::{EditItem, LogEnd, VersionEdit};
use crate::manifest::keyspace_options::KeyspaceOptions;
use crate::manifest::log as manifest_log;
use crate::manifest::state::ManifestState;
use crate::table::Compression;
use crate::table_meta::{FilterRef, PointBounds, TableMeta, TableSpans};
use crate::testing::{Vector, hex, unhex};
use crate::wal::{Boundary, EditMark};
use crate::wal::{Expected, FramedReader, FramedWriter, RecordKind};
use crate::wal::{decode_boundaries, decode_close, decode_promise};
use crate::wal::{encode_boundaries, encode_close, encode_promise};

type Facts = Vec<(&'static str, String)>;

const STORE: [u8; 16] = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
const FILE: [u8; 16] = *b"\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f";
const OTHER: [u8; 16] = *b"\x20\x21\x22\x23\x24\x25\x26\x27\x28\x29\x2a\x2b\x2c\x2d\x2e\x2f";
const MARK: EditMark = EditMark { count: 41, hash: 0x0123_4567_89ab_cdef };

fn hash(hash: u64) -> String {
    format!("{hash:016x}")
}

pub(super) fn varints(vector: &Vector) {
    let mut reader = Reader::new(&vector.bytes);
    let (mut facts, mut written) = (Facts::new(), Vec::new());
    while !reader.is_empty() {
        let number = reader.varint("number").unwrap();
        facts.push(("number", number.to_string()));
        put_varint(&mut written, number);
    }
    vector.assert_is(&facts, &written);
}

pub(super) fn checksums(vector: &Vector) {
    let mut written = Vec::new();
    for content in vector.facts("content") {
        let (byte, count) = content.split_once(" * ").unwrap();
        let content = unhex(byte).repeat(count.parse().unwrap());
        put_u64(&mut written, checksum(&vector.id("owner"), vector.number("offset"), &[&content]));
    }
    assert_eq!(written, vector.bytes);
}

pub(super) fn file_header(vector: &Vector) {
    let header = FileHeader { optional_features: 5, ..FileHeader::new(FileKind::Filter, STORE, FILE) };
    let read = FileHeader::decode(&vector.bytes).unwrap();
    let facts = [
        ("file kind", (read.kind as u16).to_string()),
        ("store id", hex(&read.store_id)),
        ("file id", hex(&read.file_id)),
        ("optional features", read.optional_features.to_string()),
    ];
    vector.assert_is(&facts, &header.encode());
}

pub(super) fn current(vector: &Vector) {
    let example = Current { store_id: STORE, manifest: 7, manifest_id: OTHER };
    let read = Current::decode(&vector.bytes).unwrap();
    let header = FileHeader::decode(&vector.bytes).unwrap();
    let facts = [
        ("store id", hex(&read.store_id)),
        ("file id", hex(&header.file_id)),
        ("manifest number", read.manifest.to_string()),
        ("manifest file id", hex(&read.manifest_id)),
    ];
    vector.assert_is(&facts, &example.encode(FILE));
}

pub(super) fn contents(vector: &Vector) {
    let content = |len: &str| -> [u8; 16] {
        let len: usize = len.parse().unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        xxhash_rust::xxh3::xxh3_128(&bytes).to_be_bytes()
    };
    assert_eq!(vector.facts("length").flat_map(content).collect::<Vec<u8>>(), vector.bytes);
}

/// Checks only the header; `sievedb-backup` tests the rest.
pub(super) fn backup_index(vector: &Vector) {
    let header = FileHeader::decode_kind(&vector.bytes, FileKind::BackupIndex).unwrap();
    assert_eq!((header.store_id, header.file_id), (vector.id("store id"), vector.id("backup id")));
    assert!(vector.bytes.starts_with(&FileHeader::new(FileKind::BackupIndex, STORE, FILE).encode()));
}

pub(super) fn batch(vector: &Vector) {
    let mut example = WriteBatch::new();
    example.put("apple", "red").delete("").push_put(300, b"\xff\x00", b"");
    example.push_put(1, &[b'k'; 130], &[b'v'; 3]);
    let (mut bytes, ..) = example.into_parts().unwrap();
    batch::stamp(&mut bytes, 1_000_000);
    batch_of(vector, &bytes);
}

pub(super) fn batch_range_delete(vector: &Vector) {
    let mut example = WriteBatch::new();
    example.put("apple", "red").push_range_delete(0, b"a", b"b").push_range_delete(300, b"", b"");
    let (mut bytes, ..) = example.into_parts().unwrap();
    batch::stamp(&mut bytes, 5);
    batch_of(vector, &bytes);
}

fn batch_of(vector: &Vector, bytes: &[u8]) {
    let reader = BatchReader::open(&vector.bytes).unwrap();
    let mut facts = vec![("first sequence number", reader.first.to_string())];
    for entry in reader {
        let entry = entry.unwrap();
        let (key, value) = (hex(&vector.bytes[entry.key]), hex(&vector.bytes[entry.value]));
        let more = match entry.kind {
            EntryKind::Delete => String::new(),
            EntryKind::Put => format!(" value={value}"),
            EntryKind::RangeDelete => format!(" end={value}"),
        };
        let (seqno, kind, keyspace) = (entry.seqno, entry.kind, entry.keyspace);
        facts.push(("entry", format!("{kind:?} seqno={seqno} keyspace={keyspace} key={key}{more}")));
    }
    vector.assert_is(&facts, bytes);
}

fn boundary_fact((keyspace, Boundary { time, seqno }): (u32, Boundary)) -> String {
    format!("keyspace={keyspace} time={time} seqno={seqno}")
}

pub(super) fn boundaries(vector: &Vector) {
    let example =
        [(0, Boundary { time: 1_767_225_600_000, seqno: 9 }), (300, Boundary { time: 0, seqno: 1_000_000 })];
    let facts = decode_boundaries(&vector.bytes).unwrap().into_iter();
    let facts: Vec<_> = facts.map(|boundary| ("boundary", boundary_fact(boundary))).collect();
    vector.assert_is(&facts, &encode_boundaries(&example));
}

fn mark_facts(mark: EditMark) -> Facts {
    vec![("edit count", mark.count.to_string()), ("edit hash", hash(mark.hash))]
}

pub(super) fn promise(vector: &Vector) {
    let read = decode_promise(&vector.bytes).unwrap();
    vector.assert_is(&mark_facts(read), &encode_promise(MARK));
}

pub(super) fn close(vector: &Vector) {
    let (last_seqno, mark) = decode_close(&vector.bytes).unwrap();
    let mut facts = vec![("last sequence number", last_seqno.to_string())];
    facts.extend(mark_facts(mark));
    vector.assert_is(&facts, &encode_close(1_000_003, MARK));
}

fn options_example() -> KeyspaceOptions {
    KeyspaceOptions::new()
        .filter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(10.5).allocation(FilterAllocation::Optimal))
        .block_bytes(8192)
        .compression(Compression::None)
        .compression_at(6, Compression::Lz4)
        .table_bytes(1 << 20)
        .memtable_bytes(0)
        .l0_runs(4)
        .level_base_bytes(1 << 24)
        .level_ratio(8)
}

pub(super) fn keyspace_options(vector: &Vector) {
    keyspace_options_of(vector, &options_example());
}

pub(super) fn keyspace_options_expiry(vector: &Vector) {
    let expiry =
        Expiry { ttl: 86_400_000, buckets: 24, refresh: Refresh::OnSight, time_source: TimeSource::System };
    keyspace_options_of(vector, &options_example().with_expiry(&expiry));
}

fn keyspace_options_of(vector: &Vector, example: &KeyspaceOptions) {
    let read = KeyspaceOptions::decode(&vector.bytes).unwrap();
    let size = match read.filter.size {
        FilterSize::BitsPerKey(bits) => format!("bits_per_key={bits}"),
        FilterSize::FalsePositiveRate(rate) => format!("false_positive_rate={rate}"),
        other => panic!("{other:?} has no vector"),
    };
    let (kind, allocation) = (read.filter.kind, read.filter.allocation);
    let mut facts = vec![
        ("comparator", "1".into()),
        ("hash domain", "0".into()),
        ("filter", format!("kind={kind:?} {size} allocation={allocation:?}")),
        ("block bytes", read.block_bytes.to_string()),
        ("compression", read.compression.map(|kind| (kind as u8).to_string()).join(" ")),
        ("table bytes", read.table_bytes.to_string()),
        ("memtable bytes", read.memtable_bytes.to_string()),
        ("level 0 runs", read.l0_runs.to_string()),
        ("level 1 bytes", read.level_base_bytes.to_string()),
        ("level ratio", read.level_ratio.to_string()),
    ];
    if let Some(Expiry { ttl, buckets, refresh, time_source }) = read.expiry() {
        let codes = format!("refresh={refresh:?} time_source={time_source:?}");
        facts.push(("expiry", format!("ttl={ttl} buckets={buckets} {codes}")));
    }
    vector.assert_is(&facts, &example.encode());
}

fn table_example() -> TableMeta {
    TableMeta {
        number: 8,
        file_id: FILE,
        len: 70_000,
        footer_checksum: 0xdead_beef,
        entries: 300,
        tombstones: 3,
        keys: 290,
        data_bytes: 65_000,
        seqno_min: 0,
        seqno_max: 400,
        smallest: Bytes::from_static(b""),
        largest: Bytes::from_static(b"zz"),
        filters: vec![FilterRef {
            file: None,
            kind: 2,
            domain: 0,
            offset: 65_536,
            len: 704,
            header_checksum: 0xcafe_f00d,
        }],
        trimmed: false,
        spans: None,
    }
}

fn filter_beside() -> FilterRef {
    FilterRef { file: Some(11), kind: 3, domain: 0, offset: 4096, len: 448, header_checksum: 0x0bad_cafe }
}

fn encoded(meta: &TableMeta) -> Vec<u8> {
    let mut out = Vec::new();
    meta.encode(&mut out);
    out
}

fn with_spans(mut meta: TableMeta, end: &'static [u8], points: Option<PointBounds>) -> TableMeta {
    let (start, end) = (Bytes::from_static(b"b"), Bytes::from_static(end));
    meta.set_spans(TableSpans { count: 3, start, end, trimmed: false, points });
    meta
}

pub(super) fn table_record(vector: &Vector) {
    table_record_of(vector, &table_example());
}

pub(super) fn table_record_spans(vector: &Vector) {
    let (meta, points) = (table_example(), table_example().points());
    table_record_of(vector, &with_spans(meta, b"", points));
}

pub(super) fn table_record_spans_only(vector: &Vector) {
    let none = TableMeta { entries: 0, tombstones: 0, keys: 0, data_bytes: 0, ..table_example() };
    table_record_of(vector, &with_spans(TableMeta { filters: Vec::new(), ..none }, b"c\0", None));
}

fn table_record_of(vector: &Vector, example: &TableMeta) {
    let read = TableMeta::decode(Reader::new(&vector.bytes)).unwrap();
    let mut facts = vec![
        ("number", read.number.to_string()),
        ("file id", hex(&read.file_id)),
        ("file length", read.len.to_string()),
        ("footer checksum", format!("{:08x}", read.footer_checksum)),
        ("entries", read.entries.to_string()),
        ("deletes", read.tombstones.to_string()),
        ("keys", read.keys.to_string()),
        ("key and value bytes", read.data_bytes.to_string()),
        ("sequence numbers", format!("{}..={}", read.seqno_min, read.seqno_max)),
    ];
    if let Some(points) = read.points() {
        facts.push(("cut", u8::from(points.trimmed).to_string()));
        facts.extend([("smallest", hex(&points.smallest)), ("largest", hex(&points.largest))]);
    }
    for filter in &read.filters {
        let FilterRef { kind, domain, offset, len, header_checksum, .. } = filter;
        let file = filter.file.unwrap_or(0);
        let place = format!("file={file} kind={kind} domain={domain} offset={offset} length={len}");
        facts.push(("filter", format!("{place} header_checksum={header_checksum:08x}")));
    }
    if let Some(spans) = &read.spans {
        let TableSpans { count, start, end, trimmed, .. } = &**spans;
        let (start, end, cut) = (hex(start), hex(end), u8::from(*trimmed));
        facts.push(("spans", format!("count={count} cut={cut} start={start} end={end}")));
    }
    vector.assert_is(&facts, &encoded(example));
}

fn edits_example() -> [Vec<EditItem>; 2] {
    let meta = Arc::new(table_example());
    let first = vec![
        EditItem::Base(MARK),
        EditItem::HashSeed(0xfedc_ba98_7654_3210),
        EditItem::NextFile(11),
        EditItem::NextKeyspace(1),
        EditItem::LastSeqno(400),
        EditItem::LogFloor(9),
        EditItem::LogCreated { number: 9, file_id: OTHER, predecessor: 5 },
        EditItem::KeyspaceCreated { id: 0, name: "default".into(), options: options_example().encode() },
        EditItem::Flushed { keyspace: 0, seqno: 400 },
        EditItem::TableAdded { keyspace: 0, level: 0, run: 8, meta: Arc::clone(&meta) },
    ];
    let second = vec![
        EditItem::NextFile(13),
        EditItem::LogEnded { number: 9, end: LogEnd { len: 136, last_seqno: 405, is_cut: false } },
        EditItem::LogCreated { number: 12, file_id: STORE, predecessor: 9 },
        EditItem::LogFloor(12),
        EditItem::KeyspaceCreated { id: 1, name: "użytkownicy".into(), options: Bytes::new() },
        EditItem::KeyspaceOptions { id: 1, options: options_example().encode() },
        EditItem::Flushed { keyspace: 1, seqno: 405 },
        EditItem::TableRemoved { keyspace: 0, number: 8 },
        EditItem::TableAdded { keyspace: 0, level: 1, run: 0, meta },
        EditItem::FiltersReplaced { keyspace: 0, number: 8, filters: vec![filter_beside()] },
        EditItem::KeyspaceDropped(1),
    ];
    [first, second]
}

fn item_fact(item: &EditItem) -> String {
    match item {
        EditItem::Base(mark) => format!("base count={} hash={}", mark.count, hash(mark.hash)),
        EditItem::HashSeed(seed) => format!("hash seed={}", hash(*seed)),
        EditItem::NextFile(number) => format!("next file={number}"),
        EditItem::NextKeyspace(id) => format!("next keyspace={id}"),
        EditItem::LastSeqno(seqno) => format!("last sequence number={seqno}"),
        EditItem::LogCreated { number, file_id, predecessor } => {
            format!("log created number={number} file_id={} predecessor={predecessor}", hex(file_id))
        }
        EditItem::LogEnded { number, end: LogEnd { len, last_seqno, is_cut } } => {
            let how = if *is_cut { "cut" } else { "closed" };
            format!("log {how} number={number} length={len} last={last_seqno}")
        }
        EditItem::LogFloor(number) => format!("log floor={number}"),
        EditItem::KeyspaceCreated { id, name, options } => {
            format!("keyspace created id={id} name={name} options={}", hex(options))
        }
        EditItem::KeyspaceDropped(id) => format!("keyspace dropped={id}"),
        EditItem::KeyspaceOptions { id, options } => {
            format!("keyspace options id={id} options={}", hex(options))
        }
        EditItem::Flushed { keyspace, seqno } => format!("flushed keyspace={keyspace} up_to={seqno}"),
        EditItem::TableAdded { keyspace, level, run, meta } => {
            format!("table added keyspace={keyspace} level={level} run={run} record={}", hex(&encoded(meta)))
        }
        EditItem::TableRemoved { keyspace, number } => {
            format!("table removed keyspace={keyspace} number={number}")
        }
        EditItem::FiltersReplaced { keyspace, number, filters } => {
            let mut fields = Vec::new();
            FilterRef::encode_all(filters, &mut fields);
            format!("filters replaced keyspace={keyspace} number={number} filters={}", hex(&fields))
        }
        EditItem::StoreIds(ids) => {
            format!("store ids={}", ids.iter().map(|id| hex(id)).collect::<Vec<_>>().join(" "))
        }
        EditItem::BucketBoundary { keyspace, boundary } => {
            format!("boundary {}", boundary_fact((*keyspace, *boundary)))
        }
        EditItem::Horizon { keyspace, seqno } => format!("horizon keyspace={keyspace} seqno={seqno}"),
    }
}

fn manifest_of(vector: &Vector, edits: [Vec<EditItem>; 2]) -> ManifestState {
    let (fs, dir) = (MemFs::new(), Path::new("/db"));
    fs.create_dir(dir).unwrap();
    let path = FileName::Manifest(10).path(dir);
    let header = FileHeader::new(FileKind::Manifest, STORE, FILE);
    let mut writer = FramedWriter::create(&fs, &path, header).unwrap();
    let mut mark = MARK;
    for items in edits {
        let record;
        (record, mark) = VersionEdit::new(items).encode(mark);
        writer.append_record(RecordKind::Edit, &record).unwrap();
        writer.sync().unwrap();
    }
    let written = fs.files(&path).remove(0).1;

    fs.overwrite(&path, vector.bytes.clone());
    let file = fs.open(&path).unwrap();
    let expected = Expected { kind: FileKind::Manifest, store_id: Some(STORE), file_id: Some(FILE) };
    let mut reader = FramedReader::open(&*file, &path, expected).unwrap();
    let mut facts = vec![("store id", hex(&STORE)), ("file id", hex(&FILE))];
    let mut previous = None;
    while let Some(record) = reader.next_record().unwrap() {
        let (edit, mark) = VersionEdit::decode(record.bytes, previous).unwrap();
        previous = Some(mark);
        facts.push((
            "edit",
            format!("offset={} count={} hash={}", record.offset, mark.count, hash(mark.hash)),
        ));
        facts.extend(edit.items.iter().map(|item| ("item", item_fact(item))));
    }
    vector.assert_is(&facts, &written);

    let current = Current { store_id: STORE, manifest: 10, manifest_id: FILE };
    let read = manifest_log::read(&fs, dir, &current).unwrap();
    assert_eq!(read.state.mark, mark);
    read.state
}

pub(super) fn manifest(vector: &Vector) {
    let state = manifest_of(vector, edits_example());
    assert_eq!(state.logs.keys().collect::<Vec<_>>(), [&12]);
    assert_eq!((state.next_file, state.next_keyspace, state.last_seqno), (13, 2, 400));
    assert_eq!(state.keyspaces.keys().collect::<Vec<_>>(), [&0]);
    let place = &state.keyspaces[&0].tables[&8];
    assert_eq!((place.level, &place.meta.filters), (1, &vec![filter_beside()]));
}

pub(super) fn manifest_log_cut(vector: &Vector) {
    let [mut first, _] = edits_example();
    first.retain(|item| !matches!(item, EditItem::TableAdded { .. }));
    let second = vec![
        EditItem::NextFile(13),
        EditItem::LogEnded { number: 9, end: LogEnd { len: 112, last_seqno: 405, is_cut: true } },
        EditItem::LogCreated { number: 12, file_id: STORE, predecessor: 9 },
    ];
    let state = manifest_of(vector, [first, second]);
    assert_eq!(state.logs[&9].end, Some(LogEnd { len: 112, last_seqno: 405, is_cut: true }));
    assert_eq!((state.logs[&12].end, state.logs[&12].predecessor), (None, 9));
}

pub(super) fn manifest_store_ids(vector: &Vector) {
    let [mut first, _] = edits_example();
    first.truncate(2);
    first.push(EditItem::StoreIds(vec![FILE, OTHER]));
    let state = manifest_of(vector, [first, vec![EditItem::StoreIds(vec![[0xaa; 16]])]]);
    assert_eq!(state.store_ids.into_iter().collect::<Vec<_>>(), [FILE, OTHER, [0xaa; 16]]);
}

pub(super) fn manifest_expiry(vector: &Vector) {
    let boundary = |hour: u64, seqno| EditItem::BucketBoundary {
        keyspace: 0,
        boundary: Boundary { time: 1_767_225_600_000 + hour * 3_600_000, seqno },
    };
    let [mut first, _] = edits_example();
    first.truncate(2);
    let (name, options) = ("default".into(), Bytes::new());
    first.push(EditItem::KeyspaceCreated { id: 0, name, options });
    first.extend([boundary(0, 1), boundary(1, 300), boundary(2, 900)]);
    let state = manifest_of(vector, [first, vec![EditItem::Horizon { keyspace: 0, seqno: 300 }]]);
    let keyspace = &state.keyspaces[&0];
    let seqnos: Vec<_> = keyspace.buckets.boundaries().iter().map(|boundary| boundary.seqno).collect();
    assert_eq!((keyspace.buckets.horizon(), &seqnos[..]), (300, &[1, 300, 900][..]));
    let mut later = state;
    later.apply_item(&EditItem::Horizon { keyspace: 0, seqno: 301 }).unwrap();
    later.apply_item(&EditItem::Horizon { keyspace: 0, seqno: 2 }).unwrap();
    assert_eq!(
        (later.keyspaces[&0].buckets.horizon(), later.keyspaces[&0].buckets.boundaries().len()),
        (301, 2)
    );
}
