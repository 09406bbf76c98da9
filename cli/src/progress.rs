//! Progress bars on standard error, only on a terminal and only after 400 ms.

use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::units;

const DELAY: Duration = Duration::from_millis(400);

/// Dropping it clears the bar.
pub(crate) struct Progress {
    label: &'static str,
    total: Option<u64>,
    counts_bytes: bool,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn of_bytes(label: &'static str, total: Option<u64>) -> Self {
        Self { label, total, counts_bytes: true, start: Instant::now(), bar: None }
    }

    pub(crate) fn of_items(label: &'static str, total: Option<u64>) -> Self {
        Self { label, total, counts_bytes: false, start: Instant::now(), bar: None }
    }

    pub(crate) fn at(&mut self, done: u64) {
        if self.bar.is_none() && self.start.elapsed() >= DELAY {
            self.bar = Some(self.new_bar());
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }

    fn set_total(&mut self, total: u64) {
        self.total = Some(total);
        if let Some(bar) = &self.bar {
            bar.set_length(total);
        }
    }

    fn new_bar(&self) -> ProgressBar {
        let template = match (self.counts_bytes, self.total.is_some()) {
            (true, true) => "{msg} {bar:24} {binary_bytes} of {binary_total_bytes}, {rate}, {left} left",
            (true, false) => "{spinner} {msg} {binary_bytes}, {rate}",
            (false, true) => "{msg} {bar:24} {human_pos} of {human_len}, {rate}, {left} left",
            (false, false) => "{spinner} {msg} {human_pos}, {rate}",
        };
        let counts_bytes = self.counts_bytes;
        let rate = move |state: &ProgressState, out: &mut dyn Write| {
            let per_second = per_second(state);
            let _ = match counts_bytes {
                true => write!(out, "{}/s", units::bytes(per_second as u64)),
                false => write!(out, "{}/s", units::count(per_second as u64)),
            };
        };
        let left = |state: &ProgressState, out: &mut dyn Write| {
            let rest = state.len().unwrap_or(0).saturating_sub(state.pos());
            let seconds = rest as f64 / per_second(state);
            let left = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
            let _ = write!(out, "{:#}", HumanDuration(left));
        };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = self.total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.with_style(style.with_key("rate", rate).with_key("left", left))
            .with_message(self.label)
            .with_elapsed(self.start.elapsed())
    }
}

/// The mean since the start, which is steadier than a recent rate.
fn per_second(state: &ProgressState) -> f64 {
    state.pos() as f64 / state.elapsed().as_secs_f64().max(1e-3)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

pub(crate) fn watch<T: Send>(label: &'static str, work: impl FnOnce(&sievedb::Progress) -> T + Send) -> T {
    let progress = sievedb::Progress::new();
    let show = |shown: &mut Progress| {
        shown.set_total(progress.bytes());
        shown.at(progress.bytes_done());
    };
    while_shown(Progress::of_bytes(label, Some(0)), show, || work(&progress))
}

pub(crate) fn watch_settling(db: &sievedb::Db) -> sievedb::Result<()> {
    let written = || db.stats().compacted_bytes;
    let before = written();
    let show = |shown: &mut Progress| shown.at(written().saturating_sub(before));
    while_shown(Progress::of_bytes("compacting", None), show, || db.settle())
}

fn while_shown<T: Send>(
    mut shown: Progress,
    mut show: impl FnMut(&mut Progress),
    work: impl FnOnce() -> T + Send,
) -> T {
    std::thread::scope(|scope| {
        let (ends, ended) = mpsc::channel::<()>();
        let worker = scope.spawn(move || {
            let _ends = ends;
            work()
        });
        while ended.recv_timeout(DELAY / 4) == Err(RecvTimeoutError::Timeout) {
            show(&mut shown);
        }
        drop(shown);
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
