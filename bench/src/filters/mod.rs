//! The filters beside those of other crates, and everything that was aimed at.
//!
//! All are built from and probed with the same 64-bit numbers as hashes of keys, so that hashing a key is
//! part of nobody's time. What a filter does to a hash is: ours multiply it with the salt of the table, xorf
//! and pleat mix it again. All are built and probed in one process, in turns.
//!
//! | file | what |
//! |---|---|
//! | `contender` | who takes part, and how it is built |
//! | `lane` | the loops that probe a filter |
//! | `peers` | the filters of other crates |
//! | `build`, `speed` | what building and asking cost |
//! | `rate`, `negatives` | how good, how large and how true ours are |
//! | `goals` | what was aimed at, and whether it was reached |

mod build;
mod contender;
mod goals;
mod lane;
mod negatives;
mod peers;
mod rate;
mod speed;

use std::path::PathBuf;
use std::thread;

use contender::Contender;
use speed::Speed;

use crate::report::{Report, count, keys as keys_text};
use crate::{Result, clock, machine, wasted};

/// The largest number of keys: their filters are larger than any cache.
const HUGE: usize = 100_000_000;

/// Compares the filters with those of other crates, and everything with its goal.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Up to 100 million keys and a thousand million probes: takes half an hour of an idle machine and 8 GiB
    /// of memory.
    #[arg(long)]
    full: bool,
    /// The processor to be pinned to.
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<usize>,
    /// Measures rates, false negatives and the tree, which are not timed, at the same time as the speed, on
    /// another processor: done in half the time, but not quiet.
    #[arg(long)]
    together: bool,
    /// Writes the tables to this file as well.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What takes no time to be right: rates, false negatives, and the tree.
type Untimed = (Vec<rate::Rate>, negatives::Negatives, Vec<wasted::Outcome>);

pub(crate) fn run(args: &Args) -> Result<()> {
    let load = machine::load();
    let full = args.full;
    let beside =
        args.together.then(|| thread::spawn(move || untimed(full).map_err(|error| error.to_string())));
    let pinned = machine::pin(args.cpu);
    let speeds = speeds(full)?;
    let (rates, negatives, outcomes) = match beside {
        Some(beside) => beside.join().map_err(|_| "a measurement panicked")??,
        None => untimed(full)?,
    };
    let findings = goals::Findings { wasted: wasted::summary(&outcomes), speeds, rates, negatives };

    let full = if full { " --full" } else { "" };
    let together = if args.together { " --together" } else { "" };
    let mut report = Report::new(
        "Filters: measured",
        &format!(
            "cargo run --release -p sievedb-bench -- filters{full}{together} --write docs/benchmarks/filters.md"
        ),
    );
    report.text(&format!(
        "{}; {pinned}{}; load {load} at the start and {} at the end.",
        machine::describe(),
        if args.together { ", what is not timed at the same time on another processor" } else { "" },
        machine::load()
    ));
    report.heading("Goals");
    report.text(
        "A ribbon filter here has 8 columns: a rate of 1/256. The best peer is the best one in this run, whatever its number of \
         keys where none is named. Beside the times of ribbon filters it is the fastest of those that take less than 9.5 \
         bits per key, which are the ones that one could have instead; the tables below have all.",
    );
    report.table(&goals::table(&findings));
    report.heading("Beside other crates");
    report.text(&format!(
        "Times are nanoseconds of {}: the median of the rounds and, in brackets, least and greatest, which show how \
         noisy the run was. In every round each filter has its turn; ratios are taken within a round. Keys are \
         hashed beforehand: filters are given and probed with 64-bit hashes. \"Dependent\" probes wait for the answer before. \
         Only SieveDB and pleat have a call for a batch; the others are probed in a loop of 32. Building goes from \
         hashes in memory to, for SieveDB, the finished block, with its checksums written and every key probed. \
         Peak bytes are those allocated, and 8 more where the builder needs all hashes at hand. The reader of \
         lsm-tree, which its engine makes for each lookup, is made once.",
        clock::WHAT
    ));
    for speed in &findings.speeds {
        report.text(&format!("{} rounds of each mode.", speed.rounds));
        report.table(&speed.table());
    }
    if args.full {
        report.text("The standard ribbon of pleat is not among the last: its builder gives up at that number of keys (NoSolvingSeed).");
    }
    report.heading("Space of Ribbon");
    report.text("Above n·log2(1/measured rate), the least that any filter of that rate can have.");
    report.table(&rate::space_table(&findings.rates));
    report.heading("Predicted and measured rates");
    report.table(&rate::table(&findings.rates));
    report.heading("False negatives");
    report.text(&format!(
        "{} in {} probes of {} filters, opened from their bytes.",
        count(findings.negatives.wrong),
        count(findings.negatives.probes),
        count(findings.negatives.filters)
    ));
    wasted::describe(&outcomes, &mut report);
    report.write(args.write.as_deref())?;
    if findings.negatives.wrong > 0 {
        Err("a filter said \"absent\" of a key that it has".into())
    } else {
        Ok(())
    }
}

fn speeds(full: bool) -> Result<Vec<Speed>> {
    // Keys, rounds of building, rounds of asking.
    let sizes = [(10_000, 21, 51), (1_000_000, 5, 51), (HUGE, 1, 31)];
    let mut speeds = Vec::new();
    for (keys, build_rounds, rounds) in sizes.into_iter().filter(|&(keys, ..)| full || keys < HUGE) {
        progress(&format!("speed at {} keys", keys_text(keys as u64)));
        let contenders: Vec<Contender> = Contender::ALL
            .into_iter()
            .filter(|contender| keys < HUGE || contender.takes_part_in_huge())
            .collect();
        speeds.push(speed::run(keys, build::run(&contenders, keys, build_rounds)?, rounds));
    }
    Ok(speeds)
}

fn untimed(full: bool) -> Result<Untimed> {
    progress("wasted reads");
    let outcomes = wasted::measure(wasted::KEYS)?;
    progress("false negatives");
    let negatives = negatives::run(if full { 1_000_000_000 } else { 100_000_000 })?;
    progress("rates and space");
    let decades = (3..if full { 9 } else { 8 }).map(|exponent| 10u64.pow(exponent));
    let rates = rate::run(&std::iter::once(256).chain(decades).collect::<Vec<_>>())?;
    Ok((rates, negatives, outcomes))
}

fn progress(what: &str) {
    eprintln!("{what} …");
}
