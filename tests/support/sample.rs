//! Which of very many cases are run: all of them if `SIEVEDB_THOROUGH` is set, as in `.ci/run`, or else a
//! sample, the same one every time.

use std::ops::Range;

/// Bytes at the beginning and at the end of a file of which no case is left out.
const ENDS_BYTES: usize = 128;

/// Between these lengths, every tenth or so is tried. The step is not a divisor of anything in the format, so all
/// offsets within pages, words and fragments are covered.
const LENGTHS_STEP: usize = 5;

/// Between these bytes, every third is changed. The step is not a divisor of anything in the format either.
const BYTES_STEP: usize = 3;

/// Of padding, bytes this far apart are tried. Not a divisor of anything in the format either.
const PADDING_STEP: usize = 11;

/// Whether all cases are run.
pub(crate) fn thorough() -> bool {
    std::env::var_os("SIEVEDB_THOROUGH").is_some()
}

fn is_near_an_end(at: usize, file_len: usize) -> bool {
    at < ENDS_BYTES || at + ENDS_BYTES >= file_len
}

/// The bits of byte `at` of a file that are flipped: all, or far from the ends one of every third byte.
pub(crate) fn bits(at: usize, file_len: usize) -> Range<usize> {
    match thorough() || is_near_an_end(at, file_len) {
        true => 0..8,
        false if at.is_multiple_of(BYTES_STEP) => one_bit(at),
        false => 0..0,
    }
}

/// One bit of byte `at`, another one for the next byte.
fn one_bit(at: usize) -> Range<usize> {
    at * 5 % 8..at * 5 % 8 + 1
}

/// The bits of byte `at` of padding that are flipped. All of it is checked in one way, so one of each byte will do,
/// and in a sample one of every eleventh.
pub(crate) fn padding_bits(at: usize) -> Range<usize> {
    if thorough() || at.is_multiple_of(PADDING_STEP) { one_bit(at) } else { 0..0 }
}

/// Whether a file is cut to `len` bytes.
pub(crate) fn cuts_at(len: usize, file_len: usize) -> bool {
    thorough() || is_near_an_end(len, file_len) || len.is_multiple_of(LENGTHS_STEP)
}
