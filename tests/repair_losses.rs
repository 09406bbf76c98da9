use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use sievedb::filter::{FilterBuilder, Kind, header};
use sievedb::fs::{CrashPolicy, Fs as _, MemFs, Op};
use sievedb::{
    Compression, Db, Error, KeyspaceOptions, ManifestCondition, Options, RepairReport, WriteBatch,
};

use crate::support::faulty::{Call, Effect, FaultyFs};
use crate::support::store::{self, Contents, DIR, contents};

const NEW: &str = "/new";

type Files = BTreeMap<String, Vec<u8>>;

fn copy(fs: &MemFs) -> Files {
    store::files(&fs.crash(CrashPolicy::KeepAll))
}

fn repair(files: &Files) -> (RepairReport, Contents) {
    let fs = MemFs::new();
    fs.create_dir(Path::new(DIR)).unwrap();
    for (name, bytes) in files {
        fs.overwrite(&Path::new(DIR).join(name), bytes.clone());
    }
    let options = || store::options(&fs).default_keyspace(KeyspaceOptions::new());
    let report = options().repair(DIR, NEW).unwrap();
    let found = contents(&options().open(NEW).unwrap()).unwrap();
    (report, found)
}

fn open(fs: &MemFs) -> Db {
    let keyspace = store::small().memtable_bytes(64 << 10).compression_at(1, Compression::None);
    store::options(fs).default_keyspace(keyspace).open(DIR).unwrap()
}

fn key(n: u64) -> String {
    format!("key {n:03}")
}

fn fill(db: &Db, keys: std::ops::Range<u64>) {
    keys.for_each(|n| db.put(key(n), vec![n as u8; 100]).unwrap());
}

fn names<'a>(files: &'a Files, is: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = &'a String> {
    files.keys().filter(move |name| is(name))
}

#[test]
fn without_a_manifest_a_flush_that_was_not_finished_loses_nothing() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 0..100);
    let mut files = copy(&fs);
    db.flush().unwrap();
    let flushed = store::files(&fs);
    assert!(names(&flushed, |name| name.ends_with(".sst")).count() > 1);
    let first = names(&flushed, |name| name.ends_with(".sst")).next().unwrap();
    files.insert(first.clone(), flushed[first].clone());
    files.retain(|name, _| name != "CURRENT" && !name.starts_with("MANIFEST"));
    let (report, found) = repair(&files);
    assert_eq!(report.manifest, ManifestCondition::Lost);
    assert_eq!(found["doubtful"].len(), 100, "{report:#?}");
}

#[test]
fn a_table_that_was_merged_into_nothing_is_doubtful_if_the_edits_are_lost() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 0..40);
    db.compact().unwrap();
    let before = copy(&fs);
    (0..40).for_each(|n| db.delete(key(n)).unwrap());
    db.flush().unwrap();
    db.compact().unwrap();
    let mut files = copy(&fs);
    assert_eq!(names(&files, |name| name.ends_with(".sst")).count(), 0);
    let is_old = |name: &str| name.ends_with(".sst") || name.starts_with("MANIFEST");
    files.extend(before.into_iter().filter(|(name, _)| is_old(name)));
    let (report, found) = repair(&files);
    assert_eq!(report.manifest, ManifestCondition::Cut);
    assert_eq!((report.lost_writes.len(), report.lost_writes[0].seqnos.0), (1, 41), "{report:#?}");
    assert_eq!((found["default"].len(), found["doubtful"].len()), (0, 40), "{report:#?}");
}

#[test]
fn a_lost_delete_leaves_its_key_certain_as_of_the_write_before() {
    let fs = MemFs::new();
    let db = open(&fs);
    let other = db.keyspace("other", KeyspaceOptions::new()).unwrap();
    other.put("a", "1").unwrap();
    fill(&db, 1..10);
    db.delete(key(5)).unwrap();
    fill(&db, 20..21);
    fill(&db, 9..10);
    other.put("b", "2").unwrap();
    other.flush().unwrap();
    other.put("c", "3").unwrap();
    db.sync().unwrap();
    let mut files = copy(&fs);
    let name = names(&files, |name| name.ends_with(".wal")).next().unwrap().clone();
    let log = files.get_mut(&name).unwrap();
    let at = log.windows(7).rposition(|bytes| bytes == key(5).as_bytes()).unwrap();
    log[at] ^= 1;
    let (report, found) = repair(&files);
    assert_eq!(report.lost_writes[0].seqnos, (11, Some(11)), "{report:#?}");
    let as_of: Vec<_> = report.keyspaces.iter().map(|of| (&of.name[..], of.as_of)).collect();
    assert_eq!(as_of, [("default", Some(10)), ("other", Some(15)), ("doubtful", None)], "{report:#?}");
    let keys = |name: &str| found[name].keys().map(|key| store::show(key)).collect::<Vec<_>>();
    let certain: Vec<_> = (1..9).map(|n| store::show(key(n).as_bytes())).collect();
    assert_eq!(keys("default"), certain);
    assert_eq!(keys("doubtful"), [9, 20].map(|n| store::show(key(n).as_bytes())));
    assert_eq!(found["other"].len(), 3);
}

#[test]
fn after_a_lost_edit_values_are_certain_as_of_the_previous_flush() {
    let fs = MemFs::new();
    let db = open(&fs);
    fill(&db, 0..10);
    db.flush().unwrap();
    let first = copy(&fs);
    fill(&db, 10..20);
    db.flush().unwrap();
    fill(&db, 20..30);
    db.flush().unwrap();
    let mut files = copy(&fs);
    let name = names(&files, |name| name.starts_with("MANIFEST")).next().unwrap().clone();
    let manifest = files.get_mut(&name).unwrap();
    let at = manifest.windows(7).rposition(|bytes| bytes == key(10).as_bytes()).unwrap();
    assert!(at > first[&name].len());
    manifest[at] ^= 1;
    let (report, found) = repair(&files);
    assert_eq!(report.manifest, ManifestCondition::Cut);
    assert_eq!(report.keyspaces[0].as_of, Some(10), "{report:#?}");
    let kept = |name: &str| found.get(name).map_or(0, |entries| entries.len());
    assert_eq!((kept("default"), kept("doubtful")), (20, 10), "{report:#?}");
}

/// The log was cut on a full disk before a failed write, which is whole in the log. The previous manifest is in force
/// again, and another write got the same number.
fn with_a_log_that_was_cut(failed: &[&str], later: &[&str]) -> Files {
    let mem = MemFs::new();
    let fs = FaultyFs::new(&mem);
    let keyspace = store::small().memtable_bytes(64 << 10);
    let options = store::options(&mem).default_keyspace(keyspace).fs(Arc::new(fs.clone()));
    let db = options.open(DIR).unwrap();
    ["a", "b", "c"].iter().for_each(|key| db.put(key, "acknowledged").unwrap());
    let before = copy(&mem);
    fs.judge(|_, call| match call {
        Call::Append(_) if call.kind() == "wal" => Some((Effect::All, io::ErrorKind::StorageFull.into())),
        _ => None,
    });
    let mut batch = WriteBatch::new();
    failed.iter().for_each(|key| _ = batch.put(key, "failed"));
    db.write(batch).unwrap_err();
    fs.recover();
    later.iter().for_each(|key| db.put(key, "later").unwrap());
    db.sync().unwrap();
    let mut files = copy(&mem);
    assert_eq!(names(&files, |name| name.ends_with(".wal")).count(), 2);
    files.retain(|name, _| name != "CURRENT" && !name.starts_with("MANIFEST"));
    files.extend(before.into_iter().filter(|(name, _)| name.starts_with("MANIFEST")));
    files
}

#[test]
fn a_write_that_failed_does_not_come_back_from_a_log_that_was_cut() {
    for (failed, later) in [(&["a", "f"][..], &["b"][..]), (&["f"], &["b", "d"]), (&["d", "a"], &["d"])] {
        let mut files = with_a_log_that_was_cut(failed, later);
        for has_manifest in [true, false] {
            files.retain(|name, _| has_manifest || !name.starts_with("MANIFEST"));
            let (report, found) = repair(&files);
            let mut expected: BTreeMap<&str, &str> =
                ["a", "b", "c"].into_iter().map(|key| (key, "acknowledged")).collect();
            expected.extend(later.iter().map(|key| (*key, "later")));
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let name = if has_manifest { "default" } else { "doubtful:unknown" };
            assert!(found.contains_key(name), "{report:#?}");
            let kept: Vec<_> = found[name].iter().map(|(key, value)| (text(key), text(value))).collect();
            let expected: Vec<_> =
                expected.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            assert_eq!(kept, expected, "{failed:?} {later:?} {report:#?}");
        }
    }
}

#[test]
fn an_opening_that_was_interrupted_puts_no_write_of_the_old_log_in_doubt() {
    let fs = MemFs::new();
    let db = open(&fs);
    let earlier = copy(&fs);
    db.keyspace("other", KeyspaceOptions::new()).unwrap();
    fill(&db, 0..20);
    db.sync().unwrap();
    let (image, before) = (fs.crash(CrashPolicy::KeepAll), copy(&fs));
    let left = Arc::new(Mutex::new(Files::new()));
    let kept = Arc::clone(&left);
    image.observe(move |fs, op| {
        if matches!(op, Op::Create(path) if path.to_string_lossy().contains("MANIFEST")) {
            *kept.lock().unwrap() = copy(fs);
        }
        Ok(())
    });
    drop(open(&image));
    let mut files = std::mem::take(&mut *left.lock().unwrap());
    let new =
        files.keys().find(|name| name.ends_with(".wal") && !before.contains_key(*name)).unwrap().clone();
    let log = files.get_mut(&new).unwrap();
    log.truncate(log.len() / 2);
    files.extend(earlier.into_iter().filter(|(name, _)| name.starts_with("MANIFEST")));
    let (report, found) = repair(&files);
    assert_eq!((report.manifest, report.logs), (ManifestCondition::Cut, 2), "{report:#?}");
    assert_eq!((found["default"].len(), report.doubtful_keys()), (20, 0), "{report:#?}");
}

#[test]
fn a_filter_in_a_value_does_not_end_the_data_of_a_table() {
    let mut filter = FilterBuilder::new(Kind::BlockedBloom, 10.0, 1, 2, [7; 16]).unwrap();
    (0..10).for_each(|n| filter.add_hash(n));
    let filter = filter.finish().unwrap();
    let table_with = |padding: usize| {
        let fs = MemFs::new();
        let keyspace = store::small().memtable_bytes(64 << 10).table_bytes(1 << 20);
        let db = store::options(&fs).default_keyspace(keyspace).open(DIR).unwrap();
        db.put("a", [&vec![1; padding], &filter[..]].concat()).unwrap();
        fill(&db, 0..15);
        db.flush().unwrap();
        let files = copy(&fs);
        let name = names(&files, |name| name.ends_with(".sst")).next().unwrap().clone();
        (files, name)
    };
    let find = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).position(|found| found == what).unwrap();
    let (files, name) = table_with(3000);
    let (mut files, _) = table_with(3000 + 4096 - find(&files[&name], &header::MAGIC) % 4096);
    let table = files.get_mut(&name).unwrap();
    assert_eq!(find(table, &header::MAGIC) % 4096, 0);
    table[200] ^= 1;
    let other = find(table, &[7; 100]);
    table[other] ^= 1;
    let footer = table.len() - 128;
    let root = u64::from_le_bytes(table[footer..footer + 8].try_into().unwrap());
    table.truncate(root as usize);
    let (report, found) = repair(&files);
    assert!(found["default"].contains_key(key(0).as_bytes()), "{report:#?}");
    assert!(!found["default"].contains_key(key(7).as_bytes()), "{report:#?}");
    assert!(report.may_have_lost("default", key(7).as_bytes()), "{report:#?}");
    assert!(!report.may_have_lost("default", key(0).as_bytes()), "{report:#?}");
}

#[test]
fn no_path_makes_the_new_store_inside_the_damaged_one() {
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("s");
    let db = Db::open(&damaged).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    let list = || {
        let names = std::fs::read_dir(&damaged).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = list();
    let mut inside = vec!["s", "s/new", "./s/new/er", "s/../s/new", "none/../s/new", "none/./a/../../s"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&damaged, dir.path().join("link")).unwrap();
        inside.extend(["link/new", "none/../link/new"]);
    }
    for path in inside {
        let error = Options::new().repair(&damaged, dir.path().join(path)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{path}: {error}");
        assert!(error.to_string().contains("is in the damaged store"), "{path}: {error}");
    }
    assert_eq!(list(), before);
    let report = Options::new().repair(&damaged, damaged.join("../s2/new")).unwrap();
    assert!(report.is_complete() && dir.path().join("s2/new/CURRENT").exists(), "{report:#?}");
}

/// The writes of each session; `None` deletes. The first write has the number 1.
const SESSIONS: [&[(&str, Option<&str>)]; 4] = [
    &[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))],
    &[("a", Some("2")), ("b", None), ("e", Some("2"))],
    &[("b", Some("3")), ("d", Some("3"))],
    &[("c", Some("4")), ("e", None)],
];

fn four_sessions(fs: &MemFs) -> Files {
    for session in SESSIONS {
        let db = open(fs);
        for &(key, value) in session {
            match value {
                Some(value) => db.put(key, value).unwrap(),
                None => db.delete(key).unwrap(),
            }
        }
        db.close().unwrap();
    }
    copy(fs)
}

fn after(writes: u64) -> BTreeMap<&'static str, &'static str> {
    let mut entries = BTreeMap::new();
    for &(key, value) in SESSIONS.into_iter().flatten().take(writes as usize) {
        entries.remove(key);
        entries.extend(value.map(|value| (key, value)));
    }
    entries
}

fn verified(files: &Files) -> Vec<String> {
    let fs = MemFs::new();
    fs.create_dir(Path::new(DIR)).unwrap();
    for (name, bytes) in files {
        fs.overwrite(&Path::new(DIR).join(name), bytes.clone());
    }
    let report = store::options(&fs).verify(DIR).unwrap();
    report.damage.iter().map(ToString::to_string).collect()
}

#[test]
fn a_closed_log_that_was_cut_anywhere_has_lost_writes_and_newer_values_are_doubtful() {
    let files = four_sessions(&MemFs::new());
    let all = after(u64::MAX);
    let logs: Vec<_> = names(&files, |name| name.ends_with(".wal")).cloned().collect();
    assert!(logs.len() >= SESSIONS.len(), "{logs:?}");
    assert!(verified(&files).is_empty() && repair(&files).0.is_complete());
    let mut losses = 0;
    for log in logs {
        let used = files[&log].iter().rposition(|&byte| byte != 0).unwrap() + 1;
        for len in 0..used {
            let mut cut = files.clone();
            cut.get_mut(&log).unwrap().truncate(len);
            let (damage, (report, found)) = (verified(&cut), repair(&cut));
            let context = format!("{log} cut to {len}: {damage:?} {report:#?}");
            assert!(!damage.is_empty(), "verify finds each cut: {context}");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let certain: BTreeMap<String, String> =
                found["default"].iter().map(|(key, value)| (text(key), text(value))).collect();
            let is_same = certain.iter().map(|(key, value)| (&key[..], &value[..])).eq(all.clone());
            assert_eq!(report.is_complete(), is_same, "{context}");
            assert_eq!(report.lost_writes.is_empty(), is_same, "{context}");
            losses += u64::from(!is_same);
            let as_of = report.keyspaces[0].as_of.unwrap();
            let then = after(as_of);
            for (key, value) in &certain {
                assert_eq!(then.get(&key[..]), Some(&&value[..]), "{key} as of {as_of}: {context}");
            }
        }
    }
    assert!(losses > 100, "{losses}");
}

#[test]
fn a_cut_log_is_found_by_verify_although_the_manifest_is_damaged_after_its_end() {
    let fs = MemFs::new();
    four_sessions(&fs);
    let db = open(&fs);
    for name in ["first", "second", "third"] {
        db.keyspace(name, KeyspaceOptions::new()).unwrap();
    }
    db.close().unwrap();
    let mut files = copy(&fs);
    let manifest = names(&files, |name| name.starts_with("MANIFEST")).last().unwrap().clone();
    let at = files[&manifest].windows(6).rposition(|bytes| bytes == b"second").unwrap();
    files.get_mut(&manifest).unwrap()[at] ^= 1;
    let of_logs = |files: &Files| verified(files).iter().filter(|damage| damage.contains(".wal")).count();
    assert!(!verified(&files).is_empty());
    assert_eq!(of_logs(&files), 0, "{:?}", verified(&files));
    let first = names(&files, |name| name.ends_with(".wal")).next().unwrap().clone();
    files.get_mut(&first).unwrap().truncate(64);
    assert_eq!(of_logs(&files), 1);
}
