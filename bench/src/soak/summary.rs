use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Soak;
use super::faults::Fault;
use super::place::Disturbance;
use super::watch::Call;
use crate::Result;
use crate::report::{Report, Table, count};

#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) openings: u64,
    pub(super) comparisons: u64,
    pub(super) failed_lives: u64,
    pub(super) healed_lives: u64,
    pub(super) closed_in_use: u64,
    pub(super) power_losses: u64,
    pub(super) torn_tails: u64,
    armed: [u64; Fault::ALL.len()],
    disturbed: [u64; Disturbance::ALL.len()],
}

impl Events {
    pub(super) fn armed(&mut self, fault: Fault) {
        self.armed[fault as usize] += 1;
    }

    pub(super) fn disturbed(&mut self, what: Disturbance) {
        self.disturbed[what as usize] += 1;
    }
}

pub(super) fn print(soak: &Soak, rounds: u64, took: Duration) -> Result<()> {
    let Soak { watch, weather, events, seed } = soak;
    let mut report = Report::new("Soak", &format!("soak --seed {seed}"));
    let mut calls = Table::new(["call", "made", "failed", "longest without a fault, ms", "elapsed, ms"]);
    for (call, name, _) in Call::ALL {
        let counts = &watch.counts[call as usize];
        let failed = counts.failed.load(Ordering::SeqCst);
        let millis = |longest: &AtomicU64| format!("{:.1}", longest.load(Ordering::SeqCst) as f64 / 1e6);
        let (longest, elapsed) = (millis(&counts.longest), millis(&counts.longest_elapsed));
        let made = counts.done.load(Ordering::SeqCst) + failed;
        calls.row([name.to_owned(), count(made), count(failed), longest, elapsed]);
    }
    report.table(&calls);
    let mut faults = Table::new(["fault", "armed", "operations that failed"]);
    for ((fault, armed), fired) in Fault::ALL.iter().zip(events.armed).zip(weather.fired()) {
        faults.row([fault.name().to_owned(), count(armed), count(fired)]);
    }
    report.table(&faults);
    let mut other = Table::new(["what", "times"]);
    for (what, times) in [
        ("rounds", rounds),
        ("openings", events.openings),
        ("comparisons of the whole store", events.comparisons),
        ("lives that ended with writing disabled", events.failed_lives),
        ("lives that met faults and still wrote at their end", events.healed_lives),
        ("closed while in use", events.closed_in_use),
        ("power losses", events.power_losses),
        ("torn tails dropped", events.torn_tails),
        ("directory moved and moved back", events.disturbed[0]),
        ("directory moved, another store in its place", events.disturbed[1]),
        ("LOCK removed", events.disturbed[2]),
    ] {
        other.row([what.to_owned(), count(times)]);
    }
    report.table(&other);
    let longest = watch.counts.iter().map(|counts| counts.longest.load(Ordering::SeqCst)).max();
    report.text(&format!(
        "{:.1} minutes, of which {:.1} count (scaled by the share of the wanted processor time that the \
         program got). The longest call without an armed fault took {:.2} s of the time that counts.",
        took.as_secs_f64() / 60.0,
        watch.counted() as f64 / 60e9,
        longest.unwrap_or(0) as f64 / 1e9,
    ));
    report.write(None)
}
