//! Power loss while logs are prepared, put into use, and recorded as ended. Nearly every log is named in advance. Each
//! image opens, also read-only, with a prefix of the keys, at least up to the last synced key. In some runs an append
//! fails, so that writing resumes.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sievedb::fs::{CrashPolicy, MemFs, Op};
use sievedb::{Db, Durability, Options, WriteBatch};

use crate::support::parallel::{cases, caught};
use crate::support::sample::thorough;
use crate::support::store::{self, DIR};

const KEYS: u64 = 100;

#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    durable: AtomicU64,
}

/// The number of the append, counted from 0, and its error.
type Failure = (u64, ErrorKind);

fn options(fs: &MemFs) -> Options {
    store::options(fs).default_keyspace(store::small().memtable_bytes(32 << 10))
}

#[test]
fn power_may_be_lost_at_any_operation_while_logs_are_prepared_and_begun() {
    let kinds = [ErrorKind::StorageFull, ErrorKind::Other];
    let appends = if thorough() { (0..KEYS).step_by(5).collect() } else { vec![33, 62] };
    let failures = appends.into_iter().enumerate().map(|(n, append)| (append, kinds[n % 2]));
    let all: Vec<Option<Failure>> = failures.map(Some).chain([None]).collect();
    let counts = cases(&all, |&failure| lose_power_everywhere(failure));
    for [images, beside_unused, after_closed] in counts {
        println!(
            "{images} images; {beside_unused} appends beside an unused log, {after_closed} after a closed one"
        );
        assert!(images > 800 && beside_unused > 30 && after_closed > 5, "the workload has become too small");
    }
}

fn lose_power_everywhere(failure: Option<Failure>) -> Result<[u64; 3], String> {
    let fs = MemFs::new();
    let db = options(&fs).open(DIR).map_err(|error| error.to_string())?;
    let progress = Arc::new(Progress::default());
    let counts: Arc<[AtomicU64; 3]> = Arc::default();
    let wrong = Arc::new(Mutex::new(None::<String>));
    let (known, counted, found) = (Arc::clone(&progress), Arc::clone(&counts), Arc::clone(&wrong));
    let (operations, appends) = (AtomicU64::new(0), AtomicU64::new(0));
    fs.observe(move |fs, op| {
        let number = operations.fetch_add(1, Ordering::Relaxed);
        let mut policies = vec![CrashPolicy::DropUnsynced, CrashPolicy::Random(number)];
        if thorough() || number.is_multiple_of(3) {
            policies.extend([CrashPolicy::KeepAll, CrashPolicy::Random(!number)]);
        }
        for policy in policies {
            counted[0].fetch_add(1, Ordering::Relaxed);
            if let Err(what) = caught(|| check(&fs.crash(policy), &known, policy)) {
                let text = format!("{failure:?}, operation {number}, {policy:?}: {what}");
                found.lock().unwrap().get_or_insert(text);
            }
        }
        let Some(log) = appended_log(&op) else { return Ok(()) };
        let others = store::files(fs).into_keys().filter(|name| name.ends_with(".wal"));
        let (newer, older): (Vec<_>, Vec<_>) =
            others.filter(|other| *other != log).partition(|other| *other > log);
        counted[1].fetch_add((!newer.is_empty()).into(), Ordering::Relaxed);
        counted[2].fetch_add((!older.is_empty()).into(), Ordering::Relaxed);
        match failure {
            Some((at, kind)) if appends.fetch_add(1, Ordering::Relaxed) == at => Err(kind.into()),
            _ => Ok(()),
        }
    });
    for n in 0..KEYS {
        progress.begun.store(n + 1, Ordering::Relaxed);
        let durability = if n % 7 == 0 { Durability::Synced } else { Durability::Buffered };
        let write = || {
            let mut batch = WriteBatch::new();
            batch.put(n.to_be_bytes(), value(n));
            db.write_with(batch, durability)
        };
        write().or_else(|_| write()).map_err(|error| format!("key {n}: {error}"))?;
        if durability == Durability::Synced {
            progress.durable.store(n + 1, Ordering::Relaxed);
        }
        db.step().map_err(|error| format!("after key {n}: {error}"))?;
    }
    db.close().map_err(|error| error.to_string())?;
    fs.stop_observing();
    progress.durable.store(KEYS, Ordering::Relaxed);
    check(&fs.crash(CrashPolicy::DropUnsynced), &progress, CrashPolicy::DropUnsynced)?;
    let wrong = wrong.lock().unwrap().take();
    wrong.map_or(Ok(()), Err)?;
    Ok([0, 1, 2].map(|count| counts[count].load(Ordering::Relaxed)))
}

/// The log to which records other than its close record are appended.
fn appended_log(op: &Op<'_>) -> Option<String> {
    let Op::Append(path, bytes) = op else { return None };
    let name = path.file_name()?.to_str()?;
    let is_header = bytes.len() == 64 && bytes[0] == 0x89;
    let is_close = bytes[6] >> 2 == 3;
    (name.ends_with(".wal") && !is_header && !is_close).then(|| name.to_owned())
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 700 + (n * 337 % 1000) as usize]
}

fn check(image: &MemFs, progress: &Progress, policy: CrashPolicy) -> Result<(), String> {
    let at_least = progress.durable.load(Ordering::Relaxed);
    let at_most = progress.begun.load(Ordering::Relaxed);
    let verified = options(image).verify(DIR).map_err(|error| error.to_string())?;
    if let Some(damage) = verified.damage.first() {
        return Err(damage.to_string());
    }
    let read_only = options(image).read_only().open(DIR).map_err(|error| format!("for reading: {error}"))?;
    let count = keys(&read_only)?;
    drop(read_only);
    if !(at_least..=at_most).contains(&count) {
        return Err(format!("{count} keys, and not {at_least} to {at_most}"));
    }
    let db = options(image).open(DIR).map_err(|error| error.to_string())?;
    let dropped = &db.open_report().dropped;
    if policy == CrashPolicy::DropUnsynced && !dropped.is_empty() {
        return Err(format!("a cut at the synced length is reported as torn: {dropped:?}"));
    }
    let again = image.crash(CrashPolicy::DropUnsynced);
    let again = options(&again).open(DIR).map_err(|error| format!("after a second power loss: {error}"))?;
    if [keys(&db)?, keys(&again)?] != [count; 2] {
        return Err(format!("{count} keys are others for a writer, or after a second power loss"));
    }
    Ok(())
}

fn keys(db: &Db) -> Result<u64, String> {
    let mut count = 0u64;
    for item in db.iter() {
        let (key, found) = item.map_err(|error| error.to_string())?;
        if key[..] != count.to_be_bytes() || found[..] != value(count)[..] {
            return Err(format!("key {count} is missing or has another value"));
        }
        count += 1;
    }
    Ok(count)
}
