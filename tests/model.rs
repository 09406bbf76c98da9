//! The store and a sorted map execute the same operations and must give the same answers. quickcheck generates and
//! shrinks histories: writes to several keyspaces, lookups, scans from both ends, long-lived snapshots and iterators,
//! changed options, and every kind of reopening. Trees are tiny and several levels deep.
//!
//! Runs a part of the histories unless `SIEVEDB_THOROUGH` is set. The seed is printed; `SIEVEDB_SEED` sets it.

mod ops;
mod reference;
mod world;

use std::sync::Mutex;

use quickcheck::{Gen, QuickCheck};
use sievedb::fs::MemFs;
use sievedb::{Compression, FilterKind, FilterPolicy, KeyspaceOptions, Options};

use crate::support::sample::thorough;
use ops::History;
use world::{Disk, Reached, World};

const OPS: usize = 1000;

fn seed() -> u64 {
    let seed =
        std::env::var("SIEVEDB_SEED").map_or(1, |seed| seed.parse().expect("SIEVEDB_SEED is a number"));
    println!("SIEVEDB_SEED={seed}");
    seed
}

fn check(histories: u64, seed: u64, property: fn(History) -> Result<(), String>) {
    QuickCheck::new().rng(Gen::from_size_and_seed(OPS, seed)).tests(histories).quickcheck(property);
}

fn live(history: &History, disk: Disk, reached: &Mutex<Option<Reached>>) -> Result<(), String> {
    let world = World::live(history, disk, None)?;
    reached.lock().unwrap().get_or_insert_default().add(&world.reached);
    Ok(())
}

fn histories(all: u64, sample: u64) -> u64 {
    if thorough() { all } else { sample }
}

fn assert_reached(reached: &Mutex<Option<Reached>>, histories: u64) {
    let reached = &reached.lock().unwrap().unwrap();
    println!("{reached:?}");
    assert_eq!(reached.ops, histories * OPS as u64);
    assert!(reached.levels >= 4, "{reached:?}");
    for count in [reached.flushes, reached.compactions, reached.reopenings, reached.snapshots] {
        assert!(count > histories, "{reached:?}");
    }
    assert!(reached.rebuilt_filters > 0 && reached.audited > reached.ops / 100, "{reached:?}");
    assert!(reached.trivial_moves > 0 && reached.found > reached.ops / 4 && reached.absent > reached.ops / 4);
    assert!(reached.walked > reached.ops, "{reached:?}");
    assert!(reached.allowed > reached.ops / 20 && reached.refused > reached.ops / 20, "{reached:?}");
}

#[test]
fn histories_in_memory_agree_with_a_sorted_map() {
    static REACHED: Mutex<Option<Reached>> = Mutex::new(None);
    let histories = histories(75, 15);
    check(histories, seed(), |history| live(&history, Disk::Memory(MemFs::new(), 0), &REACHED));
    assert_reached(&REACHED, histories);
}

#[test]
fn histories_with_threads_agree_with_a_sorted_map() {
    static REACHED: Mutex<Option<Reached>> = Mutex::new(None);
    let histories = histories(22, 7);
    check(histories, !seed(), |history| live(&history, Disk::Memory(MemFs::new(), 2), &REACHED));
    assert_reached(&REACHED, histories);
}

#[test]
fn histories_on_disk_agree_with_a_sorted_map() {
    static REACHED: Mutex<Option<Reached>> = Mutex::new(None);
    let histories = histories(3, 1);
    check(histories, seed().rotate_left(16), |history| {
        live(&history, Disk::Folder(tempfile::tempdir().unwrap(), 2), &REACHED)
    });
    assert_reached(&REACHED, histories);
}

fn option_sets() -> Vec<(Options, KeyspaceOptions)> {
    let filter = |kind, bits| KeyspaceOptions::new().filter(FilterPolicy::new(kind).bits_per_key(bits));
    let small = Options::new().memory_budget(1 << 20).open_files_max(8).log_bytes_max(1).audit_absent(2);
    let tiny = |options: KeyspaceOptions| {
        options.block_bytes(512).memtable_bytes(2048).table_bytes(1024).level_base_bytes(4096).level_ratio(2)
    };
    vec![
        (Options::new(), KeyspaceOptions::new()),
        (small.clone(), tiny(filter(FilterKind::None, 10.0)).compression(Compression::None)),
        (small.clone(), tiny(filter(FilterKind::Bloom, 1.3)).compression(Compression::Lz4).l0_runs(1)),
        (small.clone(), tiny(filter(FilterKind::BlockedBloom, 22.5))),
        (small, filter(FilterKind::Auto, 7.77).block_bytes(1 << 20).memtable_bytes(1).table_bytes(20_000)),
    ]
}

#[test]
fn the_same_history_has_the_same_answers_under_every_set_of_options() {
    check(histories(4, 1), seed().rotate_left(32), |history| {
        let mut first: Option<Vec<u64>> = None;
        for (at, set) in option_sets().into_iter().enumerate() {
            let world = World::live(&history, Disk::Memory(MemFs::new(), 0), Some(set))
                .map_err(|wrong| format!("options {at}: {wrong}"))?;
            let first = first.get_or_insert_with(|| world.answers.clone());
            if let Some(differs) = (0..first.len()).find(|&op| first[op] != world.answers[op]) {
                return Err(format!("options {at} and 0 part at operation {differs}"));
            }
        }
        Ok(())
    });
}
