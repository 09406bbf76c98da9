use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::counts::{self, Counts};
use crate::engine::Adding;
use crate::keys::KeySet;
use crate::machine;
use crate::names::EngineName;
use crate::order::{Amount, Order, Outcome, Sizes, Task};
use crate::pages::Page;
use crate::records::{OTHERS_MAX, Record, Start};
use crate::workload::{Counted, Shape, Work, Workload};

const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) struct Suite {
    pub(crate) page: Page,
    pub(crate) sizes: Sizes,
    pub(crate) rows: Vec<Workload>,
    pub(crate) engines: Vec<EngineName>,
    pub(crate) rounds: usize,
    pub(crate) counts: bool,
    pub(crate) attempts: usize,
    pub(crate) work: PathBuf,
}

impl Suite {
    fn results(&self) -> PathBuf {
        self.work.join("results.jsonl")
    }

    pub(crate) fn run(&self) -> Result<Vec<Record>> {
        fs::create_dir_all(&self.work)?;
        let mut records = if self.results().exists() { Record::read(&self.results())? } else { Vec::new() };
        if !records.is_empty() {
            let sizes = records.iter().find_map(|record| match record {
                Record::Start(start) => Some(&start.sizes),
                _ => None,
            });
            if sizes != Some(&self.sizes) {
                return Err(format!("{} contains results for other sizes", self.results().display()).into());
            }
        }
        self.note(&mut records, Record::Start(Start::now(self.page, &self.sizes, self.rounds)))?;
        let programs = ["valgrind", "strace"].map(|program| self.counts && counts::is_installed(program));
        for row in &self.rows {
            let engines: Vec<_> = row.engines.iter().filter(|engine| self.engines.contains(engine)).collect();
            self.time(row, &engines, &mut records)?;
            for &&engine in &engines {
                let known = |record: &Record| {
                    matches!(record, Record::Counts { row: of, engine: by, .. }
                        if *of == row.name && *by == engine)
                };
                if row.counted > Counted::Nothing && self.counts && !records.iter().any(known) {
                    eprintln!("{}: counts of {}", row.name, engine.title());
                    let counts = self.count(row, engine, programs)?;
                    self.note(&mut records, Record::Counts { row: row.name.clone(), engine, counts })?;
                }
            }
        }
        self.note(&mut records, Record::End { load: machine::load() })?;
        Ok(records)
    }

    fn time(&self, row: &Workload, engines: &[&EngineName], records: &mut Vec<Record>) -> Result<()> {
        for round in 0..self.rounds {
            for turn in 0..engines.len() {
                let engine = *engines[(round + turn) % engines.len()];
                let known = |record: &Record| {
                    matches!(record, Record::Run { row: of, engine: by, round: at, .. }
                        if *of == row.name && *by == engine && *at == round)
                };
                if records.iter().any(known) {
                    continue;
                }
                let outcome = self.sample(row, engine)?;
                let rate = outcome.operations as f64 / outcome.seconds;
                eprintln!(
                    "{}: round {round}, {}: {} a second{}",
                    row.name,
                    engine.title(),
                    crate::statistics::short(rate),
                    if outcome.others > OTHERS_MAX { ", under load" } else { "" }
                );
                self.note(records, Record::Run { row: row.name.clone(), engine, round, outcome })?;
            }
        }
        Ok(())
    }

    fn sample(&self, row: &Workload, engine: EngineName) -> Result<Outcome> {
        let mut outcome = self.child(row, engine, Amount::Timed)?;
        for _ in 1..self.attempts {
            if outcome.others <= OTHERS_MAX {
                break;
            }
            outcome = self.child(row, engine, Amount::Timed)?;
        }
        Ok(outcome)
    }

    fn note(&self, records: &mut Vec<Record>, record: Record) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.results())?;
        writeln!(file, "{}", serde_json::to_string(&record)?)?;
        records.push(record);
        Ok(())
    }

    fn child(&self, row: &Workload, engine: EngineName, amount: Amount) -> Result<Outcome> {
        let command = self.command(row, engine, amount)?;
        outcome(command)
    }

    fn command(&self, row: &Workload, engine: EngineName, amount: Amount) -> Result<Command> {
        let dir = self.place(row, engine)?;
        rustix::fs::sync();
        self.order(Task::Run { engine, workload: Box::new(row.clone()), amount }, row.times, &dir)
    }

    fn order(&self, task: Task, times: u32, dir: &Path) -> Result<Command> {
        let order = Order { task, sizes: self.sizes.times(times), dir: dir.into() };
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("child").arg(serde_json::to_string(&order)?);
        Ok(command)
    }

    fn place(&self, row: &Workload, engine: EngineName) -> Result<PathBuf> {
        let stored = match row.shape {
            _ if engine == EngineName::Nothing => self.work.join("nothing"),
            Shape::Empty => self.work.join("run"),
            shape => self.store(engine.maker(), row.keys, shape, row.times)?,
        };
        if engine == EngineName::Nothing {
            fs::create_dir_all(&stored)?;
            return Ok(stored);
        }
        if !row.writes() {
            return Ok(stored);
        }
        let copy = self.work.join("run");
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        if row.shape != Shape::Empty {
            machine::copy_dir(&stored, &copy)?;
        }
        Ok(copy)
    }

    fn store(&self, engine: EngineName, keys: KeySet, shape: Shape, times: u32) -> Result<PathBuf> {
        let name = format!("{keys:?}-{shape:?}-{times}").to_lowercase();
        let dir = self.work.join("stores").join(engine.argument()).join(name);
        if dir.exists() {
            return Ok(dir);
        }
        eprintln!("making {}", dir.display());
        let making = dir.with_extension("making");
        if making.exists() {
            fs::remove_dir_all(&making)?;
        }
        fs::create_dir_all(making.parent().ok_or("a store has no parent directory")?)?;
        if matches!(shape, Shape::Settled | Shape::Deleted) {
            machine::copy_dir(&self.store(engine, keys, Shape::Left, times)?, &making)?;
        }
        let status = self.order(Task::Prepare { engine, keys, shape }, times, &making)?.status()?;
        if !status.success() {
            return Err(format!("cannot make {}", dir.display()).into());
        }
        fs::rename(&making, &dir)?;
        Ok(dir)
    }

    fn count(&self, row: &Workload, engine: EngineName, programs: [bool; 2]) -> Result<Counts> {
        let steps = counted_steps(row.work).min(self.sizes.keys as usize / 2);
        let amount = |steps: usize, planned: usize| Amount::Counted { steps, planned };
        let command = |times: usize| self.command(row, engine, amount(times * steps, 2 * steps));
        let plain = outcome(command(1)?)?;
        let mut counts = Counts {
            allocations: plain.allocations.map(|count| count as f64 / plain.operations as f64),
            ..Counts::default()
        };
        let [valgrind, strace] = programs;
        if valgrind && row.counted == Counted::CallsAndInstructions {
            let [once, twice] = [counts::instructions(&command(1)?)?, counts::instructions(&command(2)?)?];
            counts.instructions = Some(counts::each(once, twice, plain.operations));
        }
        if strace {
            let [once, twice] =
                [counts::calls(&command(1)?, &self.work)?, counts::calls(&command(2)?, &self.work)?];
            counts.calls = Some(counts::each_by_name(&once, &twice, plain.operations));
        }
        Ok(counts)
    }
}

fn counted_steps(work: Work) -> usize {
    match work {
        Work::Fill { synced: true, .. } => 2_000,
        Work::Fill { .. } => 50_000,
        Work::FullScan { .. } => 100_000,
        Work::Scan { .. } | Work::Ycsb('e') => 1_000,
        Work::Add { counters, how: Adding { synced: true, .. }, .. } => 400 * counters,
        Work::Add { counters, .. } => 4_000 * counters,
        _ => 20_000,
    }
}

fn outcome(mut command: Command) -> Result<Outcome> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().filter(|_| output.status.success());
    let line = line.ok_or_else(|| format!("a run failed, {}: {command:?}", output.status))?;
    Ok(serde_json::from_str(line)?)
}

pub(crate) fn wait_for_quiet() {
    let began = Instant::now();
    while machine::load() > 0.5 && began.elapsed() < PATIENCE {
        eprintln!("the load is {}; waiting", machine::load());
        std::thread::sleep(Duration::from_secs(10));
    }
}
