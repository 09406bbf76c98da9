//! Options in a configuration file, with the feature `serde`. Fields have the names of the setters. A missing field
//! gets its default.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::options::{BudgetSource, KeyspaceOptions, Options};

#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SerializedOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_budget: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memtable_budget: Option<usize>,
    read_only: bool,
    create_if_missing: bool,
    create_among_other_files: bool,
    background_threads: usize,
    log_bytes_max: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reserve_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_files_max: Option<usize>,
    strict_filters: bool,
    audit_absent: u64,
    latency_histograms: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    default_keyspace: Option<KeyspaceOptions>,
}

impl Default for SerializedOptions {
    fn default() -> Self {
        Options::new().into()
    }
}

impl From<Options> for SerializedOptions {
    fn from(options: Options) -> Self {
        let is_set = options.budget_source == BudgetSource::Option;
        Self {
            memory_budget: is_set.then_some(options.memory_budget),
            memtable_budget: options.memtable_budget,
            read_only: options.reader.is_some(),
            create_if_missing: options.create,
            create_among_other_files: options.create_among_other_files,
            background_threads: options.background_threads,
            log_bytes_max: options.log_bytes_max,
            reserve_bytes: options.reserve_bytes,
            open_files_max: options.open_files_max,
            strict_filters: options.strict_filters,
            audit_absent: options.audit_absent,
            latency_histograms: options.latency_histograms,
            default_keyspace: options.default_keyspace,
        }
    }
}

impl From<SerializedOptions> for Options {
    fn from(options: SerializedOptions) -> Self {
        let default = Self::new();
        let default = match options.memory_budget {
            Some(bytes) => default.memory_budget(bytes),
            None => default,
        };
        let default = if options.read_only { default.read_only() } else { default };
        Self {
            memtable_budget: options.memtable_budget,
            create: options.create_if_missing,
            create_among_other_files: options.create_among_other_files,
            background_threads: options.background_threads,
            log_bytes_max: options.log_bytes_max,
            reserve_bytes: options.reserve_bytes,
            open_files_max: options.open_files_max,
            strict_filters: options.strict_filters,
            audit_absent: options.audit_absent,
            latency_histograms: options.latency_histograms,
            default_keyspace: options.default_keyspace,
            ..default
        }
    }
}

impl Serialize for Options {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SerializedOptions::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Options {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SerializedOptions::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{FilterAllocation, FilterKind, FilterPolicy};
    use crate::table::Compression;

    #[test]
    fn options_are_read_from_the_names_of_their_methods_and_what_is_left_out_has_its_default() {
        let options: Options = serde_json::from_str(
            r#"{"memory_budget": 67108864, "create_if_missing": false, "latency_histograms": true, "default_keyspace":
                {"filter": {"kind": "blocked_bloom", "size": {"bits_per_key": 12.5}}, "block_bytes": 8192}}"#,
        )
        .unwrap();
        let policy = FilterPolicy::new(FilterKind::BlockedBloom).bits_per_key(12.5);
        let keyspace = KeyspaceOptions::new().filter(policy).block_bytes(8192);
        let expected =
            Options::new().memory_budget(64 << 20).create_if_missing(false).latency_histograms(true);
        assert_eq!(format!("{options:?}"), format!("{:?}", expected.default_keyspace(keyspace)));
        let default: Options = serde_json::from_str("{}").unwrap();
        assert_eq!(format!("{default:?}"), format!("{:?}", Options::new()));
    }

    #[test]
    fn every_setting_survives_being_written_and_read() {
        let policy = FilterPolicy::new(FilterKind::Ribbon).false_positive_rate(0.001).expect_hits(true);
        let keyspace = KeyspaceOptions::new()
            .filter(policy.allocation(FilterAllocation::Uniform))
            .block_bytes(1024)
            .compression(Compression::None)
            .compression_at(3, Compression::Lz4)
            .table_bytes(1 << 20)
            .memtable_bytes(1 << 21)
            .l0_runs(7)
            .level_base_bytes(1 << 22)
            .level_ratio(8);
        let options = Options::new()
            .memory_budget(32 << 20)
            .memtable_budget(4 << 20)
            .read_only()
            .create_if_missing(false)
            .create_among_other_files(true)
            .background_threads(3)
            .log_bytes_max(5)
            .reserve_bytes(6)
            .open_files_max(77)
            .strict_filters(true)
            .audit_absent(8)
            .latency_histograms(true)
            .default_keyspace(keyspace.clone());
        let text = serde_json::to_string(&options).unwrap();
        let read: Options = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{options:?}"), "{text}");
        let text = serde_json::to_string(&keyspace).unwrap();
        assert_eq!(serde_json::from_str::<KeyspaceOptions>(&text).unwrap(), keyspace, "{text}");
    }

    #[test]
    fn a_setting_that_does_not_exist_is_an_error() {
        for text in [r#"{"memory": 1}"#, r#"{"default_keyspace": {"block": 1}}"#] {
            assert!(serde_json::from_str::<Options>(text).is_err(), "{text}");
        }
    }
}
