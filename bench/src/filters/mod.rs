//! The filters compared with filters of other crates and with the goals. All filters get the same random hashes, so
//! times exclude the hashing of keys. Filters are built and probed in one process, in turn.

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

const HUGE: usize = 100_000_000;

/// Compares the filters with other crates' filters and with the goals.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Uses up to 100 million keys and 10^9 probes, which takes half an hour on an idle machine and 8 GiB of
    /// memory.
    #[arg(long)]
    full: bool,
    /// Pins the thread to this processor.
    #[arg(long, value_name = "NUMBER")]
    cpu: Option<usize>,
    /// Measures rates, false negatives and the tree on another processor at the same time: half the time, but
    /// more noise.
    #[arg(long)]
    together: bool,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

type Untimed = (Vec<rate::Rate>, negatives::Negatives, Vec<wasted::Outcome>);

const OPENING: &str = "This page compares filters of SieveDB and of other crates: their space, their rates of false positives, and the times to probe and to build them. A shorter bar is faster. \"Goals\" has the goals for these filters and the \
     figures of this run.";

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
        if args.together { ", untimed measurements at the same time on another processor" } else { "" },
        machine::load()
    ));
    report.heading("Goals");
    report.text(
        "Ribbon filters have 8 columns here: a rate of 1/256. The best peer is the best one in this run, \
         with any number of keys unless a number is given. For the times of ribbon filters it is the \
         fastest peer of less than 9.5 bits per key, which could replace a ribbon filter. The tables below \
         list all peers.",
    );
    report.table(&goals::table(&findings));
    report.heading("Comparison with other crates");
    report.text(&format!(
        "Times are nanoseconds of {}: the median of the rounds and, in brackets, the least and the \
         greatest. Every round measures each filter once; ratios are computed within a round. Keys are \
         hashed beforehand: filters are built from and probed with 64-bit hashes. A \"dependent\" probe \
         waits for the previous answer. Only SieveDB and pleat have a batch call; the others are probed in \
         a loop of 32. Building starts with hashes in memory. For SieveDB it ends with the finished block, \
         including checksums and a probe of every key. Peak bytes are allocated bytes per key, plus 8 if the \
         builder needs all hashes in memory. The reader of lsm-tree is opened once; its engine opens it \
         for each lookup.",
        clock::WHAT
    ));
    for (place, speed) in findings.speeds.iter().enumerate() {
        let table = speed.table();
        report.text(&format!("{} rounds of each mode.", speed.rounds));
        report.table(&table);
        if place == 0 {
            let unit =
                format!("nanoseconds per probe for an absent key, {} keys", keys_text(speed.keys as u64));
            report.open_with(OPENING, &unit, &table, 1, 6);
        }
    }
    if args.full {
        report.text(
            "The last table excludes pleat's standard ribbon: its builder fails at that number \
            of keys (NoSolvingSeed).",
        );
    }
    report.heading("Space of Ribbon");
    report.text("Excess over n·log2(1/measured rate), the minimum for a filter of that rate.");
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
    if findings.negatives.wrong > 0 { Err("a filter has a false negative".into()) } else { Ok(()) }
}

fn speeds(full: bool) -> Result<Vec<Speed>> {
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
