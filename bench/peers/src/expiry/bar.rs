use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::host::{Host, Reply};
use super::model::Model;
use super::stream::{BUCKETS, Stream};
use super::{Outcome, Plan, Sample, disk_bytes};
use crate::Result;
use crate::random::{below, mix};

const BATCH: u32 = 1000;

const KILLED_WITHIN_MICROS: u64 = 2000;

pub(crate) struct Bar<'a, C> {
    plan: &'a Plan,
    dir: &'a Path,
    command: C,
    host: Host,
    model: Model<'a>,
    outcome: Outcome,
    /// Seconds of calls since the last sample.
    seconds: f64,
    /// Bytes written by ended processes.
    written_before: u64,
    /// Bytes written by the current process.
    written: u64,
}

impl<'a, C: Fn() -> Result<Command>> Bar<'a, C> {
    pub(crate) fn run(plan: &'a Plan, stream: &'a Stream, dir: &'a Path, command: C) -> Result<Outcome> {
        let host = Host::start(&mut command()?)?;
        let model = Model::new(stream, plan.ids);
        let (outcome, seconds, written_before, written) = (Outcome::default(), 0.0, 0, 0);
        let mut bar = Self { plan, dir, command, host, model, outcome, seconds, written_before, written };
        let interruptions = plan.kills + 1;
        let mut interruption = 1;
        for first in (0..plan.ids).step_by(BATCH as usize) {
            let end = plan.ids.min(first.saturating_add(BATCH));
            let is_due = interruption <= interruptions
                && u64::from(first) * u64::from(interruptions + 1)
                    >= u64::from(plan.ids) * u64::from(interruption);
            interruption += u32::from(is_due);
            match is_due {
                true if interruption > interruptions => {
                    bar.start_again()?;
                    bar.insert(first, end)?;
                }
                true => bar.insert_with_kill(first, end)?,
                false => bar.insert(first, end)?,
            }
        }
        bar.host.close()?;
        Ok(bar.outcome)
    }

    fn insert(&mut self, first: u32, end: u32) -> Result<()> {
        let reply = self.host.insert(first, end)?;
        self.model.check(first..end, &reply.answers())?;
        self.count(first, end, &reply)
    }

    fn insert_with_kill(&mut self, first: u32, end: u32) -> Result<()> {
        let after = Duration::from_micros(below(mix(44, first.into()), KILLED_WITHIN_MICROS));
        let answered = self.host.insert_and_kill(first, end, after)?;
        if let Some(reply) = &answered {
            self.model.check(first..end, &reply.answers())?;
            self.count(first, end, reply)?;
        }
        self.start_again()?;
        if answered.is_none() {
            let reply = self.host.insert(first, end)?;
            self.model.check_repeated(first..end, &reply.answers())?;
            self.count(first, end, &reply)?;
        }
        Ok(())
    }

    fn start_again(&mut self) -> Result<()> {
        self.host.close()?;
        self.written_before += std::mem::take(&mut self.written);
        self.host = Host::start(&mut (self.command)()?)?;
        self.outcome.reopened = self.outcome.reopened.max(self.host.opened);
        Ok(())
    }

    fn count(&mut self, first: u32, end: u32, reply: &Reply) -> Result<()> {
        self.seconds += reply.seconds;
        self.written = reply.written_bytes;
        let per_bucket = (self.plan.per_window / BUCKETS).max(1);
        if first / per_bucket != end / per_bucket || end == self.plan.ids {
            self.outcome.samples.push(Sample {
                ids: end,
                seconds: std::mem::take(&mut self.seconds),
                disk_bytes: disk_bytes(self.dir)?,
                memory_bytes: reply.memory_bytes,
                written_bytes: self.written_before + self.written,
                debt_bytes: reply.debt_bytes,
            });
        }
        Ok(())
    }
}
