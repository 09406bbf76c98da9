//! Events that are delivered at least once are handled exactly once.
//!
//! Queues deliver events again that were not acknowledged, and producers repeat events. A consumer inserts the ids of a batch
//! of events with their outputs by `insert_new_many_then`. One atomic step writes the entries with new ids, the handled
//! offset, and a count. A restarted consumer continues at the offset.
//!
//! The ids have a time to live by the clock of the events (`TimeSource::Caller`), because repetitions have a maximum delay.
//!
//! This program kills its consumer process at random moments. In the end there is one output for each event, and the consumers'
//! counts add up to the number of events.
//!
//! `cargo run --release --example event_stream`

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use sievedb::{Db, Durability, Keyspace, KeyspaceOptions, Result, TimeSource, Value};

const EVENTS: u64 = 60_000;
const BATCH: u64 = 200;
const KILLS: u64 = 12;

const START: Duration = Duration::from_secs(1_700_000_000);

/// The number of times that an event may be repeated.
const REPEATS: u64 = 8;

/// A repetition is at most so many events later.
const DISTANCE: u64 = 1000;

/// The longest time from an event's first batch to its last repetition.
const LATEST: Duration = Duration::from_secs(REPEATS * DISTANCE + BATCH);

const BUCKETS: u64 = 10;

/// Set for the consumer: its number and its directory.
const CONSUMER: &str = "SIEVEDB_EVENT_STREAM_CONSUMER";

fn main() -> Result<()> {
    if let Ok(consumer) = env::var(CONSUMER) {
        let (number, dir) = consumer.split_once(' ').expect("a number and a directory");
        return consume(Path::new(dir), number);
    }
    let dir = env::temp_dir().join(format!("sievedb-event-stream-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("the directory can be made");
    for number in 0..=KILLS {
        let mut consumer = Command::new(env::current_exe().expect("this program has a path"))
            .env(CONSUMER, format!("{number} {}", dir.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be started again");
        let mut batches = BufReader::new(consumer.stdout.take().expect("it has an output")).lines();
        if number < KILLS {
            // The consumer may be anywhere in a later batch.
            _ = batches.nth(random(number) as usize % 24);
            consumer.kill().ok();
        }
        batches.for_each(drop);
        consumer.wait().expect("the consumer ends");
    }
    report(&dir)?;
    fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// The offset of the stream, and the number of new events by consumer.
fn progress(db: &Db) -> Result<Keyspace> {
    db.keyspace("progress", KeyspaceOptions::default())
}

fn seen(db: &Db) -> Result<Keyspace> {
    let window = KeyspaceOptions::new().ttl(LATEST).ttl_buckets(BUCKETS);
    db.keyspace("seen", window.time_source(TimeSource::Caller))
}

fn number_in(value: Option<Value>) -> u64 {
    value.map_or(0, |value| value.to_string().parse().expect("a number"))
}

fn consume(dir: &Path, number: &str) -> Result<()> {
    let db = Db::open(dir.join("store"))?;
    let (progress, seen) = (progress(&db)?, seen(&db)?);
    let count_key = format!("new to consumer {number}");
    let (mut at, mut count) = (number_in(progress.get("offset")?), 0);
    while at < EVENTS {
        let end = (at + BATCH).min(EVENTS);
        let events: Vec<_> = (at..end).map(event).collect();
        // The time of the events moves the window.
        seen.advance_time(START + Duration::from_secs(at))?;
        let ids = events.iter().map(|(id, _)| (id, ""));
        let new = seen.insert_new_many_then_with(ids, Durability::Synced, |new, batch| {
            for (id, amount) in
                events.iter().zip(new.iter()).filter(|(_, is_new)| *is_new).map(|(event, _)| event)
            {
                batch.put_in(&db.default_keyspace(), id, format!("{amount} by consumer {number}"));
            }
            batch.put_in(&progress, "offset", end.to_string());
            batch.put_in(&progress, &count_key, (count + new.count()).to_string());
            Ok(())
        })?;
        count += new.count();
        println!("{} of {} events were new", new.count(), new.len());
        at = end;
    }
    db.close()
}

/// The id and amount at an offset. One delivery in five repeats an earlier event.
fn event(offset: u64) -> (String, u64) {
    let mut original = offset;
    for _ in 0..REPEATS {
        if original > 0 && random(original).is_multiple_of(5) {
            original -= 1 + random(original) / 5 % original.min(DISTANCE);
        }
    }
    (format!("event {original}"), random(original) % 100)
}

fn report(dir: &Path) -> Result<()> {
    let db = Db::open(dir.join("store"))?;
    let expected: HashMap<String, u64> = (0..EVENTS).map(event).collect();
    let mut by_consumer: HashMap<String, u64> = HashMap::new();
    for item in &db {
        let (id, output) = item?;
        let (id, output) = (id.to_string(), output.to_string());
        let (amount, consumer) = output.split_once(" by ").expect("an amount and a consumer");
        assert_eq!(expected.get(&id).map(u64::to_string).as_deref(), Some(amount), "{id}");
        *by_consumer.entry(consumer.to_owned()).or_default() += 1;
    }
    assert_eq!(db.len()?, expected.len() as u64, "each event is there, once");
    let progress = progress(&db)?;
    assert_eq!(number_in(progress.get("offset")?), EVENTS);
    let remembered = seen(&db)?.len()?;
    // Ids of the window, of a bucket, and of the last batch.
    let most = LATEST.as_secs() / BUCKETS * (BUCKETS + 1) + BATCH;
    assert!(remembered <= most, "{remembered} ids");
    for (consumer, handled) in &by_consumer {
        let counted = number_in(progress.get(format!("new to {consumer}"))?);
        assert_eq!(counted, *handled, "{consumer} counted what it has handled");
    }
    println!(
        "{EVENTS} deliveries of {} events, {} consumers of which {KILLS} were killed: each event has one output, by one \
         of {} of them; {remembered} ids are remembered",
        expected.len(),
        KILLS + 1,
        by_consumer.len()
    );
    Ok(())
}

fn random(n: u64) -> u64 {
    let mut n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n ^ (n >> 27)
}
