//! AVX-512 with VPOPCNTDQ (processors from 2019 on). On older processors, AVX2 is faster.

#![allow(unsafe_code)]

use core::arch::x86_64::*;

use super::{Question, Simd, Work};
use crate::blocked::{LANES, LINE_BYTES};

const COLUMNS: usize = 8;

/// Tests all columns with one branch, which is taken by 255 of 256 absent keys.
#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq,bmi2")]
pub(super) fn first_match(rows: [&[u8]; 2], coefficients: [u64; 2], mark: u32) -> bool {
    let columns = rows.iter().map(|row| row.len() / 8).min().unwrap_or(0);
    let lanes = _bzhi_u32(0xff, columns as u32) as __mmask8;
    let coefficients = coefficients.map(|word| _mm512_set1_epi64(word.cast_signed()));
    // SAFETY: the mask selects only the words of the rows.
    let found = unsafe { parities(rows.map(|row| row.as_ptr().cast()), coefficients, lanes) };
    (found ^ mark as __mmask8) & lanes == 0
}

#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq,bmi2")]
pub(super) fn matches<const N: usize>(rows: [&[u8]; N], coefficients: [u64; N], mut mark: u32) -> bool {
    let mut left = rows.iter().map(|row| row.len() / 8).min().unwrap_or(0);
    let mut rows = rows.map(|row| row.as_ptr().cast::<i64>());
    let coefficients = coefficients.map(|word| _mm512_set1_epi64(word.cast_signed()));
    loop {
        let lanes = _bzhi_u32(0xff, left as u32) as __mmask8;
        // SAFETY: the mask selects only the remaining words of the rows.
        let found = unsafe { parities(rows, coefficients, lanes) };
        if (found ^ mark as __mmask8) & lanes != 0 {
            return false;
        }
        if left <= COLUMNS {
            return true;
        }
        // SAFETY: more than `COLUMNS` columns remain.
        rows = rows.map(|row| unsafe { row.add(COLUMNS) });
        mark >>= COLUMNS;
        left -= COLUMNS;
    }
}

/// # Safety
///
/// The words of `lanes` must be readable from each pointer.
#[inline]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
unsafe fn parities<const N: usize>(
    rows: [*const i64; N],
    coefficients: [__m512i; N],
    lanes: __mmask8,
) -> __mmask8 {
    let mut sum = _mm512_setzero_si512();
    for (row, coefficients) in rows.into_iter().zip(coefficients) {
        // SAFETY: guaranteed by the caller. The load needs no alignment.
        let words = unsafe { _mm512_maskz_loadu_epi64(lanes, row) };
        sum = _mm512_xor_si512(sum, _mm512_and_si512(words, coefficients));
    }
    _mm512_test_epi64_mask(_mm512_popcnt_epi64(sum), _mm512_set1_epi64(1))
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
pub(super) fn line_has(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    // SAFETY: the first load reads the 64 bytes of the line, the second the 32 bytes of the array. Neither
    // needs alignment.
    let (line, multipliers) = unsafe {
        (_mm512_loadu_si512(line.as_ptr().cast()), _mm256_loadu_si256(multipliers.as_ptr().cast()))
    };
    let products = _mm256_mullo_epi32(_mm256_set1_epi32(word.cast_signed()), multipliers);
    let index = _mm512_castsi256_si512(_mm256_srli_epi32::<28>(products));
    let words = _mm512_castsi512_si256(_mm512_permutexvar_epi32(index, line));
    // The next five bits select the bit: rotation counts modulo 32.
    let bits = _mm256_rorv_epi32(words, _mm256_srli_epi32::<23>(products));
    _mm256_testn_epi32_mask(bits, _mm256_set1_epi32(1)) == 0
}

#[target_feature(enable = "avx512f,avx512vl,avx512vpopcntdq,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn ask<Q: Question<P>, P>(probe: &P, hash: u64) -> bool {
    Q::ask(Simd { avx2: true, avx512: true }, probe, hash)
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512vpopcntdq,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd { avx2: true, avx512: true }, a, b, c)
}
