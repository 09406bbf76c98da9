//! Runs seeds, changed seeds and findings in `cargo test`. `SIEVEDB_SEEDS=1` writes the seeds to `fuzz/corpus`;
//! `SIEVEDB_FUZZ_ROUNDS` sets the rounds.

use std::fs;
use std::path::PathBuf;

use crate::testing::hash;

type Target = fn(&[u8]);

/// Name, function, golden files, seed of the operations.
const TARGETS: &[(&str, Target, &[&str], &[u8])] = &[
    (
        "bloom",
        super::bloom,
        &["bloom"],
        &[200, 0, 3, 2, 9, 0, 7, 1, 1, 7, 1, 0, 8, 5, 1, 9, 5, 0, 7, 7, 0, 7, 5, 1, 3, 0, 1, 4, 5],
    ),
    ("counting", super::counting, &["counting"], &[50, 0, 3, 9, 0, 7, 0, 7, 0, 8, 2, 7, 2, 9, 3, 0, 2, 7]),
    (
        "spectral",
        super::spectral,
        &["spectral-minimal-increase", "spectral-recurring-minimum"],
        &[50, 0, 3, 7, 1, 9, 0, 7, 0, 7, 0, 8, 2, 7, 3, 0, 2, 7],
    ),
    ("dleft", super::dleft, &["dleft"], &[2, 3, 1, 9, 0, 7, 0, 7, 0, 8, 2, 7, 2, 9, 3, 0, 2, 7]),
    ("scalable", super::scalable, &["scalable"], &[3, 1, 50, 100, 9, 1, 7, 0, 1, 8, 1, 0, 0, 0, 2, 9, 9]),
    ("stable", super::stable, &["stable"], &[3, 5, 9, 0, 1, 9, 1, 7, 1, 8, 0, 7, 1, 7, 2, 8]),
    ("ring", super::ring, &["ring"], &[3, 9, 1, 9, 20, 2, 1, 20, 2, 3, 99, 2, 5, 3, 0, 0, 245, 200, 0, 3, 1]),
    (
        "expiring",
        super::expiring,
        &["expiring"],
        &[9, 1, 9, 20, 2, 1, 20, 2, 3, 99, 1, 5, 3, 0, 0, 245, 200, 0, 3, 1],
    ),
    ("cuckoo", super::cuckoo, &["cuckoo"], &[2, 6, 9, 0, 7, 0, 7, 0, 8, 2, 7, 2, 9, 3, 0, 2, 7]),
    (
        "hash_compaction",
        super::hash_compaction,
        &["hash_compaction"],
        &[7, 9, 1, 1, 5, 0, 1, 6, 1, 0, 0, 0, 1, 5, 0, 2, 9, 3],
    ),
    ("golomb", super::golomb, &["golomb"], &[98, 0, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
    ("static_map", super::static_map, &["static_map"], &[7, 8, 1, 1, 0, 9, 0, 2, 0, 7, 0, 3, 0, 5, 0]),
    (
        "approximator",
        super::approximator,
        &["approximator"],
        &[99, 2, 1, 0, 7, 9, 0, 1, 1, 8, 3, 0, 0, 1, 7, 5, 0, 3],
    ),
    ("iblt", super::iblt, &["iblt"], &[30, 1, 9, 0, 1, 0, 2, 1, 2, 1, 3, 0, 2]),
    ("difference_size", super::difference_size, &["difference_size"], &[9, 1, 0, 5, 1, 5, 0, 6, 1, 7, 0, 6]),
    ("digest", super::digest, &["digest"], &[50, 0, 7, 0, 1, 1, 2, 3, 4, 5, 6, 1, 2]),
    ("rateless", super::rateless, &["rateless"], &[7, 3, 0, 1, 0, 0, 2, 0, 1, 2, 0, 1, 3, 0]),
];

fn path(parts: &[&str]) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR")].iter().chain(parts).collect()
}

fn seeds(goldens: &[&str], operations: &[u8]) -> Vec<Vec<u8>> {
    let many: Vec<u8> = (0..600).map(|at| hash(at) as u8).collect();
    let mut seeds = vec![[&[2], operations].concat(), [&[2], operations, &many].concat()];
    for name in goldens {
        let bytes = fs::read(path(&["tests", "golden", "v1", &format!("{name}.bin")])).unwrap();
        seeds.push([&[0], &bytes[..]].concat());
        seeds.push([&[1], &bytes[..]].concat());
    }
    seeds
}

#[test]
fn every_seed_keeps_the_promises_of_its_target() {
    for &(name, target, goldens, operations) in TARGETS {
        for (number, seed) in seeds(goldens, operations).iter().enumerate() {
            target(seed);
            if std::env::var_os("SIEVEDB_SEEDS").is_some() {
                let folder = path(&["..", "fuzz", "corpus", &format!("sketch_{name}")]);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join(format!("seed-{number}")), seed).unwrap();
            }
        }
    }
}

fn changed(seed: &[u8], round: u64) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    let mut choice = round;
    let mut below = |n: usize| {
        choice = hash(choice);
        choice as usize % n.max(1)
    };
    for _ in 0..1 + below(4) {
        let reach = if below(2) == 0 { bytes.len() } else { bytes.len().min(64) };
        let at = below(reach + 1);
        let len = below(9).min(bytes.len() - at);
        match below(5) {
            0 => bytes[at..at + len].iter_mut().for_each(|byte| *byte = below(256) as u8),
            1 => bytes[at..at + len].fill([0, 1, 0x7f, 0x80, 0xff][below(5)]),
            2 => drop(bytes.drain(at..at + len)),
            3 => {
                let piece = bytes[at..at + len].repeat(1 + below(8));
                bytes.splice(at..at, piece);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

#[test]
fn seeds_that_were_changed_keep_the_promises_of_their_target() {
    let rounds: u64 =
        std::env::var("SIEVEDB_FUZZ_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"));
    for &(name, target, goldens, operations) in TARGETS {
        let seeds = seeds(goldens, operations);
        for round in 0..1000 * rounds {
            let input = changed(&seeds[round as usize % seeds.len()], round);
            if let Err(panic) = std::panic::catch_unwind(|| target(&input)) {
                println!("{name}: {input:?}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Target, input, problem.
const FINDINGS: [(&str, &[u8], &str); 0] = [];

#[test]
fn everything_that_was_found_stays_mended() {
    for (name, input, what) in FINDINGS {
        println!("{name}: {what}");
        TARGETS.iter().find(|target| target.0 == name).unwrap().1(input);
    }
}

#[test]
fn every_target_and_kind_has_a_line_in_the_fuzzer() {
    assert!(TARGETS.len() >= crate::Kind::ALL.len());
    let manifest = fs::read_to_string(path(&["..", "fuzz", "Cargo.toml"])).unwrap();
    for (name, ..) in TARGETS {
        let source =
            fs::read_to_string(path(&["..", "fuzz", "fuzz_targets", &format!("sketch_{name}.rs")])).unwrap();
        assert!(source.contains(&format!("sievedb_sketches::fuzzing::{name}(data)")), "{name}");
        assert!(manifest.contains(&format!("name = \"sketch_{name}\"")), "{name}");
    }
}
