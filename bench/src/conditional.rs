//! The cost of conditional writes, compared with plain calls: `insert_new_many` of new keys with `write`, and of
//! existing keys with `multi_contains`. Times are processor times of all threads. On a busy machine, compare the
//! instructions (with valgrind).

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use sievedb::{Db, Options, WriteBatch};

use crate::report::{Report, Table, count};
use crate::rounds::Rounds;
use crate::{Result, callgrind, clock, machine, store};

const KEYS: u64 = 200_000;
const ENTRIES: u64 = 1000;
const CALLS: u64 = 40;
const ROUNDS: usize = 9;
const VALUE: [u8; 100] = [7; 100];

/// Measures the cost of conditional writes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run that callgrind counts: repeats one kind of work.
    #[arg(long, value_names = ["WORK", "THREADS", "TIMES"], num_args = 3, hide = true)]
    only: Option<Vec<String>>,
    /// Writes the table to this file as well.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq)]
enum Work {
    Write,
    InsertNew,
    MultiContains,
    InsertSeen,
}

impl Work {
    const PAIRS: [(&str, Self, Self, f64); 2] = [
        ("all new", Self::Write, Self::InsertNew, 0.7),
        ("all seen", Self::MultiContains, Self::InsertSeen, 0.8),
    ];

    const NAMES: [(&str, Self); 4] = [
        ("write", Self::Write),
        ("insert_new_many of new keys", Self::InsertNew),
        ("multi_contains", Self::MultiContains),
        ("insert_new_many of seen keys", Self::InsertSeen),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, work)| *work == self).expect("each has a name").0
    }
}

struct Subject {
    db: Db,
    new: AtomicU64,
    _dir: tempfile::TempDir,
}

impl Subject {
    fn open() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let db = Options::new().memory_budget(1 << 30).background_threads(0).open(dir.path())?;
        store::load(&db, &db.default_keyspace(), 0..KEYS, VALUE.len())?;
        db.compact()?;
        db.open_tables()?;
        Ok(Self { db, new: AtomicU64::new(0), _dir: dir })
    }

    fn call(&self, work: Work) -> Result<()> {
        let first = self.new.fetch_add(ENTRIES, Ordering::Relaxed);
        let keys: Vec<_> = match work {
            Work::Write | Work::InsertNew => (first..first + ENTRIES).map(store::absent_key).collect(),
            _ => (0..ENTRIES).map(|n| store::key((first + n * 7919) % KEYS)).collect(),
        };
        match work {
            Work::Write => {
                let mut batch = WriteBatch::new();
                keys.iter().for_each(|key| _ = batch.put(key, VALUE));
                self.db.write(batch)?;
            }
            Work::MultiContains => {
                let found = self.db.multi_contains(&keys)?;
                assert!(found.iter().all(|&found| found));
            }
            Work::InsertNew | Work::InsertSeen => {
                let new = self.db.insert_new_many(keys.iter().map(|key| (key, VALUE)))?.count() as u64;
                assert_eq!(new, if work == Work::InsertNew { ENTRIES } else { 0 });
            }
        }
        Ok(())
    }

    fn calls(&self, work: Work, threads: u64, calls: u64) -> Result<()> {
        std::thread::scope(|scope| {
            let call =
                || (0..calls / threads).try_for_each(|_| self.call(work)).map_err(|error| error.to_string());
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(call)).collect();
            threads.into_iter().try_for_each(|thread| Ok(thread.join().expect("no call panics")?))
        })
    }

    fn measure(&self, work: Work, threads: u64) -> Result<f64> {
        let (took, done) = clock::took(|| self.calls(work, threads, CALLS));
        done?;
        if matches!(work, Work::Write | Work::InsertNew) {
            self.db.flush()?;
        }
        let time = took.processor.unwrap_or(took.elapsed);
        Ok(time.as_secs_f64() * 1e9 / (CALLS * ENTRIES) as f64)
    }
}

const OPENING: &str = "A conditional write looks up its key before it writes, so it costs more than a plain write. A shorter bar is faster. \
     Each conditional call follows the plain call that it is compared with.";

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some([work, threads, times]) = args.only.as_deref() {
        let (_, work) = Work::NAMES.into_iter().find(|(name, _)| name == work).ok_or("no such work")?;
        return Subject::open()?.calls(work, threads.parse()?, times.parse()?);
    }
    let mut report = Report::new(
        "Costs of conditional writes: measurements",
        "cargo run --release -p sievedb-bench -- conditional --write docs/benchmarks/conditional.md",
    );
    report.text(&format!(
        "Calls with {} entries (keys of {} bytes, values of {}), buffered, on a store with {} other keys in one \
         run of tables. The costs include making the keys of a call. Nanoseconds of processor time of all \
         threads per entry: median of {ROUNDS} rounds in turns (least–greatest). Instructions per entry, \
         counted by callgrind. *Speed*: the cost of the plain call over the cost of the conditional call.",
        count(ENTRIES),
        store::KEY_BYTES,
        VALUE.len(),
        count(KEYS)
    ));
    let mut table =
        Table::new(["call", "threads", "ns", "instructions", "speed by time", "by instructions", "at least"]);
    for (_, plain, conditional, least) in Work::PAIRS {
        for threads in [1, 4] {
            let pair = [plain, conditional];
            let rounds = measure(pair, threads)?;
            let counted = pair.map(|work| instructions(work, threads));
            let shown = |n: usize| counted[n].map_or("–".into(), |count| format!("{count:.0}"));
            let by_count = counted[0].zip(counted[1]).map_or("–".into(), |(a, b)| format!("{:.2}", a / b));
            let cells =
                |n: usize| [pair[n].name().into(), threads.to_string(), rounds.of(n).to_string(), shown(n)];
            let [name, of, time, instructions] = cells(0);
            table.row([name, of, time, instructions, String::new(), String::new(), String::new()]);
            let [name, of, time, instructions] = cells(1);
            let by_time = rounds.ratio(0, 1).to_string();
            table.row([name, of, time, instructions, by_time, by_count, format!("{least:.1}")]);
        }
    }
    report.table(&table);
    report.open_with(OPENING, "nanoseconds per entry, by call and threads", &table, 2, 2);
    report.text(&format!("{}; load {} at the end.", machine::describe(), machine::load()));
    report.write(args.write.as_deref())
}

fn measure(pair: [Work; 2], threads: u64) -> Result<Rounds> {
    let subjects = [Subject::open()?, Subject::open()?];
    let mut failure = Ok(());
    let rounds = Rounds::run(ROUNDS, 2, |n| {
        subjects[n].measure(pair[n], threads).unwrap_or_else(|error| {
            failure = Err(error);
            0.0
        })
    });
    failure.map(|()| rounds)
}

fn instructions(work: Work, threads: u64) -> Option<f64> {
    let name = work.name();
    eprintln!("counting instructions of {name} …");
    let counted = callgrind::each(&["conditional", "--only", name, &threads.to_string()], 8, 24)?;
    Some(counted / ENTRIES as f64)
}
