mod model;
#[cfg(unix)]
mod steps;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{
    Db, Error, Keyspace, KeyspaceOptions, Options, Refresh, SimulatedClock, TimeSource, WriteBatch,
};

use crate::support::store::{self, DIR, small};

const START: u64 = 1_720_000_200_000;

const MINUTE: u64 = 60_000;

fn minutes(minutes: u64) -> Duration {
    Duration::from_millis(minutes * MINUTE)
}

fn hour() -> KeyspaceOptions {
    small().ttl(minutes(60)).ttl_buckets(6)
}

struct Store {
    fs: MemFs,
    clock: SimulatedClock,
    db: Db,
    keyspace: Keyspace,
}

fn options(fs: &MemFs, clock: &SimulatedClock) -> Options {
    store::options(fs).clock(clock.clone())
}

impl Store {
    fn new() -> Self {
        Self::with(hour())
    }

    fn with(keyspace: KeyspaceOptions) -> Self {
        let (fs, clock) = (MemFs::new(), SimulatedClock::at(START));
        let db = options(&fs, &clock).open(DIR).unwrap();
        let keyspace = db.keyspace("k", keyspace).unwrap();
        clock.advance(minutes(10));
        Self { fs, clock, db, keyspace }
    }

    fn after(&self, crash: CrashPolicy) -> Self {
        Self::of(self.fs.crash(crash), self.clock.clone())
    }

    fn of(fs: MemFs, clock: SimulatedClock) -> Self {
        let db = options(&fs, &clock).open(DIR).unwrap();
        let keyspace = db.existing_keyspace("k").unwrap();
        Self { fs, clock, db, keyspace }
    }

    fn closed(self) -> (MemFs, SimulatedClock) {
        self.db.close().unwrap();
        (self.fs, self.clock)
    }

    fn pass(&self, time: u64) {
        self.clock.advance(minutes(time));
        self.work();
    }

    fn work(&self) {
        while self.db.step().unwrap() {}
    }

    fn put(&self, key: &str) {
        self.keyspace.put(key, key).unwrap();
    }

    fn keys(&self) -> String {
        keys(&self.keyspace)
    }

    fn tables(&self) -> usize {
        store::files(&self.fs).keys().filter(|name| name.ends_with(".sst")).count()
    }
}

fn keys(keyspace: &Keyspace) -> String {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    let up: Vec<_> = keyspace.keys().map(|key| text(&key.unwrap())).collect();
    let mut down: Vec<_> = keyspace.keys().rev().map(|key| text(&key.unwrap())).collect();
    down.reverse();
    assert_eq!(up, down);
    let all: Vec<_> = ('a'..='z').map(String::from).collect();
    let found = keyspace.multi_contains(&all).unwrap();
    for (key, found) in all.iter().zip(found) {
        assert_eq!(found, up.contains(key), "{key}");
        assert_eq!(keyspace.get(key).unwrap().is_some(), found, "{key}");
        assert_eq!(keyspace.contains(key).unwrap(), found, "{key}");
        assert!(!found || keyspace.may_contain(key), "{key}");
    }
    up.concat()
}

#[test]
fn entries_live_for_their_time_and_at_most_a_bucket_longer_wherever_they_are() {
    for is_flushed in [false, true] {
        let store = Store::new();
        let flush = || {
            if is_flushed {
                store.db.flush().unwrap()
            }
        };
        store.put("a");
        store.pass(2);
        store.put("b");
        flush();
        store.pass(13);
        store.put("c");
        flush();
        store.pass(54);
        assert_eq!(store.keys(), "abc");
        store.pass(1);
        assert_eq!(store.keys(), "c");
        store.pass(9);
        assert_eq!(store.keys(), "c");
        store.pass(1);
        assert_eq!(store.keys(), "");
        store.put("a");
        assert_eq!(store.keys(), "a");
    }
}

#[test]
fn a_write_restarts_the_time_of_its_key_and_a_refused_insert_does_not() {
    let store = Store::new();
    ["a", "b", "c", "d"].into_iter().for_each(|key| store.put(key));
    store.pass(20);
    store.put("a");
    assert_eq!(store.keyspace.update("b", |_| Some(b"b".to_vec())).unwrap().unwrap(), "b");
    assert!(!store.keyspace.insert_if_absent("c", "").unwrap());
    store.keyspace.delete("d").unwrap();
    assert_eq!(store.keys(), "abc");
    store.pass(50);
    assert_eq!(store.keys(), "ab");
    let new = store.keyspace.insert_new_many([("a", ""), ("c", ""), ("d", "")]).unwrap();
    assert_eq!(new.iter().collect::<Vec<_>>(), [false, true, true]);
}

#[test]
fn a_refused_insert_restarts_the_time_once_in_a_bucket_if_the_keyspace_wants_that() {
    let store = Store::with(hour().refresh(Refresh::OnSight));
    ["a", "b", "c"].into_iter().for_each(|key| store.put(key));
    store.pass(10);
    let entries = || store.db.stats().entries;
    let before = entries();
    assert!(!store.keyspace.insert_if_absent("a", "other").unwrap());
    let seen = store.keyspace.insert_new_many([("a", ""), ("b", ""), ("b", "")]).unwrap();
    assert_eq!((seen.count(), entries() - before), (0, 2));
    assert!(!store.keyspace.insert_if_absent("b", "other").unwrap());
    assert_eq!(entries() - before, 2, "once in a bucket");
    store.pass(60);
    assert_eq!(store.keys(), "ab");
    assert_eq!(store.keyspace.get("a").unwrap().unwrap(), "a", "it has its value");
    for _ in 0..30 {
        assert!(!store.keyspace.insert_if_absent("a", "").unwrap());
        store.pass(10);
    }
    assert_eq!(store.keys(), "a");
}

#[test]
fn snapshots_iterators_and_transactions_keep_what_they_saw_and_hold_its_tables() {
    let store = Store::new();
    ["a", "b"].into_iter().for_each(|key| store.put(key));
    store.db.flush().unwrap();
    let (snapshot, mut iter) = (store.db.snapshot(), store.keyspace.keys());
    let tables = store.tables();
    assert!(tables > 0);
    store.pass(70);
    assert_eq!((store.keys(), store.tables()), (String::new(), tables));
    let old = snapshot.keyspace(&store.keyspace);
    assert_eq!(old.keys().map(|key| key.unwrap().to_string()).collect::<String>(), "ab");
    assert!(
        old.contains("a").unwrap() && old.multi_contains(&["a", "b", "c"]).unwrap() == [true, true, false]
    );
    let younger = store.db.snapshot();
    assert!(younger.keyspace(&store.keyspace).is_empty().unwrap());
    store.keyspace.delete("c").unwrap();
    drop(old);
    drop(snapshot);
    store.work();
    assert_eq!(iter.next().unwrap().unwrap(), "a");
    assert_eq!(store.tables(), tables, "an iterator has the file");
    assert_eq!(iter.next().unwrap().unwrap(), "b");
    drop(iter);
    store.work();
    assert_eq!(store.tables(), 0);
}

#[test]
fn expired_tables_of_all_keyspaces_go_by_one_edit_and_are_not_read() {
    let store = Store::new();
    let keyspaces: Vec<_> = (0..20).map(|n| store.db.keyspace(&format!("{n}"), hour()).unwrap()).collect();
    for keyspace in &keyspaces {
        keyspace.put("a", "a").unwrap();
    }
    store.db.flush().unwrap();
    store.work();
    assert_eq!(store.tables(), 20);
    let edits = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&edits);
    store.fs.observe(move |_, op| {
        let is_manifest = matches!(&op, Op::Append(path, _) if path.to_string_lossy().contains("MANIFEST"));
        counted.fetch_add(u64::from(is_manifest), Ordering::SeqCst);
        Ok(())
    });
    let reads = store.db.stats().data_block_reads;
    store.pass(70);
    store.fs.stop_observing();
    assert_eq!((store.tables(), edits.load(Ordering::SeqCst)), (0, 2), "the horizons, then the tables");
    assert_eq!((store.db.stats().data_block_reads, store.db.stats().compactions), (reads, 0));
    assert!(keyspaces.iter().all(|keyspace| keyspace.is_empty().unwrap()));
}

#[test]
fn an_update_across_an_expiry_does_not_revive_the_value() {
    let store = Store::new();
    store.keyspace.put("hits", [41]).unwrap();
    store.clock.advance(minutes(69));
    let mut seen = Vec::new();
    let hits = store.keyspace.update("hits", |hits| {
        let hits = hits.map_or(0, |hits| hits[0]);
        seen.push(hits);
        store.pass(1);
        Some(vec![hits + 1])
    });
    assert_eq!((seen, hits.unwrap().unwrap().to_vec()), (vec![41, 0], vec![1]));
    assert_eq!(store.keyspace.get("hits").unwrap().unwrap(), [1]);
}

#[test]
fn inserts_that_follow_from_a_key_that_expires_meanwhile_look_again() {
    let store = Store::new();
    store.put("a");
    store.clock.advance(minutes(69));
    let mut answers = Vec::new();
    let new = store.keyspace.insert_new_many_then([("a", "new"), ("b", "new")], |new, batch| {
        answers.push(new.count());
        store.pass(1);
        batch.put_in(&store.keyspace, "count", [new.count() as u8]);
        Ok(())
    });
    assert_eq!((new.unwrap().count(), answers), (2, vec![1, 2]));
    assert_eq!(store.keyspace.get("count").unwrap().unwrap(), [2]);
}

#[test]
fn a_transaction_conflicts_with_the_expiry_of_an_entry_that_it_has_read_and_with_no_other() {
    for is_range in [false, true] {
        for key in ["a", "b", "c"] {
            let store = Store::new();
            store.put("a");
            store.pass(20);
            store.put("b");
            let tx = store.db.transaction();
            {
                let reads = tx.keyspace(&store.keyspace);
                match is_range {
                    true => drop(reads.range(key..=key).count()),
                    false => drop(reads.get(key).unwrap()),
                }
            }
            store.pass(50);
            tx.put("committed", "");
            let committed = tx.commit();
            match key {
                "a" => assert!(
                    matches!(&committed, Err(Error::Conflict { key, .. }) if &key[..] == b"a"),
                    "{committed:?}"
                ),
                _ => assert!(committed.is_ok(), "{key}: {committed:?}"),
            }
        }
    }
}

#[test]
fn what_a_reader_saw_expire_stays_hidden_after_a_crash_with_a_clock_that_was_set_back() {
    let store = Store::new();
    store.put("a");
    store.db.sync().unwrap();
    store.pass(30);
    store.put("b");
    store.db.sync().unwrap();
    store.pass(40);
    assert_eq!(store.keys(), "b");
    store.clock.step_to(START);
    for crash in [CrashPolicy::KeepAll, CrashPolicy::DropUnsynced] {
        let again = store.after(crash);
        assert_eq!(again.keys(), "b");
        again.work();
        assert_eq!(again.keys(), "b");
        let (fs, clock) = again.closed();
        assert_eq!(Store::of(fs, clock).keys(), "b");
    }
}

#[test]
fn a_power_loss_that_takes_the_end_of_the_log_hides_no_later_entry() {
    let store = Store::new();
    store.db.sync().unwrap();
    // These entries are neither durable nor flushed.
    (0..9).for_each(|_| store.put("a"));
    store.pass(70);
    assert_eq!(store.keys(), "");
    let again = store.after(CrashPolicy::DropUnsynced);
    again.put("b");
    assert_eq!(again.keys(), "b");
    again.work();
    assert_eq!(again.keys(), "b");
}

#[test]
fn a_power_loss_leaves_no_entry_in_an_earlier_bucket_than_it_was_written_in() {
    for lost in 0..4 {
        let store = Store::new();
        store.put("a");
        store.db.sync().unwrap();
        store.pass(40);
        (0..lost).for_each(|_| store.put("x"));
        let again = match lost {
            0 => store.after(CrashPolicy::DropUnsynced),
            n => store.after(CrashPolicy::Random(n)),
        };
        again.clock.advance(minutes(10));
        again.put("b");
        again.pass(59);
        assert!(again.keys().contains('b'), "{lost}");
        again.pass(11);
        assert_eq!(again.keys(), "", "{lost}");
    }
}

#[test]
fn bad_input_is_refused_and_writes_nothing() {
    let store = Store::new();
    let caller = store.db.keyspace("caller", hour().time_source(TimeSource::Caller)).unwrap();
    caller.advance_time(minutes(100)).unwrap();
    store.put("a");
    store.work();
    let files = store::files(&store.fs);
    let ttl = |millis| KeyspaceOptions::new().ttl(Duration::from_millis(millis));
    let decade = 315_576_000_000;
    for options in [
        ttl(0),
        ttl(999),
        ttl(decade + 1),
        KeyspaceOptions::new().ttl(Duration::MAX),
        KeyspaceOptions::new().ttl(Duration::from_nanos(1_500_000_001)),
        ttl(1000).ttl_buckets(0),
        ttl(1000).ttl_buckets(129),
        KeyspaceOptions::new().ttl_buckets(3),
        KeyspaceOptions::new().refresh(Refresh::OnSight),
        KeyspaceOptions::new().time_source(TimeSource::Caller),
    ] {
        let created = store.db.keyspace("new", options.clone());
        assert!(matches!(created, Err(Error::InvalidArgument { .. })), "{options:?}");
        let set = store.keyspace.set_options(options.clone());
        assert!(matches!(set, Err(Error::InvalidArgument { .. })), "{options:?}");
        let opened = self::options(&MemFs::new(), &store.clock).default_keyspace(options.clone()).open(DIR);
        assert!(matches!(opened, Err(Error::InvalidArgument { .. })), "{options:?}");
    }
    let is_invalid = |result| matches!(result, Err(Error::InvalidArgument { .. }));
    assert!(is_invalid(store.keyspace.set_options(hour().time_source(TimeSource::Caller))));
    assert!(is_invalid(store.keyspace.advance_time(minutes(1000))), "it has the clock of the system");
    assert!(is_invalid(store.db.default_keyspace().advance_time(minutes(1000))), "nothing expires in it");
    for time in [Duration::ZERO, minutes(99), Duration::MAX] {
        assert!(is_invalid(caller.advance_time(time)), "{time:?}");
    }
    for time in [u64::MAX, 253_402_300_800_000] {
        store.clock.step_to(time);
        let mut batch = WriteBatch::new();
        batch.put_in(&store.keyspace, "b", "").put("b", "");
        let written = [
            store.keyspace.put("b", ""),
            store.keyspace.insert_if_absent("b", "").map(drop),
            store.keyspace.update("b", |_| Some(vec![])).map(drop),
            store.db.write(batch),
            store.keyspace.set_options(hour().ttl_buckets(3)),
        ];
        assert!(written.iter().all(|written| matches!(written, Err(Error::Clock { .. }))), "{written:?}");
        assert_eq!(store.keys(), "a");
    }
    assert_eq!(store::files(&store.fs), files);
    store.db.put("b", "").unwrap();
    caller.put("b", "").unwrap();
    store.clock.step_to(START);
    store.put("b");
    assert_eq!(store.keys(), "ab");
    for options in [ttl(1000).ttl_buckets(128), ttl(decade).ttl_buckets(1)] {
        store.keyspace.set_options(options.clone()).unwrap();
        assert_eq!(store.keyspace.options(), options);
    }
    store.db.drop_keyspace("caller").unwrap();
    assert!(matches!(caller.advance_time(minutes(1000)), Err(Error::KeyspaceDropped { .. })));
}

#[test]
fn a_clock_that_is_set_back_lets_entries_live_longer() {
    let store = Store::new();
    store.put("a");
    store.pass(10);
    store.put("b");
    store.clock.step_to(START);
    store.put("c");
    store.pass(69);
    assert_eq!(store.keys(), "abc");
    store.clock.step_to(START + 80 * MINUTE);
    store.work();
    assert_eq!(store.keys(), "bc");
}

#[test]
fn a_leap_of_the_clock_at_an_opening_hides_entries_and_removes_nothing_until_it_is_certain() {
    let store = Store::new();
    store.put("a");
    store.db.flush().unwrap();
    let (fs, clock) = store.closed();
    let year = 365 * 24 * 60 * MINUTE;
    clock.step_to(clock.now() + year);
    let store = Store::of(fs, clock);
    assert_eq!(store.keys(), "");
    let leap = store.db.open_report().clock_leap.unwrap();
    assert_eq!((leap.as_millis() as u64, store.db.stats().clock_leap), (year, Some(leap)));
    store.pass(9);
    assert_eq!((store.keys(), store.tables()), (String::new(), 1));
    store.put("b");
    let back = store.after(CrashPolicy::KeepAll);
    back.clock.step_to(START + 20 * MINUTE);
    let back = back.after(CrashPolicy::KeepAll);
    assert_eq!((back.keys(), back.db.open_report().clock_leap), ("ab".to_owned(), None));
    let image = store.fs.crash(CrashPolicy::KeepAll);
    let store = Store::of(image, SimulatedClock::at(START + year + 20 * MINUTE));
    assert!(store.db.open_report().clock_leap.is_some());
    assert_eq!((store.keys(), store.tables()), ("b".to_owned(), 1));
    store.pass(10);
    assert_eq!((store.keys(), store.tables(), store.db.stats().clock_leap), ("b".to_owned(), 0, None));
    store.pass(59);
    assert_eq!(store.keys(), "b");
    store.pass(1);
    assert_eq!(store.keys(), "");
}

#[test]
fn entries_of_short_runs_that_are_days_apart_are_not_lost_because_each_begins_with_a_leap() {
    let store = Store::new();
    store.put("z");
    let (mut fs, clock) = store.closed();
    for run in 0..5 {
        clock.step_to(clock.now() + 24 * 60 * MINUTE);
        let store = Store::of(fs, clock.clone());
        store.put(["a", "b", "c", "d", "e"][run]);
        store.work();
        assert_eq!(store.keys(), "abcde"[..=run], "their times are not certain");
        store.clock.advance(minutes(1));
        if run == 4 {
            store.pass(10);
            store.put("f");
            store.pass(59);
            assert_eq!(store.keys(), "abcdef");
            store.pass(11);
            assert_eq!(store.keys(), "");
        }
        fs = store.closed().0;
    }
}

#[test]
fn a_leap_while_the_store_is_open_is_a_leap_too() {
    let store = Store::new();
    store.put("a");
    store.db.flush().unwrap();
    store.clock.step_to(store.clock.now() + 1000 * MINUTE);
    store.work();
    assert_eq!((store.keys(), store.tables()), (String::new(), 1));
    assert!(store.db.stats().clock_leap.is_some());
    store.put("b");
    store.pass(10);
    assert_eq!((store.keys(), store.tables()), ("b".to_owned(), 0));
}

#[test]
fn horizons_rise_on_time_after_a_leap_of_the_clock_was_corrected() {
    let store = Store::new();
    store.put("a");
    let now = store.clock.now();
    store.clock.step_to(now + 1000 * MINUTE);
    store.work();
    assert_eq!(store.keys(), "");
    store.clock.step_to(now);
    store.work();
    store.pass(70);
    store.clock.step_to(now);
    assert_eq!(store.after(CrashPolicy::KeepAll).keys(), "", "the horizon is durable");
}

#[test]
fn options_that_are_changed_apply_to_the_entries_that_are_visible() {
    let store = Store::new();
    store.put("a");
    store.pass(30);
    store.put("b");
    store.pass(40);
    assert_eq!(store.keys(), "b");
    store.keyspace.set_options(small().ttl(minutes(600)).ttl_buckets(6)).unwrap();
    assert_eq!(store.keys(), "b");
    store.pass(60);
    assert_eq!(store.keys(), "b");
    store.put("c");
    store.keyspace.set_options(small().ttl(minutes(20)).ttl_buckets(20)).unwrap();
    store.work();
    assert_eq!(store.keys(), "c");
    store.pass(19);
    assert_eq!(store.keys(), "c");
    store.pass(2);
    assert_eq!(store.keys(), "");
    store.put("d");
    store.keyspace.set_options(small()).unwrap();
    store.pass(100);
    assert_eq!(store.keys(), "d");
    store.put("e");
    store.keyspace.set_options(hour()).unwrap();
    for store in [&store.after(CrashPolicy::DropUnsynced), &store.after(CrashPolicy::KeepAll), &store] {
        let before = store.keys();
        store.pass(59);
        assert_eq!(store.keys(), before, "old entries count as written when the time to live was set");
        store.pass(1);
        assert_eq!(store.keys(), "");
        store.clock.step_to(store.clock.now() - 60 * MINUTE);
    }
}

#[test]
fn the_default_keyspace_gets_its_time_to_live_when_the_store_is_opened() {
    let (fs, clock) = (MemFs::new(), SimulatedClock::at(START));
    let db = options(&fs, &clock).open(DIR).unwrap();
    db.put("a", "").unwrap();
    db.close().unwrap();
    clock.advance(minutes(600));
    let db = options(&fs, &clock).default_keyspace(hour()).open(DIR).unwrap();
    assert!(db.contains("a").unwrap());
    clock.advance(minutes(59));
    while db.step().unwrap() {}
    assert!(db.contains("a").unwrap());
    clock.advance(minutes(1));
    while db.step().unwrap() {}
    assert!(!db.contains("a").unwrap());
}

#[test]
fn caller_time_moves_by_its_calls_alone_and_goes_on_after_an_opening() {
    let store = Store::with(hour().time_source(TimeSource::Caller));
    store.put("a");
    store.pass(1000);
    assert_eq!(store.keys(), "a");
    store.keyspace.advance_time(minutes(1000)).unwrap();
    assert_eq!(store.keys(), "a");
    store.keyspace.advance_time(minutes(1005)).unwrap();
    store.put("b");
    store.keyspace.advance_time(minutes(1020)).unwrap();
    store.put("c");
    store.pass(100_000);
    assert_eq!(store.keys(), "abc");
    store.keyspace.advance_time(minutes(1060)).unwrap();
    assert_eq!(store.keys(), "bc", "at once, without a step");
    let again = store.after(CrashPolicy::KeepAll);
    assert_eq!(again.keys(), "bc");
    assert!(again.keyspace.advance_time(minutes(1000)).is_err());
    again.keyspace.advance_time(minutes(1_000_000)).unwrap();
    assert_eq!((again.keys(), again.db.stats().clock_leap), (String::new(), None));
}

#[test]
fn caller_time_after_an_opening_is_that_of_the_newest_bucket_with_a_write() {
    for sets_time in [false, true] {
        let store = Store::with(hour().time_source(TimeSource::Caller));
        store.keyspace.advance_time(minutes(1000)).unwrap();
        store.put("a");
        store.keyspace.advance_time(minutes(1049)).unwrap();
        let again = store.after(CrashPolicy::KeepAll);
        assert!(again.keyspace.advance_time(minutes(999)).is_err());
        again.keyspace.advance_time(minutes(1000)).unwrap();
        if sets_time {
            again.keyspace.advance_time(minutes(1049)).unwrap();
        }
        again.put("b");
        again.keyspace.advance_time(minutes(1069)).unwrap();
        assert_eq!(again.keys(), "ab");
        again.keyspace.advance_time(minutes(1070)).unwrap();
        let left = if sets_time { "b" } else { "" };
        assert_eq!(again.keys(), left);
        assert_eq!(again.after(CrashPolicy::KeepAll).keys(), left);
    }
}

#[test]
fn a_reader_hides_what_has_expired_when_it_is_opened_or_refreshed() {
    let store = Store::new();
    store.put("a");
    store.clock.advance(minutes(30));
    store.put("b");
    let read_only = || options(&store.fs, &store.clock).read_only().open(DIR).unwrap();
    let see = |reader: &Db| keys(&reader.existing_keyspace("k").unwrap());
    let mut reader = read_only();
    assert_eq!(see(&reader), "ab");
    store.clock.advance(minutes(40));
    assert_eq!(see(&reader), "ab");
    assert_eq!(see(&read_only()), "b");
    assert!(!reader.refresh().unwrap());
    assert_eq!(see(&reader), "b");
    store.put("c");
    store.clock.advance(minutes(70));
    assert!(reader.refresh().unwrap());
    assert_eq!(see(&reader), "");
}

#[test]
fn checkpoints_and_repaired_stores_keep_buckets_and_horizons() {
    for is_flushed in [false, true] {
        let store = Store::new();
        store.put("a");
        store.pass(30);
        store.put("b");
        store.pass(30);
        store.put("c");
        if is_flushed {
            store.db.flush().unwrap();
        }
        store.pass(10);
        assert_eq!(store.keys(), "bc");
        store.db.sync().unwrap();
        store.db.checkpoint("/copy").unwrap();
        let image = store.fs.crash(CrashPolicy::KeepAll);
        let stats = store.db.stats().keyspace("k").unwrap().expiry.clone().unwrap();
        assert_eq!(stats.buckets.len(), usize::from(is_flushed));
        let closed = options(&image, &store.clock).verify(DIR).unwrap();
        for mut verified in [closed, store.db.verify().unwrap()] {
            let verified = verified.expiry.remove("k").unwrap();
            match is_flushed {
                true => assert_eq!(verified, stats),
                false => assert_eq!((verified.horizon, verified.buckets.len()), (stats.horizon, 0)),
            }
        }
        let report = options(&image, &store.clock).repair(DIR, "/copy2").unwrap();
        let kept = report.keyspaces.iter().find(|keyspace| keyspace.name == "k").unwrap();
        let kept = kept.expiry.as_ref().unwrap();
        // The second entry's bucket ends at 50 minutes.
        let next = START + 110 * MINUTE;
        assert_eq!((kept.buckets.len(), kept.next_expiry, stats.next_expiry), (1, Some(next), Some(next)));
        assert!(report.damage.is_empty() && report.doubtful_keys() == 0, "{report:?}");
        assert_eq!(report.lost_writes.len(), 0, "{report:?}");
        for (fs, dir) in [(&store.fs, "/copy"), (&image, "/copy2")] {
            let clock = SimulatedClock::at(store.clock.now());
            let db = options(fs, &clock).open(dir).unwrap();
            let copy = db.existing_keyspace("k").unwrap();
            assert_eq!(keys(&copy), "bc", "{dir}, {is_flushed}");
            clock.advance(minutes(30));
            while db.step().unwrap() {}
            assert_eq!(keys(&copy), "c", "{dir}, {is_flushed}");
            clock.advance(minutes(30));
            while db.step().unwrap() {}
            assert_eq!(keys(&copy), "", "{dir}, {is_flushed}");
        }
    }
}

#[test]
fn a_keyspace_whose_caller_is_behind_the_clock_of_the_system_is_flushed() {
    let clock = SimulatedClock::at(START);
    let db = options(&MemFs::new(), &clock).background_threads(1).open(DIR).unwrap();
    let old = db.keyspace("k", hour().time_source(TimeSource::Caller)).unwrap();
    old.advance_time(minutes(1000)).unwrap();
    (0..400_u32).for_each(|key| old.put(key.to_be_bytes(), [7; 100]).unwrap());
    db.settle().unwrap();
    assert!(db.stats().flushes > 5);
    old.advance_time(minutes(1070)).unwrap();
    assert!(old.is_empty().unwrap());
}

#[test]
fn a_time_to_live_that_is_removed_and_set_again_by_another_clock_leaves_logs_that_open() {
    let store = Store::new();
    store.put("a");
    store.keyspace.set_options(small()).unwrap();
    store.keyspace.set_options(hour().time_source(TimeSource::Caller)).unwrap();
    store.put("b");
    store.keyspace.advance_time(minutes(1000)).unwrap();
    store.put("c");
    store.keyspace.advance_time(minutes(1040)).unwrap();
    store.put("d");
    let again = store.after(CrashPolicy::KeepAll);
    assert_eq!(again.keys(), "abcd");
    again.keyspace.advance_time(minutes(1060)).unwrap();
    assert_eq!(again.keys(), "cd", "entries from before count as written at the first time");
    again.keyspace.advance_time(minutes(1070)).unwrap();
    assert_eq!(again.keys(), "d");
    assert!(again.db.verify().unwrap().damage.is_empty());
}

#[test]
fn snapshots_of_a_store_that_was_opened_again_have_its_horizons() {
    let store = Store::new();
    store.put("a");
    store.db.flush().unwrap();
    store.pass(30);
    store.put("b");
    store.clock.advance(minutes(40));
    let held = store.db.snapshot();
    store.work();
    let again = store.after(CrashPolicy::KeepAll);
    drop(held);
    let snapshot = again.db.snapshot();
    assert_eq!(snapshot.keyspace(&again.keyspace).keys().count(), 1);
    let tx = again.db.transaction();
    assert!(tx.keyspace(&again.keyspace).get("a").unwrap().is_none());
    tx.keyspace(&again.keyspace).put("c", "c");
    tx.commit().unwrap();
    drop(snapshot);
    again.work();
    assert_eq!(
        (again.keys(), again.tables()),
        ("bc".to_owned(), 0),
        "the table of the first entry is dropped"
    );
}

fn workload(store: &Store) -> sievedb::Result<()> {
    for round in 0..12_u8 {
        let key = [b'a' + round];
        store.keyspace.put(key, key)?;
        store.db.put(key, key)?;
        if round % 3 == 1 {
            store.db.flush()?;
        }
        if round % 4 == 2 {
            store.db.sync()?;
        }
        store.clock.advance(minutes(9));
        while store.db.step()? {}
    }
    Ok(())
}

fn check_after(store: &Store, hidden: &BTreeSet<String>, context: &str) {
    let keys = store.keys();
    for key in hidden {
        assert!(!keys.contains(&key[..]), "{context}: {key} of {keys} had expired");
    }
    if store.clock.now() < START + 20 * MINUTE {
        // If the clock was set back, entries live longer.
        return;
    }
    store.put("z");
    store.work();
    assert!(store.keys().contains('z'), "{context}");
    store.pass(59);
    assert!(store.keys().contains('z'), "{context}");
    store.pass(80);
    store.put("y");
    store.work();
    assert_eq!(store.keys(), "y", "{context}");
    assert!(store.db.verify().unwrap().damage.is_empty(), "{context}");
}

#[test]
fn a_crash_at_any_moment_revives_nothing_and_hides_nothing_that_is_new() {
    type Image = (String, MemFs, u64, BTreeSet<String>);
    let store = Store::new();
    let images: Arc<Mutex<Vec<Image>>> = Arc::default();
    let seen: Mutex<BTreeSet<String>> = Mutex::default();
    let (taken, clock, keyspace) = (Arc::clone(&images), store.clock.clone(), store.keyspace.clone());
    store.fs.observe(move |fs, op| {
        let what = format!("{:.60}", format!("{op:?}"));
        let (mut taken, mut seen) = (taken.lock().unwrap(), seen.lock().unwrap());
        let written: Vec<_> = ('a'..='l').map(String::from).collect();
        let found = keyspace.multi_contains(&written).unwrap();
        let mut hidden = BTreeSet::new();
        for (key, found) in written.into_iter().zip(found) {
            match found {
                true => drop(seen.insert(key)),
                false if seen.contains(&key) => drop(hidden.insert(key)),
                false => {}
            }
        }
        let seed = taken.len() as u64;
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, CrashPolicy::Random(seed)] {
            taken.push((
                format!("{what} {policy:?}"),
                fs.crash(policy),
                clock.now(),
                BTreeSet::clone(&hidden),
            ));
        }
        Ok(())
    });
    workload(&store).unwrap();
    store.fs.stop_observing();
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 200, "{}", images.len());
    assert!(images.iter().any(|(.., hidden)| hidden.len() > 3));
    let step = if crate::support::sample::thorough() { 1 } else { 5 };
    for (number, (context, fs, now, hidden)) in images.into_iter().enumerate().step_by(step) {
        let time = if number % 2 == 0 { now } else { START };
        let store = Store::of(fs, SimulatedClock::at(time));
        store.clock.advance(minutes(10));
        store.work();
        check_after(&store, &hidden, &context);
    }
}

#[test]
fn an_operation_that_fails_neither_revives_nor_loses_an_entry() {
    let count = {
        let store = Store::new();
        let ops = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ops);
        store.fs.observe(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        workload(&store).unwrap();
        ops.load(Ordering::SeqCst)
    };
    for failing in (0..count).step_by(3) {
        let store = Store::new();
        let ops = AtomicU64::new(0);
        store.fs.observe(move |_, _| match ops.fetch_add(1, Ordering::SeqCst) {
            op if op == failing => Err(std::io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        });
        let done = workload(&store);
        store.fs.stop_observing();
        let before = store.keys();
        let image = store.after(CrashPolicy::KeepAll);
        let hidden = ('a'..='l').map(String::from).filter(|key| !before.contains(&key[..])).collect();
        check_after(&image, &hidden, &format!("operation {failing}: {done:?}"));
    }
}
