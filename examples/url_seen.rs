//! Has this URL been seen? A crawler mostly finds new links.
//!
//! `cargo run --release --example url_seen`

use std::collections::VecDeque;
use std::time::Instant;

use sievedb::{Options, Result};

const PAGES: usize = 20_000;
const LINKS: u64 = 12;

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("sievedb-url-seen-{}", std::process::id()));
    // A small budget simulates a thousand times as many URLs.
    let seen = Options::new().memory_budget(4 << 20).open(&dir)?;

    let mut frontier = VecDeque::from([url(1)]);
    seen.put(url(1), "")?;
    let (mut lookups, mut new) = (0, 0);
    let start = Instant::now();
    for _ in 0..PAGES {
        let Some(page) = frontier.pop_front() else { break };
        let links = links(&page);
        // Looks up all links of a page and inserts the new ones. Each link is new to only one thread.
        let is_new = seen.insert_new_many(links.iter().map(|link| (link, "")))?;
        lookups += links.len();
        new += is_new.count();
        frontier.extend(links.into_iter().zip(is_new.iter()).filter(|(_, new)| *new).map(|(link, _)| link));
    }
    let time = start.elapsed();

    let stats = seen.stats();
    let filter = stats.keyspace("default").map(|keyspace| keyspace.total().filter).unwrap_or_default();
    println!(
        "{PAGES} pages had {lookups} links; {new} of them had not been seen ({:.0} %)",
        percent(new, lookups)
    );
    println!("{:.0} lookups per second, writes of new links included", lookups as f64 / time.as_secs_f64());
    println!(
        "the filters of the tables said \"absent\" {} times and \"maybe\" for nothing {} times: {:.2} %",
        filter.negatives,
        filter.false_positives,
        percent(filter.false_positives as usize, (filter.negatives + filter.false_positives) as usize)
    );
    println!("blocks read from the disk for all of it: {}", stats.data_block_reads);

    seen.close()?;
    std::fs::remove_dir_all(&dir).ok();
    Ok(())
}

/// An endless web: links are computed from the page's address. One in twelve leads to a popular page.
fn links(page: &str) -> Vec<String> {
    let number = page.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    (0..LINKS).map(|link| if link == 0 { url(number % 1000) } else { url(mix(number + link)) }).collect()
}

fn url(number: u64) -> String {
    format!("https://host{:03}.example/articles/{number:016x}", number % 500)
}

fn mix(mut n: u64) -> u64 {
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
