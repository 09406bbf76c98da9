//! The demo from beginning to end.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sievedb::{Db, FilterKind, FilterPolicy, Keyspace, KeyspaceOptions, WriteBatch};

use super::absent::absent_keys;
use super::home::Home;
use super::measure::{Measured, Questions, measure};
use super::random::Random;
use super::report;
use super::source::{Record, Source};
use crate::failure::Result;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, DEFAULT_KEYSPACE, Within};

/// Where everything random begins.
const SEED: u64 = 1;

/// Entries in a batch.
const BATCH_ENTRIES: usize = 1000;

/// Shows what the filters do, on the paths of this machine's files.
///
/// Loads the path of every file under /usr (with its size and time) or the lines of a file, looks up every
/// key and as many that are not there, with the filters and without, and reports what that cost. The store
/// stays for you to look at; a second run begins afresh in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the store [default: sievedb-demo in the system's temporary directory,
    /// or sievedb-demo-2 if that cannot be used, and so on].
    db: Option<PathBuf>,
    /// A file whose lines become the keys, or a directory whose files' paths do.
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    #[command(flatten)]
    within: Within,
}

/// What the report is about.
pub(super) struct Findings {
    pub(super) dir: PathBuf,
    pub(super) keyspace: String,
    pub(super) source: Source,
    /// Which of the records to try, and the absent key beside it.
    pub(super) example: usize,
    pub(super) absent_key: Vec<u8>,
    /// Entries of an earlier run that were deleted first.
    pub(super) deleted: u64,
    pub(super) seed: u64,
    pub(super) load_time: Duration,
    pub(super) loaded: Pair,
    pub(super) compacted: Pair,
    /// Bytes of the store's files at the end.
    pub(super) disk_bytes: u64,
}

/// The same data in the same shape, with filters and without.
pub(super) struct Pair {
    pub(super) with: Measured,
    pub(super) without: Measured,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = Source::read(args.from.as_deref())?;
    let mut random = Random(SEED);
    let absent = absent_keys(&source.records, &mut random);
    let load_order = random.order(source.records.len());
    let order = random.order(source.records.len());
    let questions = Questions { records: &source.records, absent: &absent, order: &order };

    let name = args.within.keyspace.as_deref().unwrap_or(DEFAULT_KEYSPACE);
    let bare_name = format!("{name}-without-filters");
    let options = shape(source.bytes);
    let bare_options = options.clone().filter(FilterPolicy::new(FilterKind::None));
    let keyspaces = [(name, &options), (&bare_name[..], &bare_options)];
    let home = match &args.db {
        Some(dir) => Home::open(dir, keyspaces)?,
        None => Home::open_somewhere(keyspaces)?,
    };
    let Home { dir, db, keyspaces: [keyspace, bare], deleted } = home;

    let load_time = load(&db, &keyspace, &source.records, &load_order)?;
    load(&db, &bare, &source.records, &load_order)?;
    let measure_both = || -> Result<Pair> {
        Ok(Pair { with: measure(&db, &keyspace, &questions)?, without: measure(&db, &bare, &questions)? })
    };
    let loaded = measure_both()?;
    keyspace.compact()?;
    bare.compact()?;
    let compacted = measure_both()?;
    drop(bare);
    db.drop_keyspace(&bare_name)?;
    // The ledger too, so that no log is needed any more.
    db.flush()?;
    db.close()?;

    let disk_bytes = store::disk_bytes(&dir)?;
    let example = example(&source.records);
    let absent_key = absent[example].clone();
    let keyspace = name.to_owned();
    let findings = Findings {
        dir,
        keyspace,
        source,
        example,
        absent_key,
        deleted,
        seed: SEED,
        load_time,
        loaded,
        compacted,
        disk_bytes,
    };
    let mut out = Output::new();
    out.raw(report::report(&findings).as_bytes())?;
    out.finish()
}

/// A record whose key is neither a riddle nor a whole line: about as long as a short path.
fn example(records: &[Record]) -> usize {
    (0..records.len()).min_by_key(|&index| records[index].key.len().abs_diff(12)).unwrap_or(0)
}

/// Options with which this much data makes a tree of several levels, as a store many times as large has with
/// the defaults.
fn shape(data_bytes: usize) -> KeyspaceOptions {
    let memtable_bytes = (data_bytes / 10).clamp(64 << 10, 32 << 20);
    KeyspaceOptions::new()
        .memtable_bytes(memtable_bytes)
        .table_bytes(memtable_bytes as u64)
        .level_base_bytes(memtable_bytes as u64 / 4)
        .level_ratio(4)
}

/// Loads the records and flushes them; background work is done between the batches. The time is for all of it.
fn load(db: &Db, keyspace: &Keyspace, records: &[Record], order: &[usize]) -> Result<Duration> {
    let mut progress = Progress::of_items("loading", Some(order.len() as u64));
    let mut done = 0;
    let start = Instant::now();
    for part in order.chunks(BATCH_ENTRIES) {
        let mut batch = WriteBatch::new();
        for &index in part {
            batch.put_in(keyspace, &records[index].key, &records[index].value);
        }
        db.write(batch)?;
        while db.step()? {}
        done += part.len() as u64;
        progress.at(done);
    }
    db.sync()?;
    keyspace.flush()?;
    db.settle()?;
    Ok(start.elapsed())
}
