//! Vectors of 256 bits, for processors of the last ten years.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::{Simd, Work};

/// Columns at a time.
const COLUMNS: usize = 4;

/// See `Simd::matches`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn matches<const N: usize>(rows: [&[u8]; N], coefficients: [u64; N], mark: u32) -> bool {
    let columns = rows.iter().map(|row| row.len()).min().unwrap_or(0) / 8;
    // SAFETY: every row has at least `columns` words of 8 bytes.
    unsafe { rows_match(rows.map(<[u8]>::as_ptr), columns, coefficients, mark) }
}

/// See `Simd::pair_matches`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pair_matches(bytes: &[u8], stride: usize, coefficients: [u64; 2], mark: u32) -> bool {
    if bytes.len() / 2 < stride {
        return true;
    }
    // SAFETY: there are twice `stride` bytes, so that the second row too starts within `bytes` or at its end.
    unsafe { rows_match([bytes.as_ptr(), bytes.as_ptr().add(stride)], stride / 8, coefficients, mark) }
}

/// Four columns settle 15 of 16 queries for absent keys: that those end here saves more than the other one, which
/// the processor did not foresee, costs. (Eight columns in one vector of 512 bits were slower by a tenth to a
/// quarter: fewer units work on those.)
///
/// # Safety
///
/// `columns` words of 8 bytes can be read from each pointer on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn rows_match<const N: usize>(
    rows: [*const u8; N],
    columns: usize,
    coefficients: [u64; N],
    mark: u32,
) -> bool {
    let coefficients = coefficients.map(|word| _mm256_set1_epi64x(word.cast_signed()));
    if columns >= COLUMNS {
        // SAFETY: there are four columns at least.
        let found = unsafe { four_parities(rows, coefficients) };
        if (found ^ mark) & 0xf != 0 {
            return false;
        }
    }
    if columns >= 2 * COLUMNS {
        // SAFETY: there are eight columns at least.
        let found = unsafe { four_parities(rows.map(|row| row.add(8 * COLUMNS)), coefficients) };
        if (found ^ mark >> COLUMNS) & 0xf != 0 || columns == 2 * COLUMNS {
            return (found ^ mark >> COLUMNS) & 0xf == 0;
        }
    }
    // SAFETY: the caller's.
    unsafe { rest_matches(rows, columns, coefficients, mark) }
}

/// The columns after the first four or eight, or fewer than four. Not a part of the other, which so has no register to save.
///
/// # Safety
///
/// As [`rows_match`].
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn rest_matches<const N: usize>(
    rows: [*const u8; N],
    columns: usize,
    coefficients: [__m256i; N],
    mark: u32,
) -> bool {
    let mut at = COLUMNS * (columns / COLUMNS).min(2);
    while columns - at >= COLUMNS {
        // SAFETY: at + 4 is at most `columns`.
        let found = unsafe { four_parities(rows.map(|row| row.add(8 * at)), coefficients) };
        if (found ^ mark >> at) & 0xf != 0 {
            return false;
        }
        at += COLUMNS;
    }
    if at == columns {
        return true;
    }
    let left = (columns - at) as u32;
    let lanes = _mm256_cmpgt_epi64(_mm256_set1_epi64x(i64::from(left)), _mm256_set_epi64x(3, 2, 1, 0));
    let mut sum = _mm256_setzero_si256();
    for (row, coefficients) in rows.into_iter().zip(coefficients) {
        // SAFETY: only the lanes of words below `columns` are read.
        let words = unsafe { _mm256_maskload_epi64(row.add(8 * at).cast(), lanes) };
        sum = _mm256_xor_si256(sum, _mm256_and_si256(words, coefficients));
    }
    (parities(sum) ^ mark >> at) & ((1 << left) - 1) == 0
}

/// The parities of four columns.
///
/// # Safety
///
/// Four words of 8 bytes can be read from each pointer on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four_parities<const N: usize>(rows: [*const u8; N], coefficients: [__m256i; N]) -> u32 {
    let mut sum = _mm256_setzero_si256();
    for (row, coefficients) in rows.into_iter().zip(coefficients) {
        // SAFETY: the caller's. The load needs no alignment.
        let words = unsafe { _mm256_loadu_si256(row.cast()) };
        sum = _mm256_xor_si256(sum, _mm256_and_si256(words, coefficients));
    }
    parities(sum)
}

/// The parity of each of four words, that of the first as the lowest bit.
#[inline]
#[target_feature(enable = "avx2")]
fn parities(words: __m256i) -> u32 {
    // Byte i is the parity of i, for every four bits.
    let table = _mm256_broadcastsi128_si256(_mm_set_epi8(0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0));
    let folded = _mm256_xor_si256(words, _mm256_srli_epi64::<4>(words));
    let bytes = _mm256_shuffle_epi8(table, _mm256_and_si256(folded, _mm256_set1_epi8(0x0f)));
    let counts = _mm256_sad_epu8(bytes, _mm256_setzero_si256());
    _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_slli_epi64::<63>(counts))).cast_unsigned()
}

/// See `Simd::run`.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd { avx2: true, avx512: false }, a, b, c)
}

/// See `Simd::prefetch`.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    if at < bytes.len() {
        // SAFETY: the address lies within the slice; a prefetch reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().add(at).cast()) };
    }
}
