//! Tables against a model, under damage, and through their caches.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::iter::TableIter;
use super::*;
use crate::block::Compression;
use crate::cache::FileCache;
use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind, StoreIds};
use crate::filter::{FilterPlan, Kind};
use crate::fs::{Fs, MemFs, ReadFile};
use crate::hash::key_hash;
use crate::iter::{EntryValue, InternalIterator};
use crate::key::{EntryKind, InternalKey, SeqNo, Tag};
use crate::memory::{LeaseKind, Memory};
use crate::table_meta::{FilterRef, TableMeta};
use crate::version::{FilterState, read_filter};

mod hostile;
mod scans;

const STORE: FileId = [7; 16];
const SEED: u64 = 99;
const BLOOM: Option<FilterPlan> = Some(FilterPlan { kind: Kind::Bloom, bits_per_key: 10.0 });

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

type ModelKey = (Vec<u8>, std::cmp::Reverse<Tag>);
type Model = BTreeMap<ModelKey, Bytes>;

fn internal(key: &ModelKey) -> InternalKey<'_> {
    InternalKey::new(&key.0, key.1.0)
}

fn insert(model: &mut Model, user: impl Into<Vec<u8>>, seqno: SeqNo, value: Option<Vec<u8>>) {
    let kind = if value.is_some() { EntryKind::Put } else { EntryKind::Delete };
    let key = (user.into(), std::cmp::Reverse(Tag::new(seqno, kind)));
    model.insert(key, value.unwrap_or_default().into());
}

struct Fixture {
    fs: MemFs,
    ctx: Arc<TableContext>,
    path: PathBuf,
}

impl Fixture {
    fn new(cache_bytes: u64) -> Self {
        let fs = MemFs::new();
        fs.create_dir(Path::new("/db")).unwrap();
        let ctx = TableContext {
            fs: Arc::new(fs.clone()),
            dir: PathBuf::from("/db"),
            store_ids: StoreIds::of(STORE),
            hash_seed: SEED,
            memory: Memory::with_blocks_max(64 << 20, cache_bytes),
            files: Arc::new(FileCache::new(4)),
            trust: FilterTrust::default(),
            io: TableIo::default(),
        };
        Self { fs, ctx: Arc::new(ctx), path: PathBuf::from("/db/000012.sst") }
    }

    fn writer(
        &self,
        block_bytes: usize,
        compression: Compression,
        filter: Option<FilterPlan>,
    ) -> TableWriter {
        let config = TableConfig {
            number: 12,
            store_id: STORE,
            file_id: [8; 16],
            hash_seed: SEED,
            block_bytes,
            compression,
            filter,
            append_bytes: crate::table::APPEND_BYTES,
        };
        TableWriter::create(&self.fs, &self.path, config).unwrap()
    }

    fn write(&self, model: &Model, block_bytes: usize, compression: Compression) -> TableMeta {
        let mut writer = self.writer(block_bytes, compression, BLOOM);
        for (key, value) in model {
            writer.add(internal(key), &EntryValue::Inline(value.clone())).unwrap();
        }
        writer.finish().unwrap()
    }

    fn damage(&self, meta: &TableMeta) -> Vec<(Error, Option<crate::inspect::Keys>)> {
        crate::inspect::verify_table(&self.ctx, meta).damage
    }

    fn open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        Table::open(&self.ctx, Arc::new(meta.clone()))
    }

    fn filter(&self, meta: &TableMeta) -> FilterState {
        read_filter(&self.open(meta).unwrap(), meta, &self.ctx)
    }

    fn bytes(&self) -> Vec<u8> {
        self.fs.files(&self.path)[0].1.clone()
    }
}

fn current(iter: &TableIter) -> Result<Option<(ModelKey, Bytes)>> {
    let Some(key) = iter.key() else { return Ok(None) };
    let key = (key.user.to_vec(), std::cmp::Reverse(key.tag));
    Ok(Some((key, iter.value().read()?)))
}

fn expected(entry: Option<(&ModelKey, &Bytes)>) -> Option<(ModelKey, Bytes)> {
    entry.map(|(key, value)| (key.clone(), value.clone()))
}

fn scan(table: &Arc<Table>) -> Result<Vec<(ModelKey, Bytes)>> {
    let mut iter = table.iter(false);
    let mut all = Vec::new();
    iter.seek_first()?;
    while let Some(entry) = current(&iter)? {
        all.push(entry);
        iter.next()?;
    }
    Ok(all)
}

fn newest(model: &Model, user: &[u8], seqno: SeqNo) -> Option<(Tag, Bytes)> {
    let from = (user.to_vec(), std::cmp::Reverse(Tag::newest_at(seqno)));
    let (key, value) = model.range(from..).next()?;
    (key.0 == user).then(|| (key.1.0, value.clone()))
}

fn get(table: &Table, user: &[u8], seqno: SeqNo) -> Result<Option<(Tag, Bytes)>> {
    table.get(user, seqno)?.map(|(tag, value)| Ok((tag, value.read()?))).transpose()
}

fn near(model: &Model, dice: &mut Dice) -> Vec<u8> {
    let at = dice.below(model.len() as u64) as usize;
    let mut key = model.keys().nth(at).unwrap().0.clone();
    match dice.below(4) {
        0 => key.truncate(dice.below(key.len() as u64 + 1) as usize),
        1 => key.push(dice.below(256) as u8),
        2 if !key.is_empty() => {
            let last = key.len() - 1;
            key[last] ^= 1 << dice.below(8);
        }
        _ => {}
    }
    key
}

fn check_against_model(table: &Arc<Table>, model: &Model, dice: &mut Dice, rounds: usize) {
    let file = &table.file;
    let meta = Table::read_meta(&file.ctx, file.number, &file.path).unwrap();
    let found = crate::inspect::verify_table(&file.ctx, &meta).damage;
    assert!(found.is_empty(), "{found:?}");
    let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    assert!(scan(table).unwrap() == all, "a scan differs");
    let mut iter = table.iter(true);
    iter.seek_last().unwrap();
    for entry in all.iter().rev() {
        assert!(current(&iter).unwrap().as_ref() == Some(entry), "a backward scan differs");
        iter.prev().unwrap();
    }
    assert!(iter.key().is_none());
    for _ in 0..rounds {
        let user = near(model, dice);
        let seqno = dice.below(300);
        assert!(get(table, &user, seqno).unwrap() == newest(model, &user, seqno), "{user:?} at {seqno}");
        let target = (user, std::cmp::Reverse(Tag::newest_at(seqno)));
        let mut at = if dice.below(2) == 0 {
            iter.seek(internal(&target)).unwrap();
            expected(model.range(&target..).next())
        } else {
            iter.seek_before(internal(&target)).unwrap();
            expected(model.range(..&target).next_back())
        };
        for _ in 0..dice.below(40) {
            assert!(current(&iter).unwrap() == at, "a walk from {target:?} differs");
            let Some((key, _)) = at else { break };
            at = if dice.below(2) == 0 {
                iter.next().unwrap();
                expected(model.range((std::ops::Bound::Excluded(&key), std::ops::Bound::Unbounded)).next())
            } else {
                iter.prev().unwrap();
                expected(model.range(..&key).next_back())
            };
        }
    }
}

fn random_model(entries: u64, dice: &mut Dice) -> Model {
    let mut model = Model::new();
    let prefix = dice.bytes(12);
    for _ in 0..entries {
        let mut key = if dice.below(3) > 0 { prefix.clone() } else { Vec::new() };
        let tail = dice.below(5) as usize;
        key.extend(dice.bytes(tail));
        let versions = if dice.below(20) == 0 { dice.below(60) + 1 } else { 1 };
        for _ in 0..versions {
            let len = if dice.below(50) == 0 { dice.below(3000) } else { dice.below(120) } as usize;
            let value = (dice.below(8) > 0).then(|| vec![dice.below(256) as u8; len]);
            insert(&mut model, key.clone(), dice.below(3) * dice.below(300), value);
        }
    }
    model
}

#[test]
fn tables_of_all_sizes_answer_like_the_model() {
    let mut dice = Dice(1);
    for (entries, block_bytes) in [(1, 4096), (5, 256), (40, 256), (300, 512), (2000, 4096), (3000, 65_536)] {
        for compression in [Compression::None, Compression::Lz4] {
            let model = random_model(entries, &mut dice);
            let fixture = Fixture::new(1 << 16);
            let meta = fixture.write(&model, block_bytes, compression);
            assert_eq!(meta.entries, model.len() as u64);
            let table = fixture.open(&meta).unwrap();
            assert_eq!(Table::read_meta(&fixture.ctx, 12, &fixture.path).unwrap(), meta);
            check_against_model(&table, &model, &mut dice, 300);
        }
    }
}

#[test]
fn an_index_of_two_and_three_levels_answers_like_the_model() {
    let mut dice = Dice(2);
    for (entries, key_len, depth) in [(12_000u64, 12, 2), (900, 3000, 3), (300, 60_000, 3)] {
        let mut model = Model::new();
        for i in 0..entries {
            let mut key = vec![b'k'; key_len];
            key.extend_from_slice(&(i * 3).to_be_bytes());
            insert(&mut model, key, i % 7, Some(vec![1; 100]));
        }
        let fixture = Fixture::new(1 << 20);
        let meta = fixture.write(&model, 256, Compression::Lz4);
        let table = fixture.open(&meta).unwrap();
        assert_eq!(table.properties.index_depth, depth, "{entries} keys of {key_len}");
        check_against_model(&table, &model, &mut dice, 100);
    }
}

#[test]
fn extreme_keys_values_and_versions_answer_like_the_model() {
    let mut dice = Dice(3);
    let mut model = Model::new();
    insert(&mut model, b"", 0, Some(Vec::new()));
    insert(&mut model, b"", 9, None);
    insert(&mut model, vec![0xff; 65_536], 5, Some(b"longest key".to_vec()));
    insert(&mut model, vec![b'a'; 65_536], 5, Some(vec![1; 32_768]));
    for (index, len) in [32_769, 1 << 20, (1 << 20) + 1, 5 << 20].into_iter().enumerate() {
        insert(&mut model, format!("long {index}"), 3, Some(vec![b'x'; len]));
        insert(&mut model, format!("noise {index}"), 3, Some(dice.bytes(len)));
    }
    for seqno in 0..3000 {
        insert(&mut model, b"many versions", seqno, (seqno % 5 > 0).then(|| b"version".to_vec()));
    }
    for compression in [Compression::None, Compression::Lz4] {
        let fixture = Fixture::new(1 << 20);
        let table = fixture.open(&fixture.write(&model, 1024, compression)).unwrap();
        check_against_model(&table, &model, &mut dice, 60);
        for seqno in (0..3100).step_by(7) {
            let key = b"many versions";
            assert_eq!(get(&table, key, seqno).unwrap(), newest(&model, key, seqno));
        }
    }
}

#[test]
fn chunked_values_are_copied_from_table_to_table() {
    let mut dice = Dice(4);
    let mut model = Model::new();
    for (index, len) in [32_769, 1 << 20, (2 << 20) + 5].into_iter().enumerate() {
        insert(&mut model, format!("{index}"), 3, Some(dice.bytes(len)));
    }
    let (from, to) = (Fixture::new(1 << 20), Fixture::new(1 << 20));
    let table = from.open(&from.write(&model, 4096, Compression::Lz4)).unwrap();
    let mut writer = to.writer(4096, Compression::None, None);
    let mut iter = table.iter(false);
    iter.seek_first().unwrap();
    while let Some(key) = iter.key() {
        assert!(matches!(iter.value(), EntryValue::Chunked(_)));
        writer.add(key, &iter.value()).unwrap();
        iter.next().unwrap();
    }
    let copy = to.open(&writer.finish().unwrap()).unwrap();
    check_against_model(&copy, &model, &mut dice, 10);
}

#[test]
fn the_writer_refuses_disorder_and_entries_over_a_limit_and_continues() {
    let fixture = Fixture::new(1 << 20);
    let mut writer = fixture.writer(4096, Compression::None, None);
    let put = |seqno| Tag::new(seqno, EntryKind::Put);
    let value = EntryValue::Inline(Bytes::from_static(b"v"));
    writer.add(InternalKey::new(b"b", put(5)), &value).unwrap();
    for (user, tag) in [(b"b", put(5)), (b"b", put(6)), (b"a", put(1)), (b"c", Tag::newest_at(4))] {
        assert!(matches!(
            writer.add(InternalKey::new(user, tag), &value),
            Err(Error::InvalidArgument { .. })
        ));
    }
    let tombstone = Tag::new(1, EntryKind::Delete);
    assert!(writer.add(InternalKey::new(b"c", tombstone), &value).is_err());
    let long = vec![1; 65_537];
    let refused = writer.add(InternalKey::new(&long, put(1)), &value);
    assert!(matches!(refused, Err(Error::LimitExceeded { .. })));
    writer.add(InternalKey::new(b"b", put(4)), &value).unwrap();
    assert_eq!(writer.finish().unwrap().entries, 2);
    fixture.fs.remove(&fixture.path).unwrap();
    assert!(fixture.writer(4096, Compression::None, None).finish().is_err());
}

#[test]
fn a_failed_append_or_sync_stays_failed() {
    let fixture = Fixture::new(1 << 20);
    let mut writer = fixture.writer(4096, Compression::None, None);
    fixture.fs.observe(|_, op| match op {
        crate::fs::Op::Append(..) => Err(std::io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
    let value = EntryValue::Inline(vec![1; 200_000].into());
    let put = Tag::new(5, EntryKind::Put);
    writer.add(InternalKey::new(b"a", put), &value).unwrap();
    assert!(matches!(writer.add(InternalKey::new(b"b", put), &value), Err(Error::Io { .. })));
    fixture.fs.stop_observing();
    assert!(matches!(writer.add(InternalKey::new(b"c", put), &value), Err(Error::Io { .. })));
    assert!(matches!(writer.finish(), Err(Error::Io { .. })));
}

#[test]
fn a_finished_table_is_synced_and_its_filter_is_on_a_boundary() {
    for entries in [1, 30, 100, 200] {
        let fixture = Fixture::new(1 << 20);
        let mut model = Model::new();
        for i in 0..entries {
            insert(&mut model, format!("{i:05}"), i, Some(vec![i as u8; 37]));
        }
        let meta = fixture.write(&model, 4096, Compression::None);
        fixture.fs.sync_dir(Path::new("/db")).unwrap();
        assert!(fixture.fs.is_durable(&fixture.path));
        assert_eq!((meta.filters.len(), meta.filters[0].offset % 4096), (1, 0));
        let filter = fixture.filter(&meta);
        assert!(matches!(filter, FilterState::Loaded(_)));
        assert_eq!(filter.probe(key_hash(SEED, b"00000")), Verdict::Maybe);
        assert_eq!(filter.probe(key_hash(SEED, b"absent")), Verdict::Absent);
    }
}

fn small_model() -> Model {
    let mut model = Model::new();
    for i in 0..40u64 {
        insert(&mut model, format!("key {:03}", i * 2), i % 4 * 100, Some(format!("value {i}").into_bytes()));
    }
    insert(&mut model, b"key 010", 500, None);
    insert(&mut model, b"key 020 long", 3, Some(vec![b'z'; 40_000]));
    model
}

fn check_damaged(fixture: &Fixture, meta: &TableMeta, model: &Model, case: &str) -> bool {
    let named = |error: &Error| match error {
        Error::Corruption { file, offset, .. } => {
            assert_eq!(file, &fixture.path, "{case}");
            assert!(*offset <= meta.len, "{case}: {error}");
        }
        Error::Unsupported { file, .. } => assert_eq!(file, &fixture.path, "{case}"),
        other => panic!("{case}: {other}"),
    };
    let table = match fixture.open(meta) {
        Ok(table) => table,
        Err(error) => {
            named(&error);
            return true;
        }
    };
    let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    match scan(&table) {
        Ok(found) => assert!(found == all, "{case}: a scan differs"),
        Err(error) => named(&error),
    }
    let filter = read_filter(&table, meta, &fixture.ctx);
    for key in model.keys().step_by(5) {
        assert_ne!(filter.probe(key_hash(SEED, &key.0)), Verdict::Absent, "{case}: a false absent");
        match get(&table, &key.0, 1000) {
            Ok(found) => assert!(found == newest(model, &key.0, 1000), "{case}: a get differs"),
            Err(error) => named(&error),
        }
    }
    !fixture.damage(meta).is_empty()
}

#[test]
fn every_flipped_bit_is_found_and_never_changes_an_answer() {
    let model = small_model();
    for compression in [Compression::None, Compression::Lz4] {
        let fixture = Fixture::new(0);
        let meta = fixture.write(&model, 512, compression);
        let good = fixture.bytes();
        // In long stretches of one value or of padding, one byte in 97 is enough.
        let dull =
            |at: usize| good[at.saturating_sub(8)..(at + 8).min(good.len())].iter().all(|&b| b == good[at]);
        for at in (0..good.len()).filter(|&at| !dull(at) || at % 97 == 0) {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                fixture.fs.overwrite(&fixture.path, bad);
                fixture.ctx.files.remove(12);
                let found = check_damaged(&fixture, &meta, &model, &format!("byte {at} bit {bit}"));
                assert!(found, "byte {at} bit {bit} was not noticed");
            }
        }
    }
}

#[test]
fn every_truncation_and_extension_is_found() {
    let model = small_model();
    let fixture = Fixture::new(0);
    let meta = fixture.write(&model, 512, Compression::Lz4);
    let good = fixture.bytes();
    for len in 0..good.len() {
        fixture.fs.overwrite(&fixture.path, good[..len].to_vec());
        fixture.ctx.files.remove(12);
        assert!(fixture.open(&meta).unwrap_err().is_corruption(), "{len}");
        assert!(Table::read_meta(&fixture.ctx, 12, &fixture.path).is_err(), "{len}");
    }
    fixture.fs.overwrite(&fixture.path, [&good[..], &[0]].concat());
    fixture.ctx.files.remove(12);
    assert!(fixture.open(&meta).is_err());
    assert!(Table::read_meta(&fixture.ctx, 12, &fixture.path).is_err());
}

fn data_blocks(bytes: &[u8], end: u64) -> Vec<(usize, usize)> {
    let mut blocks = Vec::new();
    let mut at = 64;
    while (at as u64) < end {
        let len = crate::block::Envelope::decode(&bytes[at..]).unwrap().sealed_len() as usize;
        blocks.push((at, len));
        at += len;
    }
    blocks
}

#[test]
fn swapped_blocks_and_blocks_of_another_table_are_noticed() {
    let mut model = Model::new();
    for i in 0..200 {
        insert(&mut model, format!("{i:05}"), 300, Some(vec![b'v'; 21]));
    }
    let fixture = Fixture::new(0);
    let meta = fixture.write(&model, 256, Compression::None);
    let good = fixture.bytes();
    let end = fixture.open(&meta).unwrap().properties.data_end;
    let blocks = data_blocks(&good, end);
    let (a, b) = blocks
        .iter()
        .flat_map(|a| blocks.iter().map(move |b| (*a, *b)))
        .find(|(a, b)| a.0 < b.0 && a.1 == b.1)
        .unwrap();
    let mut swapped = good.clone();
    swapped[a.0..a.0 + a.1].copy_from_slice(&good[b.0..b.0 + b.1]);
    swapped[b.0..b.0 + b.1].copy_from_slice(&good[a.0..a.0 + a.1]);
    fixture.fs.overwrite(&fixture.path, swapped);
    fixture.ctx.files.remove(12);
    let table = fixture.open(&meta).unwrap();
    assert!(scan(&table).unwrap_err().is_corruption());
    assert_eq!(fixture.damage(&meta).len(), 2);

    let config = TableConfig {
        number: 13,
        store_id: STORE,
        file_id: [9; 16],
        hash_seed: SEED,
        block_bytes: 256,
        compression: Compression::None,
        filter: BLOOM,
        append_bytes: crate::table::APPEND_BYTES,
    };
    let mut writer = TableWriter::create(&fixture.fs, Path::new("/db/000013.sst"), config).unwrap();
    for (key, value) in &model {
        writer.add(internal(key), &EntryValue::Inline(value.clone())).unwrap();
    }
    writer.finish().unwrap();
    let other = fixture.fs.files(Path::new("/db/000013.sst"))[0].1.clone();
    let mut mixed = good.clone();
    mixed[a.0..a.0 + a.1].copy_from_slice(&other[a.0..a.0 + a.1]);
    fixture.fs.overwrite(&fixture.path, mixed);
    fixture.ctx.files.remove(12);
    assert!(scan(&fixture.open(&meta).unwrap()).unwrap_err().is_corruption());
    fixture.fs.overwrite(&fixture.path, other);
    fixture.ctx.files.remove(12);
    assert!(fixture.open(&meta).is_err());
}

#[test]
fn a_damaged_filter_is_remembered_and_answers_maybe() {
    let model = small_model();
    let fixture = Fixture::new(1 << 20);
    let meta = fixture.write(&model, 512, Compression::Lz4);
    let mut bad = fixture.bytes();
    bad[meta.filters[0].offset as usize] ^= 1;
    fixture.fs.overwrite(&fixture.path, bad);
    fixture.ctx.files.remove(12);
    let table = fixture.open(&meta).unwrap();
    let filter = fixture.filter(&meta);
    assert!(matches!(filter, FilterState::Unusable(_)));
    assert_eq!(filter.probe(1), Verdict::Unknown);
    assert_eq!(scan(&table).unwrap().len(), model.len());
    assert_eq!(fixture.damage(&meta).len(), 1);
    for (offset, len) in [(u64::MAX, 8), (0, u64::MAX), (meta.len, 1)] {
        let mut lying = meta.clone();
        (lying.filters[0].offset, lying.filters[0].len) = (offset, len);
        assert!(matches!(fixture.filter(&lying), FilterState::Unusable(_)));
    }
}

#[test]
fn a_block_is_read_once_and_then_comes_from_the_cache_unless_disabled() {
    let mut model = Model::new();
    for i in 0..1000 {
        insert(&mut model, format!("{i:05}"), 3, Some(vec![b'v'; 50]));
    }
    let fixture = Fixture::new(1 << 22);
    let table = fixture.open(&fixture.write(&model, 1024, Compression::None)).unwrap();
    let io = &fixture.ctx.io;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(count(&io.data_block_reads), 0);
    scan(&table).unwrap();
    let blocks = table.properties.data_blocks;
    assert_eq!((count(&io.data_block_reads), fixture.ctx.memory.blocks().bytes()), (blocks, 0));
    get(&table, b"00500", 9).unwrap().unwrap();
    get(&table, b"00500", 9).unwrap().unwrap();
    assert_eq!((count(&io.data_block_reads), count(&io.data_block_cache_hits)), (blocks + 1, 1));
    assert!(get(&table, b"~", 9).unwrap().is_none());
    assert_eq!(
        count(&io.data_block_reads),
        blocks + 1,
        "nothing is read for a key behind the last separator"
    );
    assert_eq!(count(&io.block_rereads), 0);
}

#[derive(Debug)]
struct Counted {
    file: Arc<dyn ReadFile>,
    reads: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl ReadFile for Counted {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.file.read_at(buffer, offset)
    }
}

impl Fixture {
    fn counted(&self) -> [Arc<AtomicU64>; 2] {
        let counted =
            Counted { file: self.fs.open(&self.path).unwrap(), reads: Arc::default(), bytes: Arc::default() };
        let counts = [&counted.reads, &counted.bytes].map(Arc::clone);
        self.ctx.files.remove(12);
        self.ctx.files.get_or_open(12, || Ok::<_, Error>(Arc::new(counted) as Arc<dyn ReadFile>)).unwrap();
        counts
    }
}

/// A table of over 300 data blocks of 4 KiB, in a store without a block cache.
fn long_table() -> (Fixture, TableMeta) {
    let mut model = Model::new();
    for i in 0..20_000 {
        insert(&mut model, format!("{i:05}"), 3, Some(vec![b'v'; 60]));
    }
    let fixture = Fixture::new(0);
    let meta = fixture.write(&model, 4096, Compression::None);
    (fixture, meta)
}

fn walk(iter: &mut TableIter, first: &[u8], entries: usize, up: bool) {
    let target = InternalKey::new(first, Tag::newest_at(9));
    if up {
        iter.seek(target).unwrap()
    } else {
        iter.seek_before(target).unwrap()
    }
    for _ in 1..entries {
        assert!(iter.key().is_some());
        if up { iter.next().unwrap() } else { iter.prev().unwrap() }
    }
    assert!(iter.key().is_some());
}

#[test]
fn the_first_lookup_leases_exactly_the_memory_of_the_fences() {
    let (fixture, meta) = long_table();
    let table = fixture.open(&meta).unwrap();
    let leased = || fixture.ctx.memory.stats().tables;
    let before = leased();
    for _ in 0..2 {
        assert!(get(&table, b"10000", 9).unwrap().is_some());
        let fences = leased() - before;
        assert!((1..200).contains(&(fences - 12 * table.properties.data_blocks)), "{fences} bytes");
    }
    drop(table);
    let room = fixture.ctx.memory.room() as usize;
    let _all_but_little = fixture.ctx.memory.lease(LeaseKind::Filters, room / 2 - 12_000);
    let table = fixture.open(&meta).unwrap();
    let before = leased();
    assert!(get(&table, b"10000", 9).unwrap().is_some());
    assert_eq!(leased(), before, "there is no room for all that may be needed");
}

#[test]
fn a_long_scan_reads_many_blocks_at_once_and_a_short_one_only_its_own() {
    let (fixture, meta) = long_table();
    let table = fixture.open(&meta).unwrap();
    let counts = fixture.counted();
    let read = || counts.each_ref().map(|count| count.swap(0, Ordering::Relaxed));
    for fill_cache in [true, false] {
        for (up, end) in [(true, &b"00000"[..]), (false, b"99999")] {
            let blocks = &fixture.ctx.io.data_block_reads;
            blocks.store(0, Ordering::Relaxed);
            walk(&mut table.iter(fill_cache), b"10000", 200, up);
            let [reads, bytes] = read();
            let needed = blocks.swap(0, Ordering::Relaxed);
            assert!((4..=5).contains(&needed), "{needed} blocks");
            assert!(reads == needed && bytes <= needed * 4096, "{reads} reads of {bytes} bytes");
            walk(&mut table.iter(fill_cache), end, 20_000, up);
            let [reads, bytes] = read();
            let needed = blocks.load(Ordering::Relaxed);
            assert!(needed == table.properties.data_blocks && needed > 300, "{needed} blocks");
            assert!(reads < 16, "{reads} reads of {needed} blocks");
            assert!(bytes < table.properties.data_end + reads * 4096, "{bytes} bytes");
        }
    }
    let before = fixture.ctx.memory.stats().tables;
    let mut iter = table.iter(true);
    walk(&mut iter, b"00000", 20_000, true);
    let ahead = fixture.ctx.memory.stats().tables - before;
    assert!((256 << 10..=512 << 10).contains(&ahead), "{ahead} bytes");
    drop(iter);
    assert_eq!(fixture.ctx.memory.stats().tables, before);
}

#[test]
fn a_walk_for_which_there_is_no_memory_reads_block_by_block() {
    let (fixture, meta) = long_table();
    let table = fixture.open(&meta).unwrap();
    let _all = fixture.ctx.memory.lease(LeaseKind::Filters, 64 << 20);
    let [reads, _] = fixture.counted();
    walk(&mut table.iter(true), b"00000", 20_000, true);
    assert_eq!(reads.load(Ordering::Relaxed), table.properties.data_blocks);
}

#[test]
fn a_scan_without_more_memory_keeps_its_read_ahead_buffer_and_releases_it_at_the_end() {
    let (fixture, meta) = long_table();
    let table = fixture.open(&meta).unwrap();
    let leased = || fixture.ctx.memory.stats().tables;
    let before = leased();
    let mut iter = table.iter(true);
    iter.seek_first().unwrap();
    while leased() == before {
        iter.next().unwrap();
    }
    let ahead = leased();
    let _all = fixture.ctx.memory.lease(LeaseKind::Filters, 64 << 20);
    let [reads, _] = fixture.counted();
    while iter.key().is_some() {
        iter.next().unwrap();
        assert!([ahead, before].contains(&leased()));
    }
    assert_eq!(leased(), before);
    assert!(reads.load(Ordering::Relaxed) < table.properties.data_blocks / 3);
}

#[test]
fn damage_ahead_of_a_walk_is_an_error_only_where_the_walk_gets_there() {
    let (fixture, meta) = long_table();
    let end = fixture.open(&meta).unwrap().properties.data_end as usize;
    let mut bytes = fixture.bytes();
    let at = end / 2;
    bytes[at] ^= 1;
    fixture.fs.overwrite(&fixture.path, bytes.clone());
    fixture.ctx.files.remove(12);
    let passed = |table: Arc<Table>| {
        let mut iter = table.iter(true);
        let (mut moved, mut passed) = (iter.seek_first(), 0);
        while moved.is_ok() && iter.key().is_some() {
            assert_eq!(iter.key().unwrap().user, format!("{passed:05}").as_bytes());
            passed += 1;
            moved = iter.next();
        }
        (passed, moved)
    };
    let (found, moved) = passed(fixture.open(&meta).unwrap());
    let Err(error) = moved else { panic!("the damage was passed over") };
    assert!(
        matches!(*error, Error::Corruption { offset, .. } if (at - 4096..=at).contains(&(offset as usize)))
    );
    assert_eq!(fixture.ctx.io.block_rereads.load(Ordering::Relaxed), 1);
    let table = fixture.open(&meta).unwrap();
    bytes.truncate(at);
    fixture.fs.overwrite(&fixture.path, bytes);
    fixture.ctx.files.remove(12);
    let (found_before_the_end, moved) = passed(table);
    assert!(moved.is_err());
    assert_eq!(found_before_the_end, found);
}

#[test]
fn a_failed_iterator_stays_failed() {
    let mut model = small_model();
    model.retain(|_, value| value.len() < 1000);
    let fixture = Fixture::new(0);
    let meta = fixture.write(&model, 256, Compression::None);
    let mut bad = fixture.bytes();
    bad[64 + 30] ^= 1;
    fixture.fs.overwrite(&fixture.path, bad);
    fixture.ctx.files.remove(12);
    let table = fixture.open(&meta).unwrap();
    let mut iter = table.iter(true);
    iter.seek_last().unwrap();
    let first = iter.seek_first().unwrap_err().to_string();
    assert!(first.contains("/db/000012.sst is corrupt at offset 76: block checksum"), "{first}");
    assert!(iter.key().is_none());
    assert_eq!(iter.seek_last().unwrap_err().to_string(), first);
    assert_eq!(iter.next().unwrap_err().to_string(), first);
    assert_eq!(fixture.ctx.io.block_rereads.load(Ordering::Relaxed), 1);
}

fn reseal(bytes: &mut [u8], at: usize, len: usize) {
    let footer = bytes.len() - 128;
    if at == footer {
        let sum = crate::checksum::checksum32(&[8; 16], at as u64, &[&bytes[at..at + 116]]);
        bytes[at + 116..at + 120].copy_from_slice(&sum.to_le_bytes());
    } else {
        let parts: [&[u8]; 2] = [&bytes[at..at + 12], &bytes[at + 20..at + len]];
        let sum = crate::checksum::checksum(&[8; 16], at as u64, &parts);
        bytes[at + 12..at + 20].copy_from_slice(&sum.to_le_bytes());
    }
}

fn exercise(fixture: &Fixture, dice: &mut Dice) -> Result<()> {
    let meta = Table::read_meta(&fixture.ctx, 12, &fixture.path)?;
    let table = fixture.open(&meta)?;
    fixture.damage(&meta);
    for _ in 0..4 {
        let mut iter = table.iter(dice.below(2) == 0);
        let key = format!("key {:03}", dice.below(90)).into_bytes();
        let target = InternalKey::new(&key, Tag::newest_at(dice.below(600)));
        let started = match dice.below(4) {
            0 => iter.seek_first(),
            1 => iter.seek_last(),
            2 => iter.seek(target),
            _ => iter.seek_before(target),
        };
        let forward = dice.below(2) == 0;
        let mut steps = 0;
        let mut moved = started;
        while moved.is_ok() && iter.key().is_some() {
            let _ = iter.value().read();
            moved = if forward { iter.next() } else { iter.prev() };
            steps += 1;
            assert!(steps < 10_000, "an endless walk");
        }
        let _ = get(&table, &key, dice.below(600));
    }
    Ok(())
}

#[test]
fn hostile_blocks_with_good_checksums_never_cause_a_panic_or_an_endless_walk() {
    let mut dice = Dice(5);
    let mut model = small_model();
    for i in 0..600u64 {
        insert(&mut model, format!("m{i:03}"), i % 3, Some(vec![i as u8; 5]));
    }
    let fixture = Fixture::new(0);
    for i in 0..180u64 {
        insert(&mut model, [&[b'z'; 900][..], &i.to_be_bytes()].concat(), 1, Some(vec![1; 200]));
    }
    let meta = fixture.write(&model, 256, Compression::None);
    let good = fixture.bytes();
    let properties = fixture.open(&meta).unwrap().properties.clone();
    assert!(properties.index_depth > 1);
    let filter_end = (meta.filters[0].offset + meta.filters[0].len) as usize;
    let mut targets = data_blocks(&good, properties.data_end);
    let mut at = filter_end;
    // Index blocks, properties and footer are tested as often as the data, although they are small.
    let mut top = vec![(good.len() - 128, 128)];
    while at < good.len() - 128 {
        let len = crate::block::Envelope::decode(&good[at..]).unwrap().sealed_len() as usize;
        top.push((at, len));
        at += len;
    }
    targets.retain(|(_, len)| *len < 10_000);
    let mut refused = 0;
    for round in 0..4000 {
        let mut bad = good.clone();
        for _ in 0..=dice.below(2) {
            let from = if round % 2 == 0 { &top } else { &targets };
            let (at, len) = from[dice.below(from.len() as u64) as usize];
            let skip = if len == 128 { 0 } else { 20 };
            for _ in 0..=dice.below(3) {
                let byte = at + skip + dice.below((len - skip) as u64) as usize;
                bad[byte] = match dice.below(3) {
                    0 => bad[byte] ^ 1 << dice.below(8),
                    1 => [0, 1, 0x7f, 0x80, 0xff][dice.below(5) as usize],
                    _ => bad[byte].wrapping_add(dice.below(3) as u8),
                };
            }
            reseal(&mut bad, at, len);
        }
        fixture.fs.overwrite(&fixture.path, bad);
        fixture.ctx.files.remove(12);
        match exercise(&fixture, &mut dice) {
            Err(Error::Corruption { .. } | Error::Unsupported { .. }) => refused += 1,
            Err(other) => panic!("round {round}: {other}"),
            Ok(()) => {}
        }
    }
    assert!((100..3900).contains(&refused), "{refused} of 4000 were refused at open");
}

#[test]
fn an_index_whose_blocks_are_out_of_order_is_corrupt_in_both_directions() {
    use crate::block::{BlockBuilder, BlockHandle, BlockIter, BlockValues};
    let mut model = Model::new();
    for i in 0..400 {
        insert(&mut model, format!("{i:05}"), 300, Some(vec![b'v'; 21]));
    }
    let fixture = Fixture::new(0);
    let meta = fixture.write(&model, 256, Compression::None);
    let root = fixture.open(&meta).unwrap().footer.root;
    let at = root.offset as usize;
    let mut bad = fixture.bytes();
    let payload = Bytes::copy_from_slice(&bad[at + 20..at + root.len as usize]);
    let mut entries = BlockIter::new(payload, BlockValues::Index).unwrap();
    let mut forged = BlockBuilder::for_index();
    let mut handles = Vec::new();
    entries.seek_first().unwrap();
    while let Some(key) = entries.key() {
        handles.push(BlockHandle::decode(entries.value()).unwrap());
        let handle = handles[handles.len() - if handles.len() == 11 { 2 } else { 1 }];
        let mut value = Vec::new();
        handle.encode(&mut value);
        forged.add(key, &value, false);
        entries.next().unwrap();
    }
    bad[at + 20..at + root.len as usize].copy_from_slice(forged.finish());
    reseal(&mut bad, at, root.len as usize);
    fixture.fs.overwrite(&fixture.path, bad);
    fixture.ctx.files.remove(12);
    let table = fixture.open(&meta).unwrap();
    for forward in [true, false] {
        let mut iter = table.iter(false);
        let mut moved = if forward { iter.seek_first() } else { iter.seek_last() };
        while moved.is_ok() && iter.key().is_some() {
            moved = if forward { iter.next() } else { iter.prev() };
        }
        let error = moved.unwrap_err().to_string();
        assert!(error.contains("is out of order"), "{error}");
    }
    assert!(!fixture.damage(&meta).is_empty());
}

#[test]
fn a_filter_file_holds_its_header_zeros_and_the_very_filter_of_the_table() {
    let fixture = Fixture::new(0);
    let mut model = Model::new();
    for i in 0..1500 {
        insert(&mut model, format!("{:05}", i % 1100), i, (i % 9 > 0).then(|| vec![i as u8; 20]));
    }
    let meta = fixture.write(&model, 512, Compression::None);
    let table = fixture.open(&meta).unwrap();
    let plan = BLOOM.unwrap();
    let told = Cell::new(0);
    let is_told = |bytes| {
        told.set(bytes);
        Ok(())
    };
    let block = table.build_filter(plan, &is_told).unwrap();
    assert!(told.get() > 1100 * 8 + block.len(), "{} bytes", told.get());
    let own = &meta.filters[0];
    let bytes = fixture.bytes();
    assert!(block == bytes[own.offset as usize..][..own.len as usize]);
    let filter = write_filter_file(&fixture.fs, Path::new("/db"), 15, [STORE, [8; 16]], &block).unwrap();
    assert_eq!(filter, FilterRef { file: Some(15), offset: 4096, ..own.clone() });
    let file = fixture.fs.files(Path::new("/db/000015.filter")).remove(0).1;
    let header = FileHeader::new(FileKind::Filter, STORE, [8; 16]).encode();
    assert!(file == [&header[..], &[0; 4032], &block].concat());
    let beside = TableMeta { filters: vec![filter], ..meta };
    assert!(matches!(fixture.filter(&beside), FilterState::Loaded(_)));
    let stopped = table.build_filter(plan, &|_| Err(Error::Cancelled));
    assert!(matches!(stopped, Err(Error::Cancelled)), "it stops when it is told to");
}
