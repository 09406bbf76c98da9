//! Structures that list or estimate the difference of two sets: cells, bytes and time per item.

use std::collections::{BTreeSet, HashMap};

use fastbloom::BloomFilter;
use iblt::IBLT;
use riblt::{RatelessIBLT, Symbol, UnmanagedRatelessIBLT};
use sievedb_sketches::{
    Bloom, Decoder, Difference, DifferenceSize, Iblt, Rateless, Sketch, certainly_missing,
};

use super::SEED;
use crate::Result;
use crate::clock::cost;
use crate::random::{bytes_of, number};
use crate::report::{Report, Table, count};
use crate::rounds::{Spread, digits};

const COMMON: u64 = 7;
const MINE: u64 = 8;
const THEIRS: u64 = 9;

const DIFFERENCES: [u64; 4] = [10, 100, 1000, 10_000];

/// Structures of other crates search from the first cell, which takes too long for larger differences.
const PEER_DIFFERENCES_MAX: u64 = 1000;

/// Common items affect only the time of adding and the encoded length of the counts.
const COMMON_ITEMS: u64 = 100_000;

const ENCODED_TRIALS: u64 = 5;

fn item(stream: u64, index: u64) -> u128 {
    u128::from(number(stream, index)) << 64 | u128::from(number(stream, !index))
}

struct Sets {
    mine: Vec<u128>,
    theirs: Vec<u128>,
    encoded: bool,
}

impl Sets {
    fn new(differences: u64, trial: u64) -> Self {
        let side = |stream| (0..differences / 2).map(|index| item(stream, trial << 24 | index)).collect();
        Self { mine: side(MINE), theirs: side(THEIRS), encoded: trial < ENCODED_TRIALS }
    }

    fn is(&self, found: &Difference) -> bool {
        let set = |items: &[u128]| items.iter().copied().collect::<BTreeSet<_>>();
        let same = |found: &[u128], items: &[u128]| found.len() == items.len() && set(found) == set(items);
        same(&found.mine, &self.mine) && same(&found.theirs, &self.theirs)
    }
}

struct Listing {
    cells: u64,
    bytes: Option<u64>,
    add_ns: f64,
    list_ns: f64,
    listed: bool,
    right: bool,
}

fn nanos<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let (took, result) = cost(work);
    (took.as_secs_f64() * 1e9, result)
}

fn encoded_bytes<S: Sketch>(sets: &Sets, mut table: S, insert: fn(&mut S, u128)) -> Option<u64> {
    sets.encoded.then(|| {
        (0..COMMON_ITEMS).for_each(|index| insert(&mut table, item(COMMON, index)));
        table.encode().len() as u64
    })
}

fn rateless(sets: &Sets) -> Result<Listing> {
    let differences = sets.mine.len() as u64 * 2;
    let table = |items: &[u128], range| {
        let mut table = Rateless::new(range, SEED).expect("a range of cells");
        items.iter().for_each(|&item| table.insert(item));
        table
    };
    let mut decoder = Decoder::new(SEED);
    while !decoder.is_complete() {
        let range = decoder.cells()..decoder.cells() + (differences / 1000).max(1);
        decoder.extend(&table(&sets.mine, range.clone()), &table(&sets.theirs, range))?;
    }
    let cells = decoder.cells();
    let (add_ns, (mine, theirs)) = nanos(|| (table(&sets.mine, 0..cells), table(&sets.theirs, 0..cells)));
    let (list_ns, found) = nanos(|| {
        let mut decoder = Decoder::new(SEED);
        decoder.extend(&mine, &theirs).map(|()| decoder.finish())
    });
    let found = found?;
    let bytes = encoded_bytes(sets, mine, |table, item| table.insert(item));
    let right = found.as_ref().is_some_and(|found| sets.is(found));
    Ok(Listing { cells, bytes, add_ns, list_ns, listed: found.is_some(), right })
}

fn invertible(sets: &Sets) -> Result<Listing> {
    let empty = Iblt::for_differences(sets.mine.len() as u64 * 2, SEED)?;
    let table = |items: &[u128]| {
        let mut table = empty.clone();
        items.iter().for_each(|&item| table.insert(item));
        table
    };
    let (add_ns, (mine, theirs)) = nanos(|| (table(&sets.mine), table(&sets.theirs)));
    let (list_ns, found) = nanos(|| mine.difference(&theirs));
    let found = found?;
    let bytes = encoded_bytes(sets, mine, |table, item| table.insert(item));
    let right = found.as_ref().is_none_or(|found| sets.is(found));
    Ok(Listing { cells: empty.cells(), bytes, add_ns, list_ns, listed: found.is_some(), right })
}

#[derive(Debug, Clone)]
struct Item(u128);

impl Symbol for Item {
    const BYTE_ARRAY_LENGTH: usize = 16;

    fn encode_to_bytes(&self) -> Vec<u8> {
        [bytes_of(self.0 as u64), bytes_of((self.0 >> 64) as u64)].concat()
    }

    fn decode_from_bytes(bytes: &Vec<u8>) -> Self {
        Self(bytes.iter().rev().fold(0, |item, &byte| item << 8 | u128::from(byte)))
    }
}

const RIBLT_CELL_BYTES: u64 = 16 + 8 + 8;

fn riblt(sets: &Sets) -> Listing {
    let items = |items: &[u128]| items.iter().copied().map(Item).collect::<Vec<_>>();
    let (mine, theirs) = (items(&sets.mine), items(&sets.theirs));
    let most = 4 * sets.mine.len() + 50;
    let table = |items: &[Item]| {
        let mut table = RatelessIBLT::new(items.to_vec());
        table.extend_coded_symbols(most);
        table.coded_symbols
    };
    let (add_ns, (one, two)) = nanos(|| (table(&mine), table(&theirs)));
    let list = |cells: usize| {
        let part = |table: &[riblt::CodedSymbol<Item>]| UnmanagedRatelessIBLT {
            coded_symbols: table[..cells].to_vec(),
        };
        let mut difference = part(&one).collapse(&part(&two));
        let found = difference.peel_all_symbols();
        difference.is_empty().then_some(found)
    };
    let (mut low, mut high) = (0, most);
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if list(middle).is_some() { high = middle } else { low = middle }
    }
    let (list_ns, found) = nanos(|| list(high));
    let right = found.as_ref().is_some_and(|found| found.len() == 2 * sets.mine.len());
    let cells = high as u64;
    Listing { cells, bytes: Some(cells * RIBLT_CELL_BYTES), add_ns, list_ns, listed: found.is_some(), right }
}

/// The crate `iblt` with as many cells as our structure. All items are on one side, because it removes listed items of
/// the other side twice.
fn iblt(sets: &Sets) -> Result<Listing> {
    let cells = Iblt::for_differences(sets.mine.len() as u64 * 2, SEED)?.cells();
    let (add_ns, table) = nanos(|| {
        let mut table = IBLT::<(u64, u64), ()>::new(cells as usize, 4);
        let split = |item: u128| ((item >> 64) as u64, item as u64);
        let mut items = sets.mine.iter().chain(&sets.theirs);
        items.all(|&item| table.insert(&split(item), &()).is_ok()).then_some(table)
    });
    let table = table.ok_or("an item cannot be encoded")?;
    let (list_ns, found) = nanos(|| table.decode().ok());
    let items = |found: HashMap<(u64, u64), ()>| {
        found.into_keys().map(|(high, low)| u128::from(high) << 64 | u128::from(low)).collect()
    };
    let found = found.map(|(mine, theirs)| Difference { mine: items(mine), theirs: items(theirs) });
    let all = Sets { mine: [&*sets.mine, &*sets.theirs].concat(), theirs: Vec::new(), encoded: false };
    let right = found.as_ref().is_none_or(|found| all.is(found));
    Ok(Listing {
        cells,
        bytes: Some(cells * RIBLT_CELL_BYTES),
        add_ns,
        list_ns,
        listed: found.is_some(),
        right,
    })
}

pub(super) fn run(keys: u64, report: &mut Report) -> Result<()> {
    lists(report)?;
    sizes(report)?;
    exchange(keys, report)
}

fn trials(differences: u64) -> u64 {
    (20_000 / differences).clamp(5, 500)
}

fn lists(report: &mut Report) -> Result<()> {
    report.heading("Tables that list the difference of two sets");
    report.text(&format!(
        "Items have 128 bits, and half of the difference is on each side. Each table also has {} common \
         items, which affect only its encoded length. Bytes include the header of 64 or 72 bytes; the \
         other crates have no encoding and count {RIBLT_CELL_BYTES} bytes per cell. A rateless table has \
         the fewest cells that list the difference; iblt has as many cells as ours. *Predicted* is the \
         value of the papers: 1.35 cells in the limit, and at least 99 % of lists. *Add* is ns per item, \
         *list* ns per item of the difference; medians of up to 500 trials. Other crates are measured up \
         to {} differences, because they search for the next item from the first cell. riblt makes at \
         least 1,024 cells. The sets for iblt differ on one side only, because it cannot list both.",
        count(COMMON_ITEMS),
        count(PEER_DIFFERENCES_MAX),
    ));
    let mut table = Table::new([
        "",
        "differences",
        "trials",
        "cells each",
        "bytes each",
        "predicted",
        "listed %",
        "wrong lists",
        "add",
        "list",
    ]);
    type Run = fn(&Sets) -> Result<Listing>;
    let runs: [(&str, &str, Run, u64); 4] = [
        ("**Rateless**", "1.35 cells", rateless, u64::MAX),
        ("riblt", "1.35 cells", |sets| Ok(riblt(sets)), PEER_DIFFERENCES_MAX),
        ("**Iblt**", "99 % listed", invertible, u64::MAX),
        ("iblt", "", iblt, PEER_DIFFERENCES_MAX),
    ];
    for differences in DIFFERENCES {
        for (name, predicted, run, most) in runs {
            if differences > most {
                continue;
            }
            let trials = trials(differences);
            let found =
                (0..trials).map(|trial| run(&Sets::new(differences, trial))).collect::<Result<Vec<_>>>()?;
            let wrong = found.iter().filter(|found| !found.right).count();
            if name.starts_with("**") && wrong != 0 {
                return Err(format!("{name} listed {wrong} wrong differences").into());
            }
            let mean = |of: fn(&Listing) -> Option<u64>| {
                let all: Vec<f64> = found.iter().filter_map(of).map(|number| number as f64).collect();
                all.iter().sum::<f64>() / (all.len() as u64 * differences) as f64
            };
            let median = |of: fn(&Listing) -> f64| {
                digits(Spread::of(found.iter().map(of)).median / differences as f64)
            };
            let listed = found.iter().filter(|found| found.listed).count() as f64 / trials as f64;
            table.row([
                name.to_owned(),
                count(differences),
                count(trials),
                format!("{:.3}", mean(|found| Some(found.cells))),
                format!("{:.1}", mean(|found| found.bytes)),
                predicted.to_owned(),
                format!("{:.1}", 100.0 * listed),
                count(wrong as u64),
                median(|found| found.add_ns),
                median(|found| found.list_ns),
            ]);
        }
    }
    report.table(&table);
    Ok(())
}

fn sizes(report: &mut Report) -> Result<()> {
    const TRIALS: u64 = 100;
    report.heading("Size of the difference of two sets");
    report.text(&format!(
        "**DifferenceSize** with 4,096 cells; {TRIALS} trials. The bias is the mean error of an estimate. \
         The deviation is the root mean square of the error, with a relative accuracy of 7 %; the \
         predicted deviation is a bound. No other crate with this structure was found."
    ));
    let mut table = Table::new([
        "differences",
        "encoded bytes",
        "bias %",
        "deviation %",
        "predicted, at most %",
        "ns per item",
        "ns per estimate",
    ]);
    for differences in DIFFERENCES.into_iter().chain([100_000]) {
        let (mut errors, mut add, mut estimate, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let empty = DifferenceSize::new(SEED)?;
        for trial in 0..TRIALS {
            let sets = Sets::new(differences, trial);
            let size = |items: &[u128]| {
                let mut size = empty.clone();
                items.iter().for_each(|&item| size.insert_hash(item as u64));
                size
            };
            let (add_ns, (mine, theirs)) = nanos(|| (size(&sets.mine), size(&sets.theirs)));
            let (estimate_ns, found) = nanos(|| mine.estimate(&theirs));
            errors.push(found? / differences as f64 - 1.0);
            add.push(add_ns / differences as f64);
            estimate.push(estimate_ns);
            if trial == 0 {
                let mut large = mine;
                (0..COMMON_ITEMS).for_each(|index| large.insert_hash(item(COMMON, index) as u64));
                bytes = large.encode().len();
            }
        }
        let mean =
            |of: &dyn Fn(f64) -> f64| errors.iter().map(|&error| of(error)).sum::<f64>() / TRIALS as f64;
        table.row([
            count(differences),
            count(bytes as u64),
            format!("{:.2}", 100.0 * mean(&|error| error)),
            format!("{:.2}", 100.0 * mean(&|error| error * error).sqrt()),
            format!("{:.2}", 100.0 * empty.deviation()),
            digits(Spread::of(add).median),
            digits(Spread::of(estimate).median),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn exchange(keys: u64, report: &mut Report) -> Result<()> {
    report.heading("Exchange: most missing keys of another set, found with its Bloom filter");
    report.text(&format!(
        "Two sets of {} keys; a tenth of the keys of each is in that set only. One side sends a filter of \
         its keys, and the other side sends its keys that are not in the filter. *Not sent* counts missing \
         keys that were not sent; *for nothing* counts sent keys that were not missing.",
        count(keys)
    ));
    let mut table = Table::new([
        "",
        "bits per key of the filter",
        "not sent %",
        "±",
        "predicted %",
        "for nothing",
        "ns per key",
    ]);
    let differing = keys / 10;
    let common = keys - differing;
    let set = |stream| {
        (0..common)
            .map(|index| number(COMMON, index))
            .chain((0..differing).map(move |index| number(stream, index)))
    };
    for rate in [0.1, 0.01, 0.001] {
        let mut bloom = Bloom::with_rate(keys, rate, SEED)?;
        set(THEIRS).for_each(|key| _ = bloom.insert(&bytes_of(key)));
        let mut peer = BloomFilter::with_false_pos(rate).seed(&1).expected_items(keys as usize);
        set(THEIRS).for_each(|key| _ = peer.insert(&key));
        let mut row = |name: &str, bits: u64, predicted: Option<f64>, missing: &dyn Fn() -> (u64, u64)| {
            let (took, (sent, nothing)) = nanos(missing);
            let not_sent = (differing - (sent - nothing)) as f64;
            table.row([
                format!("{name}, {} %", 100.0 * rate),
                format!("{:.2}", bits as f64 / keys as f64),
                format!("{:.3}", 100.0 * not_sent / differing as f64),
                format!("{:.3}", 196.0 * not_sent.sqrt() / differing as f64),
                predicted.map_or(String::new(), |rate| format!("{:.3}", 100.0 * rate)),
                count(nothing),
                digits(took / keys as f64),
            ]);
        };
        row("**certainly_missing**", 8 * bloom.encode().len() as u64, Some(bloom.predicted_rate()), &|| {
            let of = |stream, keys: u64| {
                certainly_missing(&bloom, (0..keys).map(|index| bytes_of(number(stream, index)))).count()
                    as u64
            };
            let nothing = of(COMMON, common);
            (nothing + of(MINE, differing), nothing)
        });
        row("fastbloom", peer.num_bits() as u64, None, &|| {
            let of = |stream, keys: u64| {
                (0..keys).filter(|&index| !peer.contains(&number(stream, index))).count() as u64
            };
            let nothing = of(COMMON, common);
            (nothing + of(MINE, differing), nothing)
        });
    }
    report.table(&table);
    Ok(())
}
