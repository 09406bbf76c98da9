//! Visited states in model checking: all positions of the eight-puzzle, found by breadth-first search.
//!
//! Run `cargo run --release --example visited_states`. Bit-state hashing (a Bloom filter) and hash compaction take a fraction of
//! the memory of the exact set and may omit states.

use std::collections::HashSet;
use std::time::Instant;

use sievedb_sketches::{Bloom, HashCompaction, Sketch};

/// Row by row; 0 is the empty field.
type Board = [u8; 9];

const SOLVED: Board = [1, 2, 3, 4, 5, 6, 7, 8, 0];

/// Half of 9!.
const REACHABLE: u64 = 181_440;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{:<36} {:>9} {:>11} {:>9} {:>9} {:>9} {:>7}",
        "", "bytes", "bits/state", "found", "omitted", "expected", "ms"
    );

    let mut exact = HashSet::new();
    let start = Instant::now();
    let found = search(|board| exact.insert(*board));
    let bytes = exact.capacity() as u64 * (size_of::<Board>() as u64 + 1);
    row("exact set", bytes, found, 0.0, start);
    assert_eq!(found, REACHABLE);

    for bits in [8, 16, 24] {
        let mut bloom = Bloom::with_memory(REACHABLE, REACHABLE * bits / 8, 1)?;
        let start = Instant::now();
        let found = search(|board| !bloom.insert(board));
        // The rate grows with the states; this is the mean of a hundred steps.
        let rates = (1..=100).map(|part| bloom.expected_rate(REACHABLE * part / 100));
        let expected = rates.sum::<f64>() / 100.0 * REACHABLE as f64;
        row(&format!("bit-state hashing, {bits} bits"), bloom.encode().len() as u64, found, expected, start);
    }
    for bits in [12, 16, 24, 32] {
        let mut table = HashCompaction::with_shape(REACHABLE * 100 / 95, bits, 1)?;
        let start = Instant::now();
        let mut full = false;
        let found = search(|board| {
            table.insert(board).unwrap_or_else(|_| {
                full = true;
                false
            })
        });
        assert!(!full, "the table has room for all");
        let name = format!("hash compaction, {bits} bits");
        row(&name, table.encode().len() as u64, found, table.expected_omissions(), start);
    }
    println!(
        "\nomitted: states not found, because they were mistaken for visited or are reachable only through such states"
    );
    println!("expected: states mistaken for visited, by the formula, if all were inserted");
    Ok(())
}

fn row(name: &str, bytes: u64, found: u64, expected: f64, start: Instant) {
    let bits = 8.0 * bytes as f64 / REACHABLE as f64;
    let omitted = REACHABLE - found;
    let millis = start.elapsed().as_millis();
    println!("{name:<36} {bytes:>9} {bits:>11.1} {found:>9} {omitted:>9} {expected:>9.1} {millis:>7}");
}

/// Breadth-first search from the solved board. `visit` returns whether a board is new.
fn search(mut visit: impl FnMut(&Board) -> bool) -> u64 {
    let mut boards = vec![SOLVED];
    let mut found = u64::from(visit(&SOLVED));
    while !boards.is_empty() {
        let mut next = Vec::new();
        for board in &boards {
            for neighbour in neighbours(*board) {
                if visit(&neighbour) {
                    found += 1;
                    next.push(neighbour);
                }
            }
        }
        boards = next;
    }
    found
}

fn neighbours(board: Board) -> impl Iterator<Item = Board> {
    let empty = board.iter().position(|&field| field == 0).unwrap_or(0);
    let (row, column) = (empty / 3, empty % 3);
    let targets = [(row > 0, -3), (row < 2, 3), (column > 0, -1), (column < 2, 1)];
    targets.into_iter().filter(|target| target.0).map(move |(_, step)| {
        let mut moved = board;
        moved.swap(empty, empty.wrapping_add_signed(step));
        moved
    })
}
