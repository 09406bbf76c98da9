//! A process is killed while it writes. A child loads a store with several threads and prints each acknowledged write.
//! The parent kills it at a random moment and opens the store. Each writer's batches, which write to two keyspaces,
//! must be whole and without a gap, at least up to the last acknowledged batch, and every table must verify. The next
//! child continues, fifty times. Meanwhile, the parent checks live views.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sievedb::{Db, Durability, KeyspaceOptions, Options, WriteBatch};

use crate::support::rng::Rng;

/// The directory, and the writers' pause in microseconds.
const CHILD: &str = "SIEVEDB_KILL_TEST_CHILD";
const PAUSE: &str = "SIEVEDB_KILL_TEST_PAUSE";

const WRITERS: u64 = 3;
const KILLS: u64 = 50;

fn options() -> KeyspaceOptions {
    KeyspaceOptions::new().memtable_bytes(32 << 10).table_bytes(32 << 10).level_base_bytes(128 << 10)
}

fn open(dir: &Path) -> Db {
    Options::new().memory_budget(8 << 20).default_keyspace(options()).open(dir).unwrap()
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{writer} {:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

fn value(writer: u64, n: u64) -> Vec<u8> {
    let mut value = format!("{writer} {n} ").into_bytes();
    value.resize(20 + (n * 37 % 300) as usize, b'.');
    value
}

fn written(db: &Db, writer: u64) -> u64 {
    let Some(mirror) = db.existing_keyspace("mirror") else {
        assert_eq!(db.iter().count(), 0);
        return 0;
    };
    let mut n = 0;
    while let Some(found) = db.get(key(writer, n)).unwrap() {
        assert_eq!(&found[..], value(writer, n), "write {n} of writer {writer}");
        assert_eq!(
            mirror.get(key(writer, n)).unwrap().as_deref(),
            Some(&n.to_le_bytes()[..]),
            "{writer} {n}"
        );
        n += 1;
    }
    let prefix = format!("{writer} ");
    assert_eq!(db.prefix(&prefix).count() as u64, n, "writes of writer {writer} behind a hole at {n}");
    assert_eq!(mirror.prefix(&prefix).rev().count() as u64, n, "half batches of writer {writer} behind {n}");
    n
}

fn scanned(db: &Db, writer: u64) -> u64 {
    let (prefix, mut numbers) = (format!("{writer} "), Vec::new());
    for item in db.prefix(&prefix) {
        let (key_found, found) = item.unwrap();
        let n = std::str::from_utf8(&found).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!((&key_found[..], &found[..]), (&key(writer, n)[..], &value(writer, n)[..]));
        numbers.push(n);
    }
    let mut mirrored: Vec<u64> = Vec::new();
    for item in db.existing_keyspace("mirror").into_iter().flat_map(|mirror| mirror.prefix(&prefix)) {
        mirrored.push(u64::from_le_bytes(item.unwrap().1[..].try_into().unwrap()));
    }
    assert_eq!(mirrored, numbers, "half batches of writer {writer}");
    numbers.sort_unstable();
    let count = numbers.len() as u64;
    assert!(numbers.into_iter().eq(0..count), "a hole in the writes of writer {writer}");
    count
}

#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let pause = std::env::var(PAUSE).map_or(0, |pause| pause.parse().unwrap());
    let db = open(Path::new(&dir));
    let mirror = db.keyspace("mirror", options()).unwrap();
    db.sync().unwrap();
    say("ready");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, mirror) = (&db, &mirror);
            scope.spawn(move || {
                for n in written(db, writer).. {
                    let mut batch = WriteBatch::new();
                    batch.put(key(writer, n), value(writer, n)).put_in(
                        mirror,
                        key(writer, n),
                        n.to_le_bytes(),
                    );
                    let durability =
                        if n.is_multiple_of(8) { Durability::Synced } else { Durability::Buffered };
                    db.write_with(batch, durability).unwrap();
                    say(&format!("ack {writer} {n}"));
                    if pause > 0 {
                        std::thread::sleep(Duration::from_micros(pause));
                    }
                }
            });
        }
    });
}

/// Uses one write call, so that lines of threads do not mix.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "\n{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

#[test]
fn a_process_killed_at_fifty_random_moments_loses_no_acknowledged_write() {
    let seed = 0x5eed;
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut acknowledged = [0; WRITERS as usize];
    for kill in 0..KILLS {
        let delay = Duration::from_micros(rng.below(40_000));
        let opens_first = !delay.as_micros().is_multiple_of(4);
        let seen = run_and_kill(&store, opens_first, 0, |_| std::thread::sleep(delay));
        acknowledged.iter_mut().zip(seen).for_each(|(sum, seen)| *sum = seen.max(*sum));
        let db = if kill % 2 == 0 { open(&store) } else { Options::new().read_only().open(&store).unwrap() };
        for writer in 0..WRITERS {
            let least = &mut acknowledged[writer as usize];
            let found = written(&db, writer);
            assert!(
                (*least..=*least + 1).contains(&found),
                "kill {kill} after {delay:?}: writer {writer}: {least} acknowledged or seen before, {found} there"
            );
            *least = found;
        }
        if kill % 10 >= 8 {
            let damage = db.verify().unwrap().damage;
            assert!(damage.is_empty(), "kill {kill} after {delay:?}: {damage:?}");
        }
        db.close().unwrap();
    }
    println!("{acknowledged:?} writes acknowledged");
    assert!(acknowledged.iter().all(|&n| n > 100), "{acknowledged:?}");
}

type Acknowledged = [AtomicU64; WRITERS as usize];

/// Returns the writes acknowledged until `work` returned. With `opens_first`, the child opens the store before `work`.
fn run_and_kill(
    store: &Path,
    opens_first: bool,
    pause: u64,
    work: impl FnOnce(&Acknowledged),
) -> [u64; WRITERS as usize] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, store)
        .env(PAUSE, pause.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    if opens_first {
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line == "ready");
        assert!(ready, "the child ended before it was killed: {:?}", child.wait());
    }
    let seen = Arc::new(Acknowledged::default());
    let sees = Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            let mut words = line.split(' ');
            if words.next() == Some("ack") {
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
                if let (Some(writer), Some(n)) = (number(), number())
                    && writer < WRITERS
                {
                    sees[writer as usize].fetch_max(n + 1, Ordering::SeqCst);
                }
            }
        }
    });
    work(&seen);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert!(status.code().is_none(), "the child ended before it was killed: {status}");
    reader.join().unwrap();
    [0, 1, 2].map(|writer| seen[writer].load(Ordering::SeqCst))
}

/// Checks that a view has at least the writes acknowledged before it, without gaps.
fn check_view(db: &Db, least: &mut [u64; WRITERS as usize], about: &str) {
    for writer in 0..WRITERS {
        let (found, least) = (scanned(db, writer), &mut least[writer as usize]);
        assert!(
            found >= *least,
            "{about}: {least} writes of {writer} were acknowledged before, {found} are seen"
        );
        *least = found;
    }
}

#[test]
fn readers_next_to_a_process_that_is_killed_see_its_writes_up_to_some_moment() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let reader = || Options::new().memory_budget(8 << 20).read_only().open(&store).unwrap();
    let mut tries = Vec::new();
    for kill in 0..4 {
        run_and_kill(&store, true, 500, |acknowledged| {
            let now = || [0, 1, 2].map(|writer: usize| acknowledged[writer].load(Ordering::SeqCst));
            for view in 0..4 {
                let about = format!("kill {kill}, view {view}");
                let mut least = now();
                let mut db = reader();
                tries.push(db.open_report().as_of.unwrap().tries);
                assert!(db.open_report().as_of.unwrap().in_use);
                let before = db.clone();
                check_view(&db, &mut least, &about);
                let seen = least;
                while now().iter().zip(seen).all(|(&now, seen)| now <= seen) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let acknowledged = now();
                least = [0, 1, 2].map(|writer| acknowledged[writer].max(seen[writer]));
                assert!(db.refresh().unwrap(), "{about}");
                check_view(&db, &mut least, &about);
                let mut again = seen;
                check_view(&before, &mut again, &about);
                assert_eq!(again, seen, "{about}: the earlier handle has moved");
            }
            let report = Options::new().verify(&store).unwrap();
            assert!(report.damage.is_empty() && report.changed.is_empty(), "kill {kill}: {report:?}");
        });
        let mut least = [0; WRITERS as usize];
        let mut db = reader();
        check_view(&db, &mut least, "after the kill");
        assert!(!db.open_report().as_of.unwrap().in_use && !db.refresh().unwrap());
    }
    tries.sort_unstable();
    println!("tries: {tries:?}");
}
