//! What `avx2` has, compiled with more instructions: of two operations on vectors one becomes of it here and there. The vectors
//! stay at 256 bits: wider ones make some processors run slower.

#![allow(unsafe_code)]

use super::{Simd, Work};

/// See `Simd::ask`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd { avx2: true, avx512: true }, a, b, c)
}
