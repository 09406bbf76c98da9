//! The measured loops of all engines. Every answer is checked.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Result;
use crate::engine::{Adding, Batch, Engine};
use crate::keys::{KeySet, fill_value, value_word};
use crate::plan::{Kind, Step};

const STEPS_A_LOOK: usize = 16;

pub(crate) struct Client {
    pub(crate) keys: KeySet,
    pub(crate) value_bytes: usize,
    pub(crate) steps: Vec<Step>,
    pub(crate) batch: usize,
    pub(crate) synced: bool,
    pub(crate) adding: Adding,
    pub(crate) time_max: Duration,
    pub(crate) start: Arc<Barrier>,
}

#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    pub(crate) conflicts: u64,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The longest time of [`STEPS_A_LOOK`] steps, or of a batch.
    pub(crate) longest: Duration,
    /// Nanoseconds of every [`STEPS_A_LOOK`]th step, or of every batch or transaction.
    pub(crate) latencies: Histogram<u64>,
}

const DIGITS: u8 = 3;

impl Done {
    fn new() -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            operations: 0,
            conflicts: 0,
            began: now,
            ended: now,
            longest: Duration::ZERO,
            latencies: Histogram::new(DIGITS)?,
        })
    }

    fn note(&mut self, operations: usize, first: Option<Instant>) -> Result<()> {
        let now = Instant::now();
        let latency = first.unwrap_or(now) - self.ended;
        self.latencies.record(latency.as_nanos() as u64)?;
        self.operations += operations as u64;
        self.longest = self.longest.max(now - self.ended);
        self.ended = now;
        Ok(())
    }
}

impl Client {
    pub(crate) async fn run<E: Engine>(self, engine: Arc<E>) -> Result<Done> {
        self.start.wait();
        let mut buffers = Buffers::new(self.value_bytes);
        let mut done = Done::new()?;
        for steps in self.steps.chunks(if self.batch > 1 { self.batch } else { STEPS_A_LOOK }) {
            match (self.batch > 1, steps[0].kind) {
                (_, Kind::Add) => {
                    buffers.write_keys(self.keys, steps);
                    done.conflicts += engine.add(&buffers.keys, self.adding).await?;
                    done.note(1, None)?;
                }
                (true, Kind::Put) => {
                    self.write(&*engine, steps, &mut buffers).await?;
                    done.note(steps.len(), None)?;
                }
                (true, _) => {
                    Self::count(&*engine, self.keys, steps, &mut buffers)?;
                    done.note(steps.len(), None)?;
                }
                (false, _) => {
                    self.take(&*engine, steps[0], &mut buffers).await?;
                    let first = Instant::now();
                    for step in &steps[1..] {
                        self.take(&*engine, *step, &mut buffers).await?;
                    }
                    done.note(steps.len(), Some(first))?;
                }
            }
            if done.ended - done.began > self.time_max {
                break;
            }
        }
        Ok(done)
    }

    #[inline]
    async fn take<E: Engine>(&self, engine: &E, step: Step, buffers: &mut Buffers) -> Result<()> {
        let Buffers { key, value, .. } = buffers;
        step.write_key(self.keys, key);
        match step.kind {
            Kind::Present => check::<E>(engine.get(key)? == Some(value_word(step.number)), step),
            Kind::Absent | Kind::Near => check::<E>(engine.get(key)?.is_none(), step),
            Kind::Either => {
                check::<E>(engine.get(key)?.is_none_or(|word| word == value_word(step.number)), step)
            }
            Kind::Put => {
                fill_value(step.number, value);
                engine.put(key, value, self.synced).await
            }
            Kind::Change => {
                check::<E>(engine.get(key)? == Some(value_word(step.number)), step)?;
                fill_value(step.number, value);
                engine.put(key, value, self.synced).await
            }
            Kind::Delete => engine.delete(key).await,
            Kind::Add => Err("only transactions increment counters".into()),
            Kind::Scan => {
                let seen = engine.scan(key, step.entries.into())?;
                check::<E>((1..=u64::from(step.entries)).contains(&seen.entries), step)
            }
        }
    }

    async fn write<E: Engine>(&self, engine: &E, steps: &[Step], buffers: &mut Buffers) -> Result<()> {
        let Buffers { key, value, batch, .. } = buffers;
        batch.clear();
        for step in steps {
            step.write_key(self.keys, key);
            fill_value(step.number, value);
            batch.put(key, value);
        }
        engine.write(batch).await
    }

    fn count<E: Engine>(engine: &E, keys: KeySet, steps: &[Step], buffers: &mut Buffers) -> Result<()> {
        buffers.write_keys(keys, steps);
        let present = steps.iter().filter(|step| step.kind == Kind::Present).count();
        check::<E>(engine.count_present(&buffers.keys)? == present, steps[0])
    }
}

struct Buffers {
    key: Vec<u8>,
    value: Vec<u8>,
    keys: Vec<Vec<u8>>,
    batch: Batch,
}

impl Buffers {
    fn new(value_bytes: usize) -> Self {
        Self {
            key: Vec::with_capacity(256),
            value: vec![0; value_bytes],
            keys: Vec::new(),
            batch: Batch::default(),
        }
    }

    fn write_keys(&mut self, keys: KeySet, steps: &[Step]) {
        self.keys.resize_with(steps.len(), Vec::new);
        for (step, key) in steps.iter().zip(&mut self.keys) {
            step.write_key(keys, key);
        }
    }
}

#[inline]
fn check<E: Engine>(right: bool, step: Step) -> Result<()> {
    if right || !E::ANSWERS { Ok(()) } else { Err(format!("wrong answer to {step:?}").into()) }
}
