//! The vectors of filter blocks.

use super::{Expect, Filter, FilterBuilder, Kind};
use crate::hash::{key_hash, table_hash};
use crate::testing::Vector;

fn number(vector: &Vector, fact: &str) -> u64 {
    u64::from_str_radix(vector.fact(fact), 16).expect("a number in hex")
}

fn keys(vector: &Vector, fact: &str) -> Vec<&'static [u8]> {
    let value = vector.facts(fact).next().unwrap_or_default();
    value.split('"').skip(1).step_by(2).map(str::as_bytes).collect()
}

/// A filter: built from its keys, opened, verified and asked.
pub(crate) fn filter(vector: &Vector) {
    let kind = if vector.number("kind") == 1 { Kind::Bloom } else { Kind::BlockedBloom };
    let bits = vector.fact("bits_per_key").parse().unwrap();
    let (seed, salt, owner) = (number(vector, "seed"), number(vector, "salt"), vector.id("owner"));
    let (present, absent) = (keys(vector, "keys"), keys(vector, "absent"));

    let mut builder = FilterBuilder::new(kind, bits, seed, salt, owner).unwrap();
    present.iter().for_each(|key| builder.add_key(key));
    assert_eq!(builder.finish().unwrap(), vector.bytes);

    let filter = Filter::open(&vector.bytes, Expect::table(owner, seed, present.len() as u64)).unwrap();
    filter.verify().unwrap();
    let header = filter.header();
    assert_eq!((header.seed, header.salt, header.owner), (seed, salt, owner));
    assert_eq!(header.kind as u64, vector.number("kind"));
    assert_eq!(header.rate, number(vector, "rate"));
    assert_eq!((header.size, u64::from(header.probes)), (vector.number("size"), vector.number("probes")));
    assert!(present.iter().all(|key| filter.may_contain_key(key)));
    assert!(!absent.is_empty() && absent.iter().all(|key| !filter.may_contain_key(key)));
    if let Some(first) = present.first() {
        assert_eq!(key_hash(seed, first), number(vector, "first_key_hash"));
        assert_eq!(table_hash(key_hash(seed, first), salt), number(vector, "first_table_hash"));
    }
}
