//! The loops that are measured, the same for every engine. Every answer is checked.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::Result;
use crate::engine::{Batch, Engine};
use crate::keys::{KeySet, fill_value, value_word};
use crate::plan::{Kind, Step};

/// Steps between two looks at the clock.
const STEPS_A_LOOK: usize = 16;

/// What a client is given.
pub(crate) struct Client {
    pub(crate) keys: KeySet,
    pub(crate) value_bytes: usize,
    pub(crate) steps: Vec<Step>,
    /// Keys of a call.
    pub(crate) batch: usize,
    pub(crate) synced: bool,
    /// It stops after this time, or when its steps are done.
    pub(crate) time_max: Duration,
    /// All clients begin together.
    pub(crate) start: Arc<Barrier>,
}

/// What a client has done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) keys: u64,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The longest time that [`STEPS_A_LOOK`] steps, or one batch, took.
    pub(crate) longest: Duration,
}

impl Client {
    /// Does the steps.
    pub(crate) async fn run<E: Engine>(self, engine: Arc<E>) -> Result<Done> {
        self.start.wait();
        let began = Instant::now();
        let mut done = Done { keys: 0, began, ended: began, longest: Duration::ZERO };
        let mut buffers = Buffers::new(self.value_bytes);
        for steps in self.steps.chunks(if self.batch > 1 { self.batch } else { STEPS_A_LOOK }) {
            match (self.batch > 1, steps[0].kind) {
                (true, Kind::Put) => self.write(&*engine, steps, &mut buffers).await?,
                (true, _) => self.count(&*engine, steps, &mut buffers)?,
                (false, _) => {
                    for step in steps {
                        self.take(&*engine, *step, &mut buffers).await?;
                    }
                }
            }
            done.keys += steps.len() as u64;
            let now = Instant::now();
            done.longest = done.longest.max(now - done.ended);
            done.ended = now;
            if now - began > self.time_max {
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

    fn count<E: Engine>(&self, engine: &E, steps: &[Step], buffers: &mut Buffers) -> Result<()> {
        let keys = &mut buffers.keys;
        keys.resize_with(steps.len(), Vec::new);
        for (step, key) in steps.iter().zip(&mut *keys) {
            step.write_key(self.keys, key);
        }
        let present = steps.iter().filter(|step| step.kind == Kind::Present).count();
        check::<E>(engine.count_present(keys)? == present, steps[0])
    }
}

/// Memory that is used again for each step.
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
}

#[inline]
fn check<E: Engine>(right: bool, step: Step) -> Result<()> {
    if right || !E::ANSWERS { Ok(()) } else { Err(format!("a wrong answer to {step:?}").into()) }
}
