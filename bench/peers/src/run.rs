use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use byteorder::{BigEndian, ByteOrder};

use crate::client::{Client, Done};
use crate::engine::{Adding, Engine, Seen, Settings};
use crate::keys::fill_value;
use crate::machine::{self, Io, QUIET, Ticks};
use crate::names::EngineName;
use crate::order::{Amount, Filled, Latency, Order, Outcome, Sizes};
use crate::plan::Plan;
use crate::workload::{Cache, Shape, Work, Workload};
use crate::{Result, allocations};

/// A block holds more than 16 keys: this caches all blocks.
const WARM_EVERY: usize = 16;
const WARM_STEPS: usize = 200_000;

pub(crate) fn run<E: Engine>(
    order: &Order,
    name: EngineName,
    workload: &Workload,
    amount: Amount,
) -> Result<Outcome> {
    let Order { sizes, dir, .. } = order;
    let load_before = machine::load();
    let (ticks, processor) = (Ticks::now(), machine::processor_time());
    if workload.cold {
        machine::forget_pages(dir)?;
    } else if workload.shape != Shape::Empty {
        machine::fetch_pages(dir)?;
    }
    let run = Run { sizes, workload, amount, settings: sizes.for_workload(workload, name) };
    let mut outcome = if workload.work == Work::Open { run.open::<E>(dir) } else { run.work::<E>(dir) }?;
    outcome.load_before = load_before;
    outcome.load_after = machine::load();
    outcome.others = Ticks::now().others_since(ticks, machine::processor_time() - processor);
    Ok(outcome)
}

struct Run<'a> {
    sizes: &'a Sizes,
    workload: &'a Workload,
    amount: Amount,
    settings: Settings,
}

struct Counters {
    began: Instant,
    processor: Duration,
    io: Io,
    blocks: Option<u64>,
    allocations: Option<u64>,
}

impl Counters {
    fn now(blocks: Option<u64>) -> Self {
        Self {
            blocks,
            io: Io::now(),
            allocations: allocations::count(),
            processor: machine::processor_time(),
            began: Instant::now(),
        }
    }

    fn outcome(self, operations: u64, blocks: Option<u64>) -> Outcome {
        let elapsed = self.began.elapsed();
        let processor = machine::processor_time() - self.processor;
        let difference =
            |now: Option<u64>, before| now.zip(before).map(|(now, before): (u64, u64)| now - before);
        Outcome {
            operations,
            seconds: elapsed.as_secs_f64(),
            processor_seconds: processor.as_secs_f64(),
            io: Io::now().since(self.io),
            blocks: difference(blocks, self.blocks),
            allocations: difference(allocations::count(), self.allocations),
            conflicts: 0,
            longest_ms: 0.0,
            latency: None,
            peak_bytes: machine::peak_bytes(),
            shape: None,
            filled: None,
            load_before: 0.0,
            load_after: 0.0,
            others: 0.0,
        }
    }
}

impl Run<'_> {
    fn is_counted(&self) -> bool {
        matches!(self.amount, Amount::Counted { .. })
    }

    fn open<E: Engine>(&self, dir: &Path) -> Result<Outcome> {
        let mut key = Vec::new();
        self.workload.keys.write(0, &mut key);
        let before = Counters::now(None);
        let engine = E::open(dir, &self.settings)?;
        if engine.get(&key)?.is_none() {
            return Err("the first key is missing".into());
        }
        let mut outcome = before.outcome(1, None);
        outcome.shape = engine.shape();
        engine.close()?;
        Ok(outcome)
    }

    fn work<E: Engine>(&self, dir: &Path) -> Result<Outcome> {
        let engine = Arc::new(E::open(dir, &self.settings)?);
        if !self.workload.writes() {
            engine.settle()?;
        }
        if !self.workload.cold {
            self.warm_up(&engine)?;
        }
        let clients = self.clients(false);
        if self.is_counted() {
            allocations::start();
        }
        let shape = engine.shape();
        machine::forget_peak();
        let before = Counters::now(engine.blocks());
        let done = match self.workload.work {
            Work::FullScan { back } => self.full_scan(&*engine, back)?,
            _ => self.steps(&engine, clients)?,
        };
        let began = before.began;
        let mut outcome = before.outcome(done.operations, engine.blocks());
        outcome.seconds = done.elapsed.as_secs_f64();
        outcome.conflicts = done.conflicts;
        outcome.longest_ms = done.longest.as_secs_f64() * 1e3;
        outcome.latency = done.latency;
        outcome.shape = shape;
        if self.is_counted() {
            println!("{}", serde_json::to_string(&outcome)?);
            std::process::exit(0);
        }
        let is_fill = matches!(self.workload.work, Work::Fill { .. });
        if is_fill {
            engine.settle()?;
            machine::wait_until_idle(QUIET);
            outcome.shape = engine.shape();
            outcome.peak_bytes = machine::peak_bytes();
        }
        let seconds = began.elapsed().saturating_sub(QUIET).as_secs_f64();
        if let Work::Add { counters, .. } = self.workload.work {
            self.check_counters(&*engine, done.operations * counters as u64)?;
        }
        Arc::into_inner(engine).ok_or("a client still holds the engine")?.close()?;
        if is_fill {
            outcome.filled = Some(Filled {
                user_bytes: self.workload.keys.bytes(done.operations)
                    + done.operations * self.sizes.value_bytes as u64,
                written_bytes: Io::now().written_bytes,
                seconds,
                disk_bytes: machine::disk_bytes(dir)?,
            });
        }
        Ok(outcome)
    }

    fn clients(&self, warm_up: bool) -> Vec<Client> {
        let Workload { work, keys, clients, times, .. } = *self.workload;
        let (planned, taken) = match self.amount {
            _ if warm_up => (WARM_STEPS, WARM_STEPS),
            Amount::Timed => (self.sizes.steps(work) / times as usize, usize::MAX),
            Amount::Counted { steps, planned } => (planned, steps),
        };
        let plan = Plan { work, keys: self.sizes.keys, clients, steps: planned };
        let adding = match work {
            Work::Add { how, .. } => how,
            _ => Adding { yields: false, synced: false },
        };
        let seconds = match work {
            _ if self.is_counted() => u64::MAX >> 32,
            Work::Fill { synced: false, .. } => self.sizes.fill_seconds_max,
            _ => self.sizes.seconds_max,
        };
        let start = Arc::new(Barrier::new(clients));
        (0..clients)
            .map(|client| {
                let mut steps = plan.of_client(client, warm_up);
                steps.truncate(taken / clients);
                if self.workload.shape == Shape::Deleted {
                    let last = (self.sizes.keys / 2 * 2).saturating_sub(1);
                    steps.iter_mut().for_each(|step| step.number = (step.number | 1).min(last));
                }
                Client {
                    keys,
                    value_bytes: self.sizes.value_bytes,
                    steps,
                    batch: self.workload.batch(),
                    synced: matches!(work, Work::Fill { synced: true, .. }),
                    adding,
                    time_max: Duration::from_secs(seconds),
                    start: start.clone(),
                }
            })
            .collect()
    }

    fn warm_up<E: Engine>(&self, engine: &Arc<E>) -> Result<()> {
        let looked_up = match self.workload.work {
            Work::Fill { .. } | Work::FullScan { .. } | Work::Open => return Ok(()),
            _ => self.clients(true),
        };
        if self.workload.cache == Cache::Whole {
            self.fetch_all(engine)?;
            if self.is_counted() {
                return Ok(());
            }
        }
        self.steps(engine, looked_up)?;
        Ok(())
    }

    fn fetch_all<E: Engine>(&self, engine: &Arc<E>) -> Result<()> {
        let mut key = Vec::new();
        let mut order: Vec<(u64, u32)> = (0..self.sizes.keys)
            .map(|number| {
                self.workload.keys.write(number, &mut key);
                (BigEndian::read_u64(&key), number)
            })
            .collect();
        order.sort_unstable();
        order.iter().step_by(WARM_EVERY).try_for_each(|&(_, number)| {
            self.workload.keys.write(number, &mut key);
            engine.get(&key).map(drop)
        })
    }

    fn steps<E: Engine>(&self, engine: &Arc<E>, clients: Vec<Client>) -> Result<Total> {
        let all =
            engine.run_clients(clients.into_iter().map(|client| client.run(engine.clone())).collect())?;
        Total::of(all)
    }

    fn check_counters<E: Engine>(&self, engine: &E, added: u64) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), vec![0; self.sizes.value_bytes]);
        let mut expected = Seen::default();
        for number in 0..self.sizes.keys {
            self.workload.keys.write(number, &mut key);
            fill_value(number, &mut value);
            expected.entry(&key, &value);
        }
        expected.sum = expected.sum.wrapping_add(added);
        let seen = engine.scan(&[], usize::MAX)?;
        if E::ANSWERS && seen != expected {
            return Err(
                format!("after {added} increments the scan gave {seen:?} instead of {expected:?}").into()
            );
        }
        Ok(())
    }

    fn full_scan<E: Engine>(&self, engine: &E, back: bool) -> Result<Total> {
        let entries = match self.amount {
            Amount::Timed => self.sizes.keys as usize,
            Amount::Counted { steps, .. } => steps,
        };
        let began = Instant::now();
        let seen = if back { engine.scan_back(entries) } else { engine.scan(&[], entries) }?;
        let elapsed = began.elapsed();
        let expected = entries.min(self.sizes.keys as usize) as u64;
        if seen.entries != expected {
            return Err(format!("the scan gave {} of {expected} entries", seen.entries).into());
        }
        std::hint::black_box(seen.sum);
        Ok(Total { operations: seen.entries, conflicts: 0, elapsed, longest: elapsed, latency: None })
    }
}

struct Total {
    operations: u64,
    conflicts: u64,
    elapsed: Duration,
    longest: Duration,
    latency: Option<Latency>,
}

impl Total {
    fn of(all: Vec<Done>) -> Result<Self> {
        let mut all = all.into_iter();
        let mut sum = all.next().ok_or("there are no clients")?;
        for done in all {
            sum.operations += done.operations;
            sum.conflicts += done.conflicts;
            sum.began = sum.began.min(done.began);
            sum.ended = sum.ended.max(done.ended);
            sum.longest = sum.longest.max(done.longest);
            sum.latencies.add(done.latencies)?;
        }
        let [p50, p99, p99_9] =
            [50.0, 99.0, 99.9].map(|percent| sum.latencies.value_at_percentile(percent) as f64 / 1e3);
        Ok(Self {
            operations: sum.operations,
            conflicts: sum.conflicts,
            elapsed: sum.ended - sum.began,
            longest: sum.longest,
            latency: Some(Latency { p50, p99, p99_9 }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::done;
    use crate::engines::sievedb::SieveDb;
    use crate::keys::KeySet;
    use crate::rows;

    #[test]
    fn a_lost_an_invented_and_a_misplaced_addition_are_noticed() {
        let sizes = Sizes {
            keys: 100,
            value_bytes: 100,
            cache_bytes: 8 << 20,
            small_cache_bytes: 8 << 20,
            whole_cache_bytes: 8 << 20,
            memtable_bytes: 8 << 20,
            seconds_max: 1,
            fill_seconds_max: 1,
        };
        let workload = rows::transactions().remove(0);
        let settings = sizes.for_workload(&workload, EngineName::Sievedb);
        let dir = tempfile::tempdir().unwrap();
        let engine = SieveDb::open(dir.path(), &settings).unwrap();
        let key = |number| {
            let mut key = Vec::new();
            KeySet::Hashed.write(number, &mut key);
            key
        };
        let mut value = [0; 100];
        for number in 0..sizes.keys {
            fill_value(number, &mut value);
            done(engine.put(&key(number), &value, false)).unwrap();
        }
        let run = Run { sizes: &sizes, workload: &workload, amount: Amount::Timed, settings };
        let add = |numbers: [u32; 3]| {
            done(engine.add(&numbers.map(key), Adding { yields: false, synced: false })).unwrap();
        };
        run.check_counters(&engine, 0).unwrap();
        add([1, 2, 3]);
        add([2, 3, 4]);
        run.check_counters(&engine, 6).unwrap();
        for wrong in [5, 7] {
            assert!(run.check_counters(&engine, wrong).is_err());
        }
        done(engine.put(b"another key", &[0; 100], false)).unwrap();
        assert!(run.check_counters(&engine, 6).is_err());
    }
}
