mod transaction;

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{
    Compression, Db, Durability, Error, FilterKind, FilterPolicy, Iter, Keyspace, KeyspaceOptions,
    KeyspaceSnapshot, Options, Snapshot, Value, WriteBatch,
};

use super::ops::{Change, Ends, History, Op, Reopen, SPACES, Space, Write};
use super::reference::{ByteBounds, Entry, Map, Reference, byte_bounds, is_reversed, starting_with, within};
use crate::support::rng::Rng;
use crate::support::store::{DIR, show};

pub(crate) enum Disk {
    Memory(MemFs, usize),
    Folder(tempfile::TempDir, usize),
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) ops: u64,
    pub(crate) levels: u64,
    pub(crate) flushes: u64,
    pub(crate) compactions: u64,
    pub(crate) trivial_moves: u64,
    pub(crate) rebuilt_filters: u64,
    pub(crate) audited: u64,
    pub(crate) reopenings: u64,
    pub(crate) found: u64,
    pub(crate) absent: u64,
    pub(crate) walked: u64,
    /// Entries and changes of conditional writes, both written and refused.
    pub(crate) allowed: u64,
    pub(crate) refused: u64,
    pub(crate) snapshots: u64,
}

impl Reached {
    pub(crate) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.levels = self.levels.max(other.levels);
        self.flushes += other.flushes;
        self.compactions += other.compactions;
        self.trivial_moves += other.trivial_moves;
        self.rebuilt_filters += other.rebuilt_filters;
        self.audited += other.audited;
        self.reopenings += other.reopenings;
        self.found += other.found;
        self.absent += other.absent;
        self.walked += other.walked;
        self.allowed += other.allowed;
        self.refused += other.refused;
        self.snapshots += other.snapshots;
    }
}

struct Held {
    iter: Iter<'static>,
    left: VecDeque<Entry>,
}

pub(crate) struct World {
    disk: Disk,
    fixed: Option<(Options, KeyspaceOptions)>,
    db: Db,
    spaces: [Option<Keyspace>; SPACES as usize],
    stale: Option<Keyspace>,
    reference: Reference,
    snapshots: Vec<(Snapshot, Reference)>,
    held: Vec<Held>,
    pub(crate) answers: Vec<u64>,
    answer: DefaultHasher,
    pub(crate) reached: Reached,
}

fn name(space: Space) -> &'static str {
    ["default", "one", "two", "three"][usize::from(space)]
}

fn filter_policy(mut pick: impl FnMut(&[u64]) -> u64) -> FilterPolicy {
    let filter = FilterPolicy::new(FilterKind::ALL[pick(&[0, 1, 2, 3, 4]) as usize]);
    match pick(&[0, 1, 2]) {
        0 => filter.false_positive_rate(1.0 / pick(&[2, 20, 200, 10_000]) as f64),
        _ => filter.bits_per_key(pick(&[4, 15, 37, 99, 250, 640]) as f64 / 10.0),
    }
}

pub(crate) fn keyspace_options(seed: u64) -> KeyspaceOptions {
    let rng = &mut Rng::new(seed);
    let mut pick = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
    let filter = filter_policy(&mut pick);
    let mut options = KeyspaceOptions::new()
        .filter(filter)
        .block_bytes(pick(&[512, 512, 700, 4096, 65536]) as usize)
        .table_bytes(pick(&[1024, 2048, 2048, 8192, 1 << 20]))
        .memtable_bytes(pick(&[1, 2048, 4096, 4096, 8192, 30_000]) as usize)
        .l0_runs(pick(&[1, 2, 3, 4]) as usize)
        .level_base_bytes(pick(&[1, 4096, 8192, 16384]))
        .level_ratio(pick(&[2, 3, 4]));
    for level in 0..7 {
        let kind = if pick(&[0, 1]) == 0 { Compression::None } else { Compression::Lz4 };
        options = options.compression_at(level, kind);
    }
    options
}

fn store_options(seed: u64) -> Options {
    let rng = &mut Rng::new(!seed);
    let mut pick = |choices: &[u64]| choices[rng.below(choices.len() as u64) as usize];
    let options = Options::new()
        .audit_absent(pick(&[1, 2, 3]))
        .memory_budget(pick(&[1 << 20, 2 << 20, 64 << 20]) as usize)
        .log_bytes_max(pick(&[1, 4096, 65536, 1 << 30]))
        .open_files_max(pick(&[8, 20, 256]) as usize);
    if pick(&[0, 1, 2]) == 0 { options.default_keyspace(keyspace_options(seed)) } else { options }
}

fn ok<T>(what: &str, result: sievedb::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{what}: {error}"))
}

fn equal<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted { Ok(()) } else { Err(format!("{what} gave {got:?} instead of {wanted:?}")) }
}

fn must_be<T>(what: &str, result: sievedb::Result<T>, right: fn(&Error) -> bool) -> Result<(), String> {
    match result {
        Err(error) if right(&error) => Ok(()),
        Err(error) => Err(format!("{what} gave the error {error}")),
        Ok(_) => Err(format!("{what} went well")),
    }
}

fn durability(synced: bool) -> Durability {
    if synced { Durability::Synced } else { Durability::Buffered }
}

#[derive(Debug, Clone)]
enum Done {
    Key(Space, Vec<u8>, Option<Vec<u8>>),
    Range(Space, ByteBounds),
}

impl Done {
    fn space(&self) -> Space {
        let (Self::Key(space, ..) | Self::Range(space, _)) = self;
        *space
    }
}

fn done(writes: &[Write]) -> Vec<Done> {
    let bytes = |write: &Write| match write {
        Write::Key(space, key, val) => Done::Key(*space, key.bytes(), val.map(|val| val.bytes())),
        Write::Range(space, bounds) => Done::Range(*space, byte_bounds(*bounds)),
    };
    let is_possible = |write: &Done| !matches!(write, Done::Range(_, bounds) if is_reversed(bounds));
    writes.iter().map(bytes).filter(is_possible).collect()
}

fn holds(bounds: &ByteBounds, key: &[u8]) -> bool {
    RangeBounds::<Vec<u8>>::contains(bounds, &key.to_vec())
}

fn is_dropped(error: &Error) -> bool {
    matches!(error, Error::KeyspaceDropped { .. })
}

impl Disk {
    fn open(&self, options: Options) -> sievedb::Result<Db> {
        match self {
            Self::Memory(fs, threads) => {
                options.fs(Arc::new(fs.clone())).background_threads(*threads).open(DIR)
            }
            Self::Folder(dir, threads) => options.background_threads(*threads).open(dir.path()),
        }
    }
}

impl World {
    pub(crate) fn live(
        history: &History,
        disk: Disk,
        fixed: Option<(Options, KeyspaceOptions)>,
    ) -> Result<Self, String> {
        let (options, first) = match &fixed {
            Some((options, first)) => (options.clone(), first.clone()),
            None => (store_options(history.options), keyspace_options(history.options)),
        };
        let db = ok("open", disk.open(options.default_keyspace(first)))?;
        let default = db.default_keyspace();
        let mut reference = Reference::default();
        reference.create(0);
        let mut world = Self {
            disk,
            fixed,
            db,
            spaces: [Some(default), None, None, None],
            stale: None,
            reference,
            snapshots: Vec::new(),
            held: Vec::new(),
            answers: Vec::new(),
            answer: DefaultHasher::new(),
            reached: Reached::default(),
        };
        world.create(1, history.options)?;
        for (at, op) in history.ops.iter().enumerate() {
            world.apply(op).map_err(|wrong| format!("operation {at}, {op:?}: {wrong}"))?;
            world.answers.push(world.answer.finish());
        }
        world.finish().map_err(|wrong| format!("at the end: {wrong}"))?;
        world.reached.ops = history.ops.len() as u64;
        Ok(world)
    }

    fn finish(&mut self) -> Result<(), String> {
        self.let_go()?;
        self.compare_all()?;
        self.reopen(Reopen::Close, 0)?;
        self.compare_all()?;
        ok("compact", self.db.compact())?;
        self.compare_all()?;
        let report = ok("verify", self.db.verify())?;
        if report.damage.is_empty() { Ok(()) } else { Err(format!("damage: {:?}", report.damage)) }
    }

    fn options_for(&self, seed: u64) -> KeyspaceOptions {
        self.fixed.as_ref().map_or_else(|| keyspace_options(seed), |(_, options)| options.clone())
    }

    fn space(&self, space: Space) -> Option<(Keyspace, Arc<Map>)> {
        let keyspace = self.spaces[usize::from(space)].clone()?;
        let number = self.reference.number(space).expect("handle and reference go together");
        Some((keyspace, self.reference.map(number)))
    }

    fn space_then(&self, snapshot: u8, space: Space) -> Option<(KeyspaceSnapshot, Arc<Map>)> {
        if self.snapshots.is_empty() {
            return None;
        }
        let (snapshot, then) = &self.snapshots[usize::from(snapshot) % self.snapshots.len()];
        let number = self.reference.number(space)?;
        let keyspace = self.spaces[usize::from(space)].as_ref()?;
        Some((snapshot.keyspace(keyspace), then.map(number)))
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Put(space, key, val) => self.put(*space, key.bytes(), val.bytes()),
            Op::Delete(space, key) => self.delete(*space, key.bytes()),
            Op::DeleteRange(space, bounds, synced) => {
                self.delete_range(*space, byte_bounds(*bounds), *synced)
            }
            Op::DeletePrefix(space, key, len) => {
                let Some((keyspace, _)) = self.space(*space) else { return self.refused() };
                let key = key.bytes();
                let prefix = &key[..key.len().min(usize::from(*len))];
                ok("delete_prefix", keyspace.delete_prefix(prefix))?;
                self.reference.delete(*space, |key| key.starts_with(prefix));
                Ok(())
            }
            Op::Batch(writes, synced) => self.batch(&done(writes), *synced),
            Op::Insert(space, entries, then, synced) => {
                let entries = entries.iter().map(|(key, val)| (key.bytes(), val.bytes()));
                let then = then.map(|(space, key)| (space, key.bytes()));
                self.insert(*space, entries.collect(), then, durability(*synced))
            }
            Op::Change(space, key, change, synced) => {
                self.change(*space, key.bytes(), *change, durability(*synced))
            }
            Op::Transaction(steps, others, is_flushed, synced) => {
                self.transaction(steps, &done(others), *is_flushed, *synced)
            }
            Op::Look(space, keys) => {
                let keys: Vec<_> = keys.iter().map(|key| key.bytes()).collect();
                self.look(*space, &keys)
            }
            Op::Walk(space, bounds, ends, most) => {
                let Some((keyspace, map)) = self.space(*space) else { return Ok(()) };
                let bounds = byte_bounds(*bounds);
                let mut held = Held { iter: range(&keyspace, &bounds), left: within(&map, &bounds) };
                self.walk(&mut held, ends, usize::from(*most))
            }
            Op::WalkPrefix(space, key, len, ends) => {
                let Some((keyspace, map)) = self.space(*space) else { return Ok(()) };
                let key = key.bytes();
                let prefix = &key[..key.len().min(usize::from(*len))];
                let mut held = Held { iter: keyspace.prefix(prefix), left: starting_with(&map, prefix) };
                self.walk(&mut held, ends, usize::MAX)
            }
            Op::Snapshot => self.snapshot(),
            Op::LookBack(snapshot, space, keys) => {
                let keys: Vec<_> = keys.iter().map(|key| key.bytes()).collect();
                self.look_back(*snapshot, *space, &keys)
            }
            Op::WalkBack(snapshot, space, bounds, ends) => {
                let Some((keyspace, map)) = self.space_then(*snapshot, *space) else { return Ok(()) };
                let bounds = byte_bounds(*bounds);
                let mut held = Held { iter: keyspace.range(bounds.clone()), left: within(&map, &bounds) };
                self.walk(&mut held, ends, usize::MAX)
            }
            Op::Release(snapshot) => self.release(*snapshot),
            Op::Hold(space, bounds, snapshot) => self.hold(*space, &byte_bounds(*bounds), *snapshot),
            Op::Move(held, ends) => {
                if self.held.is_empty() {
                    return Ok(());
                }
                let mut held = self.held.remove(usize::from(*held) % self.held.len());
                self.walk(&mut held, ends, 3 * ends.len())?;
                self.held.push(held);
                Ok(())
            }
            Op::Flush(None) => ok("flush", self.db.flush()),
            Op::Flush(Some(space)) => {
                self.space(*space).map_or(Ok(()), |(keyspace, _)| ok("flush", keyspace.flush()))
            }
            Op::Compact(None) => ok("compact", self.db.compact()),
            Op::Compact(Some(space)) => {
                self.space(*space).map_or(Ok(()), |(keyspace, _)| ok("compact", keyspace.compact()))
            }
            Op::Step => ok("step", self.db.step()).map(drop),
            Op::Settle => ok("settle", self.db.settle()),
            Op::Sync => ok("sync", self.db.sync()),
            Op::Create(space, seed) => self.create(*space, *seed),
            Op::Remove(space) => self.remove(*space),
            Op::SetOptions(space, seed) => {
                let Some((keyspace, _)) = self.space(*space) else { return Ok(()) };
                let options = self.options_for(*seed);
                ok("set_options", keyspace.set_options(options.clone()))?;
                equal("options", keyspace.options(), options)
            }
            Op::Refilter(space, seed) => {
                let rng = &mut Rng::new(*seed);
                let policy = filter_policy(|choices| choices[rng.below(choices.len() as u64) as usize]);
                let refilter = match space {
                    None => self.db.refilter(policy),
                    Some(space) => {
                        self.space(*space).map_or(Ok(()), |(keyspace, _)| keyspace.refilter(policy))
                    }
                };
                ok("refilter", refilter)?;
                let now = |(keyspace, _): (Keyspace, _)| keyspace.options();
                let policies = space.map_or(0..SPACES, |space| space..space + 1);
                policies
                    .filter_map(|space| self.space(space).map(now))
                    .try_for_each(|options| equal("the policy", options.clone(), options.filter(policy)))
            }
            Op::Reopen(how, seed) => self.reopen(*how, *seed),
            Op::CompareAll => self.compare_all(),
        }
    }

    fn put(&mut self, space: Space, key: Vec<u8>, value: Vec<u8>) -> Result<(), String> {
        let Some((keyspace, _)) = self.space(space) else { return self.refused() };
        let done = if space == 0 { self.db.put(&key, &value) } else { keyspace.put(&key, &value) };
        ok("put", done)?;
        self.reference.write(space, key, Some(value));
        Ok(())
    }

    fn delete(&mut self, space: Space, key: Vec<u8>) -> Result<(), String> {
        let Some((keyspace, _)) = self.space(space) else { return self.refused() };
        let done = if space == 0 { self.db.delete(&key) } else { keyspace.delete(&key) };
        ok("delete", done)?;
        self.reference.write(space, key, None);
        Ok(())
    }

    fn delete_range(&mut self, space: Space, bounds: ByteBounds, synced: bool) -> Result<(), String> {
        let Some((keyspace, _)) = self.space(space) else { return self.refused() };
        if is_reversed(&bounds) {
            let refused = keyspace.delete_range(&bounds);
            return must_be("delete_range of a reversed range", refused, |error| {
                matches!(error, Error::InvalidArgument { .. })
            });
        }
        let done = match &bounds {
            (Bound::Unbounded, Bound::Unbounded) if !synced => keyspace.clear(),
            _ if space == 0 => self.db.delete_range_with(&bounds, durability(synced)),
            _ => keyspace.delete_range_with(&bounds, durability(synced)),
        };
        ok("delete_range", done)?;
        self.note(Done::Range(space, bounds));
        Ok(())
    }

    fn note(&mut self, write: Done) {
        match write {
            Done::Key(space, key, value) => self.reference.write(space, key, value),
            Done::Range(space, bounds) => self.reference.delete(space, |key| holds(&bounds, key)),
        }
    }

    fn refused(&self) -> Result<(), String> {
        let Some(stale) = &self.stale else { return Ok(()) };
        must_be("put into a dropped keyspace", stale.put("k", "v"), is_dropped)?;
        must_be("get from a dropped keyspace", stale.get("k"), is_dropped)?;
        must_be("insert into a dropped keyspace", stale.insert_if_absent("k", "v"), is_dropped)?;
        must_be("delete_range in a dropped keyspace", stale.delete_range("k".."l"), is_dropped)?;
        must_be("clear of a dropped keyspace", stale.clear(), is_dropped)?;
        let mut batch = WriteBatch::new();
        batch.put("half of a batch", "must not be there").put_in(stale, "k", "v");
        must_be("batch into a dropped keyspace", self.db.write(batch), is_dropped)?;
        equal("get of half a batch", ok("get", self.db.get("half of a batch"))?.is_some(), false)
    }

    fn batch(&mut self, writes: &[Done], synced: bool) -> Result<(), String> {
        let mut batch = WriteBatch::new();
        let there: Vec<_> =
            writes.iter().filter(|write| self.spaces[usize::from(write.space())].is_some()).collect();
        for write in &there {
            let keyspace = self.spaces[usize::from(write.space())].as_ref().expect("it is there");
            match write {
                Done::Key(0, key, Some(value)) => batch.put(key, value),
                Done::Key(0, key, None) => batch.delete(key),
                Done::Key(_, key, Some(value)) => batch.put_in(keyspace, key, value),
                Done::Key(_, key, None) => batch.delete_in(keyspace, key),
                Done::Range(0, bounds) => batch.delete_range(bounds),
                Done::Range(_, bounds) => batch.delete_range_in(keyspace, bounds),
            };
        }
        ok("write", self.db.write_with(batch, durability(synced)))?;
        there.into_iter().for_each(|write| self.note(write.clone()));
        Ok(())
    }

    fn insert(
        &mut self,
        space: Space,
        entries: Vec<(Vec<u8>, Vec<u8>)>,
        then: Option<(Space, Vec<u8>)>,
        durability: Durability,
    ) -> Result<(), String> {
        let Some((keyspace, mut map)) = self.space(space) else { return self.refused() };
        let then = then.and_then(|(space, key)| Some((space, self.space(space)?.0, key)));
        let given = entries.iter().cloned();
        let new = match &then {
            None => keyspace.insert_new_many_with(given, durability),
            Some((_, other, key)) => keyspace.insert_new_many_then_with(given, durability, |new, batch| {
                batch.put_in(other, key, [new.count() as u8]);
                Ok(())
            }),
        };
        let new = ok("insert_new_many", new)?;
        equal("the number of entries", new.len(), entries.len())?;
        new.iter().for_each(|new| new.hash(&mut self.answer));
        for ((key, value), is_new) in entries.into_iter().zip(new.iter()) {
            equal(&format!("is {} new", show(&key)), is_new, !map.contains_key(&key[..]))?;
            self.count_change(is_new);
            if is_new {
                Arc::make_mut(&mut map).insert(key.as_slice().into(), value.as_slice().into());
                self.reference.write(space, key, Some(value));
            }
        }
        if let Some((space, _, key)) = then {
            self.reference.write(space, key, Some(vec![new.count() as u8]));
        }
        Ok(())
    }

    fn change(
        &mut self,
        space: Space,
        key: Vec<u8>,
        change: Change,
        durability: Durability,
    ) -> Result<(), String> {
        let Some((keyspace, map)) = self.space(space) else { return self.refused() };
        let there = map.get(&key[..]).cloned();
        let there = there.as_deref();
        let after = match change {
            Change::InsertIfAbsent(val) => {
                let done =
                    ok("insert_if_absent", keyspace.insert_if_absent_with(&key, val.bytes(), durability))?;
                equal("insert_if_absent", done, there.is_none())?;
                there.is_none().then(|| Some(val.bytes()))
            }
            Change::Set(val) => {
                self.set_from(&keyspace, &key, there, there, val.map(|val| val.bytes()), durability)?
            }
            Change::SetFrom(from, to) => {
                let (from, to) = (from.map(|val| val.bytes()), to.map(|val| val.bytes()));
                self.set_from(&keyspace, &key, there, from.as_deref(), to, durability)?
            }
            Change::Lengthen(max) => {
                let longer = |value: Option<&[u8]>| {
                    let value = value.unwrap_or_default();
                    (value.len() < usize::from(max)).then(|| [value, b"+"].concat())
                };
                let new = ok("update", keyspace.update_with(&key, durability, longer))?;
                let wanted = longer(there);
                self.compare_value(&key, &new, wanted.as_deref().map(Arc::from).as_ref())?;
                Some(wanted)
            }
            Change::Replace(val) => {
                let before = ok("replace", keyspace.replace_with(&key, val.bytes(), durability))?;
                self.compare_value(&key, &before, map.get(&key[..]))?;
                Some(Some(val.bytes()))
            }
            Change::Remove => {
                let before = ok("remove", keyspace.remove_with(&key, durability))?;
                self.compare_value(&key, &before, map.get(&key[..]))?;
                Some(None)
            }
        };
        self.count_change(after.is_some());
        let now = after.unwrap_or_else(|| there.map(<[u8]>::to_vec));
        self.reference.write(space, key.clone(), now);
        self.look(space, &[key])
    }

    fn set_from(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        there: Option<&[u8]>,
        from: Option<&[u8]>,
        to: Option<Vec<u8>>,
        durability: Durability,
    ) -> Result<Option<Option<Vec<u8>>>, String> {
        let done =
            ok("compare_and_set", keyspace.compare_and_set_with(key, from, to.as_deref(), durability))?;
        equal("compare_and_set", done.is_ok(), there == from)?;
        match done {
            Ok(()) => Ok(Some(to)),
            Err(mismatch) => {
                self.compare_value(key, &mismatch.found, there.map(Arc::from).as_ref())?;
                Ok(None)
            }
        }
    }

    fn count_change(&mut self, is_allowed: bool) {
        *(if is_allowed { &mut self.reached.allowed } else { &mut self.reached.refused }) += 1;
    }

    fn look(&mut self, space: Space, keys: &[Vec<u8>]) -> Result<(), String> {
        let Some((keyspace, map)) = self.space(space) else { return self.refused() };
        for key in keys {
            let wanted = map.get(&key[..]);
            self.compare_value(key, &ok("get", keyspace.get(key))?, wanted)?;
            equal("contains", ok("contains", keyspace.contains(key))?, wanted.is_some())?;
            if wanted.is_some() && !keyspace.may_contain(key) {
                return Err(format!("may_contain denies {}", show(key)));
            }
        }
        let present: Vec<bool> = keys.iter().map(|key| map.contains_key(&key[..])).collect();
        equal("multi_contains", ok("multi_contains", keyspace.multi_contains(keys))?, present)?;
        let values = ok("multi_get", keyspace.multi_get(keys))?;
        self.compare_values(keys, &values, &map)
    }

    fn look_back(&mut self, snapshot: u8, space: Space, keys: &[Vec<u8>]) -> Result<(), String> {
        let Some((keyspace, map)) = self.space_then(snapshot, space) else { return Ok(()) };
        for key in keys {
            let wanted = map.get(&key[..]);
            self.compare_value(key, &ok("get", keyspace.get(key))?, wanted)?;
            equal("contains", ok("contains", keyspace.contains(key))?, wanted.is_some())?;
        }
        let values = ok("multi_get", keyspace.multi_get(keys))?;
        self.compare_values(keys, &values, &map)
    }

    fn compare_values(
        &mut self,
        keys: &[Vec<u8>],
        values: &[Option<Value>],
        map: &Map,
    ) -> Result<(), String> {
        equal("multi_get's length", values.len(), keys.len())?;
        keys.iter().zip(values).try_for_each(|(key, value)| self.compare_value(key, value, map.get(&key[..])))
    }

    fn compare_value(
        &mut self,
        key: &[u8],
        got: &Option<Value>,
        wanted: Option<&Arc<[u8]>>,
    ) -> Result<(), String> {
        got.as_deref().hash(&mut self.answer);
        *(if got.is_some() { &mut self.reached.found } else { &mut self.reached.absent }) += 1;
        if got.as_deref() == wanted.map(|value| &value[..]) {
            return Ok(());
        }
        let short =
            |value: Option<&[u8]>| value.map(|value| format!("{} ({} bytes)", show(value), value.len()));
        let (got, wanted) = (short(got.as_deref()), short(wanted.map(|value| &value[..])));
        Err(format!("the value of {} is {got:?} instead of {wanted:?}", show(key)))
    }

    /// Compares at most `most` steps. When one iterator ends, both must end, in both directions.
    fn walk(&mut self, held: &mut Held, ends: &Ends, most: usize) -> Result<(), String> {
        for front in ends.iter().cycle().take(most) {
            let (got, wanted) = match front {
                true => (held.iter.next(), held.left.pop_front()),
                false => (held.iter.next_back(), held.left.pop_back()),
            };
            let got = got.transpose().map_err(|error| format!("iterator: {error}"))?;
            let got = got.as_ref().map(|(key, value)| (&key[..], &value[..]));
            got.hash(&mut self.answer);
            self.reached.walked += 1;
            if got != wanted.as_ref().map(|(key, value)| (&key[..], &value[..])) {
                let (got, wanted) = (got.map(|(key, _)| show(key)), wanted.map(|(key, _)| show(&key)));
                return Err(format!(
                    "iterator (front: {front}) gave {got:?} instead of {wanted:?}, or another value"
                ));
            }
            if got.is_none() {
                let after = [held.iter.next().is_some(), held.iter.next_back().is_some()];
                return equal("an iterator after its end", after, [false, false]);
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), String> {
        if self.snapshots.len() >= 5 {
            self.release(0)?;
        }
        self.snapshots.push((self.db.snapshot(), self.reference.clone()));
        self.reached.snapshots += 1;
        Ok(())
    }

    fn release(&mut self, snapshot: u8) -> Result<(), String> {
        for space in 0..SPACES {
            let Some((keyspace, map)) = self.space_then(snapshot, space) else { continue };
            let all = within(&map, &(Bound::Unbounded, Bound::Unbounded));
            let mut forward = Held { iter: keyspace.iter(), left: all.clone() };
            self.walk(&mut forward, &vec![true], usize::MAX)?;
            let mut backward = Held { iter: keyspace.iter(), left: all };
            self.walk(&mut backward, &vec![false], usize::MAX)?;
        }
        if !self.snapshots.is_empty() {
            self.snapshots.remove(usize::from(snapshot) % self.snapshots.len());
        }
        Ok(())
    }

    fn hold(&mut self, space: Space, bounds: &ByteBounds, snapshot: Option<u8>) -> Result<(), String> {
        let then = snapshot.and_then(|snapshot| self.space_then(snapshot, space));
        let held = match (then, self.space(space)) {
            (Some((keyspace, map)), _) => {
                Held { iter: keyspace.range(bounds.clone()), left: within(&map, bounds) }
            }
            (None, Some((keyspace, map))) => {
                Held { iter: range(&keyspace, bounds), left: within(&map, bounds) }
            }
            (None, None) => return Ok(()),
        };
        self.held.push(held);
        if self.held.len() > 4 {
            let mut oldest = self.held.remove(0);
            self.walk(&mut oldest, &vec![true, true, false], usize::MAX)?;
        }
        Ok(())
    }

    fn create(&mut self, space: Space, seed: u64) -> Result<(), String> {
        let keyspace = ok("keyspace", self.db.keyspace(name(space), self.options_for(seed)))?;
        equal("name", keyspace.name(), name(space))?;
        if self.spaces[usize::from(space)].is_none() {
            self.reference.create(space);
        }
        self.spaces[usize::from(space)] = Some(keyspace);
        Ok(())
    }

    fn remove(&mut self, space: Space) -> Result<(), String> {
        match self.spaces[usize::from(space)].take() {
            Some(keyspace) => {
                ok("drop_keyspace", self.db.drop_keyspace(name(space)))?;
                self.stale = Some(keyspace);
                self.reference.remove(space);
                self.refused()
            }
            None => must_be("drop_keyspace of none", self.db.drop_keyspace(name(space)), |error| {
                matches!(error, Error::InvalidArgument { .. })
            }),
        }
    }

    fn let_go(&mut self) -> Result<(), String> {
        while !self.snapshots.is_empty() {
            self.release(0)?;
        }
        while let Some(mut held) = self.held.pop() {
            self.walk(&mut held, &vec![true, false, false], usize::MAX)?;
        }
        Ok(())
    }

    fn note_stats(&mut self) {
        let stats = self.db.stats();
        self.reached.flushes += stats.flushes;
        self.reached.compactions += stats.compactions;
        self.reached.trivial_moves += stats.trivial_moves;
        self.reached.rebuilt_filters += stats.rebuilt_filters;
        self.reached.audited += stats.audited;
        for keyspace in &stats.keyspaces {
            let levels = keyspace.levels.iter().filter(|level| level.tables > 0).count();
            self.reached.levels = self.reached.levels.max(levels as u64);
        }
    }

    fn reopen(&mut self, how: Reopen, seed: u64) -> Result<(), String> {
        self.let_go()?;
        self.note_stats();
        self.reached.reopenings += 1;
        let options = match &self.fixed {
            Some((options, keyspace)) => options.clone().default_keyspace(keyspace.clone()),
            None => store_options(seed),
        };
        let aside =
            ok("open aside", Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/aside"))?;
        let db = std::mem::replace(&mut self.db, aside);
        let spaces = std::mem::take(&mut self.spaces);
        self.stale = None;
        match (how, &mut self.disk) {
            (Reopen::Kill, Disk::Memory(fs, 0)) => *fs = fs.crash(CrashPolicy::KeepAll),
            (Reopen::Drop | Reopen::Kill, _) => {}
            (Reopen::Close | Reopen::ReadOnlyBetween, _) => {
                let other = db.clone();
                ok("close", db.close())?;
                let closed = |error: &Error| matches!(error, Error::Closed);
                must_be("get after close", other.get("k"), closed)?;
                must_be("put after close", other.put("k", "v"), closed)?;
                must_be("flush after close", other.flush(), closed)?;
                if how == Reopen::ReadOnlyBetween {
                    self.read_only(&options)?;
                }
                drop(other);
                drop(spaces);
                return self.open_again(options);
            }
        }
        drop(spaces);
        drop(db);
        self.open_again(options)
    }

    fn read_only(&mut self, options: &Options) -> Result<(), String> {
        let open = || ok("open read-only", self.disk.open(options.clone().read_only()));
        let (reader, other) = (open()?, open()?);
        must_be("put to read-only", other.put("k", "v"), |error| matches!(error, Error::ReadOnly))?;
        self.adopt(&reader);
        self.db = reader;
        self.compare_all()?;
        self.spaces = Default::default();
        self.db = other;
        Ok(())
    }

    fn open_again(&mut self, options: Options) -> Result<(), String> {
        self.db =
            ok("open aside", Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/aside"))?;
        self.db = ok("reopen", self.disk.open(options))?;
        let db = self.db.clone();
        self.adopt(&db);
        let names: Vec<_> =
            (0..SPACES).filter(|space| self.reference.number(*space).is_some()).map(name).collect();
        let mut got = self.db.keyspaces();
        got.sort_by_key(|got| (0..SPACES).find(|space| name(*space) == got));
        equal("keyspaces", got, names.into_iter().map(String::from).collect())
    }

    fn adopt(&mut self, db: &Db) {
        for space in 0..SPACES {
            let there = self.reference.number(space).is_some();
            self.spaces[usize::from(space)] = if there { db.existing_keyspace(name(space)) } else { None };
        }
    }

    fn compare_all(&mut self) -> Result<(), String> {
        self.note_levels();
        for space in 0..SPACES {
            let Some(number) = self.reference.number(space) else { continue };
            let Some((keyspace, map)) = self.space(space) else {
                return Err(format!("keyspace {} (number {number}) is gone", name(space)));
            };
            let all = within(&map, &(Bound::Unbounded, Bound::Unbounded));
            let mut forward = Held { iter: keyspace.iter(), left: all.clone() };
            self.walk(&mut forward, &vec![true], usize::MAX)?;
            let mut backward = Held { iter: keyspace.iter(), left: all };
            self.walk(&mut backward, &vec![false], usize::MAX)?;
            let keys: Vec<Vec<u8>> = map.keys().step_by(3).map(|key| key.to_vec()).collect();
            self.look(space, &keys)?;
        }
        Ok(())
    }

    fn note_levels(&mut self) {
        for keyspace in &self.db.stats().keyspaces {
            let levels = keyspace.levels.iter().filter(|level| level.tables > 0).count();
            self.reached.levels = self.reached.levels.max(levels as u64);
        }
    }
}

fn range(keyspace: &Keyspace, bounds: &ByteBounds) -> Iter<'static> {
    keyspace.range(bounds.clone())
}
