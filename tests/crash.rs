//! Power loss at every operation.
//!
//! Before every operation of a workload, an image of the files after a power loss is taken: without unsynced data, with
//! all data, or with a random part of it (files cut, garbage in last sectors, names kept or lost); before every third
//! operation, all three kinds. Each image must open with a prefix of the batches that has all durable batches, survive
//! another power loss, and verify. In a sample, power is also lost before every operation of the recovery.
//!
//! Runs one history, or four with `SIEVEDB_THOROUGH`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::Durability;
use sievedb::fs::{CrashPolicy, MemFs};

use crate::support::history::History;
use crate::support::parallel::{cases, caught};
use crate::support::sample::thorough;
use crate::support::store::{self, contents};
use crate::support::workload::{Workload, universe};

const NESTED_ONE_IN: u64 = 241;

fn policies(salt: u64, number: u64) -> Vec<CrashPolicy> {
    let random = |n| CrashPolicy::Random(salt.wrapping_mul(0x9e37_79b9).wrapping_add(n));
    if number.is_multiple_of(3) {
        vec![CrashPolicy::DropUnsynced, CrashPolicy::KeepAll, random(1), random(2), random(3)]
    } else {
        vec![CrashPolicy::DropUnsynced, random(1)]
    }
}

#[derive(Default)]
struct Counts {
    operations: AtomicU64,
    images: AtomicU64,
    nested: AtomicU64,
    flushing: AtomicU64,
    shorter: AtomicU64,
}

#[test]
fn after_a_power_loss_at_any_operation_the_store_holds_every_durable_write() {
    let counts = Counts::default();
    let seeds = if thorough() { 4 } else { 1 };
    cases(&(1..=seeds).collect::<Vec<u64>>(), |&seed| power_loss_everywhere(seed, 200, &counts));
    let Counts { operations, images, nested, flushing, shorter } = counts;
    let [operations, images, nested, flushing, shorter] =
        [operations, images, nested, flushing, shorter].map(AtomicU64::into_inner);
    println!(
        "{operations} operations, {images} images, {nested} of recoveries, {flushing} of such as flush, {shorter} without the newest batch"
    );
    assert!(
        images > 1250 * seeds && nested > 250 * seeds && flushing > 250 * seeds && shorter > 125 * seeds,
        "the workload has become too small"
    );
}

fn power_loss_everywhere(seed: u64, operations: u64, counts: &Counts) -> Result<(), String> {
    let fs = MemFs::new();
    let mut workload = Workload::new(&fs, seed);
    let (history, doing) = (workload.history(), workload.doing());
    let failure = Arc::new(Mutex::new(None::<String>));
    let result = std::thread::scope(|_| {
        let failed = Arc::clone(&failure);
        let seen = Arc::new(Counts::default());
        let books = Arc::clone(&seen);
        fs.observe(move |fs, op| {
            if failed.lock().unwrap().is_some() {
                return Ok(());
            }
            let number = books.operations.fetch_add(1, Ordering::Relaxed);
            let history = history.lock().unwrap().clone();
            for policy in policies(seed << 32 | number, number) {
                let tried = caught(|| check(&fs.crash(policy), &history, policy, number, &books));
                if let Err(what) = tried {
                    let (doing, op) = (doing.lock().unwrap().clone(), short(&format!("{op:?}")));
                    let text =
                        format!("seed {seed}, {doing}, file operation {number} ({op}), {policy:?}: {what}");
                    *failed.lock().unwrap() = Some(text);
                    break;
                }
            }
            Ok(())
        });
        let result = workload.run(operations).and_then(|()| workload.close());
        for (sum, part) in [
            (&counts.operations, &seen.operations),
            (&counts.images, &seen.images),
            (&counts.nested, &seen.nested),
            (&counts.flushing, &seen.flushing),
            (&counts.shorter, &seen.shorter),
        ] {
            sum.fetch_add(part.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        result
    });
    if let Some(failure) = failure.lock().unwrap().take() {
        return Err(failure);
    }
    result.map_err(|error| format!("seed {seed}: the workload itself failed: {error}"))
}

fn short(text: &str) -> String {
    text.chars().take(70).collect()
}

fn check(
    image: &MemFs,
    history: &History,
    policy: CrashPolicy,
    number: u64,
    counts: &Counts,
) -> Result<(), String> {
    counts.images.fetch_add(1, Ordering::Relaxed);
    if number.is_multiple_of(NESTED_ONE_IN) {
        interrupt_recovery(&image.crash(CrashPolicy::KeepAll), history, number, counts)?;
    }
    let batches = recovers(image, history, policy == CrashPolicy::DropUnsynced, number.is_multiple_of(7))?;
    counts.shorter.fetch_add(u64::from(batches < history.written()), Ordering::Relaxed);
    Ok(())
}

fn recovers(image: &MemFs, history: &History, is_clean_cut: bool, goes_on: bool) -> Result<usize, String> {
    let db = store::open(image).map_err(|error| format!("does not open: {error}"))?;
    if is_clean_cut && !db.open_report().dropped.is_empty() {
        return Err(format!(
            "a cut at the synced length is reported as torn: {:?}",
            db.open_report().dropped
        ));
    }
    let found = contents(&db)?;
    let batches = history.find(&found)?;
    let findings = store::examine(&db, &found, &universe())?;
    if let Some(error) = findings.errors.iter().chain(&findings.damage).next() {
        return Err(format!("recovered, but: {error}"));
    }
    let again = reopened(&image.crash(CrashPolicy::DropUnsynced), "after a second power loss")?;
    if again != found {
        return Err(format!("a second power loss changes what was recovered ({batches} batches)"));
    }
    if goes_on {
        let error = |error| format!("recovered, but cannot be written: {error}");
        let mut batch = sievedb::WriteBatch::new();
        batch.put("key 05", "after recovery");
        db.write_with(batch, Durability::Synced).map_err(error)?;
        db.flush().map_err(error)?;
        db.compact().map_err(error)?;
    }
    let last = contents(&db)?;
    db.close().map_err(|error| format!("recovered, but does not close: {error}"))?;
    if reopened(image, "after closing")? != last {
        return Err("closing and opening again changes what was recovered".into());
    }
    Ok(batches)
}

fn reopened(image: &MemFs, when: &str) -> Result<store::Contents, String> {
    let db = store::open(image).map_err(|error| format!("{when} it does not open: {error}"))?;
    let found = contents(&db)?;
    match db.verify().map_err(|error| error.to_string())?.damage.first() {
        Some(damage) => Err(format!("{when}: {damage}")),
        None => Ok(found),
    }
}

fn interrupt_recovery(image: &MemFs, history: &History, number: u64, counts: &Counts) -> Result<(), String> {
    // A tight budget causes many operations, so it is used for fewer images.
    let is_tight = (number / NESTED_ONE_IN) % 4 == 3;
    let (memtable_bytes, one_in) = if is_tight { (2 << 10, 2) } else { (2600, 1) };
    let images = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    image.observe(move |fs, op| {
        let mut taken = taken.lock().unwrap();
        let at = taken.len() as u64;
        let op = short(&format!("{op:?}"));
        let policies = policies(number << 16 | at, 0).into_iter().step_by(one_in);
        taken.extend(policies.map(|policy| (fs.crash(policy), policy, op.clone())));
        Ok(())
    });
    let keyspace = store::small().memtable_bytes(memtable_bytes);
    let log_bytes_max = number / NESTED_ONE_IN % 2;
    let options = store::options(image).default_keyspace(keyspace).log_bytes_max(log_bytes_max);
    let opened = options.open(store::DIR);
    let opened = opened.map(|db| db.open_report().flushes);
    image.stop_observing();
    let flushes = opened.map_err(|error| format!("does not open: {error}"))?;
    if flushes > 0 {
        counts.flushing.fetch_add(images.lock().unwrap().len() as u64, Ordering::Relaxed);
    }
    for (second, policy, op) in images.lock().unwrap().iter() {
        counts.nested.fetch_add(1, Ordering::Relaxed);
        recovers(second, history, false, false)
            .map_err(|what| format!("recovery interrupted before {op}, {policy:?}: {what}"))?;
    }
    Ok(())
}
