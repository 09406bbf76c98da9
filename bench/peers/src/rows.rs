use crate::engine::Adding;
use crate::keys::KeySet;
use crate::names::EngineName;
use crate::workload::{Absent, Cache, Choice, Counted, Part, Shape, Work, Workload};

fn get(present_percent: u64, absent: Absent, batch: usize) -> Work {
    Work::Get { present_percent, present: Choice::Uniform, absent, batch }
}

fn present(choice: Choice) -> Work {
    Work::Get { present_percent: 100, present: choice, absent: Absent::Uniform, batch: 1 }
}

const BOTH: [(Shape, &str); 2] = [(Shape::Settled, "one run"), (Shape::Left, "as left")];

pub(crate) fn all() -> Vec<Workload> {
    [absent(), absent_memory(), present_keys(), scans(), fills(), mixed(), opening(), growth()].concat()
}

pub(crate) fn real_keys() -> Vec<Workload> {
    let sets =
        [(KeySet::Paths, "file paths"), (KeySet::Urls, "URLs"), (KeySet::Tenants, "tenants and UUIDs")];
    let rows = [fills(), scans(), mixed()].concat().into_iter().filter(|row| row.keys == KeySet::Hashed);
    let with_keys = |row: Workload| {
        let part = match row.part {
            Part::Fill => Part::FillKeys,
            Part::Scan => Part::ScanKeys,
            _ => Part::MixedKeys,
        };
        sets.map(|(keys, what)| {
            let name = format!("{}, {what}", row.name);
            Workload { name, part, ..row.clone() }.keys(keys)
        })
    };
    rows.flat_map(with_keys).collect()
}

pub(crate) fn transactions() -> Vec<Workload> {
    use EngineName::{Fjall, Nothing, Redb, Sievedb, Surrealkv};
    let row = |clients: usize, among: Option<u32>, how: Adding| {
        let threads = if clients == 1 { "1 thread".into() } else { format!("{clients} threads") };
        let keys = among.map_or("keys of its own".into(), |among| format!("any of {among} keys"));
        let pause = if how.yields { ", giving way" } else { "" };
        let name = format!("{threads}, {keys}{pause}{}", if how.synced { ", synced" } else { "" });
        Workload::new(Part::Transactions, name, Work::Add { counters: COUNTERS, among, how }, Shape::Left)
            .cache(Cache::Whole)
            .clients(clients)
            .only(&[Sievedb, Fjall, Surrealkv, Redb, Nothing])
            .counted(if clients == 1 && !how.synced { Counted::CallsAndInstructions } else { Counted::Calls })
    };
    let straight = Adding { yields: false, synced: false };
    let yielding = Adding { yields: true, ..straight };
    let synced = Adding { synced: true, ..straight };
    vec![
        row(1, None, straight),
        row(1, Some(FEW), straight),
        row(4, None, straight),
        row(4, Some(FEW), straight),
        row(4, None, yielding),
        row(4, Some(MANY), yielding),
        row(4, Some(FEW), yielding),
        row(1, None, synced),
        row(4, None, synced),
        row(4, Some(FEW), synced),
    ]
}

const COUNTERS: usize = 3;
/// So many keys that about 1 in 100 transactions of four yielding threads conflict; 50 for [`FEW`].
const MANY: u32 = 2700;
const FEW: u32 = 16;

fn absent() -> Vec<Workload> {
    use Counted::CallsAndInstructions as Full;
    let mut rows = Vec::new();
    let mut add = |name: &str, work: Work, counted: Counted| {
        for (shape, words) in BOTH {
            rows.push(Workload::new(Part::Absent, format!("{name}, {words}"), work, shape).counted(counted));
        }
    };
    add("absent, uniform", get(0, Absent::Uniform, 1), Full);
    add("absent, near misses", get(0, Absent::Near, 1), Full);
    add("absent, skewed repeats", get(0, Absent::Skewed, 1), Counted::Nothing);
    add("absent, batches of 32", get(0, Absent::Uniform, 32), Full);
    add("absent, batches of 1,000", get(0, Absent::Uniform, 1000), Full);
    for percent in [1, 10, 50, 99] {
        add(&format!("{percent} % present"), get(percent, Absent::Uniform, 1), Counted::Nothing);
    }
    for (shape, words) in BOTH {
        rows.push(
            Workload::new(
                Part::Absent,
                format!("absent, uniform, 2 threads, {words}"),
                get(0, Absent::Uniform, 1),
                shape,
            )
            .cache(Cache::Whole)
            .clients(2),
        );
    }
    for (keys, what) in [(KeySet::Paths, "file paths"), (KeySet::Urls, "URLs")] {
        for (shape, words) in BOTH {
            for (absent, kind) in [(Absent::Uniform, "uniform"), (Absent::Near, "near misses")] {
                let name = format!("absent {what}, {kind}, {words}");
                rows.push(Workload::new(Part::Absent, name, get(0, absent, 1), shape).keys(keys));
            }
        }
    }
    rows
}

fn absent_memory() -> Vec<Workload> {
    use EngineName::{FjallPartitioned, Nothing, Rocksdb, RocksdbCached, RocksdbPartitioned, Sievedb};
    let variants = [FjallPartitioned, RocksdbCached, RocksdbPartitioned];
    let mut rows = Vec::new();
    for (shape, words) in BOTH {
        let row = |name: &str| {
            Workload::new(Part::AbsentMemory, format!("{name}, {words}"), get(0, Absent::Uniform, 1), shape)
        };
        rows.push(
            row("filters larger than memory, page cache warm")
                .cache(Cache::Small)
                .beside(&variants)
                .counted(Counted::Calls),
        );
        rows.push(
            row("filters larger than memory, page cache cold").cache(Cache::Small).cold().beside(&variants),
        );
        rows.push(
            row("the same memory with RocksDB's filters on its heap, page cache cold")
                .cache(Cache::SmallAndFilters)
                .cold()
                .only(&[Sievedb, Rocksdb, Nothing]),
        );
        rows.push(row("filters in memory, page cache cold").cold().beside(&variants[1..2]));
    }
    rows
}

fn present_keys() -> Vec<Workload> {
    use EngineName::{FjallHashed, Redb, RocksdbHashed};
    let hashed = [FjallHashed, RocksdbHashed, Redb];
    let row = |name: &str, choice, shape| Workload::new(Part::Present, name, present(choice), shape);
    vec![
        row("present, uniform, one run", Choice::Uniform, Shape::Settled)
            .beside(&hashed)
            .counted(Counted::CallsAndInstructions),
        row("present, zipf, one run", Choice::Zipf, Shape::Settled)
            .beside(&hashed)
            .counted(Counted::CallsAndInstructions),
        row("present, uniform, all cached", Choice::Uniform, Shape::Settled)
            .cache(Cache::Whole)
            .beside(&hashed)
            .counted(Counted::CallsAndInstructions),
        row("present, zipf, all cached", Choice::Zipf, Shape::Settled)
            .cache(Cache::Whole)
            .beside(&hashed)
            .counted(Counted::CallsAndInstructions),
        row("present, uniform, as left", Choice::Uniform, Shape::Left),
        row("present, zipf, as left", Choice::Zipf, Shape::Left),
        row("present, uniform, page cache cold", Choice::Uniform, Shape::Settled).cold(),
        row("present, uniform, small cache", Choice::Uniform, Shape::Settled).cache(Cache::Small),
        row("present, uniform, all cached, 2 threads", Choice::Uniform, Shape::Settled)
            .cache(Cache::Whole)
            .clients(2),
        row("present, zipf, all cached, 2 threads", Choice::Zipf, Shape::Settled)
            .cache(Cache::Whole)
            .clients(2),
    ]
}

fn scans() -> Vec<Workload> {
    use EngineName::Redb;
    let mut rows = Vec::new();
    for (shape, words) in BOTH {
        let row = |name: &str, work| Workload::new(Part::Scan, format!("{name}, {words}"), work, shape);
        rows.push(
            row("scan of 100", Work::Scan { entries: 100 })
                .beside(&[Redb])
                .counted(Counted::CallsAndInstructions),
        );
        rows.push(
            row("full scan", Work::FullScan { back: false })
                .beside(&[Redb])
                .counted(Counted::CallsAndInstructions),
        );
        rows.push(
            row("full scan back", Work::FullScan { back: true })
                .beside(&[Redb])
                .counted(Counted::CallsAndInstructions),
        );
    }
    rows.push(
        Workload::new(
            Part::Scan,
            "scan of 100, 2 threads, one run",
            Work::Scan { entries: 100 },
            Shape::Settled,
        )
        .cache(Cache::Whole)
        .clients(2),
    );
    rows
}

fn fills() -> Vec<Workload> {
    use EngineName::Redb;
    let row = |name: &str, ascending, batch, synced, clients| {
        Workload::new(Part::Fill, name, Work::Fill { ascending, batch, synced }, Shape::Empty)
            .keys(if ascending { KeySet::Ascending } else { KeySet::Hashed })
            .clients(clients)
            .beside(&[Redb])
            .counted(if synced { Counted::Calls } else { Counted::CallsAndInstructions })
    };
    vec![
        row("fill, sequential", true, 1, false, 1),
        row("fill, random", false, 1, false, 1),
        row("fill, random, batches of 100", false, 100, false, 1),
        row("fill, synced, 1 writer", false, 1, true, 1),
        row("fill, synced, 8 writers", false, 1, true, 8),
    ]
}

fn mixed() -> Vec<Workload> {
    use EngineName::Redb;
    let mut rows = Vec::new();
    for (letter, what) in [
        ('a', "half updates"),
        ('b', "1 update in 20"),
        ('c', "reads only"),
        ('d', "the latest"),
        ('e', "short scans"),
        ('f', "half read, change, write"),
    ] {
        let name = format!("YCSB {}: {what}", letter.to_ascii_uppercase());
        let row = Workload::new(Part::Ycsb, name, Work::Ycsb(letter), Shape::Left);
        rows.push(if matches!(letter, 'a' | 'c') { row.beside(&[Redb]) } else { row });
    }
    rows.push(
        Workload::new(Part::Ycsb, "YCSB C, 2 threads", Work::Ycsb('c'), Shape::Left)
            .cache(Cache::Whole)
            .clients(2),
    );
    let row = |name: &str, work, shape| Workload::new(Part::Delete, name, work, shape);
    rows.push(row("delete, random", Work::Delete, Shape::Left).counted(Counted::CallsAndInstructions));
    rows.push(row("half gets, a quarter puts, a quarter deletions", Work::DeleteMixed, Shape::Left));
    rows.push(row("scan of 100, every second key deleted", Work::Scan { entries: 100 }, Shape::Deleted));
    rows
}

fn opening() -> Vec<Workload> {
    let row = |name: &str, shape| Workload::new(Part::Open, name, Work::Open, shape);
    vec![
        row("open, closed cleanly", Shape::Left),
        row("open, 15 % of the keys in the log", Shape::Log),
        row("open, 1,000 tables", Shape::Tables),
    ]
}

fn growth() -> Vec<Workload> {
    const TIMES: u32 = 10;
    let row = |name: &str, work, shape| {
        Workload::new(Part::Growth, format!("{name}, {TIMES} times the keys"), work, shape)
            .times(TIMES)
            .counted(Counted::CallsAndInstructions)
    };
    vec![
        row("absent, uniform, one run", get(0, Absent::Uniform, 1), Shape::Settled),
        row("absent, uniform, as left", get(0, Absent::Uniform, 1), Shape::Left),
        row("present, uniform, one run", present(Choice::Uniform), Shape::Settled),
        row("present, uniform, as left", present(Choice::Uniform), Shape::Left),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_the_loop_beside_it() {
        let rows = [all(), transactions(), real_keys()].concat();
        let names: BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
        assert_eq!(names.len(), rows.len());
        for row in &rows {
            assert!(row.engines.contains(&EngineName::Nothing), "{}", row.name);
            assert!(row.engines.contains(&EngineName::Sievedb), "{}", row.name);
        }
        assert!(real_keys().iter().all(|row| row.keys != KeySet::Hashed));
        for part in Part::ALL {
            assert!(rows.iter().any(|row| row.part == part), "{part:?}");
        }
    }
}
