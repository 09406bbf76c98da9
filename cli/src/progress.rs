//! A bar on standard error while something takes long. If that is no terminal, or the work is over within a
//! moment, nothing is shown.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(400);

/// The progress of one piece of work. Dropping it clears the bar.
pub(crate) struct Progress {
    label: &'static str,
    total: Option<u64>,
    /// What is counted is bytes.
    bytes: bool,
    since: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Counts bytes.
    pub(crate) fn of_bytes(label: &'static str, total: Option<u64>) -> Self {
        Self { label, total, bytes: true, since: Instant::now(), bar: None }
    }

    /// Counts things.
    pub(crate) fn of_items(label: &'static str, total: Option<u64>) -> Self {
        Self { label, total, bytes: false, since: Instant::now(), bar: None }
    }

    /// `position` of the work is done.
    pub(crate) fn at(&mut self, position: u64) {
        if self.bar.is_none() && self.since.elapsed() >= PATIENCE {
            self.bar = Some(self.new_bar());
        }
        if let Some(bar) = &self.bar {
            bar.set_position(position);
        }
    }

    fn new_bar(&self) -> ProgressBar {
        let count = match (self.bytes, self.total.is_some()) {
            (true, true) => "{bar:30} {binary_bytes} of {binary_total_bytes}",
            (true, false) => "{spinner} {binary_bytes}",
            (false, true) => "{bar:30} {human_pos} of {human_len}",
            (false, false) => "{spinner} {human_pos}",
        };
        let style = ProgressStyle::with_template(&format!("{{msg}} {count}"));
        let bar = self.total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(self.label)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Work that cannot say how far it is: shows that it goes on, and for how long. Dropping it clears the line.
pub(crate) struct Waiting(ProgressBar);

impl Waiting {
    pub(crate) fn begin(label: &'static str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}");
        let bar = ProgressBar::new_spinner()
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
            .with_message(label);
        bar.enable_steady_tick(PATIENCE / 4);
        Self(bar)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
