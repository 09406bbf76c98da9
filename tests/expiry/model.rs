//! Histories of a keyspace with expiry, compared with a map that records the minute of each write. There are no
//! background threads, so horizons rise only with writes and steps. An entry expires one time to live after the end of
//! its bucket.

use std::collections::BTreeMap;

use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{Db, Durability, Error, Keyspace, KeyspaceOptions, Snapshot, WriteBatch};

use super::{MINUTE, START, minutes, options};
use crate::support::rng::Rng;
use crate::support::sample::thorough;
use crate::support::store::{DIR, small};

const OPS: usize = 600;

const KEYS: u64 = 60;

type Entries = BTreeMap<String, (Vec<u8>, u64)>;

#[derive(Clone, Copy, Debug)]
struct Times {
    ttl: u64,
    bucket: u64,
}

impl Times {
    fn expires(self, written: u64) -> u64 {
        written / self.bucket * self.bucket + self.bucket + self.ttl
    }
}

struct World {
    fs: MemFs,
    clock: sievedb::SimulatedClock,
    db: Option<Db>,
    times: Times,
    sees: bool,
    now: u64,
    raised: u64,
    entries: Entries,
    lasting: BTreeMap<String, Vec<u8>>,
    snapshots: Vec<(Snapshot, Entries)>,
    next_value: u64,
    reached: Reached,
}

#[derive(Default, Debug)]
struct Reached {
    expired: u64,
    found: u64,
    absent: u64,
    refused: u64,
    conflicts: u64,
    reopenings: u64,
    seen_by_snapshots: u64,
}

fn key(rng: &mut Rng) -> String {
    let n = rng.below(KEYS);
    if n < 26 { char::from(b'a' + n as u8).to_string() } else { format!("z{n}") }
}

fn open(fs: &MemFs, clock: &sievedb::SimulatedClock, keyspace: &KeyspaceOptions) -> Db {
    let db = options(fs, clock).open(DIR).unwrap();
    db.keyspace("k", keyspace.clone()).unwrap();
    db
}

impl World {
    fn new(rng: &mut Rng) -> (Self, KeyspaceOptions) {
        let bucket = 1 + rng.below(12);
        let buckets = 1 + rng.below(8);
        let times = Times { ttl: bucket * buckets, bucket };
        let sees = rng.one_in(4);
        let refresh = if sees { sievedb::Refresh::OnSight } else { sievedb::Refresh::OnWrite };
        let keyspace = small().ttl(minutes(times.ttl)).ttl_buckets(buckets).refresh(refresh);
        let start = START - START % (bucket * MINUTE);
        let (fs, clock) = (MemFs::new(), sievedb::SimulatedClock::at(start));
        let db = open(&fs, &clock, &keyspace);
        clock.advance(minutes(bucket));
        let now = start / MINUTE + bucket;
        let world = Self {
            fs,
            clock,
            db: Some(db),
            times,
            sees,
            now,
            raised: now,
            entries: BTreeMap::new(),
            lasting: BTreeMap::new(),
            snapshots: Vec::new(),
            next_value: 0,
            reached: Reached::default(),
        };
        (world, keyspace)
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn keyspace(&self) -> Keyspace {
        self.db().existing_keyspace("k").unwrap()
    }

    fn raise(&mut self) {
        self.raised = self.now;
        let before = self.entries.len();
        let (times, now) = (self.times, self.now);
        self.entries.retain(|_, (_, written)| times.expires(*written) > now);
        self.reached.expired += (before - self.entries.len()) as u64;
    }

    fn value(&mut self) -> Vec<u8> {
        self.next_value += 1;
        let len = 1 + self.next_value % 90;
        (0..len).map(|at| (self.next_value + at) as u8).collect()
    }

    fn set(&mut self, key: &str, value: Option<Vec<u8>>) {
        match value {
            Some(value) => drop(self.entries.insert(key.to_owned(), (value, self.now))),
            None => drop(self.entries.remove(key)),
        }
    }

    fn see(&mut self, key: &str) {
        self.reached.refused += 1;
        if self.sees
            && let Some((_, written)) = self.entries.get_mut(key)
        {
            *written = self.now;
        }
    }

    fn batch(&mut self, rng: &mut Rng) {
        self.raise();
        let (mut batch, keyspace) = (WriteBatch::new(), self.keyspace());
        for _ in 0..1 + rng.below(12) {
            let (key, value) = (key(rng), (!rng.one_in(4)).then(|| self.value()));
            match &value {
                Some(value) => {
                    batch.put_in(&keyspace, &key, value).put(&key, value);
                    self.lasting.insert(key.clone(), value.clone());
                }
                None => {
                    batch.delete_in(&keyspace, &key).delete(&key);
                    self.lasting.remove(&key);
                }
            }
            self.set(&key, value);
        }
        self.db().write(batch).unwrap();
    }

    fn insert(&mut self, rng: &mut Rng) {
        self.raise();
        let entries: Vec<_> = (0..1 + rng.below(9)).map(|_| (key(rng), self.value())).collect();
        let new = self.keyspace().insert_new_many(entries.iter().map(|(key, value)| (key, value))).unwrap();
        for (at, (key, value)) in entries.into_iter().enumerate() {
            let is_known = self.entries.contains_key(&key);
            assert_eq!(new.is_new(at), !is_known, "{key}");
            match is_known {
                true => self.see(&key),
                false => self.set(&key, Some(value)),
            }
        }
    }

    fn change(&mut self, rng: &mut Rng) {
        self.raise();
        let (keyspace, key, value) = (self.keyspace(), key(rng), self.value());
        let before = self.entries.get(&key).map(|(value, _)| value.clone());
        match rng.below(4) {
            0 => {
                let is_new = keyspace.insert_if_absent(&key, &value).unwrap();
                assert_eq!(is_new, before.is_none(), "{key}");
                match is_new {
                    true => self.set(&key, Some(value)),
                    false => self.see(&key),
                }
            }
            1 => {
                let updated = keyspace.update(&key, |found| {
                    assert_eq!(found, before.as_deref(), "{key}");
                    Some(value.clone())
                });
                assert_eq!(updated.unwrap().unwrap(), value[..]);
                self.set(&key, Some(value));
            }
            2 => {
                let set = keyspace.compare_and_set(&key, before.as_deref(), Some(&value)).unwrap();
                assert!(set.is_ok(), "{key}");
                self.set(&key, Some(value));
            }
            _ => {
                let removed = keyspace.remove(&key).unwrap();
                assert_eq!(removed.as_deref(), before.as_deref(), "{key}");
                self.set(&key, None);
            }
        }
    }

    fn transaction(&mut self, rng: &mut Rng) {
        let (keyspace, reads) =
            (self.keyspace(), (0..1 + rng.below(4)).map(|_| key(rng)).collect::<Vec<_>>());
        let (target, value) = (key(rng), self.value());
        let tx = self.db().transaction();
        for key in &reads {
            let found = tx.keyspace(&keyspace).get(key).unwrap();
            assert_eq!(found.as_deref(), self.entries.get(key).map(|(value, _)| &value[..]), "{key}");
        }
        let read: Vec<_> = reads.iter().filter(|key| self.entries.contains_key(*key)).cloned().collect();
        tx.keyspace(&keyspace).put(&target, &value);
        if rng.one_in(2) {
            self.pass(rng.below(2 * self.times.bucket));
        }
        let committed = tx.commit();
        self.raise();
        match read.iter().any(|key| !self.entries.contains_key(key)) {
            true => {
                assert!(matches!(committed, Err(Error::Conflict { .. })), "{committed:?}");
                self.reached.conflicts += 1;
            }
            false => {
                committed.unwrap();
                self.set(&target, Some(value));
            }
        }
    }

    fn look(&mut self, rng: &mut Rng) {
        let keyspace = self.keyspace();
        let keys: Vec<_> = (0..1 + rng.below(9)).map(|_| key(rng)).collect();
        let values = keyspace.multi_get(&keys).unwrap();
        for (key, value) in keys.iter().zip(values) {
            let expected = self.entries.get(key).map(|(value, _)| &value[..]);
            assert_eq!(value.as_deref(), expected, "{key}");
            assert_eq!(keyspace.get(key).unwrap().as_deref(), expected, "{key}");
            assert_eq!(keyspace.contains(key).unwrap(), expected.is_some(), "{key}");
            match expected {
                Some(_) => self.reached.found += 1,
                None => self.reached.absent += 1,
            }
        }
    }

    fn compare(&self) {
        let keyspace = self.keyspace();
        let expected: Vec<_> =
            self.entries.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        assert_eq!(read(keyspace.iter()), expected);
        let mut down = read(keyspace.iter().rev());
        down.reverse();
        assert_eq!(down, expected);
        assert_eq!(keyspace.len().unwrap(), expected.len() as u64);
        let lasting: Vec<_> = self.lasting.clone().into_iter().collect();
        assert_eq!(read(self.db().iter()), lasting);
    }

    fn look_back(&mut self, rng: &mut Rng) {
        if self.snapshots.is_empty() {
            return;
        }
        let at = rng.below(self.snapshots.len() as u64) as usize;
        let (snapshot, entries) = self.snapshots.swap_remove(at);
        let old = snapshot.keyspace(&self.keyspace());
        let expected: Vec<_> = entries.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect();
        assert_eq!(read(old.iter()), expected);
        for _ in 0..4 {
            let key = key(rng);
            assert_eq!(old.get(&key).unwrap().as_deref(), entries.get(&key).map(|(value, _)| &value[..]));
        }
        self.reached.seen_by_snapshots +=
            entries.keys().filter(|key| !self.entries.contains_key(*key)).count() as u64;
        if rng.one_in(2) {
            self.snapshots.push((snapshot, entries));
        }
    }

    fn pass(&mut self, time: u64) {
        self.clock.advance(minutes(time));
        self.now += time;
    }

    fn reopen(&mut self, rng: &mut Rng, keyspace: &KeyspaceOptions) {
        self.snapshots.clear();
        self.reached.reopenings += 1;
        match rng.below(4) {
            0 => self.db.take().unwrap().close().unwrap(),
            1 => drop(self.db.take()),
            2 => self.fs = self.fs.crash(CrashPolicy::KeepAll),
            _ => {
                self.db().sync().unwrap();
                self.fs = self.fs.crash(CrashPolicy::DropUnsynced);
            }
        }
        self.db = None;
        self.db = Some(open(&self.fs, &self.clock, keyspace));
        self.raise();
        let (clock, now) = (&self.clock, self.now);
        clock.advance(minutes(self.times.bucket));
        self.now = now + self.times.bucket;
    }

    fn step(&mut self, rng: &mut Rng, keyspace: &KeyspaceOptions) {
        match rng.below(100) {
            0..=24 => self.batch(rng),
            25..=34 => self.insert(rng),
            35..=44 => self.change(rng),
            45..=49 => self.transaction(rng),
            50..=64 => self.look(rng),
            65..=69 => self.compare(),
            70..=72 => {
                let entries = self.entries.clone();
                self.snapshots.push((self.db().snapshot(), entries));
                self.snapshots.truncate(5);
            }
            73..=77 => self.look_back(rng),
            78..=88 => {
                match rng.below(11) {
                    0..=2 => self.keyspace().flush().unwrap(),
                    3 => self.db().compact().unwrap(),
                    _ => {}
                }
                while self.db().step().unwrap() {}
                self.raise();
            }
            89..=97 => {
                let time = rng.below(2 * self.times.bucket + 1);
                self.pass(time);
            }
            98 => self.db().write_with(WriteBatch::new(), Durability::Synced).unwrap(),
            _ => self.reopen(rng, keyspace),
        }
    }
}

fn read<'i>(
    entries: impl Iterator<Item = sievedb::Result<(sievedb::Value, sievedb::Value)>> + 'i,
) -> Vec<(String, Vec<u8>)> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    entries.map(|entry| entry.map(|(key, value)| (text(&key), value.to_vec())).unwrap()).collect()
}

#[test]
fn histories_with_a_clock_agree_with_a_map_that_knows_when_each_entry_was_written() {
    let seed =
        std::env::var("SIEVEDB_SEED").map_or(1, |seed| seed.parse().expect("SIEVEDB_SEED is a number"));
    println!("SIEVEDB_SEED={seed}");
    let histories = if thorough() { 200 } else { 30 };
    let mut all = Reached::default();
    for history in 0..histories {
        println!("history {history}");
        let mut rng = Rng::new(seed << 16 | history);
        let (mut world, keyspace) = World::new(&mut rng);
        for _ in 0..OPS {
            world.step(&mut rng, &keyspace);
        }
        world.compare();
        let Reached { expired, found, absent, refused, conflicts, reopenings, seen_by_snapshots } =
            world.reached;
        all.expired += expired;
        all.found += found;
        all.absent += absent;
        all.refused += refused;
        all.conflicts += conflicts;
        all.reopenings += reopenings;
        all.seen_by_snapshots += seen_by_snapshots;
    }
    println!("{all:?}");
    for count in
        [all.expired / 20, all.found / 20, all.absent / 20, all.refused / 5, all.conflicts, all.reopenings]
    {
        assert!(count > histories, "{all:?}");
    }
    assert!(all.seen_by_snapshots > histories, "{all:?}");
}
