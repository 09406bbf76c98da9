//! AVX2: vectors of 256 bits.

#![allow(unsafe_code)]

use core::arch::x86_64::*;

use super::{Question, Simd, Work};
use crate::blocked::{LANES, LINE_BYTES};

const VECTOR: usize = 32;

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn matches<const N: usize>(rows: [&[u8]; N], coefficients: [u64; N], mark: u32) -> bool {
    let len = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    // SAFETY: every row has at least `len` bytes.
    unsafe { rows_match(rows.map(<[u8]>::as_ptr), len, coefficients, mark) }
}

/// Tests four columns at a time; the last four may include tested ones. Eight columns in a vector of 512 bits were
/// slower by 10 % or more.
///
/// # Safety
///
/// `len` bytes must be readable from each pointer.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn rows_match<const N: usize>(
    rows: [*const u8; N],
    len: usize,
    coefficients: [u64; N],
    mark: u32,
) -> bool {
    let coefficients = coefficients.map(|word| _mm256_set1_epi64x(word.cast_signed()));
    if len >= VECTOR {
        // SAFETY: each row has at least `VECTOR` bytes.
        let found = unsafe { four_parities(rows, coefficients) };
        if (found ^ mark) & 0xf != 0 {
            return false;
        }
        let mut next = VECTOR;
        while next < len {
            let at = next.min(len - VECTOR);
            // SAFETY: each row has `VECTOR` bytes from `at` on.
            let found = unsafe { four_parities(rows.map(|row| row.add(at)), coefficients) };
            if (found ^ mark >> (at / 8)) & 0xf != 0 {
                return false;
            }
            next += VECTOR;
        }
        return true;
    }
    let columns = len / 8;
    if columns == 0 {
        return true;
    }
    let lanes =
        _mm256_cmpgt_epi64(_mm256_set1_epi64x(columns.cast_signed() as i64), _mm256_set_epi64x(3, 2, 1, 0));
    let mut sum = _mm256_setzero_si256();
    for (row, coefficients) in rows.into_iter().zip(coefficients) {
        // SAFETY: the mask selects only the remaining words of the row.
        let words = unsafe { _mm256_maskload_epi64(row.cast(), lanes) };
        sum = _mm256_xor_si256(sum, _mm256_and_si256(words, coefficients));
    }
    (parities(sum) ^ mark) & ((1 << columns) - 1) == 0
}

/// # Safety
///
/// Four words of 8 bytes must be readable from each pointer.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four_parities<const N: usize>(rows: [*const u8; N], coefficients: [__m256i; N]) -> u32 {
    let mut sum = _mm256_setzero_si256();
    for (row, coefficients) in rows.into_iter().zip(coefficients) {
        // SAFETY: guaranteed by the caller. The load needs no alignment.
        let words = unsafe { _mm256_loadu_si256(row.cast()) };
        sum = _mm256_xor_si256(sum, _mm256_and_si256(words, coefficients));
    }
    parities(sum)
}

#[inline]
#[target_feature(enable = "avx2")]
fn parities(words: __m256i) -> u32 {
    let table = _mm256_broadcastsi128_si256(_mm_set_epi8(0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0));
    let folded = _mm256_xor_si256(words, _mm256_srli_epi64::<4>(words));
    let bytes = _mm256_shuffle_epi8(table, _mm256_and_si256(folded, _mm256_set1_epi8(0x0f)));
    let counts = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_slli_epi64::<63>(counts))).cast_unsigned()
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn line_has(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    // SAFETY: the first two loads lie within the 64 bytes of the line, the third within the 32 bytes of the array.
    // No load needs alignment.
    let (low, high, multipliers) = unsafe {
        (
            _mm256_loadu_si256(line.as_ptr().cast()),
            _mm256_loadu_si256(line.as_ptr().add(32).cast()),
            _mm256_loadu_si256(multipliers.as_ptr().cast()),
        )
    };
    let products = _mm256_mullo_epi32(_mm256_set1_epi32(word.cast_signed()), multipliers);
    // The top bit of a product selects the half, the next three bits select the word.
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

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd { avx2: true, avx512: false }, a, b, c)
}

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn ask<Q: Question<P>, P>(probe: &P, hash: u64) -> bool {
    Q::ask(Simd { avx2: true, avx512: false }, probe, hash)
}

#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    if at < bytes.len() {
        // SAFETY: the address lies within the slice; a prefetch reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().add(at).cast()) };
    }
}
