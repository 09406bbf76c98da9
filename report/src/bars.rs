//! The tree of a keyspace, drawn to scale: a bar for each run, a cell for each table. The width is the number of keys.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value as Json, json};
use sievedb::TimeSource;
use sievedb::inspect::tree::{BucketShape, KeyspaceShape, RunShape, TableShape};

use crate::cells::{Cell, cells};
use crate::svg::Svg;
use crate::units::{self, bytes, counted, share, significant};

const WIDTH: f64 = 10_000.0;

const RUN_MIN: f64 = 60.0;
const CELL_MIN: f64 = 12.0;

const RUNS_MAX: usize = 60;

const SEPARATE_MIN: f64 = 60.0;

pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) size: String,
    pub(crate) filter: String,
    pub(crate) svg: String,
}

pub(crate) struct Drawing {
    pub(crate) bars: Vec<Bar>,
    pub(crate) left_out: usize,
    pub(crate) records: Vec<Json>,
}

pub(crate) fn draw(keyspace: &KeyspaceShape, together: usize) -> Drawing {
    let runs = &keyspace.runs[..keyspace.runs.len().min(RUNS_MAX)];
    let widest = runs.iter().map(RunShape::keys).max().unwrap_or(0).max(1) as f64;
    let drawn: Vec<Vec<Cell<'_>>> = runs.iter().map(|run| cells(run, together).collect()).collect();
    let ranks = Ranks::of(&drawn);
    let records = drawn.iter().flatten().map(|cell| {
        let (smallest, largest) = cell.bounds();
        json!([cell.record(), ranks.of_key(smallest), ranks.of_key(largest)])
    });
    let records = records.collect();
    let source = keyspace.expiry.as_ref().map_or(TimeSource::System, |expiry| expiry.time_source);
    let bars = runs
        .iter()
        .zip(&drawn)
        .map(|(run, cells)| bar(run, source, cells, WIDTH * run.keys() as f64 / widest));
    Drawing { bars: bars.collect(), left_out: keyspace.runs.len() - runs.len(), records }
}

fn bar(run: &RunShape, source: TimeSource, cells: &[Cell<'_>], width: f64) -> Bar {
    let name = match run.level {
        0 => format!("Level 0, run {}", run.run),
        level => format!("Level {level}"),
    };
    let filter = match run.filter_bytes() {
        0 => "no filters".into(),
        size => {
            let bits = 8.0 * size as f64 / run.keys().max(1) as f64;
            format!("{} bits per key, rate {}", significant(bits), share(run.rate()))
        }
    };
    let tables = counted(run.tables.len() as u64, "table", "tables");
    let mut size = format!("{}, {tables}, {}", counted(run.keys(), "key", "keys"), bytes(run.bytes()));
    if let Some(bucket) = &run.bucket {
        size.push_str(&of_bucket(bucket, source));
    }
    Bar { svg: svg(&name, run, cells, width), name, size, filter }
}

fn of_bucket(bucket: &BucketShape, source: TimeSource) -> String {
    let moment = |millis: u64| match UNIX_EPOCH.checked_add(Duration::from_millis(millis)) {
        Some(time) if source == TimeSource::System => units::moment(time),
        _ => millis.to_string(),
    };
    let part = |word: &str, time: Option<u64>| {
        time.map_or_else(String::new, |time| format!(", {word} {}", moment(time)))
    };
    let hidden = if bucket.is_hidden { ", hidden" } else { "" };
    let [begins, ends] = [part("written from", bucket.begins), part("to", bucket.ends)];
    format!("{begins}{ends}{}{hidden}", part("expires", bucket.expires))
}

fn svg(name: &str, run: &RunShape, cells: &[Cell<'_>], width: f64) -> String {
    let spread = if width < SEPARATE_MIN * cells.len() as f64 { " close" } else { "" };
    let mut svg = Svg::new(&format!(
        "class=\"run{spread}\" viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" role=\"img\" tabindex=\"0\" \
         aria-label=\"The tables of {}\"",
        name.to_lowercase()
    ));
    let least = if cells.len() as f64 * CELL_MIN < WIDTH / 2.0 { CELL_MIN } else { 0.0 };
    let widths = cells.iter().map(|cell| (width * cell.keys() as f64 / run.keys().max(1) as f64).max(least));
    let widths: Vec<f64> = widths.collect();
    let sum: f64 = widths.iter().sum();
    let scale = width.max(RUN_MIN) / sum.max(1.0);
    let mut x = 0.0;
    for (cell, width) in cells.iter().zip(widths) {
        svg.rectangle(x, 0.0, width * scale, 10.0, &format!("class=\"{}\"", cell.classes()));
        x += width * scale;
    }
    svg.finish()
}

pub(crate) fn record(table: &TableShape) -> Vec<String> {
    Cell(std::slice::from_ref(table)).record()
}

struct Ranks<'t>(Vec<&'t [u8]>);

impl<'t> Ranks<'t> {
    fn of(drawn: &'t [Vec<Cell<'t>>]) -> Self {
        let mut bounds: Vec<&[u8]> = drawn
            .iter()
            .flatten()
            .flat_map(|cell| {
                let (smallest, largest) = cell.bounds();
                [smallest, largest]
            })
            .collect();
        bounds.sort_unstable();
        bounds.dedup();
        Self(bounds)
    }

    fn of_key(&self, key: &[u8]) -> usize {
        self.0.partition_point(|bound| *bound < key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table};

    fn numbers(svg: &str, name: &str) -> Vec<f64> {
        let number = |line: &str| line.split(&format!("{name}=\"")).nth(1)?.split('"').next()?.parse().ok();
        svg.lines().filter(|line| line.starts_with("<rect")).filter_map(number).collect()
    }

    #[test]
    fn the_width_of_a_run_and_of_a_table_is_its_share_of_the_keys() {
        let small = vec![table(3, 250)];
        let large = vec![table(1, 300), table(2, 700)];
        let drawing = draw(&keyspace("default", vec![(0, small), (1, large)]), 1);
        assert_eq!(numbers(&drawing.bars[0].svg, "width"), [2500.0]);
        assert_eq!(numbers(&drawing.bars[1].svg, "width"), [3000.0, 7000.0]);
        assert_eq!(numbers(&drawing.bars[1].svg, "x"), [0.0, 3000.0]);
        assert_eq!(drawing.records.len(), 3);
    }

    #[test]
    fn a_run_of_few_keys_can_still_be_seen() {
        let drawing =
            draw(&keyspace("default", vec![(0, vec![table(2, 1)]), (1, vec![table(1, 1 << 40)])]), 1);
        assert_eq!(numbers(&drawing.bars[0].svg, "width"), [RUN_MIN]);
    }

    #[test]
    fn cells_that_are_too_narrow_for_gaps_have_none() {
        let many = (0..100).map(|n| table(n, 10)).collect();
        let drawing = draw(&keyspace("default", vec![(0, many), (1, vec![table(200, 10_000)])]), 1);
        assert!(drawing.bars[0].svg.contains("run close") && !drawing.bars[1].svg.contains("run close"));
    }

    #[test]
    fn the_runs_that_are_left_out_are_counted() {
        let runs = (0..100).map(|n| (0, vec![table(n, 5)])).collect();
        let drawing = draw(&keyspace("default", runs), 1);
        assert_eq!((drawing.bars.len(), drawing.left_out, drawing.records.len()), (60, 40, 60));
    }
}
