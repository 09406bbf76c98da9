//! The reference: plain arithmetic, eight probes between two branches.

use super::{Lines, test, test_many};
use crate::blocked::{Blocked, LANES, LINE_BYTES};

/// See `Simd::line_has`.
#[inline]
pub(super) fn line_has(body: &[u8], shape: &Blocked, line: u64, word: u32) -> bool {
    test(body, line, word, |line, word| has(line, word, shape))
}

/// See `Simd::lines_have`: of up to eight probes, or more.
///
/// Where it is hardly ever called it takes no room in the caller's loop.
#[cfg_attr(target_arch = "x86_64", inline(never))]
#[cfg_attr(not(target_arch = "x86_64"), inline)]
pub(super) fn lines_have(block: &[u8], lines: &Lines, hash: u64) -> bool {
    let (line, word) = lines.locate(hash);
    of_has(block, lines, line, word)
}

/// See `Simd::lines_have_many`.
pub(super) fn lines_have_many(
    block: &[u8],
    lines: &Lines,
    far: bool,
    (hashes, answers): (&[u64], &mut [bool]),
) {
    if far {
        return test_many(block, lines, far, (hashes, answers), |line, word| {
            of_has(block, lines, line, word)
        });
    }
    // A loop of its own: a closure that is called in two places is not made a part of either.
    for (answer, &hash) in answers.iter_mut().zip(hashes) {
        let (line, word) = lines.locate(hash);
        *answer = of_has(block, lines, line, word);
    }
}

#[inline(always)]
fn of_has(block: &[u8], lines: &Lines, line: u64, word: u32) -> bool {
    let body = block.get(lines.start..).unwrap_or_default();
    test(body, line, word, |line, word| has(line, word, &lines.shape))
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
