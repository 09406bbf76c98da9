//! Counted answers of filters, by keyspace and level.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use sievedb::Stats;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) negatives: u64,
    /// "Maybe" answers for keys that the table does not hold.
    pub(crate) false_positives: u64,
    pub(crate) expected: f64,
}

pub(crate) type Observed = BTreeMap<(String, usize), Counts>;

impl Counts {
    pub(crate) fn absent(&self) -> u64 {
        self.negatives.saturating_add(self.false_positives)
    }

    pub(crate) fn rate(&self) -> Option<f64> {
        (self.absent() > 0).then(|| self.false_positives as f64 / self.absent() as f64)
    }

    /// If a count has decreased, the store was reopened, and all counts are new.
    pub(crate) fn since(&self, before: &Self) -> Self {
        if self.negatives < before.negatives || self.false_positives < before.false_positives {
            return *self;
        }
        Self {
            negatives: self.negatives - before.negatives,
            false_positives: self.false_positives - before.false_positives,
            expected: (self.expected - before.expected).max(0.0),
        }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.negatives = self.negatives.saturating_add(more.negatives);
        self.false_positives = self.false_positives.saturating_add(more.false_positives);
        self.expected += more.expected;
    }
}

pub(crate) fn of_stats(stats: &Stats) -> Observed {
    let levels = stats.keyspaces.iter().flat_map(|keyspace| {
        keyspace.levels.iter().enumerate().map(|(level, stats)| {
            let counts = Counts {
                negatives: stats.filter.negatives,
                false_positives: stats.filter.false_positives,
                expected: stats.expected_false_positives,
            };
            ((keyspace.name.clone(), level), counts)
        })
    });
    levels.filter(|(_, counts)| counts.absent() > 0).collect()
}

/// `stats --json` has the number of each level; [`Stats`] as JSON has the index.
pub(crate) fn of_line(line: &Json) -> Observed {
    let mut observed = Observed::new();
    for keyspace in items(&line["keyspaces"]) {
        let name = keyspace["keyspace"].as_str().or(keyspace["name"].as_str()).unwrap_or_default();
        for (place, level) in items(&keyspace["levels"]).enumerate() {
            let filter = &level["filter"];
            let counts = Counts {
                negatives: filter["negatives"].as_u64().unwrap_or(0),
                false_positives: filter["false_positives"].as_u64().unwrap_or(0),
                expected: level["expected_false_positives"].as_f64().unwrap_or(0.0),
            };
            if counts.absent() > 0 {
                let level = level["level"].as_u64().map_or(place, |level| level as usize);
                observed.insert((name.to_owned(), level), counts);
            }
        }
    }
    observed
}

pub(crate) fn items(list: &Json) -> impl Iterator<Item = &Json> {
    list.as_array().into_iter().flatten()
}
