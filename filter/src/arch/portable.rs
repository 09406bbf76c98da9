//! The reference: plain 64-bit arithmetic.

use byteorder::{ByteOrder, LittleEndian};

use super::{Question, Simd, Work};
use crate::blocked::{LANES, LINE_BYTES};

const COLUMNS: usize = 4;

#[inline(never)]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd::PORTABLE, a, b, c)
}

pub(super) fn ask<Q: Question<P>, P>(probe: &P, hash: u64) -> bool {
    Q::ask(Simd::PORTABLE, probe, hash)
}

/// Has no branches, because half of them would be mispredicted.
#[inline(always)]
pub(super) fn line_has(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    let all = multipliers.iter().fold(1, |all, multiplier| {
        let bit = (word.wrapping_mul(*multiplier) >> 23) as usize;
        all & line[bit >> 3] >> (bit & 7)
    });
    all == 1
}

#[inline(always)]
pub(super) fn matches<const N: usize>(rows: [&[u8]; N], coefficients: [u64; N], mark: u32) -> bool {
    let mut words = [0u64; COLUMNS];
    for (row, &selected) in rows.into_iter().zip(&coefficients) {
        let Some(part) = row.first_chunk::<{ 8 * COLUMNS }>() else {
            return rest_matches(rows, coefficients, mark);
        };
        add(&mut words, part, selected);
    }
    (parities(words) ^ mark) & 0xf == 0
        && rest_matches(rows.map(|row| &row[8 * COLUMNS..]), coefficients, mark >> COLUMNS)
}

#[inline(never)]
fn rest_matches<const N: usize>(mut rows: [&[u8]; N], coefficients: [u64; N], mut mark: u32) -> bool {
    while rows.iter().any(|row| !row.is_empty()) {
        let mut words = [0u64; COLUMNS];
        let mut columns = COLUMNS;
        for (row, coefficients) in rows.iter_mut().zip(coefficients) {
            columns = columns.min(row.len() / 8);
            add(&mut words, row, coefficients);
            *row = row.get(8 * COLUMNS..).unwrap_or_default();
        }
        if (parities(words) ^ mark) & ((1 << columns) - 1) != 0 {
            return false;
        }
        mark >>= COLUMNS;
    }
    true
}

#[inline(always)]
fn add(words: &mut [u64; COLUMNS], bytes: &[u8], coefficients: u64) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word ^= LittleEndian::read_u64(bytes) & coefficients;
    }
}

/// Returns the parity of each word, the first in the lowest bit.
#[inline(always)]
fn parities(words: [u64; COLUMNS]) -> u32 {
    let halves = |low: u64, high: u64| {
        let swap = (low ^ high) & 0x0000_0000_ffff_ffff;
        (high ^ swap) ^ (low ^ swap).rotate_left(32)
    };
    let even = halves(words[2], words[0]).rotate_left(16);
    let odd = halves(words[1], words[3]);
    let swap = (even ^ odd) & 0x0000_ffff_0000_ffff;
    let mut quarters = (odd ^ swap) ^ (even ^ swap).rotate_left(16);
    quarters ^= quarters >> 8;
    quarters ^= quarters >> 4;
    quarters ^= quarters >> 2;
    quarters ^= quarters >> 1;
    // Moves bit 0 of each quarter to bits 60 to 63.
    ((quarters & 0x0001_0001_0001_0001).wrapping_mul(0x1000_2000_4000_8000) >> 60) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parities_of_four_words_are_those_of_each() {
        let mut state = 1u64;
        for _ in 0..1000 {
            let words = [(); COLUMNS].map(|()| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                state ^ (state >> 29)
            });
            let parities = parities(words);
            for (column, word) in words.iter().enumerate() {
                assert_eq!(parities >> column & 1, word.count_ones() & 1, "{column}");
            }
            assert!(parities < 16);
        }
    }
}
