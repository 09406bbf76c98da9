//! The cost of deleted keys: tombstones, and hidden entries that scans skip.
//!
//! 1. A million keys are deleted in order: all keys of a store, or the first half. Then the first remaining entry is
//!    searched.
//! 2. A queue: take the first entry, delete it, append a new entry.
//! 3. Range deletes ([`ranges`]).
//!
//! Background work runs in steps between the batches, so counts are deterministic. Times are for one thread.

mod ranges;

use std::path::{Path, PathBuf};
use std::time::Instant;

use byteorder::{BigEndian, ByteOrder};
use sievedb::{Db, Snapshot, WriteBatch};

use crate::report::{Report, Table, count};
use crate::{Result, machine, store};

const BATCH_ENTRIES: u64 = 1000;
const VALUE: [u8; 100] = [7; 100];

/// Counts tombstones of deleted keys, and the entries that scans skip because of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys to delete.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Entries in the queue.
    #[arg(long, default_value_t = 10_000)]
    queue: u64,
    /// Entries to take from the queue.
    #[arg(long, default_value_t = 200_000)]
    pops: u64,
    /// Range deletes.
    #[arg(long, default_value_t = 100_000)]
    ranges: u64,
    /// Entries in the log.
    #[arg(long, default_value_t = 1_000_000)]
    log: u64,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

const OPENING: &str = "A scan skips the tombstones and the deleted entries before the first remaining key. The bars count the skipped \
     entries, so a shorter bar is faster. Compactions remove them all, unless a snapshot still needs them.";

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::new(
        "Deletions: measured",
        "cargo run --release -p sievedb-bench -- deletions --write docs/benchmarks/deletions.md",
    );
    report.text(&machine::describe());
    describe_deleted(args.keys, &mut report)?;
    describe_queue(args, &mut report)?;
    ranges::describe(args.keys, args.ranges, args.log, &mut report)?;
    report.write(args.write.as_deref())
}

fn describe_deleted(keys: u64, report: &mut Report) -> Result<()> {
    report.heading("Deleted keys");
    report.text(&format!(
        "{} keys in order, with values of {} bytes and default options, settled and then deleted in order \
         in batches of {}; due background work runs between batches. `iter().next()` finds the first \
         remaining key. *Passed* counts the hidden entries that it skips (tombstones and deleted entries).",
        count(keys),
        VALUE.len(),
        count(BATCH_ENTRIES)
    ));
    let head =
        ["kept behind them", "state", "tables", "entries in tables", "tombstones", "entries passed", "ms"];
    let mut table = Table::new(head);
    for kept in [0, keys] {
        for is_held in [false, true] {
            let dir = tempfile::tempdir()?;
            let mut deleted = Deleted::new(dir.path(), keys, kept, &mut table)?;
            if is_held {
                deleted.hold_and_delete()?;
            } else {
                deleted.delete_and_settle()?;
            }
        }
    }
    report.table(&table);
    report.open_with(OPENING, "entries skipped, by the number of remaining keys and state", &table, 2, 5);
    Ok(())
}

struct Deleted<'t> {
    db: Db,
    keys: u64,
    kept: u64,
    table: &'t mut Table,
}

impl<'t> Deleted<'t> {
    fn new(dir: &Path, keys: u64, kept: u64, table: &'t mut Table) -> Result<Self> {
        let db = store::open_stepwise(dir)?;
        in_batches(&db, 0..keys + kept, |batch, key| _ = batch.put(key, VALUE))?;
        db.flush()?;
        db.settle()?;
        Ok(Self { db, keys, kept, table })
    }

    fn delete_and_settle(&mut self) -> Result<()> {
        self.delete()?;
        self.look("deleted, with due background work")?;
        self.db.flush()?;
        self.look("flushed")?;
        self.db.settle()?;
        self.look("settled")
    }

    fn hold_and_delete(&mut self) -> Result<()> {
        let snapshot: Snapshot = self.db.snapshot();
        self.delete()?;
        self.db.flush()?;
        self.db.settle()?;
        self.look("flushed and settled, with an earlier snapshot")?;
        drop(snapshot);
        self.db.settle()?;
        self.look("settled again without the snapshot")
    }

    fn delete(&self) -> Result<()> {
        in_batches(&self.db, 0..self.keys, |batch, key| _ = batch.delete(key))
    }

    fn look(&mut self, state: &str) -> Result<()> {
        let levels = self.db.stats().keyspaces[0].total();
        let before = passed(&self.db);
        let start = Instant::now();
        let first = self.db.iter().next().transpose()?;
        let took = start.elapsed();
        let expected = (self.kept > 0).then(|| key_of(self.keys).to_vec());
        if first.map(|(key, _)| key.to_vec()) != expected {
            return Err("wrong first key".into());
        }
        self.table.row([
            count(self.kept),
            state.to_owned(),
            count(levels.tables),
            count(levels.entries),
            count(levels.tombstones),
            count(passed(&self.db) - before),
            format!("{:.3}", took.as_secs_f64() * 1e3),
        ]);
        Ok(())
    }
}

fn in_batches(db: &Db, keys: std::ops::Range<u64>, add: impl Fn(&mut WriteBatch, [u8; 8])) -> Result<()> {
    let mut batch = WriteBatch::new();
    for key in keys.clone() {
        add(&mut batch, key_of(key));
        if (key + 1).is_multiple_of(BATCH_ENTRIES) || key + 1 == keys.end {
            db.write(std::mem::take(&mut batch))?;
            while db.step()? {}
        }
    }
    Ok(())
}

fn key_of(number: u64) -> [u8; 8] {
    let mut key = [0; 8];
    BigEndian::write_u64(&mut key, number);
    key
}

fn passed(db: &Db) -> u64 {
    db.stats().keyspaces[0].skipped_entries
}

fn describe_queue(args: &Args, report: &mut Report) -> Result<()> {
    report.heading("A queue");
    report.text(&format!(
        "{} entries, default options. {} times: take the first entry by `iter().next()`, delete it, append \
         an entry, and run due background work. *Passed* counts the hidden entries that a call skips.",
        count(args.queue),
        count(args.pops)
    ));
    let dir = tempfile::tempdir()?;
    let db = store::open_stepwise(dir.path())?;
    in_batches(&db, 0..args.queue, |batch, key| _ = batch.put(key, VALUE))?;
    let mut table =
        Table::new(["entries taken so far", "passed, mean", "passed, most", "µs to find the first, mean"]);
    let parts = 10.min(args.pops);
    for part in 0..parts {
        let pops = args.pops * part / parts..args.pops * (part + 1) / parts;
        let (count_of, end) = (pops.end - pops.start, pops.end);
        let (mut sum, mut most, mut seconds) = (0, 0, 0.0);
        for pop in pops {
            let before = passed(&db);
            let start = Instant::now();
            let first = db.iter().next().transpose()?;
            seconds += start.elapsed().as_secs_f64();
            let passed = passed(&db) - before;
            (sum, most) = (sum + passed, most.max(passed));
            let (key, _) = first.ok_or("the queue is empty")?;
            if key[..] != key_of(pop) {
                return Err("wrong first entry".into());
            }
            db.delete(key)?;
            db.put(key_of(pop + args.queue), VALUE)?;
            while db.step()? {}
        }
        table.row([
            count(end),
            format!("{:.1}", sum as f64 / count_of as f64),
            count(most),
            format!("{:.1}", seconds * 1e6 / count_of as f64),
        ]);
    }
    report.table(&table);
    Ok(())
}
