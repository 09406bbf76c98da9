//! Every metric: name, kind, unit and meaning. A test compares the table of the README with them.

use metrics::Unit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of the README reads it"))]
    pub(crate) labels: &'static str,
    pub(crate) meaning: &'static str,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static str,
    meaning: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, meaning }
}

use Kind::{Counter, Gauge, Histogram};
use Unit::{Bytes, Count, Seconds};

pub(crate) const METRICS: &[Metric] = &[
    metric(
        "sievedb_filter_probes_total",
        Counter,
        Count,
        "keyspace, level, result: absent, false_positive, true_positive",
        "filter probes by their result; false_positive: a wasted read",
    ),
    metric(
        "sievedb_unfiltered_misses_total",
        Counter,
        Count,
        "keyspace, level",
        "lookups of absent keys in tables without a usable filter",
    ),
    metric(
        "sievedb_filter_expected_false_positives",
        Gauge,
        Count,
        "keyspace, level",
        "false positives that the filters predict for these probes",
    ),
    metric("sievedb_filter_bytes", Gauge, Bytes, "keyspace, level", "lengths of the filter blocks"),
    metric("sievedb_filter_memory_bytes", Gauge, Bytes, "keyspace, level", "filters in memory"),
    metric("sievedb_tables", Gauge, Count, "keyspace, level", "tables"),
    metric("sievedb_runs", Gauge, Count, "keyspace, level", "sorted runs"),
    metric("sievedb_table_bytes", Gauge, Bytes, "keyspace, level", "lengths of the tables"),
    metric("sievedb_entries", Gauge, Count, "keyspace, level", "entries of the tables, tombstones included"),
    metric("sievedb_tombstones", Gauge, Count, "keyspace, level", "tombstones among the entries"),
    metric("sievedb_memtable_bytes", Gauge, Bytes, "keyspace", "memory of the memtables"),
    metric("sievedb_immutable_memtables", Gauge, Count, "keyspace", "memtables that wait to be flushed"),
    metric("sievedb_owed_bytes", Gauge, Bytes, "keyspace", "bytes that compactions still have to write"),
    metric(
        "sievedb_skipped_entries_total",
        Counter,
        Count,
        "keyspace",
        "hidden entries and tombstones that scans skipped",
    ),
    metric("sievedb_buckets", Gauge, Count, "keyspace", "buckets of time with tables; if entries expire"),
    metric(
        "sievedb_hidden_bucket_bytes",
        Gauge,
        Bytes,
        "keyspace",
        "tables of expired buckets, which snapshots hold",
    ),
    metric(
        "sievedb_horizon",
        Gauge,
        Count,
        "keyspace",
        "entries with a smaller sequence number have expired",
    ),
    metric(
        "sievedb_next_expiry_timestamp_seconds",
        Gauge,
        Seconds,
        "keyspace",
        "time of the next expiry, by the clock of the keyspace; NaN if unknown",
    ),
    metric("sievedb_batches_total", Counter, Count, "", "batches written"),
    metric("sievedb_entries_written_total", Counter, Count, "", "entries in these batches"),
    metric("sievedb_commit_groups_total", Counter, Count, "", "groups of batches, one log write each"),
    metric("sievedb_log_syncs_total", Counter, Count, "", "syncs of a log"),
    metric(
        "sievedb_transactions_total",
        Counter,
        Count,
        "result: committed, conflict",
        "transactions that wrote",
    ),
    metric(
        "sievedb_written_bytes_total",
        Counter,
        Bytes,
        "by: log, flush, compaction, refilter",
        "bytes written to files",
    ),
    metric(
        "sievedb_jobs_total",
        Counter,
        Count,
        "kind: flush, compaction, move, refilter",
        "memtables flushed, compactions, compactions that only moved tables, filters rebuilt",
    ),
    metric("sievedb_failed_jobs_total", Counter, Count, "", "background work that failed and is tried again"),
    metric("sievedb_write_delays_total", Counter, Count, "", "writers slowed down by the background"),
    metric("sievedb_write_delay_seconds", Gauge, Seconds, "", "total time for which they waited"),
    metric("sievedb_longest_write_delay_seconds", Gauge, Seconds, "", "longest of these times"),
    metric(
        "sievedb_reads_total",
        Counter,
        Count,
        "kind: data_block, filter_page; from: file, cache",
        "data blocks and filter pages by their source",
    ),
    metric(
        "sievedb_file_reads_total",
        Counter,
        Count,
        "kind: index_block, value_chunk",
        "other reads of files",
    ),
    metric(
        "sievedb_block_rereads_total",
        Counter,
        Count,
        "",
        "blocks that failed their checksum at the first read",
    ),
    metric("sievedb_unusable_filters_total", Counter, Count, "", "filters found damaged, unknown or wrong"),
    metric(
        "sievedb_filter_audits_total",
        Counter,
        Count,
        "result: right, wrong",
        "\"absent\" answers that were compared with the data",
    ),
    metric(
        "sievedb_residency_changes_total",
        Counter,
        Count,
        "",
        "changes of how much of a filter is in memory",
    ),
    metric(
        "sievedb_memory_bytes",
        Gauge,
        Bytes,
        "part: memtables, builders, tables, filters, histograms, blocks, held",
        "memory by use; held: outside the budget",
    ),
    metric("sievedb_memory_budget_bytes", Gauge, Bytes, "", "the memory budget"),
    metric("sievedb_log_bytes", Gauge, Bytes, "", "lengths of the logs still needed"),
    metric("sievedb_held_file_bytes", Gauge, Bytes, "", "files that only iterators still need"),
    metric("sievedb_open_files", Gauge, Count, "", "open table files"),
    metric("sievedb_snapshots", Gauge, Count, "", "sequence numbers with snapshots"),
    metric("sievedb_background_failing", Gauge, Count, "", "1 while background work fails"),
    metric("sievedb_writing_disabled", Gauge, Count, "", "1 after a failure that ended writing"),
    metric("sievedb_clock_leap_seconds", Gauge, Seconds, "", "leap of the clock that is not confirmed yet"),
    metric(
        "sievedb_calls_total",
        Counter,
        Count,
        "call: the fields of `LatencyStats`",
        "calls and jobs; with `Options::latency_histograms`",
    ),
    metric(
        "sievedb_call_seconds",
        Histogram,
        Seconds,
        "call: the fields of `LatencyStats`",
        "durations of the calls that were timed; with `Options::latency_histograms`",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_every_metric_in_one_table() {
        let mut table = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for Metric { name, kind, labels, meaning, .. } in METRICS {
            let kind = format!("{kind:?}").to_lowercase();
            table.push_str(&format!("| `{name}` | {kind} | {labels} | {meaning} |\n"));
        }
        assert!(include_str!("../README.md").contains(&table), "the table is to be:\n{table}");
    }

    #[test]
    fn names_state_their_units() {
        for Metric { name, kind, unit, .. } in METRICS {
            assert_eq!(name.ends_with("_total"), *kind == Counter, "{name}");
            let is_named = |end: &str| name.trim_end_matches("_total").ends_with(end);
            assert_eq!(is_named("_bytes"), *unit == Bytes, "{name}");
            assert_eq!(is_named("_seconds"), *unit == Seconds, "{name}");
        }
    }
}
