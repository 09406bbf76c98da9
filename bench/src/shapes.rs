//! Instructions of calls on a memtable for keys of several shapes, counted by callgrind: the counts by shape
//! in `docs/benchmarks/limits.md`.
//!
//! For each cell, the program runs itself twice under callgrind, with two lengths of the same work. Each run
//! opens a new store without background threads, makes all keys, and writes the entries that the counted
//! calls need. The memtable holds all entries.

use std::hint::black_box;
use std::path::PathBuf;

use sievedb::{Db, KeyspaceOptions, Options, WriteBatch};

use crate::keys::KeyShape;
use crate::report::{Report, Table, count};
use crate::{Result, callgrind};

/// Entries in the memtable at the end of the longer run.
const KEYS: u64 = 30_000;
const UNIT: u64 = 5_000;
const VALUE_BYTES: usize = 100;
const SCAN_ENTRIES: usize = 10;

/// Counts the instructions of calls on a memtable, for keys of many shapes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Counts only the shapes whose names contain this.
    #[arg(default_value = "")]
    shape: String,
    /// Counts misses of the first cache of a core, as callgrind simulates it, instead of instructions.
    #[arg(long)]
    misses: bool,
    /// Repeats a unit of work this many times and prints nothing: the run that callgrind counts.
    #[arg(long, value_names = ["SHAPE", "WORK", "TIMES"], num_args = 3, hide = true)]
    only: Option<Vec<String>>,
    /// Writes the table to this file as well.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Puts,
    Batches,
    InsertNew,
    Gets,
    Scan,
    ScanBack,
    ShortScans,
}

const WORKS: [(&str, Work); 7] = [
    ("put", Work::Puts),
    ("put in batches of 1,000", Work::Batches),
    ("`insert_new_many` of 1,000", Work::InsertNew),
    ("get, present", Work::Gets),
    ("full scan", Work::Scan),
    ("full scan back", Work::ScanBack),
    ("scan of 10", Work::ShortScans),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some([shape, work, times]) = args.only.as_deref() {
        let shape = KeyShape::ALL.into_iter().find(|one| one.name() == shape).ok_or("no such shape")?;
        let (_, work) = WORKS.into_iter().find(|(name, _)| name == work).ok_or("no such work")?;
        return work.run(shape, times.parse()?);
    }
    let mut report =
        Report::new("Keys of many shapes in a memtable", "cargo run --release -p sievedb-bench -- shapes");
    report.text(&format!(
        "{} per entry; in brackets the ratio to random keys. {} keys with values of {VALUE_BYTES} bytes.",
        if args.misses {
            "Misses of the first-level cache in callgrind's simulation"
        } else {
            "Instructions"
        },
        count(KEYS)
    ));
    let counter = if args.misses { callgrind::Counter::Misses } else { callgrind::Counter::Instructions };
    let mut table = Table::new(["key"].into_iter().chain(WORKS.map(|(name, _)| name)));
    let mut random = None;
    for shape in KeyShape::ALL {
        if shape != KeyShape::Random && !shape.name().contains(&args.shape) {
            continue;
        }
        let counted = WORKS
            .iter()
            .map(|(work, _)| {
                let each = callgrind::each_of(counter, &["shapes", "--only", shape.name(), work], 1, 2);
                Ok(each.ok_or("callgrind counted nothing; is valgrind installed?")? / UNIT as f64)
            })
            .collect::<Result<Vec<f64>>>()?;
        let random = random.get_or_insert_with(|| counted.clone());
        let cells = counted.iter().zip(random).map(|(each, random)| match counter {
            callgrind::Counter::Instructions => {
                format!("{} ({:.2})", count(each.round() as u64), each / *random)
            }
            callgrind::Counter::Misses => format!("{each:.1} ({:.2})", each / *random),
        });
        let row: Vec<_> = [shape.name().to_owned()].into_iter().chain(cells).collect();
        eprintln!("{}", row.join(" | "));
        table.row(row);
    }
    report.table(&table);
    report.write(args.write.as_deref())
}

impl Work {
    /// Runs `times` units of work in a new store.
    fn run(self, shape: KeyShape, times: u64) -> Result<()> {
        let dir = tempfile::tempdir()?;
        let keyspace = KeyspaceOptions::new().memtable_bytes(1 << 30);
        let options = Options::new().memory_budget(4 << 30).background_threads(0).default_keyspace(keyspace);
        let db = options.open(dir.path())?;
        let keys: Vec<Vec<u8>> = (0..KEYS).map(|index| shape.key(index)).collect();
        // The last entries are the counted ones.
        let written = if self.writes() { KEYS - 2 * UNIT } else { KEYS } as usize;
        write(&db, &keys[..written])?;
        let start = if self.writes() { written } else { 0 };
        for unit in 0..times as usize {
            self.once(&db, &keys[start + unit * UNIT as usize..][..UNIT as usize])?;
        }
        if db.stats().keyspaces.iter().any(|keyspace| keyspace.total().runs > 0) {
            return Err("the memtable was flushed".into());
        }
        Ok(db.close()?)
    }

    fn writes(self) -> bool {
        matches!(self, Self::Puts | Self::Batches | Self::InsertNew)
    }

    /// One unit of work: these keys, or as many entries of a scan.
    fn once(self, db: &Db, keys: &[Vec<u8>]) -> Result<()> {
        let taken = match self {
            Self::Puts => {
                keys.iter().try_fold(0, |done, key| db.put(key, [7; VALUE_BYTES]).map(|()| done + 1))?
            }
            Self::Batches => write(db, keys)?,
            Self::InsertNew => keys.chunks(1000).try_fold(0, |done, keys| {
                let new = db.insert_new_many(keys.iter().map(|key| (key, [7; VALUE_BYTES])))?;
                Ok::<_, sievedb::Error>(done + (0..keys.len()).filter(|&at| new.is_new(at)).count())
            })?,
            Self::Gets => keys.iter().try_fold(0, |found, key| {
                Ok::<_, sievedb::Error>(found + usize::from(db.get(key)?.is_some()))
            })?,
            Self::Scan => entries(db.iter().take(keys.len()))?,
            Self::ScanBack => entries(db.iter().rev().take(keys.len()))?,
            Self::ShortScans => keys.iter().step_by(SCAN_ENTRIES).try_fold(0, |passed, key| {
                Ok::<_, sievedb::Error>(
                    passed + entries(db.range(&key[..]..).take(SCAN_ENTRIES))?.max(SCAN_ENTRIES),
                )
            })?,
        };
        if taken == keys.len() { Ok(()) } else { Err(format!("{taken} of {} entries", keys.len()).into()) }
    }
}

fn write(db: &Db, keys: &[Vec<u8>]) -> sievedb::Result<usize> {
    for keys in keys.chunks(1000) {
        let mut batch = WriteBatch::new();
        keys.iter().for_each(|key| _ = batch.put(key, [7; VALUE_BYTES]));
        db.write(batch)?;
    }
    Ok(keys.len())
}

fn entries(
    iter: impl Iterator<Item = sievedb::Result<(sievedb::Value, sievedb::Value)>>,
) -> sievedb::Result<usize> {
    let mut entries = 0;
    for item in iter {
        black_box(item?);
        entries += 1;
    }
    Ok(entries)
}
