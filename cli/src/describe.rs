//! Options of a keyspace as text.

use std::time::Duration;

use serde_json::Value;
use sievedb::filter::FilterSize;
use sievedb::{FilterAllocation, FilterKind, FilterPolicy, KeyspaceOptions};

use crate::{units, window};

pub(crate) fn filter(policy: &FilterPolicy) -> String {
    let kind = match policy.kind {
        FilterKind::None => return "none".into(),
        FilterKind::Auto => "auto",
        FilterKind::Bloom => "bloom",
        FilterKind::BlockedBloom => "blocked-bloom",
        FilterKind::Ribbon => "ribbon",
        _ => "unknown",
    };
    match policy.size {
        FilterSize::BitsPerKey(bits) => format!("{kind}, {bits} bits"),
        FilterSize::FalsePositiveRate(rate) => format!("{kind}, {}", units::share(rate)),
        _ => kind.into(),
    }
}

pub(crate) fn policy(policy: &FilterPolicy) -> String {
    if policy.kind == FilterKind::None {
        return "none".into();
    }
    let size = match policy.size {
        FilterSize::BitsPerKey(_) => " per key",
        _ => " false positives",
    };
    let allocation = match policy.allocation {
        FilterAllocation::Uniform => "the same on every level",
        _ => "more where they save most reads",
    };
    let hits = if policy.expect_hits { ", for present keys" } else { "" };
    format!("{}{size}, {allocation}{hits}", filter(policy))
}

pub(crate) fn options(options: &KeyspaceOptions) -> String {
    let fields = to_json(options);
    let bytes = |name: &str| match fields[name].as_u64() {
        None | Some(0) => format!("{name} auto"),
        Some(bytes) => format!("{name} {}", units::bytes(bytes)),
    };
    let levels = fields["compression"].as_array().map_or(&[][..], Vec::as_slice);
    let levels: Vec<&str> = levels.iter().filter_map(Value::as_str).collect();
    let ttl = match serde_json::from_value::<Option<Duration>>(fields["ttl"].clone()) {
        Ok(Some(ttl)) => format!("ttl {} in {} buckets, ", window::length(ttl), fields["ttl_buckets"]),
        _ => String::new(),
    };
    format!(
        "{ttl}{}, {}, {}, {}, l0_runs {}, level_ratio {}, compression {}",
        bytes("block_bytes"),
        bytes("table_bytes"),
        bytes("memtable_bytes"),
        bytes("level_base_bytes"),
        fields["l0_runs"],
        fields["level_ratio"],
        levels.join(" ")
    )
}

pub(crate) fn to_json(options: &KeyspaceOptions) -> Value {
    serde_json::to_value(options).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_options_are_described_as_they_were_set() {
        let uniform = |kind| FilterPolicy::new(kind).allocation(FilterAllocation::Uniform);
        assert_eq!(filter(&FilterPolicy::default()), "auto, 10 bits");
        assert_eq!(policy(&FilterPolicy::new(FilterKind::None)), "none");
        assert_eq!(
            policy(&FilterPolicy::new(FilterKind::Ribbon).bits_per_key(7.5)),
            "ribbon, 7.5 bits per key, more where they save most reads"
        );
        assert_eq!(
            policy(&uniform(FilterKind::BlockedBloom).false_positive_rate(0.001).expect_hits(true)),
            "blocked-bloom, 0.100 % false positives, the same on every level, for present keys"
        );
        assert_eq!(
            options(&KeyspaceOptions::new().memtable_bytes(1 << 20)),
            "block_bytes 4.00 KiB, table_bytes 64.00 MiB, memtable_bytes 1.00 MiB, level_base_bytes auto, l0_runs 4, \
             level_ratio 10, compression none none lz4 lz4 lz4 lz4 lz4"
        );
        let day = KeyspaceOptions::new().ttl(Duration::from_secs(86_400)).ttl_buckets(12);
        assert!(options(&day).starts_with("ttl 1d in 12 buckets, block_bytes "), "{}", options(&day));
    }
}
