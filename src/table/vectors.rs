//! The test vectors of the format document: read from it, checked against the code, and made again.

use std::fmt::Write;
use std::sync::Arc;

use crate::block::{BlockIter, BlockKind, Compression, Entries, Envelope, Sealer, open};
use crate::checksum::FileId;
use crate::fs::{Fs, MemFs};
use crate::iter::EntryValue;
use crate::key::{EntryKind, InternalKey, Tag};

use super::footer::{FOOTER_BYTES, Footer};
use super::*;

const DOCUMENT: &str = include_str!("../../format.d/30-tables.md");
const OWNER: FileId = *b"0123456789abcdef";

/// A vector of the document: its facts and its bytes.
struct Vector {
    facts: Vec<(String, String)>,
    bytes: Vec<u8>,
}

impl Vector {
    fn read(name: &str) -> Self {
        let start = format!("```vector {name}\n");
        let (_, rest) = DOCUMENT.split_once(&start).unwrap_or_else(|| panic!("no vector {name}"));
        let (body, _) = rest.split_once("```").expect("the end of the vector");
        let (facts, hex) = body.split_once("bytes:\n").expect("its bytes");
        let fact = |line: &str| line.split_once(" = ").map(|(key, value)| (key.into(), value.into()));
        let byte = |hex: &str| u8::from_str_radix(hex, 16).expect("a byte in hex");
        Self {
            facts: facts.lines().map(|line| fact(line).expect("key = value")).collect(),
            bytes: hex.split_whitespace().map(byte).collect(),
        }
    }

    /// Checks facts and bytes; the message is the vector as it should stand in the document.
    fn assert_is(&self, name: &str, facts: &[(&str, String)], bytes: &[u8]) {
        let facts: Vec<_> = facts.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        assert!(self.facts == facts && self.bytes == bytes, "{}", render(name, &facts, bytes));
    }
}

fn render(name: &str, facts: &[(String, String)], bytes: &[u8]) -> String {
    let mut out = format!("```vector {name}\n");
    facts.iter().for_each(|(key, value)| writeln!(out, "{key} = {value}").unwrap());
    out.push_str("bytes:\n");
    for line in bytes.chunks(16) {
        let line: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "{}", line.join(" ")).unwrap();
    }
    out.push_str("```\n");
    out
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn entries() -> [(&'static [u8], Tag, &'static [u8]); 4] {
    [
        (b"apple", Tag::new(7, EntryKind::Put), b"red"),
        (b"apple", Tag::new(2, EntryKind::Delete), b""),
        (b"apricot", Tag::new(0, EntryKind::Put), b"orange"),
        (b"banana", Tag::new(300, EntryKind::Put), b""),
    ]
}

fn entry_facts(payload: &[u8]) -> Vec<(&'static str, String)> {
    let mut iter = BlockIter::new(payload.to_vec().into(), Entries::Data).unwrap();
    iter.verify().unwrap();
    iter.seek_first().unwrap();
    let mut facts = Vec::new();
    while let Some(key) = iter.key() {
        let (user, value) = (hex(key.user), hex(iter.value()));
        facts.push((
            "entry",
            format!("key={user} seqno={} kind={:?} value={value}", key.tag.seqno(), key.tag.kind()),
        ));
        iter.next().unwrap();
    }
    facts
}

#[test]
fn the_data_block_of_the_document_is_what_is_written_and_read() {
    let mut builder = crate::block::BlockBuilder::new(crate::block::DATA_RESTART_INTERVAL);
    for (user, tag, value) in entries() {
        builder.add(InternalKey::new(user, tag), value, false);
    }
    let mut block = Vec::new();
    Sealer::new(OWNER).seal(&mut block, 64, BlockKind::Data, Compression::None, builder.finish());
    let document = Vector::read("data-block");
    let payload = open(&OWNER, 64, block.clone(), BlockKind::Data).unwrap();
    let mut facts = vec![("file id", hex(&OWNER)), ("offset", "64".into()), ("kind", "1".into())];
    facts.extend(entry_facts(&payload));
    document.assert_is("data-block", &facts, &block);
}

#[test]
fn the_compressed_block_of_the_document_can_be_read() {
    // Only read: another release of the compressor may find other matches.
    let document = Vector::read("compressed-block");
    let mut block = Vec::new();
    Sealer::new(OWNER).seal(&mut block, 64, BlockKind::ValueChunk, Compression::Lz4, &[b'x'; 100]);
    let bytes = if document.bytes.is_empty() { block } else { document.bytes.clone() };
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!((envelope.kind, envelope.compression, envelope.raw_len), (3, 1, 100));
    let payload = open(&OWNER, 64, bytes.clone(), BlockKind::ValueChunk).unwrap();
    assert_eq!(payload, [b'x'; 100].as_slice());
    let facts = [
        ("file id", hex(&OWNER)),
        ("offset", "64".into()),
        ("kind", "3".into()),
        ("payload", "78 * 100".into()),
    ];
    document.assert_is("compressed-block", &facts, &bytes);
}

#[test]
fn the_table_of_the_document_is_what_is_written_and_read() {
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
    };
    let mut writer = TableWriter::create(&fs, &path, config).unwrap();
    for (user, tag, value) in entries() {
        writer.add(InternalKey::new(user, tag), &EntryValue::Inline(value.into())).unwrap();
    }
    let meta = writer.finish().unwrap();
    let bytes = fs.files(&path)[0].1.clone();
    let document = Vector::read("table");
    let facts = [
        ("store id", hex(&[0x55; 16])),
        ("file id", hex(&OWNER)),
        ("length", meta.len.to_string()),
        ("entries", meta.entries.to_string()),
        ("tombstones", meta.tombstones.to_string()),
        ("keys", meta.keys.to_string()),
        ("key and value bytes", meta.data_bytes.to_string()),
        ("sequence numbers", format!("{}..={}", meta.seqno_min, meta.seqno_max)),
        ("smallest", hex(&meta.smallest)),
        ("largest", hex(&meta.largest)),
        ("footer checksum", format!("{:08x}", meta.footer_checksum)),
    ];
    document.assert_is("table", &facts, &bytes);

    fs.overwrite(&path, document.bytes.clone());
    let ctx = TableContext {
        fs: Arc::new(fs),
        dir: dir.to_path_buf(),
        store_id: [0x55; 16],
        hash_seed: 0,
        blocks: Arc::new(crate::cache::BlockCache::new(0)),
        files: Arc::new(crate::cache::FileCache::new(1)),
        io: TableIo::default(),
    };
    let table = Table::open(&Arc::new(ctx), Arc::new(meta)).unwrap();
    assert!(table.verify(0).is_empty());
}

#[test]
fn the_footer_of_the_document_is_what_is_written_and_read() {
    let document = Vector::read("footer");
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
    document.assert_is("footer", &facts, &bytes);
    assert_eq!(document.bytes.len(), FOOTER_BYTES);
    assert_eq!(Footer::decode(&document.bytes, &OWNER, footer.file_len), Ok((footer, checksum)));
}
