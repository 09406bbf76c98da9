//! The sketches beside those of other crates: space, rate, time, and answers that may not be.
//!
//! | file | what |
//! |---|---|
//! | `lane` | what is asked of each |
//! | `peers` | those of other crates |
//! | `streams` | the filters for streams, which have other questions |

mod lane;
mod peers;
mod streams;

use std::path::PathBuf;

use cuckoofilter::CuckooFilter;
use fastbloom::BloomFilter;
use growable_bloom_filter::GrowableBloom;
use probabilistic_collections::{bloom, cuckoo};
use scalable_cuckoo_filter::ScalableCuckooFilter;
use sievedb_sketches::{Bloom, Counting, Cuckoo, DLeft, Expiring, Method, Ring, Scalable, Spectral};

use crate::report::{Report, Table, count};
use crate::rounds::{Rounds, digits};
use crate::{Result, clock, machine};
use lane::{ABSENT, Clocked, Contender, Lane, PRESENT};

/// Measures the sketches beside those of other crates: space, rate, time, and answers that may not be.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keys in each.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Present keys that each of ours is asked for: all must be found.
    #[arg(long, default_value_t = 100_000_000)]
    present: u64,
    /// Absent keys that each is asked for.
    #[arg(long, default_value_t = 8_000_000)]
    absent: u64,
    /// Rounds of which the time is the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The processor to run on.
    #[arg(long)]
    cpu: Option<usize>,
    /// Write the report to this file too.
    #[arg(long)]
    write: Option<PathBuf>,
}

const SEED: u64 = 42;

type Lanes = Vec<Box<dyn Contender>>;

/// The rate that is asked of each.
const RATE: f64 = 0.01;

fn groups(keys: u64) -> Result<Vec<(&'static str, Lanes)>> {
    let n = keys as usize;
    macro_rules! lanes {
        ($($name:literal => $make:expr),* $(,)?) => {
            vec![$(Box::new(Lane::new($name, keys, || $make)) as Box<dyn Contender>),*]
        };
    }
    let ours = "arguments that are right";
    Ok(vec![
        (
            "The number of keys is known",
            lanes! {
                "**Bloom**" => Bloom::with_rate(keys, RATE, SEED).expect(ours),
                "fastbloom" => BloomFilter::with_false_pos(RATE).seed(&1).expected_items(n),
                "probabilistic-collections BloomFilter" => bloom::BloomFilter::<u64>::new(n, RATE),
            },
        ),
        (
            "Keys are removed",
            lanes! {
                "**Counting**" => Counting::with_rate(keys, RATE, SEED).expect(ours),
                "**DLeft**" => DLeft::with_rate(keys, RATE, SEED).expect(ours),
                "**Cuckoo**" => Cuckoo::with_rate(keys, RATE, SEED).expect(ours),
                "**Cuckoo**, 8 bits" => Cuckoo::with_shape((n as f64 / 3.8) as u64, 8, SEED).expect(ours),
                "cuckoofilter" => CuckooFilter::with_capacity(n),
                "scalable_cuckoo_filter" => ScalableCuckooFilter::new(n, RATE),
                "qfilter" => qfilter::Filter::new(keys, RATE).expect(ours),
                "probabilistic-collections CuckooFilter" =>
                    cuckoo::CuckooFilter::<u64>::from_entries_per_index(n, RATE, 4),
            },
        ),
        (
            "The number of keys is unknown; begun for 1024",
            lanes! {
                "**Scalable**" => Scalable::with_rate(RATE, SEED).expect(ours),
                "growable-bloom-filter" => GrowableBloom::new(RATE, 1024),
                "scalable_cuckoo_filter" => ScalableCuckooFilter::new(1024, RATE),
                "probabilistic-collections ScalableBloomFilter" =>
                    bloom::ScalableBloomFilter::<u64>::new(1024 * 10, RATE, 2.0, 0.85),
            },
        ),
        (
            "Keys are counted",
            lanes! {
                "**Spectral**, minimal increase" =>
                    Spectral::with_rate(keys, RATE, Method::MinimalIncrease, SEED).expect(ours),
                "**Spectral**, recurring minimum" =>
                    Spectral::with_rate(keys, RATE, Method::RecurringMinimum, SEED).expect(ours),
            },
        ),
        (
            "Keys are forgotten after a time; so many keys in each time to live",
            lanes! {
                "**Ring**, 5 spans" =>
                    Clocked::after(Ring::with_rate(keys, RATE, keys, 5, SEED).expect(ours), keys),
                "**Expiring**" =>
                    Clocked::after(Expiring::with_rate(keys, RATE, keys, SEED).expect(ours), keys),
            },
        ),
    ])
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let pinned = machine::pin(args.cpu);
    let mut report = Report::new(
        "Sketches beside those of other crates",
        "cargo run --release -p sievedb-bench -- sketches",
    );
    report.text(&format!(
        "{}, {pinned}; load {}. {} keys of 8 bytes in each, which each crate hashes by itself; {} absent keys asked of each, and of ours \
         {} present ones, all of which were found. A rate of {} % was asked for. Bits are those of the memory that was allocated; *over* is by how much \
         they are more than log2(1 / measured rate), the least possible for a set that is complete. Times are {} in nanoseconds, medians \
         of {} rounds in which all of a table take turns (insertions: of one). Names in bold are of this crate.",
        machine::describe(),
        machine::load(),
        count(args.keys),
        count(args.absent),
        count(args.present),
        100.0 * RATE,
        clock::WHAT,
        args.rounds,
    ));
    for (title, lanes) in groups(args.keys)? {
        report.heading(title);
        report.table(&table(args, &lanes)?);
    }
    streams::run(args.keys, &mut report)?;
    report.write(args.write.as_deref())
}

fn table(args: &Args, lanes: &Lanes) -> Result<Table> {
    let mut table = Table::new([
        "",
        "bits per key",
        "over",
        "measured %",
        "±",
        "predicted %",
        "insert",
        "present",
        "absent",
    ]);
    let rounds = |stream| {
        Rounds::run(args.rounds, lanes.len(), |lane| lanes[lane].ask(stream, args.keys, args.keys).0)
    };
    let (present, absent) = (rounds(PRESENT), rounds(ABSENT));
    for (number, lane) in lanes.iter().enumerate() {
        let ours = lane.name().starts_with("**");
        let asked = if ours { args.present } else { args.keys };
        let (_, found) = lane.ask(PRESENT, args.keys, asked);
        if ours && found != asked {
            return Err(format!("{} lacks {} of {asked} present keys", lane.name(), asked - found).into());
        }
        let (_, wrong) = lane.ask(ABSENT, args.absent, args.absent);
        let share = |count: f64| 100.0 * count / args.absent as f64;
        let rate = wrong as f64 / args.absent as f64;
        let lost = if found == asked { String::new() } else { format!(", lost {}", asked - found) };
        table.row([
            format!("{}{lost}", lane.name()),
            format!("{:.2}", lane.bits_per_key()),
            format!("{:.0} %", 100.0 * (lane.bits_per_key() / -rate.log2() - 1.0)),
            format!("{:.4}", share(wrong as f64)),
            format!("{:.4}", share(1.96 * (wrong as f64).sqrt())),
            lane.predicted().map_or("".into(), |rate| format!("{:.4}", 100.0 * rate)),
            digits(lane.insert_ns()),
            digits(present.of(number).median),
            digits(absent.of(number).median),
        ]);
    }
    Ok(table)
}
