//! Open, write, read, iterate, count.
//!
//! `cargo run --example quickstart`

use sievedb::{Db, Durability, KeyspaceOptions, Result, WriteBatch};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sievedb-quickstart-{}", std::process::id()));
    let db = Db::open(&dir)?;

    // Single writes are buffered: they survive the process, not a power loss.
    db.put("planet:saturn", "rings")?;
    db.put("planet:mars", "red")?;
    println!("saturn has {:?}", db.get("planet:saturn")?);
    println!("pluto is {:?}", db.get("planet:pluto")?);

    // A batch is atomic, even over several keyspaces; `Synced` returns when it is on disk.
    let moons = db.keyspace("moons", KeyspaceOptions::default())?;
    let mut batch = WriteBatch::new();
    batch.put("planet:jupiter", "big");
    batch.put_in(&moons, "europa", "jupiter").put_in(&moons, "titan", "saturn");
    db.write_with(batch, Durability::Synced)?;

    // A snapshot keeps its view of the store.
    let before = db.snapshot();
    db.delete("planet:mars")?;
    println!("planets now:    {}", names(db.prefix("planet:"))?);
    println!("planets before: {}", names(before.prefix("planet:"))?);
    println!("moons, from the end: {}", names(moons.iter().rev())?);

    for n in 0..10_000 {
        moons.put(format!("moon {n}"), "")?;
    }
    moons.flush()?;
    for n in 10_000..20_000 {
        assert!(!moons.contains(format!("moon {n}"))?);
    }
    let stats = db.stats();
    let filter = stats.keyspace("moons").map(|keyspace| keyspace.total().filter).unwrap_or_default();
    println!(
        "of 10000 lookups of absent moons the filter answered {}, and {} wasted a block read",
        filter.negatives, filter.false_positives
    );

    drop((before, moons));
    db.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

fn names(items: impl Iterator<Item = Result<(sievedb::Value, sievedb::Value)>>) -> Result<String> {
    let keys = items.map(|item| item.map(|(key, _)| String::from_utf8_lossy(&key).into_owned()));
    Ok(keys.collect::<Result<Vec<_>>>()?.join(", "))
}
