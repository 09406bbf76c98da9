use std::time::Duration;

use sievedb::{Db, KeyspaceOptions, Options, WriteBatch};

use super::{BATCH_ENTRIES, VALUE, in_batches, key_of};
use crate::clock::{WHAT, cost};
use crate::random::{below, number};
use crate::report::{Report, Table, count};
use crate::{Result, store};

const LONG: u64 = 1000;

pub(super) fn describe(keys: u64, spans: u64, log: u64, report: &mut Report) -> Result<()> {
    describe_one(keys, report)?;
    describe_pairs(spans, report)?;
    describe_reads(spans, report)?;
    describe_log(log, report)
}

fn micros(time: Duration, calls: u64) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e6 / calls.max(1) as f64)
}

fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

fn table_bytes(db: &Db) -> u64 {
    db.stats().keyspaces.iter().map(|keyspace| keyspace.total().bytes).sum()
}

fn describe_one(keys: u64, report: &mut Report) -> Result<()> {
    report.heading("One range of many keys");
    report.text(&format!(
        "{} keys in order in a keyspace, values of {} bytes, settled. All are deleted: by one range delete, by batches of \
         {} deletes, and by dropping the keyspace. *Written* counts bytes of the log and of tables until the store is \
         settled again. Times are {WHAT}.",
        count(keys),
        VALUE.len(),
        count(BATCH_ENTRIES)
    ));
    let head =
        ["deleted by", "calls, ms", "until settled, ms", "bytes written", "table bytes before", "and after"];
    let mut table = Table::new(head);
    for way in ["a range", "single keys", "dropping the keyspace"] {
        let dir = tempfile::tempdir()?;
        let db = store::open_stepwise(dir.path())?;
        let keyspace = db.keyspace("many", KeyspaceOptions::new())?;
        let mut batch = WriteBatch::new();
        for key in 0..keys {
            batch.put_in(&keyspace, key_of(key), VALUE);
            if (key + 1).is_multiple_of(BATCH_ENTRIES) || key + 1 == keys {
                db.write(std::mem::take(&mut batch))?;
                while db.step()? {}
            }
        }
        db.flush()?;
        db.settle()?;
        let (before, bytes) = (table_bytes(&db), written(&db));
        let delete = || -> Result<()> {
            match way {
                "a range" => keyspace.delete_range(key_of(0)..key_of(keys))?,
                "single keys" => {
                    let mut batch = WriteBatch::new();
                    for key in 0..keys {
                        batch.delete_in(&keyspace, key_of(key));
                        if (key + 1).is_multiple_of(BATCH_ENTRIES) || key + 1 == keys {
                            db.write(std::mem::take(&mut batch))?;
                        }
                    }
                }
                _ => db.drop_keyspace("many")?,
            }
            Ok(())
        };
        let (calls, deleted) = cost(delete);
        deleted?;
        let settle = || -> Result<()> {
            db.flush()?;
            Ok(db.settle()?)
        };
        let (settling, settled) = cost(settle);
        settled?;
        table.row([
            way.to_owned(),
            millis(calls),
            millis(settling),
            count(written(&db) - bytes),
            count(before),
            count(table_bytes(&db)),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn written(db: &Db) -> u64 {
    let stats = db.stats();
    stats.logged_bytes + stats.flushed_bytes + stats.compacted_bytes
}

fn range(shape: &str, index: u64, ranges: u64, keys: u64) -> std::ops::Range<u64> {
    match shape {
        "nested" => index..keys - index,
        "apart, in order" => 2 * index..2 * index + 1,
        _ => {
            let len = if index.is_multiple_of(10) { LONG } else { LONG / 100 };
            let start = below(number(21, index), (2 * ranges).max(keys) - len);
            start..start + len
        }
    }
}

fn describe_pairs(spans: u64, report: &mut Report) -> Result<()> {
    report.heading("Range deletes and gets by turns");
    report.text(&format!(
        "{} pairs of `delete_range` and `get` of a random key, in a store with {} keys in one table. All range deletes are in \
         the memtable, which is not flushed. *Nested*: each range lies in the one before. *Overlapping*: random starts; \
         every tenth range has {LONG} keys, the others {}. Microseconds of {WHAT} for a pair.",
        count(spans),
        count(2 * spans),
        LONG / 100
    ));
    let mut table = Table::new(["ranges", "first tenth", "last tenth", "mean"]);
    for shape in ["nested", "overlapping", "apart, in order"] {
        let dir = tempfile::tempdir()?;
        let keys = 2 * spans + LONG;
        let options = KeyspaceOptions::new().memtable_bytes(256 << 20);
        let open = Options::new().background_threads(0).memory_budget(2 << 30).default_keyspace(options);
        let db = open.open(dir.path())?;
        in_batches(&db, 0..keys, |batch, key| _ = batch.put(key, VALUE))?;
        db.compact()?;
        let mut parts = Vec::new();
        for part in 0..10 {
            let (time, done) = cost(|| -> Result<()> {
                for index in spans * part / 10..spans * (part + 1) / 10 {
                    let range = range(shape, index, spans, keys);
                    db.delete_range(key_of(range.start)..key_of(range.end))?;
                    db.get(key_of(below(number(22, index), keys)))?;
                }
                Ok(())
            });
            done?;
            parts.push(time);
        }
        if db.stats().keyspaces[0].total().tables != 1 {
            return Err("the memtable was flushed".into());
        }
        let sum: Duration = parts.iter().sum();
        table.row([
            shape.to_owned(),
            micros(parts[0], spans / 10),
            micros(parts[9], spans / 10),
            micros(sum, spans),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn describe_reads(spans: u64, report: &mut Report) -> Result<()> {
    report.heading("Reads over flushed range deletes");
    let keys = 10 * spans;
    report.text(&format!(
        "Three stores with {} keys in order, compacted: without range deletes; with {} of 3 keys each, 10 keys apart, flushed \
         into a newer table; and compacted again after that. Gets of random remaining keys, and scans of 100 entries from \
         such keys. Microseconds of {WHAT}, medians of five rounds by turns.",
        count(keys),
        count(spans)
    ));
    let (dirs, mut stores) = ([tempfile::tempdir()?, tempfile::tempdir()?, tempfile::tempdir()?], Vec::new());
    for (at, dir) in dirs.iter().enumerate() {
        let options = KeyspaceOptions::new().memtable_bytes(256 << 20).l0_runs(8);
        let open = Options::new().background_threads(0).memory_budget(2 << 30).default_keyspace(options);
        let db = open.open(dir.path())?;
        in_batches(&db, 0..keys, |batch, key| _ = batch.put(key, VALUE))?;
        db.compact()?;
        if at > 0 {
            for index in 0..spans {
                db.delete_range(key_of(10 * index)..key_of(10 * index + 3))?;
            }
            db.flush()?;
        }
        if at == 2 {
            db.compact()?;
        }
        db.open_tables()?;
        stores.push(db);
    }
    let left = |index: u64| 10 * below(number(23, index), spans) + 3 + index % 7;
    let gets = |db: &Db, round: u64| -> Result<Duration> {
        let (time, read) = cost(|| -> Result<()> {
            for index in round * 100_000..(round + 1) * 100_000 {
                db.get(key_of(left(index)))?.ok_or("a key is missing")?;
            }
            Ok(())
        });
        read.map(|()| time)
    };
    let scans = |db: &Db, round: u64| -> Result<Duration> {
        let (time, read) = cost(|| -> Result<()> {
            for index in round * 3000..(round + 1) * 3000 {
                db.range(key_of(left(index))..).take(100).try_for_each(|entry| entry.map(drop))?;
            }
            Ok(())
        });
        read.map(|()| time)
    };
    let mut times = vec![[Vec::new(), Vec::new()]; stores.len()];
    for round in 0..6 {
        for (db, times) in stores.iter().zip(&mut times) {
            let round_times = [gets(db, round)?, scans(db, round)?];
            (1..=round.min(1))
                .for_each(|_| times.iter_mut().zip(round_times).for_each(|(all, time)| all.push(time)));
        }
    }
    let mut table = Table::new(["store", "get", "scan of 100"]);
    for (name, times) in ["without range deletes", "with them flushed", "compacted"].iter().zip(&mut times) {
        times.iter_mut().for_each(|all| all.sort_unstable());
        let [gets, scans] = times;
        table.row([
            (*name).to_owned(),
            micros(gets[gets.len() / 2], 100_000),
            micros(scans[scans.len() / 2], 3000),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn describe_log(entries: u64, report: &mut Report) -> Result<()> {
    report.heading("A log");
    report.text(&format!(
        "{} entries in all, default options. By turns: append 1,000 entries, delete the oldest so that 100 stay, delete the \
         newest 50 (both by range), and run due background work.",
        count(entries)
    ));
    let dir = tempfile::tempdir()?;
    let db = store::open_stepwise(dir.path())?;
    let rounds = entries / 1000;
    let mut table = Table::new(["entries so far", "µs a round", "table bytes", "log bytes", "entries left"]);
    let (mut next, parts) = (0_u64, 10.min(rounds));
    for part in 0..parts {
        let of_part = rounds * part / parts..rounds * (part + 1) / parts;
        let count_of = of_part.end - of_part.start;
        let (time, done) = cost(|| -> Result<()> {
            for _ in of_part {
                let mut batch = WriteBatch::new();
                (next..next + 1000).for_each(|key| _ = batch.put(key_of(key), VALUE));
                db.write(batch)?;
                next += 1000;
                db.delete_range(..key_of(next - 100))?;
                db.delete_range(key_of(next - 50)..)?;
                next -= 50;
                while db.step()? {}
            }
            Ok(())
        });
        done?;
        let stats = db.stats();
        table.row([
            count(rounds * (part + 1) / parts * 1000),
            micros(time, count_of),
            count(table_bytes(&db)),
            count(stats.log_bytes),
            count(db.iter().count() as u64),
        ]);
    }
    report.table(&table);
    Ok(())
}
