//! Tables with correct checksums and wrong contents: the findings and the cost of `verify`.

use super::*;
use crate::block::{BlockBuilder, BlockHandle, BlockKind, ChunkRef, ENVELOPE_BYTES, Sealer};
use crate::filter::{FilterBuilder, Header};
use crate::snapshot_read::{KeyRange, Range};
use crate::table::footer::Footer;
use crate::table::properties::Properties;

const OWNER: FileId = [8; 16];

struct Forge {
    bytes: Vec<u8>,
    sealer: Sealer,
    properties: Properties,
}

impl Forge {
    fn new() -> Self {
        let bytes = FileHeader::new(FileKind::Table, STORE, OWNER).encode().to_vec();
        let properties = Properties { seqno_min: 1, seqno_max: 1, ..Properties::default() };
        Self { bytes, sealer: Sealer::new(OWNER), properties }
    }

    fn block(&mut self, kind: BlockKind, payload: &[u8]) -> BlockHandle {
        let offset = self.bytes.len() as u64;
        let len = self.sealer.seal(&mut self.bytes, offset, kind, Compression::None, payload);
        BlockHandle { offset, len }
    }

    fn chunk(&mut self, len: usize) -> BlockHandle {
        self.properties.chunk_blocks += 1;
        self.block(BlockKind::ValueChunk, &vec![b'c'; len])
    }

    fn data(&mut self, entries: &[(&str, EntryValue)]) -> BlockHandle {
        let values: Vec<(&str, Vec<u8>, u64, bool)> = entries
            .iter()
            .map(|(key, value)| (*key, value.clone().read().unwrap().to_vec(), value.len(), false))
            .collect();
        self.data_of(&values)
    }

    fn references(&mut self, entries: &[(&str, ChunkRef)]) -> BlockHandle {
        let encoded = |chunks: &ChunkRef| {
            let mut out = Vec::new();
            chunks.encode(&mut out);
            out
        };
        let values: Vec<_> =
            entries.iter().map(|(key, chunks)| (*key, encoded(chunks), chunks.total, true)).collect();
        self.data_of(&values)
    }

    fn data_of(&mut self, entries: &[(&str, Vec<u8>, u64, bool)]) -> BlockHandle {
        let mut builder = BlockBuilder::for_data();
        let own = &mut self.properties;
        for (key, value, len, chunked) in entries {
            let user = Bytes::copy_from_slice(key.as_bytes());
            builder.add(InternalKey::new(&user, Tag::new(1, EntryKind::Put)), value, *chunked);
            if own.entries == 0 || user < own.smallest {
                own.smallest = user.clone();
            }
            own.largest = own.largest.clone().max(user);
            own.entries += 1;
            own.keys += 1;
            own.key_bytes += key.len() as u64;
            own.value_bytes += len;
        }
        own.data_blocks += 1;
        self.block(BlockKind::Data, builder.finish())
    }

    fn index(&mut self, entries: &[(&str, BlockHandle)]) -> BlockHandle {
        let mut builder = BlockBuilder::for_data();
        for (separator, handle) in entries {
            let mut value = Vec::new();
            handle.encode(&mut value);
            let tag = Tag::new(0, EntryKind::Delete);
            builder.add(InternalKey::new(separator.as_bytes(), tag), &value, false);
        }
        self.end_data();
        self.properties.index_blocks += 1;
        self.block(BlockKind::Index, builder.finish())
    }

    fn end_data(&mut self) {
        if self.properties.data_end == 0 {
            self.properties.data_end = self.bytes.len() as u64;
        }
    }

    fn filter(&mut self, keys: &[&str], boundary: usize, change: impl FnOnce(&mut Header)) {
        self.end_data();
        let used = self.bytes.len() + ENVELOPE_BYTES;
        let padding = used.next_multiple_of(boundary) - used;
        self.block(BlockKind::Padding, &vec![0; padding]);
        let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, SEED, 1, OWNER).unwrap();
        keys.iter().for_each(|key| builder.add_key(key.as_bytes()));
        let mut block = builder.finish().unwrap();
        let mut header = Header::decode(&block).unwrap();
        change(&mut header);
        let head = header.encode();
        block[..head.len()].copy_from_slice(&head);
        let header_checksum = Header::decode(&block).unwrap().checksum;
        let (offset, len) = (self.bytes.len() as u64, block.len() as u64);
        let kind = Kind::Bloom as u8;
        self.properties.filters.push(FilterRef { file: None, kind, domain: 0, offset, len, header_checksum });
        self.bytes.extend_from_slice(&block);
    }

    fn finish(mut self, fixture: &Fixture, root: BlockHandle, depth: u8) -> TableMeta {
        self.properties.index_depth = depth;
        let payload = self.properties.encode();
        let properties = self.block(BlockKind::Properties, &payload);
        let own = &self.properties;
        let footer = Footer {
            root,
            properties,
            filter: own.filters.first().map_or((0, 0), |filter| (filter.offset, filter.len)),
            entries: own.entries,
            file_len: self.bytes.len() as u64 + 128,
            filters: own.filters.len() as u32,
            index_depth: depth,
            file_id: OWNER,
        };
        self.bytes.extend_from_slice(&footer.encode().0);
        fixture.fs.overwrite(&fixture.path, self.bytes);
        fixture.ctx.files.remove(12);
        Table::read_meta(&fixture.ctx, 12, &fixture.path).unwrap()
    }
}

fn inline(value: &str) -> EntryValue {
    EntryValue::Inline(Bytes::copy_from_slice(value.as_bytes()))
}

fn found(fixture: &Fixture, meta: &TableMeta) -> Vec<String> {
    fixture.damage(meta).iter().map(|damage| damage.0.to_string()).collect()
}

fn cannot_be_walked(fixture: &Fixture, meta: &TableMeta) -> bool {
    scan(&fixture.open(meta).unwrap()).is_err()
}

#[test]
fn a_forged_table_that_does_not_lie_is_sound() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let chunk = forge.chunk(40_000);
    let a = forge.references(&[("a", ChunkRef::new(40_000, chunk.offset))]);
    let b = forge.data(&[("b", inline("blue")), ("c", inline(""))]);
    forge.filter(&["a", "b", "c"], 4096, |_| ());
    forge.filter(&["a", "b", "c"], 4096, |_| ());
    let partitions = [forge.index(&[("a", a)]), forge.index(&[("c", b)])];
    let root = forge.index(&[("a", partitions[0]), ("c", partitions[1])]);
    let meta = forge.finish(&fixture, root, 2);
    assert_eq!(found(&fixture, &meta), [""; 0]);
    assert_eq!(scan(&fixture.open(&meta).unwrap()).unwrap().len(), 3);
}

#[test]
fn a_reference_with_another_length_or_kind_is_refused_also_if_the_block_is_cached() {
    let mut forge = Forge::new();
    let a = forge.data(&[("a", inline("amber"))]);
    let longer = BlockHandle { len: a.len + 1, ..a };
    let index = forge.index(&[("a", a)]);
    let other_length = forge.index(&[("b", longer)]);
    let other_kind = forge.index(&[("c", index)]);
    forge.properties.largest = "c".into();
    let root = forge.index(&[("a", index), ("b", other_length), ("c", other_kind)]);
    for (cache_bytes, cached) in [(0, 0), (1 << 20, 4)] {
        let fixture = Fixture::new(cache_bytes);
        let forge = Forge {
            bytes: forge.bytes.clone(),
            sealer: Sealer::new(OWNER),
            properties: forge.properties.clone(),
        };
        let meta = forge.finish(&fixture, root, 2);
        let table = fixture.open(&meta).unwrap();
        for _ in 0..2 {
            assert_eq!(get(&table, b"a", 1).unwrap().unwrap().1, "amber");
            for (key, what) in [("b", "block stored length"), ("c", "block kind")] {
                let error = get(&table, key.as_bytes(), 1).unwrap_err();
                assert!(error.to_string().contains(what), "{key}: {error}");
            }
        }
        assert_eq!(fixture.ctx.memory.blocks().len(), cached, "the three of an index, and one of data");
    }
}

#[test]
fn a_hash_index_that_hides_a_key_is_found_by_verify_and_a_walk_has_the_key() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let long = "v".repeat(100);
    let data = forge.data(&["a", "b", "c"].map(|key| (key, inline(&long))));
    let root = forge.index(&[("c", data)]);
    let (start, end) = (data.offset as usize, (data.offset + data.len) as usize);
    // The block ends with three hash bytes, one restart, and the number of restarts.
    let at = end - 8 - 2;
    forge.bytes[at] ^= 1;
    reseal(&mut forge.bytes, start, end - start);
    let meta = forge.finish(&fixture, root, 1);
    let table = fixture.open(&meta).unwrap();
    assert_eq!(get(&table, b"b", 1).unwrap(), None, "it is hidden");
    assert!(get(&table, b"a", 1).unwrap().is_some() && get(&table, b"c", 1).unwrap().is_some());
    assert_eq!(scan(&table).unwrap().len(), 3);
    let found = found(&fixture, &meta);
    assert!(found.len() == 1 && found[0].contains("hash index"), "{found:?}");
}

#[test]
fn chunks_of_other_lengths_than_their_value_needs_are_found_one_by_one() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let (short, long) = (forge.chunk(39_999), forge.chunk(50_001));
    let value = |total, chunk: BlockHandle| ChunkRef::new(total, chunk.offset);
    let data = forge.references(&[("a", value(40_000, short)), ("b", value(50_000, long))]);
    let root = forge.index(&[("b", data)]);
    let meta = forge.finish(&fixture, root, 1);
    assert!(cannot_be_walked(&fixture, &meta));
    let damage = fixture.damage(&meta);
    assert_eq!(damage.len(), 2, "{damage:?}");
    for (damage, (key, chunk)) in damage.iter().zip([("a", short), ("b", long)]) {
        assert_eq!(damage.1, Some((key.into(), key.into())));
        let Error::Corruption { offset, what, .. } = &damage.0 else { panic!("{damage:?}") };
        assert_eq!((*offset, *what), (chunk.offset, "value chunk length"));
    }

    let mut forge = Forge::new();
    let first = forge.chunk((1 << 20) - 1);
    forge.chunk(101);
    let data = forge.references(&[("a", ChunkRef::new((1 << 20) + 100, first.offset))]);
    let root = forge.index(&[("a", data)]);
    let meta = forge.finish(&fixture, root, 1);
    assert_eq!(found(&fixture, &meta).len(), 2);
}

#[test]
fn data_and_index_blocks_whose_offsets_descend_are_found() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let b = forge.data(&[("b", inline("1"))]);
    let a = forge.data(&[("a", inline("2"))]);
    let root = forge.index(&[("a", a), ("b", b)]);
    let meta = forge.finish(&fixture, root, 1);
    assert!(cannot_be_walked(&fixture, &meta));
    let damage = found(&fixture, &meta);
    assert!(damage.len() == 1 && damage[0].contains("not in the order of the index"), "{damage:?}");

    let mut forge = Forge::new();
    let (a, b) = (forge.data(&[("a", inline("1"))]), forge.data(&[("b", inline("2"))]));
    let second = forge.index(&[("b", b)]);
    let first = forge.index(&[("a", a)]);
    let root = forge.index(&[("a", first), ("b", second)]);
    let meta = forge.finish(&fixture, root, 2);
    assert!(cannot_be_walked(&fixture, &meta));
    let damage = found(&fixture, &meta);
    assert!(damage.len() == 1 && damage[0].contains("is out of order"), "{damage:?}");
}

#[test]
fn a_seek_that_would_not_pass_its_target_is_corruption() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let first = forge.data(&[("a", inline("1")), ("k", inline("2"))]);
    let second = forge.data(&[("b", inline("3")), ("z", inline("4"))]);
    let root = forge.index(&[("m", first), ("z", second)]);
    let meta = forge.finish(&fixture, root, 1);
    let table = fixture.open(&meta).unwrap();
    let target = |user| InternalKey::new(user, Tag::newest_at(1));
    for fills_cache in [false, true] {
        let forward = table.iter(fills_cache).seek(target(b"l")).unwrap_err();
        assert!(forward.to_string().contains("not in order"), "{forward}");
    }
    // "j" is a separator before the last key of its block.
    let mut forge = Forge::new();
    let first = forge.data(&[("a", inline("1")), ("x", inline("2"))]);
    let second = forge.data(&[("y", inline("3"))]);
    let root = forge.index(&[("j", first), ("y", second)]);
    let meta = forge.finish(&fixture, root, 1);
    let table = fixture.open(&meta).unwrap();
    let backward = table.iter(false).seek_before(target(b"k")).unwrap_err();
    assert!(backward.to_string().contains("not in order"), "{backward}");
    // For the first key of this block, "b", the index leads to the other block.
    let mut forge = Forge::new();
    let first = forge.data(&[("a", inline("1"))]);
    let second = forge.data(&[("b", inline("2")), ("x", inline("3"))]);
    let root = forge.index(&[("c", first), ("x", second)]);
    let meta = forge.finish(&fixture, root, 1);
    let mut iter = fixture.open(&meta).unwrap().iter(true);
    iter.seek(target(b"d")).unwrap();
    let displaced = iter.next().unwrap_err();
    assert!(displaced.to_string().contains("not where its keys are"), "{displaced}");
    // The only separator, "j", is before the last key.
    let mut forge = Forge::new();
    let only = forge.data(&[("x", inline("1"))]);
    let root = forge.index(&[("j", only)]);
    let meta = forge.finish(&fixture, root, 1);
    let last = fixture.open(&meta).unwrap().iter(false).seek_before(target(b"k")).unwrap_err();
    assert!(last.to_string().contains("not in order"), "{last}");
}

#[test]
fn a_scan_of_keys_that_are_not_in_order_is_corruption_and_ends() {
    let keys = |parts: [(&'static str, usize); 3]| -> Vec<(&str, EntryValue)> {
        parts.iter().flat_map(|(key, count)| std::iter::repeat_n((*key, inline("")), *count)).collect()
    };
    let many = 48;
    for (blocks, upward) in [
        (vec![keys([("b", 1), ("a", 12), ("z", 0)])], true),
        (vec![keys([("b", 1), ("c", 1), ("a", 1)])], true),
        (vec![keys([("c", 1), ("d", 0), ("e", 0)]), keys([("a", many), ("f", 0), ("z", 1)])], true),
        (vec![keys([("b", many), ("0", 1), ("a", many)])], false),
        (vec![keys([("b", 1), ("c", 1), ("a", 1)])], false),
    ] {
        let fixture = Fixture::new(0);
        let mut forge = Forge::new();
        let entries: Vec<_> = blocks.iter().map(|keys| (keys[0].0, forge.data(keys))).collect();
        let last = entries.len() - 1;
        let separators =
            entries.iter().enumerate().map(|(n, (key, at))| (if n < last { *key } else { "z" }, *at));
        let root = forge.index(&separators.collect::<Vec<_>>());
        let meta = forge.finish(&fixture, root, 1);
        let table = fixture.open(&meta).unwrap();
        let source = Box::new(move || Ok(table.iter(false)));
        let mut range = Range::new(source, 1, KeyRange::all());
        let step = || match upward {
            true => range.next().map(|entry| entry.map(drop)).transpose(),
            false => range.next_back().map(|entry| entry.map(drop)).transpose(),
        };
        let steps: Vec<_> = std::iter::from_fn(step).take(2 * many).collect();
        let Some(Err(error)) = steps.last() else { panic!("{} steps, upward: {upward}", steps.len()) };
        assert!(error.is_corruption() && error.to_string().contains("not in order"), "{error}");
        assert!(steps.len() <= 3);
    }
}

#[test]
fn a_scan_to_a_value_with_impossible_chunk_offsets_is_corruption() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let (mut reference, total) = (Vec::new(), 256 << 20);
    ChunkRef::new(total, 1 << 40).encode(&mut reference);
    let plain = |key| (key, b"1".to_vec(), 1, false);
    let data = forge.data_of(&[("a", reference, total, true), plain("b"), plain("c"), plain("d")]);
    let root = forge.index(&[("d", data)]);
    let meta = forge.finish(&fixture, root, 1);
    let table = fixture.open(&meta).unwrap();
    let mut range = Range::new(Box::new(move || Ok(table.iter(false))), 1, KeyRange::all());
    let step = || range.next_back().map(|entry| entry.map(drop)).transpose();
    let steps: Vec<_> = std::iter::from_fn(step).take(9).collect();
    assert!(matches!(steps[..], [Ok(()), .., Err(Error::Corruption { .. })]), "{steps:?}");
}

#[test]
fn separators_that_differ_from_the_level_below_or_the_last_key_are_found() {
    for (separators, complaint) in [
        (["a", "c"], None),
        (["b", "c"], Some("its last separator is before the separator in its parent")),
        (["a", "d"], Some("its last separator is before the separator in its parent")),
    ] {
        let fixture = Fixture::new(0);
        let mut forge = Forge::new();
        let (a, c) = (forge.data(&[("a", inline("1"))]), forge.data(&[("c", inline("2"))]));
        let partitions = [forge.index(&[("a", a)]), forge.index(&[("c", c)])];
        let root = forge.index(&[(separators[0], partitions[0]), (separators[1], partitions[1])]);
        let meta = forge.finish(&fixture, root, 2);
        let table = fixture.open(&meta).unwrap();
        assert_eq!(get(&table, b"aa", 9).is_err(), separators[0] == "b");
        let damage = found(&fixture, &meta);
        assert_eq!(damage.len(), usize::from(complaint.is_some()), "{damage:?}");
        assert!(damage.iter().all(|damage| damage.contains(complaint.unwrap())), "{damage:?}");
    }
    for (last, pieces) in [("c", 0), ("cc", 1)] {
        let fixture = Fixture::new(0);
        let mut forge = Forge::new();
        let (a, c) = (forge.data(&[("a", inline("1"))]), forge.data(&[("c", inline("2"))]));
        let root = forge.index(&[("bbb", a), (last, c)]);
        let meta = forge.finish(&fixture, root, 1);
        assert_eq!(found(&fixture, &meta).len(), pieces);
    }
}

#[test]
fn handles_that_differ_from_the_walk_are_found() {
    for change in [|handle: &mut BlockHandle| handle.len -= 1, |handle: &mut BlockHandle| handle.offset += 1]
    {
        let fixture = Fixture::new(0);
        let mut forge = Forge::new();
        let a = forge.data(&[("a", inline("1"))]);
        let mut b = forge.data(&[("b", inline("2"))]);
        let c = forge.data(&[("c", inline("3"))]);
        change(&mut b);
        let root = forge.index(&[("a", a), ("b", b), ("c", c)]);
        let meta = forge.finish(&fixture, root, 1);
        let damage = fixture.damage(&meta);
        assert_eq!(damage.len(), 1, "{damage:?}");
        assert_eq!(damage[0].1, Some((b"a".to_vec(), b"b".to_vec())));
    }
}

#[test]
fn blocks_that_nothing_refers_to_are_found_one_by_one() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    forge.chunk(5);
    let a = forge.data(&[("a", inline("1"))]);
    forge.chunk(7);
    let root = forge.index(&[("a", a)]);
    let meta = forge.finish(&fixture, root, 1);
    let damage = found(&fixture, &meta);
    assert!(damage.len() == 2 && damage.iter().all(|damage| damage.contains("nothing refers")), "{damage:?}");
}

#[test]
fn a_long_value_that_is_not_in_chunks_is_found() {
    for (len, sound) in [(32_768, true), (32_769, false)] {
        let fixture = Fixture::new(0);
        let mut forge = Forge::new();
        let value = EntryValue::Inline(vec![b'v'; len].into());
        let data = forge.data(&[("a", value)]);
        let root = forge.index(&[("a", data)]);
        let meta = forge.finish(&fixture, root, 1);
        let damage = found(&fixture, &meta);
        assert_eq!(damage.is_empty(), sound, "{len}: {damage:?}");
        assert!(sound || damage[0].contains("value length"), "{damage:?}");
    }
}

#[test]
fn every_filter_is_on_a_page_and_named_by_the_properties() {
    let fixture = Fixture::new(1 << 20);
    let mut forge = Forge::new();
    let data = forge.data(&[("a", inline("1"))]);
    forge.filter(&["a"], 4096, |_| ());
    forge.filter(&["a"], 64, |_| ());
    let root = forge.index(&[("a", data)]);
    let meta = forge.finish(&fixture, root, 1);
    assert!(!meta.filters[1].offset.is_multiple_of(4096));
    assert!(matches!(fixture.filter(&meta), FilterState::Loaded(_)));
    let damage = found(&fixture, &meta);
    assert!(damage.len() == 1 && damage[0].contains("4096"), "{damage:?}");
    let second = TableMeta { filters: meta.filters[1..].to_vec(), ..meta.clone() };
    assert!(matches!(fixture.filter(&second), FilterState::Unusable(_)));
    let twice = TableMeta { filters: vec![meta.filters[0].clone(); 2], ..meta.clone() };
    let damage = found(&fixture, &twice);
    assert!(damage.len() == 2 && damage[1].contains("twice"), "it is read once: {damage:?}");
    let none = TableMeta { filters: Vec::new(), ..meta };
    assert_eq!(found(&fixture, &none).len(), 1, "the properties name it still");

    let mut forge = Forge::new();
    let data = forge.data(&[("a", inline("1"))]);
    forge.filter(&["a"], 4096, |_| ());
    let unnamed = std::mem::take(&mut forge.properties.filters);
    let root = forge.index(&[("a", data)]);
    let meta = forge.finish(&fixture, root, 1);
    let damage = found(&fixture, &TableMeta { filters: unnamed, ..meta });
    assert!(
        damage.len() == 2 && damage[1].contains("the properties name none"),
        "bytes of nothing: {damage:?}"
    );
}

#[test]
fn a_rate_that_contradicts_the_bits_is_found_and_the_filter_still_probed() {
    let fixture = Fixture::new(1 << 20);
    let mut forge = Forge::new();
    let data = forge.data(&[("a", inline("1"))]);
    forge.filter(&["a"], 4096, |header| header.rate += 1);
    let root = forge.index(&[("a", data)]);
    let meta = forge.finish(&fixture, root, 1);
    assert_eq!(fixture.filter(&meta).probe(key_hash(SEED, b"absent")), Verdict::Absent);
    let report = crate::inspect::verify_table(&fixture.ctx, &meta);
    assert_eq!((report.damage.len(), report.filters), (1, 1), "{report:?}");
    assert!(report.damage[0].0.to_string().contains("filter rate"), "{report:?}");

    let mut forge = Forge::new();
    let data = forge.data(&[("a", inline("1"))]);
    forge.filter(&["b"], 4096, |header| header.rate += 1);
    let root = forge.index(&[("a", data)]);
    let meta = forge.finish(&fixture, root, 1);
    assert_eq!(found(&fixture, &meta).len(), 2);
}

#[test]
fn every_damaged_block_is_listed_however_many_there_are() {
    let mut model = Model::new();
    for i in 0..9000 {
        insert(&mut model, format!("{i:05}"), 3, Some(vec![b'v'; 40]));
    }
    let fixture = Fixture::new(0);
    let meta = fixture.write(&model, 512, Compression::None);
    let mut bad = fixture.bytes();
    let end = fixture.open(&meta).unwrap().properties.data_end;
    let blocks = data_blocks(&bad, end);
    assert!(blocks.len() > 800, "{} blocks", blocks.len());
    blocks.iter().take(600).for_each(|(at, _)| bad[at + 30] ^= 1);
    fixture.fs.overwrite(&fixture.path, bad);
    fixture.ctx.files.remove(12);
    let report = crate::inspect::verify_table(&fixture.ctx, &meta);
    assert_eq!((report.damage.len(), report.omitted), (600, 0));
    let offsets: Vec<u64> = report
        .damage
        .iter()
        .map(|damage| match damage.0 {
            Error::Corruption { offset, .. } => offset,
            _ => panic!("{damage:?}"),
        })
        .collect();
    assert!(
        offsets.iter().zip(&blocks).all(|(offset, (at, _))| (*at as u64..*at as u64 + 20).contains(offset))
    );
}

#[test]
fn long_keys_in_the_list_are_bounded_and_the_rest_is_counted() {
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let data = forge.data(&[("a", inline("1"))]);
    let prefix = "k".repeat(60_000);
    let nowhere = BlockHandle { offset: data.offset + 1, len: data.len };
    let mut entries = vec![("a".to_owned(), data)];
    entries.extend((0..1000).map(|index| (format!("{prefix}{index:05}"), nowhere)));
    forge.properties.largest = entries[1000].0.clone().into();
    let root = forge.index(&borrowed(&entries));
    let meta = forge.finish(&fixture, root, 1);
    let report = crate::inspect::verify_table(&fixture.ctx, &meta);
    assert_eq!(report.damage.len() as u64 + report.omitted, 1000);
    assert!((500..=560).contains(&report.damage.len()), "{}", report.damage.len());
}

/// The bytes that `verify` reads of a damaged table, divided by the table's length.
fn times_read(fixture: &Fixture, meta: &TableMeta) -> u64 {
    let [_, read] = fixture.counted();
    assert!(!fixture.damage(meta).is_empty());
    read.load(Ordering::Relaxed) / meta.len
}

/// Bytes in which a damaged block of `len` bytes seems to start every 160 bytes, and the handles of these blocks.
fn rubbish(forge: &mut Forge, kind: BlockKind, len: usize) -> Vec<(String, BlockHandle)> {
    let mut pattern = vec![kind as u8, 0, 0, 0];
    pattern.extend_from_slice(&(len as u32).to_le_bytes().repeat(2));
    pattern.resize(160, 0xa5);
    let count = 4000;
    let start = forge.bytes.len() as u64;
    forge.bytes.extend_from_slice(&pattern.repeat(count));
    let handle = |index| BlockHandle { offset: start + 160 * index, len: (ENVELOPE_BYTES + len) as u64 };
    let fit = (count * 160 - len) / 160 - 1;
    (0..fit as u64).map(|index| (format!("{index:05}"), handle(index))).collect()
}

fn borrowed<T: Copy>(all: &[(String, T)]) -> Vec<(&str, T)> {
    all.iter().map(|(key, value)| (&key[..], *value)).collect()
}

#[test]
fn blocks_that_overlap_are_not_read_over_and_over() {
    const LEN: usize = 250_000;
    let fixture = Fixture::new(0);
    let mut forge = Forge::new();
    let good = forge.data(&[("", inline("good"))]);
    let mut handles = vec![(String::new(), good)];
    handles.extend(rubbish(&mut forge, BlockKind::Data, LEN));
    let root = forge.index(&borrowed(&handles));
    let meta = forge.finish(&fixture, root, 1);
    let times = times_read(&fixture, &meta);
    assert!(times < 20, "{times} times");

    let mut forge = Forge::new();
    let good = forge.data(&[("", inline("good"))]);
    let mut handles = vec![(String::new(), forge.index(&[("", good)]))];
    handles.extend(rubbish(&mut forge, BlockKind::Index, LEN));
    let root = forge.index(&borrowed(&handles));
    let meta = forge.finish(&fixture, root, 2);
    let times = times_read(&fixture, &meta);
    assert!(times < 20, "{times} times");

    let mut forge = Forge::new();
    let handles = rubbish(&mut forge, BlockKind::ValueChunk, LEN);
    let chunks: Vec<_> =
        handles.iter().map(|(key, at)| (key.clone(), ChunkRef::new(LEN as u64, at.offset))).collect();
    let data = forge.references(&borrowed(&chunks));
    let root = forge.index(&[(&chunks[chunks.len() - 1].0, data)]);
    let meta = forge.finish(&fixture, root, 1);
    let times = times_read(&fixture, &meta);
    assert!(times < 20, "{times} times");
}

#[derive(Debug)]
struct FlipsOnce(Arc<dyn ReadFile>, AtomicU64);

impl ReadFile for FlipsOnce {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buffer, offset)?;
        let at = self.1.load(Ordering::Relaxed);
        if (offset..offset + buffer.len() as u64).contains(&at) {
            buffer[(at - offset) as usize] ^= 1;
            self.1.store(u64::MAX, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Unreadable(Arc<dyn ReadFile>, u64);

impl ReadFile for Unreadable {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if (offset..offset + buffer.len() as u64).contains(&self.1) {
            return Err(io::Error::other("a bad sector"));
        }
        self.0.read_at(buffer, offset)
    }
}

#[test]
fn a_table_opens_if_only_the_data_before_its_root_cannot_be_read() {
    let fixture = Fixture::new(0);
    let mut model = Model::new();
    (0..60).for_each(|i| insert(&mut model, format!("{i:05}"), 3, Some(vec![b'v'; 30])));
    let meta = fixture.write(&model, 1024, Compression::None);
    let root = fixture.open(&meta).unwrap().footer.root;
    assert!(meta.len - root.offset < 4096, "more is read with it");
    for (byte, opens) in [(root.offset - 1, true), (root.offset, false), (meta.len - 1, false)] {
        fixture.ctx.files.remove(12);
        let file: Arc<dyn ReadFile> = Arc::new(Unreadable(fixture.fs.open(&fixture.path).unwrap(), byte));
        fixture.ctx.files.get_or_open(12, || Ok::<_, Error>(file)).unwrap();
        assert_eq!(fixture.open(&meta).is_ok(), opens, "byte {byte} of {}", meta.len);
    }
}

#[test]
fn two_reads_open_a_table_and_a_third_has_a_long_root() {
    let fixture = Fixture::new(0);
    for (entries, has_long_root) in [(3, false), (200, false), (20_000, true)] {
        let mut model = Model::new();
        (0..entries).for_each(|i| insert(&mut model, format!("{i:05}"), 3, Some(vec![b'v'; 30])));
        let meta = fixture.write(&model, 1024, Compression::None);
        let open_as = |file: Arc<dyn ReadFile>| {
            fixture.ctx.files.remove(12);
            fixture.ctx.files.get_or_open(12, || Ok::<_, Error>(file)).unwrap();
            fixture.open(&meta).unwrap()
        };
        let file = || fixture.fs.open(&fixture.path).unwrap();
        let read = Arc::new(AtomicU64::new(0));
        let table =
            open_as(Arc::new(Counted { file: file(), reads: Arc::default(), bytes: Arc::clone(&read) }));
        let (root, properties) = (table.footer.root, table.footer.properties);
        assert_eq!(root.len > 4096, has_long_root, "{} bytes", root.len);
        let more = if has_long_root { root.len } else { 0 };
        assert_eq!(read.load(Ordering::Relaxed), 64 + meta.len.min(4096) + more, "{entries} entries");
        // A checksum byte is damaged in transfer, so the data is read again.
        for (number, block) in (1..).zip([root, properties]) {
            let before = fixture.ctx.io.block_rereads.load(Ordering::Relaxed);
            open_as(Arc::new(FlipsOnce(file(), AtomicU64::new(block.offset + 12))));
            assert_eq!(fixture.ctx.io.block_rereads.load(Ordering::Relaxed), before + 1, "block {number}");
        }
        fixture.fs.remove(&fixture.path).unwrap();
    }
}
