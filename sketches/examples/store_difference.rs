//! The difference of two stores, and the bytes exchanged to find it.
//!
//! Run `cargo run --release --features store --example store_difference`. It creates two stores of 200,000 entries.

use sievedb::{Db, WriteBatch};
use sievedb_sketches::store::diff;

const ENTRIES: u64 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:>12} {:>9} {:>9} {:>9} {:>7} {:>10} {:>12} {:>14}",
        "differences", "found", "estimate", "changed", "rounds", "exchanged", "a difference", "of the data"
    );
    for differences in [0, 10, 100, 1000, 10_000] {
        let dirs = [tempfile::tempdir()?, tempfile::tempdir()?];
        // Half of the differing keys are in each store only. Ten more have different values.
        let first = fill(dirs[0].path(), 0, differences / 2, false)?;
        let second = fill(dirs[1].path(), differences / 2, 0, differences > 0)?;
        let (one, two) = (first.snapshot(), second.snapshot());
        let mut data = 0;
        for entry in one.iter() {
            let (key, value) = entry?;
            data += key.len() + value.len();
        }
        let found = diff(&one, &two, true)?;
        let listed = found.only_first.len() + found.only_second.len() + found.differ.len();
        println!(
            "{:>12} {listed:>9} {:>9.0} {:>9} {:>7} {:>10} {:>12.1} {:>13.3}%",
            differences + if differences > 0 { 10 } else { 0 },
            found.estimate,
            found.differ.len(),
            found.rounds,
            found.exchanged_bytes,
            found.exchanged_bytes as f64 / listed.max(1) as f64,
            100.0 * found.exchanged_bytes as f64 / data as f64
        );
    }
    println!("\nestimate: entries that one side lacks; a changed value counts once on each side");
    println!("changed: found keys with different values");
    Ok(())
}

fn fill(dir: &std::path::Path, first: u64, last: u64, changed: bool) -> Result<Db, sievedb::Error> {
    let db = Db::open(dir)?;
    let mut batch = WriteBatch::new();
    for key in first..ENTRIES + last {
        let version = u64::from(changed && key % 20_000 == 10_007);
        batch.put(format!("user/{key:08}"), format!("the value of entry {key}, version {version}, which is some ninety bytes long in all of the stores"));
    }
    db.write(batch)?;
    Ok(db)
}
