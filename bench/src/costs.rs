//! The costs of filters and of wasted reads, from which `FilterKind::Auto` chooses (`sievedb::filter::cost`). Times are medians
//! of rounds.

use std::hint::black_box;
use std::path::PathBuf;

use sievedb::filter::{Expect, Filter, FilterBuilder, Kind};
use sievedb::{Db, FilterKind, FilterPolicy, Keyspace, KeyspaceOptions, Options};

use crate::random::number;
use crate::report::{Report, Table, count};
use crate::rounds::{Rounds, Spread};
use crate::{Result, callgrind, clock, machine, store};

const BITS_PER_KEY: f64 = 10.0;
const KEYS: u64 = 100_000;
const ROUNDS: usize = 15;
const STORE_KEYS: u64 = 200_000;
const LOOKUPS: u64 = 20_000;

/// Measures the costs of filters and of wasted reads.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run that callgrind counts: repeats one kind of work.
    #[arg(long, value_names = ["WORK", "TIMES"], num_args = 2, hide = true)]
    only: Option<Vec<String>>,
    /// Also writes the tables to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

const KINDS: [Kind; 3] = [Kind::BlockedBloom, Kind::Bloom, Kind::Ribbon];

fn build(kind: Kind) -> Result<Vec<u8>> {
    let mut builder = FilterBuilder::new(kind, BITS_PER_KEY, 1, 2, [3; 16])?;
    (0..KEYS).for_each(|index| builder.add_hash(number(1, index)));
    Ok(builder.finish()?)
}

fn probe(filter: &Filter<Vec<u8>>) -> u64 {
    (0..KEYS).map(|index| u64::from(filter.may_contain(number(2, index)))).sum()
}

fn filter(kind: Kind) -> Result<Filter<Vec<u8>>> {
    Ok(Filter::open(build(kind)?, Expect::anything())?)
}

const OPENING: &str = "A filter costs time in each lookup and in each flush, and a wrong \"maybe\" costs the read of a data block. The bars \
     are probes for absent keys, so a shorter bar is faster. The second table has the costs of the reads.";

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some([work, times]) = args.only.as_deref() {
        return only(work, times.parse()?);
    }
    let mut report = Report::new(
        "Costs of filters and of wasted reads: measurements",
        "cargo run --release -p sievedb-bench -- costs --write docs/benchmarks/costs.md",
    );
    filters(&mut report)?;
    reads(&mut report)?;
    report.text(&format!("{}; load {} at the end.", machine::describe(), machine::load()));
    report.write(args.write.as_deref())
}

fn only(work: &str, times: u64) -> Result<()> {
    let (work, kind) = work.split_once('-').ok_or("no such work")?;
    let kind = *KINDS.iter().find(|known| format!("{known:?}") == kind).ok_or("no such kind")?;
    let filter = filter(kind)?;
    for _ in 0..times {
        match work {
            "build" => drop(black_box(build(kind)?)),
            _ => _ = black_box(probe(&filter)),
        }
    }
    Ok(())
}

fn instructions(work: &str, kind: Kind) -> Option<f64> {
    let counted = callgrind::each(&["costs", "--only", &format!("{work}-{kind:?}")], 1, 3)?;
    Some(counted / KEYS as f64)
}

fn filters(report: &mut Report) -> Result<()> {
    report.heading("Filters");
    report.text(&format!(
        "{} keys, {BITS_PER_KEY} bits per key. Per key: nanoseconds of {}, median of {ROUNDS} rounds in \
         turns (least–greatest), and instructions, counted by callgrind. Both include hashing the key. \
         Probes are for absent keys.",
        count(KEYS),
        clock::WHAT
    ));
    let filters = KINDS.into_iter().map(filter).collect::<Result<Vec<_>>>()?;
    let probes = rounds(KINDS.len(), KEYS, |kind| Ok(black_box(probe(&filters[kind]))))?;
    let builds = rounds(KINDS.len(), KEYS, |kind| Ok(black_box(build(KINDS[kind])?).len() as u64))?;
    let mut table =
        Table::new(["kind", "probe, ns", "probe, instructions", "build, ns", "build, instructions"]);
    for (index, kind) in KINDS.into_iter().enumerate() {
        eprintln!("counting instructions of {kind:?} …");
        let counted = |work| instructions(work, kind).map_or("–".into(), |count| format!("{count:.0}"));
        table.row([
            format!("{kind:?}"),
            probes[index].to_string(),
            counted("probe"),
            builds[index].to_string(),
            counted("build"),
        ]);
    }
    report.table(&table);
    report.open_with(OPENING, "nanoseconds per probe", &table, 1, 1);
    Ok(())
}

fn rounds(competitors: usize, keys: u64, mut work: impl FnMut(usize) -> Result<u64>) -> Result<Vec<Spread>> {
    let mut failure = None;
    let rounds = Rounds::run(ROUNDS, competitors, |competitor| {
        let (time, done) = clock::cost(|| work(competitor));
        failure = failure.take().or(done.err());
        time.as_secs_f64() * 1e9 / keys as f64
    });
    failure.map_or_else(|| Ok((0..competitors).map(|competitor| rounds.of(competitor)).collect()), Err)
}

fn reads(report: &mut Report) -> Result<()> {
    report.heading("Wasted reads");
    report.text(&format!(
        "Absent lookups in a run of {} keys of {} bytes with values of 100, without filters and with ribbon \
         filters; {} per round. The difference per data block read is the cost of a wasted read.",
        count(STORE_KEYS),
        store::KEY_BYTES,
        count(LOOKUPS)
    ));
    let mut table = Table::new([
        "blocks",
        "without filters, ns",
        "with, ns",
        "from the block cache",
        "a wasted read, ns",
    ]);
    for (name, budget) in [("in the block cache", 512 << 20), ("in the page cache of the system", 4 << 20)] {
        let dir = tempfile::tempdir()?;
        let db = Options::new().memory_budget(budget).background_threads(0).open(dir.path())?;
        let keyspaces = [FilterKind::None, FilterKind::Ribbon].map(|kind| keyspace(&db, kind));
        let [without, with] = keyspaces;
        let keyspaces = [without?, with?];
        let before = db.stats();
        let times = rounds(2, LOOKUPS, |index| {
            let found = (0..LOOKUPS).filter_map(|key| keyspaces[index].contains(store::absent_key(key)).ok());
            Ok(found.filter(|&found| found).count() as u64)
        })?;
        let after = db.stats();
        let hits = after.data_block_cache_hits - before.data_block_cache_hits;
        let blocks = store::data_blocks(&after) - store::data_blocks(&before);
        let lookups = (LOOKUPS * (ROUNDS as u64 + 1)) as f64;
        table.row([
            name.into(),
            times[0].to_string(),
            times[1].to_string(),
            format!("{:.1} %", 100.0 * hits as f64 / blocks.max(1) as f64),
            format!("{:.0}", (times[0].median - times[1].median) * lookups / blocks.max(1) as f64),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn keyspace(db: &Db, kind: FilterKind) -> Result<Keyspace> {
    let options = KeyspaceOptions::new().filter(FilterPolicy::new(kind));
    let keyspace = db.keyspace(&format!("{kind:?}"), options)?;
    store::load(db, &keyspace, 0..STORE_KEYS, 100)?;
    keyspace.compact()?;
    db.open_tables()?;
    Ok(keyspace)
}
