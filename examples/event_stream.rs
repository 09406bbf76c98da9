//! Events that arrive at least once are handled exactly once.
//!
//! Queues and brokers deliver an event again when they are not sure that it was handled: after a restart they
//! begin at the last offset that was acknowledged, and producers that got no answer send an event twice. Each
//! event has an id. A consumer hands the ids of a batch to the store, with what is to be put out for each, in
//! one `insert_new_many`. That writes what is new and nothing else, durably and at one moment; the output of an
//! event is the entry itself. So there is no moment at which an event counts as seen and its output is missing,
//! and whoever asks again is told "seen".
//!
//! This program starts itself again as the consumer, and kills it at random moments. In the end each event has
//! been put out once, whichever consumer did it.
//!
//! `cargo run --release --example event_stream`

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use sievedb::{Db, Durability, Result};

const EVENTS: u64 = 60_000;
const BATCH: u64 = 200;
const KILLS: u64 = 12;

/// Set for the consumer: the directory, and which of the consumers it is.
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
            // It goes on while this program reads, so it may be anywhere in a later batch.
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

/// Handles the events from the last acknowledged offset on.
fn consume(dir: &Path, number: &str) -> Result<()> {
    let db = Db::open(dir.join("store"))?;
    let offset = dir.join("acknowledged");
    let mut at = fs::read_to_string(&offset).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    while at < EVENTS {
        let end = (at + BATCH).min(EVENTS);
        let events: Vec<_> = (at..end).map(event).collect();
        let outputs = events.iter().map(|(id, amount)| (id, format!("{amount} by consumer {number}")));
        let new = db.insert_new_many_with(outputs, Durability::Synced)?;
        // A broker would be told now. It may be told too late, as after a kill here: it delivers again.
        assert_eq!(new.len(), events.len());
        println!("{} of {} events were new", new.count(), new.len());
        at = end;
        if random(at).is_multiple_of(4) {
            let next = dir.join("next");
            fs::write(&next, at.to_string())
                .and_then(|()| fs::rename(&next, &offset))
                .expect("it can be told");
        }
    }
    db.close()
}

/// What the stream delivers at an offset: an id, and an amount. One delivery in five repeats an earlier event.
fn event(offset: u64) -> (String, u64) {
    let mut original = offset;
    while original > 0 && random(original).is_multiple_of(5) {
        original -= 1 + random(original) / 5 % original.min(1000);
    }
    (format!("event {original}"), random(original) % 100)
}

fn report(dir: &Path) -> Result<()> {
    let db = Db::open(dir.join("store"))?;
    let expected: HashMap<String, u64> = (0..EVENTS).map(event).collect();
    let mut by_consumer: HashMap<String, u64> = HashMap::new();
    let mut sum = 0;
    for item in &db {
        let (id, output) = item?;
        let (id, output) = (id.to_string(), output.to_string());
        let (amount, consumer) = output.split_once(" by ").expect("an amount and a consumer");
        assert_eq!(expected.get(&id).map(u64::to_string).as_deref(), Some(amount), "{id}");
        sum += expected[&id];
        *by_consumer.entry(consumer.to_owned()).or_default() += 1;
    }
    assert_eq!(db.len()?, expected.len() as u64, "each event is there");
    assert_eq!(sum, expected.values().sum(), "and once");
    println!(
        "{EVENTS} deliveries of {} events, {} consumers of which {KILLS} were killed: each event was put out once, by one of {} of them",
        expected.len(),
        KILLS + 1,
        by_consumer.len()
    );
    Ok(())
}

/// A number that follows from another one.
fn random(n: u64) -> u64 {
    let mut n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n ^ (n >> 27)
}
