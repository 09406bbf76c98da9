//! Tables forged block by block: wrong contents under valid checksums.

use crate::block::{BlockBuilder, BlockHandle, BlockKind, ChunkRef, Compression, Sealer};
use crate::file_header::{FileHeader, FileKind};
use crate::filter::{FilterBuilder, Kind};
use crate::key::{EntryKind, InternalKey, Tag};
use crate::table::{FOOTER_BYTES, Footer, Properties};
use crate::table_meta::FilterRef;

pub(super) const STORE: [u8; 16] = [1; 16];
pub(super) const FILE: [u8; 16] = [2; 16];

#[derive(Clone, Copy)]
pub(super) enum Put<'v> {
    Inline(&'v [u8]),
    Chunks(ChunkRef),
}

pub(super) struct Forge {
    pub(super) out: Vec<u8>,
    pub(super) properties: Properties,
    sealer: Sealer,
}

impl Forge {
    pub(super) fn new() -> Self {
        Self {
            out: FileHeader::new(FileKind::Table, STORE, FILE).encode().to_vec(),
            properties: Properties {
                seqno_min: u64::MAX,
                compression: Some(Compression::None),
                ..Properties::default()
            },
            sealer: Sealer::new(FILE),
        }
    }

    pub(super) fn block(&mut self, kind: BlockKind, payload: &[u8]) -> BlockHandle {
        let offset = self.out.len() as u64;
        let len = self.sealer.seal(&mut self.out, offset, kind, Compression::None, payload);
        let end = offset + len;
        let properties = &mut self.properties;
        match kind {
            BlockKind::Data => {
                (properties.data_blocks, properties.data_end) = (properties.data_blocks + 1, end)
            }
            BlockKind::ValueChunk => {
                (properties.chunk_blocks, properties.data_end) = (properties.chunk_blocks + 1, end);
            }
            BlockKind::Index => properties.index_blocks += 1,
            BlockKind::Properties | BlockKind::Padding | BlockKind::Spans => {}
        }
        BlockHandle { offset, len }
    }

    pub(super) fn data(&mut self, entries: &[(&str, Put<'_>)]) -> BlockHandle {
        let mut block = BlockBuilder::for_data();
        for (key, value) in entries {
            let mut stored = Vec::new();
            let (len, chunked) = match value {
                Put::Inline(value) => {
                    stored.extend_from_slice(value);
                    (value.len() as u64, false)
                }
                Put::Chunks(chunks) => {
                    chunks.encode(&mut stored);
                    (chunks.total, true)
                }
            };
            block.add(InternalKey::new(key.as_bytes(), tag()), &stored, chunked);
            let properties = &mut self.properties;
            if properties.entries == 0 {
                properties.smallest = key.as_bytes().to_vec().into();
            }
            properties.largest = key.as_bytes().to_vec().into();
            properties.entries += 1;
            properties.keys += 1;
            properties.key_bytes += key.len() as u64;
            properties.value_bytes += len;
            (properties.seqno_min, properties.seqno_max) = (7, 7);
        }
        let payload = block.finish().to_vec();
        self.block(BlockKind::Data, &payload)
    }

    pub(super) fn keys(&mut self, keys: &[&str]) -> BlockHandle {
        let entries: Vec<_> = keys.iter().map(|key| (*key, Put::Inline(b"v"))).collect();
        self.data(&entries)
    }

    pub(super) fn chunk(&mut self, len: usize) -> BlockHandle {
        self.block(BlockKind::ValueChunk, &vec![b'c'; len])
    }

    pub(super) fn index(&mut self, entries: &[(&str, BlockHandle)]) -> BlockHandle {
        let mut block = BlockBuilder::for_index();
        for (separator, handle) in entries {
            let mut value = Vec::new();
            handle.encode(&mut value);
            let behind = Tag::new(0, EntryKind::Delete);
            block.add(InternalKey::new(separator.as_bytes(), behind), &value, false);
        }
        let payload = block.finish().to_vec();
        self.block(BlockKind::Index, &payload)
    }

    pub(super) fn filter(&mut self, block: &[u8]) -> usize {
        self.pad();
        let offset = self.out.len();
        self.out.extend_from_slice(block);
        self.properties.filters.push(FilterRef {
            file: None,
            kind: block[40],
            domain: block[41],
            offset: offset as u64,
            len: block.len() as u64,
            header_checksum: u32::from_le_bytes(block[12..16].try_into().unwrap()),
        });
        offset
    }

    pub(super) fn pad(&mut self) {
        let payload = 4096 - (self.out.len() + 20) % 4096;
        self.block(BlockKind::Padding, &vec![0; payload]);
    }

    pub(super) fn properties(&mut self, depth: u8) -> BlockHandle {
        self.properties.index_depth = depth;
        let payload = self.properties.encode();
        self.block(BlockKind::Properties, &payload)
    }

    pub(super) fn finish(mut self, root: BlockHandle, depth: u8) -> Vec<u8> {
        let properties = self.properties(depth);
        self.footer(root, properties, depth)
    }

    pub(super) fn footer(mut self, root: BlockHandle, properties: BlockHandle, depth: u8) -> Vec<u8> {
        let filters = &self.properties.filters;
        let footer = Footer {
            root,
            properties,
            filter: filters.first().map_or((0, 0), |filter| (filter.offset, filter.len)),
            entries: self.properties.entries,
            file_len: (self.out.len() + FOOTER_BYTES) as u64,
            filters: filters.len() as u32,
            index_depth: depth,
            file_id: FILE,
        };
        self.out.extend_from_slice(&footer.encode().0);
        self.out
    }
}

fn tag() -> Tag {
    Tag::new(7, EntryKind::Put)
}

pub(super) fn filter(owner: [u8; 16], seed: u64, keys: &[&str]) -> Vec<u8> {
    let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, seed, 3, owner).unwrap();
    keys.iter().for_each(|key| builder.add_key(key.as_bytes()));
    builder.finish().unwrap()
}
