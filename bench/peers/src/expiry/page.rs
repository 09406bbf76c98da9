use std::fs;
use std::path::Path;

use sievedb_report::svg::Svg;

use super::stores::Name;
use super::{Outcome, Plan, Sample};
use crate::keys::KeySet;
use crate::statistics::{short, thousands};
use crate::{Result, machine};

fn file(keys: KeySet) -> String {
    if keys == KeySet::Hashed { "expiry".to_owned() } else { format!("expiry-{}", keys.name()) }
}

fn ids(keys: KeySet) -> &'static str {
    match keys {
        KeySet::Hashed => "random ids of 16 bytes",
        KeySet::Ascending => "ascending ids of 16 bytes",
        KeySet::Paths => "file paths of about 60 bytes",
        KeySet::Urls => "URLs of about 60 bytes",
        KeySet::Uuids => "version 7 UUIDs",
        KeySet::Tenants => "ids of 28 bytes, a tenant and a version 7 UUID,",
    }
}

const COLOURS: [(Name, &str); 4] = [
    (Name::SievedbTtl, "#1b7837"),
    (Name::SievedbKeyspaces, "#7fbf7b"),
    (Name::SievedbDeletes, "#af8dc3"),
    (Name::RocksdbTtl, "#d95f02"),
];

pub(crate) fn write(plan: &Plan, results: &[(Name, Outcome)], out: &Path) -> Result<()> {
    let (pictures, file) = (out.join("peers"), file(plan.keys));
    fs::create_dir_all(&pictures)?;
    fs::write(pictures.join(format!("{file}.svg")), picture(plan, results))?;
    let text = page(plan, results);
    print!("{text}");
    Ok(fs::write(out.join(format!("{file}.md")), text)?)
}

fn page(plan: &Plan, results: &[(Name, Outcome)]) -> String {
    let mut text = format!(
        "# Entries that expire: measured\n\n\
         Output of one run of `expiry` of `bench/peers` ([README](../../bench/peers/README.md)), not edited by hand. {} {} \
         pass through an exact window of 24 hours, {} in a window; one in eight repeats an id of the last day and a \
         half. The clock is the time of the events. Each store has {} of memory. Its process is killed {} times \
         in a call, and closed once in order. Every answer was checked against an exact model.\n\n{}\n\n\
         ![Disk and memory over time](peers/{}.svg)\n\n\
         Rates are ids per second of the calls of the store. *Disk* is the least and the most space after the first window, *owed* the \
         most bytes that were due for compaction in that time. *Written* is what the process wrote to files, logs included, per byte of ids. *Opened* is \
         the longest opening after an interruption.\n\n\
         | store | ids/s | ids/s after the first window | slowest bucket | disk | owed | memory at most | written | opened, s |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        thousands(plan.ids.into()),
        ids(plan.keys),
        thousands(plan.per_window.into()),
        mib(plan.memory_bytes),
        plan.kills,
        machine::describe(),
        file(plan.keys),
    );
    for (name, outcome) in results {
        text.push_str(&row(plan, *name, outcome));
    }
    text
}

fn row(plan: &Plan, name: Name, outcome: &Outcome) -> String {
    let samples = &outcome.samples;
    let later: Vec<&Sample> = samples.iter().filter(|sample| sample.ids > plan.per_window).collect();
    let rates = rates(samples);
    let seconds = |samples: &[&Sample]| samples.iter().map(|sample| sample.seconds).sum::<f64>();
    let all: Vec<&Sample> = samples.iter().collect();
    let later_ids = plan.ids
        - samples.iter().map(|sample| sample.ids).filter(|ids| *ids <= plan.per_window).max().unwrap_or(0);
    let most = |of: fn(&Sample) -> u64, samples: &[&Sample]| {
        samples.iter().map(|sample| of(sample)).max().unwrap_or(0)
    };
    let least = later.iter().map(|sample| sample.disk_bytes).min().unwrap_or(0);
    let id_bytes = plan.keys.bytes(1000) as f64 / 1000.0;
    let written =
        samples.last().map_or(0, |sample| sample.written_bytes) as f64 / (id_bytes * f64::from(plan.ids));
    format!(
        "| {} | {} | {} | {} | {}–{} | {} | {} | {written:.1} | {:.2} |\n",
        name.title(),
        short(f64::from(plan.ids) / seconds(&all)),
        short(f64::from(later_ids) / seconds(&later)),
        short(rates.iter().copied().fold(f64::INFINITY, f64::min)),
        mib(least),
        mib(most(|sample| sample.disk_bytes, &later)),
        mib(most(|sample| sample.debt_bytes, &later)),
        mib(most(|sample| sample.memory_bytes, &all)),
        outcome.reopened,
    )
}

fn rates(samples: &[Sample]) -> Vec<f64> {
    let before = std::iter::once(0).chain(samples.iter().map(|sample| sample.ids));
    let ids =
        samples.iter().zip(before).map(|(sample, before)| (f64::from(sample.ids - before), sample.seconds));
    ids.map(|(ids, seconds)| ids / seconds.max(1e-9)).collect()
}

fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

const WIDTH: f64 = 900.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 260.0;
const TOP: f64 = 70.0;

fn picture(plan: &Plan, results: &[(Name, Outcome)]) -> String {
    let height = TOP + 2.0 * (PANEL + 60.0);
    let mut svg = Svg::picture(WIDTH, height, 12, "A window of 24 hours: disk and memory over time");
    for (place, (name, _)) in results.iter().enumerate() {
        let x = 16.0 + place as f64 * 215.0;
        svg.rectangle(x, 40.0, 12.0, 12.0, &format!("fill=\"{}\"", colour(*name)));
        svg.text(x + 17.0, 51.0, "", name.title());
    }
    panel(&mut svg, TOP, "disk", plan, results, |sample| sample.disk_bytes);
    panel(&mut svg, TOP + PANEL + 60.0, "memory", plan, results, |sample| sample.memory_bytes);
    svg.finish()
}

fn colour(name: Name) -> &'static str {
    COLOURS.iter().find(|(other, _)| *other == name).map_or("#333333", |(_, colour)| colour)
}

fn panel(
    svg: &mut Svg,
    top: f64,
    title: &str,
    plan: &Plan,
    results: &[(Name, Outcome)],
    of: fn(&Sample) -> u64,
) {
    let bottom = top + 20.0 + PANEL;
    let most =
        results.iter().flat_map(|(_, outcome)| &outcome.samples).map(of).max().unwrap_or(0).max(1) as f64;
    let x = |ids: u32| LEFT + f64::from(ids) / f64::from(plan.ids) * (WIDTH - LEFT - RIGHT);
    let y = |bytes: u64| bottom - bytes as f64 / most * PANEL;
    svg.text(16.0, top + 14.0, "font-weight=\"bold\"", &format!("{title} (MiB)"));
    for part in 0..=4_u32 {
        let bytes = (most * f64::from(part) / 4.0) as u64;
        svg.polyline([(LEFT, y(bytes)), (WIDTH - RIGHT, y(bytes))], "stroke=\"#dddddd\"");
        let label = format!("{:.0}", bytes as f64 / f64::from(1 << 20));
        svg.text(LEFT - 8.0, y(bytes) + 4.0, "text-anchor=\"end\"", &label);
    }
    for window in 0..=plan.ids / plan.per_window {
        let at = x((window * plan.per_window).min(plan.ids));
        svg.polyline([(at, bottom - PANEL), (at, bottom)], "stroke=\"#dddddd\"");
        svg.text(at, bottom + 16.0, "text-anchor=\"middle\"", &format!("{} h", window * 24));
    }
    for (name, outcome) in results {
        let points = outcome.samples.iter().map(|sample| (x(sample.ids), y(of(sample))));
        svg.polyline(points, &format!("stroke=\"{}\" stroke-width=\"2\"", colour(*name)));
    }
}
