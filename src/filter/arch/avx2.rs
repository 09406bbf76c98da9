//! Vectors of 256 bits, for processors of the last ten years.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// Columns at a time.
const COLUMNS: usize = 4;

/// See `Simd::matches`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn matches<const N: usize>(rows: [&[u8]; N], coefficients: [u64; N], mark: u32) -> bool {
    let len = rows.iter().map(|row| row.len()).min().unwrap_or(0) / 8;
    let coefficients = coefficients.map(|word| _mm256_set1_epi64x(word.cast_signed()));
    let mut differ = 0;
    let mut at = 0;
    while at + COLUMNS <= len {
        let mut sum = _mm256_setzero_si256();
        for (row, coefficients) in rows.iter().zip(coefficients) {
            // SAFETY: at + 4 words of 8 bytes are at most `len` words, and every row is at least as long as that.
            // The load needs no alignment.
            let words = unsafe { _mm256_loadu_si256(row.as_ptr().add(8 * at).cast()) };
            sum = _mm256_xor_si256(sum, _mm256_and_si256(words, coefficients));
        }
        differ |= (parities(sum) ^ mark >> at) & 0xf;
        at += COLUMNS;
    }
    if at < len {
        let columns = (len - at) as u32;
        let lanes = _mm256_cmpgt_epi64(_mm256_set1_epi64x(i64::from(columns)), _mm256_set_epi64x(3, 2, 1, 0));
        let mut sum = _mm256_setzero_si256();
        for (row, coefficients) in rows.iter().zip(coefficients) {
            // SAFETY: only the lanes of words below `len` are read, and every row is at least as long as that.
            let words = unsafe { _mm256_maskload_epi64(row.as_ptr().add(8 * at).cast(), lanes) };
            sum = _mm256_xor_si256(sum, _mm256_and_si256(words, coefficients));
        }
        differ |= (parities(sum) ^ mark >> at) & ((1 << columns) - 1);
    }
    differ == 0
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

/// Runs code with the instructions of the set, as far as it is inlined here.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// See `Simd::prefetch`.
#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    if at < bytes.len() {
        // SAFETY: the address lies within the slice; a prefetch reads nothing and cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().add(at).cast()) };
    }
}
