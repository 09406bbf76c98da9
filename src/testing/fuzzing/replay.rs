//! Runs all seeds and findings, and seeds with small changes, in `SIEVEDB_FUZZ_ROUNDS` rounds.

use std::fs;
use std::path::PathBuf;

use super::seeds;

type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 10] = [
    ("filter", super::filter),
    ("data_block", super::data_block),
    ("index_block", super::index_block),
    ("log", super::log),
    ("manifest", super::manifest),
    ("batch", super::batch),
    ("table", super::table),
    ("dump", super::dump),
    ("store", super::store),
    ("ops", super::ops),
];

/// The target, the file in `tests/corpus`, and the defect.
const FINDINGS: [(&str, &str, &str); 8] = [
    (
        "dump",
        "lock-by-its-name",
        "the target forgot the name of an empty file when it compared two views of it",
    ),
    ("dump", "root-of-another-length", "the printer accepted a footer with a wrong length of the root index"),
    ("dump", "footer-of-other-entries", "the printer accepted a footer that disagrees with the properties"),
    (
        "dump",
        "properties-of-another-length",
        "the printer called a table intact whose footer has a wrong length of the properties",
    ),
    ("table", "separators-in-disorder", "the keys that damage concerns were reported in descending order"),
    (
        "table",
        "denied-keys-in-disorder",
        "the keys that a filter denies were reported in descending order where the table has them out of order",
    ),
    ("log", "damage-behind-the-cut", "the target took bytes after the end of the file for a change"),
    (
        "store",
        "without-a-default-keyspace",
        "verification accepted a manifest whose keyspaces no open accepts",
    ),
];

fn path(parts: &[&str]) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR")].iter().chain(parts).collect()
}

fn target(name: &str) -> Target {
    TARGETS.iter().find(|target| target.0 == name).unwrap_or_else(|| panic!("no target {name}")).1
}

#[test]
fn every_seed_keeps_the_promises_of_its_target() {
    for seed in seeds::all() {
        println!("{} {}", seed.target, seed.name);
        target(seed.target)(&seed.bytes);
        if std::env::var_os("SIEVEDB_SEEDS").is_some() {
            let folder = path(&["fuzz", "corpus", seed.target]);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("seed-{}", seed.name)), &seed.bytes).unwrap();
        }
    }
}

#[test]
fn every_target_has_seeds_and_a_line_in_the_fuzzer() {
    let seeds = seeds::all();
    for (name, _) in TARGETS {
        assert!(seeds.iter().any(|seed| seed.target == name), "no seed for {name}");
        let source = fs::read_to_string(path(&["fuzz", "fuzz_targets", &format!("{name}.rs")])).unwrap();
        assert!(source.contains(&format!("sievedb::fuzzing::{name}(data)")), "{name}");
    }
    let sources = fs::read_dir(path(&["fuzz", "fuzz_targets"])).unwrap();
    let source = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.unwrap().path()).unwrap();
    let ours = sources.map(source).filter(|source| source.contains("sievedb::fuzzing::"));
    assert_eq!(ours.count(), TARGETS.len());
}

fn changed(seed: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + rng.below(4) {
        let reach = if rng.below(2) == 0 { bytes.len() } else { bytes.len().min(64) };
        let at = rng.below(reach + 1);
        let len = rng.below(9).min(bytes.len() - at);
        match rng.below(6) {
            0 => bytes[at..at + len].iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
            1 => bytes[at..at + len.min(1)].iter_mut().for_each(|byte| *byte ^= 1 << rng.below(8)),
            2 => bytes[at..at + len].fill([0, 1, 0x7f, 0x80, 0xff][rng.below(5)]),
            3 => drop(bytes.drain(at..at + len)),
            4 => {
                let piece = bytes[at..at + len].repeat(1 + rng.below(8));
                bytes.splice(at..at, piece);
            }
            _ => {
                bytes.truncate(at);
                bytes.extend_from_slice(&other[rng.below(other.len() + 1)..]);
            }
        }
    }
    bytes
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

#[test]
fn seeds_that_were_changed_keep_the_promises_of_their_target() {
    let rounds = std::env::var("SIEVEDB_FUZZ_ROUNDS").map_or(1, |rounds| rounds.parse().expect("a number"));
    let seeds = seeds::all();
    for (name, target) in TARGETS {
        let seeds: Vec<_> = seeds.iter().filter(|seed| seed.target == name).collect();
        let inputs = match name {
            "store" => 60,
            "ops" => 60,
            "table" | "dump" => 200,
            _ => 2000,
        };
        for round in 0..inputs * rounds {
            let mut rng = Rng(round);
            let (seed, other) = (seeds[rng.below(seeds.len())], seeds[rng.below(seeds.len())]);
            let input = changed(&seed.bytes, &other.bytes, &mut rng);
            let ran = std::panic::catch_unwind(|| target(&input));
            if let Err(panic) = ran {
                println!("{name}: input {round}, made from {}, of {} bytes", seed.name, input.len());
                if std::env::var_os("SIEVEDB_FUZZ_ROUNDS").is_some() {
                    let folder = path(&["fuzz", "artifacts", name]);
                    fs::create_dir_all(&folder).unwrap();
                    fs::write(folder.join(format!("round-{round}")), &input).unwrap();
                }
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn every_finding_stays_fixed() {
    for (name, file, what) in FINDINGS {
        println!("{name}/{file}: {what}");
        target(name)(&fs::read(path(&["tests", "corpus", name, file])).unwrap());
    }
}

#[test]
fn every_file_of_the_corpus_has_its_line_here() {
    for (name, _) in TARGETS {
        let Ok(files) = fs::read_dir(path(&["tests", "corpus", name])) else { continue };
        for file in files {
            let file = file.unwrap().file_name().into_string().unwrap();
            assert!(FINDINGS.iter().any(|found| (found.0, found.1) == (name, &file)), "{name}/{file}");
        }
    }
}
