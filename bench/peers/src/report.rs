//! The report: for each part a chart and its tables. Rows that are lost stay.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::chart::{self, Bar, Panel};
use crate::names::EngineName;
use crate::order::{Outcome, Sizes};
use crate::records::{OTHERS_MAX, Record, Start};
use crate::results::Row;
use crate::statistics::{Spread, digits, short};
use crate::workload::{Part, Work, Workload};

/// A report and its charts.
pub(crate) struct Rendered {
    pub(crate) markdown: String,
    /// Names of files and their contents.
    pub(crate) charts: Vec<(&'static str, String)>,
    /// Why it must not be published, if it must not.
    pub(crate) faults: Vec<String>,
}

/// The directory of the charts, beside the report.
pub(crate) const CHARTS: &str = "peers";
const COLUMNS: [EngineName; 6] = [
    EngineName::Sievedb,
    EngineName::Fjall,
    EngineName::Rocksdb,
    EngineName::Surrealkv,
    EngineName::Redb,
    EngineName::Nothing,
];

fn colour(engine: EngineName) -> &'static str {
    match engine {
        EngineName::Sievedb => "#0b6e4f",
        EngineName::Fjall | EngineName::FjallHashed | EngineName::FjallPartitioned => "#c77d3a",
        EngineName::Surrealkv => "#8a5fa8",
        EngineName::Redb => "#a8484a",
        EngineName::Nothing => "#c4c4c4",
        _ => "#4a78b0",
    }
}

/// Makes the report of these records. `workloads` are all there are, measured or not.
pub(crate) fn render(records: &[Record], workloads: &[Workload]) -> Rendered {
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    let mut start = None;
    let mut end = None;
    for record in records {
        match record {
            Record::Start(begun) => start = start.or(Some(begun)),
            Record::Run { row, engine, outcome, .. } => {
                rows.entry(row).or_default().runs.entry(*engine).or_default().push(outcome);
            }
            Record::Counts { row, engine, counts } => {
                rows.entry(row).or_default().counts.insert(*engine, counts);
            }
            Record::End { load } => end = Some(*load),
        }
    }
    let faults = faults(start, &rows, workloads);
    let mut markdown = head(start, end, &faults);
    let mut charts = Vec::new();
    for part in Part::ALL {
        let measured: Vec<_> = workloads
            .iter()
            .filter(|workload| workload.part == part)
            .filter_map(|workload| Some((workload, rows.get(workload.name.as_str())?)))
            .filter(|(_, row)| !row.runs.is_empty())
            .collect();
        if measured.is_empty() {
            continue;
        }
        _ = write!(markdown, "\n## {}\n\n![{0}]({CHARTS}/{})\n", part.title(), part.file());
        markdown.push_str(&rates_table(part, &measured));
        if matches!(part, Part::Absent | Part::Open) {
            markdown.push_str(&shape_table(&measured));
        }
        if part == Part::Fill {
            markdown.push_str(&fill_table(&measured));
        }
        markdown.push_str(&io_table(&measured));
        markdown.push_str(&counts_table(&measured));
        let panels: Vec<_> = measured.iter().map(|(workload, row)| panel(part, workload, row)).collect();
        charts.push((part.file(), chart::svg(part.title(), &panels)));
    }
    Rendered { markdown, charts, faults }
}

/// What keeps a report from being published.
fn faults(start: Option<&Start>, rows: &BTreeMap<&str, Row<'_>>, workloads: &[Workload]) -> Vec<String> {
    let mut faults = Vec::new();
    let loaded: usize = rows
        .values()
        .flat_map(|row| row.runs.values().flatten())
        .filter(|run| run.others > OTHERS_MAX)
        .count();
    if loaded > 0 {
        let percent = OTHERS_MAX * 100.0;
        faults.push(format!("in {loaded} runs others took more than {percent:.0} % of the machine"));
    }
    let Some(start) = start else {
        faults.push("there is no run".into());
        return faults;
    };
    let is_complete = |workload: &&Workload| {
        rows.get(workload.name.as_str()).is_some_and(|row| {
            workload.engines.iter().all(|engine| row.runs.get(engine).map_or(0, Vec::len) >= start.rounds)
        })
    };
    let missing = workloads.iter().filter(|workload| !is_complete(workload)).count();
    if missing > 0 {
        faults.push(format!("{missing} rows lack an engine or a round"));
    }
    if start.rounds < 3 {
        faults.push(format!("{} rounds make no median", start.rounds));
    }
    if !start.target.contains("AVX2") {
        faults.push(
            "it was built without bench/peers/.cargo/config.toml, so RocksDB has no vector code".into(),
        );
    }
    faults
}

fn head(start: Option<&Start>, end: Option<f64>, faults: &[String]) -> String {
    let mut out = String::from("# Beside other stores: measured\n");
    if !faults.is_empty() {
        _ = write!(out, "\n**Not for publication: {}.**\n", faults.join("; "));
    }
    let Some(start) = start else { return out };
    let Sizes { keys, value_bytes, cache_bytes, small_cache_bytes, memtable_bytes, .. } = start.sizes;
    let mib = |bytes: u64| digits(bytes as f64 / f64::from(1 << 20));
    _ = write!(
        out,
        "\nMade, whole, by one run of the command in [bench/peers](../../bench/peers/README.md), which also has the \
         settings; nothing here is written by hand.\n\n{}. {}, compiled for {}. Load {} before the first run, {} after \
         the last.\n\n{} keys with values of {value_bytes} bytes that cannot be compressed; a cache of {} MiB unless a \
         row says otherwise ({} MiB where filters do not fit), memtables of {} MiB. Medians of {} rounds (least to \
         greatest), engines in turns, each run a process of its own. The fastest engine is bold. The ratio is that of \
         sievedb to the best of the other LSM stores, at its best setting: median within rounds (least to greatest), \
         then with the loop's own time taken off both.\n",
        start.machine,
        start.versions,
        start.target,
        start.load,
        end.map_or("–".into(), |load| load.to_string()),
        crate::statistics::thousands(keys.into()),
        mib(cache_bytes),
        mib(small_cache_bytes),
        mib(memtable_bytes),
        start.rounds,
    );
    out
}

fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let mut out = format!("\n| {} |\n|---{}|\n", head.join(" | "), "|---:".repeat(head.len() - 1));
    for row in rows {
        _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out
}

/// Whether the figure of a part is the time of an operation.
fn is_time(part: Part) -> bool {
    part == Part::Open
}

fn unit(part: Part) -> &'static str {
    if is_time(part) { "milliseconds; shorter is better" } else { "per second" }
}

/// What is shown for a rate.
fn shown(part: Part, rate: Spread) -> Spread {
    if is_time(part) {
        Spread { min: 1e3 / rate.max, median: 1e3 / rate.median, max: 1e3 / rate.min }
    } else {
        rate
    }
}

fn rates_table(part: Part, measured: &[(&Workload, &Row<'_>)]) -> String {
    let mut head = vec![unit(part).to_owned()];
    head.extend(COLUMNS.map(|engine| engine.title().to_owned()));
    head.extend(["other settings".into(), "ratio".into(), "without the loop".into()]);
    let rows = measured.iter().map(|(workload, row)| {
        let fastest = row.fastest();
        let cell = |engine| {
            let Some(rate) = row.rate(engine) else { return "–".to_owned() };
            let Spread { min, median, max } = shown(part, rate);
            let mark = if fastest == Some(engine) { "**" } else { "" };
            let load = if row.is_loaded(engine) { " under load" } else { "" };
            format!("{mark}{}{mark} ({} to {}){load}", short(median), short(min), short(max))
        };
        let mut cells = vec![workload.name.clone()];
        cells.extend(COLUMNS.map(cell));
        let others = row.runs.keys().filter(|engine| !COLUMNS.contains(engine));
        let others: Vec<_> = others.map(|&engine| format!("{}: {}", engine.title(), cell(engine))).collect();
        cells.push(if others.is_empty() { "–".into() } else { others.join("<br>") });
        let (ratio, net) = row.lead();
        cells.push(ratio.map_or("–".into(), |ratio| {
            format!("{} ({} to {})", digits(ratio.median), digits(ratio.min), digits(ratio.max))
        }));
        cells.push(net.map_or("–".into(), digits));
        cells
    });
    table(&head, &rows.collect::<Vec<_>>())
}

/// The engines of some rows, in order, without the loop.
fn engines(measured: &[(&Workload, &Row<'_>)]) -> Vec<EngineName> {
    let mut engines: Vec<_> = measured.iter().flat_map(|(_, row)| row.runs.keys().copied()).collect();
    engines.sort_unstable();
    engines.dedup();
    engines.retain(|&engine| engine != EngineName::Nothing);
    engines
}

/// A table with a column for each engine.
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

/// The trees of the first row of each store.
fn shape_table(measured: &[(&Workload, &Row<'_>)]) -> String {
    let mut firsts: Vec<(&Workload, &Row<'_>)> = Vec::new();
    for &(workload, row) in measured {
        if firsts.iter().all(|(first, _)| (first.keys, first.shape) != (workload.keys, workload.shape)) {
            firsts.push((workload, row));
        }
    }
    by_engine("tables by level", &firsts, |row, engine| row.runs.get(&engine)?.first()?.shape.clone())
}

fn io_table(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "read calls; bytes read; blocks and filter pages looked at (sievedb), each for an operation; \
                processor time in µs; peak memory in MiB";
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

fn fill_table(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "bytes written for a byte of keys and values; bytes on disk, likewise; seconds until background work \
                was over; longest pause of a writer in ms";
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

fn counts_table(measured: &[(&Workload, &Row<'_>)]) -> String {
    let what = "instructions without the loop's; allocations; system calls, the most frequent ones by name; each for an \
                operation";
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

fn panel(part: Part, workload: &Workload, row: &Row<'_>) -> Panel {
    let bars = row.runs.keys().filter(|&&engine| !(is_time(part) && engine == EngineName::Nothing));
    let bars = bars.filter_map(|&engine| {
        let Spread { min, median, max } = shown(part, row.rate(engine)?);
        Some(Bar { name: engine.title(), colour: colour(engine), min, median, max })
    });
    let mut bars: Vec<_> = bars.collect();
    // The loop alone would make all others small.
    if let Some(longest) =
        bars.iter().filter(|bar| bar.name != EngineName::Nothing.title()).map(|bar| bar.max).reduce(f64::max)
    {
        bars.retain(|bar| bar.name != EngineName::Nothing.title() || bar.max <= 4.0 * longest);
    }
    Panel { title: workload.name.clone(), unit: unit(part), bars }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Counts;
    use crate::machine::Io;
    use crate::rows;

    fn outcome(rate: f64, others: f64) -> Outcome {
        Outcome {
            operations: 1000,
            seconds: 1000.0 / rate,
            processor_seconds: 1.0,
            io: Io::default(),
            blocks: None,
            allocations: None,
            longest_ms: 0.0,
            peak_bytes: 1 << 20,
            shape: None,
            filled: None,
            load_before: 0.0,
            load_after: 0.0,
            others,
        }
    }

    fn start() -> Record {
        let sizes = Sizes {
            keys: 1000,
            value_bytes: 100,
            cache_bytes: 1 << 20,
            small_cache_bytes: 1 << 20,
            whole_cache_bytes: 1 << 20,
            memtable_bytes: 1 << 20,
            seconds_max: 1,
            fill_seconds_max: 1,
        };
        Record::Start(Start {
            machine: "a machine".into(),
            load: 0.1,
            versions: "sievedb 1".into(),
            target: "Haswell (AVX2)".into(),
            sizes,
            rounds: 3,
        })
    }

    /// Every engine and round of every row; `rate` gives operations a second.
    fn records(rate: impl Fn(EngineName, usize) -> f64, others: f64) -> Vec<Record> {
        let mut records = vec![start()];
        for row in rows::all() {
            for round in 0..3 {
                for &engine in &row.engines {
                    let outcome = outcome(rate(engine, round), others);
                    records.push(Record::Run { row: row.name.clone(), engine, round, outcome });
                }
            }
        }
        records
    }

    fn rate(engine: EngineName, round: usize) -> f64 {
        let slowness = [1.0, 2.0, 4.0][round];
        slowness
            * match engine {
                EngineName::Sievedb => 100.0,
                EngineName::Surrealkv => 200.0,
                EngineName::Redb => 1000.0,
                EngineName::Nothing => 10_000.0,
                _ => 50.0,
            }
    }

    #[test]
    fn a_lost_row_stays_with_its_ratio_to_the_best_lsm_store() {
        let rendered = render(&records(rate, 0.0), &rows::all());
        assert_eq!(rendered.faults, Vec::<String>::new());
        let line =
            rendered.markdown.lines().find(|line| line.starts_with("| scan of 100, one run | ")).unwrap();
        // redb is the fastest, but no LSM store; the ratio is the same in each round.
        assert!(line.contains("| 200 (100 to 400) |"), "{line}");
        assert!(line.contains("**2,000** (1,000 to 4,000)"), "{line}");
        assert!(line.contains("| 0.50 (0.50 to 0.50) | 0.49 |"), "{line}");
        assert_eq!(rendered.charts.len(), Part::ALL.len());
    }

    #[test]
    fn opening_is_shown_as_time() {
        let rendered = render(&records(rate, 0.0), &rows::all());
        let line =
            rendered.markdown.lines().find(|line| line.starts_with("| open, 1,000 tables | ")).unwrap();
        assert!(line.contains("| 5.00 (2.50 to 10.0) |"), "{line}");
    }

    #[test]
    fn a_run_under_load_says_so_and_is_not_for_publication() {
        let rendered = render(&records(rate, 0.5), &rows::all());
        assert_eq!(rendered.faults.len(), 1, "{:?}", rendered.faults);
        assert!(rendered.markdown.contains("Not for publication"));
        assert!(rendered.markdown.contains("under load |"));
    }

    #[test]
    fn a_report_that_lacks_a_row_or_a_round_is_not_for_publication() {
        let mut few = records(rate, 0.0);
        few.pop();
        assert_eq!(render(&few, &rows::all()).faults.len(), 1);
        assert!(!render(&[], &rows::all()).faults.is_empty());
    }

    #[test]
    fn instructions_are_shown_without_those_of_the_loop() {
        let mut all = records(rate, 0.0);
        for (engine, instructions) in [(EngineName::Sievedb, 1500.0), (EngineName::Nothing, 100.0)] {
            let calls = BTreeMap::from([("pread64".to_owned(), 0.75), ("futex".to_owned(), 0.0001)]);
            let counts =
                Counts { instructions: Some(instructions), allocations: Some(3.0), calls: Some(calls) };
            all.push(Record::Counts { row: "absent, uniform, one run".into(), engine, counts });
        }
        let rendered = render(&all, &rows::all());
        assert!(rendered.markdown.contains("| 1,400; 3.00; 0.75 (pread64 0.75) |"), "{}", rendered.markdown);
    }
}
