mod history;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{Db, Durability, Error, Keyspace, Options, Result, Transaction, Value, WriteBatch};

use crate::conditional::during_flushes;
use crate::support::rng::Rng;
use crate::support::store::{self, DIR};
use history::{Id, Key, Run};

const KEYS: u16 = 14;

fn seed() -> u64 {
    let seed =
        std::env::var("SIEVEDB_SEED").map_or(1, |seed| seed.parse().expect("SIEVEDB_SEED is a number"));
    println!("SIEVEDB_SEED={seed}");
    seed
}

fn number(value: &Value) -> u64 {
    u64::from_le_bytes(value[..].try_into().unwrap())
}

fn name(key: Key) -> [u8; 2] {
    (key % KEYS).to_be_bytes()
}

/// The third keyspace has, for each key, the last transaction that wrote or deleted it.
struct Keys {
    db: Db,
    spaces: [Keyspace; 2],
    writers: Keyspace,
}

struct Work<'k> {
    keys: &'k Keys,
    tx: Transaction,
    run: Run,
    writes: Vec<(Key, bool)>,
}

impl Keys {
    fn open(fs: &MemFs) -> Self {
        let db = store::options(fs).background_threads(2).open(DIR).unwrap();
        let spaces = [db.default_keyspace(), db.open_keyspace("second").unwrap()];
        Self { writers: db.open_keyspace("writers").unwrap(), spaces, db }
    }

    fn begin(&self, id: Id) -> Work<'_> {
        let tx = self.db.transaction();
        let run = Run { id, read_at: tx.snapshot().seqno(), reads: Vec::new() };
        Work { keys: self, tx, run, writes: Vec::new() }
    }

    fn write_blindly(&self, id: Id, rng: &mut Rng) -> Run {
        let mut batch = WriteBatch::new();
        let key = rng.below(2 * u64::from(KEYS)) as Key;
        let space = &self.spaces[usize::from(key / KEYS)];
        if rng.one_in(3) {
            batch.delete_in(space, name(key));
        } else {
            batch.put_in(space, name(key), id.to_le_bytes());
        }
        self.db.write(batch.put_in(&self.writers, key.to_be_bytes(), id.to_le_bytes())).unwrap();
        Run { id, ..Run::default() }
    }
}

impl Work<'_> {
    /// The value read must come from its last writer.
    fn note(&mut self, key: Key, found: Option<&Value>) {
        if let Some(&(_, is_there)) = self.writes.iter().rev().find(|(own, _)| *own == key) {
            assert_eq!(found.map(number), is_there.then_some(self.run.id), "its own write");
            return;
        }
        let writers = self.tx.keyspace(&self.keys.writers);
        let writer = writers.get_untracked(key.to_be_bytes()).unwrap().map_or(0, |writer| number(&writer));
        assert!(found.is_none_or(|found| number(found) == writer), "{key}: {found:?} is not by {writer}");
        self.run.reads.push((key, writer));
    }

    fn look(&mut self, rng: &mut Rng) {
        self.look_at(rng.below(2 * u64::from(KEYS)) as Key, rng.one_in(2));
    }

    fn look_at(&mut self, key: Key, is_batched: bool) {
        let space = self.tx.keyspace(&self.keys.spaces[usize::from(key / KEYS)]);
        let found = match is_batched {
            false => space.get(name(key)).unwrap(),
            true => space.multi_get(&[name(key)]).unwrap().remove(0),
        };
        self.note(key, found.as_ref());
    }

    fn walk(&mut self, rng: &mut Rng) {
        let space = rng.below(2) as usize;
        let first = space as Key * KEYS;
        let (start, len) = (rng.below(u64::from(KEYS)) as Key, 1 + rng.below(u64::from(KEYS)) as Key);
        let end = (start + len).min(KEYS);
        let mut iter = self.tx.keyspace(&self.keys.spaces[space]).range(name(start)..(end).to_be_bytes());
        let (mut low, mut high, mut found) = (start, end, Vec::new());
        for _ in 0..1 + rng.below(6) {
            let is_front = rng.one_in(2);
            let item = if is_front { iter.next() } else { iter.next_back() };
            let Some((key, value)) = item.map(|item| item.unwrap()) else {
                (low, high) = (end, end);
                break;
            };
            let key = Key::from_be_bytes(key[..].try_into().unwrap());
            if is_front {
                low = key + 1
            } else {
                high = key
            }
            found.push((key, value));
        }
        drop(iter);
        let (low, high) = if low >= high { (end, end) } else { (low, high) };
        for key in (start..low).chain(high..end) {
            let value = found.iter().find(|(found, _)| *found == key).map(|(_, value)| value);
            self.note(first + key, value);
        }
    }

    fn go(&mut self, rng: &mut Rng) {
        let (space, from, is_up) = (rng.below(2) as usize, rng.below(u64::from(KEYS)) as Key, rng.one_in(2));
        let mut cursor = self.tx.keyspace(&self.keys.spaces[space]).cursor(..);
        let (mut to, mut found, steps) = (from, Vec::new(), rng.below(4));
        for step in 0..=steps {
            let is_there = match (step, is_up) {
                (0, true) => cursor.seek(name(from)),
                (0, false) => cursor.seek_for_prev(name(from)),
                (_, true) => cursor.next(),
                (_, false) => cursor.prev(),
            };
            if !is_there.unwrap() {
                to = if is_up { KEYS - 1 } else { 0 };
                break;
            }
            let (key, value) = cursor.entry().unwrap().unwrap();
            to = Key::from_be_bytes(key[..].try_into().unwrap());
            found.push((to, value));
        }
        drop(cursor);
        for key in from.min(to)..=from.max(to) {
            let value = found.iter().find(|(found, _)| *found == key).map(|(_, value)| value);
            self.note(space as Key * KEYS + key, value);
        }
    }

    fn write(&mut self, rng: &mut Rng) {
        let (key, is_put) = (rng.below(2 * u64::from(KEYS)) as Key, !rng.one_in(3));
        let (space, id) =
            (self.tx.keyspace(&self.keys.spaces[usize::from(key / KEYS)]), self.run.id.to_le_bytes());
        if is_put {
            space.put(name(key), id);
        } else {
            space.delete(name(key));
        }
        self.tx.keyspace(&self.keys.writers).put(key.to_be_bytes(), id);
        self.writes.push((key, is_put));
    }
}

#[test]
fn random_transactions_of_eight_threads_leave_a_serializable_history() {
    let (each, seed) = (700, seed());
    let keys = Keys::open(&MemFs::new());
    let (next, conflicts) = (AtomicU64::new(1), AtomicU64::new(0));
    let runs = during_flushes(&keys.db, |thread| {
        let (rng, mut runs) = (&mut Rng::new(seed << 8 | thread), Vec::new());
        for _ in 0..each {
            let id = next.fetch_add(1, Ordering::Relaxed);
            if rng.one_in(12) {
                runs.push(keys.write_blindly(id, rng));
                continue;
            }
            let mut work = keys.begin(id);
            for _ in 0..1 + rng.below(5) {
                match rng.below(9) {
                    0..=2 => work.look(rng),
                    3 => work.walk(rng),
                    4..=5 => work.go(rng),
                    6..=7 => work.write(rng),
                    _ => std::thread::yield_now(),
                }
            }
            if rng.one_in(2) {
                std::thread::yield_now();
            }
            match work.tx.commit() {
                Ok(()) => runs.push(work.run),
                Err(Error::Conflict { .. }) => {
                    assert!(!work.writes.is_empty(), "a transaction that only reads never conflicts");
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
        runs
    });
    let mut runs: Vec<Run> = runs.into_iter().flatten().collect();
    let mut last = keys.begin(next.fetch_add(1, Ordering::Relaxed));
    (0..2 * KEYS).for_each(|key| last.look_at(key, false));
    runs.push(last.run);
    let edges = history::check(&runs).unwrap();
    let (conflicts, stats) = (conflicts.load(Ordering::Relaxed), keys.db.stats());
    println!(
        "{} transactions, {edges} dependencies, {conflicts} conflicts, {} flushes, {} compactions",
        runs.len(),
        stats.flushes,
        stats.compactions
    );
    assert!(runs.len() > 2000 && edges > 2000 && stats.flushes > 5, "too little happened");
    assert!(keys.db.verify().unwrap().damage.is_empty());
}

/// Each customer has two accounts, whose sum must not be negative. Each thread records the sum of its payments.
struct Bank {
    db: Db,
    books: [Keyspace; 2],
    paid: Keyspace,
}

const CUSTOMERS: u64 = 12;
const FIRST: i64 = 100;

fn amount(value: Option<Value>) -> i64 {
    value.map_or(0, |value| i64::from_le_bytes(value[..].try_into().unwrap()))
}

impl Bank {
    fn open(fs: &MemFs) -> Self {
        let db = store::options(fs).background_threads(2).open(DIR).unwrap();
        let books = ["checking", "savings"].map(|name| db.open_keyspace(name).unwrap());
        Self { paid: db.open_keyspace("paid").unwrap(), books, db }
    }

    /// Pays if the sum of the two accounts suffices.
    fn pay(&self, tx: &Transaction, thread: u64, rng: &mut Rng) -> Result<()> {
        let (customer, sum) = (rng.below(CUSTOMERS).to_be_bytes(), rng.below(40) as i64);
        let both = [0, 1].map(|book| tx.keyspace(&self.books[book]).get(customer).map(amount));
        let [one, other] = both;
        let both = [one?, other?];
        if rng.one_in(2) {
            std::thread::yield_now();
        }
        if both[0] + both[1] >= sum {
            let book = rng.below(2) as usize;
            tx.keyspace(&self.books[book]).put(customer, (both[book] - sum).to_le_bytes());
            let paid = tx.keyspace(&self.paid);
            let before = amount(paid.get(thread.to_be_bytes())?);
            paid.put(thread.to_be_bytes(), (before + sum).to_le_bytes());
        }
        Ok(())
    }

    /// Transfers if the sum of the first customer's accounts suffices.
    fn transfer(&self, tx: &Transaction, rng: &mut Rng) -> Result<()> {
        let (from, to) = (rng.below(CUSTOMERS).to_be_bytes(), rng.below(CUSTOMERS).to_be_bytes());
        let [book, other] = [0, 1].map(|book| tx.keyspace(&self.books[book]));
        let (sum, balance) = (rng.below(30) as i64, amount(book.get(from)?));
        if balance + amount(other.get(from)?) >= sum && from != to {
            book.put(from, (balance - sum).to_le_bytes());
            book.put(to, (amount(book.get(to)?) + sum).to_le_bytes());
        }
        Ok(())
    }

    fn grant(&self, tx: &Transaction, thread: u64) -> Result<()> {
        let book = tx.keyspace(&self.books[0]);
        let mut sum = 0;
        for item in book.range(..) {
            let (customer, balance) = item?;
            book.put(&customer, (amount(Some(balance)) + 1).to_le_bytes());
            sum += 1;
        }
        let paid = tx.keyspace(&self.paid);
        let before = amount(paid.get(thread.to_be_bytes())?);
        paid.put(thread.to_be_bytes(), (before - sum).to_le_bytes());
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let tx = self.db.transaction();
        let mut total = 0;
        for customer in 0..CUSTOMERS {
            let both =
                [0, 1].map(|book| tx.keyspace(&self.books[book]).get(customer.to_be_bytes()).map(amount));
            let [one, other] = both;
            let both = one? + other?;
            assert!(both >= 0, "customer {customer} has {both}");
            total += both;
        }
        for item in &tx.keyspace(&self.paid) {
            total += amount(Some(item?.1));
        }
        assert_eq!(total, 2 * CUSTOMERS as i64 * FIRST);
        tx.commit()
    }
}

#[test]
fn no_money_is_made_and_no_two_accounts_are_overdrawn_together() {
    let (each, seed) = (250, seed());
    let fs = MemFs::new();
    let bank = Bank::open(&fs);
    let mut batch = WriteBatch::new();
    for customer in 0..CUSTOMERS {
        for book in &bank.books {
            batch.put_in(book, customer.to_be_bytes(), FIRST.to_le_bytes());
        }
    }
    bank.db.write(batch).unwrap();
    let (runs, given_up) = (AtomicU64::new(0), AtomicU64::new(0));
    during_flushes(&bank.db, |thread| {
        let rng = &mut Rng::new(seed << 8 | thread);
        for _ in 0..each {
            let kind = rng.below(12);
            let done = bank.db.transact(|tx| {
                runs.fetch_add(1, Ordering::Relaxed);
                match kind {
                    0..=5 => bank.pay(tx, thread, rng),
                    6..=9 => bank.transfer(tx, rng),
                    10 => bank.grant(tx, thread),
                    _ => bank.check(),
                }
            });
            match done {
                Ok(()) => {}
                Err(Error::Conflict { .. }) => {
                    given_up.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    bank.check().unwrap();
    let (runs, given_up, paid) = (runs.into_inner(), given_up.into_inner(), bank.paid.len().unwrap());
    println!("{runs} runs for {} transactions, {given_up} given up, {paid} threads paid", 8 * each);
    assert!(runs > 8 * each && given_up < each && paid > 4);
    drop(bank);
    Bank::open(&fs).check().unwrap();
}

#[test]
fn no_power_loss_contradicts_a_synced_transaction() {
    let (pairs, calls) = (8, 40);
    let fs = MemFs::new();
    let db = store::options(&fs).background_threads(1).open(DIR).unwrap();
    let other = db.open_keyspace("other").unwrap();
    let known: Arc<Mutex<Vec<u64>>> = Arc::new(Mutex::new(vec![0; pairs]));
    let (images, failure) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None::<String>)));
    let (told, made, failed) = (Arc::clone(&known), Arc::clone(&images), Arc::clone(&failure));
    fs.observe(move |fs, op| {
        let known = told.lock().unwrap().clone();
        let round = made.fetch_add(1, Ordering::Relaxed);
        for policy in [CrashPolicy::DropUnsynced, CrashPolicy::Random(round)] {
            let check = || -> Result<()> {
                let db = store::open(&fs.crash(policy))?;
                let other = db.open_keyspace("other")?;
                for (pair, known) in known.iter().enumerate() {
                    let count = |keyspace: &Keyspace| {
                        Ok(keyspace.get([pair as u8])?.map_or(0, |value| number(&value)))
                    };
                    let (one, two): (Result<u64>, Result<u64>) =
                        (count(&db.default_keyspace()), count(&other));
                    let (one, two) = (one?, two?);
                    if one != two || one < *known {
                        let what =
                            format!("{op:?}, {policy:?}: pair {pair} is {one} and {two}, and was {known}");
                        failed.lock().unwrap().get_or_insert(what);
                    }
                }
                Ok(())
            };
            if let Err(error) = check() {
                failed.lock().unwrap().get_or_insert(format!("{op:?}, {policy:?}: {error}"));
            }
        }
        Ok(())
    });
    let synced_reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (db, other, known, synced_reads) = (&db, &other, &known, &synced_reads);
            scope.spawn(move || {
                let rng = &mut Rng::new(thread);
                for call in 0..calls {
                    let (pair, writes, is_synced) =
                        (rng.below(pairs as u64) as usize, !rng.one_in(4), rng.one_in(2));
                    let durability = if is_synced { Durability::Synced } else { Durability::Buffered };
                    let count = db.transact_with(durability, |tx| {
                        let one = tx.get([pair as u8])?.map_or(0, |value| number(&value));
                        let two = tx.keyspace(other).get([pair as u8])?.map_or(0, |value| number(&value));
                        assert_eq!(one, two);
                        if writes {
                            tx.put([pair as u8], (one + 1).to_le_bytes());
                            tx.keyspace(other).put([pair as u8], (one + 1).to_le_bytes());
                        }
                        Ok(one + u64::from(writes))
                    });
                    if is_synced {
                        let mut known = known.lock().unwrap();
                        known[pair] = known[pair].max(count.unwrap());
                        synced_reads.fetch_add(u64::from(!writes), Ordering::Relaxed);
                    }
                    if call % 20 == 10 {
                        db.flush().unwrap();
                    }
                }
            });
        }
    });
    fs.stop_observing();
    assert_eq!(*failure.lock().unwrap(), None);
    let (images, synced_reads) = (images.load(Ordering::Relaxed), synced_reads.into_inner());
    println!("{images} operations on files, {synced_reads} synced transactions that only read");
    assert!(images > 100 && synced_reads > 5, "{images} operations, {synced_reads} reads");
}

#[test]
fn a_panicking_closure_among_other_threads_leaves_nothing_behind() {
    let db = Options::new().fs(Arc::new(MemFs::new())).open(DIR).unwrap();
    let panics = during_flushes(&db, |thread| {
        let mut panics = 0;
        for n in 0..100 {
            let run = || {
                db.transact(|tx| {
                    let count = tx.get("count")?.map_or(0, |value| number(&value));
                    tx.put("count", (count + 1).to_le_bytes()).put([thread as u8], "");
                    assert!(n % 10 != thread, "told to panic");
                    Ok(())
                })
            };
            match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(())) => {}
                Ok(Err(Error::Conflict { .. })) | Err(_) => panics += 1,
                Ok(Err(error)) => panic!("{error}"),
            }
        }
        panics
    });
    let panics: u64 = panics.into_iter().sum();
    assert!(panics >= 80);
    assert_eq!(db.get("count").unwrap().map(|value| number(&value)), Some(800 - panics));
    assert_eq!(db.stats().snapshots, 0);
    db.close().unwrap();
}
