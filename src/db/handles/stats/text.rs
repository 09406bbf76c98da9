//! Statistics as text.

use std::fmt::{self, Display, Formatter};

use super::expiry_stats::ExpiryStats;
use super::latency_stats::LatencyStats;
use super::store_stats::{KeyspaceStats, LevelStats, Stats};
use crate::memory::MemoryStats;

struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let mut value = self.0 as f64 / 1024.0;
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut unit = 0;
        while value >= 1000.0 && unit + 1 < units.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.1} {}", units[unit]))
    }
}

struct Optional(Option<f64>, usize);

impl Display for Optional {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(value) => f.pad(&format!("{value:.*}", self.1)),
            None => f.pad("-"),
        }
    }
}

/// A summary in a few lines. Its format may change in any version.
impl Display for Stats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "written: batches {}, entries {}, log syncs {}, in all {}",
            self.batches,
            self.entries,
            self.log_syncs,
            Bytes(self.written_bytes())
        )?;
        writeln!(
            f,
            "background: flushes {}, compactions {}, moves {}, rebuilt filters {}",
            self.flushes, self.compactions, self.trivial_moves, self.rebuilt_filters
        )?;
        writeln!(
            f,
            "read: data blocks {}, of these from the cache {}, index blocks {}, chunks {}, filter pages {}",
            self.data_block_reads.saturating_add(self.data_block_cache_hits),
            self.data_block_cache_hits,
            self.index_block_reads,
            self.value_chunk_reads,
            self.filter_page_reads
        )?;
        writeln!(f, "memory: {}", self.memory)?;
        if self.transactions > 0 || self.conflicts > 0 {
            writeln!(f, "transactions: committed {}, conflicts {}", self.transactions, self.conflicts)?;
        }
        if self.write_delays > 0 {
            let longest = self.longest_write_delay;
            writeln!(f, "delayed writers: {}, the longest for {longest:.1?}", self.write_delays)?;
        }
        if let Some(latencies) = &self.latencies {
            latencies.fmt(f)?;
        }
        if self.unusable_filters > 0 {
            writeln!(f, "unusable filters: {}", self.unusable_filters)?;
        }
        if let Some(leap) = self.clock_leap {
            writeln!(f, "the clock has leapt by {leap:.0?}: expired tables stay until this is confirmed")?;
        }
        if let Some(error) = &self.background_error {
            writeln!(f, "background work is failing: {error}")?;
        }
        if let Some(error) = &self.disabled {
            writeln!(f, "writing is disabled: {error}")?;
        }
        self.keyspaces.iter().try_for_each(|keyspace| keyspace.fmt(f))
    }
}

impl Display for LatencyStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (name, latency) in self.by_name().into_iter().filter(|(_, latency)| latency.count > 0) {
            let [p50, p99, p999, max] = [latency.p50, latency.p99, latency.p999, latency.max];
            let name = name.replace('_', " ");
            writeln!(
                f,
                "latency of {name}: calls {}, p50 {p50:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, max {max:.1?}",
                latency.count
            )?;
        }
        Ok(())
    }
}

impl Display for MemoryStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {}: memtables {} of {}, tables being written {}, open tables {}, filters {}, blocks {}",
            Bytes(self.total()),
            Bytes(self.budget),
            Bytes(self.memtables),
            Bytes(self.memtables_max),
            Bytes(self.builders),
            Bytes(self.tables),
            Bytes(self.filters),
            Bytes(self.blocks)
        )?;
        if self.histograms > 0 {
            write!(f, ", histograms {}", Bytes(self.histograms))?;
        }
        Ok(())
    }
}

/// A line, and a table of the levels in use. The format may change in any version.
impl Display for KeyspaceStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "keyspace {:?}: entries in memtables {} ({}), memtables to be flushed {}, owed by compactions {}",
            self.name,
            self.memtable_entries,
            Bytes(self.memtable_bytes),
            self.immutable_memtables,
            Bytes(self.owed_bytes)
        )?;
        let used = || self.levels.iter().enumerate().filter(|(_, level)| level.tables > 0);
        if used().next().is_none() {
            return Ok(());
        }
        writeln!(
            f,
            "  level  runs  tables       size      entries  tombstones  bits/key  predicted  measured"
        )?;
        used().try_for_each(|(number, level)| line(f, &number.to_string(), level))?;
        let total = self.total();
        line(f, "all", &total)?;
        if let Some(expiry) = &self.expiry {
            return expiry.fmt(f);
        }
        let recent = self.levels.first().map_or(0, |level| level.runs);
        if recent >= RUNS_MANY {
            let settled = total.runs - recent + 1;
            writeln!(
                f,
                "  {recent} runs in level 0: lookups of absent keys probe up to {} filters; after Db::settle or \
                 `sievedb compact`, about {settled}",
                total.runs
            )?;
        }
        Ok(())
    }
}

/// A line, and a second one if a snapshot holds expired tables. The format may change in any version.
impl Display for ExpiryStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let visible = self.buckets.iter().filter(|bucket| !bucket.is_hidden);
        let runs = visible.clone().map(|bucket| bucket.runs).sum::<u64>();
        write!(f, "  expiry: {} buckets of {runs} runs, hidden below {}", visible.count(), self.horizon)?;
        if let Some(time) = self.next_expiry {
            write!(f, ", next at {time} ms")?;
        }
        writeln!(f)?;
        let hidden = self.buckets.iter().filter(|bucket| bucket.is_hidden);
        let bytes = hidden.clone().map(|bucket| bucket.bytes).fold(0, u64::saturating_add);
        match hidden.clone().filter_map(|bucket| bucket.expires).min() {
            Some(since) => {
                writeln!(f, "  {} that expired at {since} ms are held by a snapshot", Bytes(bytes))
            }
            None if bytes > 0 => writeln!(f, "  {} that have expired are held by a snapshot", Bytes(bytes)),
            None => Ok(()),
        }
    }
}

const RUNS_MANY: u64 = 5;

fn line(f: &mut Formatter<'_>, name: &str, level: &LevelStats) -> fmt::Result {
    let percent = |rate: Option<f64>| Optional(rate.map(|rate| rate * 100.0), 4);
    writeln!(
        f,
        "  {name:<5}  {:>4}  {:>6}  {:>9}  {:>11}  {:>10}  {:>8}  {:>9}  {:>8}",
        level.runs,
        level.tables,
        Bytes(level.bytes),
        level.entries,
        level.tombstones,
        Optional(level.filter_bits_per_key(), 1),
        percent(level.predicted_rate),
        percent(level.filter.false_positive_rate())
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn statistics_are_printed_with_a_line_for_each_level_that_holds_something() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.memory_budget(64 << 20).open("/db").unwrap();
        db.open_keyspace("users").unwrap();
        (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), "v").unwrap());
        db.compact().unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.put("in memory", "v").unwrap();
        assert!(db.contains(7u32.to_be_bytes()).unwrap());
        let text = db.stats().to_string();
        let has = |part: &str| assert!(text.lines().any(|line| line.contains(part)), "{part}\n{text}");
        has("written: batches 1002, entries 1002, log syncs ");
        has(" of 64.0 MiB: memtables ");
        has("keyspace \"default\": entries in memtables 1 (");
        has(
            "keyspace \"users\": entries in memtables 0 (0 B), memtables to be flushed 0, owed by compactions 0 B",
        );
        assert!(!text.contains("transactions"), "there were none");
        assert!(!text.contains("failing") && !text.contains("disabled") && !text.contains("unusable"));
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(rows.len(), 4, "a head, level 0, the level below it, and their sum\n{text}");
        assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{text}");
        let fields: Vec<_> = rows[3].split_whitespace().collect();
        assert_eq!((fields[0], fields[1], fields[2], fields[5], fields[6]), ("all", "2", "2", "1001", "0"));
        let mut stats = db.stats();
        stats.keyspaces[0].levels[0].runs = 27;
        let debt = "27 runs in level 0: lookups of absent keys probe up to 28 filters; after Db::settle or \
                    `sievedb compact`, about 2";
        assert!(!text.contains("runs in level 0:") && stats.to_string().contains(debt), "{stats}");
        (stats.transactions, stats.conflicts) = (3, 1);
        assert!(stats.to_string().contains("transactions: committed 3, conflicts 1\n"));
        stats.background_error = Some("no space".into());
        stats.disabled = Some("the disk is gone".into());
        let text = stats.to_string();
        assert!(
            text.contains("background work is failing: no space\nwriting is disabled: the disk is gone\n")
        );
    }
}
