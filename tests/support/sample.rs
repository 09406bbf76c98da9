//! The selection of cases: all with `SIEVEDB_THOROUGH`, otherwise a fixed sample.

use std::ops::Range;

/// For this many bytes at both ends of a file, all cases are run.
const ENDS_BYTES: usize = 128;

/// Coprime to pages and words, so that all offsets in them are covered.
const LENGTHS_STEP: usize = 5;

const BYTES_STEP: usize = 3;

const PADDING_STEP: usize = 11;

pub(crate) fn thorough() -> bool {
    std::env::var_os("SIEVEDB_THOROUGH").is_some()
}

fn is_near_an_end(at: usize, file_len: usize) -> bool {
    at < ENDS_BYTES || at + ENDS_BYTES >= file_len
}

pub(crate) fn bits(at: usize, file_len: usize) -> Range<usize> {
    match thorough() || is_near_an_end(at, file_len) {
        true => 0..8,
        false if at.is_multiple_of(BYTES_STEP) => one_bit(at),
        false => 0..0,
    }
}

fn one_bit(at: usize) -> Range<usize> {
    at * 5 % 8..at * 5 % 8 + 1
}

/// One bit is enough, because padding is checked as a whole.
pub(crate) fn padding_bits(at: usize) -> Range<usize> {
    if thorough() || at.is_multiple_of(PADDING_STEP) { one_bit(at) } else { 0..0 }
}

pub(crate) fn cuts_at(len: usize, file_len: usize) -> bool {
    thorough() || is_near_an_end(len, file_len) || len.is_multiple_of(LENGTHS_STEP)
}
