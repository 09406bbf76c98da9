//! A whole store: a directory of files is opened, read in every way, verified, written, and opened again.
//!
//! # Strategy
//!
//! The first byte chooses:
//!
//! 0. *files*: a byte for the kind of name, one for its number, the length, the bytes.
//! 1. *files, resealed*: every checksum is recomputed, and its copies.
//! 2. *golden, damaged*: the golden store of version 1, with up to four changed bytes in one file, or one file cut or
//!    removed.
//! 3. *golden, resealed*: the golden store with several changes and recomputed checksums.
//!
//! # Invariants
//!
//! - Opening, reading, verifying, compacting and drawing end for any files. Errors name their subject.
//! - Reading changes no file. A store that is readable and verified can be written, and has the same entries after
//!   compaction and reopening.
//! - If a golden store has damage in one place, a lookup returns the entry or an error, unless the open report lists a
//!   torn tail.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::seal::{self, Mended};
#[cfg(test)]
use crate::batch::WriteBatch;
use crate::db::{Db, Iter, Keyspace};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::filter::fuzzing::Input;
use crate::fs::{Fs, MemFs};
use crate::inspect::tree::Tree;
use crate::options::Options;

const DIR: &str = "/db";

const STEPS_MAX: usize = 5000;

type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

type Files = BTreeMap<FileName, Vec<u8>>;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        mode @ (0 | 1) => {
            let mut files = files(&mut input);
            if mode == 1 {
                reseal(&mut files);
            }
            exercise(&files);
        }
        2 => damaged(&mut input),
        _ => {
            let mut files = golden();
            for _ in 0..1 + input.below(8) {
                change(&mut files, &mut input);
            }
            reseal(&mut files);
            exercise(&files);
        }
    }
}

fn name(kind: usize, number: u64) -> FileName {
    match kind {
        0 => FileName::Current,
        1 => FileName::Manifest(number),
        2 => FileName::Log(number),
        3 => FileName::Table(number),
        4 => FileName::Filter(number),
        5 => FileName::Lock,
        _ => FileName::CurrentTemporary,
    }
}

fn files(input: &mut Input<'_>) -> Files {
    let mut files = Files::new();
    while !input.is_empty() && files.len() < 40 {
        let name = name(input.below(7), 1 + u64::from(input.u8()));
        let len = usize::from(input.u16());
        files.insert(name, input.take(len).to_vec());
    }
    files
}

#[cfg(test)]
pub(super) fn described(files: &Files) -> Vec<u8> {
    let mut out = Vec::new();
    for (file, bytes) in files {
        let number = file.number().unwrap_or(1);
        let kind = (0..7).find(|&kind| name(kind, number) == *file).expect("a name of a store");
        out.extend_from_slice(&[kind as u8, number as u8 - 1]);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out
}

pub(super) fn golden() -> Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(read_golden).clone()
}

fn read_golden() -> Files {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1/store");
    let mut files = Files::new();
    for entry in std::fs::read_dir(folder).expect("the golden store is there") {
        let entry = entry.expect("its names can be read");
        let name = entry.file_name().to_str().and_then(FileName::parse).expect("a name of a store");
        let bytes = std::fs::read(entry.path()).expect("it can be read");
        if !bytes.is_empty() {
            files.insert(name, bytes);
        }
    }
    files
}

fn change(files: &mut Files, input: &mut Input<'_>) {
    let index = input.below(files.len());
    let Some((&file, _)) = files.iter().nth(index) else { return };
    let kind = input.below(8);
    let at = input.u32() as usize;
    let Some(bytes) = files.get_mut(&file) else { return };
    let at = at % bytes.len().max(1);
    let near_end = bytes.len().saturating_sub(1 + at % 256);
    match kind {
        0 | 1 => {
            let at = if kind == 1 { near_end } else { at };
            let xor = input.short();
            bytes[at..].iter_mut().zip(xor).for_each(|(byte, xor)| *byte ^= xor);
        }
        2 => {
            let new = input.short();
            bytes[at..].iter_mut().zip(new).for_each(|(byte, new)| *byte = *new);
        }
        3 => bytes.truncate(at),
        4 => bytes.extend_from_slice(input.short()),
        5 => drop(bytes.splice(at.., input.short().to_vec())),
        6 => {
            files.remove(&file);
        }
        _ => {
            let copy = bytes.clone();
            files.insert(name(input.below(7), 1 + u64::from(input.u8())), copy);
        }
    }
}

fn reseal(files: &mut Files) {
    let mut mended = Mended::default();
    for (name, bytes) in files.iter_mut() {
        match name {
            FileName::Table(_) => seal::table(bytes, &mut mended),
            FileName::Filter(_) => seal::filter_file(bytes, &mut mended),
            FileName::Current | FileName::CurrentTemporary => seal::current(bytes),
            _ => {}
        }
    }
    for (name, bytes) in files.iter_mut() {
        if let FileName::Manifest(_) = name {
            mended.carry_into(bytes);
            seal::manifest(bytes, &mut mended);
        }
    }
    for (name, bytes) in files.iter_mut() {
        if let FileName::Log(_) = name {
            mended.carry_into(bytes);
            seal::framed(bytes);
        }
    }
}

fn disk(files: &Files) -> MemFs {
    let fs = MemFs::new();
    fs.create_dir(Path::new(DIR)).expect("memory does not fail");
    for (name, bytes) in files {
        fs.overwrite(&name.path(Path::new(DIR)), bytes.clone());
    }
    fs
}

fn options(fs: &MemFs) -> Options {
    Options::new().background_threads(0).memory_budget(1 << 20).fs(Arc::new(fs.clone()))
}

fn keyspaces(db: &Db) -> Vec<Keyspace> {
    db.keyspaces().iter().filter_map(|name| db.existing_keyspace(name)).collect()
}

fn contents(db: &Db) -> Result<(Contents, bool)> {
    let (mut contents, mut whole) = (Contents::new(), true);
    for keyspace in keyspaces(db) {
        let mut found = BTreeMap::new();
        let (mut last, mut steps): (Option<Vec<u8>>, _) = (None, 0);
        for item in keyspace.iter().take(STEPS_MAX) {
            let (key, value) = item?;
            whole &= last.as_deref().is_none_or(|last| last < &key[..]);
            last = Some(key.to_vec());
            steps += 1;
            found.insert(key.to_vec(), value.to_vec());
        }
        whole &= steps < STEPS_MAX;
        contents.insert(keyspace.name().to_owned(), found);
    }
    Ok((contents, whole))
}

fn read_otherwise(db: &Db, contents: &Contents, sound: bool) {
    for keyspace in keyspaces(db) {
        let Some(entries) = contents.get(keyspace.name()) else { continue };
        let backward: Result<Vec<_>> = keyspace.iter().rev().take(STEPS_MAX).map(collected).collect();
        let sample: Vec<_> = entries.iter().step_by(1 + entries.len() / 50).collect();
        let keys: Vec<&[u8]> = sample.iter().map(|(key, _)| &key[..]).collect();
        let many = keyspace.multi_get(&keys);
        let prefix: Result<Vec<_>> = keyspace.prefix(b"k").take(100).map(collected).collect();
        for (key, value) in &sample {
            let (one, there) = (keyspace.get(key), keyspace.contains(key));
            if sound {
                assert!(one.expect("a sound store can be read").as_deref() == Some(&value[..]));
                assert!(there.expect("a sound store can be read") && keyspace.may_contain(key));
            }
        }
        if sound {
            assert!(backward.expect("a sound store").into_iter().rev().eq(entries.clone()), "from both ends");
            assert!(prefix.is_ok());
            let many = many.expect("a sound store can be read");
            assert!(many.iter().zip(&sample).all(|(found, (_, value))| found.as_deref() == Some(&value[..])));
        }
    }
}

fn collected(item: <Iter<'_> as Iterator>::Item) -> Result<(Vec<u8>, Vec<u8>)> {
    item.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

fn exercise(files: &Files) {
    let fs = disk(files);
    let before = fs.files(Path::new(DIR));
    let read = read_only(&fs);
    let shape = Tree::read(&fs, Path::new(DIR));
    assert!(read.is_none() || shape.is_ok(), "a sound store has a shape");
    assert!(fs.files(Path::new(DIR)) == before, "reading changes nothing");
    let Ok(db) = options(&fs).open(DIR) else {
        assert!(read.is_none(), "what can be read and is sound can be opened for writing");
        return;
    };
    let Some(before) = read else {
        let _ = contents(&db).map(|(found, _)| read_otherwise(&db, &found, false));
        let _ = db.put("k", "v").and_then(|()| db.flush()).and_then(|()| db.compact());
        let _ = (db.verify(), db.stats());
        return drop(db);
    };
    let (found, _) = contents(&db).expect("it was read before");
    assert!(found == before, "what is opened for writing is what was read");
    db.put("k", "v").expect("a sound store can be written");
    keyspaces(&db).iter().for_each(|keyspace| keyspace.flush().expect("a sound store can be flushed"));
    keyspaces(&db).iter().for_each(|keyspace| keyspace.compact().expect("a sound store can be compacted"));
    let damage = db.verify().expect("it is open").damage;
    assert!(damage.is_empty(), "what was compacted is sound: {damage:?}");
    db.close().expect("a sound store can be closed");
    let db = options(&fs).open(DIR).expect("what was closed can be opened");
    let mut expected = before;
    expected.entry("default".into()).or_default().insert(b"k".to_vec(), b"v".to_vec());
    assert!(contents(&db).expect("a sound store can be read").0 == expected, "compaction changes no answer");
}

fn read_only(fs: &MemFs) -> Option<Contents> {
    let at_rest = options(fs).verify(DIR);
    if let Ok(report) = &at_rest {
        report.damage.iter().for_each(|damage| drop(damage.to_string()));
    }
    let db = match options(fs).read_only().open(DIR) {
        Ok(db) => db,
        Err(error) => {
            assert!(at_rest.map_or(true, |report| !report.damage.is_empty()), "verify says why: {error}");
            return None;
        }
    };
    let sound = db.verify().expect("it is open").damage.is_empty();
    let sound_at_rest = at_rest.is_ok_and(|report| report.damage.is_empty());
    assert!(sound || !sound_at_rest, "damage of an open store is found at rest too");
    let read = contents(&db);
    let _ = db.stats();
    match read {
        Ok((found, whole)) => {
            let many = found.values().any(|entries| entries.len() >= STEPS_MAX);
            assert!(whole || !sound || many, "the keys of a sound store ascend");
            read_otherwise(&db, &found, sound && whole);
            (sound && whole).then_some(found)
        }
        Err(error) => {
            assert!(!sound, "a sound store can be read: {error}");
            None
        }
    }
}

fn golden_contents() -> &'static Contents {
    static CONTENTS: OnceLock<Contents> = OnceLock::new();
    CONTENTS.get_or_init(|| read_only(&disk(&golden())).expect("the golden store is sound"))
}

fn damaged(input: &mut Input<'_>) {
    let mut files = golden();
    let names: Vec<FileName> = files.keys().copied().collect();
    let file = names[input.below(names.len())];
    let kind = input.below(3);
    let at = input.u32() as usize;
    if let Some(bytes) = files.get_mut(&file) {
        let at = at % bytes.len();
        match kind {
            0 => bytes[at..].iter_mut().zip(input.u32().to_le_bytes()).for_each(|(byte, xor)| *byte ^= xor),
            1 => bytes.truncate(at),
            _ => drop(files.remove(&file)),
        }
    }
    for read_only in [true, false] {
        let fs = disk(&files);
        let open = if read_only { options(&fs).read_only().open(DIR) } else { options(&fs).open(DIR) };
        let Ok(db) = open.inspect_err(assert_names_a_file) else { continue };
        let report = db.open_report();
        // Without `CURRENT` and files of a store in use, the store is new.
        if report.dropped.is_empty() && !report.created {
            assert_same_or_error(&db);
        }
    }
}

fn assert_names_a_file(error: &Error) {
    match error {
        Error::Corruption { file, .. } | Error::Unsupported { file, .. } => {
            assert!(file.starts_with(DIR) && file != Path::new(DIR), "{error}");
        }
        Error::Io { .. } | Error::NoStore { .. } => {}
        other => panic!("damage is reported as {other}"),
    }
}

fn assert_same_or_error(db: &Db) {
    for (name, entries) in golden_contents() {
        let Some(keyspace) = db.existing_keyspace(name) else { panic!("keyspace {name} is lost") };
        let mut expected = entries.iter();
        for item in keyspace.iter() {
            let Ok((key, value)) = item.inspect_err(assert_names_a_file) else { break };
            let next = expected.next().expect("nothing is made up");
            assert!((&key[..], &value[..]) == (&next.0[..], &next.1[..]), "an answer differs");
        }
        for (key, value) in entries.iter().step_by(37) {
            if let Ok(found) = keyspace.get(key).inspect_err(assert_names_a_file) {
                assert!(found.as_deref() == Some(&value[..]), "an answer differs");
                assert!(keyspace.may_contain(key), "a filter denies a key");
            }
        }
    }
}

#[cfg(test)]
pub(super) fn small() -> Files {
    use crate::batch;
    use crate::file_header::{FileHeader, FileKind};
    use crate::filter::{FilterBuilder, FilterPlan, Kind};
    use crate::iter::EntryValue;
    use crate::key::{EntryKind, InternalKey, Tag};
    use crate::manifest::edit::EditItem;
    use crate::manifest::keyspace_options::KeyspaceOptions;
    use crate::manifest::log::ManifestLog;
    use crate::manifest::state::ManifestState;
    use crate::table::{TableConfig, TableWriter, write_filter_file};
    use crate::wal::{FramedWriter, RecordKind};
    use crate::wal::{encode_close, encode_promise};

    const STORE: [u8; 16] = [1; 16];
    let (fs, dir) = (disk(&Files::new()), Path::new(DIR));
    let create = |id, name: &str| EditItem::KeyspaceCreated {
        id,
        name: name.into(),
        options: KeyspaceOptions::new().encode(),
    };
    let number = std::cell::Cell::new(10);
    let random = || {
        number.set(number.get() + 1);
        Ok([number.get(); 16])
    };
    let state = ManifestState { hash_seed: 5, next_file: 9, ..ManifestState::default() };
    let arc: Arc<dyn Fs> = Arc::new(fs.clone());
    let mut manifest = ManifestLog::create(arc, dir, STORE, 1, state, &random).unwrap();
    let mut added = vec![create(0, "default"), create(1, "other")];
    for (file, kind, keyspace, level) in
        [(2u64, Kind::Bloom, 0, 0), (3, Kind::Ribbon, 0, 1), (4, Kind::BlockedBloom, 1, 1)]
    {
        let path = FileName::Table(file).path(dir);
        let config = TableConfig {
            number: file,
            store_id: STORE,
            file_id: [file as u8; 16],
            hash_seed: 5,
            block_bytes: 256,
            append_bytes: 64 << 10,
            compression: crate::block::Compression::Lz4,
            filter: Some(FilterPlan { kind, bits_per_key: 8.0 }),
        };
        let mut table = TableWriter::create(&fs, &path, config).unwrap();
        for index in 0..20u64 {
            let key = format!("key{:02}", index * (6 - file));
            let deleted = file == 2 && index % 5 == 0;
            let kind = if deleted { EntryKind::Delete } else { EntryKind::Put };
            let value = if deleted { Vec::new() } else { vec![b'v'; index as usize] };
            let tag = Tag::new(if file == 2 { 50 + index } else { index + 1 }, kind);
            table.add(InternalKey::new(key.as_bytes(), tag), &EntryValue::Inline(value.into())).unwrap();
        }
        let mut meta = table.finish().unwrap();
        if file == 4 {
            let mut filter = FilterBuilder::new(Kind::Ribbon, 12.0, 5, 6, [file as u8; 16]).unwrap();
            (0..20u64).for_each(|index| filter.add_key(format!("key{:02}", index * (6 - file)).as_bytes()));
            let block = filter.finish().unwrap();
            meta.filters = vec![write_filter_file(&fs, dir, 6, [STORE, [6; 16]], &block).unwrap()];
        }
        let meta = Arc::new(meta);
        let run = if level == 0 { file } else { 0 };
        added.push(EditItem::TableAdded { keyspace, level, run, meta });
        added.push(EditItem::Flushed { keyspace, seqno: 80 });
    }
    added.push(EditItem::LastSeqno(80));
    added.push(EditItem::LogCreated { number: 5, file_id: [5; 16], predecessor: 0 });
    let mark = manifest.append(added).unwrap();

    let header = FileHeader::new(FileKind::Log, STORE, [5; 16]);
    let path = FileName::Log(5).path(dir);
    let mut log = FramedWriter::create(&fs, &path, header).unwrap();
    log.append_record(RecordKind::Promise, &encode_promise(mark)).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("logged", "value").push_put(1, b"logged", b"other").delete("key04");
    let (mut bytes, ..) = batch.into_parts().unwrap();
    batch::stamp(&mut bytes, 81);
    log.append_record(RecordKind::Batch, &bytes).unwrap();
    log.sync().unwrap();
    log.append_record(RecordKind::Close, &encode_close(83, mark)).unwrap();
    log.sync().unwrap();
    let named =
        |path: std::path::PathBuf| path.file_name().and_then(|name| FileName::parse(name.to_str()?)).unwrap();
    fs.files(dir).into_iter().map(|(path, bytes)| (named(path), bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_stores_are_sound() {
        for files in [golden(), small()] {
            assert!(read_only(&disk(&files)).is_some());
            exercise(&files);
        }
    }

    #[test]
    fn resealing_what_is_intact_changes_nothing() {
        for files in [golden(), small()] {
            let mut resealed = files.clone();
            reseal(&mut resealed);
            assert!(files == resealed);
        }
    }
}
