use std::path::Path;
use std::time::Instant;

use sievedb::{Db, Options, Stats, WriteBatch};

use super::keys::Keys;
use super::store::Args;
use crate::{Result, machine, store};

const BATCH_ENTRIES: u64 = 1000;
const SCAN_ENTRIES: usize = 100;

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Figures {
    pub(super) name: String,
    pub(super) load_rate: f64,
    pub(super) level_0_runs: u64,
    pub(super) settle_seconds: f64,
    pub(super) absent: Lookups,
    pub(super) present: Lookups,
    pub(super) scan_nanos: f64,
    pub(super) open_seconds: f64,
    pub(super) absent_again: Lookups,
    pub(super) filter_bytes: u64,
    pub(super) bits_per_key: f64,
    /// The peak of all phases; `None` if unknown.
    pub(super) peak_bytes: Option<u64>,
    pub(super) user_bytes: u64,
    pub(super) disk_bytes: u64,
    pub(super) table_bytes_written: u64,
    pub(super) keys_bytes: u64,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Scarce {
    pub(super) keys: u64,
    pub(super) absent: [Lookups; 3],
}

/// Means per key.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Lookups {
    pub(super) nanos: f64,
    pub(super) blocks: f64,
    pub(super) filter_pages: f64,
}

pub(super) fn measure(keys: &Keys, args: &Args) -> Result<Figures> {
    let name = keys.name();
    let dir = &args.dir;
    let open = || Options::new().memory_budget(args.budget).open(dir);
    eprintln!("{name}: load …");
    let db = open()?;
    let start = Instant::now();
    let user_bytes = load(&db, keys, args)?;
    let load_rate = keys.len() as f64 / start.elapsed().as_secs_f64();
    let level_0_runs = levels(&db.stats())?.first().map_or(0, |level| level.runs);
    eprintln!("{name}: settle …");
    let start = Instant::now();
    db.flush()?;
    db.settle()?;
    db.open_tables()?;
    let settle_seconds = start.elapsed().as_secs_f64();
    let settled = db.stats();
    let disk_bytes = disk_bytes(dir)?;
    eprintln!("{name}: absent …");
    let absent_first = absent(&db, keys, args)?;
    eprintln!("{name}: present …");
    let present = present(&db, keys, args)?;
    eprintln!("{name}: scan …");
    let scan_nanos = scans(&db, keys, args)?;
    eprintln!("{name}: open …");
    db.close()?;
    let start = Instant::now();
    let db = open()?;
    let open_seconds = start.elapsed().as_secs_f64();
    db.open_tables()?;
    let absent_again = absent(&db, keys, args)?;
    db.close()?;
    let levels = levels(&settled)?;
    let filter_bits =
        levels.iter().filter_map(|level| Some(level.filter_bits_per_key()? * level.keys as f64));
    Ok(Figures {
        name,
        load_rate,
        level_0_runs,
        settle_seconds,
        absent: absent_first,
        present,
        scan_nanos,
        open_seconds,
        absent_again,
        filter_bytes: settled.filter_memory_bytes,
        bits_per_key: filter_bits.sum::<f64>() / keys.len() as f64,
        peak_bytes: machine::peak_bytes(),
        user_bytes,
        disk_bytes,
        table_bytes_written: settled.flushed_bytes + settled.compacted_bytes,
        keys_bytes: keys.bytes(),
    })
}

pub(super) fn scarce(keys: &Keys, args: &Args, budget: usize) -> Result<Scarce> {
    eprintln!("{}: absent, with a scarce budget …", keys.name());
    let db = Options::new().memory_budget(budget).open(&args.dir)?;
    db.open_tables()?;
    let [first, then] = [absent(&db, keys, args)?, absent(&db, keys, args)?];
    db.settle()?;
    let absent = [first, then, absent(&db, keys, args)?];
    db.close()?;
    Ok(Scarce { keys: keys.len(), absent })
}

fn disk_bytes(dir: &Path) -> Result<u64> {
    std::fs::read_dir(dir)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len()))
}

fn levels(stats: &Stats) -> Result<&[sievedb::LevelStats]> {
    Ok(&stats.keyspace("default").ok_or("the default keyspace is missing")?.levels)
}

fn load(db: &Db, keys: &Keys, args: &Args) -> Result<u64> {
    let (mut value, mut buffer, mut bytes) = (vec![0; args.value], Vec::new(), 0);
    for start in (0..keys.len()).step_by(BATCH_ENTRIES as usize) {
        let mut batch = WriteBatch::new();
        for number in start..(start + BATCH_ENTRIES).min(keys.len()) {
            store::fill_value(number, &mut value);
            let key = keys.key(number, &mut buffer);
            bytes += (key.len() + value.len()) as u64;
            batch.put(key, &value);
        }
        db.write(batch)?;
    }
    Ok(bytes)
}

fn sample(keys: &Keys, lookups: u64) -> impl Iterator<Item = u64> {
    let len = keys.len();
    let lookups = lookups.min(len);
    (0..lookups).map(move |index| (u128::from(index) * u128::from(len) / u128::from(lookups)) as u64)
}

fn lookups(db: &Db, keys: &Keys, args: &Args, mut look_up: impl FnMut(u64) -> Result<()>) -> Result<Lookups> {
    let before = db.stats();
    let start = Instant::now();
    for number in sample(keys, args.lookups) {
        look_up(number)?;
    }
    let elapsed = start.elapsed();
    let after = db.stats();
    let each = |total: u64| total as f64 / args.lookups.min(keys.len()) as f64;
    let pages = |stats: &Stats| stats.filter_page_reads + stats.filter_page_cache_hits;
    Ok(Lookups {
        nanos: each(elapsed.as_nanos() as u64),
        blocks: each(store::data_blocks(&after) - store::data_blocks(&before)),
        filter_pages: each(pages(&after) - pages(&before)),
    })
}

fn absent(db: &Db, keys: &Keys, args: &Args) -> Result<Lookups> {
    let mut buffer = Vec::new();
    lookups(db, keys, args, |number| match db.get(keys.absent(number, &mut buffer))? {
        Some(_) => Err(format!("absent key number {number} was found").into()),
        None => Ok(()),
    })
}

fn present(db: &Db, keys: &Keys, args: &Args) -> Result<Lookups> {
    let (mut expected, mut buffer) = (vec![0; args.value], Vec::new());
    lookups(db, keys, args, |number| {
        store::fill_value(number, &mut expected);
        if db.get(keys.key(number, &mut buffer))?.as_deref() != Some(&*expected) {
            return Err(format!("key number {number} has a wrong value or is missing").into());
        }
        Ok(())
    })
}

/// Nanoseconds for each entry.
fn scans(db: &Db, keys: &Keys, args: &Args) -> Result<f64> {
    let (mut buffer, mut entries) = (Vec::new(), 0);
    let start = Instant::now();
    for number in sample(keys, (args.lookups / SCAN_ENTRIES as u64).max(1)) {
        let first = keys.key(number, &mut buffer).to_vec();
        for (place, item) in db.range(&first[..]..).take(SCAN_ENTRIES).enumerate() {
            let (key, _) = item?;
            if place == 0 && *key != *first {
                return Err(format!("a scan from key number {number} starts elsewhere").into());
            }
            entries += 1;
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / entries.max(1) as f64)
}
