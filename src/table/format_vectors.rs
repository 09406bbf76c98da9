//! The vectors of tables and blocks.

use std::ops::Bound;
use std::sync::Arc;

use crate::block::{BlockIter, BlockKind, BlockValues, Compression, Envelope, Sealer, open};
use crate::checksum::FileId;
use crate::file_header::StoreIds;
use crate::fs::{Fs, MemFs};
use crate::iter::EntryValue;
use crate::key::{EntryKind, InternalKey, Tag};
use crate::spans::block::SpanReader;
use crate::spans::{Spans, SpansBuilder};
use crate::testing::{Vector, hex};

use super::footer::{FOOTER_BYTES, Footer};
use super::*;

const OWNER: FileId = *b"0123456789abcdef";

type Entries = Vec<(&'static [u8], Tag, &'static [u8])>;

fn entries() -> Entries {
    vec![
        (b"apple", Tag::new(7, EntryKind::Put), b"red"),
        (b"apple", Tag::new(2, EntryKind::Delete), b""),
        (b"apricot", Tag::new(0, EntryKind::Put), b"orange"),
        (b"banana", Tag::new(300, EntryKind::Put), b""),
    ]
}

fn long_entries() -> Entries {
    vec![
        (b"apple", Tag::new(7, EntryKind::Put), &[b'a'; 110]),
        (b"apple", Tag::new(2, EntryKind::Delete), b""),
        (b"apricot", Tag::new(0, EntryKind::Put), &[b'b'; 250]),
        (b"banana", Tag::new(300, EntryKind::Put), &[b'c'; 110]),
        (b"cherry", Tag::new(1, EntryKind::Put), &[b'd'; 110]),
    ]
}

fn value_fact(value: &[u8]) -> String {
    match value {
        [first, ..] if value.len() > 100 => {
            assert!(value.iter().all(|byte| byte == first));
            format!("{first:02x}*{}", value.len())
        }
        _ => hex(value),
    }
}

fn entry_facts(payload: &[u8]) -> Vec<(&'static str, String)> {
    let mut iter = BlockIter::new(payload.to_vec().into(), BlockValues::Data).unwrap();
    iter.verify().unwrap();
    iter.seek_first().unwrap();
    let mut facts = Vec::new();
    while let Some(key) = iter.key() {
        let (user, value) = (hex(key.user), value_fact(iter.value()));
        facts.push((
            "entry",
            format!("key={user} seqno={} kind={:?} value={value}", key.tag.seqno(), key.tag.kind()),
        ));
        iter.next().unwrap();
    }
    facts
}

pub(crate) fn data_block(document: &Vector) {
    data_block_of(document, &entries());
}

pub(crate) fn data_block_hash_index(document: &Vector) {
    data_block_of(document, &long_entries());
}

fn data_block_of(document: &Vector, entries: &Entries) {
    let mut builder = crate::block::BlockBuilder::for_data();
    for &(user, tag, value) in entries {
        builder.add(InternalKey::new(user, tag), value, false);
    }
    let mut block = Vec::new();
    Sealer::new(OWNER).seal(&mut block, 64, BlockKind::Data, Compression::None, builder.finish());
    let payload = open(&OWNER, 64, block.clone(), BlockKind::Data).unwrap();
    let mut facts = vec![("file id", hex(&OWNER)), ("offset", "64".into()), ("kind", "1".into())];
    facts.extend(entry_facts(&payload));
    document.assert_is(&facts, &block);
}

fn spans() -> Spans {
    let key = |key: &str| Arc::from(key.as_bytes());
    let mut builder = SpansBuilder::default();
    builder.push(&key("aa"), Some(&key("apple")), &[8]);
    builder.push(&key("apple"), Some(&key("apricot")), &[8, 3]);
    builder.push(&key("banana\0"), None, &[301]);
    builder.finish()
}

pub(crate) fn span_block(document: &Vector) {
    let payloads = crate::spans::block::encode(&spans()).unwrap();
    let mut block = Vec::new();
    Sealer::new(OWNER).seal(&mut block, 64, BlockKind::Spans, Compression::None, &payloads[0]);
    let payload = open(&OWNER, 64, document.bytes.clone(), BlockKind::Spans).unwrap();
    let mut facts = vec![("file id", hex(&OWNER)), ("offset", "64".into()), ("kind", "7".into())];
    let read = SpanReader::default().read::<crate::codec::DecodeError>(&payload, &mut |span| {
        let (start, end) = (hex(&payload[span.start.clone()]), hex(&payload[span.end.clone()]));
        let numbers: Vec<_> = span.seqnos.iter().map(u64::to_string).collect();
        facts.push(("span", format!("start={start} end={end} seqnos={}", numbers.join(","))));
        Ok(())
    });
    assert_eq!((read, payloads.len()), (Ok(()), 1));
    document.assert_is(&facts, &block);
}

/// A compressed chunk. The test only decodes it, because another release of the compressor may find other matches.
pub(crate) fn compressed_block(document: &Vector) {
    let bytes = &document.bytes;
    let envelope = Envelope::decode(bytes).unwrap();
    assert_eq!((envelope.kind, envelope.compression, envelope.raw_len), (3, Compression::Lz4 as u8, 100));
    let payload = open(&OWNER, 64, bytes.clone(), BlockKind::ValueChunk).unwrap();
    assert_eq!(payload[..], [b'x'; 100]);
    let facts = [
        ("file id", hex(&OWNER)),
        ("offset", "64".into()),
        ("kind", envelope.kind.to_string()),
        ("payload", format!("{:02x} * {}", payload[0], payload.len())),
    ];
    document.assert_is(&facts, bytes);
}

pub(crate) fn origin(document: &Vector) {
    let origin = super::origin::tests::origin();
    let mut bytes = Vec::new();
    origin.encode(&mut bytes);
    let bound = |bound: &Bound<bytes::Bytes>| match bound {
        Bound::Unbounded => "none".to_owned(),
        Bound::Included(key) => format!("included {}", hex(key)),
        Bound::Excluded(key) => format!("excluded {}", hex(key)),
    };
    let numbers = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let facts = [
        ("keyspace", origin.keyspace.to_string()),
        ("name", origin.name.clone()),
        ("newest", origin.newest.to_string()),
        ("from", bound(&origin.from)),
        ("to", bound(&origin.to)),
        ("replaced", numbers(&origin.replaced)),
        ("earlier", numbers(&origin.earlier)),
    ];
    document.assert_is(&facts, &bytes);
    let mut reader = crate::codec::Reader::new(&document.bytes);
    assert_eq!(super::origin::Origin::decode(&mut reader), Ok(origin));
    assert!(reader.is_empty());
}

pub(crate) fn table(document: &Vector) {
    table_of(document, &entries(), Spans::default());
}

pub(crate) fn table_spans(document: &Vector) {
    table_of(document, &entries(), spans());
}

pub(crate) fn table_spans_only(document: &Vector) {
    table_of(document, &Vec::new(), spans());
}

pub(crate) fn table_hash_index(document: &Vector) {
    table_of(document, &long_entries(), Spans::default());
}

fn table_of(document: &Vector, entries: &Entries, spans: Spans) {
    let fs = MemFs::new();
    let dir = std::path::Path::new("/v");
    fs.create_dir(dir).unwrap();
    let path = dir.join("000001.sst");
    let config = TableConfig {
        number: 1,
        store_id: [0x55; 16],
        file_id: OWNER,
        hash_seed: 0,
        block_bytes: 4096,
        compression: Compression::None,
        filter: None,
        append_bytes: crate::table::APPEND_BYTES,
    };
    let mut writer = TableWriter::create(&fs, &path, config).unwrap();
    for &(user, tag, value) in entries {
        writer.add(InternalKey::new(user, tag), &EntryValue::Inline(value.into())).unwrap();
    }
    writer.set_spans(spans);
    let meta = writer.finish().unwrap();
    let bytes = fs.files(&path)[0].1.clone();
    let mut facts = vec![
        ("store id", hex(&[0x55; 16])),
        ("file id", hex(&OWNER)),
        ("length", meta.len.to_string()),
        ("entries", meta.entries.to_string()),
        ("tombstones", meta.tombstones.to_string()),
        ("keys", meta.keys.to_string()),
        ("key and value bytes", meta.data_bytes.to_string()),
        ("sequence numbers", format!("{}..={}", meta.seqno_min, meta.seqno_max)),
    ];
    if let Some(points) = meta.points() {
        facts.extend([("smallest", hex(&points.smallest)), ("largest", hex(&points.largest))]);
    }
    if let Some(spans) = &meta.spans {
        let (start, end) = (hex(&spans.start), hex(&spans.end));
        facts.push(("spans", format!("count={} start={start} end={end}", spans.count)));
    }
    facts.push(("footer checksum", format!("{:08x}", meta.footer_checksum)));
    document.assert_is(&facts, &bytes);

    fs.overwrite(&path, document.bytes.clone());
    let verified = crate::inspect::verify_table(&Arc::new(context(fs)), &meta);
    assert!(verified.damage.is_empty(), "{:?}", verified.damage);
}

fn context(fs: MemFs) -> TableContext {
    TableContext {
        fs: Arc::new(fs),
        dir: "/v".into(),
        store_ids: StoreIds::of([0x55; 16]),
        hash_seed: 0,
        memory: crate::memory::Memory::with_blocks_max(1 << 20, 0),
        files: Arc::new(crate::cache::FileCache::new(1)),
        trust: FilterTrust::default(),
        io: TableIo::default(),
    }
}

pub(crate) fn filter_file(document: &Vector) {
    let of = document.fact("filter block");
    let block = Vector::all().into_iter().find(|vector| vector.name == of).expect("a vector").bytes;
    let (fs, dir) = (MemFs::new(), std::path::Path::new("/v"));
    fs.create_dir(dir).unwrap();
    let ids = [[0x55; 16], OWNER];
    let filter = super::filter::write_filter_file(&fs, dir, 1, ids, &block).unwrap();
    let bytes = fs.files(dir)[0].1.clone();
    let facts = [
        ("store id", hex(&ids[0])),
        ("file id", hex(&ids[1])),
        ("length", bytes.len().to_string()),
        ("filter block", of.to_owned()),
    ];
    document.assert_is(&facts, &bytes);

    let path = dir.join("000001.filter");
    fs.overwrite(&path, document.bytes.clone());
    let ctx = context(fs);
    let file = super::filter::open_filter_file(&ctx, &path).unwrap();
    super::filter::check_filter_file(&ctx, &*file, &path, &filter).unwrap();
}

pub(crate) fn footer(document: &Vector) {
    let footer = Footer { file_id: OWNER, ..super::footer::tests::footer() };
    let (bytes, checksum) = footer.encode();
    let facts = [
        ("file id", hex(&OWNER)),
        ("file length", footer.file_len.to_string()),
        ("root index", format!("{} bytes at {}", footer.root.len, footer.root.offset)),
        ("properties", format!("{} bytes at {}", footer.properties.len, footer.properties.offset)),
        ("first filter", format!("{} bytes at {}", footer.filter.1, footer.filter.0)),
        ("filters", footer.filters.to_string()),
        ("entries", footer.entries.to_string()),
        ("index depth", footer.index_depth.to_string()),
        ("checksum", format!("{checksum:08x}")),
    ];
    document.assert_is(&facts, &bytes);
    assert_eq!(document.bytes.len(), FOOTER_BYTES);
    assert_eq!(Footer::decode(&document.bytes, &OWNER, footer.file_len), Ok((footer, checksum)));
}
