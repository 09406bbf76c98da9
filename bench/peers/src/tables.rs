use std::fmt::Write;

use crate::names::EngineName;
use crate::order::{Latency, Outcome};
use crate::results::Row;
use crate::statistics::{Spread, digits, short};
use crate::workload::{Part, Work, Workload};

const COLUMNS: [EngineName; 6] = [
    EngineName::Sievedb,
    EngineName::Fjall,
    EngineName::Rocksdb,
    EngineName::Surrealkv,
    EngineName::Redb,
    EngineName::Nothing,
];

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let mut out = format!("\n| {} |\n|---{}|\n", head.join(" | "), "|---:".repeat(head.len() - 1));
    for row in rows {
        _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}

pub(crate) fn is_time(part: Part) -> bool {
    part == Part::Open
}

pub(crate) fn unit(part: Part) -> &'static str {
    if is_time(part) { "milliseconds; shorter is better" } else { "per second" }
}

pub(crate) fn shown(part: Part, rate: Spread) -> Spread {
    if is_time(part) {
        Spread { min: 1e3 / rate.max, median: 1e3 / rate.median, max: 1e3 / rate.min }
    } else {
        rate
    }
}

pub(crate) fn medians(part: Part, measured: &[(&Workload, &Row<'_>)]) -> String {
    rates(
        part,
        measured,
        &["ratio"],
        |rate| short(rate.median),
        |(ratio, _)| vec![ratio.map(|ratio| digits(ratio.median))],
    )
}

pub(crate) fn spreads(part: Part, measured: &[(&Workload, &Row<'_>)]) -> String {
    let spread = |Spread { min, median, max }: Spread, text: fn(f64) -> String| {
        [text(median), format!("({} to {})", text(min), text(max))]
    };
    rates(
        part,
        measured,
        &["ratio", "without the loop"],
        |rate| spread(rate, short).join(" "),
        |(ratio, net)| vec![ratio.map(|ratio| spread(ratio, digits).join(" ")), net.map(digits)],
    )
}

fn rates(
    part: Part,
    measured: &[(&Workload, &Row<'_>)],
    ratios: &[&str],
    figure: impl Fn(Spread) -> String,
    lead: impl Fn((Option<Spread>, Option<f64>)) -> Vec<Option<String>>,
) -> String {
    let mut columns = COLUMNS.to_vec();
    columns.retain(|column| measured.iter().any(|(_, row)| row.runs.contains_key(column)));
    let has_others = measured.iter().any(|(_, row)| row.runs.keys().any(|engine| !columns.contains(engine)));
    let mut head = vec![unit(part).to_owned()];
    head.extend(columns.iter().map(|engine| engine.title().to_owned()));
    head.extend(has_others.then(|| "other settings".into()));
    head.extend(ratios.iter().map(|&ratio| ratio.to_owned()));
    let rows = measured.iter().map(|(workload, row)| {
        let fastest = row.fastest();
        let cell = |engine| {
            let Some(rate) = row.rate(engine) else { return "–".to_owned() };
            let figure = figure(shown(part, rate));
            let load = if row.is_loaded(engine) { " under load" } else { "" };
            if fastest != Some(engine) {
                return format!("{figure}{load}");
            }
            let (median, rest) = figure.split_at(figure.find(" (").unwrap_or(figure.len()));
            format!("**{median}**{rest}{load}")
        };
        let mut cells = vec![workload.name.clone()];
        cells.extend(columns.iter().map(|&engine| cell(engine)));
        let others = row.runs.keys().filter(|engine| !columns.contains(engine));
        let others: Vec<_> = others.map(|&engine| format!("{}: {}", engine.title(), cell(engine))).collect();
        cells.extend(has_others.then(|| if others.is_empty() { "–".into() } else { others.join("<br>") }));
        cells.extend(lead(row.lead(part)).into_iter().map(|ratio| ratio.unwrap_or("–".into())));
        cells
    });
    table(&head, &rows.collect::<Vec<_>>())
}

fn engines(measured: &[(&Workload, &Row<'_>)]) -> Vec<EngineName> {
    let mut engines: Vec<_> = measured.iter().flat_map(|(_, row)| row.runs.keys().copied()).collect();
    engines.sort_unstable();
    engines.dedup();
    engines.retain(|&engine| engine != EngineName::Nothing);
    engines
}

fn by_engine(
    what: &str,
    measured: &[(&Workload, &Row<'_>)],
    cell: impl Fn(&Row<'_>, EngineName) -> Option<String>,
) -> String {
    let engines = engines(measured);
    let mut head = vec![what.to_owned()];
    head.extend(engines.iter().map(|engine| engine.title().to_owned()));
    let rows = measured.iter().filter_map(|(workload, row)| {
        let cells: Vec<_> = engines.iter().map(|&engine| cell(row, engine)).collect();
        cells.iter().any(Option::is_some).then(|| {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or("–".into()));
            std::iter::once(workload.name.clone()).chain(cells).collect()
        })
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { String::new() } else { table(&head, &rows) }
}

pub(crate) fn shapes(measured: &[(&Workload, &Row<'_>)]) -> String {
    let mut firsts: Vec<(&Workload, &Row<'_>)> = Vec::new();
    for &(workload, row) in measured {
        if firsts.iter().all(|(first, _)| (first.keys, first.shape) != (workload.keys, workload.shape)) {
            firsts.push((workload, row));
        }
    }
    by_engine("tables by level", &firsts, |row, engine| row.runs.get(&engine)?.first()?.shape.clone())
}

pub(crate) fn latencies(measured: &[(&Workload, &Row<'_>)]) -> String {
    by_engine("latency of a call in µs: 50 %; 99 %; 99.9 %", measured, |row, engine| {
        let percentile = |of: fn(Latency) -> f64| row.median(engine, |run| run.latency.map(of));
        let parts = [
            percentile(|latency| latency.p50)?,
            percentile(|latency| latency.p99)?,
            percentile(|latency| latency.p99_9)?,
        ];
        Some(parts.map(digits).join("; "))
    })
}

pub(crate) fn conflicts(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "conflicts per 100 attempts; write calls and bytes written per transaction";
    by_engine(what, measured, |row, engine| {
        let conflicts = |run: &Outcome| run.conflicts as f64 / (run.operations + run.conflicts) as f64;
        let parts = [
            row.median(engine, |run| Some(100.0 * conflicts(run)))?,
            row.median(engine, |run| Some(run.io.write_calls as f64 / run.operations as f64))?,
            row.median(engine, |run| Some(run.io.written_bytes as f64 / run.operations as f64))?,
        ];
        Some(parts.map(digits).join("; "))
    })
}

pub(crate) fn io(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "per operation: read calls; bytes read; blocks and filter pages looked at (sievedb); \
        processor time in µs. Peak memory in MiB";
    by_engine(what, measured, |row, engine| {
        let each = |figure: fn(&Outcome) -> Option<f64>| {
            row.median(engine, |run| figure(run).map(|figure| figure / run.operations as f64))
        };
        let mut parts = vec![
            digits(each(|run| Some(run.io.read_calls as f64))?),
            digits(each(|run| Some(run.io.read_bytes as f64))?),
        ];
        parts.extend(each(|run| run.blocks.map(|blocks| blocks as f64)).map(digits));
        parts.push(digits(each(|run| Some(run.processor_seconds * 1e6))?));
        parts.push(digits(row.median(engine, |run| Some(run.peak_bytes as f64 / f64::from(1 << 20)))?));
        Some(parts.join("; "))
    })
}

pub(crate) fn fills(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "bytes written per byte of keys and values; bytes on disk, likewise; seconds until the end \
        of background work; longest pause of a writer in ms";
    let measured: Vec<_> = measured
        .iter()
        .copied()
        .filter(|(workload, _)| matches!(workload.work, Work::Fill { synced: false, .. }))
        .collect();
    by_engine(what, &measured, |row, engine| {
        let filled =
            |figure: fn(crate::order::Filled) -> f64| row.median(engine, |run| run.filled.map(figure));
        let parts = [
            filled(|filled| filled.written_bytes as f64 / filled.user_bytes as f64)?,
            filled(|filled| filled.disk_bytes as f64 / filled.user_bytes as f64)?,
            filled(|filled| filled.seconds)?,
            row.median(engine, |run| Some(run.longest_ms))?,
        ];
        Some(parts.map(digits).join("; "))
    })
}

pub(crate) fn counts(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "per operation: instructions without the loop's; allocations; system calls, the most \
        frequent ones by name";
    by_engine(what, measured, |row, engine| {
        let counts = row.counts.get(&engine)?;
        let of_loop =
            row.counts.get(&EngineName::Nothing).and_then(|counts| counts.instructions).unwrap_or(0.0);
        let mut parts = vec![
            counts.instructions.map_or("–".into(), |count| digits(count - of_loop)),
            counts.allocations.map_or("–".into(), digits),
        ];
        parts.push(counts.calls.as_ref().map_or("–".into(), |calls| {
            let total: f64 = calls.values().sum();
            let mut named: Vec<_> = calls.iter().filter(|(_, each)| **each >= 0.005).collect();
            named.sort_by(|one, other| other.1.total_cmp(one.1));
            let named: Vec<_> =
                named.iter().take(2).map(|(name, each)| format!("{name} {}", digits(**each))).collect();
            let names = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
            format!("{}{names}", digits(total.max(0.0)))
        }));
        Some(parts.join("; "))
    })
}
