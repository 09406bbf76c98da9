//! Filters are damaged, replaced and rebuilt while a store is in use. After a failure, answers come from the data, and
//! the filter is counted and rebuilt in the background as a separate file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::filter::header::HEADER_BYTES;
use sievedb::filter::{Header, Kind};
use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{Db, Error, FilterKind, FilterPolicy, KeyspaceOptions, Options, Stats};

use crate::support::audit::Audit;
use crate::support::hooked::HookedFs;
use crate::support::parallel::cases;
use crate::support::rng::Rng;
use crate::support::store::{self, Contents, DIR, contents, examine};

const KEYS: u64 = 120;

fn key(n: u64) -> String {
    format!("key {n:04}")
}

fn absent() -> Vec<Vec<u8>> {
    (0..KEYS).map(|n| format!("key {n:04} not there").into_bytes()).collect()
}

fn sample() -> (MemFs, Contents) {
    let fs = MemFs::new();
    let roomy = store::small().memtable_bytes(1 << 20);
    let db = store::options(&fs).default_keyspace(roomy).open(DIR).unwrap();
    let mut rng = Rng::new(5);
    (0..KEYS).for_each(|n| db.put(key(n), rng.bytes(40)).unwrap());
    db.compact().unwrap();
    (0..KEYS / 4).for_each(|n| db.put(key(n * 3), rng.bytes(20)).unwrap());
    db.flush().unwrap();
    let expected = contents(&db).unwrap();
    db.close().unwrap();
    (fs, expected)
}

fn copy(fs: &MemFs) -> MemFs {
    fs.crash(CrashPolicy::KeepAll)
}

fn of_kind(fs: &MemFs, extension: &str) -> BTreeMap<String, Vec<u8>> {
    let mut files = store::files(fs);
    files.retain(|name, _| name.ends_with(extension));
    files
}

fn overwrite(fs: &MemFs, name: &str, bytes: Vec<u8>) {
    fs.overwrite(&Path::new(DIR).join(name), bytes);
}

fn filter_offset(table: &[u8]) -> usize {
    let mut starts = (0..table.len()).step_by(4096).filter(|&at| at + HEADER_BYTES <= table.len());
    starts.find(|&at| Header::decode(&table[at..]).is_ok()).expect("a filter")
}

fn damage_filters(fs: &MemFs) {
    for (name, mut bytes) in of_kind(fs, ".sst") {
        let at = filter_offset(&bytes);
        bytes[at + 200] ^= 4;
        overwrite(fs, &name, bytes);
    }
}

fn step_all(db: &Db) {
    while db.step().unwrap() {}
}

fn unusable(stats: &Stats) -> u64 {
    stats.keyspaces.iter().map(|keyspace| keyspace.total().unusable_filters).sum()
}

fn assert_sound(db: &Db, expected: &Contents) {
    let findings = examine(db, expected, &absent()).unwrap();
    assert!(findings.errors.is_empty() && findings.damage.is_empty(), "{findings:?}");
    assert_eq!(unusable(&db.stats()), 0);
}

#[test]
fn a_damaged_filter_is_rebuilt_in_the_background_and_the_next_open_finds_it() {
    let (fs, expected) = sample();
    damage_filters(&fs);
    let tables = of_kind(&fs, ".sst");
    let db = store::open(&fs).unwrap();
    let findings = examine(&db, &expected, &absent()).unwrap();
    assert!(findings.errors.is_empty() && findings.damage.len() >= tables.len(), "{findings:?}");
    assert_eq!(unusable(&db.stats()), tables.len() as u64);
    step_all(&db);
    let stats = db.stats();
    assert_eq!((stats.rebuilt_filters, stats.failed_rebuilds, unusable(&stats)), (tables.len() as u64, 0, 0));
    assert!(stats.rebuilt_filter_bytes > 0 && stats.disabled.is_none());
    assert_eq!(of_kind(&fs, ".filter").len(), tables.len());
    assert!(of_kind(&fs, ".sst") == tables, "a table was touched");
    assert_sound(&db, &expected);
    db.close().unwrap();

    let db = store::open(&fs).unwrap();
    assert_sound(&db, &expected);
    let stats = db.stats();
    let counts = stats.keyspaces[0].total().filter;
    assert!(counts.negatives > 20, "{counts:?}");
    assert_eq!((stats.unusable_filters, stats.rebuilt_filters), (0, 0));
    assert_eq!(of_kind(&fs, ".filter").len(), tables.len());
    db.compact().unwrap();
    step_all(&db);
    assert_sound(&db, &expected);
    assert_eq!(of_kind(&fs, ".filter").len(), 0);
}

#[test]
fn background_threads_rebuild_a_damaged_filter() {
    let (fs, expected) = sample();
    damage_filters(&fs);
    for threads in [1, 2] {
        let fs = copy(&fs);
        let db = store::options(&fs).background_threads(threads).open(DIR).unwrap();
        db.open_tables().unwrap();
        db.settle().unwrap();
        assert_eq!(db.stats().rebuilt_filters, of_kind(&fs, ".sst").len() as u64);
        assert_sound(&db, &expected);
    }
}

fn refiltered() -> (MemFs, Contents) {
    let (fs, expected) = sample();
    let db = store::open(&fs).unwrap();
    db.refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(12.0)).unwrap();
    db.close().unwrap();
    (fs, expected)
}

fn check_rebuild(fs: &MemFs, expected: &Contents) -> Result<(), String> {
    let db = store::open(fs).map_err(|error| format!("does not open: {error}"))?;
    let findings = examine(&db, expected, &absent())?;
    if let Some(error) = findings.errors.first() {
        return Err(format!("an error to a reader: {error}"));
    }
    if findings.damage.is_empty() || unusable(&db.stats()) == 0 {
        return Err("nobody notices".into());
    }
    let stepped = || -> sievedb::Result<()> {
        while db.step()? {}
        Ok(())
    };
    stepped().map_err(|error| format!("is not rebuilt: {error}"))?;
    for when in ["rebuilt", "opened again"] {
        let db = if when == "rebuilt" { db.clone() } else { store::open_read_only(&copy(fs)).unwrap() };
        let findings = examine(&db, expected, &absent()).map_err(|wrong| format!("{when}: {wrong}"))?;
        if !findings.errors.is_empty() || !findings.damage.is_empty() || unusable(&db.stats()) > 0 {
            return Err(format!("{when}: {findings:?}"));
        }
    }
    Ok(())
}

#[test]
fn a_flipped_bit_in_any_byte_of_a_filter_file_is_noticed_and_the_filter_rebuilt() {
    let (fs, expected) = refiltered();
    let (name, bytes) = of_kind(&fs, ".filter").pop_first().unwrap();
    let places: Vec<usize> =
        (0..bytes.len()).filter(|at| !(64..4096).contains(at) || at % 197 == 0).collect();
    cases(&places, |&at| {
        let (fs, mut bytes, bit) = (copy(&fs), bytes.clone(), at * 5 % 8);
        bytes[at] ^= 1 << bit;
        overwrite(&fs, &name, bytes);
        check_rebuild(&fs, &expected).map_err(|what| format!("bit {bit} of byte {at} of {name}: {what}"))
    });
}

#[test]
fn a_filter_file_that_is_missing_cut_long_exchanged_or_foreign_is_rebuilt() {
    use sievedb::fs::Fs as _;
    let (fs, expected) = refiltered();
    let (other, _) = refiltered();
    let files: Vec<(String, Vec<u8>)> = of_kind(&fs, ".filter").into_iter().collect();
    assert!(files.len() > 2, "{} filters", files.len());
    let (name, bytes) = &files[0];
    let mut changes: Vec<(String, Option<Vec<u8>>)> = vec![
        ("missing".into(), None),
        ("of another table".into(), Some(files[1].1.clone())),
        ("of another store".into(), Some(of_kind(&other, ".filter").pop_first().unwrap().1)),
        ("a table".into(), Some(of_kind(&fs, ".sst").pop_first().unwrap().1)),
        ("the block alone".into(), Some(bytes[4096..].to_vec())),
        ("longer".into(), Some([&bytes[..], &[0]].concat())),
    ];
    let cuts = [0, 1, 63, 64, 4095, 4096, 4097, 4096 + HEADER_BYTES, bytes.len() - 1];
    changes.extend(cuts.map(|len| (format!("cut to {len}"), Some(bytes[..len].to_vec()))));
    cases(&changes, |(what, change)| {
        let fs = copy(&fs);
        match change {
            Some(bytes) => overwrite(&fs, name, bytes.clone()),
            None => fs.remove(&Path::new(DIR).join(name)).unwrap(),
        }
        check_rebuild(&fs, &expected).map_err(|wrong| format!("{name} {what}: {wrong}"))
    });
}

#[test]
fn an_older_filter_of_the_table_is_not_taken_for_the_one_in_the_manifest() {
    let (fs, expected) = refiltered();
    let older = of_kind(&fs, ".filter");
    let db = store::open(&fs).unwrap();
    db.refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(6.0)).unwrap();
    db.close().unwrap();
    let newer = of_kind(&fs, ".filter");
    assert_eq!(newer.len(), older.len());
    assert!(older.keys().all(|name| !newer.contains_key(name)), "a number was given twice, or a file stayed");
    let owner = |bytes: &[u8]| Header::decode(&bytes[4096..]).unwrap().owner;
    for (name, bytes) in newer {
        let same = older.values().find(|older| owner(older) == owner(&bytes)).unwrap();
        overwrite(&fs, &name, same.clone());
    }
    check_rebuild(&fs, &expected).unwrap();
}

#[test]
fn refilter_changes_kind_and_size_of_existing_filters_without_rewriting_tables() {
    let (fs, expected) = sample();
    let db = store::open(&fs).unwrap();
    let tables = of_kind(&fs, ".sst");
    let held = |fs: &MemFs| -> Vec<(Kind, usize)> {
        let block = |bytes: Vec<u8>| (Header::decode(&bytes[4096..]).unwrap().kind, bytes.len());
        of_kind(fs, ".filter").into_values().map(block).collect()
    };
    let mut sizes = Vec::new();
    for (filter, kind) in [
        (FilterPolicy::new(FilterKind::Ribbon).bits_per_key(6.0), Kind::Ribbon),
        (FilterPolicy::new(FilterKind::Bloom).bits_per_key(10.0), Kind::Bloom),
        (FilterPolicy::new(FilterKind::Bloom).bits_per_key(40.0), Kind::Bloom),
        (FilterPolicy::new(FilterKind::BlockedBloom).bits_per_key(30.0), Kind::BlockedBloom),
    ] {
        db.refilter(filter).unwrap();
        assert_eq!(held(&fs).len(), tables.len());
        assert!(held(&fs).iter().all(|(found, _)| *found == kind), "{:?}", held(&fs));
        assert_eq!(db.default_keyspace().options(), db.default_keyspace().options().filter(filter));
        assert!(of_kind(&fs, ".sst") == tables, "a table was touched");
        assert_sound(&db, &expected);
        sizes.push(held(&fs).iter().map(|(_, len)| len).sum::<usize>());
    }
    assert!(sizes[1] < sizes[2], "{sizes:?}");
    assert_eq!(db.stats().rebuilt_filters, 4 * tables.len() as u64);
    db.refilter(FilterPolicy::new(FilterKind::None)).unwrap();
    assert_eq!((held(&fs), db.stats().keyspaces[0].total().filter_bytes), (Vec::new(), 0));
    assert_sound(&db, &expected);
    db.close().unwrap();
    let db = store::options(&fs).default_keyspace(store::small().filter(FilterPolicy::new(FilterKind::None)));
    let db = db.open(DIR).unwrap();
    assert_sound(&db, &expected);
    assert_eq!(db.stats().keyspaces[0].total().filter_bytes, 0);
    let wrong = FilterPolicy::new(FilterKind::Bloom).bits_per_key(-1.0);
    assert!(matches!(db.refilter(wrong), Err(Error::InvalidArgument { .. })));
}

#[test]
fn an_old_filter_file_is_removed_only_when_no_reader_can_use_it() {
    let (fs, expected) = refiltered();
    let first = of_kind(&fs, ".filter");
    let db = store::open(&fs).unwrap();
    let iter = db.iter();
    db.refilter(FilterPolicy::new(FilterKind::Ribbon)).unwrap();
    db.refilter(FilterPolicy::new(FilterKind::Bloom).bits_per_key(5.0)).unwrap();
    step_all(&db);
    let now = of_kind(&fs, ".filter");
    assert_eq!(now.len(), 2 * first.len(), "those that the iterator's tables have, and the newest");
    assert!(first.keys().all(|name| now.contains_key(name)));
    assert_eq!(iter.count(), expected["default"].len());
    step_all(&db);
    let now = of_kind(&fs, ".filter");
    assert_eq!(now.len(), first.len());
    assert!(first.keys().all(|name| !now.contains_key(name)));
    assert_sound(&db, &expected);
    let iter = db.iter();
    db.compact().unwrap();
    step_all(&db);
    assert_eq!(of_kind(&fs, ".filter").len(), first.len(), "the iterator's");
    assert_eq!(iter.count(), expected["default"].len());
    step_all(&db);
    assert_eq!((of_kind(&fs, ".filter").len(), db.stats().keyspaces[0].total().set_aside_tables), (0, 0));
    assert_sound(&db, &expected);
}

#[test]
fn a_read_only_store_with_damaged_filters_writes_nothing() {
    let (fs, expected) = refiltered();
    for (name, mut bytes) in of_kind(&fs, ".filter") {
        bytes[4200] ^= 1;
        overwrite(&fs, &name, bytes);
    }
    let before = store::files(&fs);
    fs.observe(|_, op| panic!("a read-only store does {op:?}"));
    let db = store::options(&fs).background_threads(2).read_only().open(DIR).unwrap();
    let findings = examine(&db, &expected, &absent()).unwrap();
    assert!(findings.errors.is_empty() && !findings.damage.is_empty());
    assert!(unusable(&db.stats()) > 0 && !db.step().unwrap());
    assert!(matches!(db.refilter(FilterPolicy::default()), Err(Error::ReadOnly)));
    db.close().unwrap();
    assert!(store::files(&fs) == before);
}

#[test]
fn in_strict_mode_damage_of_a_filter_is_an_error_until_it_is_rebuilt() {
    let (fs, expected) = sample();
    damage_filters(&fs);
    let db = store::options(&fs).strict_filters(true).open(DIR).unwrap();
    let is_damage = |error: &Error| matches!(error, Error::Corruption { file, .. } if file.starts_with(DIR));
    let mut refused = 0;
    for n in 0..KEYS {
        assert!(is_damage(&db.get(key(n)).unwrap_err()));
        assert!(is_damage(&db.multi_get(&[key(n)]).unwrap_err()));
        assert!(db.may_contain(key(n)));
        match db.contains(key(n) + " not there") {
            Err(error) => refused += u64::from(is_damage(&error)),
            Ok(found) => assert!(!found, "no table's keys reach over it, no filter is asked"),
        }
    }
    assert!(refused > KEYS / 2);
    assert_eq!(contents(&db).unwrap(), expected, "scans ask no filter");
    step_all(&db);
    assert_sound(&db, &expected);
}

fn damage_data(fs: &MemFs, name: &str) {
    let mut bytes = of_kind(fs, ".sst")[name].clone();
    bytes[64 + 30] ^= 1;
    overwrite(fs, name, bytes);
}

#[test]
fn a_filter_whose_table_cannot_be_read_is_tried_once_and_writing_goes_on() {
    let (fs, _) = sample();
    damage_filters(&fs);
    let tables = of_kind(&fs, ".sst");
    let broken = tables.keys().next().unwrap();
    damage_data(&fs, broken);
    let db = store::open(&fs).unwrap();
    db.open_tables().unwrap();
    for _ in 0..3 {
        step_all(&db);
        let stats = db.stats();
        assert_eq!((stats.failed_rebuilds, stats.rebuilt_filters), (1, tables.len() as u64 - 1));
        assert_eq!((unusable(&stats), stats.disabled), (1, None));
    }
    db.put("after", "all").unwrap();
    db.flush().unwrap();
    let refused = db.refilter(FilterPolicy::new(FilterKind::Ribbon)).unwrap_err();
    assert!(matches!(&refused, Error::Corruption { file, .. } if file.ends_with(broken)), "{refused}");
    let stats = db.stats();
    assert_eq!((stats.failed_rebuilds, stats.rebuilt_filters), (2, 2 * tables.len() as u64 - 1));
    assert_eq!(db.get("after").unwrap().as_deref(), Some(&b"all"[..]));
    assert_eq!(of_kind(&fs, ".filter").len(), tables.len());
}

#[test]
fn a_table_that_a_compaction_cannot_read_is_set_aside_and_writes_go_on() {
    let (fs, _) = sample();
    let db = store::open(&fs).unwrap();
    (0..KEYS).for_each(|n| db.put(key(n), [1; 30]).unwrap());
    db.flush().unwrap();
    step_all(&db);
    db.close().unwrap();
    let broken = of_kind(&fs, ".sst").into_keys().next().unwrap();
    damage_data(&fs, &broken);
    let db = store::open(&fs).unwrap();
    assert!(db.compact().is_err_and(|error| error.is_corruption()), "who asks for it is told");
    let stats = db.stats();
    assert_eq!((stats.keyspaces[0].total().set_aside_tables, stats.disabled), (1, None));
    let writes = (0..4000).map(|n| db.put(format!("new {n:06}"), [2; 40])).find_map(Result::err);
    let stats = db.stats();
    assert!(writes.is_none() && stats.disabled.is_none(), "{writes:?}");
    assert!(stats.batches > 500, "only {} batches", stats.batches);
    assert_eq!(db.get("new 000000").unwrap().as_deref(), Some(&[2; 40][..]));
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Heal,
    Refilter,
}

impl Work {
    const ALL: [Self; 2] = [Self::Heal, Self::Refilter];

    fn prepare(self) -> (MemFs, Contents) {
        let (fs, expected) = refiltered();
        if matches!(self, Self::Heal) {
            for (name, mut bytes) in of_kind(&fs, ".filter") {
                bytes[4300] ^= 1;
                overwrite(&fs, &name, bytes);
            }
        }
        (fs, expected)
    }

    fn open(fs: &MemFs) -> sievedb::Result<Db> {
        let db = store::open(fs)?;
        db.open_tables()?;
        Ok(db)
    }

    fn carry_out(self, db: &Db) -> sievedb::Result<()> {
        if matches!(self, Self::Refilter) {
            db.refilter(FilterPolicy::new(FilterKind::Ribbon).bits_per_key(7.0))?;
        }
        while db.step()? {}
        Ok(())
    }

    fn check(self, fs: &MemFs, expected: &Contents) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let db = Self::open(fs).map_err(text)?;
        let findings = examine(&db, expected, &absent())?;
        if let Some(error) = findings.errors.first() {
            return Err(format!("an error to a reader: {error}"));
        }
        if matches!(self, Self::Refilter) && !findings.damage.is_empty() {
            return Err(format!("{:?}", findings.damage));
        }
        self.carry_out(&db).map_err(text)?;
        let findings = examine(&db, expected, &absent())?;
        let (tables, filters) = (of_kind(fs, ".sst").len(), of_kind(fs, ".filter").len());
        if !findings.damage.is_empty() || unusable(&db.stats()) > 0 || tables != filters {
            return Err(format!("done again: {findings:?}, {filters} filters of {tables} tables"));
        }
        db.close().map_err(text)
    }
}

#[test]
fn filter_files_are_durable_before_the_manifest_names_them_and_removed_after() {
    for work in Work::ALL {
        let (fs, _) = work.prepare();
        let audit = Audit::watch(&fs);
        let db = Work::open(&fs).unwrap();
        work.carry_out(&db).unwrap();
        db.close().unwrap();
        let audit = audit.lock().unwrap();
        assert!(audit.violations.is_empty(), "{work:?}: {:#?}", audit.violations);
        assert!(audit.checks["filters are durable before the manifest"] > 2, "{:?}", audit.checks);
    }
}

#[test]
fn a_power_loss_at_any_operation_of_a_filter_rebuild_costs_no_answer() {
    for work in Work::ALL {
        let (fs, expected) = work.prepare();
        let db = Work::open(&fs).unwrap();
        let images = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&images);
        fs.observe(move |fs, op| {
            let mut taken = taken.lock().unwrap();
            let salt = taken.len() as u64;
            let random = |n| CrashPolicy::Random(salt * 10 + n);
            for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, random(1)] {
                taken.push((fs.crash(policy), format!("{op:?}, {policy:?}")));
            }
            Ok(())
        });
        work.carry_out(&db).unwrap();
        fs.stop_observing();
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 60, "{} images", images.len());
        cases(&images, |(image, at)| {
            work.check(image, &expected)
                .map_err(|what| format!("{work:?}, {}: {what}", &at[..at.len().min(90)]))
        });
    }
}

#[test]
fn an_operation_that_fails_during_a_filter_rebuild_costs_no_answer() {
    for work in Work::ALL {
        let mut at = 0;
        loop {
            let (fs, expected) = work.prepare();
            let db = Work::open(&fs).unwrap();
            let (count, hit) = (AtomicU64::new(0), Arc::new(Mutex::new(None::<String>)));
            let note = Arc::clone(&hit);
            fs.observe(move |_, op| {
                if format!("{op:?}").contains("RESERVE") || count.fetch_add(1, Ordering::SeqCst) != at {
                    return Ok(());
                }
                *note.lock().unwrap() = Some(format!("{op:?}").chars().take(60).collect());
                Err(std::io::Error::other("input/output error"))
            });
            let result = work.carry_out(&db);
            fs.stop_observing();
            let Some(op) = hit.lock().unwrap().take() else { break };
            let is_removal = op.starts_with("Remove");
            assert_eq!(result.is_ok(), is_removal, "{work:?}, {op}: {result:?}");
            let is_disabled = db.stats().disabled.is_some();
            assert!(!is_disabled || op.starts_with("Sync"), "{work:?}, {op}");
            let findings = examine(&db, &expected, &absent()).unwrap();
            assert!(findings.errors.is_empty(), "{work:?}, {op}: {findings:?}");
            assert_eq!(db.put("k", "v").is_err(), is_disabled, "{work:?}, {op}");
            if !is_disabled {
                db.delete("k").unwrap();
            }
            let after_power_loss = fs.crash(CrashPolicy::DropUnsynced);
            drop(db);
            for image in [fs, after_power_loss] {
                work.check(&image, &expected).unwrap_or_else(|what| panic!("{work:?}, {op}: {what}"));
            }
            at += 1;
        }
        assert!(at > 10, "{work:?} does only {at} operations");
    }
}

#[test]
fn filters_change_under_readers_and_writers_and_no_key_is_ever_missed() {
    let fs = MemFs::new();
    let tiny: KeyspaceOptions = store::small().memtable_bytes(16 << 10);
    let options = store::options(&fs).background_threads(2).memory_budget(4 << 20).default_keyspace(tiny);
    let db = options.open(DIR).unwrap();
    let keys = 1500;
    (0..keys).for_each(|n| db.put(key(n), 0u64.to_le_bytes()).unwrap());
    db.flush().unwrap();
    let done = AtomicBool::new(false);
    let absent_answers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let mut rng = Rng::new(writer);
                let mut known = vec![0u64; keys as usize];
                while !done.load(Ordering::Acquire) {
                    let n = rng.below(keys / 2) * 2 + writer;
                    let found = db.get(key(n)).unwrap().expect("a key that is never deleted");
                    assert_eq!(found[..], known[n as usize].to_le_bytes()[..], "{n}");
                    known[n as usize] += 1;
                    db.put(key(n), known[n as usize].to_le_bytes()).unwrap();
                }
            });
        }
        for reader in 0..2 {
            let (db, done, absent_answers) = (&db, &done, &absent_answers);
            scope.spawn(move || {
                let mut rng = Rng::new(100 + reader);
                while !done.load(Ordering::Acquire) {
                    let n = rng.below(keys);
                    assert!(db.contains(key(n)).unwrap() && db.may_contain(key(n)), "{n}");
                    assert!(!db.contains(key(n) + "x").unwrap(), "{n}");
                    absent_answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _done = Done(&done);
        for round in 0..12 {
            let kinds = [FilterKind::Ribbon, FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::None];
            let policy = FilterPolicy::new(kinds[round % 4]).bits_per_key(4.0 + round as f64);
            db.refilter(policy).unwrap();
        }
    });
    db.settle().unwrap();
    let stats = db.stats();
    assert!(stats.rebuilt_filters > 20 && absent_answers.load(Ordering::Relaxed) > 100, "{stats:?}");
    assert!(stats.audited > 0 && stats.audit_failures == 0 && stats.disabled.is_none(), "{stats:?}");
    db.refilter(FilterPolicy::new(FilterKind::Ribbon).bits_per_key(9.0)).unwrap();
    assert!(db.verify().unwrap().damage.is_empty());
    let total = db.stats().keyspaces[0].total();
    assert_eq!(total.filter_keys, total.keys);
    db.close().unwrap();
    let db = store::open(&fs).unwrap();
    assert!((0..keys).all(|n| db.contains(key(n)).unwrap()));
}

#[test]
fn filters_of_closed_tables_answer_from_memory() {
    // A tenth of a larger case: 1,000 keyspaces of 24 tables, 256 open files and 64 MiB.
    const KEYSPACES: u32 = 100;
    const TABLES: u32 = 24;
    const ROUNDS: u32 = 5;
    let fs = HookedFs::of_writer(&MemFs::new());
    let open = || {
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        options.memory_budget((64 << 20) / 10).open_files_max(25).open(DIR).unwrap()
    };
    let db = open();
    let options = KeyspaceOptions::new().l0_runs(1000);
    let keyspaces: Vec<_> =
        (0..KEYSPACES).map(|n| db.keyspace(&n.to_string(), options.clone()).unwrap()).collect();
    for table in 0..TABLES {
        for keyspace in &keyspaces {
            (0..20).for_each(|key| keyspace.put([key, table].map(u32::to_be_bytes).concat(), "v").unwrap());
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
    drop(keyspaces);

    let db = open();
    let keyspaces: Vec<_> = (0..KEYSPACES).map(|n| db.existing_keyspace(&n.to_string()).unwrap()).collect();
    let total = || {
        let stats = db.stats();
        let totals = stats.keyspaces.iter().map(|keyspace| keyspace.total());
        totals.fold((0, 0, 0), |(tables, open, negatives), total| {
            (tables + total.tables, open + total.open_tables, negatives + total.filter.negatives)
        })
    };
    let ask = |round: u32| {
        for keyspace in &keyspaces {
            assert!(!keyspace.contains([3, 1000 + round].map(u32::to_be_bytes).concat()).unwrap());
        }
    };
    ask(0);
    while db.step().unwrap() {}
    assert!(total().0 == u64::from(KEYSPACES * TABLES) && total().1 < total().0 / 2, "{:?}", total());
    let (operations, negatives) = (fs.operations(), total().2);
    (1..=ROUNDS).for_each(ask);
    let (operations, negatives) = (fs.operations() - operations, total().2 - negatives);
    let asked = u64::from(ROUNDS * KEYSPACES * TABLES);
    assert!(negatives > asked * 97 / 100, "{negatives} of {asked}");
    assert!(operations <= 5 * (asked - negatives), "{operations} for {} false positives", asked - negatives);
    let memory = db.stats().memory;
    assert!(memory.total() <= memory.budget && db.stats().open_files <= 25, "{memory:?}");
}
