//! A mix of all operations, generated from a seed, on few keys that are overwritten and deleted often. Numbered values
//! make all states different; some are chunked. The history records each operation and its acknowledgement.

use std::sync::{Arc, Mutex, MutexGuard};

use sievedb::fs::MemFs;
use sievedb::{Db, Durability, FilterKind, FilterPolicy, Keyspace, Result, WriteBatch};

use super::history::{History, Incarnation, Write};
use super::rng::Rng;
use super::store;

pub(crate) struct Workload {
    fs: MemFs,
    rng: Rng,
    db: Option<Db>,
    history: Arc<Mutex<History>>,
    doing: Arc<Mutex<String>>,
    count: u64,
    told: u64,
}

const KEYS: u64 = 24;
const NAMES: [&str; 3] = ["users", "index", "log"];

impl Workload {
    pub(crate) fn new(fs: &MemFs, seed: u64) -> Self {
        Self {
            fs: fs.clone(),
            rng: Rng::new(seed),
            db: None,
            history: Arc::new(Mutex::new(History::new())),
            doing: Arc::new(Mutex::new("creating".into())),
            count: 0,
            told: 0,
        }
    }

    pub(crate) fn history(&self) -> Arc<Mutex<History>> {
        Arc::clone(&self.history)
    }

    pub(crate) fn doing(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.doing)
    }

    pub(crate) fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// Number of failures reported: of background work up to the last close, and of a full disk at opening.
    pub(crate) fn told(&self) -> u64 {
        self.told
    }

    fn noted(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    pub(crate) fn run(&mut self, operations: u64) -> Result<()> {
        self.open()?;
        for _ in 0..operations {
            self.operation()?;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<()> {
        if self.db.is_none() {
            let db = store::open(&self.fs)?;
            self.told += u64::from(db.open_report().full_disk.is_some());
            self.db = Some(db);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self) -> Result<()> {
        if let Some(db) = self.db.take() {
            self.told += db.stats().background_failures;
            db.close()?;
            self.noted().all_durable();
        }
        Ok(())
    }

    fn operation(&mut self) -> Result<()> {
        self.count += 1;
        let (kind, db) = (self.rng.below(100), self.db.clone().expect("open"));
        *self.doing.lock().unwrap() = format!("operation {} of kind {kind}", self.count);
        match kind {
            0..30 => self.write(&db, 1, Durability::Buffered),
            30..38 => self.write(&db, 1, Durability::Synced),
            38..56 => self.write(&db, 6, Durability::Buffered),
            56..63 => self.write(&db, 6, Durability::Synced),
            63..67 => self.durable(db.sync()),
            67..84 => db.step().map(drop),
            84..86 => self.refilter(&db),
            86..90 => self.durable(db.flush()),
            90..92 => self.durable(db.compact()),
            92..95 => self.create(&db),
            95..97 => self.drop_one(&db),
            97 => self.settle(&db),
            _ => {
                drop(db);
                self.close()?;
                self.open()
            }
        }
    }

    fn durable(&self, done: Result<()>) -> Result<()> {
        done.inspect(|()| self.noted().all_durable())
    }

    fn settle(&self, db: &Db) -> Result<()> {
        db.settle()
    }

    fn refilter(&mut self, db: &Db) -> Result<()> {
        let kinds = [FilterKind::None, FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon];
        let policy = FilterPolicy::new(kinds[self.rng.below(4) as usize]);
        db.refilter(policy.bits_per_key(4.0 + self.rng.below(12) as f64))
    }

    fn write(&mut self, db: &Db, most: u64, durability: Durability) -> Result<()> {
        let spaces: Vec<(String, Incarnation)> = self.noted().keyspaces().clone().into_iter().collect();
        let handles: Vec<Keyspace> =
            spaces.iter().map(|(name, _)| db.existing_keyspace(name).unwrap()).collect();
        let mut batch = WriteBatch::new();
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..=self.rng.below(most) {
            let space = self.rng.below(spaces.len() as u64) as usize;
            let key = self.key();
            if self.rng.one_in(12) {
                let other = self.key();
                let (start, end) = if key < other { (key, other) } else { (other, key) };
                batch.delete_range_in(&handles[space], &start..&end);
                writes.push(Write::Range(spaces[space].1, start, end));
                continue;
            }
            let value = (!self.rng.one_in(4)).then(|| self.value());
            match &value {
                Some(value) => batch.put_in(&handles[space], &key, value),
                None => batch.delete_in(&handles[space], &key),
            };
            writes.push(Write::Key(spaces[space].1, key, value));
        }
        self.noted().write(&writes);
        db.write_with(batch, durability)?;
        if durability == Durability::Synced {
            self.noted().all_durable();
        }
        Ok(())
    }

    fn key(&mut self) -> Arc<[u8]> {
        match self.rng.below(KEYS) {
            0 => Arc::from(&b""[..]),
            n if n < 4 => Arc::from(format!("{}{n}", "long ".repeat(30)).into_bytes()),
            n => Arc::from(format!("key {n:02}").into_bytes()),
        }
    }

    fn value(&mut self) -> Arc<[u8]> {
        let len = if self.rng.one_in(80) { 33_000 + self.rng.below(9000) } else { self.rng.below(200) };
        let mut value = format!("{} ", self.count).into_bytes();
        value.extend(self.rng.bytes(len as usize));
        value.into()
    }

    fn create(&mut self, db: &Db) -> Result<()> {
        let name = NAMES[self.rng.below(3) as usize];
        if db.existing_keyspace(name).is_some() {
            return Ok(());
        }
        self.noted().create(name);
        db.keyspace(name, store::small())?;
        self.noted().keyspaces_durable();
        Ok(())
    }

    fn drop_one(&mut self, db: &Db) -> Result<()> {
        let name = NAMES[self.rng.below(3) as usize];
        if db.existing_keyspace(name).is_none() {
            return Ok(());
        }
        self.noted().remove(name);
        db.drop_keyspace(name)?;
        self.noted().keyspaces_durable();
        Ok(())
    }
}

pub(crate) fn universe() -> Vec<Vec<u8>> {
    let long = (0..6).map(|n| format!("{}{n}", "long ".repeat(30)));
    let keys = (0..KEYS + 6).map(|n| format!("key {n:02}"));
    long.chain(keys).map(String::into_bytes).chain([Vec::new(), b"key".to_vec(), vec![0xff; 9]]).collect()
}
