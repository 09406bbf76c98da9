//! A bank whose accounts always have the same sum. Four writers move money, also between two keyspaces, with one batch
//! per transfer. Four readers sum snapshots, some of them old. Partial batches, mixed snapshots, and lost or revived
//! entries would change the sum.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sievedb::fs::MemFs;
use sievedb::{Db, Durability, Keyspace, KeyspaceOptions, KeyspaceSnapshot, Options, Snapshot, WriteBatch};

use crate::support::rng::Rng;

const WRITERS: u64 = 4;
const READERS: u64 = 4;
const ACCOUNTS_EACH: u64 = 60;
const ACCOUNTS: u64 = WRITERS * ACCOUNTS_EACH;
/// The number for each writer; readers have no limit. `SIEVEDB_TRANSFERS` overrides it for slow sanitizers.
const TRANSFERS_EACH: u64 = 65_000;
const FIRST_BALANCE: i64 = 1000;
const TOTAL: i64 = 2 * ACCOUNTS as i64 * FIRST_BALANCE;

fn transfers_each() -> u64 {
    let transfers = std::env::var("SIEVEDB_TRANSFERS").ok();
    transfers.map_or(TRANSFERS_EACH, |count| count.parse().expect("SIEVEDB_TRANSFERS is a number"))
}

fn account(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn balance(value: &[u8]) -> i64 {
    i64::from_le_bytes(value.try_into().unwrap())
}

#[derive(Clone)]
struct Bank {
    db: Db,
    books: [Keyspace; 2],
}

impl Bank {
    fn open(fs: &MemFs) -> Self {
        let tiny = KeyspaceOptions::new()
            .memtable_bytes(256 << 10)
            .table_bytes(16 << 10)
            .level_base_bytes(32 << 10)
            .block_bytes(1 << 10)
            .l0_runs(2)
            .level_ratio(2);
        let options = Options::new()
            .fs(Arc::new(fs.clone()))
            .memory_budget(8 << 20)
            .background_threads(2)
            .audit_absent(3);
        let db = options.default_keyspace(tiny.clone()).open("/bank").unwrap();
        let books = [db.default_keyspace(), db.keyspace("savings", tiny).unwrap()];
        Self { db, books }
    }

    fn found(&self) {
        let mut batch = WriteBatch::new();
        for number in 0..ACCOUNTS {
            for book in &self.books {
                batch.put_in(book, account(number), FIRST_BALANCE.to_le_bytes());
            }
        }
        self.db.write_with(batch, Durability::Synced).unwrap();
    }

    fn work(&self, writer: u64, seed: u64) {
        let rng = &mut Rng::new(seed);
        let mut known = [[FIRST_BALANCE; 2]; ACCOUNTS_EACH as usize];
        for transfer in 0..transfers_each() {
            let from = rng.below(ACCOUNTS_EACH);
            let to = (from + 1 + rng.below(ACCOUNTS_EACH - 1)) % ACCOUNTS_EACH;
            let book = rng.below(2) as usize;
            let amount = rng.below(500) as i64;
            let mut batch = WriteBatch::new();
            for (own, book, amount) in [(from, book, -amount), (to, 1 - book, amount)] {
                let key = account(own * WRITERS + writer);
                let read = balance(&self.books[book].get(key).unwrap().expect("an account is never gone"));
                let known = &mut known[own as usize][book];
                assert_eq!(read, *known, "seed {seed}, transfer {transfer}: what this thread wrote last");
                *known += amount;
                batch.put_in(&self.books[book], key, known.to_le_bytes());
            }
            self.db.write(batch).unwrap();
        }
    }

    fn audit(&self, reader: u64, done: &AtomicBool) -> u64 {
        let mut held: Vec<Snapshot> = Vec::new();
        let (mut read, mut newest) = (0, 0);
        loop {
            let last = done.load(Ordering::Acquire);
            let snapshot = self.db.snapshot();
            assert!(snapshot.seqno() >= newest, "time goes back");
            newest = snapshot.seqno();
            self.check(&snapshot, reader + read, "now");
            held.push(snapshot);
            read += 2 * ACCOUNTS;
            if held.len() > 3 {
                self.check(&held.remove(0), reader + read, "later");
                read += 2 * ACCOUNTS;
            }
            if last {
                return read;
            }
        }
    }

    fn check(&self, snapshot: &Snapshot, how: u64, when: &str) {
        let sums: Vec<(usize, i64)> =
            self.books.iter().map(|book| sum(&snapshot.keyspace(book), how)).collect();
        let seqno = snapshot.seqno();
        assert!(
            sums.iter().all(|(count, _)| *count == ACCOUNTS as usize),
            "{when}, snapshot {seqno}: {sums:?}"
        );
        assert_eq!(sums[0].1 + sums[1].1, TOTAL, "{when}, snapshot {seqno}: {sums:?}");
    }
}

fn sum(book: &KeyspaceSnapshot, how: u64) -> (usize, i64) {
    let balances: Vec<i64> = match how % 3 {
        0 => book.iter().map(|item| balance(&item.unwrap().1)).collect(),
        1 => book.iter().rev().map(|item| balance(&item.unwrap().1)).collect(),
        _ => {
            let keys: Vec<_> = (0..ACCOUNTS).map(account).collect();
            let values = book.multi_get(&keys).unwrap();
            values.iter().flatten().map(|value| balance(value)).collect()
        }
    };
    (balances.len(), balances.iter().sum())
}

#[test]
fn every_snapshot_has_the_same_total_during_a_million_transfers() {
    let seed =
        std::env::var("SIEVEDB_SEED").map_or(1, |seed| seed.parse().expect("SIEVEDB_SEED is a number"));
    println!("SIEVEDB_SEED={seed}");
    let fs = MemFs::new();
    let bank = Bank::open(&fs);
    bank.found();
    let (done, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (bank, done, read) = (&bank, &done, &read);
            scope.spawn(move || read.fetch_add(bank.audit(reader, done), Ordering::Relaxed));
        }
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        let _done = Done(&done);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let bank = &bank;
                scope.spawn(move || bank.work(writer, seed << 8 | writer));
            }
        });
    });
    let stats = bank.db.stats();
    let operations = 4 * WRITERS * transfers_each() + read.load(Ordering::Relaxed);
    println!(
        "{operations} operations, {} flushes, {} compactions, {} groups of {} batches",
        stats.flushes, stats.compactions, stats.commit_groups, stats.batches
    );
    if transfers_each() >= TRANSFERS_EACH {
        assert!(operations > 1_000_000 && stats.flushes > 50 && stats.compactions > 10, "{stats:?}");
    }
    bank.db.settle().unwrap();
    bank.check(&bank.db.snapshot(), 0, "settled");
    bank.db.compact().unwrap();
    bank.check(&bank.db.snapshot(), 1, "compacted");
    drop(bank);
    let bank = Bank::open(&fs);
    bank.check(&bank.db.snapshot(), 2, "reopened");
}
