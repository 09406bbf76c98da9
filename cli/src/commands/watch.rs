//! `sievedb stats --watch`: refreshes one read-only handle and draws it in the terminal.

use std::collections::VecDeque;
use std::io::{IsTerminal, stdout};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sievedb::inspect::tree::{RunShape, TableShape, Tree};
use sievedb::{Db, Error};

use crate::escape::printable;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::store::Store;
use crate::units::{bytes, count};

const MOMENTS: usize = 48;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

const CLEAR: &[u8] = b"\x1b[H\x1b[J";

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0.1 to 86400".into()),
    }
}

pub(super) fn run(store: &Store, keyspace: Option<&str>, interval: Duration) -> Result<()> {
    let start = Instant::now();
    let dir = &store.db;
    let mut db = store.opening.options().read_only().open(dir)?;
    let mut history = VecDeque::new();
    for moment in 1.. {
        match db.refresh() {
            // The store changes too fast: draws the earlier state.
            Err(Error::Changed { .. }) => {}
            refreshed => drop(refreshed?),
        }
        let at = start.elapsed();
        let tree = db.tree()?;
        if let Some(name) =
            keyspace.filter(|name| tree.keyspaces.iter().all(|keyspace| keyspace.name != **name))
        {
            return Err(Failure::Refused(format!(
                "there is no keyspace {} in {}",
                printable(name),
                dir.display()
            )));
        }
        if history.len() == MOMENTS {
            history.pop_front();
        }
        history.push_back(Sample::of(at, &db, &tree, keyspace));
        let mut out = Output::new();
        if stdout().is_terminal() {
            out.raw(CLEAR)?;
        }
        out.text(&format!("store      {}", printable(&dir.display().to_string())))?;
        lines(&history).iter().try_for_each(|line| out.text(line))?;
        out.text("")?;
        out.finish()?;
        sleep((interval * moment).saturating_sub(start.elapsed()));
    }
    Ok(())
}

type Quantity = (&'static str, fn(&Sample) -> u64, fn(u64) -> String);

/// The entries that were written a second before each sample; 0 before the first.
fn writes(history: &VecDeque<Sample>) -> Vec<u64> {
    let rate = |(one, next): (&Sample, &Sample)| {
        let written = next.seqno.saturating_sub(one.seqno);
        (written as f64 / (next.at - one.at).as_secs_f64()).round() as u64
    };
    std::iter::once(0).chain(history.iter().zip(history.iter().skip(1)).map(rate)).collect()
}

#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    /// Since the beginning of the command.
    at: Duration,
    /// In tables and memtables.
    entries: u64,
    seqno: u64,
    table_bytes: u64,
    filter_bytes: u64,
    tables: u64,
    runs: u64,
    log_bytes: u64,
    wasted: u64,
}

impl Sample {
    fn of(at: Duration, db: &Db, tree: &Tree, keyspace: Option<&str>) -> Self {
        let is_wanted = |name: &str| keyspace.is_none_or(|wanted| wanted == name);
        let keyspaces: Vec<_> = tree.keyspaces.iter().filter(|keyspace| is_wanted(&keyspace.name)).collect();
        let runs: Vec<&RunShape> = keyspaces.iter().flat_map(|keyspace| &keyspace.runs).collect();
        let tables = || runs.iter().flat_map(|run| &run.tables);
        let sum = |of: fn(&TableShape) -> u64| tables().map(of).fold(0, u64::saturating_add);
        let stats = db.stats().keyspaces;
        let in_memory =
            stats.iter().filter(|stats| is_wanted(&stats.name)).map(|stats| stats.memtable_entries);
        let wasted = keyspaces.iter().map(|keyspace| keyspace.runs.iter().map(RunShape::rate).sum::<f64>());
        Self {
            at,
            entries: in_memory.fold(sum(|table| table.entries), u64::saturating_add),
            seqno: db.open_report().as_of.map_or(0, |as_of| as_of.seqno),
            table_bytes: sum(|table| table.bytes),
            filter_bytes: runs.iter().map(|run| run.filter_bytes()).fold(0, u64::saturating_add),
            tables: tables().count() as u64,
            runs: runs.len() as u64,
            log_bytes: tree.logs.iter().filter_map(|(_, len)| *len).fold(0, u64::saturating_add),
            wasted: (1e6 * wasted.fold(0.0, f64::max)).round() as u64,
        }
    }
}

fn lines(history: &VecDeque<Sample>) -> Vec<String> {
    let millionths = |value: u64| format!("{:.6}", value as f64 / 1e6);
    let rows: [Quantity; 7] = [
        ("entries", |sample| sample.entries, count),
        ("tables", |sample| sample.table_bytes, bytes),
        ("filters", |sample| sample.filter_bytes, bytes),
        ("files", |sample| sample.tables, count),
        ("runs", |sample| sample.runs, count),
        ("logs", |sample| sample.log_bytes, bytes),
        ("wasted", |sample| sample.wasted, millionths),
    ];
    let line = |name, values: &[u64], shown: fn(u64) -> String| {
        format!("{name:<10} {:>14}  {}", shown(values.last().copied().unwrap_or(0)), sparkline(values))
    };
    let row = |(name, of, shown): Quantity| line(name, &history.iter().map(of).collect::<Vec<_>>(), shown);
    let mut lines: Vec<String> = rows.into_iter().map(row).collect();
    lines.insert(1, line("writes", &writes(history), count));
    let at = |sample: Option<&Sample>| sample.map_or(0.0, |sample| sample.at.as_secs_f64());
    let span = at(history.back()) - at(history.front());
    lines.push(format!("           the last {span:.1} s; wasted: reads per absent lookup; Ctrl-C ends"));
    lines.push("           writes: entries a second, in all keyspaces".into());
    lines
}

fn sparkline(values: &[u64]) -> String {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let bar = |&value: &u64| BARS[(value as f64 / most as f64 * (BARS.len() - 1) as f64).round() as usize];
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_a_bar_for_each_value() {
        assert_eq!(sparkline(&[0, 50, 100]), "▁▅█");
        assert_eq!((sparkline(&[0, 0]), sparkline(&[u64::MAX])), ("▁▁".into(), "█".into()));
    }

    #[test]
    fn the_lines_show_the_last_value_and_fit_80_columns() {
        let samples = (0..MOMENTS as u64).map(|n| Sample {
            at: Duration::from_millis(500 * n) + Duration::from_millis(if n == 47 { 250 } else { 0 }),
            entries: 1000 * n,
            seqno: n * n,
            wasted: 912,
            ..Sample::default()
        });
        let lines = lines(&samples.collect());
        assert!(lines[0].starts_with("entries            47,000  ▁"), "{}", lines[0]);
        assert!(lines[1].starts_with("writes                124  ▁"), "{}", lines[1]);
        assert!(lines[7].contains("0.000912"), "{}", lines[7]);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["0", "-1", "x", "NaN", "1e9"].iter().all(|text| seconds(text).is_err()));
    }
}
