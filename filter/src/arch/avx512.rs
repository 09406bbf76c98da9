//! The code of `avx2`, compiled with more instructions, which replace some pairs of vector operations by one.
//! The vectors have 256 bits, because wider ones slow some processors down.

#![allow(unsafe_code)]

use core::arch::x86_64::*;

use super::{Simd, Work};
use crate::blocked::{LANES, LINE_BYTES};

/// See `Simd::line_has`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
pub(super) fn line_has(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    // SAFETY: the first two loads lie within the 64 bytes of the line, the third is of the 32 bytes of the
    // array; none needs an alignment.
    let (low, high, multipliers) = unsafe {
        (
            _mm256_loadu_si256(line.as_ptr().cast()),
            _mm256_loadu_si256(line.as_ptr().add(32).cast()),
            _mm256_loadu_si256(multipliers.as_ptr().cast()),
        )
    };
    let products = _mm256_mullo_epi32(_mm256_set1_epi32(word.cast_signed()), multipliers);
    // Of the nine highest bits of a product the four highest say which word of the line.
    let words = _mm256_permutex2var_epi32(low, _mm256_srli_epi32::<28>(products), high);
    // The next five say which bit of it: a rotation counts modulo 32.
    let bits = _mm256_rorv_epi32(words, _mm256_srli_epi32::<23>(products));
    _mm256_testn_epi32_mask(bits, _mm256_set1_epi32(1)) == 0
}

/// See `Simd::run_probe`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd { avx2: true, avx512: true }, a, b, c)
}
