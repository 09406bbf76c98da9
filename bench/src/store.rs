use std::path::Path;

use sievedb::{Db, Keyspace, LevelStats, Options, Stats, WriteBatch};

use crate::Result;
use crate::random::{bytes_of, number};
use crate::report::{Table, count};

pub(crate) const KEY_BYTES: usize = 16;

const BATCH_ENTRIES: usize = 1000;

pub(crate) fn key(index: u64) -> [u8; KEY_BYTES] {
    wide(6, index)
}

pub(crate) fn absent_key(index: u64) -> [u8; KEY_BYTES] {
    wide(7, index)
}

/// For numbers below 2^40, streams differ in the first half.
fn wide(stream: u64, index: u64) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..8].copy_from_slice(&bytes_of(number(stream, index)));
    bytes[8..].copy_from_slice(&bytes_of(number(8, index)));
    bytes
}

pub(crate) fn fill_value(index: u64, value: &mut [u8]) {
    for (word, part) in value.chunks_mut(8).enumerate() {
        part.copy_from_slice(&bytes_of(number(11 + word as u64, index))[..part.len()]);
    }
}

pub(crate) fn open_stepwise(dir: &Path) -> Result<Db> {
    Ok(Options::new().background_threads(0).open_files_max(1 << 14).open(dir)?)
}

pub(crate) fn load(
    db: &Db,
    keyspace: &Keyspace,
    numbers: std::ops::Range<u64>,
    value_bytes: usize,
) -> Result<()> {
    let mut value = vec![0; value_bytes];
    let mut batch = WriteBatch::new();
    for index in numbers.clone() {
        fill_value(index, &mut value);
        batch.put_in(keyspace, key(index), &value);
        if (index - numbers.start + 1).is_multiple_of(BATCH_ENTRIES as u64) || index + 1 == numbers.end {
            db.write(std::mem::take(&mut batch))?;
            while db.step()? {}
        }
    }
    keyspace.flush()?;
    db.settle()?;
    Ok(db.open_tables()?)
}

pub(crate) fn data_blocks(stats: &Stats) -> u64 {
    stats.data_block_reads + stats.data_block_cache_hits
}

#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) number: usize,
    pub(crate) stats: LevelStats,
    pub(crate) absent: u64,
    pub(crate) false_positives: u64,
    pub(crate) expected: f64,
}

impl Level {
    pub(crate) fn predicted_rate(&self) -> Option<f64> {
        (self.absent > 0).then(|| self.expected / self.absent as f64)
    }

    pub(crate) fn observed_rate(&self) -> Option<f64> {
        (self.absent > 0).then(|| self.false_positives as f64 / self.absent as f64)
    }
}

pub(crate) fn levels(before: &Stats, after: &Stats, keyspace: &str) -> Vec<Level> {
    let (Some(before), Some(after)) = (before.keyspace(keyspace), after.keyspace(keyspace)) else {
        return Vec::new();
    };
    let pairs = before.levels.iter().zip(&after.levels).enumerate();
    pairs
        .filter(|(_, (_, after))| after.tables > 0)
        .map(|(number, (before, after))| {
            let false_positives = after.filter.false_positives - before.filter.false_positives;
            let negatives = after.filter.negatives - before.filter.negatives;
            Level {
                number,
                stats: after.clone(),
                absent: negatives + false_positives,
                false_positives,
                expected: after.expected_false_positives - before.expected_false_positives,
            }
        })
        .collect()
}

pub(crate) fn level_table(levels: &[Level]) -> Table {
    let mut table =
        Table::new(["level", "runs", "tables", "keys", "bits/key", "predicted %", "observed %", "probed"]);
    let percent = |rate: Option<f64>| rate.map_or("–".into(), |rate| format!("{:.4}", rate * 100.0));
    for level in levels {
        table.row([
            level.number.to_string(),
            level.stats.runs.to_string(),
            level.stats.tables.to_string(),
            count(level.stats.keys),
            level.stats.filter_bits_per_key().map_or("–".into(), |bits| format!("{bits:.2}")),
            percent(level.predicted_rate()),
            percent(level.observed_rate()),
            count(level.absent),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_its_key_to_the_last_byte() {
        let value = |index, len| {
            let mut value = vec![0; len];
            fill_value(index, &mut value);
            value
        };
        assert_eq!(value(1, 100), value(1, 100));
        assert_ne!(value(1, 100)[96..], value(2, 100)[96..]);
        assert_ne!(key(1), absent_key(1));
    }
}
