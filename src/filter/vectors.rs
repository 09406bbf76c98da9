//! The test vectors of the format document, read from the document itself.

use std::collections::HashMap;
use std::path::Path;

use super::{Expect, Filter, FilterBuilder, Kind};
use crate::hash::{key_hash, table_hash};

/// The format document: whole, or as the part that describes filters.
fn document() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ["format.md", "format.d/40-filter.md"]
        .iter()
        .filter_map(|name| std::fs::read_to_string(root.join(name)).ok())
        .find(|text| text.contains("```vector filter-"))
        .expect("the format document has vectors of filters")
}

struct Vector {
    facts: HashMap<String, String>,
    bytes: Vec<u8>,
}

impl Vector {
    fn parse(text: &str) -> Self {
        let (facts, bytes) = text.split_once("bytes:").unwrap();
        let facts = facts.lines().filter_map(|line| line.split_once(" = "));
        let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let bytes = bytes.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        Self { facts, bytes }
    }

    fn hex(&self, fact: &str) -> u64 {
        u64::from_str_radix(&self.facts[fact], 16).unwrap()
    }

    fn keys(&self, fact: &str) -> Vec<Vec<u8>> {
        if let Some(count) = self.facts.get("numbered_keys").filter(|_| fact == "keys") {
            return (0..count.parse().unwrap()).map(|key: u64| key.to_le_bytes().to_vec()).collect();
        }
        let value = self.facts.get(fact).map_or("", String::as_str);
        value.split('"').skip(1).step_by(2).map(|key| key.as_bytes().to_vec()).collect()
    }
}

#[test]
fn the_vectors_of_the_format_document_are_what_is_written_and_read() {
    let document = document();
    let vectors: Vec<Vector> = document
        .split("```vector filter-")
        .skip(1)
        .map(|text| Vector::parse(text.split("```").next().unwrap()))
        .collect();
    assert!(vectors.len() >= 3);
    for vector in vectors {
        let kind = match vector.facts["kind"].as_str() {
            "1" => Kind::Bloom,
            "2" => Kind::BlockedBloom,
            _ => Kind::Ribbon,
        };
        let bits = vector.facts["bits_per_key"].parse().unwrap();
        let owner = u128::from_str_radix(&vector.facts["owner"], 16).unwrap().to_be_bytes();
        let (seed, salt, keys) = (vector.hex("seed"), vector.hex("salt"), vector.keys("keys"));

        let mut builder = FilterBuilder::new(kind, bits, seed, salt, owner).unwrap();
        if let Some(groups) = vector.facts.get("column_groups") {
            builder = builder.column_groups(groups.parse().unwrap());
        }
        keys.iter().for_each(|key| builder.add_key(key));
        let bytes = builder.finish().unwrap();
        // Of a long block the vector has the header, whose checksums vouch for the rest.
        assert_eq!(bytes[..vector.bytes.len()], vector.bytes);
        assert!(bytes.len() == vector.bytes.len() || vector.facts.contains_key("numbered_keys"));

        let filter = Filter::open(&bytes, Expect::table(owner, seed, keys.len() as u64)).unwrap();
        filter.verify().unwrap();
        assert_eq!(filter.header().rate, vector.hex("rate"));
        assert_eq!(filter.header().size.to_string(), vector.facts["size"]);
        assert_eq!(filter.header().probes.to_string(), vector.facts["probes"]);
        assert!(keys.iter().all(|key| filter.may_contain_key(key)));
        let portable = filter.clone().portable();
        assert!(keys.iter().all(|key| portable.may_contain_key(key)));
        let absent = vector.keys("absent");
        assert!(!absent.is_empty() && absent.iter().all(|key| !filter.may_contain_key(key)));
        if let Some(first) = keys.first() {
            assert_eq!(key_hash(seed, first), vector.hex("first_key_hash"));
            assert_eq!(table_hash(key_hash(seed, first), salt), vector.hex("first_table_hash"));
        }
    }
}
