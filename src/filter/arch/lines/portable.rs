//! The reference: plain arithmetic, eight probes between two branches.

use super::{test, test_many};
use crate::filter::blocked::{Blocked, LANES, LINE_BYTES};
use crate::hash::table_hash;

/// See `Simd::line_has`.
#[inline]
pub(super) fn line_has(body: &[u8], shape: &Blocked, line: u64, word: u32) -> bool {
    test(body, line, word, |line, word| has(line, word, shape))
}

/// See `Simd::lines_have`: of up to eight probes, or more.
#[inline(always)]
pub(super) fn lines_have(body: &[u8], shape: &Blocked, salt: u64, hash: u64) -> bool {
    let (line, word) = shape.locate(table_hash(hash, salt));
    test(body, line, word, |line, word| has(line, word, shape))
}

/// See `Simd::lines_have_many`.
pub(super) fn lines_have_many(
    body: &[u8],
    shape: &Blocked,
    salt: u64,
    far: bool,
    (hashes, answers): (&[u64], &mut [bool]),
) {
    if far {
        return test_many(body, shape, salt, far, (hashes, answers), |number, word| {
            test(body, number, word, |line, word| has(line, word, shape))
        });
    }
    // A loop of its own: a closure that is called in two places is not made a part of either.
    for (answer, &hash) in answers.iter_mut().zip(hashes) {
        *answer = lines_have(body, shape, salt, hash);
    }
}

#[inline(always)]
fn has(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    has_lanes(line, word, shape.first()) && shape.others().iter().all(|lanes| has_lanes(line, word, lanes))
}

/// A branch per bit would be foreseen wrongly every other time, the bits being set half and half.
#[inline(always)]
fn has_lanes(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    let all = multipliers.iter().fold(1, |all, multiplier| {
        let bit = (word.wrapping_mul(*multiplier) >> 23) as usize;
        all & line[bit >> 3] >> (bit & 7)
    });
    all == 1
}
