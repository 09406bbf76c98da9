//! Progress on standard error: a bar with amount, rate and time left. Nothing is drawn if standard error is
//! not a terminal, or if the work ends within 400 ms.

use std::fmt::Write;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::units;

/// Time after which a bar appears.
const DELAY: Duration = Duration::from_millis(400);

/// The progress of one piece of work. Dropping it clears the bar.
pub(crate) struct Progress {
    label: &'static str,
    total: Option<u64>,
    counts_bytes: bool,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Counts bytes, of `total` if that is known.
    pub(crate) fn of_bytes(label: &'static str, total: Option<u64>) -> Self {
        Self { label, total, counts_bytes: true, start: Instant::now(), bar: None }
    }

    /// Counts items, of `total` if that is known.
    pub(crate) fn of_items(label: &'static str, total: Option<u64>) -> Self {
        Self { label, total, counts_bytes: false, start: Instant::now(), bar: None }
    }

    /// Shows that this much is done.
    pub(crate) fn at(&mut self, done: u64) {
        if self.bar.is_none() && self.start.elapsed() >= DELAY {
            self.bar = Some(self.new_bar());
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
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

/// The mean rate since the work began: steadier than that of the last seconds.
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

/// Work that does not know how far it is: shows a spinner and the time. Dropping it clears the line.
pub(crate) struct Waiting(ProgressBar);

impl Waiting {
    pub(crate) fn begin(label: &'static str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        let bar = ProgressBar::new_spinner()
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
            .with_message(label);
        bar.enable_steady_tick(DELAY / 4);
        Self(bar)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
