use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{blessing, golden};
use crate::db::Db;
use crate::filter::{FilterKind, FilterPolicy};
use crate::fs::{Fs, MemFs};
use crate::options::{KeyspaceOptions, Options};
use crate::table::Compression;

const DIR: &str = "/db";
const KEYS: u32 = 1200;
const USERS: u32 = 200;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(index: u32) -> Vec<u8> {
    format!("{}{index:05}", "k".repeat(200)).into_bytes()
}

fn value(index: u32) -> Vec<u8> {
    vec![(index % 251) as u8; (index % 300) as usize]
}

fn is_deleted(index: u32) -> bool {
    index % 7 == 3
}

fn is_overwritten(index: u32) -> bool {
    index % 11 == 5
}

fn user(index: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("user{index:03}").into_bytes(), (index * index).to_string().into_bytes())
}

fn long_key() -> Vec<u8> {
    vec![b'z'; 2000]
}

fn long_value() -> Vec<u8> {
    b"0123456789".repeat(10_000)
}

fn contents() -> [Contents; 2] {
    let mut default: Contents = (0..KEYS).map(|index| (key(index), value(index))).collect();
    default.extend([(b"long".to_vec(), long_value()), (long_key(), b"end".to_vec())]);
    for index in 0..KEYS {
        if is_deleted(index) {
            default.remove(&key(index));
        } else if is_overwritten(index) {
            default.insert(key(index), b"new".to_vec());
        }
    }
    default.insert(b"logged".to_vec(), b"default".to_vec());
    default.remove(&key(0));
    let mut users: Contents = (0..USERS).map(user).collect();
    users.insert(b"logged".to_vec(), b"users".to_vec());
    [default, users]
}

fn options(fs: &MemFs) -> Options {
    Options::new().background_threads(0).fs(Arc::new(fs.clone()))
}

fn write(fs: &MemFs) {
    let plain = |kind, bits| FilterPolicy::new(kind).bits_per_key(bits);
    let main = KeyspaceOptions::new()
        .block_bytes(512)
        .compression(Compression::Lz4)
        .compression_at(0, Compression::None)
        .filter(plain(FilterKind::Bloom, 32.0));
    let db = options(fs).default_keyspace(main).open(DIR).unwrap();
    (0..KEYS).for_each(|index| db.put(key(index), value(index)).unwrap());
    db.put("long", long_value()).unwrap();
    db.put(long_key(), "end").unwrap();
    db.compact().unwrap();

    let users = KeyspaceOptions::new().filter(plain(FilterKind::BlockedBloom, 10.0));
    let users = db.keyspace("users", users).unwrap();
    (0..USERS).map(user).for_each(|(key, value)| users.put(key, value).unwrap());
    let dropped = db.keyspace("dropped", KeyspaceOptions::new()).unwrap();
    dropped.put("a", "b").unwrap();
    for index in (0..KEYS).filter(|&index| is_overwritten(index)) {
        db.put(key(index), "old").unwrap();
    }
    let snapshot = db.snapshot();
    for index in 0..KEYS {
        if is_deleted(index) {
            db.delete(key(index)).unwrap();
        } else if is_overwritten(index) {
            db.put(key(index), "new").unwrap();
        }
    }
    db.flush().unwrap();
    users.flush().unwrap();
    drop(snapshot);
    dropped.put("c", "d").unwrap();
    db.drop_keyspace("dropped").unwrap();
    drop(dropped);

    let mut batch = crate::WriteBatch::new();
    batch.put("logged", "default").put_in(&users, "logged", "users").delete(key(0));
    db.write(batch).unwrap();
    drop(users);
    db.close().unwrap();
}

pub(super) fn golden_files() -> Vec<(String, Vec<u8>)> {
    static BLESSED: std::sync::Once = std::sync::Once::new();
    if blessing() {
        BLESSED.call_once(bless);
    }
    let entries = std::fs::read_dir(golden("store")).expect("the golden store");
    let file = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    let mut files: Vec<_> = entries.map(|entry| file(entry.unwrap())).collect();
    files.sort();
    files
}

fn load() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir(Path::new(DIR)).unwrap();
    for (name, bytes) in golden_files() {
        let file = fs.create(&Path::new(DIR).join(name)).unwrap();
        file.append(&bytes).unwrap();
        file.sync().unwrap();
    }
    fs
}

fn bless() {
    let fs = MemFs::new();
    write(&fs);
    let _ = std::fs::remove_dir_all(golden("store"));
    std::fs::create_dir_all(golden("store")).unwrap();
    for (path, bytes) in fs.files(Path::new(DIR)) {
        std::fs::write(golden("store").join(path.file_name().unwrap()), bytes).unwrap();
    }
}

fn check(db: &Db) {
    let [default, users] = contents();
    let found = db.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())));
    assert!(found.collect::<Result<Contents, _>>().unwrap() == default, "the default keyspace differs");
    let keyspace = db.keyspace("users", KeyspaceOptions::new()).unwrap();
    let found = keyspace.iter().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())));
    assert!(found.collect::<Result<Contents, _>>().unwrap() == users, "the keyspace users differs");
    for index in 0..KEYS {
        assert_eq!(
            db.get(key(index)).unwrap().as_deref(),
            default.get(&key(index)).map(|value| &value[..]),
            "{index}"
        );
        assert!(!db.contains(format!("{}-{index}", "k".repeat(200))).unwrap());
    }
    assert_eq!(db.keyspaces(), ["default", "users"]);
    let report = db.verify().unwrap();
    assert!(report.damage.is_empty() && report.tables >= 2, "{report:?}");
}

#[test]
fn a_store_of_version_1_opens_reads_and_goes_on() {
    let fs = load();
    let before = fs.files(Path::new(DIR));
    let db = options(&fs).read_only().open(DIR).unwrap();
    let report = db.open_report();
    assert!(report.dropped.is_empty() && report.ignored.is_empty() && report.logs > 0, "{report:?}");
    check(&db);
    db.close().unwrap();
    assert!(fs.files(Path::new(DIR)) == before, "reading changed the store");

    let db = options(&fs).open(DIR).unwrap();
    check(&db);
    db.put("more", "of it").unwrap();
    db.delete("more").unwrap();
    db.compact().unwrap();
    check(&db);
    db.close().unwrap();
    check(&options(&fs).open(DIR).unwrap());
}

#[test]
fn the_store_of_version_1_has_a_bit_of_everything() {
    let db = options(&load()).read_only().open(DIR).unwrap();
    let (mut depth, mut chunks, mut tables) = (0, 0, Vec::new());
    for version in db.versions().1 {
        for (level, handle) in version.all_tables() {
            let table = handle.open().unwrap();
            let properties = &table.properties;
            depth = depth.max(properties.index_depth);
            chunks += properties.chunk_blocks;
            let filter = &handle.meta.filters[0];
            let bound = handle.meta.largest.len();
            tables.push((
                level > 0,
                filter.kind,
                filter.len > 4096 + 512,
                handle.meta.tombstones > 0,
                bound > 1024,
            ));
        }
    }
    assert_eq!((depth, chunks), (2, 1));
    tables.sort_unstable();
    let expected =
        [(false, 1, false, true, false), (false, 2, false, false, false), (true, 1, true, false, true)];
    assert_eq!(tables, expected);
    assert_eq!(db.open_report().entries, 3);
}
