//! The goals, with the results and the best result of other crates in the same run. The worst configuration decides. A
//! goal is met if every interval is within the limit, missed if an interval is entirely beyond it, and open otherwise.

use super::lane::Mode;
use super::negatives::Negatives;
use super::rate::{Interval, Rate};
use super::speed::{Speed, noise};
use super::{HUGE, contender::Contender};
use crate::report::{Table, count, keys as keys_text};
use crate::rounds::{Spread, digits};

struct Goal {
    what: String,
    goal: String,
    ours: Option<(String, Verdict)>,
    best: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Met,
    Open,
    Missed,
}

impl Verdict {
    fn of(least: f64, most: f64, limit: f64) -> Self {
        if most <= limit {
            Self::Met
        } else if least <= limit {
            Self::Open
        } else {
            Self::Missed
        }
    }

    fn of_time(time: Spread, limit: f64) -> Self {
        Self::of(time.min, time.max, limit)
    }

    fn exact(is_met: bool) -> Self {
        if is_met { Self::Met } else { Self::Missed }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Open => "open: the limit is within the spread",
            Self::Missed => "**not met**",
        }
    }
}

fn worst(all: impl Iterator<Item = (f64, String, Verdict)>) -> Option<(String, Verdict)> {
    let all: Vec<_> = all.collect();
    let verdict = all.iter().map(|one| one.2).max()?;
    let figure = all.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some((figure.1, verdict))
}

pub(super) struct Findings {
    pub(super) speeds: Vec<Speed>,
    pub(super) rates: Vec<Rate>,
    pub(super) negatives: Negatives,
    /// Data blocks read per absent lookup with uniform Bloom, with `Auto`, and with optimal filters.
    pub(super) wasted: [f64; 3],
}

const RIBBONS: [Contender; 2] = [Contender::Ribbon8, Contender::Ribbon10];
const BLOCKED: Contender = Contender::Blocked;

pub(super) fn table(findings: &Findings) -> Table {
    let mut goals = Vec::new();
    space(findings, &mut goals);
    rates(findings, &mut goals);
    ribbon(findings, &mut goals);
    blocked(findings, &mut goals);
    truth(findings, &mut goals);
    let spread = findings.speeds.iter().map(Speed::spread).fold(0.0, f64::max);
    let mut table = Table::new([noise(spread).trim(), "goal", "here", "best peer in this run", ""]);
    for Goal { what, goal, ours, best } in goals {
        let (ours, verdict) = match ours {
            Some((ours, verdict)) => (ours, verdict.text()),
            None => (String::new(), "not run"),
        };
        table.row([what, goal, ours, best, verdict.into()]);
    }
    table
}

fn space(findings: &Findings, goals: &mut Vec<Goal>) {
    let bests = findings.speeds.iter().filter_map(|speed| {
        let best = &speed.rows[speed.best_peer(|speed, row| speed.rows[row].overhead())?];
        Some((
            best.overhead(),
            format!("{} {:.1} % ({})", best.name, best.overhead() * 100.0, keys_text(speed.keys as u64)),
        ))
    });
    let least = bests.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, text)| text);
    let mut add =
        |what: &str, range: std::ops::RangeInclusive<u64>, part: fn(&Rate) -> Interval, limit: f64| {
            let rates =
                findings.rates.iter().filter(|rate| rate.is_for_space() && range.contains(&rate.keys));
            let judged = rates.map(|rate| {
                let Interval { least, middle, most } = part(rate);
                let text = format!(
                    "{:.2} % ({:.2}–{:.2}; {}, {})",
                    middle * 100.0,
                    least * 100.0,
                    most * 100.0,
                    rate.contender.name(),
                    keys_text(rate.keys)
                );
                (middle, text, Verdict::of(least * 100.0, most * 100.0, limit))
            });
            goals.push(Goal {
                what: format!("Ribbon, space above n·log2(1/rate): {what}"),
                goal: format!("≤ {limit} %"),
                ours: worst(judged),
                best: least.clone().unwrap_or_default(),
            });
        };
    add("sections, at n ≥ 1 M", 1_000_000..=u64::MAX, Rate::sections_over, 0.4);
    add("sections, at 100 k", 100_000..=100_000, Rate::sections_over, 0.6);
    add("sections, at every n ≥ 256", 256..=u64::MAX, Rate::sections_over, 1.0);
    add("whole block, at n ≥ 10 M", 10_000_000..=u64::MAX, Rate::block_over, 0.5);
    add("whole block, at 100 k", 100_000..=100_000, Rate::block_over, 0.8);
}

fn rates(findings: &Findings, goals: &mut Vec<Goal>) {
    let ribbons = || {
        findings
            .rates
            .iter()
            .filter(|rate| matches!(rate.contender, Contender::Ribbon8 | Contender::Ribbon10))
    };
    let judged = ribbons().map(|rate| {
        let (off, error) = ((rate.ratio() - 1.0).abs(), rate.ratio_error());
        let text = format!("{:.4} ± {error:.4} at worst", rate.ratio());
        (off, text, Verdict::of((off - error).max(0.0), off + error, 0.02))
    });
    let most = ribbons().map(|rate| rate.keys).max().unwrap_or(0);
    goals.push(Goal {
        what: format!("Ribbon, measured ÷ predicted rate, 1 k to {} keys of three shapes", keys_text(most)),
        goal: "0.98 to 1.02".into(),
        ours: worst(judged),
        best: String::new(),
    });
    let judged = findings.rates.iter().filter(|rate| rate.contender == BLOCKED).map(|rate| {
        let (least, most) = rate.measured_interval();
        let text = format!(
            "{:.3} % ({:.3}–{:.3}; {} keys)",
            rate.measured() * 100.0,
            least * 100.0,
            most * 100.0,
            keys_text(rate.keys)
        );
        (rate.measured(), text, Verdict::of(least * 100.0, most * 100.0, 0.97))
    });
    let peer =
        findings.speeds.iter().filter_map(|speed| Some(speed.rows[speed.row(Contender::Sbbf.name())?].rate));
    let peer = peer.max_by(f64::total_cmp);
    goals.push(Goal {
        what: "BlockedBloom, rate at 10 bits per key".into(),
        goal: "≤ 0.97 %".into(),
        ours: worst(judged),
        best: peer
            .map_or_else(String::new, |rate| format!("{} {:.3} %", Contender::Sbbf.name(), rate * 100.0)),
    });
}

fn at(findings: &Findings, keys: usize) -> Option<&Speed> {
    findings.speeds.iter().find(|speed| speed.keys == keys)
}

fn probe(findings: &Findings, keys: usize, names: &[String], mode: Mode, what: &str, limit: f64) -> Goal {
    let speed = at(findings, keys);
    let rows = names.iter().filter_map(|name| Some((name, speed?.time(speed?.row(name)?, mode))));
    let judged =
        rows.map(|(name, time)| (time.median, format!("{time} ns ({name})"), Verdict::of_time(time, limit)));
    let ours = worst(judged);
    Goal {
        what: format!("{what}, {} keys", keys_text(keys as u64)),
        goal: format!("≤ {limit} ns"),
        ours,
        best: speed.map_or_else(String::new, |speed| fastest(speed, mode, true)),
    }
}

/// If `small`, only filters of less than 9.5 bits per key count.
fn fastest(speed: &Speed, mode: Mode, small: bool) -> String {
    let best = speed.best_peer(|speed, row| {
        let large = small && speed.rows[row].bits_per_key > 9.5;
        speed.time(row, mode).median + if large { f64::MAX / 2.0 } else { 0.0 }
    });
    best.map_or_else(String::new, |row| {
        format!("{} {}", speed.rows[row].name, digits(speed.time(row, mode).median))
    })
}

fn ribbon(findings: &Findings, goals: &mut Vec<Goal>) {
    let names = RIBBONS.map(|ribbon| ribbon.name().to_owned());
    let portable = names.clone().map(|name| format!("{name}, portable"));
    for keys in [10_000, 1_000_000] {
        goals.push(probe(findings, keys, &names, Mode::Absent, "Ribbon, absent probe, AVX2", 6.0));
        goals.push(probe(findings, keys, &portable, Mode::Absent, "Ribbon, absent probe, portable", 15.0));
    }
    goals.push(probe(findings, HUGE, &names, Mode::Batch, "Ribbon, absent probe in batches of 32", 20.0));
    for (keys, limit) in [(1_000_000, 60.0), (HUGE, 80.0)] {
        let speed = at(findings, keys);
        let build = |speed: &Speed, row: usize| speed.rows[row].build;
        let small = |speed: &Speed, row: usize| match build(speed, row) {
            Some((time, _)) if speed.rows[row].bits_per_key < 9.5 => time.median,
            _ => f64::MAX,
        };
        let ours = || names.iter().filter_map(|name| Some((name, build(speed?, speed?.row(name)?)?)));
        let times = ours().map(|(name, (time, _))| {
            (time.median, format!("{time} ns ({name})"), Verdict::of_time(time, limit))
        });
        let peaks = ours().map(|(name, (_, peak))| {
            (peak, format!("{} B ({name})", digits(peak)), Verdict::exact(peak <= 20.0))
        });
        let best = speed.and_then(|speed| {
            let best = speed.best_peer(small)?;
            Some((&speed.rows[best].name, build(speed, best)?))
        });
        goals.push(Goal {
            what: format!("Ribbon, build per key, one core, {} keys", keys_text(keys as u64)),
            goal: format!("≤ {limit} ns"),
            ours: worst(times),
            best: best
                .map_or_else(String::new, |(name, (time, _))| format!("{name} {}", digits(time.median))),
        });
        goals.push(Goal {
            what: format!(
                "Ribbon, peak bytes per key during the build, hashes included, {} keys",
                keys_text(keys as u64)
            ),
            goal: "≤ 20 B".into(),
            ours: worst(peaks),
            best: best.map_or_else(String::new, |(name, (_, peak))| format!("{name} {} B", digits(peak))),
        });
    }
}

fn blocked(findings: &Findings, goals: &mut Vec<Goal>) {
    let modes = [
        (10_000, Mode::Absent, "absent probe"),
        (1_000_000, Mode::Absent, "absent probe"),
        (HUGE, Mode::Absent, "absent probe"),
        (HUGE, Mode::Batch, "absent probe in batches of 32"),
    ];
    let ratio = |keys: usize, over: &dyn Fn(&Speed) -> Option<usize>, mode: Mode, limit: f64| {
        let speed = at(findings, keys)?;
        let ours = speed.row(BLOCKED.name())?;
        let ratio = speed.ratio(ours, over(speed)?, mode);
        let text = format!("{ratio} × ({} ns)", digits(speed.time(ours, mode).median));
        Some((text, Verdict::of_time(ratio, limit)))
    };
    for (keys, mode, what) in modes {
        let peer = |speed: &Speed| speed.best_peer(|speed, row| speed.time(row, mode).median);
        goals.push(Goal {
            what: format!("BlockedBloom, {what}, {} keys", keys_text(keys as u64)),
            goal: "≤ 1.1 × the fastest peer".into(),
            ours: ratio(keys, &peer, mode, 1.1),
            best: at(findings, keys).map_or_else(String::new, |speed| fastest(speed, mode, false)),
        });
    }
    for (keys, mode, what) in modes.into_iter().filter(|mode| mode.0 == HUGE) {
        let floor = |_: &Speed| Some(Speed::FLOOR);
        goals.push(Goal {
            what: format!("BlockedBloom, {what}, {} keys", keys_text(keys as u64)),
            goal: "≤ 1.2 × touching one random line".into(),
            ours: ratio(keys, &floor, mode, 1.2),
            best: at(findings, keys).map_or_else(String::new, |speed| {
                format!("one line {}", digits(speed.time(Speed::FLOOR, mode).median))
            }),
        });
    }
}

fn truth(findings: &Findings, goals: &mut Vec<Goal>) {
    let Negatives { probes, filters, wrong } = findings.negatives;
    goals.push(Goal {
        what: format!("False negatives in {} probes of {} filters", count(probes), count(filters)),
        goal: "0 in 1,000,000,000".into(),
        ours: Some((count(wrong), Verdict::exact(wrong == 0 && probes >= 1_000_000_000))),
        best: String::new(),
    });
    let [bloom, auto, optimal] = findings.wasted;
    goals.push(Goal {
        what: "Wasted data block reads per absent lookup, five levels, 10 bits per key, Ribbon with optimal \
               allocation"
            .into(),
        goal: "≤ 0.002".into(),
        ours: Some((format!("{optimal:.4} (`Auto`: {auto:.4})"), Verdict::exact(optimal.max(auto) <= 0.002))),
        best: format!("Bloom, uniform (ours) {bloom:.4}"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_judged_by_its_worst_figure_and_over_the_whole_interval() {
        assert_eq!(Verdict::of(1.0, 2.0, 2.0), Verdict::Met);
        assert_eq!(Verdict::of(1.0, 2.1, 2.0), Verdict::Open);
        assert_eq!(Verdict::of(2.1, 3.0, 2.0), Verdict::Missed);
        let figures = [(1.0, Verdict::Missed), (3.0, Verdict::Met), (2.0, Verdict::Open)];
        let judged =
            worst(figures.map(|(figure, verdict)| (figure, figure.to_string(), verdict)).into_iter());
        assert_eq!(judged, Some(("3".into(), Verdict::Missed)));
        assert_eq!(worst([].into_iter()), None);
    }
}
