//! Cache digests between two processes.
//!
//! Run `cargo run --release --example cache_digests`. The child process sends the digest of its cache through a pipe; the parent
//! sends it only requests that may be in the cache.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use sievedb_sketches::{Digest, Sketch};

const OBJECTS: u64 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    if std::env::args().nth(1).as_deref() == Some("child") {
        let digest = Digest::build((0..OBJECTS).step_by(3).map(url), 0.01, now, 2024)?;
        std::io::stdout().write_all(&digest.encode())?;
        return Ok(());
    }
    let mut child = Command::new(std::env::current_exe()?).arg("child").stdout(Stdio::piped()).spawn()?;
    let mut bytes = Vec::new();
    child.stdout.take().ok_or("no pipe")?.read_to_end(&mut bytes)?;
    child.wait()?;

    let digest = Digest::decode(&bytes)?;
    let names: usize = (0..OBJECTS).step_by(3).map(|object| url(object).len() + 1).sum();
    println!("{}", digest.summary());
    println!(
        "received {} bytes, {} seconds old; a list of the names takes {names}",
        bytes.len(),
        now.saturating_sub(digest.time())
    );

    let (mut asked, mut hits, mut wasted, mut forgone) = (0u64, 0u64, 0u64, 0u64);
    for object in 0..OBJECTS {
        let there = object % 3 == 0;
        match (digest.contains(&url(object)), there) {
            (true, true) => (asked, hits) = (asked + 1, hits + 1),
            (true, false) => (asked, wasted) = (asked + 1, wasted + 1),
            (false, true) => forgone += 1,
            (false, false) => {}
        }
    }
    println!(
        "{asked} of {OBJECTS} requests went to the other cache: {hits} hits, {wasted} wasted; {forgone} hits missed"
    );
    println!("without a digest, all {OBJECTS} requests would go there");
    Ok(())
}

fn url(object: u64) -> String {
    format!("http://example.org/images/{object:06}.png")
}
