use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Result;
use crate::report::{Table, count};

const PER_DOUBLING: f64 = 8.0;

const BUCKETS: usize = 8 * 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Alone,
    Backup,
    Restore,
    Between,
}

impl Phase {
    const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Alone, "alone", "no other process"),
        (Self::Backup, "backup", "next to a backup, with `stats`"),
        (Self::Restore, "restore", "next to a restore, with `stats`"),
        (Self::Between, "between", "between backups, with `stats`"),
    ];
}

pub(super) struct Phases(PathBuf);

impl Phases {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let phases = Self(dir.to_owned());
        phases.set(Phase::Alone)?;
        Ok(phases)
    }

    pub(super) fn set(&self, phase: Phase) -> Result<()> {
        let name = Phase::ALL.iter().find(|(known, ..)| *known == phase).map_or("", |(_, name, _)| name);
        Ok(std::fs::write(self.0.join("phase"), name)?)
    }

    /// For each phase: the number of writes and the quantiles in nanoseconds (50, 99, 99.9, 100 %).
    pub(super) fn quantiles(&self) -> Result<Vec<(&'static str, u64, [f64; 4])>> {
        let phases = Phase::ALL.iter().map(|(_, name, words)| {
            let lines = std::fs::read_to_string(self.0.join(name)).unwrap_or_default();
            let mut sum = Histogram::default();
            for line in lines.lines() {
                sum.merge(&Histogram::read(line)?);
            }
            Ok((*words, sum.counts.iter().sum(), [0.5, 0.99, 0.999, 1.0].map(|share| sum.at(share))))
        });
        phases.collect()
    }
}

pub(super) fn table(quantiles: &[(&'static str, u64, [f64; 4])]) -> Table {
    let mut table = Table::new(["writes", "batches", "p50, µs", "p99, µs", "p99.9, µs", "longest, ms"]);
    for (words, batches, [p50, p99, p999, longest]) in quantiles {
        let micros = |nanos: f64| format!("{:.1}", nanos / 1e3);
        let longest = format!("{:.1}", longest / 1e6);
        table.row([(*words).to_owned(), count(*batches), micros(*p50), micros(*p99), micros(*p999), longest]);
    }
    table
}

pub(super) struct Histogram {
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS] }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, time: Duration) {
        let bucket = (time.as_nanos().max(1) as f64).log2() * PER_DOUBLING;
        self.counts[(bucket as usize).min(BUCKETS - 1)] += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
    }

    fn at(&self, share: f64) -> f64 {
        let all: u64 = self.counts.iter().sum();
        let (wanted, mut sum) = ((all as f64 * share).ceil() as u64, 0);
        for (bucket, counted) in self.counts.iter().enumerate() {
            sum += counted;
            if sum >= wanted.max(1) {
                return ((bucket + 1) as f64 / PER_DOUBLING).exp2();
            }
        }
        0.0
    }

    pub(super) fn append_to(&self, dir: &Path) -> Result<()> {
        let phase = std::fs::read_to_string(dir.join("phase"))?;
        let counts: Vec<String> = self.counts.iter().map(u64::to_string).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(dir.join(phase))?;
        Ok(writeln!(file, "{}", counts.join(" "))?)
    }

    fn read(line: &str) -> Result<Self> {
        let mut read = Self::default();
        for (count, word) in read.counts.iter_mut().zip(line.split_whitespace()) {
            *count = word.parse()?;
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket_of_the_exact_ones_also_after_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let phases = Phases::new(dir.path()).unwrap();
        phases.set(Phase::Between).unwrap();
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.add(Duration::from_micros(micros)));
        histogram.append_to(dir.path()).unwrap();
        let line = std::fs::read_to_string(dir.path().join("between")).unwrap();
        let read = Histogram::read(line.trim()).unwrap();
        for (share, exact) in [(0.5, 500e3), (0.99, 990e3), (1.0, 1e6)] {
            let ratio = read.at(share) / exact;
            assert!((1.0..1.1).contains(&ratio), "{share}: {ratio}");
        }
        let quantiles = phases.quantiles().unwrap();
        assert_eq!(quantiles.iter().map(|(_, batches, _)| batches).sum::<u64>(), 1000);
        table(&quantiles);
    }
}
