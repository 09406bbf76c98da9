//! What was aimed at, beside what was reached and what the best peer of the same run reaches. A goal that was
//! missed stays.

use super::lane::Mode;
use super::negatives::Negatives;
use super::rate::Rate;
use super::speed::Speed;
use super::{HUGE, contender::Contender};
use crate::report::{Table, count, keys as keys_text};
use crate::rounds::digits;

/// One line of the table of goals.
struct Goal {
    what: String,
    goal: String,
    /// `None` if that was not part of the run.
    ours: Option<(String, bool)>,
    best: String,
}

/// Everything that a run measured.
pub(super) struct Findings {
    pub(super) speeds: Vec<Speed>,
    pub(super) rates: Vec<Rate>,
    pub(super) negatives: Negatives,
    /// Data blocks fetched per absent lookup with Bloom everywhere, with `Auto`, and at best.
    pub(super) wasted: [f64; 3],
}

/// The filters that the goals are about.
const RIBBON: Contender = Contender::Ribbon8;
const BLOCKED: Contender = Contender::Blocked;

pub(super) fn table(findings: &Findings) -> Table {
    let mut goals = Vec::new();
    space(findings, &mut goals);
    rates(findings, &mut goals);
    ribbon(findings, &mut goals);
    blocked(findings, &mut goals);
    truth(findings, &mut goals);
    let mut table = Table::new(["", "goal", "here", "best peer in this run", ""]);
    for Goal { what, goal, ours, best } in goals {
        let (ours, verdict) = match ours {
            Some((ours, true)) => (ours, "met"),
            Some((ours, false)) => (ours, "**not met**"),
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
    let mut add = |what: &str, range: std::ops::RangeInclusive<u64>, part: fn(&Rate) -> f64, limit: f64| {
        let worst = findings
            .rates
            .iter()
            .filter(|rate| rate.is_for_space() && rate.contender == RIBBON && range.contains(&rate.keys))
            .max_by(|a, b| part(a).total_cmp(&part(b)));
        goals.push(Goal {
            what: format!("Ribbon, space above n·log2(1/rate): {what}"),
            goal: format!("≤ {limit} %"),
            ours: worst.map(|rate| {
                let over = part(rate) * 100.0;
                (format!("{over:.2} % ({})", keys_text(rate.keys)), over <= limit)
            }),
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
    let worst = ribbons().max_by(|a, b| (a.ratio() - 1.0).abs().total_cmp(&(b.ratio() - 1.0).abs()));
    let most = ribbons().map(|rate| rate.keys).max().unwrap_or(0);
    goals.push(Goal {
        what: format!("Ribbon, measured ÷ predicted rate, 1 k to {} keys of three shapes", keys_text(most)),
        goal: "0.98 to 1.02".into(),
        ours: worst.map(|rate| (format!("{:.4} at worst", rate.ratio()), (rate.ratio() - 1.0).abs() <= 0.02)),
        best: String::new(),
    });
    let blocked = findings.speeds.iter().filter_map(|speed| {
        let rate = speed.rows[speed.row(BLOCKED.name())?].rate * 100.0;
        let peer = speed.row(Contender::Sbbf.name()).map_or(0.0, |row| speed.rows[row].rate * 100.0);
        Some((rate, peer))
    });
    let worst = blocked.max_by(|a, b| a.0.total_cmp(&b.0));
    goals.push(Goal {
        what: "BlockedBloom, rate at 10 bits per key".into(),
        goal: "≤ 0.97 %".into(),
        ours: worst.map(|(rate, _)| (format!("{rate:.3} %"), rate <= 0.97)),
        best: worst.map_or_else(String::new, |(_, peer)| format!("{} {peer:.3} %", Contender::Sbbf.name())),
    });
}

fn at(findings: &Findings, keys: usize) -> Option<&Speed> {
    findings.speeds.iter().find(|speed| speed.keys == keys)
}

/// A time per question and the fastest peer's.
fn probe(findings: &Findings, keys: usize, row: &str, mode: Mode, what: &str, limit: f64) -> Goal {
    let speed = at(findings, keys);
    let ours = speed.and_then(|speed| {
        let time = speed.time(speed.row(row)?, mode);
        Some((format!("{time} ns"), time.median <= limit))
    });
    Goal {
        what: format!("{what}, {} keys", keys_text(keys as u64)),
        goal: format!("≤ {limit} ns"),
        ours,
        best: speed.map_or_else(String::new, |speed| fastest(speed, mode, true)),
    }
}

/// The fastest peer; of the small filters only, if so wished: those of less than nine and a half bits.
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
    let name = RIBBON.name();
    let portable = format!("{name}, portable");
    for keys in [10_000, 1_000_000] {
        goals.push(probe(findings, keys, name, Mode::Absent, "Ribbon, absent probe, AVX2", 6.0));
        goals.push(probe(findings, keys, &portable, Mode::Absent, "Ribbon, absent probe, portable", 15.0));
    }
    goals.push(probe(findings, HUGE, name, Mode::Batch, "Ribbon, absent probe in batches of 32", 20.0));
    for (keys, limit) in [(1_000_000, 60.0), (HUGE, 80.0)] {
        let speed = at(findings, keys);
        let build = |speed: &Speed, row: usize| speed.rows[row].build;
        let small = |speed: &Speed, row: usize| match build(speed, row) {
            Some((time, _)) if speed.rows[row].bits_per_key < 9.5 => time.median,
            _ => f64::MAX,
        };
        let ours = speed.and_then(|speed| build(speed, speed.row(name)?));
        let best = speed.and_then(|speed| {
            let best = speed.best_peer(small)?;
            Some((&speed.rows[best].name, build(speed, best)?))
        });
        goals.push(Goal {
            what: format!("Ribbon, build per key, one core, {} keys", keys_text(keys as u64)),
            goal: format!("≤ {limit} ns"),
            ours: ours.map(|(time, _)| (format!("{time} ns"), time.median <= limit)),
            best: best
                .map_or_else(String::new, |(name, (time, _))| format!("{name} {}", digits(time.median))),
        });
        goals.push(Goal {
            what: format!(
                "Ribbon, peak bytes per key during the build, hashes included, {} keys",
                keys_text(keys as u64)
            ),
            goal: "≤ 20 B".into(),
            ours: ours.map(|(_, peak)| (format!("{} B", digits(peak)), peak <= 20.0)),
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
        Some((format!("{ratio} × ({} ns)", digits(speed.time(ours, mode).median)), ratio.median <= limit))
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
        ours: Some((count(wrong), wrong == 0 && probes >= 1_000_000_000)),
        best: String::new(),
    });
    let [bloom, auto, optimal] = findings.wasted;
    goals.push(Goal {
        what: "Wasted data block reads per absent lookup, five levels, 10 bits per key, Ribbon with optimal \
               allocation"
            .into(),
        goal: "≤ 0.002".into(),
        ours: Some((format!("{optimal:.4} (`Auto`: {auto:.4})"), optimal <= 0.002)),
        best: format!("Bloom, uniform (ours) {bloom:.4}"),
    });
}
