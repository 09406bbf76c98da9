//! Eight probes in the lanes of a vector of 256 bits.

#![allow(unsafe_code)]

use core::arch::x86_64::*;

use super::{Lines, test, test_many};
use crate::blocked::{Blocked, LANES, LINE_BYTES};

/// See `Simd::line_has`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn line_has(body: &[u8], shape: &Blocked, line: u64, word: u32) -> bool {
    test(body, line, word, |line, word| has(line, word, shape))
}

/// See `Simd::lines_have`: of up to eight probes.
///
/// # Safety
///
/// `block` is at least as long as `lines.len`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn lines_have(block: &[u8], lines: &Lines, hash: u64) -> bool {
    let (number, word) = lines.locate(hash);
    // SAFETY: the caller's.
    has_lanes(unsafe { lines.line(block, number) }, word, lines.shape.first())
}

/// See `Simd::lines_have_many`.
///
/// # Safety
///
/// As [`lines_have`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn lines_have_many(block: &[u8], lines: &Lines, far: bool, batch: (&[u64], &mut [bool])) {
    test_many(block, lines, far, batch, |number, word| {
        // SAFETY: the caller's.
        has(unsafe { lines.line(block, number) }, word, &lines.shape)
    });
}

#[inline]
#[target_feature(enable = "avx2")]
fn has(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    // A branch that goes the same way for all keys.
    if usize::from(shape.probes) <= LANES {
        has_lanes(line, word, shape.first())
    } else {
        has_all(line, word, shape)
    }
}

#[inline(never)]
#[target_feature(enable = "avx2")]
fn has_all(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    has_lanes(line, word, shape.first()) && shape.others().iter().all(|lanes| has_lanes(line, word, lanes))
}

/// Whether the bits of eight probes are set.
#[inline]
#[target_feature(enable = "avx2")]
fn has_lanes(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    // SAFETY: the first two loads lie within the 64 bytes of the line, the third is of the 32 bytes of the array;
    // none needs an alignment.
    let (low, high, multipliers) = unsafe {
        (
            _mm256_loadu_si256(line.as_ptr().cast()),
            _mm256_loadu_si256(line.as_ptr().add(32).cast()),
            _mm256_loadu_si256(multipliers.as_ptr().cast()),
        )
    };
    let products = _mm256_mullo_epi32(_mm256_set1_epi32(word.cast_signed()), multipliers);
    // Of the nine highest bits the highest says which half of the line, the next three which word of it.
    let index = _mm256_srli_epi32::<28>(products);
    let words = _mm256_blendv_ps(
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(low, index)),
        _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(high, index)),
        _mm256_castsi256_ps(products),
    );
    let within = _mm256_and_si256(_mm256_srli_epi32::<23>(products), _mm256_set1_epi32(31));
    let masks = _mm256_sllv_epi32(_mm256_set1_epi32(1), within);
    _mm256_testc_si256(_mm256_castps_si256(words), masks) == 1
}
