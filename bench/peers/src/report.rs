use std::collections::BTreeMap;
use std::fmt::Write;

use crate::chart::{self, Bar, Panel};
use crate::names::EngineName;
use crate::order::Sizes;
use crate::pages::Page;
use crate::records::{OTHERS_MAX, Record, Start};
use crate::results::Row;
use crate::statistics::{Spread, digits, thousands};
use crate::tables;
use crate::workload::{Part, Workload};

pub(crate) struct Rendered {
    pub(crate) markdown: String,
    pub(crate) counts: String,
    pub(crate) charts: Vec<(&'static str, String)>,
    pub(crate) faults: Vec<String>,
}

pub(crate) const CHARTS: &str = "peers";

const SUMMARY: [&str; 7] = [
    "absent, uniform, one run",
    "absent, batches of 1,000, one run",
    "present, uniform, one run",
    "scan of 100, one run",
    "fill, random, batches of 100",
    "fill, synced, 1 writer",
    "YCSB B: 1 update in 20",
];
const SUMMARY_FILE: &str = "summary.svg";
const SUMMARY_TITLE: &str = "SieveDB next to other stores";

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

pub(crate) fn render(records: &[Record], page: Page) -> Rendered {
    let workloads = page.rows();
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    let mut start = None;
    let mut end = None;
    for record in records {
        match record {
            Record::Start(begun) => start = Some(begun),
            Record::Run { row, engine, outcome, .. } => {
                rows.entry(row).or_default().runs.entry(*engine).or_default().push(outcome);
            }
            Record::Counts { row, engine, counts } => {
                rows.entry(row).or_default().counts.insert(*engine, counts);
            }
            Record::End { load } => end = Some(*load),
        }
    }
    let faults = faults(start, &rows, &workloads);
    let mut markdown = format!("# {}\n\n{}\n", page.title(), opening(page, &workloads, &rows));
    let mut charts = Vec::new();
    let summary: Vec<_> = SUMMARY
        .iter()
        .filter_map(|name| {
            let workload = workloads.iter().find(|workload| workload.name == *name)?;
            Some(panel(workload, rows.get(name)?))
        })
        .collect();
    if !summary.is_empty() {
        _ = write!(markdown, "\n![{SUMMARY_TITLE}]({CHARTS}/{SUMMARY_FILE})\n");
        charts.push((SUMMARY_FILE, chart::svg(SUMMARY_TITLE, &summary)));
    }
    markdown.push_str(&settings(page, start, end, &faults));
    let mut counts = format!("# {}: all figures\n\n{}\n", page.title(), page.counts_opening());
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
        markdown.push_str(&tables::medians(part, &measured));
        _ = write!(counts, "\n## {}\n", part.title());
        counts.push_str(&tables::spreads(part, &measured));
        counts.push_str(&match part {
            Part::Absent | Part::Open | Part::Growth => tables::shapes(&measured),
            Part::Fill | Part::FillKeys => tables::fills(&measured),
            Part::Transactions => tables::conflicts(&measured),
            _ => String::new(),
        });
        counts.push_str(&tables::latencies(&measured));
        counts.push_str(&tables::io(&measured));
        counts.push_str(&tables::counts(&measured));
        let panels: Vec<_> = measured.iter().map(|(workload, row)| panel(workload, row)).collect();
        charts.push((part.file(), chart::svg(part.title(), &panels)));
    }
    Rendered { markdown, counts, charts, faults }
}

fn faults(start: Option<&Start>, rows: &BTreeMap<&str, Row<'_>>, workloads: &[Workload]) -> Vec<String> {
    let mut faults = Vec::new();
    let loaded: usize = rows
        .values()
        .flat_map(|row| row.runs.values().flatten())
        .filter(|run| run.others > OTHERS_MAX)
        .count();
    if loaded > 0 {
        let percent = OTHERS_MAX * 100.0;
        faults.push(format!("in {loaded} runs other programs used more than {percent:.0} % of the machine"));
    }
    let Some(start) = start else {
        faults.push("there is no run".into());
        return faults;
    };
    let is_complete = |workload: &&Workload| {
        rows.get(workload.name.as_str()).is_some_and(|row| {
            let mut engines = workload.engines.clone();
            engines.retain(|engine| start.needs(*engine));
            engines.iter().all(|engine| row.runs.get(engine).map_or(0, Vec::len) >= start.rounds)
        })
    };
    let missing = workloads.iter().filter(|workload| !is_complete(workload)).count();
    if missing > 0 {
        faults.push(format!("in {missing} rows an engine or a round is missing"));
    }
    if start.rounds < 3 {
        faults.push(format!("{} rounds are too few for a median", start.rounds));
    }
    if !start.target.contains("AVX2") {
        faults.push(
            "it was built without bench/peers/.cargo/config.toml, so RocksDB has no vector code".into(),
        );
    }
    faults
}

fn opening(page: Page, workloads: &[Workload], rows: &BTreeMap<&str, Row<'_>>) -> String {
    let leads =
        workloads.iter().filter(|workload| workload.part == page.main_part()).filter_map(|workload| {
            let (ratio, _) = rows.get(workload.name.as_str())?.lead(workload.part);
            Some(ratio?.median)
        });
    let result = Spread::of(leads).map_or_else(String::new, |leads| {
        let (rows, from, to) = (page.main_part().title(), digits(leads.min), digits(leads.max));
        format!(" In the rows of \"{rows}\", sievedb is {from} to {to} times as fast as {}.", page.peer())
    });
    format!("{}{result}", page.opening())
}

fn settings(page: Page, start: Option<&Start>, end: Option<f64>, faults: &[String]) -> String {
    let mut out = String::new();
    if !faults.is_empty() {
        _ = write!(out, "\n**Not for publication: {}.**\n", faults.join("; "));
    }
    let Some(start) = start else { return out };
    let Sizes { keys, value_bytes, cache_bytes, small_cache_bytes, memtable_bytes, .. } = start.sizes;
    let mib = |bytes: u64| digits(bytes as f64 / f64::from(1 << 20));
    _ = write!(
        out,
        "\nOutput of `cargo run --release{} -- measure --page {}` in [bench/peers](../../bench/peers/README.md), not \
         edited by hand; its README describes the settings.\n\n{}{}. {}, compiled for {}. Load {} before the first \
         run, {} after the last.\n\n{} keys with incompressible values of {value_bytes} bytes; a cache of {} MiB \
         unless the row names another one ({} MiB if filters do not fit), memtables of {} MiB. Medians of {} rounds; \
         engines take turns, and each run is a process of at most {} seconds ({} for a fill). In the pictures a bar \
         and its tick are the median, and a thin line leads from the least to the greatest round. The fastest \
         engine is bold. The ratio compares sievedb with {}; it is the median of the ratios within rounds.\n",
        if start.has_rocksdb { " --features rocksdb" } else { "" },
        page.argument(),
        page.note(start.has_rocksdb),
        start.machine,
        start.versions,
        start.target,
        start.load,
        end.map_or("–".into(), |load| load.to_string()),
        thousands(keys.into()),
        mib(cache_bytes),
        mib(small_cache_bytes),
        mib(memtable_bytes),
        start.rounds,
        start.sizes.seconds_max,
        start.sizes.fill_seconds_max,
        page.peer(),
    );
    out
}

fn panel(workload: &Workload, row: &Row<'_>) -> Panel {
    let part = workload.part;
    let bars = row.runs.keys().filter(|&&engine| !(tables::is_time(part) && engine == EngineName::Nothing));
    let bars = bars.filter_map(|&engine| {
        let Spread { min, median, max } = tables::shown(part, row.rate(engine)?);
        Some(Bar { name: engine.title(), colour: colour(engine), min, median, max })
    });
    let mut bars: Vec<_> = bars.collect();
    if let Some(longest) =
        bars.iter().filter(|bar| bar.name != EngineName::Nothing.title()).map(|bar| bar.max).reduce(f64::max)
    {
        bars.retain(|bar| bar.name != EngineName::Nothing.title() || bar.max <= 4.0 * longest);
    }
    Panel { title: workload.name.clone(), unit: tables::unit(part), bars }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::counts::Counts;
    use crate::machine::Io;
    use crate::order::Outcome;

    fn outcome(rate: f64, others: f64) -> Outcome {
        Outcome {
            operations: 1000,
            seconds: 1000.0 / rate,
            processor_seconds: 1.0,
            io: Io::default(),
            blocks: None,
            allocations: None,
            conflicts: 0,
            longest_ms: 0.0,
            latency: None,
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
            page: Page::Peers,
            machine: "a machine".into(),
            load: 0.1,
            versions: "sievedb 1".into(),
            has_rocksdb: true,
            target: "Haswell (AVX2)".into(),
            sizes,
            rounds: 3,
        })
    }

    fn records(rate: impl Fn(EngineName, usize) -> f64, others: f64) -> Vec<Record> {
        let mut records = vec![start()];
        for row in Page::Peers.rows() {
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
        let rendered = render(&records(rate, 0.0), Page::Peers);
        assert_eq!(rendered.faults, Vec::<String>::new());
        let line =
            rendered.markdown.lines().find(|line| line.starts_with("| scan of 100, one run | ")).unwrap();
        assert!(line.ends_with("| **2,000** | 20.0 k | 0.50 |"), "{line}");
        let line =
            rendered.counts.lines().find(|line| line.starts_with("| scan of 100, one run | ")).unwrap();
        assert!(line.contains("| 200 (100 to 400) |"), "{line}");
        assert!(line.contains("**2,000** (1,000 to 4,000)"), "{line}");
        assert!(line.contains("| 0.50 (0.50 to 0.50) | 0.49 |"), "{line}");
        let parts: BTreeSet<_> = Page::Peers.rows().iter().map(|row| row.part).collect();
        assert_eq!(rendered.charts.len(), parts.len(), "all but transactions, and the summary");
    }

    #[test]
    fn opening_is_shown_as_time() {
        let rendered = render(&records(rate, 0.0), Page::Peers);
        let line = rendered.counts.lines().find(|line| line.starts_with("| open, 1,000 tables | ")).unwrap();
        assert!(line.contains("| 5.00 (2.50 to 10.0) |"), "{line}");
    }

    #[test]
    fn a_run_under_load_says_so_and_is_not_for_publication() {
        let rendered = render(&records(rate, 0.5), Page::Peers);
        assert_eq!(rendered.faults.len(), 1, "{:?}", rendered.faults);
        assert!(rendered.markdown.contains("Not for publication"));
        assert!(rendered.markdown.contains("under load |") && rendered.counts.contains("under load |"));
    }

    #[test]
    fn a_report_that_lacks_a_row_or_a_round_is_not_for_publication() {
        let mut few = records(rate, 0.0);
        few.pop();
        assert_eq!(render(&few, Page::Peers).faults.len(), 1);
        assert!(!render(&[], Page::Peers).faults.is_empty());
    }

    #[test]
    fn a_short_run_may_do_without_rocksdb_and_says_so() {
        let mut without = records(rate, 0.0);
        without.retain(|record| !matches!(record, Record::Run { engine, .. } if engine.is_rocksdb()));
        let mut with_page = |page| {
            for record in &mut without {
                if let Record::Start(start) = record {
                    (start.page, start.has_rocksdb) = (page, false);
                }
            }
            render(&without, page)
        };
        let short = with_page(Page::Short);
        assert_eq!(short.faults, Vec::<String>::new());
        assert!(short.markdown.contains("RocksDB was not built"));
        assert_eq!(with_page(Page::Peers).faults.len(), 1);
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
        let rendered = render(&all, Page::Peers);
        assert!(rendered.counts.contains("| 1,400; 3.00; 0.75 (pread64 0.75) |"), "{}", rendered.counts);
    }
}
