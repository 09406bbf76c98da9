//! Builds each vector of `format.md` from its parameters, and decodes it.
//!
//! `tests/golden/v1/NAME.bin` keeps a vector's bytes. `SIEVEDB_BLESS=1 cargo test -p sievedb-sketches vectors`, run twice, writes
//! a new vector into the document, then its golden file.

use std::path::PathBuf;

use sievedb_filter::testing::Vector;

use crate::approximator::{Approximator, Max};
use crate::bloom::Bloom;
use crate::counting::Counting;
use crate::cuckoo::Cuckoo;
use crate::difference_size::DifferenceSize;
use crate::digest::Digest;
use crate::dleft::DLeft;
use crate::envelope::reseal;
use crate::expiring::Expiring;
use crate::golomb::GolombSet;
use crate::hash_compaction::HashCompaction;
use crate::iblt::Iblt;
use crate::probes::Hashing;
use crate::rateless::{Decoder, Rateless};
use crate::ring::Ring;
use crate::scalable::Scalable;
use crate::sketch::Sketch;
use crate::spectral::{Method, Spectral};
use crate::stable::Stable;
use crate::static_map::StaticMap;

const DOCUMENT: &str = include_str!("../format.md");

type Make = fn(&Vector) -> Vec<u8>;

const CHECKS: &[(&str, Make)] = &[
    ("bloom", bloom),
    ("counting", counting),
    ("spectral-minimal-increase", spectral),
    ("spectral-recurring-minimum", spectral),
    ("dleft", dleft),
    ("scalable", scalable),
    ("scalable-two-slices", scalable),
    ("stable", stable),
    ("ring", ring),
    ("expiring", expiring),
    ("cuckoo", cuckoo),
    ("hash_compaction", hash_compaction),
    ("golomb", golomb),
    ("static_map", static_map),
    ("approximator", approximator),
    ("iblt", iblt),
    ("rateless", rateless),
    ("difference_size", difference_size),
    ("digest", digest),
];

fn bloom(vector: &Vector) -> Vec<u8> {
    let hashing = Hashing::ALL[vector.number("hashing") as usize - 1];
    let (bits, probes) = (vector.number("bits"), vector.number("probes"));
    let mut bloom = Bloom::with_shape(bits, probes, hashing, seed(vector)).unwrap();
    bloom.extend(keys(vector, "keys"));
    checked(bloom, vector, Bloom::contains)
}

fn counting(vector: &Vector) -> Vec<u8> {
    let (cells, probes) = (vector.number("cells"), vector.number("probes"));
    let mut counting = Counting::with_shape(cells, probes, seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| counting.insert(key));
    checked(counting, vector, Counting::contains)
}

fn spectral(vector: &Vector) -> Vec<u8> {
    let method = Method::ALL[vector.number("method") as usize - 1];
    let (cells, width, probes) = (vector.number("cells"), vector.number("width"), vector.number("probes"));
    let mut spectral = Spectral::with_shape(cells, width, probes, method, seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| spectral.insert(key));
    checked(spectral, vector, Spectral::contains)
}

fn dleft(vector: &Vector) -> Vec<u8> {
    let bits = ["buckets", "remainder_bits", "counter_bits"].map(|fact| vector.number(fact));
    let mut table = DLeft::with_shape(bits[0], bits[1], bits[2], seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| table.insert(key).unwrap());
    checked(table, vector, DLeft::contains)
}

fn scalable(vector: &Vector) -> Vec<u8> {
    let (first, growth) = (vector.number("first_keys"), vector.number("growth"));
    let mut filter = Scalable::with_shape(first, growth, 0.25, 0.5, seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| assert!(!filter.insert(key).unwrap()));
    checked(filter, vector, Scalable::contains)
}

fn stable(vector: &Vector) -> Vec<u8> {
    let shape = ["cells", "width", "probes", "decrements"].map(|fact| vector.number(fact));
    let mut filter = Stable::with_shape(shape[0], shape[1], shape[2], shape[3], seed(vector)).unwrap();
    keys(vector, "stream").iter().for_each(|key| {
        filter.insert(key);
    });
    checked(filter, vector, Stable::contains)
}

fn ring(vector: &Vector) -> Vec<u8> {
    let shape = ["spans", "span", "bits", "probes"].map(|fact| vector.number(fact));
    let mut ring = Ring::with_shape(shape[0], shape[1], shape[2], shape[3], seed(vector)).unwrap();
    (0..).step_by(7).zip(keys(vector, "stream")).for_each(|(now, key)| ring.insert(&key, now).unwrap());
    checked(ring, vector, |ring, key| ring.contains(key, 0))
}

fn expiring(vector: &Vector) -> Vec<u8> {
    let shape = ["cells", "probes", "tick"].map(|fact| vector.number(fact));
    let mut filter = Expiring::with_shape(shape[0], shape[1], shape[2], seed(vector)).unwrap();
    (0..).step_by(7).zip(keys(vector, "stream")).for_each(|(now, key)| filter.insert(&key, now).unwrap());
    checked(filter, vector, |filter, key| filter.contains(key, 0))
}

fn cuckoo(vector: &Vector) -> Vec<u8> {
    let (buckets, width) = (vector.number("buckets"), vector.number("width"));
    let mut filter = Cuckoo::with_shape(buckets, width, seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| filter.insert(key).unwrap());
    checked(filter, vector, Cuckoo::contains)
}

fn hash_compaction(vector: &Vector) -> Vec<u8> {
    let bits = vector.number("signature_bits") as u32;
    let mut table = HashCompaction::with_shape(vector.number("cells"), bits, seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| assert!(table.insert(key).unwrap()));
    checked(table, vector, HashCompaction::contains)
}

fn golomb(vector: &Vector) -> Vec<u8> {
    let rate = 1.0 / vector.number("inverse_rate") as f64;
    let set = GolombSet::build(keys(vector, "keys"), rate, seed(vector)).unwrap();
    assert_eq!(set.range(), vector.number("range"));
    let numbers: Vec<_> = set.numbers().map(|number| number.to_string()).collect();
    assert_eq!(numbers.join(" "), vector.fact("numbers"));
    checked(set, vector, GolombSet::contains)
}

fn static_map(vector: &Vector) -> Vec<u8> {
    let [value_bits, fingerprint_bits] =
        ["value_bits", "fingerprint_bits"].map(|bits| vector.number(bits) as u32);
    let values = || vector.fact("values").split(' ').map(|value| value.parse().unwrap());
    let pairs = keys(vector, "keys").into_iter().zip(values());
    let map = StaticMap::build(pairs, value_bits, fingerprint_bits, seed(vector)).unwrap();
    assert!(keys(vector, "keys").iter().zip(values()).all(|(key, value)| map.get(key) == Some(value)));
    checked(map, vector, |map, key| map.get(key).is_some())
}

fn approximator(vector: &Vector) -> Vec<u8> {
    let (cells, probes) = (vector.number("cells"), vector.number("probes"));
    let approximator = Approximator::<Max>::with_shape(cells, probes, seed(vector)).unwrap();
    let values = vector.fact("values").split(' ').map(|value| value.parse().unwrap());
    keys(vector, "keys").iter().zip(values).for_each(|(key, value)| approximator.insert(key, value));
    checked(approximator, vector, |approximator, key| approximator.get(key) != 0)
}

fn items(vector: &Vector, fact: &str) -> Vec<u128> {
    vector.fact(fact).split(' ').map(|item| u128::from_str_radix(item, 16).unwrap()).collect()
}

fn iblt(vector: &Vector) -> Vec<u8> {
    let mut table = Iblt::with_shape(vector.number("cells"), vector.number("probes"), seed(vector)).unwrap();
    let empty = table.clone();
    items(vector, "items").iter().for_each(|&item| table.insert(item));
    let bytes = table.encode();
    let difference = Iblt::decode(&bytes).unwrap().difference(&empty).unwrap().unwrap();
    assert_eq!(difference.mine, items(vector, "items"));
    bytes
}

fn rateless(vector: &Vector) -> Vec<u8> {
    let range = vector.number("first")..vector.number("first") + vector.number("cells");
    let mut table = Rateless::new(range.clone(), seed(vector)).unwrap();
    items(vector, "items").iter().for_each(|&item| table.insert(item));
    let bytes = table.encode();
    let mut decoder = Decoder::new(seed(vector));
    decoder.extend(&Rateless::decode(&bytes).unwrap(), &Rateless::new(range, seed(vector)).unwrap()).unwrap();
    assert_eq!(decoder.finish().unwrap().mine, items(vector, "items"));
    bytes
}

fn difference_size(vector: &Vector) -> Vec<u8> {
    let mut sketch = DifferenceSize::with_shape(vector.number("cells"), seed(vector)).unwrap();
    keys(vector, "keys").iter().for_each(|key| sketch.insert(key));
    let bytes = sketch.encode();
    assert_eq!(DifferenceSize::decode(&bytes).unwrap().estimate(&sketch), Ok(0.0));
    bytes
}

fn digest(vector: &Vector) -> Vec<u8> {
    let rate = 1.0 / vector.number("inverse_rate") as f64;
    let digest = Digest::build(keys(vector, "keys"), rate, vector.number("time"), seed(vector)).unwrap();
    checked(digest, vector, Digest::contains)
}

/// Returns the encoding after it was decoded and probed.
fn checked<S: Sketch>(sketch: S, vector: &Vector, contains: fn(&S, &Vec<u8>) -> bool) -> Vec<u8> {
    let bytes = sketch.encode();
    let decoded = S::decode(&bytes).unwrap();
    let (present, absent) = (keys(vector, "keys"), keys(vector, "absent"));
    assert!(!present.is_empty() && !absent.is_empty(), "{}", vector.name);
    assert!(present.iter().all(|key| contains(&decoded, key)), "{} lacks one of {present:?}", vector.name);
    let found: Vec<_> = absent
        .iter()
        .filter(|key| contains(&decoded, key))
        .map(|key| key.escape_ascii().to_string())
        .collect();
    assert!(found.is_empty(), "{} has {found:?}", vector.name);
    bytes
}

fn seed(vector: &Vector) -> u64 {
    u64::from_str_radix(vector.fact("seed"), 16).expect("a number in hex")
}

fn keys(vector: &Vector, fact: &str) -> Vec<Vec<u8>> {
    let value = vector.facts(fact).next().unwrap_or_default();
    value.split('"').skip(1).step_by(2).map(|key| key.as_bytes().to_vec()).collect()
}

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "v1", &format!("{name}.bin")].iter().collect()
}

#[test]
fn every_vector_of_the_document_is_what_the_code_makes() {
    let vectors = Vector::all_of(DOCUMENT);
    let names: Vec<_> = vectors.iter().map(|vector| vector.name).collect();
    assert_eq!(names, CHECKS.iter().map(|check| check.0).collect::<Vec<_>>());
    for (vector, &(name, make)) in vectors.iter().zip(CHECKS) {
        let made = make(vector);
        let lines: Vec<_> = made.chunks(16).map(spaced).collect();
        if vector.bytes.is_empty() && blessing() {
            fill(name, &lines.join("\n"));
            continue;
        }
        assert!(made == vector.bytes, "{name}: the code makes\n{}", lines.join("\n"));
    }
}

fn blessing() -> bool {
    std::env::var_os("SIEVEDB_BLESS").is_some()
}

fn spaced(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

fn fill(name: &str, lines: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/format.md");
    let document = std::fs::read_to_string(path).unwrap();
    let (before, vector) = document.split_once(&format!("```vector {name}\n")).unwrap();
    let (facts, after) = vector.split_once("bytes:\n").unwrap();
    let filled = format!("{before}```vector {name}\n{facts}bytes:\n{lines}\n{after}");
    std::fs::write(path, filled).unwrap();
}

#[test]
fn golden_files_are_the_vectors_and_decode() {
    let vectors = Vector::all_of(DOCUMENT);
    for vector in vectors.iter().filter(|vector| !(blessing() && vector.bytes.is_empty())) {
        let path = golden(vector.name);
        if !path.exists() && blessing() {
            std::fs::write(&path, &vector.bytes).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(bytes, vector.bytes, "{}", vector.name);
        crate::describe(&bytes).unwrap();
    }
    let files = std::fs::read_dir(golden("x").parent().unwrap()).unwrap().count();
    assert_eq!(files, vectors.len(), "a golden file is left over");
}

#[test]
fn every_kind_has_a_vector() {
    let kinds: Vec<_> = Vector::all_of(DOCUMENT).iter().map(|vector| vector.bytes[32]).collect();
    assert!(crate::Kind::ALL.iter().all(|&kind| kinds.contains(&(kind as u8))));
    for vector in Vector::all_of(DOCUMENT) {
        let mut bytes = vector.bytes.clone();
        reseal(&mut bytes);
        assert_eq!(bytes, vector.bytes);
    }
}
