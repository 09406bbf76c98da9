//! Operations on a store against sorted maps, with crashes and reopening.
//!
//! # Strategy
//!
//! The first bytes choose the options: a filter of any kind, and sizes so small that a few dozen writes make several
//! levels. The other bytes are operations (a byte for the kind, then parameters) on two keyspaces with a few keys of
//! unusual shapes. The second keyspace expires by a clock of the input. There are no background threads, so inputs are
//! deterministic, except for file ids.
//!
//! # Invariants
//!
//! - Every answer equals the map's: lookups, ranges from both ends, prefixes, many keys at a time. Snapshots and
//!   transactions see the map at their creation. A transaction conflicts if and only if it writes, and an entry that it
//!   read was written since.
//! - `may_contain` is never false for a present key.
//! - Expired entries stay hidden, even after a crash, except in older snapshots.
//! - After a crash, the store has the contents after some batch, at least after the last durable one.
//! - No operation fails; the files on disk are undamaged.

mod transaction;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::batch::WriteBatch;
use crate::block::Compression;
use crate::db::{Db, Durability, Iter, Keyspace, Snapshot};
use crate::error::Error;
use crate::expiry::options::TimeSource;
use crate::filter::fuzzing::Input;
use crate::filter::{FilterKind, FilterPolicy};
use crate::fs::{CrashPolicy, MemFs};
use crate::options::{KeyspaceOptions, Options};

const DIR: &str = "/db";
const SPACES: usize = 2;
const OPS_MAX: usize = 400;
const BUCKETS: u64 = 100;
const SNAPSHOTS_MAX: usize = 4;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

type Maps = [Map; SPACES];

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut world = World::new(keyspace_options(&mut input), 1 << input.below(8));
    for _ in 0..OPS_MAX {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end();
}

fn keyspace_options(input: &mut Input<'_>) -> KeyspaceOptions {
    let kind = FilterKind::ALL[input.below(FilterKind::ALL.len())];
    let policy = FilterPolicy::new(kind).bits_per_key(f64::from(1 + input.u8() % 200) / 8.0);
    KeyspaceOptions::new()
        .filter(policy)
        .block_bytes(512 << input.below(3))
        .memtable_bytes(1024 << input.below(3))
        .table_bytes(1024 << input.below(3))
        .level_base_bytes(2048 << input.below(3))
        .level_ratio(2 + input.below(3) as u64)
        .l0_runs(1 + input.below(4))
        .compression(if input.flag() { Compression::Lz4 } else { Compression::None })
}

fn expiring(options: KeyspaceOptions) -> KeyspaceOptions {
    options.ttl(Duration::from_secs(BUCKETS)).ttl_buckets(BUCKETS).time_source(TimeSource::Caller)
}

/// A key is one of 64: empty, short, with a long common prefix, with an end of `ff`, or longer than a bound.
fn key(input: &mut Input<'_>) -> Vec<u8> {
    let n = input.u8() % 64;
    match n % 6 {
        0 if n == 0 => Vec::new(),
        0 => vec![n],
        1 => [&b"user:"[..], &[n]].concat(),
        2 => [&[b'p'; 60][..], &[n]].concat(),
        3 => [&[0xff; 3][..], &[n, 0xff]].concat(),
        4 if n == 4 => vec![b'q'; 1500],
        4 => vec![0; usize::from(n)],
        _ => [&b"user:"[..], &[n, 0]].concat(),
    }
}

fn value(input: &mut Input<'_>) -> Vec<u8> {
    let (len, byte) = (input.u8(), input.u8());
    let len = match len {
        255 => 40 << 10,
        200.. => usize::from(len) * 16,
        _ => len.into(),
    };
    (0..len).map(|at| byte ^ (at % 7 * at) as u8).collect()
}

fn bound(input: &mut Input<'_>) -> Bound<Vec<u8>> {
    match input.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(input)),
        _ => Bound::Excluded(key(input)),
    }
}

struct World {
    fs: MemFs,
    keyspace: KeyspaceOptions,
    log_bytes: u64,
    db: Option<Db>,
    /// The maps from the last durable batch on.
    history: Vec<Arc<Maps>>,
    snapshots: Vec<(Snapshot, Arc<Maps>)>,
    /// The time in seconds and in buckets, and the time when all entries had last expired.
    time: u64,
    expired_at: u64,
}

impl World {
    fn new(keyspace: KeyspaceOptions, log_kib: u64) -> Self {
        let mut world = Self {
            fs: MemFs::new(),
            keyspace,
            log_bytes: log_kib << 10,
            db: None,
            history: vec![Arc::default()],
            snapshots: Vec::new(),
            time: 1,
            expired_at: 1,
        };
        world.open();
        world
    }

    fn options(&self) -> Options {
        Options::new()
            .background_threads(0)
            .memory_budget(1 << 20)
            .log_bytes_max(self.log_bytes)
            .open_files_max(8)
            .default_keyspace(self.keyspace.clone())
            .fs(Arc::new(self.fs.clone()))
    }

    fn open(&mut self) {
        self.db = Some(self.options().open(DIR).expect("the store opens"));
        self.tell_time();
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("the store is open")
    }

    fn space(&self, index: usize) -> Keyspace {
        match index {
            0 => self.db().default_keyspace(),
            _ => self.db().keyspace("other", expiring(self.keyspace.clone())).expect("a keyspace opens"),
        }
    }

    fn tell_time(&self) {
        self.space(1).advance_time(Duration::from_secs(self.time)).expect("time goes on");
    }

    /// Advances by a bucket, or until everything expires, which is durable at once.
    fn pass(&mut self, input: &mut Input<'_>) {
        let is_all = input.below(4) == 0 || self.time - self.expired_at >= BUCKETS - 2;
        self.time += if is_all { BUCKETS + 1 } else { 1 };
        self.tell_time();
        if is_all {
            self.expired_at = self.time;
            for maps in &mut self.history {
                Arc::make_mut(maps)[1].clear();
            }
        }
    }

    fn now(&self) -> &Arc<Maps> {
        self.history.last().expect("there is always one")
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(23) {
            0 | 1 => self.write(input, 1),
            2 => self.write_if(input),
            3 => {
                let entries = 1 + input.below(30);
                self.write(input, entries);
            }
            4 => {
                let (keys, space) = ([key(input), key(input), key(input)], input.below(SPACES));
                self.look(&keys, space);
            }
            5 | 6 => {
                let (space, bounds) = (input.below(SPACES), (bound(input), bound(input)));
                let (iter, map) = (self.space(space).range(bounds.clone()), &self.now()[space]);
                walk(iter, map.iter().filter(|(key, _)| within(&bounds, key)), input);
            }
            7 => {
                let (space, mut prefix) = (input.below(SPACES), key(input));
                prefix.truncate(input.below(8));
                let (iter, map) = (self.space(space).prefix(&prefix), &self.now()[space]);
                walk(iter, map.iter().filter(|(key, _)| key.starts_with(&prefix)), input);
            }
            8 if self.snapshots.len() < SNAPSHOTS_MAX => {
                self.snapshots.push((self.db().snapshot(), Arc::clone(self.now())));
            }
            8 | 9 => {
                if let Some(index) = self.snapshots.len().checked_sub(1) {
                    let (snapshot, maps) = self.snapshots.swap_remove(input.below(1 + index).min(index));
                    self.look_back(&snapshot, &maps, &key(input));
                }
            }
            10 => self.space(input.below(SPACES)).flush().expect("a flush succeeds"),
            11 => self.space(input.below(SPACES)).compact().expect("a compaction succeeds"),
            12 | 13 => drop(self.db().step().expect("a step succeeds")),
            14 => {
                self.db().sync().expect("a sync succeeds");
                self.all_durable();
            }
            15 => {
                let options = keyspace_options(input);
                let space = input.below(SPACES);
                let options_of = if space == 0 { options.clone() } else { expiring(options.clone()) };
                self.space(space).set_options(options_of).expect("options are taken");
                self.keyspace = options;
            }
            16 => self.reopen(),
            17 => self.crash(CrashPolicy::KeepAll),
            18 => self.crash(CrashPolicy::DropUnsynced),
            20 => self.delete_range(input),
            19 => {
                let seed = input.u16();
                self.crash(CrashPolicy::Random(seed.into()));
            }
            21 => self.pass(input),
            _ => self.transaction(input),
        }
    }

    fn write(&mut self, input: &mut Input<'_>, entries: usize) {
        let mut maps = Maps::clone(self.now());
        let mut batch = WriteBatch::new();
        let synced = input.below(8) == 7;
        for _ in 0..entries {
            let (kind, key) = (input.u8(), key(input));
            let space = usize::from(kind & 1);
            let keyspace = self.space(space);
            if kind & 30 == 30 {
                let end = self::key(input);
                if key <= end {
                    batch.delete_range_in(&keyspace, &key..&end);
                    maps[space].retain(|other, _| *other < key || *other >= end);
                }
            } else if kind & 6 == 6 {
                batch.delete_in(&keyspace, &key);
                maps[space].remove(&key);
            } else {
                let value = value(input);
                batch.put_in(&keyspace, &key, &value);
                maps[space].insert(key, value);
            }
        }
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        self.db().write_with(batch, durability).expect("a write succeeds");
        self.history.push(Arc::new(maps));
        if synced {
            self.all_durable();
        }
    }

    fn delete_range(&mut self, input: &mut Input<'_>) {
        let mut maps = Maps::clone(self.now());
        let (space, bounds) = (input.below(SPACES), (bound(input), bound(input)));
        let deleted = match (&bounds, input.below(4)) {
            (_, 0) => {
                let prefix = key(input);
                maps[space].retain(|key, _| !key.starts_with(&prefix));
                self.space(space).delete_prefix(prefix)
            }
            ((Bound::Unbounded, Bound::Unbounded), 1) => {
                maps[space].clear();
                self.space(space).clear()
            }
            (
                (
                    Bound::Included(start) | Bound::Excluded(start),
                    Bound::Included(end) | Bound::Excluded(end),
                ),
                _,
            ) if start > end => {
                let reversed = self.space(space).delete_range(&bounds);
                assert!(matches!(reversed, Err(Error::InvalidArgument { .. })));
                return;
            }
            _ => {
                maps[space].retain(|key, _| !within(&bounds, key));
                self.space(space).delete_range(&bounds)
            }
        };
        deleted.expect("a write succeeds");
        self.history.push(Arc::new(maps));
    }

    fn write_if(&mut self, input: &mut Input<'_>) {
        let mut maps = Maps::clone(self.now());
        let (space, kind) = (input.below(SPACES), input.below(9));
        let durability = if input.below(8) == 7 { Durability::Synced } else { Durability::Buffered };
        let (keyspace, map) = (self.space(space), &mut maps[space]);
        let key = key(input);
        let there = map.get(&key).cloned();
        if kind < 3 {
            let entries: Vec<_> =
                (0..1 + input.below(10)).map(|_| (self::key(input), value(input))).collect();
            let (other, then) = (SPACES - 1 - space, (kind == 2).then_some(key));
            let given = entries.iter().cloned();
            let new = match &then {
                None => keyspace.insert_new_many_with(given, durability),
                Some(key) => keyspace.insert_new_many_then_with(given, durability, |new, batch| {
                    batch.put_in(&self.space(other), key, [new.count() as u8]);
                    Ok(())
                }),
            };
            let new = new.expect("a write succeeds");
            for ((key, value), is_new) in entries.into_iter().zip(new.iter()) {
                assert_eq!(is_new, !map.contains_key(&key), "{key:?}");
                map.entry(key).or_insert(value);
            }
            then.map(|key| maps[other].insert(key, vec![new.count() as u8]));
        } else {
            let (before, now) = match kind {
                3 => {
                    let value = value(input);
                    let is_new = keyspace.insert_if_absent_with(&key, &value, durability);
                    assert_eq!(is_new.expect("a write succeeds"), there.is_none());
                    (there.clone(), Some(there.clone().unwrap_or(value)))
                }
                4 | 5 => {
                    let expected = if kind == 4 { there.clone() } else { input.flag().then(|| value(input)) };
                    let new = (!input.flag()).then(|| value(input));
                    let done =
                        keyspace.compare_and_set_with(&key, expected.as_deref(), new.as_deref(), durability);
                    match done.expect("a write succeeds") {
                        Ok(()) => (expected, new),
                        Err(refused) => {
                            assert_ne!(expected, there);
                            (refused.found.map(|value| value.to_vec()), there.clone())
                        }
                    }
                }
                6 => {
                    let mut before = None;
                    let new = keyspace.update_with(&key, durability, |value| {
                        before = value.map(<[u8]>::to_vec);
                        value
                            .is_none_or(|value| value.len() % 3 > 0)
                            .then(|| [value.unwrap_or_default(), b"+"].concat())
                    });
                    (before, new.expect("a write succeeds").map(|value| value.to_vec()))
                }
                7 => {
                    let value = value(input);
                    let before = keyspace.replace_with(&key, &value, durability).expect("a write succeeds");
                    (before.map(|value| value.to_vec()), Some(value))
                }
                _ => {
                    let before = keyspace.remove_with(&key, durability).expect("a write succeeds");
                    (before.map(|value| value.to_vec()), None)
                }
            };
            assert_eq!(before, there, "{key:?}");
            match now {
                Some(now) => map.insert(key, now),
                None => map.remove(&key),
            };
        }
        self.history.push(Arc::new(maps));
        if durability == Durability::Synced {
            self.all_durable();
        }
    }

    fn all_durable(&mut self) {
        self.history.drain(..self.history.len() - 1);
    }

    fn look(&self, keys: &[Vec<u8>], space: usize) {
        let (keyspace, map) = (self.space(space), &self.now()[space]);
        for key in keys {
            let found = keyspace.get(key).expect("a lookup succeeds");
            assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]), "{key:?}");
            assert_eq!(keyspace.contains(key).expect("a lookup succeeds"), map.contains_key(key));
            assert!(keyspace.may_contain(key) || !map.contains_key(key), "a wrong absent of {key:?}");
        }
        let many = keyspace.multi_get(keys).expect("lookups succeed");
        let there = keyspace.multi_contains(keys).expect("lookups succeed");
        for ((key, found), there) in keys.iter().zip(many).zip(there) {
            assert_eq!(
                (found.as_deref(), there),
                (map.get(key).map(|value| &value[..]), map.contains_key(key))
            );
        }
    }

    fn look_back(&self, snapshot: &Snapshot, maps: &Maps, key: &[u8]) {
        for (space, map) in maps.iter().enumerate() {
            let view = snapshot.keyspace(&self.space(space));
            assert_same(view.iter(), map, "a snapshot");
            let found = view.get(key).expect("a lookup succeeds");
            assert_eq!(found.as_deref(), map.get(key).map(|value| &value[..]));
        }
    }

    fn check(&self, maps: &Maps) {
        for (space, map) in maps.iter().enumerate() {
            assert_same(self.space(space).iter(), map, "the store");
        }
        let damage = self.db().verify().expect("it is open").damage;
        assert!(damage.is_empty(), "{damage:?}");
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db.take().expect("it is open").close().expect("closing succeeds");
        let db = self.options().read_only().open(DIR).expect("a reader opens");
        assert_same(db.iter(), &self.now()[0], "a reader");
        drop(db);
        self.open();
        self.all_durable();
        self.check(&Arc::clone(self.now()));
    }

    fn crash(&mut self, policy: CrashPolicy) {
        self.snapshots.clear();
        let image = self.fs.crash(policy);
        self.db = None;
        self.fs = image;
        self.open();
        let found: Vec<Map> = (0..SPACES).map(|space| all(self.space(space).iter())).collect();
        let survivor = self.history.iter().rposition(|maps| maps[..] == found[..]);
        let survivor =
            survivor.expect("what survives a crash is what was, after some batch that may be the last");
        assert!(
            policy != CrashPolicy::KeepAll || found == self.now()[..],
            "nothing is lost with the process"
        );
        self.history.drain(survivor + 1..);
        self.all_durable();
        self.check(&Arc::clone(self.now()));
    }

    fn end(mut self) {
        for (snapshot, maps) in std::mem::take(&mut self.snapshots) {
            self.look_back(&snapshot, &maps, b"user:");
        }
        self.check(&Arc::clone(self.now()));
        self.db().compact().expect("a compaction succeeds");
        self.reopen();
        let files = self.fs.files(Path::new(DIR)).len();
        assert!(files < 500, "{files} files are left");
    }
}

fn within((from, to): &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &Vec<u8>) -> bool {
    let after = match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    let before = match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    };
    after && before
}

fn walk<'a>(
    mut iter: Iter<'_>,
    mut expected: impl DoubleEndedIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    input: &mut Input<'_>,
) {
    let mut ends = u64::from(input.u8());
    loop {
        let front = ends & 1 == 0;
        ends = ends.rotate_right(1) ^ ends >> 3;
        let (found, next) =
            if front { (iter.next(), expected.next()) } else { (iter.next_back(), expected.next_back()) };
        let found = found.map(|item| item.expect("a walk succeeds"));
        assert_eq!(
            found.as_ref().map(|(key, value)| (&key[..], &value[..])),
            next.map(|(k, v)| (&k[..], &v[..]))
        );
        if found.is_none() {
            return;
        }
    }
}

fn all(iter: Iter<'_>) -> Map {
    iter.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).expect("a walk succeeds"))
        .collect()
}

fn assert_same(iter: Iter<'_>, map: &Map, what: &str) {
    let found = all(iter);
    let differs = map.keys().chain(found.keys()).find(|key| found.get(*key) != map.get(*key));
    assert!(differs.is_none(), "{what} and the map differ in {differs:?}");
}
