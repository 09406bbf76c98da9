//! Measures the structures that are built once, that bound values or that list differences: bits a key, rates
//! by formula and measured, times, and forbidden answers, which must be 0.
//!
//! `cargo run --release --example measured [KEYS] [QUERIES]`, with a million keys and ten million queries of
//! present keys by default.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use sievedb_sketches::hash::key_hash;
use sievedb_sketches::{
    Approximator, Decoder, DifferenceSize, Digest, GolombSet, HashCompaction, Iblt, Max, Rateless, Sketch,
    StaticMap,
};

struct Run {
    keys: u64,
    queries: u64,
}

fn hash(key: u64) -> u64 {
    key_hash(7, key.to_string().as_bytes())
}

impl Run {
    /// A row. `wrong` returns whether the answer for a present key is forbidden, `found` whether an absent
    /// key is taken for present.
    fn row(
        &self,
        name: &str,
        bytes: usize,
        build: f64,
        rate: f64,
        wrong: impl Fn(u64, u64) -> bool,
        found: impl Fn(u64) -> bool,
    ) {
        let forbidden =
            (0..self.queries).filter(|query| wrong(query % self.keys, hash(query % self.keys))).count();
        let hashes: Vec<u64> =
            (0..self.queries.min(4_000_000)).map(|query| hash(query + (1 << 40))).collect();
        let start = Instant::now();
        let hits = hashes.iter().filter(|&&hash| black_box(found(hash))).count();
        let nanos = start.elapsed().as_nanos() as f64 / hashes.len() as f64;
        let measured = hits as f64 / hashes.len() as f64;
        let bits = 8.0 * bytes as f64 / self.keys as f64;
        println!(
            "{name:<34} {bits:>9.3} {:>10.5}% {:>10.5}% {build:>9.0} {nanos:>9.1} {forbidden:>10}",
            100.0 * rate,
            100.0 * measured
        );
    }
}

/// The result, and the nanoseconds for each key.
fn timed<T>(keys: u64, make: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let made = make();
    (made, start.elapsed().as_nanos() as f64 / keys as f64)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse());
    let keys: u64 = args.next().transpose()?.unwrap_or(1_000_000);
    let run = Run { keys, queries: args.next().transpose()?.unwrap_or(10_000_000) };
    let hashes: Vec<u64> = (0..keys).map(hash).collect();
    println!("{keys} keys, {} queries of present keys\n", run.queries);
    println!(
        "{:<34} {:>9} {:>11} {:>11} {:>9} {:>9} {:>10}",
        "", "bits/key", "predicted", "measured", "build ns", "query ns", "forbidden"
    );

    for bits in [16, 24] {
        let (table, build) = timed(keys, || {
            let mut table = HashCompaction::with_shape(keys * 100 / 95, bits, 1)?;
            hashes.iter().try_for_each(|&hash| table.insert_hash(hash).map(drop))?;
            Ok::<_, sievedb_sketches::Error>(table)
        });
        let table = table?;
        run.row(
            &format!("HashCompaction, {bits} bits, 95 %"),
            table.encode().len(),
            build,
            table.predicted_rate(),
            |_, hash| !table.contains_hash(hash),
            |hash| table.contains_hash(hash),
        );
    }
    for rate in [0.01, 1.0 / 256.0] {
        let (set, build) = timed(keys, || GolombSet::from_hashes(hashes.clone(), rate, 1));
        let set = set?;
        run.row(
            &format!("GolombSet, {:.3} %", 100.0 * rate),
            set.encode().len(),
            build,
            set.predicted_rate(),
            |_, hash| !set.contains_hash(hash),
            |hash| set.contains_hash(hash),
        );
        let (digest, build) = timed(keys, || Digest::from_hashes(hashes.clone(), rate, 1, 1));
        let digest = digest?;
        run.row(
            &format!("Digest, {:.3} %", 100.0 * rate),
            digest.encode().len(),
            build,
            digest.predicted_rate(),
            |_, hash| !digest.contains_hash(hash),
            |hash| digest.contains_hash(hash),
        );
    }
    for (value_bits, fingerprint_bits) in [(8, 0), (4, 8), (8, 8)] {
        let pairs: Vec<_> =
            hashes.iter().zip(0..).map(|(&hash, key)| (hash, key % (1 << value_bits))).collect();
        let (map, build) = timed(keys, || StaticMap::from_hashes(pairs, value_bits, fingerprint_bits, 1));
        let map = map?;
        run.row(
            &format!("StaticMap, {value_bits} + {fingerprint_bits} bits"),
            map.encode().len(),
            build,
            map.predicted_rate(),
            |key, hash| map.get_hash(hash) != Some(key % (1 << value_bits)),
            |hash| map.get_hash(hash).is_some(),
        );
    }
    let (approximator, build) = timed(keys, || {
        let made = Approximator::<Max>::with_rate(keys, 0.01, 1)?;
        hashes.iter().zip(1..).for_each(|(&hash, value)| made.insert_hash(hash, value));
        Ok::<_, sievedb_sketches::Error>(made)
    });
    let approximator = approximator?;
    run.row(
        "Approximator of u64, 1 %",
        approximator.encode().len(),
        build,
        approximator.predicted_rate(),
        |key, hash| approximator.get_hash(hash) <= key,
        |hash| approximator.get_hash(hash) != 0,
    );
    differences()
}

/// Cells and bytes for each difference, of two sets that have 100,000 items in common.
fn differences() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "\n{:>12} {:>15} {:>15} {:>15} {:>15} {:>12} {:>9}",
        "differences", "rateless cells", "rateless bytes", "iblt cells", "iblt bytes", "estimate", "wrong"
    );
    let item = |number: u64| u128::from(hash(number)) << 64 | u128::from(hash(!number));
    for differences in [10u64, 100, 1000, 10_000] {
        let mine: BTreeSet<u128> = (0..100_000 + differences / 2).map(item).collect();
        let theirs: BTreeSet<u128> =
            (0..100_000).chain(1 << 30..(1 << 30) + differences / 2).map(item).collect();
        let (mut decoder, mut bytes) = (Decoder::new(1), 0);
        let found = loop {
            let range = decoder.cells()..decoder.cells() + (differences / 100).max(1);
            let [one, two] = [&mine, &theirs].map(|items| {
                let mut table = Rateless::new(range.clone(), 1).expect("a range of cells");
                items.iter().for_each(|&item| table.insert(item));
                table
            });
            bytes += one.encode().len() - 72;
            decoder.extend(&one, &two)?;
            if let Some(found) = decoder.finish() {
                break found;
            }
        };
        let wrong = found.mine.iter().filter(|item| !mine.contains(item) || theirs.contains(item)).count()
            + found.theirs.iter().filter(|item| !theirs.contains(item) || mine.contains(item)).count();
        let (mut one, mut two) =
            (Iblt::for_differences(differences, 1)?, Iblt::for_differences(differences, 1)?);
        let (mut size, mut other) = (DifferenceSize::new(1)?, DifferenceSize::new(1)?);
        mine.iter().for_each(|&item| {
            one.insert(item);
            size.insert_hash(item as u64);
        });
        theirs.iter().for_each(|&item| {
            two.insert(item);
            other.insert_hash(item as u64);
        });
        let listed = one.difference(&two)?.map_or(0, |found| found.len() as u64);
        let each = |total: u64| total as f64 / differences as f64;
        println!(
            "{differences:>12} {:>15.3} {:>15.1} {:>15.3} {:>15.1} {:>12.0} {:>9}",
            each(decoder.cells()),
            each(bytes as u64),
            each(one.cells()),
            each(one.encode().len() as u64),
            size.estimate(&other)?,
            wrong as u64 + u64::from(listed != differences && listed != 0)
        );
    }
    Ok(())
}
