use super::build::{Built, PRESENT, floor_lane};
use super::lane::{Lane, Mode};
use crate::clock;
use crate::random::{below, number};
use crate::report::{Table, keys as keys_text};
use crate::rounds::{Rounds, Spread, digits};

const ABSENT: u64 = 2;
const RATE: u64 = 3;

/// Questions per round: too many for the branch predictor.
const QUESTIONS: u64 = 1 << 17;

/// A rate of 1/256 has a standard error of 0.4 %.
const RATE_QUESTIONS: u64 = 16 << 20;

const NOISE_MAX: f64 = 0.2;

pub(super) fn noise(spread: f64) -> String {
    if spread <= NOISE_MAX {
        String::new()
    } else {
        format!(" noisy run: spread up to {:.0} %", spread * 100.0)
    }
}

pub(super) struct Row {
    pub(super) name: String,
    pub(super) bits_per_key: f64,
    pub(super) rate: f64,
    pub(super) is_ours: bool,
    pub(super) build: Option<(Spread, f64)>,
}

impl Row {
    pub(super) fn overhead(&self) -> f64 {
        self.bits_per_key / -self.rate.log2() - 1.0
    }
}

pub(super) struct Speed {
    pub(super) keys: usize,
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
    times: Vec<Rounds>,
}

pub(super) fn run(keys: usize, built: Vec<Built>, rounds: usize) -> Speed {
    let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
    let mut rows = Vec::new();
    let (name, floor) = floor_lane(keys);
    rows.push(Row {
        name,
        bits_per_key: floor.bits() as f64 / keys as f64,
        rate: 1.0,
        is_ours: false,
        build: None,
    });
    lanes.push(floor);
    for built in built {
        let mut known: Option<(f64, f64)> = None;
        for (name, lane) in built.lanes {
            let first = known.is_none();
            let (bits_per_key, rate) =
                *known.get_or_insert_with(|| (lane.bits() as f64 / keys as f64, measured_rate(&*lane)));
            let build = first.then_some((built.time, built.peak_bytes));
            rows.push(Row { name, bits_per_key, rate, is_ours: built.contender.is_ours(), build });
            lanes.push(lane);
        }
    }
    let absent: Vec<u64> = (0..QUESTIONS).map(|index| number(ABSENT, index)).collect();
    let present: Vec<u64> =
        (0..QUESTIONS).map(|index| number(PRESENT, below(number(4, index), keys as u64))).collect();
    let times = Mode::ALL
        .iter()
        .map(|&mode| {
            let hashes = if mode == Mode::Present { &present } else { &absent };
            Rounds::run(rounds, lanes.len(), |index| {
                let (time, found) = clock::cost(|| lanes[index].ask(hashes, mode));
                std::hint::black_box(found);
                time.as_secs_f64() * 1e9 / QUESTIONS as f64
            })
        })
        .collect();
    Speed { keys, rounds, rows, times }
}

fn measured_rate(lane: &dyn Lane) -> f64 {
    const PART: u64 = 1 << 16;
    let mut found = 0;
    for part in 0..RATE_QUESTIONS / PART {
        let hashes: Vec<u64> = (part * PART..(part + 1) * PART).map(|index| number(RATE, index)).collect();
        found += lane.ask(&hashes, Mode::Batch);
    }
    found as f64 / RATE_QUESTIONS as f64
}

impl Speed {
    pub(super) const FLOOR: usize = 0;

    pub(super) fn row(&self, name: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.name == name)
    }

    pub(super) fn time(&self, row: usize, mode: Mode) -> Spread {
        self.times[mode as usize].of(row)
    }

    pub(super) fn ratio(&self, row: usize, over: usize, mode: Mode) -> Spread {
        self.times[mode as usize].ratio(row, over)
    }

    pub(super) fn best_peer(&self, measure: impl Fn(&Self, usize) -> f64) -> Option<usize> {
        (0..self.rows.len())
            .filter(|&row| row != Self::FLOOR && !self.rows[row].is_ours)
            .min_by(|&a, &b| measure(self, a).total_cmp(&measure(self, b)))
    }

    pub(super) fn spread(&self) -> f64 {
        let rows = || 0..self.rows.len();
        let times = Mode::ALL.into_iter().flat_map(|mode| rows().map(move |row| self.time(row, mode)));
        let builds = self.rows.iter().filter_map(|row| row.build.map(|(time, _)| time));
        times.chain(builds).map(Spread::relative).fold(0.0, f64::max)
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new([
            &*format!("{} keys{}", keys_text(self.keys as u64), noise(self.spread())),
            "bits/key",
            "rate %",
            "over n·log2(1/rate) %",
            "build ns/key",
            "peak B/key",
            "absent ns",
            "present ns",
            "dependent ns",
            "batch of 32 ns",
            "absent ÷ one line",
        ]);
        for (index, row) in self.rows.iter().enumerate() {
            let or_none = |text: Option<String>| text.unwrap_or_default();
            let is_filter = index != Self::FLOOR;
            table.row([
                if row.is_ours { format!("**{}**", row.name) } else { row.name.clone() },
                or_none(is_filter.then(|| format!("{:.3}", row.bits_per_key))),
                or_none(is_filter.then(|| format!("{:.4}", row.rate * 100.0))),
                or_none(is_filter.then(|| format!("{:.2}", row.overhead() * 100.0))),
                or_none(row.build.map(|(time, _)| time.to_string())),
                or_none(row.build.map(|(_, peak)| digits(peak))),
                self.time(index, Mode::Absent).to_string(),
                self.time(index, Mode::Present).to_string(),
                self.time(index, Mode::Dependent).to_string(),
                self.time(index, Mode::Batch).to_string(),
                format!("{:.2}", self.ratio(index, Self::FLOOR, Mode::Absent).median),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_spread_of_over_a_fifth_is_said_to_be_noisy() {
        assert_eq!(noise(Spread { min: 0.9, median: 1.0, max: 1.05 }.relative()), "");
        assert_eq!(
            noise(Spread { min: 0.9, median: 1.0, max: 1.2 }.relative()),
            " noisy run: spread up to 30 %"
        );
    }
}
