//! The page of a store; its text is in `templates/store.html`. Each number from `sievedb stats --json` has an element with its
//! name in `data-stat` and its value in `data-value`.

use std::fmt::Display;

use askama::Template;
use serde_json::Value as Json;
use sievedb::inspect::tree::KeyspaceShape;

use crate::activity::{Fact, Memory, facts, has_written, memory};
use crate::bars::{self, Bar};
use crate::cells::together;
use crate::chart::Chart;
use crate::hints::{Hint, most_useful};
use crate::history::Series;
use crate::levels::{Level, levels};
use crate::observed::Observed;
use crate::plan::{self, Plan};
use crate::report::Report;
use crate::units::{bytes, count, counted, share, significant};

/// The base64 hash of the only allowed script. If `templates/hover.js` changes, the test in a browser fails, and the browser's
/// console prints the new hash.
pub(crate) const SCRIPT_SHA256: &str = "+aVBnCM5VOT2LvNAEytKLNd1UwyJ/NfhrsAzf//zyBE=";

const DRAWN_MAX: usize = 8;

const LINES_MAX: usize = 100;

const LISTED_MAX: usize = 50;

#[derive(Template)]
#[template(path = "store.html")]
struct StorePage<'r> {
    script_sha256: &'static str,
    report: &'r Report,
    summary: String,
    reads: String,
    hint: Option<Hint>,
    drawn: Vec<Drawn>,
    aggregated: bool,
    keyspaces: Vec<Row>,
    more_keyspaces: usize,
    memory: Option<Memory>,
    has_written: bool,
    facts: Vec<Fact>,
    lines: usize,
    series: Vec<Series>,
    damage: &'r [String],
    more_damage: u64,
    records: String,
}

struct Drawn {
    name: String,
    bars: Vec<Bar>,
    left_out: usize,
    levels: Vec<LevelRow>,
    is_observed: bool,
    chart: Chart,
    memory: String,
    tables: Vec<Vec<String>>,
}

struct LevelRow {
    name: String,
    kinds: String,
    runs: String,
    tables: String,
    keys: String,
    filter_bytes: String,
    bits_per_key: String,
    predicted: String,
    observed: String,
    wasted: String,
    wasted_percent: f64,
    groups: String,
}

struct Row {
    name: String,
    entries: String,
    tombstones: String,
    tables: String,
    size: String,
    filters: String,
    memtables: String,
}

fn figure(stat: &str, value: impl Display, shown: &str) -> String {
    format!("<span data-stat=\"{stat}\" data-value=\"{value}\">{shown}</span>")
}

pub(crate) fn page(report: &Report) -> String {
    let all = &report.tree.keyspaces;
    let observed = report.observed();
    let together = together(all);
    let mut shown: Vec<(usize, &KeyspaceShape)> =
        all.iter().enumerate().filter(|(_, keyspace)| !keyspace.runs.is_empty()).collect();
    shown.sort_by_key(|(_, keyspace)| std::cmp::Reverse(Plan::of(keyspace).keys));
    let (summary, reads) = headline(report, shown.first().map(|(_, keyspace)| *keyspace), &observed);
    shown.truncate(DRAWN_MAX);
    let mut records: Vec<Json> = Vec::new();
    let drawn =
        shown.iter().map(|(place, keyspace)| draw(*place, keyspace, together, &observed, &mut records));
    let drawn: Vec<Drawn> = drawn.collect();
    let rows = all.iter().enumerate().take(LINES_MAX).map(|(place, keyspace)| row(place, keyspace, report));
    let damage = &report.damage[..report.damage.len().min(LINES_MAX)];
    let page = StorePage {
        script_sha256: SCRIPT_SHA256,
        report,
        summary,
        reads,
        hint: most_useful(&report.tree, &report.path, report.damage.len()),
        drawn,
        aggregated: together > 1,
        keyspaces: rows.collect(),
        more_keyspaces: all.len().saturating_sub(LINES_MAX),
        memory: report.stats.as_ref().map(memory),
        has_written: report.stats.as_ref().is_some_and(has_written),
        facts: facts(&report.tree, report.stats.as_ref()),
        lines: report.history.as_ref().map_or(0, |history| history.len()),
        series: report.history.as_ref().map(|history| history.series()).unwrap_or_default(),
        damage,
        more_damage: (report.damage.len() - damage.len()) as u64 + report.omitted_damage,
        records: data(&Json::Array(records)),
    };
    page.render().unwrap_or_else(|error| format!("<!doctype html><p>The page cannot be made: {error}"))
}

/// No part of the result ends the script element or begins a comment.
fn data(json: &Json) -> String {
    json.to_string().replace("</", "<\\/").replace("<!", "<\\u0021")
}

fn headline(report: &Report, largest: Option<&KeyspaceShape>, observed: &Observed) -> (String, String) {
    let entries = report.tree.keyspaces.iter().map(|keyspace| levels(keyspace, observed).1.entries);
    let entries = entries.fold(0, u64::saturating_add);
    let in_memory =
        report.stats.iter().flat_map(|stats| &stats.keyspaces).map(|keyspace| keyspace.memtable_entries);
    let entries = entries.saturating_add(in_memory.fold(0, u64::saturating_add));
    let size = figure("disk_bytes", report.disk_bytes, &bytes(report.disk_bytes));
    let summary = format!("{} in {size}", counted(entries, "entry", "entries"));
    let Some(keyspace) = largest else { return (summary, "Nothing is in tables.".into()) };
    let wasted = Plan::of(keyspace).wasted;
    let reads = if wasted > 0.0 && wasted < 0.5 {
        format!(
            "At most 1 in {} lookups of an absent key reads a data block.",
            count((1.0 / wasted).round() as u64)
        )
    } else {
        format!("A lookup of an absent key reads up to {} data blocks.", significant(wasted))
    };
    (summary, reads)
}

fn draw(
    place: usize,
    keyspace: &KeyspaceShape,
    together: usize,
    observed: &Observed,
    records: &mut Vec<Json>,
) -> Drawn {
    let drawing = bars::draw(keyspace, together);
    records.extend(drawing.records);
    let plan = Plan::of(keyspace);
    let (levels, total) = levels(keyspace, observed);
    let tables: Vec<_> =
        keyspace.runs.iter().flat_map(|run| run.tables.iter().map(move |table| (run, table))).collect();
    let listed = tables.iter().take(if tables.len() > LISTED_MAX { 0 } else { LISTED_MAX });
    let listed = listed.map(|(run, table)| {
        let mut row = vec![run.level.to_string()];
        row.extend(bars::record(table));
        row
    });
    Drawn {
        name: crate::units::key(keyspace.name.as_bytes()),
        left_out: drawing.left_out,
        bars: drawing.bars,
        is_observed: total.observed.is_some(),
        levels: levels.iter().chain([&total]).map(|level| level_row(place, level)).collect(),
        chart: plan::draw(&plan),
        memory: bytes(plan.filter_bytes),
        tables: listed.collect(),
    }
}

fn level_row(place: usize, level: &Level) -> LevelRow {
    let number = level.number.map_or("total".into(), |number| format!("l{number}"));
    let stat = |name: &str| format!("k{place}.{number}.{name}");
    let whole = |name: &str, value: u64| figure(&stat(name), value, &count(value));
    let real = |name: &str, value: Option<f64>, shown: fn(f64) -> String| {
        value.map_or_else(|| "–".into(), |value| figure(&stat(name), value, &shown(value)))
    };
    let observed = level.observed.and_then(|counts| {
        let expected = share(counts.expected / counts.absent() as f64);
        let probes = counted(counts.absent(), "probe", "probes");
        Some(format!("{}<small>of {probes}</small><small>{expected} expected</small>", share(counts.rate()?)))
    });
    LevelRow {
        name: level.number.map_or_else(|| "All".into(), |number| number.to_string()),
        kinds: level.kinds.clone(),
        runs: whole("runs", level.runs),
        tables: whole("tables", level.tables),
        keys: whole("keys", level.keys),
        filter_bytes: figure(&stat("filter_bytes"), level.filter_bytes, &bytes(level.filter_bytes)),
        bits_per_key: real("filter_bits_per_key", level.bits_per_key, |bits| format!("{bits:.2}")),
        predicted: real("predicted_rate", level.predicted, share),
        observed: observed.unwrap_or_else(|| "–".into()),
        wasted: significant(level.wasted),
        wasted_percent: 100.0 * level.wasted_share,
        groups: match level.groups {
            None => "–".into(),
            Some((loaded, all)) if loaded == all => "all".into(),
            Some((loaded, all)) => format!("{loaded} of {all}"),
        },
    }
}

fn row(place: usize, keyspace: &KeyspaceShape, report: &Report) -> Row {
    let (_, total) = levels(keyspace, &Observed::new());
    let stat = |name: &str| format!("k{place}.total.{name}");
    let stats = report.stats.as_ref().and_then(|stats| stats.keyspace(&keyspace.name));
    Row {
        name: crate::units::key(keyspace.name.as_bytes()),
        entries: figure(&stat("entries"), total.entries, &count(total.entries)),
        tombstones: figure(&stat("tombstones"), total.tombstones, &count(total.tombstones)),
        tables: count(total.tables),
        size: figure(&stat("bytes"), total.bytes, &bytes(total.bytes)),
        filters: bytes(total.filter_bytes),
        memtables: stats.map_or_else(|| "–".into(), |stats| count(stats.memtable_entries)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table, tree_of};
    use std::path::Path;
    use std::time::Instant;

    fn report(keyspaces: Vec<KeyspaceShape>) -> Report {
        Report::of_tree(Path::new("/no/such/store"), tree_of(keyspaces), None)
    }

    fn levels_of(tables: u64) -> KeyspaceShape {
        let mut runs = Vec::new();
        let (mut left, mut level) = (tables, 6u8);
        while left > 0 {
            let here = if level == 0 { left } else { left - left / 10 };
            runs.push((level, (0..here).map(|n| table(left * 100_000 + n, 1000 + n % 7)).collect()));
            (left, level) = (left - here, level.saturating_sub(1));
        }
        runs.reverse();
        keyspace("default", runs)
    }

    #[test]
    fn ten_thousand_tables_of_the_longest_keys_make_a_page_of_less_than_a_megabyte() {
        for tables in [0, 1, 10, 1000, 2000, 10_000] {
            let mut keyspace = levels_of(tables);
            let start = Instant::now();
            let plain = report(vec![keyspace.clone()]).page();
            println!("{tables} tables: {} bytes in {:?}", plain.len(), start.elapsed());
            for worst in ["<!--</", "\u{1d11e}", "\u{1}", "\"'&"] {
                for table in keyspace.runs.iter_mut().flat_map(|run| &mut run.tables) {
                    (table.smallest, table.largest) = (worst.repeat(200).into(), worst.repeat(201).into());
                }
                let hostile = report(vec![keyspace.clone()]).page();
                assert!(hostile.len() < 1_000_000, "{tables} tables, {worst:?}: {} bytes", hostile.len());
            }
        }
    }

    #[test]
    fn names_and_keys_cannot_end_an_element_or_add_one() {
        let hostile = "<img src=x onerror=alert(1)></script><!--\"'&";
        let mut bad = table(1, 10);
        (bad.smallest, bad.largest) = (hostile.into(), hostile.into());
        let plain = report(vec![keyspace("a", vec![(1, vec![table(1, 10)])]), keyspace("b", vec![])]).page();
        let page = report(vec![keyspace(hostile, vec![(1, vec![bad])]), keyspace("b", vec![])])
            .damaged(hostile.into())
            .page();
        assert!(page.contains("&#60;img src"), "the name is shown");
        let outside_of_data = |page: &str| {
            let rest =
                page.split("<script type=\"application/json\"").map(|part| part.split_once("</script>"));
            rest.map(|part| part.map_or("", |part| part.1).to_owned()).collect::<String>()
        };
        for element in ["<img", "<!--", "onerror=alert(1)>"] {
            assert!(!outside_of_data(&page).contains(element), "{element}");
        }
        assert_eq!(page.matches("</script").count(), plain.matches("</script").count());
        assert_eq!(page.matches("<!--").count(), 0);
    }

    #[test]
    fn a_store_without_tables_has_a_page() {
        let page = report(vec![keyspace("default", vec![])]).page();
        assert!(page.contains("Nothing is in tables.") && page.contains("There is nothing to do"), "{page}");
        let page = report(vec![]).damaged("CURRENT is missing".into()).page();
        assert!(page.contains("can be placed in a tree") && page.contains("CURRENT is missing"), "{page}");
        assert!(page.contains("1 piece of damage was found:"), "{page}");
    }

    #[test]
    fn the_headline_is_the_bound_on_wasted_reads() {
        let page =
            report(vec![keyspace("default", vec![(0, vec![table(1, 10)]), (1, vec![table(2, 990)])])]).page();
        assert!(page.contains("1,000 entries in <span data-stat=\"disk_bytes\""), "{page}");
        assert!(page.contains("At most 1 in 500 lookups of an absent key reads a data block."), "{page}");
        let mut bare = table(1, 10);
        bare.filters.clear();
        let page = report(vec![keyspace("default", vec![(0, vec![bare])])]).page();
        assert!(page.contains("reads up to 1.00 data blocks."), "{page}");
    }
}
