use std::path::PathBuf;

use sievedb::{Db, Keyspace, KeyspaceOptions};

use crate::report::{Report, Table, count, keys as keys_text};
use crate::rounds::{Rounds, Spread};
use crate::store::{self, KEY_BYTES};
use crate::{Result, clock, machine};

const VALUE_BYTES: usize = 100;
const LOOKUPS: usize = 100_000;
const ROUNDS: usize = 21;

/// Measures lookups per second.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys in the store.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Pins the thread to this processor.
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<usize>,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// The name, whether the keys are present, and a function that returns the number of found keys.
type Way = (&'static str, bool, fn(&Keyspace, &[[u8; KEY_BYTES]]) -> Result<usize>);

const WAYS: [Way; 7] = [
    ("get, absent", false, |keyspace, keys| tally(keys, |key| Ok(keyspace.get(key)?.is_some()))),
    ("contains, absent", false, |keyspace, keys| tally(keys, |key| Ok(keyspace.contains(key)?))),
    ("may_contain, absent", false, |keyspace, keys| {
        tally(keys, |key| Ok(keyspace.may_contain(key))).map(|_| 0)
    }),
    ("multi_contains of 32, absent", false, |keyspace, keys| batches(keyspace, keys, 32)),
    ("multi_contains of 1000, absent", false, |keyspace, keys| batches(keyspace, keys, 1000)),
    ("get, present", true, |keyspace, keys| tally(keys, |key| Ok(keyspace.get(key)?.is_some()))),
    ("multi_contains of 32, present", true, |keyspace, keys| batches(keyspace, keys, 32)),
];

fn tally(keys: &[[u8; KEY_BYTES]], ask: impl Fn(&[u8; KEY_BYTES]) -> Result<bool>) -> Result<usize> {
    keys.iter().try_fold(0, |found, key| Ok(found + usize::from(ask(key)?)))
}

fn batches(keyspace: &Keyspace, keys: &[[u8; KEY_BYTES]], size: usize) -> Result<usize> {
    keys.chunks(size).try_fold(0, |found, keys| {
        Ok(found + keyspace.multi_contains(keys)?.into_iter().filter(|&there| there).count())
    })
}

const OPENING: &str = "One thread looks up absent and present keys in a store whose blocks are all cached. A shorter bar is faster. The table \
     also has a store with several runs of tables, and the range of the rounds.";

pub(crate) fn run(args: &Args) -> Result<()> {
    let pinned = machine::pin(args.cpu);
    let dir = tempfile::tempdir()?;
    let db = store::open_stepwise(dir.path())?;
    let options =
        KeyspaceOptions::new().memtable_bytes(4 << 20).table_bytes(4 << 20).level_base_bytes(4 << 20);
    let keyspace = db.keyspace("engine", options)?;
    store::load(&db, &keyspace, 0..args.keys, VALUE_BYTES)?;
    let mut shapes = vec![(shape(&db, &keyspace), measure(&keyspace, args.keys)?)];
    keyspace.compact()?;
    db.open_tables()?;
    shapes.push((shape(&db, &keyspace), measure(&keyspace, args.keys)?));
    db.close()?;

    let mut report = Report::new(
        "The engine: measured lookups",
        "cargo run --release -p sievedb-bench -- engine --write docs/benchmarks/engine.md",
    );
    report.text(&format!("{}; {pinned}; load {} at the end.", machine::describe(), machine::load()));
    report.text(&format!(
        "{} keys of {KEY_BYTES} bytes with values of {VALUE_BYTES}, default filters. Nanoseconds per key of {}: median \
         of {ROUNDS} rounds in turns (least–greatest), {} keys each.",
        keys_text(args.keys),
        clock::WHAT,
        count(LOOKUPS as u64)
    ));
    let mut table = Table::new(
        std::iter::once("one thread, blocks cached".to_owned())
            .chain(shapes.iter().flat_map(|(shape, _)| [format!("{shape}: ns"), "per second".to_owned()])),
    );
    for (index, (name, ..)) in WAYS.iter().enumerate() {
        let figures = shapes.iter().flat_map(|(_, times)| {
            let time: Spread = times.of(index);
            [time.to_string(), count((1e9 / time.median) as u64)]
        });
        table.row(std::iter::once((*name).to_owned()).chain(figures));
    }
    report.table(&table);
    report.open_with(OPENING, "nanoseconds per key, one run of tables", &table, 1, 3);
    report.write(args.write.as_deref())
}

fn shape(db: &Db, keyspace: &Keyspace) -> String {
    let stats = db.stats();
    let levels = store::levels(&stats, &stats, keyspace.name());
    let runs: u64 = levels.iter().map(|level| level.stats.runs).sum();
    let counted = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    format!("{}, {}", counted(levels.len() as u64, "level"), counted(runs, "run"))
}

fn measure(keyspace: &Keyspace, keys: u64) -> Result<Rounds> {
    let absent: Vec<_> = (0..LOOKUPS as u64).map(store::absent_key).collect();
    let present: Vec<_> = (0..LOOKUPS as u64).map(|index| store::key(index % keys)).collect();
    let mut failure = None;
    let rounds = Rounds::run(ROUNDS, WAYS.len(), |way| {
        let (_, is_present, ask) = WAYS[way];
        let keys = if is_present { &present } else { &absent };
        let (time, found) = clock::cost(|| ask(keyspace, keys));
        match found {
            Ok(found) if found == if is_present { keys.len() } else { 0 } => {}
            Ok(_) => failure = Some("a wrong answer".into()),
            Err(error) => failure = Some(error),
        }
        time.as_secs_f64() * 1e9 / keys.len() as f64
    });
    failure.map_or(Ok(rounds), Err)
}
