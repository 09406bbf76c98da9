use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::PathBuf;

use quick_cache::unsync::Cache;
use sievedb::{Db, WriteBatch};
use sievedb_sketches::{Approximator, Bloom, Digest, Max, Ring, Sketch, Stable, store};

use crate::Result;
use crate::random::{bytes_of, number};
use crate::report::{Report, Table, count};

/// Reports where inside a store the sketches would help, with figures from traces.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Requests, transactions and lookups of each trace.
    #[arg(long, default_value_t = 4_000_000)]
    requests: u64,
    /// Also writes the report to this file.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

const SEED: u64 = 42;

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut report = Report::new("Sketches inside the store", &super::command());
    report.text(
        "The store does not depend on this crate. This page lists uses inside a store where a sketch would \
         help, with figures from traces that are the same in every run, and unsuitable uses.",
    );
    admission(args.requests, &mut report)?;
    conflicts(args.requests, &mut report)?;
    known_false_positives(args.requests, &mut report)?;
    replicas(&mut report)?;
    report.heading("Unsuitable uses");
    report.text(CONTRIVED);
    report.write(args.write.as_deref())
}

const CONTRIVED: &str = "\
- **Any filter as a list of absent keys** (known false positives, deleted keys): a false positive is a present key that is answered \
  as absent. The table above counts them.
- **Stable, Ring, Expiring, Retouched** before a read that must be correct: a forgotten key is a lost read. These filters are \
  suitable if a wrong answer only costs time, as in admission.
- **Filters with removal** (Counting, DLeft, Cuckoo) for tables: a table never changes, and the ribbon filter takes a third less than \
  the smallest of them.
- **StaticMap** from a key to its block: 14 bits per key at 64 MiB in blocks of 4 KiB. The index has one entry per block instead of \
  per key, and scans need it anyway. The map would only save a binary search in memory before a read.
- **GolombSet** as the filter of a table: it is smaller than a Bloom filter, but a probe decodes half a block; the ribbon filter is \
  smaller and faster ([rates.md](rates.md)).
- **Spectral** counts for compaction picking or hot keys: the store counts the wasted reads of each table exactly.
- **HashCompaction**: a store has its keys on disk, so it can look them up instead of their signatures.
- **Scalable** for the memtable's filter: the memtable has a size limit, which bounds the number of keys.
- **Digest** inside one process: the filters of the tables exist already. It is for other processes.";

struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let terms = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self { sums: terms.collect() }
    }

    fn rank(&self, random: u64) -> u64 {
        let most = self.sums.last().copied().unwrap_or_default();
        let at = random as f64 / 64f64.exp2() * most;
        self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1) as u64
    }
}

struct Lru<K> {
    capacity: usize,
    now: u64,
    stamps: HashMap<K, u64>,
    order: BTreeMap<u64, K>,
}

impl<K: Hash + Eq + Copy> Lru<K> {
    fn new(capacity: usize) -> Self {
        Self { capacity, now: 0, stamps: HashMap::new(), order: BTreeMap::new() }
    }

    fn hit(&mut self, key: K) -> bool {
        self.now += 1;
        let Some(stamp) = self.stamps.get_mut(&key) else { return false };
        self.order.remove(stamp);
        *stamp = self.now;
        self.order.insert(self.now, key);
        true
    }

    fn admit(&mut self, key: K) {
        self.stamps.insert(key, self.now);
        self.order.insert(self.now, key);
        if self.stamps.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.stamps.remove(&oldest);
        }
    }
}

type Policy<'a> = (&'a str, u64, Box<dyn FnMut(u64) -> bool>);

fn admission(requests: u64, report: &mut Report) -> Result<()> {
    const BLOCKS: u64 = 200_000;
    const CACHED: usize = 10_000;
    report.heading("Cache admission: would help a plain cache, not this one");
    report.text(&format!(
        "{} requests: four of five for {} blocks by Zipf's law (exponent 0.9), one of five for the next \
         block of a scan, which is never read again. The cache holds {} blocks. A sketch in front of the \
         cache admits a block only at its second miss: a Ring of {} misses, or a Stable filter of the same \
         size. `quick_cache` keeps keys of evicted blocks for the same purpose. The store uses it with a \
         table of recent misses instead. A false positive admits a block too early; a forgotten block \
         costs a miss.",
        count(requests),
        count(BLOCKS),
        count(CACHED as u64),
        count(10 * CACHED as u64),
    ));
    let ring = || Ring::with_rate(10 * CACHED as u64, 0.01, 10 * CACHED as u64, 4, SEED);
    let ring_bytes = ring()?.encode().len() as u64;
    let lru = |mut admits: Box<dyn FnMut(u64) -> bool>| {
        let mut cache = Lru::new(CACHED);
        move |block| {
            let hit = cache.hit(block);
            if !hit && admits(block) {
                cache.admit(block);
            }
            hit
        }
    };
    let quick = |mut admits: Box<dyn FnMut(u64) -> bool>| {
        let mut cache = Cache::new(CACHED);
        move |block| {
            let hit = cache.get(&block).is_some();
            if !hit && admits(block) {
                cache.insert(block, ());
            }
            hit
        }
    };
    let by_ring = |mut ring: Ring| {
        let mut misses = 0;
        Box::new(move |block| {
            misses += 1;
            let known = ring.contains(&bytes_of(block), misses);
            ring.insert(&bytes_of(block), misses).expect("misses are counted one by one");
            known
        })
    };
    let mut stable = Stable::with_memory(ring_bytes, 0.01, SEED)?;
    let policies: [Policy<'_>; 5] = [
        ("least recently used", 0, Box::new(lru(Box::new(|_| true)))),
        ("the same with a **Ring**", ring_bytes, Box::new(lru(by_ring(ring()?)))),
        (
            "the same with a **Stable** filter",
            ring_bytes,
            Box::new(lru(Box::new(move |block| stable.insert(&bytes_of(block))))),
        ),
        ("`quick_cache`", 0, Box::new(quick(Box::new(|_| true)))),
        ("the same with a **Ring**", ring_bytes, Box::new(quick(by_ring(ring()?)))),
    ];
    let zipf = Zipf::new(BLOCKS, 0.9);
    let mut table = Table::new(["", "bytes of the sketch", "hits, % of the requests by Zipf's law"]);
    for (name, bytes, mut hit) in policies {
        let (mut hits, mut asked) = (0u64, 0u64);
        for request in 0..requests {
            if request % 5 == 4 {
                hit(BLOCKS + request);
            } else {
                asked += 1;
                hits += u64::from(hit(zipf.rank(number(20, request))));
            }
        }
        table.row([name.to_owned(), count(bytes), format!("{:.2}", 100.0 * hits as f64 / asked as f64)]);
    }
    report.table(&table);
    Ok(())
}

fn conflicts(requests: u64, report: &mut Report) -> Result<()> {
    const KEYS: u64 = 1_000_000;
    const OPEN: u64 = 1000;
    const READS: u64 = 8;
    const WRITES: u64 = 4;
    let transactions = requests / 4;
    report.heading("Conflict checks in constant memory: would help with long transactions");
    report.text(&format!(
        "{} transactions, each of which reads {READS} of {} keys, writes {WRITES} (Zipf's law, exponent \
         0.6), and begins 1 to {OPEN} commits before its own commit. It conflicts if one of the keys that \
         it read was committed after it began. An **Approximator** of `Max` (four probes) has the number \
         of the newest commit of each key, or a greater number: every conflict is found, and some reported \
         conflicts are false. Old commits stay in it, because their numbers are below the start of every \
         transaction. An exact table must remove old commits, so it depends on the oldest open transaction \
         and grows with its age; it is smaller if all transactions are short. The store's own transactions \
         need neither: they compare the sequence numbers of the newest entries.",
        count(transactions),
        count(KEYS),
    ));
    let zipf = Zipf::new(KEYS, 0.6);
    let key = |transaction: u64, index: u64| zipf.rank(number(21, transaction * 16 + index));
    let mut exact: HashMap<u64, u64> = HashMap::new();
    let sizes: [u64; 3] = [1 << 14, 1 << 16, 1 << 18];
    let sketches = sizes.map(|cells| Approximator::<Max>::with_shape(cells, 4, SEED));
    let (mut conflicts, mut found, mut missed) = (0, [0u64; 3], 0u64);
    let sketches = sketches.into_iter().collect::<Result<Vec<_>, _>>()?;
    for transaction in 1..=transactions {
        let begin = transaction.saturating_sub(1 + number(22, transaction) % OPEN);
        let reads = (0..READS).map(|index| key(transaction, index));
        let truth = reads.clone().any(|key| exact.get(&key).is_some_and(|&commit| commit > begin));
        conflicts += u64::from(truth);
        for (sketch, found) in sketches.iter().zip(&mut found) {
            let conflict = reads.clone().any(|key| sketch.get(&bytes_of(key)) > begin);
            *found += u64::from(conflict);
            missed += u64::from(truth && !conflict);
        }
        for written in (READS..READS + WRITES).map(|index| key(transaction, index)) {
            exact.insert(written, transaction);
            sketches.iter().for_each(|sketch| sketch.insert(&bytes_of(written), transaction));
        }
    }
    if missed != 0 {
        return Err(format!("{missed} conflicts were not found").into());
    }
    let share = |number: u64| format!("{:.3}", 100.0 * number as f64 / transactions as f64);
    let mut table = Table::new(["", "bytes", "conflicts %", "false conflicts %", "predicted, at most %"]);
    // A key, a number, and one byte per slot of a hash table that is seven eighths full.
    let bytes = |keys: u64| count(keys * 17 * 8 / 7);
    for (name, keys) in [
        ("exact, short transactions only".to_owned(), OPEN * WRITES),
        (format!("exact, one transaction open for {} commits", count(100 * OPEN)), 100 * OPEN * WRITES),
        ("exact, of all keys written".to_owned(), exact.len() as u64),
    ] {
        table.row([name, format!("up to {}", bytes(keys)), share(conflicts), share(0), String::new()]);
    }
    for ((sketch, cells), found) in sketches.iter().zip(sizes).zip(found) {
        let rates = (1..=10).map(|part| sketch.expected_rate(OPEN * WRITES * part / 10));
        let one = rates.map(|rate| 1.0 - (1.0 - rate).powi(READS as i32)).sum::<f64>() / 10.0;
        table.row([
            format!("**Approximator**, {} cells", count(cells)),
            count(8 * cells),
            share(found),
            share(found - conflicts),
            format!("{:.3}", 100.0 * one),
        ]);
    }
    report.table(&table);
    Ok(())
}

fn known_false_positives(lookups: u64, report: &mut Report) -> Result<()> {
    const KEYS: u64 = 100_000;
    const ABSENT: u64 = 1_000_000;
    let digest = Digest::build((0..KEYS).map(|key| bytes_of(number(23, key))), 1.0 / 128.0, 0, SEED)?;
    report.heading("Table of known false positives: a small exact table may help, a sketch loses reads");
    report.text(&format!(
        "A filter of {} keys with a rate of {:.3} %; {} lookups of {} absent keys by Zipf's law (exponent \
         0.99). A lookup that passes the filter is a wasted read. A table of the last false positives \
         (whole keys, 32 bytes each) answers repeated lookups. A table of some hundred keys saves more \
         reads than the same bytes in the filter, a larger table fewer. *The same memory* is the share of \
         wasted reads if the filter gets the bits of the table. A Bloom filter of all false positives so \
         far, at 1 %, saves as many reads in fewer bytes, but answers present keys as absent.",
        count(KEYS),
        100.0 * digest.predicted_rate(),
        count(lookups),
        count(ABSENT),
    ));
    let zipf = Zipf::new(ABSENT, 0.99);
    let mut table = Table::new([
        "known false positives",
        "bytes",
        "wasted reads %",
        "the same memory in the filter %",
        "present keys answered as absent",
    ]);
    let mut without = 0.0;
    for entries in [0, 100, 1000, 10_000] {
        let mut known = Lru::new(entries);
        let wasted = (0..lookups)
            .map(|lookup| zipf.rank(number(24, lookup)))
            .filter(|&rank| digest.contains(&bytes_of(number(25, rank))))
            .filter(|&rank| {
                let wasted = !known.hit(rank);
                if wasted && entries > 0 {
                    known.admit(rank);
                }
                wasted
            })
            .count();
        let bytes = 32 * entries as u64;
        if entries == 0 {
            without = wasted as f64 / lookups as f64;
        }
        let alone = without * (-(8.0 * bytes as f64) / KEYS as f64).exp2();
        table.row([
            format!("exact, {}", count(entries as u64)),
            count(bytes),
            format!("{:.4}", 100.0 * wasted as f64 / lookups as f64),
            format!("{:.4}", 100.0 * alone),
            "0".into(),
        ]);
    }
    let expected = (ABSENT as f64 * digest.predicted_rate()) as u64;
    let mut known = Bloom::with_rate(expected, 0.01, SEED + 1)?;
    let wasted = (0..lookups)
        .map(|lookup| bytes_of(number(25, zipf.rank(number(24, lookup)))))
        .filter(|key| digest.contains(key) && !known.insert(key))
        .count();
    let lost = (0..KEYS).filter(|&key| known.contains(&bytes_of(number(23, key)))).count() as u64;
    let bytes = known.encode().len() as u64;
    let alone = without * (-(8.0 * bytes as f64) / KEYS as f64).exp2();
    table.row([
        format!("**Bloom**, {}", count(expected)),
        count(bytes),
        format!("{:.4}", 100.0 * wasted as f64 / lookups as f64),
        format!("{:.4}", 100.0 * alone),
        count(lost),
    ]);
    report.table(&table);
    Ok(())
}

fn replicas(report: &mut Report) -> Result<()> {
    const ENTRIES: u64 = 100_000;
    const VALUE: [u8; 100] = [b'v'; 100];
    report.heading("Replica difference: would help, and exists as `sievedb diff`");
    report.text(&format!(
        "Two stores of {} entries with keys of 8 bytes and values of {}, half of the difference on each \
         side. They exchange an estimate, cells, and fingerprints of 16 bytes. Sending the fingerprints of \
         all keys takes {} bytes.",
        count(ENTRIES),
        VALUE.len(),
        count(16 * ENTRIES),
    ));
    let fill = |range: std::ops::Range<u64>| -> Result<(tempfile::TempDir, Db)> {
        let directory = tempfile::tempdir()?;
        let db = Db::open(directory.path().join("store"))?;
        let mut batch = WriteBatch::new();
        range.for_each(|key| {
            batch.put(bytes_of(number(26, key)), VALUE);
        });
        db.write(batch)?;
        Ok((directory, db))
    };
    let mut table = Table::new(["differences", "found", "bytes exchanged", "% of the data", "rounds"]);
    for differences in [0, 10, 100, 1000, 10_000] {
        let (_one, first) = fill(0..ENTRIES)?;
        let (_two, second) = fill(differences / 2..ENTRIES + differences / 2)?;
        let found = store::diff(&first.snapshot(), &second.snapshot(), false)?;
        let data = ENTRIES * (8 + VALUE.len() as u64);
        table.row([
            count(differences),
            count((found.only_first.len() + found.only_second.len()) as u64),
            count(found.exchanged_bytes),
            format!("{:.3}", 100.0 * found.exchanged_bytes as f64 / data as f64),
            count(found.rounds),
        ]);
    }
    report.table(&table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_was_used_longest_ago_goes() {
        let mut lru = Lru::new(2);
        for key in [1, 2] {
            assert!(!lru.hit(key));
            lru.admit(key);
        }
        assert!(lru.hit(1) && !lru.hit(3));
        lru.admit(3);
        assert!(lru.hit(1) && lru.hit(3) && !lru.hit(2));
    }

    #[test]
    fn ranks_have_the_shares_of_the_law() {
        let zipf = Zipf::new(1000, 1.0);
        let ranks: Vec<u64> = (0..100_000).map(|index| zipf.rank(number(1, index))).collect();
        for rank in [0, 1, 9] {
            let found = ranks.iter().filter(|&&found| found == rank).count() as f64;
            let expected = 100_000.0 / 7.4855 / (rank + 1) as f64;
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {found} of {expected}");
        }
        assert_eq!(zipf.rank(u64::MAX), 999);
    }
}
