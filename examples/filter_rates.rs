//! Measures the filters for `docs/filter-rates.md`, and searches for false negatives.
//!
//! ```text
//! cargo run --release --example filter_rates > docs/filter-rates.md
//! cargo run --release --example filter_rates -- false-negatives 1000000000
//! ```
//!
//! Seeds are fixed: the figures are the same on every machine.

use std::error::Error;

use sievedb::filter::{AlignedBytes, Expect, Filter, FilterBuilder, FilterPlan, Kind};

const OWNER: [u8; 16] = *b"filter-rates ...";
const SEED: u64 = 1;

const KEYS: u64 = 200_000;

const BATCH: u64 = 4096;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => tables(),
        ["false-negatives", probes] => false_negatives(probes.parse()?),
        _ => Err("usage: filter_rates [false-negatives PROBES]".into()),
    }
}

fn hash(number: u64) -> u64 {
    let mut hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

fn build(builder: FilterBuilder, keys: u64) -> Result<Filter<AlignedBytes>> {
    let mut builder = builder;
    (0..keys).for_each(|key| builder.add_hash(hash(key)));
    let bytes = AlignedBytes::copy_of(&builder.finish()?);
    Ok(Filter::open(bytes, Expect::table(OWNER, SEED, keys))?)
}

/// The share of "maybe" among absent keys, from about 4000 such answers or 10^8 probes.
fn measure<B: AsRef<[u8]>>(filter: &Filter<B>) -> f64 {
    let probed = (4000.0 / filter.predicted_rate()).clamp(1e6, 1e8) as u64;
    let mut maybes = 0;
    let mut answers = vec![false; BATCH as usize];
    for first in (0..probed).step_by(BATCH as usize) {
        let hashes: Vec<u64> = (first..first + BATCH).map(|key| hash(key + (1 << 40))).collect();
        filter.may_contain_many(&hashes, &mut answers);
        maybes += answers.iter().filter(|&&maybe| maybe).count();
    }
    maybes as f64 / (probed.div_ceil(BATCH) * BATCH) as f64
}

fn tables() -> Result<()> {
    println!("# False-positive rates\n");
    println!(
        "Made by `cargo run --release --example filter_rates > docs/filter-rates.md`, from fixed seeds."
    );
    println!(
        "*Formula* is the theoretical rate of a large filter of that size, *predicted* the rate in the filter's"
    );
    println!(
        "header, computed from its bits, *measured* the share of absent keys for which it answered \"maybe\"."
    );
    println!(
        "10^6 to 10^8 keys were probed, for about 4000 false positives; fewer at rates under 4 · 10^-5."
    );
    println!("Each filter has {KEYS} keys.\n");
    for kind in Kind::ALL {
        println!("## {kind:?}\n");
        println!("| bits per key | probes | formula | predicted | measured | measured / predicted |");
        println!("|---:|---:|---:|---:|---:|---:|");
        for bits in [2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 9.9, 10.0, 11.0, 12.0, 14.0, 16.0, 18.0, 20.0, 24.0] {
            let plan = FilterPlan { kind, bits_per_key: bits };
            let filter = build(FilterBuilder::new(kind, bits, SEED, 2, OWNER)?, KEYS)?;
            let (predicted, measured) = (filter.predicted_rate(), measure(&filter));
            println!(
                "| {bits} | {} | {:.2e} | {predicted:.2e} | {measured:.2e} | {:.3} |",
                filter.header().probes,
                plan.expected_rate(),
                measured / predicted
            );
        }
        println!();
    }
    summary_cache()
}

/// The table of Fan, Cao, Almeida and Broder, "Summary Cache" (IEEE/ACM Transactions on Networking 8, 2000).
fn summary_cache() -> Result<()> {
    println!("## The table of the Summary Cache\n");
    println!(
        "The rate of a standard Bloom filter with m/n bits per key and k probes, for comparison with the paper"
    );
    println!("(Fan, Cao, Almeida and Broder 2000): our formula / measured.\n");
    println!("| m/n | k = 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |");
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for bits in [2_u32, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 32] {
        print!("| {bits} |");
        for probes in 1..=8 {
            let plan = FilterPlan { kind: Kind::Bloom, bits_per_key: bits.into() };
            let builder = FilterBuilder::new(Kind::Bloom, bits.into(), SEED, 2, OWNER)?
                .bits_and_probes(KEYS * u64::from(bits), probes)?;
            let measured = measure(&build(builder, KEYS)?);
            print!(" {:.2e} / {measured:.2e} |", plan.expected_rate_with(probes));
        }
        println!();
    }
    Ok(())
}

/// Builds filters of all kinds and many sizes, and probes them for every key in every way, at least `wanted` times in all.
fn false_negatives(wanted: u64) -> Result<()> {
    const SIZES: [u64; 14] = [1, 2, 7, 63, 64, 65, 255, 1000, 4097, 6001, 20_000, 65_600, 300_000, 1_000_000];
    let (mut probes, mut lost, mut filters, mut round) = (0, 0, 0, 0);
    while probes < wanted {
        for keys in SIZES {
            for kind in Kind::ALL {
                let bits = 1.0 + (hash(round) % 2400) as f64 / 100.0;
                let (probed, absent) = lose(kind, keys, bits, round)?;
                (probes, lost, filters) = (probes + probed, lost + absent, filters + 1);
                round += 1;
            }
        }
    }
    println!("{lost} false negatives in {probes} probes of {filters} filters");
    if lost > 0 { Err("a filter has lost a key".into()) } else { Ok(()) }
}

/// Probes of one filter for its keys, and wrong "absent" answers.
fn lose(kind: Kind, keys: u64, bits: f64, round: u64) -> Result<(u64, u64)> {
    let groups = 1 + round as usize % 3;
    let mut builder = FilterBuilder::new(kind, bits, SEED, hash(!round), OWNER)?.column_groups(groups);
    let hashes: Vec<u64> = (0..keys).map(|key| hash((round << 32) + key)).collect();
    hashes.iter().for_each(|&hash| builder.add_hash(hash));
    let bytes = builder.finish()?;
    let expect = Expect::table(OWNER, SEED, keys);

    let filter = Filter::open(&bytes, expect)?;
    let aligned = Filter::open(AlignedBytes::copy_of(&bytes), expect)?;
    let portable = filter.clone().portable();
    let fewer = filter.keep_groups(1);
    let absent = |maybe: &[bool]| maybe.iter().filter(|&&maybe| !maybe).count() as u64;
    let mut answers = vec![false; hashes.len()];
    let mut lost = 0;
    aligned.may_contain_many(&hashes, &mut answers);
    lost += absent(&answers);
    portable.may_contain_many(&hashes, &mut answers);
    lost += absent(&answers);
    fewer.may_contain_many(&hashes, &mut answers);
    lost += absent(&answers);
    lost += hashes.iter().filter(|&&hash| !filter.may_contain(hash)).count() as u64;
    Ok((4 * keys, lost))
}
