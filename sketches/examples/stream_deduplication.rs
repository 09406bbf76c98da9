//! Prints the lines of a log that were not seen within the last minute.
//!
//! `tail -f log | cargo run --release --example stream_deduplication -- -` prints the new lines. Without the hyphen it generates
//! a log and compares with an exact window.

use std::collections::HashMap;
use std::io::{BufRead, BufWriter, Write, stdin, stdout};
use std::time::Instant;

use sievedb_sketches::{Ring, Sketch};

/// Seconds.
const WINDOW: u64 = 60;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 180,000 distinct lines per window, in five spans of a quarter of the window.
    let mut seen = Ring::with_rate(180_000, 0.001, WINDOW, 5, 1)?;
    if std::env::args().nth(1).as_deref() == Some("-") {
        let start = Instant::now();
        let mut out = BufWriter::new(stdout().lock());
        for line in stdin().lock().lines() {
            let (line, now) = (line?, start.elapsed().as_secs());
            if !seen.contains(&line, now) {
                writeln!(out, "{line}")?;
            }
            seen.insert(&line, now)?;
        }
        return Ok(out.flush()?);
    }

    let mut exact: HashMap<String, u64> = HashMap::new();
    let (mut lines, mut kept, mut repeated, mut wrong, mut late) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut state = 1u64;
    for now in 0..600 {
        for _ in 0..3000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let line = format!("WARN disk {} is slow", (state >> 33) % 200_000);
            lines += 1;
            let known = seen.contains(&line, now);
            kept += u64::from(!known);
            let age = exact.insert(line.clone(), now).map(|before| now - before);
            repeated += u64::from(age.is_some_and(|age| age < WINDOW));
            wrong += u64::from(known && age.is_none_or(|age| age > seen.longest()));
            late += u64::from(!known && age.is_some_and(|age| age <= seen.least()));
            seen.insert(&line, now)?;
        }
    }
    let bytes = seen.encode().len();
    let exact_bytes: usize = exact.keys().map(|line| line.len() + size_of::<(String, u64)>()).sum();
    println!("{lines} lines in ten minutes, {repeated} of them seen within {WINDOW} seconds before");
    println!("{kept} kept, in {bytes} bytes; an exact map of all lines takes {exact_bytes}");
    println!(
        "{wrong} wrongly dropped: not seen within {} seconds (predicted rate now {:.4} %)",
        seen.longest(),
        100.0 * seen.predicted_rate(599)
    );
    println!("{late} wrongly kept: seen within {} seconds; must be 0", seen.least());
    Ok(())
}
