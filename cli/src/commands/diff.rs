//! `sievedb diff`: the differences of two stores.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sievedb::{Db, KeyspaceSnapshot};
use sievedb_sketches::store::{self as sketches, Fingerprints, StoreError};
use sievedb_sketches::{Decoder, DifferenceSize, MAGIC, Rateless, Sketch};

use crate::escape::{escape, hex};
use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object, put_bytes};
use crate::output::Output;
use crate::store::{self, DEFAULT_KEYSPACE, Opening, Within};
use crate::{units, whole_file};

/// Lists the differences of two stores.
///
/// With two stores it prints a line for each key that only one of them has: `-` for the first, `+` for the second; with --values
/// also `~` for keys whose values differ. All keyspaces are compared, unless --keyspace names one; if there are several, a line
/// with the name precedes the keys of each. A keyspace of only one store is named with its number of keys. The last line has the
/// sums, and the number of bytes that two machines would have exchanged. With --json the side of a key is `first`, `second` or
/// `both`, and the last object has the numbers. If any are listed, the exit code is 1.
///
/// Between A and B, through files, whose size depends on the difference, one keyspace is compared:
///
/// 1. A writes an estimate (4 to 8 KiB), B writes cells of a matching size, and A lists the keys that only A has, and writes
///    fingerprints of the keys that only B has, from which B prints them. With --values A lists a key with another value as its
///    own, and B marks it with `~`.
/// 2. If there are too few cells, A prints the number to request from B.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb diff a.db b.db --values
  sievedb diff a.db b.db --json | jq -r 'select(.side == \"first\").key'

  On A:  sievedb diff a.db --write-size a.size
  On B:  sievedb diff b.db --size a.size --write-cells b.cells
  On A:  sievedb diff a.db --cells b.cells --write-wanted a.wanted
  On B:  sievedb diff b.db --wanted a.wanted

  If they are too few, on B:  sievedb diff b.db --size a.size --write-cells b2.cells --from 154 --count 40
  and on A:                  sievedb diff a.db --cells b.cells --cells b2.cells --write-wanted a.wanted")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The directory of the other store.
    other: Option<PathBuf>,
    #[command(flatten)]
    opening: Opening,
    /// Compare values, not only keys.
    #[arg(long)]
    values: bool,
    /// Writes the estimate for the other side.
    #[arg(long, value_name = "FILE", conflicts_with = "other")]
    write_size: Option<PathBuf>,
    /// A file of the other side, written with --write-size.
    #[arg(long, value_name = "FILE", requires = "write_cells")]
    size: Option<PathBuf>,
    /// Writes the cells from which the other side lists the difference.
    #[arg(long, value_name = "FILE", requires = "size")]
    write_cells: Option<PathBuf>,
    /// The first cell to write, if the earlier ones were too few.
    #[arg(long, value_name = "CELL", requires = "count", default_value_t = 0)]
    from: u64,
    /// Number of cells to write, instead of the estimate.
    #[arg(long, value_name = "CELLS")]
    count: Option<u64>,
    /// A file of the other side, written with --write-cells; repeat the option for several files, in order.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["other", "write_size", "size"])]
    cells: Vec<PathBuf>,
    /// Writes the fingerprints that only the other side has and, if values count, the keys listed here.
    #[arg(long, value_name = "FILE", requires = "cells")]
    write_wanted: Option<PathBuf>,
    /// A file of the other side, written with --write-wanted: prints the keys in it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["other", "write_size", "size", "cells"])]
    wanted: Option<PathBuf>,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Clone, Copy)]
enum Side {
    First,
    Second,
    Both,
}

impl Side {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::First => ("-", "first"),
            Self::Second => ("+", "second"),
            Self::Both => ("~", "both"),
        }
    }
}

struct Printer {
    out: Output,
    format: Format,
    differs: bool,
}

impl Printer {
    /// With JSON, names the keyspace in each object.
    fn keys(&mut self, side: Side, keys: &[Vec<u8>], keyspace: Option<&str>) -> Result<()> {
        let (sign, name) = side.names();
        self.differs |= !keys.is_empty();
        for key in keys {
            if self.format.json {
                let mut object = Object::new();
                put_bytes(&mut object, "key", key);
                object.insert("side".into(), name.into());
                object.extend(keyspace.map(|keyspace| ("keyspace".into(), keyspace.into())));
                self.out.object(object)?;
            } else {
                self.out.columns(&[sign.as_bytes(), key])?;
            }
        }
        Ok(())
    }

    /// A line of text; JSON has it in the numbers.
    fn text(&mut self, line: &str) -> Result<()> {
        if self.format.json { Ok(()) } else { self.out.text(&format!("# {line}")) }
    }

    fn numbers(&mut self, line: &str, object: &serde_json::Value) -> Result<()> {
        if self.format.json { self.out.text(&object.to_string()) } else { self.text(line) }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut printer = Printer { out: Output::new(), format: args.format, differs: false };
    let printed = compare(args, &mut printer).and_then(|()| printer.out.finish());
    answered(printed, if printer.differs { Err(Failure::No) } else { Ok(()) })
}

fn compare(args: &Args, printer: &mut Printer) -> Result<()> {
    let one = Opened::open(args, &args.db)?;
    let snapshot = &one.snapshot;
    if args.other.is_none() {
        args.within.note_left_out(&one.db);
    }
    if let Some(other) = &args.other {
        both(args, &one, &Opened::open(args, other)?, printer)
    } else if let Some(path) = &args.write_size {
        let size = Fingerprints::new(args.values).size(snapshot)?;
        whole_file::write(path, &size.encode())
    } else if let Some((theirs, path)) = args.size.as_ref().zip(args.write_cells.as_ref()) {
        write_cells(args, snapshot, &decode(theirs)?, path, printer)
    } else if let Some(path) = &args.wanted {
        let wanted = Wanted::read(path)?;
        let keys = Fingerprints::with_seed(wanted.seed).keys(snapshot, &wanted.items)?;
        let (both, second): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| wanted.keys.contains(key));
        printer.keys(Side::Second, &second, None)?;
        printer.keys(Side::Both, &both, None)
    } else if !args.cells.is_empty() {
        list(args, snapshot, printer)
    } else {
        Err(Failure::Usage("name a second store, or a file to read or write".into()))
    }
}

struct Opened {
    db: Db,
    snapshot: KeyspaceSnapshot,
}

impl Opened {
    fn open(args: &Args, path: &Path) -> Result<Self> {
        let db = args.opening.for_reading(path)?;
        let snapshot = db.snapshot().keyspace(&args.within.existing(&db)?);
        Ok(Self { db, snapshot })
    }

    fn keyspace(&self, name: &str) -> Result<KeyspaceSnapshot> {
        Ok(self.db.snapshot().keyspace(&store::existing_keyspace(&self.db, name)?))
    }

    fn keys(&self, keyspace: &str) -> Result<u64> {
        let mut keys = 0;
        for entry in &store::existing_keyspace(&self.db, keyspace)? {
            entry?;
            keys += 1;
        }
        Ok(keys)
    }
}

/// The chosen keyspace, or all; a keyspace of only one store has its number of keys.
struct Keyspaces {
    only_first: BTreeMap<String, u64>,
    only_second: BTreeMap<String, u64>,
    in_both: Vec<String>,
}

impl Keyspaces {
    fn find(args: &Args, one: &Opened, two: &Opened) -> Result<Self> {
        let (first, second) = (args.within.others(&one.db), args.within.others(&two.db));
        let (shared, only_first): (Vec<_>, Vec<_>) =
            first.into_iter().partition(|name| second.contains(name));
        let only_second = second.into_iter().filter(|name| !shared.contains(name)).collect();
        let count = |store: &Opened, names: Vec<String>| -> Result<BTreeMap<String, u64>> {
            names.into_iter().map(|name| Ok((name.clone(), store.keys(&name)?))).collect()
        };
        let mut in_both = vec![args.within.keyspace.as_deref().unwrap_or(DEFAULT_KEYSPACE).to_owned()];
        in_both.extend(shared);
        Ok(Self { only_first: count(one, only_first)?, only_second: count(two, only_second)?, in_both })
    }

    fn lines(&self) -> Vec<String> {
        let only = |(names, side): (&BTreeMap<String, u64>, &str)| -> Vec<String> {
            let line = |(name, keys): (&String, &u64)| {
                let keys = units::counted(*keys, "key", "keys");
                format!("keyspace {} is only in the {side}, with {keys}", escape(name.as_bytes()))
            };
            names.iter().map(line).collect()
        };
        [only((&self.only_first, "first")), only((&self.only_second, "second"))].concat()
    }
}

fn both(args: &Args, one: &Opened, two: &Opened, printer: &mut Printer) -> Result<()> {
    let keyspaces = Keyspaces::find(args, one, two)?;
    printer.differs = !(keyspaces.only_first.is_empty() && keyspaces.only_second.is_empty());
    let is_alone = keyspaces.in_both.len() == 1;
    let mut sums =
        [keyspaces.only_first.values().sum::<u64>(), keyspaces.only_second.values().sum::<u64>(), 0];
    let (mut bytes, mut rounds, mut numbers) = (0, 0, Object::new());
    for name in &keyspaces.in_both {
        if !is_alone {
            printer.text(&format!("keyspace {}", escape(name.as_bytes())))?;
        }
        let found = sketches::diff(&one.keyspace(name)?, &two.keyspace(name)?, args.values)?;
        let sides = [
            (Side::First, &found.only_first),
            (Side::Second, &found.only_second),
            (Side::Both, &found.differ),
        ];
        sides.iter().try_for_each(|(side, keys)| printer.keys(*side, keys, Some(name)))?;
        let counts = sides.map(|(_, keys)| keys.len() as u64);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        bytes += found.exchanged_bytes;
        rounds = rounds.max(found.rounds);
        numbers.insert(name.clone(), counted(counts));
    }
    keyspaces.lines().iter().try_for_each(|line| printer.text(line))?;
    let [first, second, differ] = sums;
    let rounds_text = if rounds == 1 { "one round".into() } else { format!("{rounds} rounds") };
    let mut object = counted(sums);
    object["exchanged_bytes"] = bytes.into();
    object["rounds"] = rounds.into();
    object["keyspaces"] = numbers.into();
    object["keyspaces_only_first"] = json!(keyspaces.only_first);
    object["keyspaces_only_second"] = json!(keyspaces.only_second);
    printer.numbers(
        &format!(
            "{first} only in the first, {second} only in the second, {differ} differ; {bytes} bytes exchanged in {rounds_text}"
        ),
        &object,
    )
}

fn counted([first, second, differ]: [u64; 3]) -> Value {
    json!({ "only_first": first, "only_second": second, "differ": differ })
}

fn write_cells(
    args: &Args,
    snapshot: &KeyspaceSnapshot,
    theirs: &DifferenceSize,
    path: &Path,
    printer: &mut Printer,
) -> Result<()> {
    let fingerprints = Fingerprints::with_seed(theirs.seed());
    let count = if let Some(count) = args.count {
        count
    } else {
        let mine = fingerprints.size(snapshot)?;
        let estimate = mine.estimate(theirs).map_err(StoreError::from)?;
        let rounded = estimate.round();
        printer.numbers(&format!("about {rounded} differences"), &json!({ "estimate": rounded as u64 }))?;
        sketches::cells_for_estimate(estimate, mine.deviation())
    };
    let range = args.from..args.from.saturating_add(count);
    let cells = fingerprints.cells(snapshot, range)?;
    whole_file::write(path, &cells.encode())
}

fn list(args: &Args, snapshot: &KeyspaceSnapshot, printer: &mut Printer) -> Result<()> {
    let mut decoder = None;
    let mut seed = 0;
    for path in &args.cells {
        let theirs: Rateless = decode(path)?;
        seed = theirs.seed();
        let mine = Fingerprints::with_seed(seed).cells(snapshot, theirs.range())?;
        let decoder = decoder.get_or_insert_with(|| Decoder::new(seed));
        decoder.extend(&mine, &theirs).map_err(StoreError::from)?;
    }
    let Some(decoder) = decoder else { return Ok(()) };
    let Some(found) = decoder.finish() else {
        let (cells, listed) = (decoder.cells(), decoder.listed());
        let more = (cells / 4).max(16);
        return Err(Failure::Refused(format!(
            "{cells} cells are too few ({listed} differences are listed); request more from the other side: --from {cells} --count {more}"
        )));
    };
    let fingerprints = Fingerprints::with_seed(seed);
    let keys = fingerprints.keys(snapshot, &found.mine)?;
    let (first, second) = (found.mine.len(), found.theirs.len());
    printer.differs = first + second > 0;
    printer.keys(Side::First, &keys, None)?;
    let what = if fingerprints.values() { "entries " } else { "" };
    printer.numbers(
        &format!("{first} {what}only here, {second} {what}only there"),
        &json!({ "only_first": first, "only_second": second }),
    )?;
    if let Some(path) = &args.write_wanted {
        let keys = if fingerprints.values() { keys } else { Vec::new() };
        whole_file::write(
            path,
            Wanted { seed, items: found.theirs, keys: keys.into_iter().collect() }.text().as_bytes(),
        )?;
    }
    Ok(())
}

/// One side's request: lines for the seed and for each fingerprint; with values also `key ` lines in hexadecimal for the keys
/// that this side listed.
struct Wanted {
    seed: u64,
    items: Vec<u128>,
    keys: BTreeSet<Vec<u8>>,
}

const SEED_DIGITS: u64 = 16;

impl Wanted {
    fn text(&self) -> String {
        let mut text = format!("{:016x}\n", self.seed);
        self.items.iter().for_each(|item| text.push_str(&format!("{item:032x}\n")));
        for key in &self.keys {
            text.push_str(&format!("key {}\n", hex(key)));
        }
        text
    }

    fn read(path: &Path) -> Result<Self> {
        let may_begin = |prefix: &[u8]| prefix.iter().all(|byte| byte.is_ascii_hexdigit());
        let bytes = whole_file::read(path, SEED_DIGITS, may_begin)?;
        let text = str::from_utf8(&bytes).ok();
        text.and_then(Self::parse)
            .ok_or_else(|| Failure::Refused(format!("{} has no fingerprints", path.display())))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let seed = u64::from_str_radix(lines.next()?, 16).ok()?;
        let mut wanted = Self { seed, items: Vec::new(), keys: BTreeSet::new() };
        for line in lines {
            if let Some(digits) = line.strip_prefix("key ") {
                wanted.keys.insert(unhex(digits)?);
            } else {
                wanted.items.push(u128::from_str_radix(line, 16).ok()?);
            }
        }
        Some(wanted)
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn decode<S: Sketch>(path: &Path) -> Result<S> {
    let bytes = whole_file::read(path, MAGIC.len() as u64, |prefix| prefix == MAGIC)?;
    S::decode(&bytes).map_err(|error| Failure::Refused(format!("{}: {error}", path.display())))
}
