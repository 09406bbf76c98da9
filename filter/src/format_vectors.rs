//! The vectors of filter blocks.

use alloc::vec::Vec;

use super::{Expect, Filter, FilterBuilder, Kind};
use crate::codec::u64_bytes;
use crate::hash::{key_hash, table_hash};
use crate::testing::Vector;

fn number(vector: &Vector, fact: &str) -> u64 {
    u64::from_str_radix(vector.fact(fact), 16).expect("a number in hex")
}

fn keys(vector: &Vector, fact: &str) -> Vec<Vec<u8>> {
    let value = vector.facts(fact).next().unwrap_or_default();
    value.split('"').skip(1).step_by(2).map(|key| key.as_bytes().to_vec()).collect()
}

fn kind(vector: &Vector) -> Kind {
    let number = vector.number("kind");
    let kind = Kind::ALL.into_iter().find(|&kind| kind as u64 == number);
    kind.unwrap_or_else(|| panic!("{} has kind {number}", vector.name))
}

fn check(vector: &Vector, block: &[u8], present: &[Vec<u8>]) {
    let (seed, salt, owner) = (number(vector, "seed"), number(vector, "salt"), vector.id("owner"));
    let filter = Filter::open(block, Expect::table(owner, seed, present.len() as u64)).unwrap();
    filter.verify().unwrap();
    let header = filter.header();
    assert_eq!((header.seed, header.salt, header.owner), (seed, salt, owner));
    assert_eq!(header.kind as u64, vector.number("kind"));
    assert_eq!(header.rate, number(vector, "rate"));
    assert_eq!((header.size, u64::from(header.probes)), (vector.number("size"), vector.number("probes")));

    let absent = keys(vector, "absent");
    assert!(!absent.is_empty());
    for filter in [filter.clone(), filter.portable()] {
        assert!(present.iter().all(|key| filter.may_contain_key(key)));
        assert!(absent.iter().all(|key| !filter.may_contain_key(key)));
    }
    if let Some(first) = present.first() {
        assert_eq!(key_hash(seed, first), number(vector, "first_key_hash"));
        assert_eq!(table_hash(key_hash(seed, first), salt), number(vector, "first_table_hash"));
    }
}

pub fn filter(vector: &Vector) {
    let numbered = vector.facts("numbered_keys").next().map(|_| vector.number("numbered_keys"));
    let present: Vec<_> = match numbered {
        Some(count) => (0..count).map(|key| u64_bytes(key).to_vec()).collect(),
        None => keys(vector, "keys"),
    };
    let bits = vector.fact("bits_per_key").parse().unwrap();
    let (seed, salt, owner) = (number(vector, "seed"), number(vector, "salt"), vector.id("owner"));
    let mut builder = FilterBuilder::new(kind(vector), bits, seed, salt, owner).unwrap();
    if vector.facts("column_groups").next().is_some() {
        builder = builder.column_groups(vector.number("column_groups") as usize);
    }
    present.iter().for_each(|key| builder.add_key(key));
    let block = builder.finish().unwrap();
    let stated = if numbered.is_some() { super::header::HEADER_BYTES } else { block.len() };
    assert_eq!(block[..stated], vector.bytes);
    check(vector, &block, &present);
}
