//! Statistics of a store over time.

use serde_json::Value as Json;

use crate::observed::{Observed, items, of_line};
use crate::svg::Svg;
use crate::units::{bytes, count, share};

/// Statistics, one line per moment, oldest first.
///
/// A line is the output of `sievedb stats --json`, or [`Stats`](sievedb::Stats) as JSON (feature `serde`), written by
/// the process with the open store. Only the latter includes the answers of filters.
#[derive(Debug, Clone, Default)]
pub struct History {
    lines: Vec<Json>,
}

type Quantity = (&'static str, &'static str, fn(u64) -> String);

pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) svg: String,
}

impl History {
    /// Reads one JSON object per line and skips blank lines.
    ///
    /// # Errors
    ///
    /// The number of the first line (from 1) that is not an object with `keyspaces`, and the reason.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let parsed: Json = serde_json::from_str(line)
                .map_err(|error| format!("line {} is not JSON: {error}", index + 1))?;
            if !parsed["keyspaces"].is_array() {
                return Err(format!("line {} has no list of keyspaces", index + 1));
            }
            lines.push(parsed);
        }
        Ok(Self { lines })
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn observed(&self) -> Observed {
        let mut sum = Observed::new();
        let mut before = Observed::new();
        for line in &self.lines {
            let now = of_line(line);
            for (level, counts) in &now {
                let since = counts.since(&before.get(level).copied().unwrap_or_default());
                sum.entry(level.clone()).or_default().add(&since);
            }
            before = now;
        }
        sum
    }

    pub(crate) fn series(&self) -> Vec<Series> {
        let rate = |line: &Json| {
            let counts = of_line(line);
            let (wrong, all) = counts
                .values()
                .fold((0, 0), |(wrong, all), counts| (wrong + counts.false_positives, all + counts.absent()));
            wrong as f64 / f64::max(all as f64, 1.0)
        };
        let has_rates = self.lines.iter().any(|line| !of_line(line).is_empty());
        let rates = [Series::of("observed false positives", &self.lines, rate, share)];
        let plain: [Quantity; 4] = [
            ("entries in tables", "entries", count),
            ("size of tables", "bytes", bytes),
            ("size of filters", "filter_bytes", bytes),
            ("runs", "runs", count),
        ];
        let plain = plain.into_iter().map(|(name, field, shown)| {
            Series::of(name, &self.lines, |line| sum(line, field), |value| shown(value as u64))
        });
        plain.chain(rates.into_iter().filter(|_| has_rates)).collect()
    }
}

fn sum(line: &Json, field: &str) -> f64 {
    let levels = items(&line["keyspaces"]).flat_map(|keyspace| items(&keyspace["levels"]));
    levels.filter_map(|level| level[field].as_f64()).sum()
}

impl Series {
    fn of(
        name: &'static str,
        lines: &[Json],
        value: impl Fn(&Json) -> f64,
        shown: impl Fn(f64) -> String,
    ) -> Self {
        let values: Vec<f64> = lines.iter().map(value).collect();
        let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let step = 100.0 / (values.len().max(2) - 1) as f64;
        let mut svg = Svg::new(
            "class=\"series\" viewBox=\"0 0 100 100\" preserveAspectRatio=\"none\" aria-hidden=\"true\"",
        );
        let points =
            values.iter().enumerate().map(|(at, value)| (at as f64 * step, 100.0 - 96.0 * value / highest));
        svg.polyline(points, "class=\"best\"");
        let shown = |value: Option<&f64>| value.map_or_else(String::new, |value| shown(*value));
        Self { name, first: shown(values.first()), last: shown(values.last()), svg: svg.finish() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_begin_again_are_added_to_the_earlier_ones() {
        let line = |negatives: u64, wrong: u64| {
            format!(
                "{{\"keyspaces\":[{{\"name\":\"default\",\"levels\":[{{}},{{\"entries\":7,\"expected_false_positives\":1.5,\
                 \"filter\":{{\"negatives\":{negatives},\"false_positives\":{wrong}}}}}]}}]}}"
            )
        };
        let text = [line(90, 10), line(190, 10), String::new(), line(50, 0)].join("\n");
        let history = History::read(&text).unwrap();
        let counts = history.observed()[&("default".to_owned(), 1)];
        assert_eq!((counts.negatives, counts.false_positives), (240, 10));
        assert_eq!(counts.rate(), Some(0.04));
        let names: Vec<_> =
            history.series().iter().map(|series| (series.name, series.last.clone())).collect();
        assert_eq!(names[0], ("entries in tables", "7".into()));
        assert_eq!(names[4], ("observed false positives", "0 %".into()));
    }

    #[test]
    fn a_line_of_stats_json_has_levels_by_number_and_no_counts() {
        let text = "{\"keyspaces\":[{\"keyspace\":\"default\",\"levels\":[{\"level\":3,\"entries\":5,\"runs\":1}]}]}";
        let history = History::read(text).unwrap();
        assert!(history.observed().is_empty());
        assert_eq!(history.series().len(), 4);
    }

    #[test]
    fn a_line_that_is_no_object_of_statistics_is_refused_with_its_number() {
        assert!(History::read("{\"keyspaces\":[]}\n{").unwrap_err().starts_with("line 2 is not JSON"));
        assert_eq!(History::read("\n{}").unwrap_err(), "line 2 has no list of keyspaces");
    }
}
