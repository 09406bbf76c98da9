//! Loads many keys in random order, looks up all and as many absent ones, also after reopening. Every answer is checked.

use std::path::{Path, PathBuf};

use sievedb::{Db, Options, Stats, WriteBatch};

use crate::clock::{self, Took};
use crate::report::{Report, Table, count, mib};
use crate::store::{self, KEY_BYTES};
use crate::{Result, machine};

const BATCH_ENTRIES: u64 = 1000;

/// Loads many keys, reads them all back, and reports memory, space, writes and speed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of 16-byte keys.
    #[arg(long, default_value_t = 10_000_000)]
    keys: u64,
    /// Length of a value in bytes.
    #[arg(long, default_value_t = 100)]
    value: usize,
    /// The store's memory budget in MiB; a trailing M is accepted.
    #[arg(long, default_value = "512M", value_parser = mebibytes)]
    budget: usize,
    /// The directory of the store, which must not exist yet [default: a temporary directory, removed at the
    /// end].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn mebibytes(text: &str) -> Result<usize, String> {
    let number: usize = text.trim_end_matches('M').parse().map_err(|error| format!("{error}"))?;
    number.checked_mul(1 << 20).ok_or_else(|| "is too large".into())
}

struct Phase {
    name: &'static str,
    keys: u64,
    took: Took,
    blocks: u64,
    peak_bytes: Option<u64>,
}

struct Run<'a> {
    args: &'a Args,
    phases: Vec<Phase>,
    peaks_apart: bool,
}

const OPENING: &str = "Keys are loaded in random order, settled and looked up, also after the store was closed and opened again. A shorter \
     bar is faster; a lookup of an absent key reads a data block only after a false positive of a filter. The tables \
     have the time, the data blocks read and the memory of each phase.";

pub(crate) fn run(args: &Args) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = args.dir.clone().unwrap_or_else(|| temporary.path().join("store"));
    if dir.exists() {
        return Err(format!("{} exists already", dir.display()).into());
    }
    let mut run = Run { args, phases: Vec::new(), peaks_apart: true };
    let open = || Options::new().memory_budget(args.budget).open(&dir);

    let db = open()?;
    run.phase("load", Some(&db), || load(&db, args))?;
    run.phase("settle", Some(&db), || {
        db.flush()?;
        db.settle()?;
        Ok(db.open_tables()?)
    })?;
    let settled = db.stats();
    let disk_bytes = disk_bytes(&dir)?;
    run.lookups(&db, ["get, present", "get, absent"])?;
    let asked = db.stats();
    run.phase("close", None, || Ok(db.close()?))?;

    let mut reopened = None;
    run.phase("open again", None, || {
        let db = open()?;
        db.open_tables()?;
        reopened = Some(db);
        Ok(())
    })?;
    let db = reopened.ok_or("was not opened")?;
    run.lookups(&db, ["get, present, again", "get, absent, again"])?;
    db.close()?;

    run.report(&settled, &asked, disk_bytes)
}

fn load(db: &Db, args: &Args) -> Result<()> {
    let mut value = vec![0; args.value];
    for start in (0..args.keys).step_by(BATCH_ENTRIES as usize) {
        let mut batch = WriteBatch::new();
        for index in start..(start + BATCH_ENTRIES).min(args.keys) {
            store::fill_value(index, &mut value);
            batch.put(store::key(index), &value);
        }
        db.write(batch)?;
    }
    Ok(())
}

impl Run<'_> {
    fn phase(
        &mut self,
        name: &'static str,
        db: Option<&Db>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        eprintln!("{name} …");
        self.peaks_apart &= machine::forget_peak();
        let blocks = || db.map_or(0, |db| store::data_blocks(&db.stats()));
        let before = blocks();
        let (took, result) = clock::took(work);
        result?;
        let (blocks, peak_bytes) = (blocks() - before, machine::peak_bytes());
        self.phases.push(Phase { name, keys: self.args.keys, took, blocks, peak_bytes });
        Ok(())
    }

    fn lookups(&mut self, db: &Db, [present, absent]: [&'static str; 2]) -> Result<()> {
        let Args { keys, value, .. } = *self.args;
        self.phase(present, Some(db), || {
            let mut expected = vec![0; value];
            for index in 0..keys {
                store::fill_value(index, &mut expected);
                if db.get(store::key(index))?.as_deref() != Some(&*expected) {
                    return Err(format!("key number {index} has a wrong value or is missing").into());
                }
            }
            Ok(())
        })?;
        self.phase(absent, Some(db), || {
            for index in 0..keys {
                if db.get(store::absent_key(index))?.is_some() {
                    return Err(format!("absent key number {index} was found").into());
                }
            }
            Ok(())
        })
    }

    fn report(&self, settled: &Stats, asked: &Stats, disk_bytes: u64) -> Result<()> {
        let Args { keys, value, budget, .. } = *self.args;
        let user_bytes = keys * (KEY_BYTES + value) as u64;
        let mut report = Report::new(
            "Many keys: measurements",
            &format!(
                "cargo run --release -p sievedb-bench -- scale --keys {keys} --value {value} --budget {}M --write \
                 docs/benchmarks/scale.md",
                budget >> 20
            ),
        );
        report.text(&format!("{}; not pinned; load {} at the end.", machine::describe(), machine::load()));
        report.text(&format!(
            "{} keys of {KEY_BYTES} bytes in random order with incompressible values of {value} bytes, {} \
             in total; one thread in addition to the store's two; default options except for a memory \
             budget of {}. Every value was compared, and every absent key was reported as absent.",
            count(keys),
            mib(user_bytes),
            mib(budget as u64)
        ));
        let [seconds, rate, processor] = Took::CELLS;
        let peak = if self.peaks_apart { "peak memory of the process" } else { "peak memory so far" };
        let mut table =
            Table::new(["phase", seconds, rate, processor, "data blocks per key", peak, "peak ÷ budget"]);
        for phase in &self.phases {
            let [seconds, rate, processor] = phase.took.cells(phase.keys);
            table.row([
                phase.name.into(),
                seconds,
                rate,
                processor,
                format!("{:.5}", phase.blocks as f64 / phase.keys as f64),
                phase.peak_bytes.map_or("unknown".into(), mib),
                phase
                    .peak_bytes
                    .map_or("unknown".into(), |bytes| format!("{:.2}", bytes as f64 / budget as f64)),
            ]);
        }
        report.table(&table);
        report.open_with(OPENING, "processor µs per key", &table, 1, 3);
        let per_user_byte = |bytes: u64| format!("{:.3}", bytes as f64 / user_bytes as f64);
        let written = settled.flushed_bytes + settled.compacted_bytes;
        let mut table = Table::new(["once settled", ""]);
        table.row([
            "space amplification: bytes on disk ÷ bytes of keys and values".into(),
            per_user_byte(disk_bytes),
        ]);
        table.row([
            "write amplification: bytes of tables written ÷ bytes of keys and values".into(),
            per_user_byte(written),
        ]);
        table.row(["the same with the log".into(), per_user_byte(settled.written_bytes())]);
        table.row(["filters in memory".into(), mib(settled.filter_memory_bytes)]);
        table.row(["writes that were slowed down".into(), count(settled.write_delays)]);
        report.table(&table);
        report.text("Filters, probed for all present and all absent keys:");
        report.table(&store::level_table(&store::levels(settled, asked, "default")));
        report.write(self.args.write.as_deref())
    }
}

fn disk_bytes(dir: &Path) -> Result<u64> {
    std::fs::read_dir(dir)?.try_fold(0, |sum, entry| Ok(sum + entry?.metadata()?.len()))
}
