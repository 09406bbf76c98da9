use std::path::PathBuf;
use std::time::{Duration, Instant};

use sievedb::{Db, FilterKind, FilterPolicy, KeyspaceOptions, WriteBatch};

use super::absent::absent_keys;
use super::claim::Claim;
use super::findings::{Findings, Pair};
use super::home::Home;
use super::measure::{Lookups, measure};
use super::page;
use super::random::Random;
use super::report;
use super::source::{Record, Source};
use crate::failure::Result;
use crate::json::Format;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, DEFAULT_KEYSPACE, Opening, Within};

const SEED: u64 = 1;

const BATCH_ENTRIES: usize = 1000;

/// Shows the reads that filters save, on the paths of this machine's files.
///
/// Loads the paths of all files under /usr, or the lines of a file. Looks up every key and as many absent ones, with and without
/// filters, and reports the blocks read and the time. The store is kept; a second run replaces its entries, and refuses a store
/// with others.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the store [default: sievedb-demo and the number of the user in the system's temporary
    /// directory, or the same with -2 if that cannot be used, and so on].
    db: Option<PathBuf>,
    #[command(flatten)]
    opening: Opening,
    /// The keys: the lines of this file, or the paths of the files in this directory.
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let source = Source::read(args.from.as_deref())?;
    let mut random = Random(SEED);
    let absent = absent_keys(&source.records, &mut random);
    let load_order = random.order(source.records.len());
    let order = random.order(source.records.len());
    let lookups = Lookups { records: &source.records, absent: &absent, order: &order };

    let name = args.within.keyspace.as_deref().unwrap_or(DEFAULT_KEYSPACE);
    let bare_name = format!("{name}-without-filters");
    let options = KeyspaceOptions::default();
    let bare_options = KeyspaceOptions::default().filter(FilterPolicy::new(FilterKind::None));
    let keyspaces = [(name, &options), (&bare_name[..], &bare_options)];
    let home = match &args.db {
        Some(dir) => {
            store::check_parent(dir)?;
            Home::open(dir, args.opening, keyspaces)?
        }
        None => Home::open_temporary(args.opening, keyspaces)?,
    };
    let Home { dir, db, claims: [mut claim, mut bare] } = home;
    let deleted = claim.deleted;

    let load_time = load(&db, &mut claim, &source.records, &load_order)?;
    load(&db, &mut bare, &source.records, &load_order)?;
    let (keyspace, bare) = (claim.keyspace, bare.keyspace);
    let measure_both = || -> Result<Pair> {
        Ok(Pair { with: measure(&db, &keyspace, &lookups)?, without: measure(&db, &bare, &lookups)? })
    };
    let loaded = measure_both()?;
    keyspace.compact()?;
    bare.compact()?;
    let compacted = measure_both()?;
    drop(bare);
    db.drop_keyspace(&bare_name)?;
    db.flush()?;
    let page = page::write(&db)?;
    db.close()?;

    let disk_bytes = store::disk_bytes(&dir)?;
    let table = store::oldest_table(&dir)?;
    let example = example(&source.records);
    let absent_key = absent[example].clone();
    let keyspace = name.to_owned();
    let findings = Findings {
        dir,
        keyspace,
        source,
        example,
        absent_key,
        deleted,
        seed: SEED,
        load_time,
        loaded,
        compacted,
        disk_bytes,
        table,
        page,
    };
    let mut out = Output::new();
    if args.format.json {
        out.text(&report::object(&findings).to_string())?;
    } else {
        out.raw(report::report(&findings).as_bytes())?;
    }
    out.finish()
}

fn example(records: &[Record]) -> usize {
    (0..records.len()).min_by_key(|&index| records[index].key.len().abs_diff(12)).unwrap_or(0)
}

fn load(db: &Db, claim: &mut Claim, records: &[Record], order: &[usize]) -> Result<Duration> {
    let mut progress = Progress::of_items("loading", Some(order.len() as u64));
    let mut done = 0;
    let start = Instant::now();
    for part in order.chunks(BATCH_ENTRIES) {
        let mut batch = WriteBatch::new();
        for &index in part {
            claim.put(&mut batch, &records[index].key, &records[index].value);
        }
        claim.write(db, batch)?;
        while db.step()? {}
        done += part.len() as u64;
        progress.at(done);
    }
    db.sync()?;
    claim.keyspace.flush()?;
    db.settle()?;
    Ok(start.elapsed())
}
