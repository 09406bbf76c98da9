//! Each key is new once, even if the process is killed.
//!
//! A child with eight threads inserts random keys with `insert_if_absent` and records each new key in a file. Little
//! memory causes flushes, compactions, and loading and unloading of filters, which is counted. The parent kills
//! children at random moments. Every key must be present, and new at most once. Per thread and kill, at most one key
//! may be new to no thread, because its answer was lost.
//!
//! `cargo test --release --test store -- --ignored --nocapture once::` makes 10^7 calls for 10^6 keys.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sievedb::{Db, FilterKind, FilterPolicy, KeyspaceOptions, Options};

use crate::support::rng::Rng;

/// Directory, number of keys, calls of each thread, seed, memory budget, table size.
const CHILD: &str = "SIEVEDB_ONCE_TEST_CHILD";

const THREADS: u64 = 8;

const CALLS: u64 = 1 << 63;

const CHANGES: u64 = 1 << 62;

const NOTE_EVERY: u64 = 512;

struct Run<'a> {
    dir: &'a Path,
    keys: u64,
    calls: u64,
    kills: u64,
    life: Duration,
    memory_budget: usize,
    table_bytes: u64,
}

fn open(dir: &Path, memory_budget: usize, table_bytes: u64) -> Db {
    let keyspace = KeyspaceOptions::new()
        .memtable_bytes(memory_budget / 16)
        .table_bytes(table_bytes)
        .level_base_bytes(memory_budget as u64)
        .filter(FilterPolicy::new(FilterKind::Ribbon).bits_per_key(12.0));
    Options::new().memory_budget(memory_budget).default_keyspace(keyspace).open(dir.join("store")).unwrap()
}

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

#[test]
fn child() {
    let Ok(wanted) = std::env::var(CHILD) else { return };
    let mut words = wanted.split(' ');
    let dir = Path::new(words.next().unwrap());
    let mut number = || words.next().unwrap().parse::<u64>().unwrap();
    let (keys, calls, seed, memory_budget) = (number(), number(), number(), number() as usize);
    let db = open(dir, memory_budget, number());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                let path = dir.join(format!("{seed}-{thread}"));
                let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
                let mut note = |record: u64| file.write_all(&record.to_le_bytes()).unwrap();
                let rng = &mut Rng::new(seed << 8 | thread);
                let end = Instant::now() + Duration::from_secs(60);
                for made in 1.. {
                    let n = rng.below(keys);
                    if db.insert_if_absent(key(n), n.to_le_bytes()).unwrap() {
                        note(n);
                    }
                    let may_end = || thread > 0 || db.stats().residency_changes > 0 || Instant::now() > end;
                    let ends = made >= calls && may_end();
                    if made % NOTE_EVERY == 0 || ends {
                        note(CALLS | made);
                        if thread == 0 {
                            note(CHANGES | db.stats().residency_changes);
                        }
                    }
                    if ends {
                        break;
                    }
                }
            });
        }
    });
    let stats = db.stats();
    println!("the last of the processes:\n{stats}");
    db.close().unwrap();
}

fn spawn(run: &Run<'_>, calls: u64, seed: u64) -> Child {
    let dir = run.dir.to_str().unwrap();
    let Run { keys, memory_budget, table_bytes, .. } = run;
    let words = format!("{dir} {keys} {} {seed} {memory_budget} {table_bytes}", calls.div_ceil(THREADS));
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "once::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, words)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// The keys that were new to a child; lower bounds of its calls and residency changes.
fn read_notes(dir: &Path, seed: u64) -> (Vec<u64>, u64, u64) {
    let (mut new, mut calls, mut changes) = (Vec::new(), 0, 0);
    for thread in 0..THREADS {
        let Ok(mut file) = File::open(dir.join(format!("{seed}-{thread}"))) else { continue };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        let mut made = 0;
        for record in bytes.chunks_exact(8) {
            let record = u64::from_le_bytes(record.try_into().unwrap());
            match record {
                ..CHANGES => new.push(record),
                CHANGES..CALLS => changes = record - CHANGES,
                CALLS.. => made = record - CALLS,
            }
        }
        calls += made;
    }
    (new, calls, changes)
}

fn each_key_is_new_once(run: &Run<'_>) {
    let started = Instant::now();
    let mut rng = Rng::new(7);
    let mut times_new = vec![0_u8; run.keys as usize];
    let (mut made, mut changed, mut kills) = (0, 0, 0);
    let open = || open(run.dir, run.memory_budget, run.table_bytes);
    for seed in 0.. {
        let is_killed = kills < run.kills;
        let mut child = spawn(run, if is_killed { 1 << 40 } else { run.calls.saturating_sub(made) }, seed);
        if is_killed {
            std::thread::sleep(run.life.mul_f64(0.2 + rng.below(1000) as f64 / 600.0));
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        assert_eq!(status.success(), !is_killed, "{status}");
        kills += u64::from(is_killed);
        let (new, calls, changes) = read_notes(run.dir, seed);
        new.iter().for_each(|&n| times_new[n as usize] += 1);
        made += calls;
        changed += changes;
        if !is_killed {
            break;
        }
        if kills % 4 == 0 {
            let db = open();
            assert!(new.iter().all(|&n| db.contains(key(n)).unwrap()), "a key that was new is gone");
        }
    }
    let twice = times_new.iter().filter(|&&times| times > 1).count();
    assert_eq!(twice, 0, "keys were new more than once");
    let db = open();
    let (mut present, mut unanswered) = (0, 0);
    for n in 0..run.keys {
        let value = db.get(key(n)).unwrap();
        let times = times_new[n as usize];
        assert!(value.is_some() || times == 0, "key {n} was new, and is gone");
        assert!(value.is_none_or(|value| value == n.to_le_bytes()[..]), "key {n} has another value");
        present += u64::from(db.contains(key(n)).unwrap());
        unanswered += u64::from(times == 0 && db.contains(key(n)).unwrap());
    }
    assert_eq!(db.len().unwrap(), present);
    assert!(present > run.keys * 9 / 10, "only {present} keys");
    assert!(unanswered <= kills * THREADS, "{unanswered} keys were new to nobody, after {kills} kills");
    assert!(db.verify().unwrap().damage.is_empty());
    assert!(changed > 0, "which filters are in memory has never changed");
    let (seconds, keys) = (started.elapsed().as_secs(), run.keys);
    println!(
        "{made} calls, {kills} kills, {changed} changes of what is in memory of filters: {present} of {keys} keys are \
         there, each new once; {unanswered} answers were killed; {seconds} s"
    );
}

#[test]
fn each_key_is_new_once_through_kills_flushes_and_compactions() {
    let dir = tempfile::tempdir().unwrap();
    each_key_is_new_once(&Run {
        dir: dir.path(),
        keys: 20_000,
        calls: 60_000,
        kills: 8,
        life: Duration::from_millis(60),
        memory_budget: 1 << 20,
        table_bytes: 1 << 10,
    });
}

#[test]
#[ignore = "takes minutes"]
fn each_of_a_million_keys_is_new_once_in_ten_million_calls() {
    let dir = tempfile::tempdir().unwrap();
    each_key_is_new_once(&Run {
        dir: dir.path(),
        keys: 1_000_000,
        calls: 10_000_000,
        kills: 12,
        life: Duration::from_secs(4),
        memory_budget: 2 << 20,
        table_bytes: 256 << 10,
    });
    fs::remove_dir_all(dir.path()).unwrap();
}
