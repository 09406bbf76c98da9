mod ahead;
mod complete;
mod differences;
pub(crate) mod forbidden;
pub(crate) mod inside;
mod lane;
mod peers;
mod streams;

use std::path::PathBuf;

use cuckoofilter::CuckooFilter;
use fastbloom::BloomFilter;
use growable_bloom_filter::GrowableBloom;
use probabilistic_collections::count_min_sketch::{CountMinSketch, CountMinStrategy};
use probabilistic_collections::{bloom, cuckoo};
use scalable_cuckoo_filter::ScalableCuckooFilter;
use sievedb_sketches::{
    Bloom, Counting, Cuckoo, DLeft, Expiring, HashCompaction, Method, Ring, Scalable, Spectral, arithmetic,
};

use crate::report::{Report, Table, count};
use crate::rounds::{Rounds, digits};
use crate::{Result, clock, machine};
use ahead::Figures;
use lane::{ABSENT, Clocked, Contender, Lane, PRESENT, Probed};

/// Measures the sketches and other crates' structures: space, rate and time. Fails if a structure of ours loses
/// a key.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys in each structure.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Absent keys to probe for.
    #[arg(long, default_value_t = 8_000_000)]
    absent: u64,
    /// Rounds; the time is their median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Pins the thread to this processor.
    #[arg(long)]
    cpu: Option<usize>,
    /// Also writes the report to this file.
    #[arg(long)]
    write: Option<PathBuf>,
}

const SEED: u64 = 42;

type Lanes = Vec<Box<dyn Contender>>;

const RATE: f64 = 0.01;

const STATES_RATE: f64 = 7.7e-5;

macro_rules! lanes {
    ($keys:expr; $($name:literal => $make:expr $(, because $why:literal)?);* $(;)?) => {
        vec![$(Box::new(Lane::new($name, $keys, || $make)$(.because($why))?) as Box<dyn Contender>),*]
    };
}

const OURS: &str = "arguments that are right";

type Group = (&'static str, &'static str, fn(u64) -> Lanes);

const GROUPS: [Group; 9] = [
    ("The number of keys is known", "", known),
    (
        "Visited states: keys are only added, at a low rate",
        "Made for a rate of 0.0077 %: the rate of hash compaction with 16 bits at a load of 95 %. No crate \
         has hash compaction; a quotient filter is its modern form.",
        states,
    ),
    ("Keys are removed", "", removed),
    ("The number of keys is unknown; initial capacity 1024", "", unknown),
    (
        "Keys are counted",
        "Each key was added once. An answer is wrong if an absent key has a count above 0.",
        counted,
    ),
    (
        "Keys are forgotten after a time to live",
        "As many keys are added per time to live as in the other tables. No other crate with these \
         structures was found.",
        forgotten,
    ),
    (
        "The set is complete",
        "Built at once; *insert* is the time of building per key, including sorting. Each probe of \
         golomb-coded-set reads from the first bit, so it has only 300 probes; its space is compared at \
         its predicted rate.",
        complete::sets,
    ),
    (
        "A value of 8 bits for each key of a complete set",
        "The minimum for *over* includes the bits of the value. A present key counts as found if its value \
         is correct.",
        complete::maps,
    ),
    (
        "An upper bound of a 64-bit value for each key",
        "No other crate with approximators was found. A present key counts as found if its bound is not too \
         low.",
        complete::bounds,
    ),
];

fn known(keys: u64) -> Lanes {
    let n = keys as usize;
    lanes! { keys;
        "**Bloom**" => Bloom::with_rate(keys, RATE, SEED).expect(OURS),
            because "it hashes the key's bytes with XXH3 and a seed, which any program can repeat";
        "fastbloom" => BloomFilter::with_false_pos(RATE).seed(&1).expected_items(n);
        "probabilistic-collections BloomFilter" => bloom::BloomFilter::<u64>::new(n, RATE);
    }
}

fn states(keys: u64) -> Lanes {
    let n = keys as usize;
    lanes! { keys;
        "**HashCompaction**, 16 bits" =>
            HashCompaction::with_shape((keys as f64 / 0.95) as u64, 16, SEED).expect(OURS),
            because "at a load of 95 % a probe visits three cells in different cache lines. A quotient \
                filter reads one line, but its number of slots is a power of two, so half of them may be \
                empty. The probes of a Bloom filter are independent";
        "**Bloom**" => Bloom::with_rate(keys, STATES_RATE, SEED).expect(OURS),
            because "at low rates it has fourteen probes and 44 % more bits than the minimum; it is \
                included for bit-state hashing";
        "qfilter" => qfilter::Filter::new(keys, STATES_RATE).expect(OURS);
        "fastbloom" => BloomFilter::with_false_pos(STATES_RATE).seed(&1).expected_items(n);
        "scalable_cuckoo_filter" => ScalableCuckooFilter::new(n, STATES_RATE);
    }
}

fn removed(keys: u64) -> Lanes {
    let n = keys as usize;
    lanes! { keys;
        "**Counting**" => Counting::with_rate(keys, RATE, SEED).expect(OURS),
            because "it is never full, and it alone counts up to fifteen insertions of a key. That takes \
                four bits in each of seven cells, which are in different cache lines";
        "**DLeft**" => DLeft::with_rate(keys, RATE, SEED).expect(OURS),
            because "it alone counts insertions of a key, with two counter bits in each cell; an absent key \
                is compared with the cells of four buckets in different lines";
        "**Cuckoo**" => Cuckoo::with_rate(keys, RATE, SEED).expect(OURS),
            because "a quotient filter reads one line, a cuckoo filter two buckets in different lines. In \
                return, the number of slots of a quotient filter is a power of two, so half of them may be \
                empty. An insertion records its moves and undoes them if there is no room; cuckoofilter \
                loses a key instead. Each cuckoo filter takes three bits more than the minimum, which is a \
                smaller share at the lower rates of its peers";
        "**Cuckoo**, 8 bits" => Cuckoo::with_shape((n as f64 / 3.8) as u64, 8, SEED).expect(OURS),
            because "a quotient filter reads one line, a cuckoo filter two buckets in different lines. In \
                return, the number of slots of a quotient filter is a power of two, so half of them may be \
                empty. An insertion records its moves and undoes them if there is no room; cuckoofilter \
                loses a key instead. Each cuckoo filter takes three bits more than the minimum, which is a \
                smaller share at the lower rates of its peers";
        "cuckoofilter" => CuckooFilter::with_capacity(n);
        "scalable_cuckoo_filter" => ScalableCuckooFilter::new(n, RATE);
        "qfilter" => qfilter::Filter::new(keys, RATE).expect(OURS);
        "probabilistic-collections CuckooFilter" =>
            cuckoo::CuckooFilter::<u64>::from_entries_per_index(n, RATE, 4);
    }
}

fn unknown(keys: u64) -> Lanes {
    lanes! { keys;
        "**Scalable**" => Scalable::with_rate(RATE, SEED).expect(OURS),
            because "the newest of its doubling slices is partly empty, and each slice has a lower rate \
                than the one before, so the total rate stays within the limit; the total rates of the \
                other Bloom filters do not";
        "growable-bloom-filter" => GrowableBloom::new(RATE, 1024);
        "scalable_cuckoo_filter" => ScalableCuckooFilter::new(1024, RATE);
        "probabilistic-collections ScalableBloomFilter" =>
            bloom::ScalableBloomFilter::<u64>::new(1024 * 10, RATE, 2.0, 0.85);
    }
}

fn counted(keys: u64) -> Lanes {
    let columns = (arithmetic::optimal_bits(keys, RATE) / 7) as usize;
    lanes! { keys;
        "**Spectral**, minimal increase" =>
            Spectral::with_rate(keys, RATE, Method::MinimalIncrease, SEED).expect(OURS);
        "**Spectral**, recurring minimum" =>
            Spectral::with_rate(keys, RATE, Method::RecurringMinimum, SEED).expect(OURS);
        "probabilistic-collections CountMinSketch" =>
            CountMinSketch::<CountMinStrategy, u64>::new(7, columns);
    }
}

fn forgotten(keys: u64) -> Lanes {
    lanes! { keys;
        "**Ring**, 5 spans" =>
            Clocked::after(Ring::with_rate(keys, RATE, keys, 5, SEED).expect(OURS), keys);
        "**Expiring**" =>
            Clocked::after(Expiring::with_rate(keys, RATE, keys, SEED).expect(OURS), keys);
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let pinned = machine::pin(args.cpu);
    let mut report = Report::new("Sketches and those of other crates", &command());
    report.text(&format!(
        "{}, {pinned}; load {}. Each structure has {} keys of 8 bytes, which each crate hashes itself, and \
         is made for a rate of {} %. It is probed for {} absent keys and for every present key; all of our \
         structures find every present key. *Bits per key* counts allocated memory, *encoded* counts the \
         bytes to store or to send. *Over* is the excess of the memory over log2(1 / measured rate), the \
         minimum for a complete set. Times are {} in nanoseconds, medians of {} rounds in which all \
         structures of a table take turns (insertions: one round). Names in bold are of this crate.",
        machine::describe(),
        machine::load(),
        count(args.keys),
        100.0 * RATE,
        count(args.absent),
        clock::WHAT,
        args.rounds,
    ));
    report.text(ahead::RULE);
    for (title, text, lanes) in GROUPS {
        report.heading(title);
        if !text.is_empty() {
            report.text(text);
        }
        table(args, &lanes(args.keys), &mut report)?;
    }
    streams::run(args.keys, &mut report)?;
    differences::run(args.keys, &mut report)?;
    report.write(args.write.as_deref())
}

fn command() -> String {
    let given = std::env::args().skip(1).map(|arg| format!(" {arg}"));
    format!("cargo run --release -p sievedb-bench --{}", given.collect::<String>())
}

/// Fails if measured and predicted rates differ by more than four standard deviations and 1 %.
fn check_rate(name: &str, absent: &Probed, predicted: f64) -> Result<()> {
    let probes = absent.probes as f64;
    let measured = absent.found as f64 / probes;
    let deviation = (predicted * (1.0 - predicted) / probes).sqrt();
    if (measured - predicted).abs() <= 4.0 * deviation + 0.01 * predicted {
        return Ok(());
    }
    Err(format!("{name} has a rate of {measured:.6}, and {predicted:.6} was predicted").into())
}

fn table(args: &Args, lanes: &Lanes, report: &mut Report) -> Result<()> {
    let mut table = Table::new([
        "",
        "bits per key",
        "encoded",
        "over",
        "measured %",
        "±",
        "predicted %",
        "insert",
        "present",
        "absent",
        "a peer is ahead in",
    ]);
    let rounds = |stream| {
        Rounds::run(args.rounds, lanes.len(), |lane| lanes[lane].probe(stream, args.keys, args.keys).ns)
    };
    let (present, absent) = (rounds(PRESENT), rounds(ABSENT));
    let mut all = Vec::new();
    for (number, lane) in lanes.iter().enumerate() {
        let ours = lane.name().starts_with("**");
        let of_present = lane.probe(PRESENT, args.keys, args.keys);
        let lost = of_present.probes - of_present.found;
        if ours && lost != 0 {
            return Err(format!("{} lacks {lost} of {} present keys", lane.name(), args.keys).into());
        }
        let of_absent = lane.probe(ABSENT, args.absent, args.absent);
        if let Some(predicted) = lane.predicted().filter(|_| ours) {
            check_rate(lane.name(), &of_absent, predicted)?;
        }
        all.push(Figures {
            ours,
            name: lane.name().to_owned(),
            lost,
            bits: lane.bits_per_key(),
            value_bits: lane.value_bits(),
            rate: match lane.predicted() {
                Some(predicted) if of_absent.probes < args.absent => predicted,
                _ => of_absent.found as f64 / of_absent.probes as f64,
            },
            absent: of_absent,
            insert_ns: lane.insert_ns(),
            present_ns: present.of(number).median,
            absent_ns: absent.of(number).median,
        });
    }
    for (lane, figures) in lanes.iter().zip(&all) {
        table.row([
            if figures.lost == 0 {
                figures.name.clone()
            } else {
                format!("{}, lost {}", figures.name, figures.lost)
            },
            format!("{:.2}", figures.bits),
            lane.encoded_bits(args.keys).map_or(String::new(), |bits| format!("{bits:.2}")),
            figures.over().map_or(String::new(), |over| format!("{:.0} %", 100.0 * over)),
            format!("{:.4}", 100.0 * figures.absent.found as f64 / figures.absent.probes as f64),
            format!(
                "{:.4}",
                100.0 * 1.96 * (figures.absent.found as f64).sqrt() / figures.absent.probes as f64
            ),
            lane.predicted().map_or(String::new(), |rate| format!("{:.4}", 100.0 * rate)),
            digits(figures.insert_ns),
            digits(figures.present_ns),
            digits(figures.absent_ns),
            if figures.ours { figures.behind(&all).join(", ") } else { String::new() },
        ]);
    }
    report.table(&table);
    for (lane, figures) in lanes.iter().zip(&all) {
        if figures.ours && !figures.behind(&all).is_empty() {
            let why = if lane.why().is_empty() { "no reason is known" } else { lane.why() };
            report.text(&format!("Why {}: {why}.", figures.name));
        }
    }
    Ok(())
}
