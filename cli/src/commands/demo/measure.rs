//! Looks up every key of a keyspace, checks each answer, and counts the data blocks read. Everything is read once before it is
//! timed.

use std::time::{Duration, Instant};

use sievedb::{Db, FilterCounts, Keyspace, KeyspaceStats, LevelStats, Stats};

use super::source::Record;
use crate::failure::{Failure, Result};
use crate::progress::Progress;

pub(super) struct Lookups<'a> {
    pub(super) records: &'a [Record],
    pub(super) absent: &'a [Vec<u8>],
    pub(super) order: &'a [usize],
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pass {
    pub(super) lookups: u64,
    pub(super) time: Duration,
    pub(super) blocks: u64,
    pub(super) filter: FilterCounts,
    pub(super) predicted_rate: Option<f64>,
}

impl Pass {
    pub(super) fn blocks_per_lookup(&self) -> f64 {
        self.blocks as f64 / self.lookups.max(1) as f64
    }
}

#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) levels: usize,
    pub(super) total: LevelStats,
    pub(super) filter_memory_bytes: u64,
    pub(super) present: Pass,
    pub(super) absent: Pass,
    pub(super) from_memory: u64,
}

pub(super) fn measure(db: &Db, keyspace: &Keyspace, lookups: &Lookups<'_>) -> Result<Measured> {
    read_everything(keyspace, lookups.records)?;
    let present = pass(db, keyspace, lookups.order, |index| {
        let record = &lookups.records[index];
        Ok(keyspace.get(&record.key)?.as_deref() == Some(&*record.value))
    })?;
    let absent =
        pass(db, keyspace, lookups.order, |index| Ok(keyspace.get(&lookups.absent[index])?.is_none()))?;
    let from_memory = lookups.absent.iter().filter(|key| !keyspace.may_contain(key)).count() as u64;
    let stats = db.stats();
    let of_keyspace = of(&stats, keyspace)?;
    Ok(Measured {
        levels: of_keyspace.levels.iter().filter(|level| level.tables > 0).count(),
        total: of_keyspace.total(),
        filter_memory_bytes: stats.filter_memory_bytes,
        present,
        absent,
        from_memory,
    })
}

fn of<'a>(stats: &'a Stats, keyspace: &Keyspace) -> Result<&'a KeyspaceStats> {
    stats.keyspace(keyspace.name()).ok_or_else(|| Failure::Refused("the demo's keyspace was dropped".into()))
}

fn read_everything(keyspace: &Keyspace, records: &[Record]) -> Result<()> {
    let mut entries = keyspace.iter();
    for record in records {
        match entries.next().transpose()? {
            Some((key, value)) if key[..] == *record.key && value[..] == *record.value => {}
            _ => return Err(wrong("a scan")),
        }
    }
    if entries.next().is_some() { Err(wrong("a scan")) } else { Ok(()) }
}

fn wrong(what: &str) -> Failure {
    Failure::Refused(format!("{what} gave a wrong answer: please report this"))
}

fn pass(
    db: &Db,
    keyspace: &Keyspace,
    order: &[usize],
    answers_right: impl Fn(usize) -> Result<bool>,
) -> Result<Pass> {
    let mut progress = Progress::of_items("looking up", Some(order.len() as u64));
    let before = db.stats();
    let mut time = Duration::ZERO;
    let mut done = 0;
    for part in order.chunks(16_384) {
        let start = Instant::now();
        for &index in part {
            if !answers_right(index)? {
                return Err(wrong("a lookup"));
            }
        }
        time += start.elapsed();
        done += part.len() as u64;
        progress.at(done);
    }
    let after = db.stats();
    let blocks_read = |stats: &Stats| stats.data_block_reads + stats.data_block_cache_hits;
    let (filter, predicted_rate) = filters(of(&before, keyspace)?, of(&after, keyspace)?);
    let blocks = blocks_read(&after) - blocks_read(&before);
    Ok(Pass { lookups: order.len() as u64, time, blocks, filter, predicted_rate })
}

/// The answers of filters between two statistics, and the predicted rate.
fn filters(before: &KeyspaceStats, after: &KeyspaceStats) -> (FilterCounts, Option<f64>) {
    let mut sum = FilterCounts::default();
    let mut expected = 0.0;
    for (before, after) in before.levels.iter().zip(&after.levels) {
        let negatives = after.filter.negatives - before.filter.negatives;
        let false_positives = after.filter.false_positives - before.filter.false_positives;
        sum.negatives += negatives;
        sum.false_positives += false_positives;
        sum.true_positives += after.filter.true_positives - before.filter.true_positives;
        expected += (negatives + false_positives) as f64 * after.predicted_rate.unwrap_or(0.0);
    }
    let absent = sum.negatives + sum.false_positives;
    (sum, (absent > 0).then(|| expected / absent as f64))
}
