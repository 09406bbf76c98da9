//! One report: from `Stats` to the facade.

use std::collections::HashMap;
use std::time::Duration;

use metrics::{Label, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use sievedb::{KeyspaceStats, LatencyStats, LevelStats, MemoryStats, Stats};

use crate::names::{Kind, METRICS};

/// Reports the statistics of one store to the recorder of the crate `metrics`.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = sievedb::Db::open(dir.path())?;
/// let mut reporter = sievedb_metrics::Reporter::new();
/// reporter.report(&db.stats()); // once per interval
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A counter grows by the difference of its totals in two reports, so it continues when the store is reopened with the same
/// reporter. After a total has decreased, the next report counts from there.
///
/// A store needs exactly one reporter, because each one adds the totals. A read-only program reports after each
/// [`Db::refresh`](sievedb::Db::refresh); [`Polling`](crate::Polling) does not refresh its handle.
#[derive(Debug, Default)]
pub struct Reporter {
    labels: Vec<Label>,
    /// By name and labels.
    totals: HashMap<(&'static str, Vec<Label>), u64>,
    /// Reported calls by kind and longest duration of their bucket.
    reported: HashMap<(&'static str, u64), u64>,
}

fn grown(last: &mut u64, total: u64) -> u64 {
    total.saturating_sub(std::mem::replace(last, total))
}

type Pairs<'a> = [(&'static str, &'a str)];

impl Reporter {
    /// For a program with one store. Describes the metrics to the recorder.
    #[must_use]
    pub fn new() -> Self {
        Self::with_labels([] as [(&str, &str); 0])
    }

    /// Adds these labels to every metric, such as the name of the store.
    ///
    /// ```
    /// let reporter = sievedb_metrics::Reporter::with_labels([("store", "urls")]);
    /// ```
    pub fn with_labels<N: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (N, V)>) -> Self {
        describe();
        let label = |(name, value): (N, V)| Label::new(name.into(), value.into());
        Self { labels: labels.into_iter().map(label).collect(), ..Self::default() }
    }

    /// Adds the growth since the last report to the counters, and the calls since then to the histograms of latencies, each
    /// with the longest duration of its bucket.
    pub fn report(&mut self, stats: &Stats) {
        stats.keyspaces.iter().for_each(|keyspace| self.keyspace(keyspace));
        self.writes(stats);
        self.reads(stats);
        self.resources(stats);
        if let Some(latencies) = &stats.latencies {
            self.latencies(latencies);
        }
    }

    fn labels(&self, pairs: &Pairs<'_>) -> Vec<Label> {
        let own = pairs.iter().map(|&(name, value)| Label::new(name, value.to_owned()));
        self.labels.iter().cloned().chain(own).collect()
    }

    fn count(&mut self, name: &'static str, pairs: &Pairs<'_>, total: u64) {
        let labels = self.labels(pairs);
        let more = grown(self.totals.entry((name, labels.clone())).or_default(), total);
        counter!(name, labels).increment(more);
    }

    fn set(&self, name: &'static str, pairs: &Pairs<'_>, value: u64) {
        self.set_f64(name, pairs, value as f64);
    }

    fn set_f64(&self, name: &'static str, pairs: &Pairs<'_>, value: f64) {
        gauge!(name, self.labels(pairs)).set(value);
    }

    fn keyspace(&mut self, stats: &KeyspaceStats) {
        let of = [("keyspace", &*stats.name)];
        self.set("sievedb_memtable_bytes", &of, stats.memtable_bytes);
        self.set("sievedb_immutable_memtables", &of, stats.immutable_memtables);
        self.set("sievedb_owed_bytes", &of, stats.owed_bytes);
        self.count("sievedb_skipped_entries_total", &of, stats.skipped_entries);
        if let Some(expiry) = &stats.expiry {
            let hidden = expiry.buckets.iter().filter(|bucket| bucket.is_hidden);
            self.set("sievedb_buckets", &of, expiry.buckets.len() as u64);
            self.set("sievedb_hidden_bucket_bytes", &of, hidden.map(|bucket| bucket.bytes).sum());
            self.set("sievedb_horizon", &of, expiry.horizon);
            let next = expiry.next_expiry.map_or(f64::NAN, |millis| millis as f64 / 1000.0);
            self.set_f64("sievedb_next_expiry_timestamp_seconds", &of, next);
        }
        for (number, level) in stats.levels.iter().enumerate() {
            self.level(&stats.name, &number.to_string(), level);
        }
    }

    fn level(&mut self, keyspace: &str, level: &str, stats: &LevelStats) {
        let of = [("keyspace", keyspace), ("level", level)];
        let filter = stats.filter;
        for (result, total) in [
            ("absent", filter.negatives),
            ("false_positive", filter.false_positives),
            ("true_positive", filter.true_positives),
        ] {
            let of = [("keyspace", keyspace), ("level", level), ("result", result)];
            self.count("sievedb_filter_probes_total", &of, total);
        }
        self.count("sievedb_unfiltered_misses_total", &of, filter.unfiltered_misses);
        self.set_f64("sievedb_filter_expected_false_positives", &of, stats.expected_false_positives);
        self.set("sievedb_filter_bytes", &of, stats.filter_bytes);
        self.set("sievedb_filter_memory_bytes", &of, stats.filter_memory_bytes);
        self.set("sievedb_tables", &of, stats.tables);
        self.set("sievedb_runs", &of, stats.runs);
        self.set("sievedb_table_bytes", &of, stats.bytes);
        self.set("sievedb_entries", &of, stats.entries);
        self.set("sievedb_tombstones", &of, stats.tombstones);
    }

    fn writes(&mut self, stats: &Stats) {
        self.count("sievedb_batches_total", &[], stats.batches);
        self.count("sievedb_entries_written_total", &[], stats.entries);
        self.count("sievedb_commit_groups_total", &[], stats.commit_groups);
        self.count("sievedb_log_syncs_total", &[], stats.log_syncs);
        self.count("sievedb_transactions_total", &[("result", "committed")], stats.transactions);
        self.count("sievedb_transactions_total", &[("result", "conflict")], stats.conflicts);
        for (by, bytes) in [
            ("log", stats.logged_bytes),
            ("flush", stats.flushed_bytes),
            ("compaction", stats.compacted_bytes),
            ("refilter", stats.rebuilt_filter_bytes),
        ] {
            self.count("sievedb_written_bytes_total", &[("by", by)], bytes);
        }
        for (kind, jobs) in [
            ("flush", stats.flushes),
            ("compaction", stats.compactions),
            ("move", stats.trivial_moves),
            ("refilter", stats.rebuilt_filters),
        ] {
            self.count("sievedb_jobs_total", &[("kind", kind)], jobs);
        }
        self.count("sievedb_failed_jobs_total", &[], stats.background_failures);
        self.count("sievedb_write_delays_total", &[], stats.write_delays);
        self.set_f64("sievedb_write_delay_seconds", &[], stats.write_delay.as_secs_f64());
        self.set_f64("sievedb_longest_write_delay_seconds", &[], stats.longest_write_delay.as_secs_f64());
    }

    fn reads(&mut self, stats: &Stats) {
        for (kind, from, reads) in [
            ("data_block", "file", stats.data_block_reads),
            ("data_block", "cache", stats.data_block_cache_hits),
            ("filter_page", "file", stats.filter_page_reads),
            ("filter_page", "cache", stats.filter_page_cache_hits),
        ] {
            self.count("sievedb_reads_total", &[("kind", kind), ("from", from)], reads);
        }
        self.count("sievedb_file_reads_total", &[("kind", "index_block")], stats.index_block_reads);
        self.count("sievedb_file_reads_total", &[("kind", "value_chunk")], stats.value_chunk_reads);
        self.count("sievedb_block_rereads_total", &[], stats.block_rereads);
        self.count("sievedb_unusable_filters_total", &[], stats.unusable_filters);
        let right = stats.audited.saturating_sub(stats.audit_failures);
        self.count("sievedb_filter_audits_total", &[("result", "right")], right);
        self.count("sievedb_filter_audits_total", &[("result", "wrong")], stats.audit_failures);
        self.count("sievedb_residency_changes_total", &[], stats.residency_changes);
    }

    fn resources(&self, stats: &Stats) {
        let MemoryStats { memtables, builders, tables, filters, histograms, blocks, held, .. } = stats.memory;
        for (part, bytes) in [
            ("memtables", memtables),
            ("builders", builders),
            ("tables", tables),
            ("filters", filters),
            ("histograms", histograms),
            ("blocks", blocks),
            ("held", held),
        ] {
            self.set("sievedb_memory_bytes", &[("part", part)], bytes);
        }
        self.set("sievedb_memory_budget_bytes", &[], stats.memory.budget);
        self.set("sievedb_log_bytes", &[], stats.log_bytes);
        self.set("sievedb_held_file_bytes", &[], stats.held_file_bytes);
        self.set("sievedb_open_files", &[], stats.open_files);
        self.set("sievedb_snapshots", &[], stats.snapshots);
        let leap = stats.clock_leap.unwrap_or_default();
        self.set_f64("sievedb_clock_leap_seconds", &[], leap.as_secs_f64());
        self.set("sievedb_background_failing", &[], stats.background_error.is_some().into());
        self.set("sievedb_writing_disabled", &[], stats.disabled.is_some().into());
    }

    fn latencies(&mut self, stats: &LatencyStats) {
        for (call, latency) in stats.by_name() {
            self.count("sievedb_calls_total", &[("call", call)], latency.count);
            let calls = histogram!("sievedb_call_seconds", self.labels(&[("call", call)]));
            for bucket in &latency.buckets {
                let reported = self.reported.entry((call, bucket.most_nanos)).or_default();
                let new = grown(reported, bucket.count);
                let longest = Duration::from_nanos(bucket.most_nanos).min(latency.max);
                calls.record_many(longest.as_secs_f64(), new as usize);
            }
        }
    }
}

fn describe() {
    for metric in METRICS {
        let (name, unit, meaning) = (metric.name, metric.unit, metric.meaning);
        match metric.kind {
            Kind::Counter => describe_counter!(name, unit, meaning),
            Kind::Gauge => describe_gauge!(name, unit, meaning),
            Kind::Histogram => describe_histogram!(name, unit, meaning),
        }
    }
}
