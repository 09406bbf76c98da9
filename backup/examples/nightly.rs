//! A backup every night: made, pruned, and once a week restored and compared.
//!
//! `cargo run --package sievedb-backup --example nightly` plays three weeks in a temporary directory.

use sievedb::{Db, Options};
use sievedb_backup::{Control, Repository, Restore};

/// Nights that are kept.
const KEPT: u64 = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("visits.db");
    let repository = Repository::create(folder.path().join("backups"))?;
    let db = Db::open(&store)?;
    for day in 1..=21_u32 {
        work(&db, day)?;
        night(&store, &repository)?;
        if day % 7 == 0 {
            let entries = rehearse(&repository, &folder.path().join("rehearsal"))?;
            assert_eq!(entries, db.iter().count());
            println!("day {day}: a restore has all {entries} entries");
        }
    }
    let backups = repository.backups()?;
    assert!(backups.unreadable.is_empty());
    println!(
        "{} backups are left, the oldest of {}",
        backups.backups.len(),
        backups.backups[KEPT as usize - 1].id
    );
    Ok(())
}

/// The work of a day.
fn work(db: &Db, day: u32) -> sievedb::Result<()> {
    for visitor in 0..5000_u32 {
        db.put(format!("day {day:03} visitor {visitor:05}"), "seen")?;
    }
    db.flush()
}

/// The nightly `cron` job, in its own process, next to the program.
fn night(store: &std::path::Path, repository: &Repository) -> Result<(), Box<dyn std::error::Error>> {
    let db = Options::new().read_only().open(store)?;
    let report = repository.backup(&db, &mut Control::new().limit_rate(100 << 20))?;
    let pruned = repository.prune(KEPT)?;
    println!(
        "{}: copied {} of {} bytes; removed {} backups",
        report.backup.id,
        report.copied_bytes,
        report.backup.bytes,
        pruned.removed.len()
    );
    Ok(())
}

/// Restores the newest backup, and removes the result. Returns the number of entries.
fn rehearse(repository: &Repository, dir: &std::path::Path) -> Result<usize, Box<dyn std::error::Error>> {
    repository.restore(dir, &Restore::new(), &mut Control::new())?;
    let restored = Options::new().read_only().open(dir)?;
    let entries = restored.iter().count();
    drop(restored);
    std::fs::remove_dir_all(dir)?;
    Ok(entries)
}
