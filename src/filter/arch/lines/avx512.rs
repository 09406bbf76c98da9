//! As `avx2`, with instructions that choose among sixteen words at once. Vectors stay at 256 bits: wider ones make some
//! processors run slower, and a line is asked for eight bits at a time anyway.

#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

use super::{line, test, test_many};
use crate::filter::blocked::{Blocked, LANES, LINE_BYTES};
use crate::hash::table_hash;

/// See `Simd::line_has`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn line_has(body: &[u8], shape: &Blocked, line: u64, word: u32) -> bool {
    test(body, line, word, |line, word| has(line, word, shape))
}

/// See `Simd::lines_have`: of up to eight probes.
///
/// # Safety
///
/// All lines are there, see `all_there`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn lines_have(body: &[u8], shape: &Blocked, salt: u64, hash: u64) -> bool {
    let (number, word) = shape.locate(table_hash(hash, salt));
    // SAFETY: the caller's.
    has_lanes(unsafe { line(body, number) }, word, shape.first())
}

/// See `Simd::lines_have_many`.
///
/// # Safety
///
/// As [`lines_have`].
#[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn lines_have_many(
    body: &[u8],
    shape: &Blocked,
    salt: u64,
    far: bool,
    batch: (&[u64], &mut [bool]),
) {
    // SAFETY: the caller's.
    test_many(body, shape, salt, far, batch, |number, word| has(unsafe { line(body, number) }, word, shape));
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn has(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    // A branch that goes the same way for all keys.
    if usize::from(shape.probes) <= LANES {
        has_lanes(line, word, shape.first())
    } else {
        has_all(line, word, shape)
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn has_all(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    has_lanes(line, word, shape.first()) && shape.others().iter().all(|lanes| has_lanes(line, word, lanes))
}

/// Whether the bits of eight probes are set.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn has_lanes(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    // SAFETY: the load is of the 32 bytes of the array, and needs no alignment.
    let multipliers = unsafe { _mm256_loadu_si256(multipliers.as_ptr().cast()) };
    let products = _mm256_mullo_epi32(_mm256_set1_epi32(word.cast_signed()), multipliers);
    // Of the nine highest bits the highest says which half of the line, the next three which word of it.
    let words = chosen(line, _mm256_srli_epi32::<28>(products));
    // A rotation counts modulo 32.
    let masks = _mm256_rolv_epi32(_mm256_set1_epi32(1), _mm256_srli_epi32::<23>(products));
    _mm256_testc_si256(words, masks) == 1
}

/// The words of a line with these numbers, of which four bits count.
///
/// As an intrinsic, of two loads, it would become one instruction of 512 bits, and a query slower by a tenth.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn chosen(line: &[u8; LINE_BYTES], numbers: __m256i) -> __m256i {
    // SAFETY: both loads are of 32 bytes within the 64 of the line, and need no alignment.
    unsafe {
        let mut words = _mm256_loadu_si256(line.as_ptr().cast());
        asm!(
            "vpermt2d {words}, {numbers}, ymmword ptr [{line} + 32]",
            words = inout(ymm_reg) words,
            numbers = in(ymm_reg) numbers,
            line = in(reg) line.as_ptr(),
            options(pure, readonly, nostack, preserves_flags)
        );
        words
    }
}
