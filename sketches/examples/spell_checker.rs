//! A spell checker: a dictionary in a few bits per word, and the errors that it misses.
//!
//! Run `cargo run --release --example spell_checker [WORDS]`, with a file of one word per line. Without a file it generates
//! words.

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Instant;

use sievedb_sketches::{Bloom, GolombSet, Sketch};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = match std::env::args().nth(1) {
        Some(path) => std::fs::read_to_string(path)?.lines().map(str::to_owned).collect(),
        None => made_up(100_000),
    };
    let exact: HashSet<&str> = words.iter().map(String::as_str).collect();
    let text: usize = exact.iter().map(|word| word.len()).sum();
    let mut sorted: Vec<&str> = exact.iter().copied().collect();
    sorted.sort_unstable();

    // Two neighbouring letters exchanged.
    let wrong: Vec<String> = sorted.iter().filter_map(|word| misspelt(word)).collect();
    let wrong: Vec<&str> = wrong.iter().map(String::as_str).filter(|word| !exact.contains(word)).collect();
    println!("{} words of {text} letters, {} misspellings\n", sorted.len(), wrong.len());
    println!("{:<30} {:>10} {:>10} {:>16} {:>9}", "", "bytes", "bits/word", "errors missed", "ns/word");

    // A table with the capacity of the hash set, plus the letters.
    let table = exact.capacity() * (size_of::<&str>() + 1) + text;
    report("hash table of the words", table, &wrong, sorted.len(), |word| exact.contains(word));
    let array = sorted.len() * size_of::<&str>() + text;
    report("sorted array of the words", array, &wrong, sorted.len(), |word| {
        sorted.binary_search(&word).is_ok()
    });
    for rate in [0.1, 0.01, 0.001, 0.000_1] {
        let mut bloom = Bloom::with_rate(sorted.len() as u64, rate, 1985)?;
        bloom.extend(&sorted);
        assert!(sorted.iter().all(|word| bloom.contains(word)), "a correct word is never reported");
        let name = format!("Bloom filter, {} %", 100.0 * rate);
        report(&name, bloom.encode().len(), &wrong, sorted.len(), |word| bloom.contains(word));
    }
    for rate in [0.01, 0.000_1] {
        let set = GolombSet::build(&sorted, rate, 1985)?;
        let name = format!("Golomb-coded set, {} %", 100.0 * rate);
        report(&name, set.encode().len(), &wrong, sorted.len(), |word| set.contains(word));
    }
    Ok(())
}

fn report(name: &str, bytes: usize, wrong: &[&str], words: usize, contains: impl Fn(&str) -> bool) {
    let start = Instant::now();
    let missed = wrong.iter().filter(|word| black_box(contains(word))).count();
    let nanos = start.elapsed().as_nanos() as f64 / wrong.len().max(1) as f64;
    let bits = 8.0 * bytes as f64 / words as f64;
    let share = 100.0 * missed as f64 / wrong.len().max(1) as f64;
    println!("{name:<30} {bytes:>10} {bits:>10.2} {missed:>7} {share:>7.3}% {nanos:>9.0}");
}

fn misspelt(word: &str) -> Option<String> {
    let mut letters: Vec<char> = word.chars().collect();
    let at = (0..letters.len().checked_sub(1)?).rev().find(|&at| letters[at] != letters[at + 1])?;
    letters.swap(at, at + 1);
    Some(letters.into_iter().collect())
}

fn made_up(count: usize) -> Vec<String> {
    let (starts, vowels) = (
        ["b", "cr", "d", "fl", "g", "h", "k", "m", "n", "pr", "s", "st", "t", "v", "w"],
        ["a", "e", "i", "o", "u", "ea", "ou"],
    );
    let mut state = 1985u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut word = || {
        let syllables = 2 + below(3);
        (0..syllables).map(|_| [starts[below(15)], vowels[below(7)]].concat()).collect::<String>()
    };
    let mut words = HashSet::new();
    while words.len() < count {
        words.insert(word());
    }
    words.into_iter().collect()
}
