//! Whole tables.
//!
//! # Strategy
//!
//! The first byte chooses: 0 *raw*; 1 *resealed*, with every checksum recomputed and the filter's repeated in the
//! properties; 2 *built*, the rest describes entries and options of a table, with a few bytes changed and perhaps
//! resealed.
//!
//! # Invariants
//!
//! - A walk ends, in both directions, in memory proportional to the file.
//! - A table that passes `verify` has the same entries in both directions. Lookups and searches find them, and their
//!   sums match the properties. The filter never answers "absent" for a key of the table.
//! - In a built table with up to four changed bytes in one place and no resealing, every lookup and step returns an
//!   error or the original answer.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::seal::{self, Mended};
use crate::block::Compression;
use crate::error::{Error, Result};
use crate::file_header::StoreIds;
use crate::filename::FileName;
use crate::filter::fuzzing::Input;
use crate::filter::{FilterPlan, Kind};
use crate::fs::{Fs, MemFs};
use crate::hash::key_hash;
use crate::inspect::verify_table;
use crate::iter::{EntryValue, InternalIterator};
use crate::key::{EntryKind, InternalKey, Tag};
use crate::limits::SEQNO_MAX;
use crate::table::{Table, TableConfig, TableContext, TableWriter, Verdict};
use crate::table_meta::TableMeta;
use crate::version::{FilterState, read_filter};

const DIR: &str = "/db";
const STORE: [u8; 16] = [1; 16];
const FILE: [u8; 16] = [2; 16];
const SEED: u64 = 5;

const STEPS_MAX: usize = 20_000;
const LOOKUPS_MAX: usize = 50;

type Entry = (Vec<u8>, Tag, Bytes);

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.below(3);
    if mode == 2 {
        return built(&mut input);
    }
    let mut file = input.rest().to_vec();
    if mode == 1 {
        seal::table(&mut file, &mut Mended::default());
    }
    check(file);
}

fn path() -> std::path::PathBuf {
    FileName::Table(1).path(Path::new(DIR))
}

fn context(file: Vec<u8>, store_id: [u8; 16], hash_seed: u64) -> Arc<TableContext> {
    let fs = MemFs::new();
    fs.overwrite(&path(), file);
    let fs: Arc<dyn Fs> = Arc::new(fs);
    let store_ids = StoreIds::of(store_id);
    Arc::new(TableContext { fs, store_ids, hash_seed, ..TableContext::for_tests() })
}

fn open(file: Vec<u8>, hash_seed: u64) -> Result<(Arc<Table>, FilterState, Vec<Error>)> {
    let mut store_id = [0; 16];
    if let Some(found) = file.get(16..32) {
        store_id.copy_from_slice(found);
    }
    let ctx = context(file, store_id, hash_seed);
    let meta = Arc::new(Table::read_meta(&ctx, 1, &path())?);
    let table = Table::open(&ctx, Arc::clone(&meta))?;
    let filter = read_filter(&table, &meta, &ctx);
    Ok((table, filter, damage(&ctx, &meta)))
}

fn damage(ctx: &Arc<TableContext>, meta: &Arc<TableMeta>) -> Vec<Error> {
    let report = verify_table(ctx, meta);
    for (error, keys) in &report.damage {
        let ordered = keys.as_ref().is_none_or(|(first, last)| first <= last);
        assert!(ordered || meta.smallest > meta.largest, "{error} concerns keys in no order");
    }
    report.damage.into_iter().map(|(error, _)| error).collect()
}

pub(crate) fn faults(file: Vec<u8>, hash_seed: u64) -> Vec<Error> {
    let (table, _, mut faults) = match open(file, hash_seed) {
        Ok(found) => found,
        Err(error) => return vec![error],
    };
    faults.extend([true, false].into_iter().filter_map(|forward| walk(&table, forward).err()));
    faults
}

fn check(file: Vec<u8>) {
    let Ok((table, filter, damage)) = open(file, SEED) else { return };
    let forward = walk(&table, true);
    let backward = walk(&table, false);
    let Ok(entries) = forward else {
        assert!(!damage.is_empty(), "what cannot be walked is not sound");
        return;
    };
    if !damage.is_empty() {
        for (user, tag, _) in sample(&entries) {
            let _ = table
                .get(user, tag.seqno())
                .and_then(|found| found.map(|(_, value)| value.read()).transpose());
        }
        return;
    }
    if entries.len() == STEPS_MAX {
        return;
    }
    let mut backward = backward.expect("a sound table can be walked from its end");
    backward.reverse();
    assert!(entries == backward, "a sound table is the same from both ends");
    check_sound(&table, &filter, &entries);
}

fn sample(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().step_by(1 + entries.len() / LOOKUPS_MAX)
}

fn check_sound(table: &Arc<Table>, filter: &FilterState, entries: &[Entry]) {
    assert_eq!(table.properties.entries, entries.len() as u64);
    let mut iter = table.iter(true);
    for (at, (user, tag, value)) in entries.iter().enumerate().step_by(1 + entries.len() / LOOKUPS_MAX) {
        let found = table.get(user, tag.seqno()).expect("a sound table can be read");
        let (found_tag, found_value) = found.expect("every entry is found");
        let found_value = found_value.read().expect("a sound table can be read");
        // A hostile table may have a put and a tombstone with the same sequence number.
        assert!(found_tag.seqno() == tag.seqno() && (found_tag != *tag || found_value == *value));
        let newest = entries.iter().find(|entry| entry.0 == *user).expect("it is there").1;
        assert_eq!(table.get(user, SEQNO_MAX).expect("read").map(|found| found.0), Some(newest));
        assert!(filter.probe(key_hash(SEED, user)) != Verdict::Absent, "a filter denies no key of its table");
        let key = InternalKey::new(user, *tag);
        iter.seek(key).expect("a sound table can be searched");
        assert_eq!(iter.key(), Some(key));
        iter.seek_before(key).expect("a sound table can be searched");
        let before = at.checked_sub(1).map(|before| InternalKey::new(&entries[before].0, entries[before].1));
        assert_eq!(iter.key(), before);
        let absent = [&user[..], &[0]].concat();
        if entries.iter().all(|entry| entry.0 != absent) {
            assert!(table.get(&absent, SEQNO_MAX).expect("read").is_none());
        }
    }
}

fn walk(table: &Arc<Table>, forward: bool) -> Result<Vec<Entry>> {
    let (found, error) = steps(table, forward);
    error.map_or(Ok(found), Err)
}

fn steps(table: &Arc<Table>, forward: bool) -> (Vec<Entry>, Option<Error>) {
    let mut iter = table.iter(forward);
    let mut found = Vec::new();
    let mut moved = if forward { iter.seek_first() } else { iter.seek_last() };
    loop {
        if let Err(error) = moved {
            let again = if forward { iter.next() } else { iter.prev() };
            assert!(iter.key().is_none() && again.is_err(), "an iterator that failed stays failed");
            return (found, Some(*error));
        }
        let Some(key) = iter.key() else { return (found, None) };
        match iter.value().read() {
            Ok(value) => found.push((key.user.to_vec(), key.tag, value)),
            Err(error) => return (found, Some(error)),
        }
        if found.len() == STEPS_MAX {
            return (found, None);
        }
        moved = if forward { iter.next() } else { iter.prev() };
    }
}

fn built(input: &mut Input<'_>) {
    let config = config(input);
    let resealed = input.flag();
    let mut changes = vec![(input.u32(), input.u32().to_le_bytes())];
    if resealed {
        changes.extend((0..input.below(4)).map(|_| (input.u32(), input.u32().to_le_bytes())));
    }
    let entries = described(input);
    let Some((file, meta)) = written(config, &entries) else { return };
    let ctx = context(file.clone(), STORE, SEED);
    assert_eq!(Table::read_meta(&ctx, 1, &path()).as_ref().ok(), Some(&meta));
    let meta = Arc::new(meta);
    let table = Table::open(&ctx, Arc::clone(&meta)).expect("what was written is opened");
    let filter = read_filter(&table, &meta, &ctx);
    let damage = damage(&ctx, &meta);
    assert!(damage.is_empty(), "what was written is sound: {damage:?}");
    assert!(walk(&table, true).is_ok_and(|found| found == entries), "what was written is found");
    check_sound(&table, &filter, &entries);

    let mut damaged = file;
    for (at, xor) in changes {
        let start = at as usize % damaged.len();
        damaged[start..].iter_mut().zip(xor).for_each(|(byte, xor)| *byte ^= xor);
    }
    if resealed {
        seal::table(&mut damaged, &mut Mended::default());
        return check(damaged);
    }
    let ctx = context(damaged, STORE, SEED);
    let Ok(table) = Table::open(&ctx, Arc::clone(&meta)) else { return };
    assert_same_or_error(&table, &read_filter(&table, &meta, &ctx), &entries);
}

fn assert_same_or_error(table: &Arc<Table>, filter: &FilterState, entries: &[Entry]) {
    let (found, error) = steps(table, true);
    assert!(entries.starts_with(&found), "a walk of a damaged table has a beginning of its entries");
    assert!(error.is_some() || found.len() == entries.len(), "a damaged table does not end early");
    for (user, tag, value) in sample(entries) {
        let denied = filter.probe(key_hash(SEED, user)) == Verdict::Absent;
        assert!(!denied, "a damaged filter denies no key of its table");
        let Ok(found) = table.get(user, tag.seqno()) else { continue };
        let (found_tag, found_value) = found.expect("a key is not lost to damage");
        assert!(found_tag == *tag && found_value.read().map_or(true, |found| found == *value));
    }
}

fn config(input: &mut Input<'_>) -> TableConfig {
    let bits_per_key = f64::from(1 + input.u8() % 200) / 8.0;
    let filter = match input.below(1 + Kind::ALL.len()) {
        0 => None,
        kind => Some(FilterPlan { kind: Kind::ALL[kind - 1], bits_per_key }),
    };
    TableConfig {
        number: 1,
        store_id: STORE,
        file_id: FILE,
        hash_seed: SEED,
        block_bytes: 256 << input.below(8),
        append_bytes: 64 << 10,
        compression: if input.flag() { Compression::Lz4 } else { Compression::None },
        filter,
    }
}

fn described(input: &mut Input<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let numbers = u32::from(input.u16()) % 1000;
    let prefix = vec![b'k'; input.u8().into()];
    entries.extend((0..numbers).map(|number| {
        let value = Bytes::from(vec![number as u8; number as usize % 50]);
        (
            [&prefix[..], &number.to_be_bytes()].concat(),
            Tag::new(u64::from(number % 3), EntryKind::Put),
            value,
        )
    }));
    while !input.is_empty() && entries.len() < 2000 {
        let key = input.short().repeat(1 + input.below(4));
        let seqno = u64::from(input.u16());
        entries.push(match input.below(18) {
            0 => (key, Tag::new(seqno, EntryKind::Delete), Bytes::new()),
            shift => (key, Tag::new(seqno, EntryKind::Put), input.short().repeat(1 << (shift / 2)).into()),
        });
    }
    entries.sort_by(|a, b| InternalKey::new(&a.0, a.1).cmp(&InternalKey::new(&b.0, b.1)));
    entries.dedup_by(|a, b| a.0 == b.0 && a.1.seqno() == b.1.seqno());
    entries
}

fn written(config: TableConfig, entries: &[Entry]) -> Option<(Vec<u8>, TableMeta)> {
    if entries.is_empty() {
        return None;
    }
    let fs = MemFs::new();
    fs.create_dir(Path::new(DIR)).expect("memory does not fail");
    let mut writer = TableWriter::create(&fs, &path(), config).expect("memory does not fail");
    for (user, tag, value) in entries {
        let value = EntryValue::Inline(value.clone());
        writer.add(InternalKey::new(user, *tag), &value).expect("entries in order are accepted");
    }
    let meta = writer.finish().expect("memory does not fail");
    Some((fs.files(Path::new(DIR)).remove(0).1, meta))
}
