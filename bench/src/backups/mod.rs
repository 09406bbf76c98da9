//! Backups of a store in use: `sievedb backup` and `sievedb stats` run next to a writer, all killed at random. Every backup is
//! restored and compared with the writer's model.

mod latencies;
mod picture;
mod ring;
pub(crate) mod writer;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use latencies::{Phase, Phases};
use ring::Ring;

use crate::random::{below, number};
use crate::report::{Report, Table, count};
use crate::{Result, machine};

const PICTURE: &str = "backup.svg";

const KILLED_ONE_IN: u64 = 4;

/// Backs up a store in use again and again, with kills on both sides, and restores every backup.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command-line tool.
    #[arg(long, value_name = "FILE", default_value = "target/release/sievedb")]
    sievedb: PathBuf,
    /// Length of the run. A sixth of it is without backups, for comparison.
    #[arg(long, default_value_t = 20.0)]
    minutes: f64,
    /// Seconds from backup to backup.
    #[arg(long, default_value_t = 60.0)]
    every: f64,
    /// Keys of each of the writer's two threads.
    #[arg(long, default_value_t = 500_000)]
    keys: u64,
    /// Seed of the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

struct Made {
    at: Duration,
    took: Duration,
    is_killed: bool,
    stored: u64,
    restored: Option<Duration>,
    writes: u64,
}

struct Run<'a> {
    args: &'a Args,
    dir: PathBuf,
    begun: Instant,
    kills: u64,
    phases: Phases,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let work = tempfile::tempdir()?;
    let run = Run {
        args,
        dir: work.path().to_owned(),
        begun: Instant::now(),
        kills: 0,
        phases: Phases::new(work.path())?,
    };
    run.run()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run<'_> {
    fn run(mut self) -> Result<()> {
        let end = Duration::from_secs_f64(self.args.minutes * 60.0);
        let mut writer = self.start_writer()?;
        self.phases.set(Phase::Alone)?;
        std::thread::sleep(end / 6);
        let (is_over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
        let made = std::thread::scope(|scope| {
            scope.spawn(|| self.look_each_second(&is_over, &looks));
            let made = self.back_up_until(end, &mut writer);
            is_over.store(true, Ordering::Relaxed);
            made
        });
        let (made, kills) = made?;
        self.kills = kills;
        drop(writer);
        self.report(&made, looks.load(Ordering::Relaxed))
    }

    fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    fn repository(&self) -> PathBuf {
        self.dir.join("repository")
    }

    fn start_writer(&self) -> Result<Killed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("backups-writer").arg(self.store()).args(["--keys", &self.args.keys.to_string()]);
        command.arg("--latencies").arg(&self.dir);
        Ok(Killed(command.stdin(Stdio::null()).spawn()?))
    }

    fn look_each_second(&self, is_over: &AtomicBool, looks: &AtomicU64) {
        while !is_over.load(Ordering::Relaxed) {
            let looked = Command::new(&self.args.sievedb).arg("stats").arg(self.store()).output();
            match looked {
                Ok(output) if output.status.success() => _ = looks.fetch_add(1, Ordering::Relaxed),
                other => eprintln!("sievedb stats: {other:?}"),
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn back_up_until(&self, end: Duration, writer: &mut Killed) -> Result<(Vec<Made>, u64)> {
        let (mut made, mut kills): (Vec<Made>, u64) = (Vec::new(), 0);
        for round in 0.. {
            let due = end / 6 + Duration::from_secs_f64(self.args.every) * round as u32;
            if due >= end {
                return Ok((made, kills));
            }
            std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
            let dice = |stream, most| below(number(stream + 100 * self.args.seed, round), most);
            if dice(1, 3) == 0 {
                std::thread::sleep(Duration::from_millis(dice(2, 1000)));
                *writer = self.start_writer_again(writer)?;
                kills += 1;
            }
            let usual = made.last().map_or(Duration::from_millis(500), |last| last.took);
            let kill_after =
                (dice(3, KILLED_ONE_IN) == 0).then(|| usual.mul_f64(dice(4, 1000) as f64 / 1000.0));
            self.phases.set(Phase::Backup)?;
            let backup = self.back_up(kill_after)?;
            self.phases.set(Phase::Between)?;
            made.push(backup);
        }
        Ok((made, kills))
    }

    fn start_writer_again(&self, writer: &mut Killed) -> Result<Killed> {
        let _ = writer.0.kill();
        let _ = writer.0.wait();
        self.start_writer()
    }

    fn back_up(&self, kill_after: Option<Duration>) -> Result<Made> {
        let (at, start) = (self.begun.elapsed(), Instant::now());
        let mut command = Command::new(&self.args.sievedb);
        command.arg("backup").arg(self.store()).arg(self.repository());
        let mut child =
            Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?);
        if let Some(after) = kill_after {
            std::thread::sleep(after);
            let _ = child.0.kill();
        }
        let status = child.0.wait()?;
        let (took, stored) = (start.elapsed(), bytes_of(&self.repository())?);
        if kill_after.is_some() && !status.success() {
            return Ok(Made { at, took, is_killed: true, stored, restored: None, writes: 0 });
        }
        if !status.success() {
            return Err(format!("sievedb backup: {status}").into());
        }
        self.phases.set(Phase::Restore)?;
        let (restored, writes) = self.restore()?;
        Ok(Made { at, took, is_killed: false, stored, restored: Some(restored), writes })
    }

    fn restore(&self) -> Result<(Duration, u64)> {
        let (to, start) = (self.dir.join("restored"), Instant::now());
        let output =
            Command::new(&self.args.sievedb).arg("restore").arg(self.repository()).arg(&to).output()?;
        let took = start.elapsed();
        if !output.status.success() {
            return Err(format!("sievedb restore: {output:?}").into());
        }
        let db = sievedb::Options::new().read_only().open(&to)?;
        let mut writes = 0;
        for thread in 0..writer::THREADS {
            writes += Ring { thread, keys: self.args.keys }.check(&db)?;
        }
        drop(db);
        std::fs::remove_dir_all(&to)?;
        Ok((took, writes))
    }

    fn report(&self, made: &[Made], looks: u64) -> Result<()> {
        let mut report = Report::new(
            "Backups of a store in use: measured",
            "cargo run --release -p sievedb-bench -- backups --write docs/benchmarks/backup.md",
        );
        report.text(&machine::describe());
        let done = made.iter().filter(|made| made.restored.is_some()).count();
        report.text(&format!(
            "Two threads of a process write batches of {} entries, with values of {} bytes and {} keys per thread, as fast as \
             they can, for {} minutes. Other processes run `sievedb backup` every {} seconds and `sievedb stats` every second \
             ({} times). The writer was killed and started again {} times, and {} of {} backups were killed. All {done} other \
             backups were restored and verified, and equalled the model of the writer as of one point in time.",
            writer::BATCH_ENTRIES,
            writer::VALUE_BYTES,
            count(self.args.keys),
            self.args.minutes,
            self.args.every,
            count(looks),
            self.kills,
            made.len() - done,
            made.len()
        ));
        let quantiles = self.phases.quantiles()?;
        report.text(&format!("![Latencies of writes, and backups over time]({PICTURE})"));
        report.heading("Latency of a write");
        report.table(&latencies::table(&quantiles));
        report.heading("Backups");
        let mut table = Table::new([
            "at, s",
            "seconds",
            "repository, bytes",
            "restored and verified, s",
            "entries written before it",
            "killed",
        ]);
        for made in made {
            table.row([
                format!("{:.0}", made.at.as_secs_f64()),
                format!("{:.2}", made.took.as_secs_f64()),
                count(made.stored),
                made.restored.map_or("–".into(), |took| format!("{:.2}", took.as_secs_f64())),
                if made.is_killed { "–".into() } else { count(made.writes) },
                if made.is_killed { "yes" } else { "no" }.into(),
            ]);
        }
        report.table(&table);
        if let Some(page) = &self.args.write {
            let latencies: Vec<_> =
                quantiles.into_iter().map(|(words, _, quantiles)| (words, quantiles)).collect();
            let picture = picture::picture(&latencies, made, self.args.minutes);
            std::fs::write(page.with_file_name(PICTURE), picture)?;
        }
        report.write(self.args.write.as_deref())
    }
}

fn bytes_of(dir: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(dir)?.flatten() {
        sum += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path())?,
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        };
    }
    Ok(sum)
}
