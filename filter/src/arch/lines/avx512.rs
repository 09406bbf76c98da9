//! As `avx2`, with instructions that choose among sixteen words at once. Vectors stay at 256 bits: wider ones make some
//! processors run slower, and a line is asked for eight bits at a time anyway.

#![allow(unsafe_code)]

use core::arch::asm;

use super::{Lines, test, test_many};
use crate::blocked::{Blocked, LANES, LINE_BYTES};

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
/// The processor has `avx512f` and `avx512vl`, and `block` is at least as long as `lines.len`.
#[inline(always)]
pub(super) unsafe fn lines_have(block: &[u8], lines: &Lines, hash: u64) -> bool {
    let (number, word) = lines.locate(hash);
    // SAFETY: the caller's.
    unsafe { has_lanes(lines.line(block, number), word, lines.shape.first()) }
}

/// See `Simd::lines_have_many`.
///
/// # Safety
///
/// As [`lines_have`].
#[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn lines_have_many(block: &[u8], lines: &Lines, far: bool, batch: (&[u64], &mut [bool])) {
    test_many(block, lines, far, batch, |number, word| {
        // SAFETY: the caller's.
        has(unsafe { lines.line(block, number) }, word, &lines.shape)
    });
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn has(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    // A branch that goes the same way for all keys.
    if usize::from(shape.probes) <= LANES {
        // SAFETY: the processor has what this function is compiled with.
        unsafe { has_lanes(line, word, shape.first()) }
    } else {
        has_all(line, word, shape)
    }
}

#[inline(never)]
#[target_feature(enable = "avx512f,avx512vl,avx2")]
fn has_all(line: &[u8; LINE_BYTES], word: u32, shape: &Blocked) -> bool {
    // SAFETY: likewise.
    let has = |lanes| unsafe { has_lanes(line, word, lanes) };
    has(shape.first()) && shape.others().iter().all(has)
}

/// Whether the bits of eight probes are set.
///
/// Written out, for what the compiler does not do by itself: it uses registers whose upper halves nobody has to clear
/// afterwards, and so becomes a part of a caller that is compiled without these instructions.
///
/// # Safety
///
/// The processor has `avx512f` and `avx512vl`.
#[inline(always)]
unsafe fn has_lanes(line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
    let missing: u32;
    // SAFETY: the instructions are there. What is read lies within the 64 bytes of the line, the 32 of the array and
    // the 4 of the number, and needs no alignment.
    unsafe {
        asm!(
            "vpbroadcastd ymm16, {word:e}",
            "vpmulld ymm16, ymm16, ymmword ptr [{multipliers}]",
            // Of the nine highest bits of a product the four highest say which word of the line.
            "vpsrld ymm17, ymm16, 28",
            "vmovdqu32 ymm18, ymmword ptr [{line}]",
            "vpermt2d ymm18, ymm17, ymmword ptr [{line} + 32]",
            // The next five say which bit of it: a rotation counts modulo 32.
            "vpsrld ymm16, ymm16, 23",
            "vprorvd ymm18, ymm18, ymm16",
            "vptestnmd k1, ymm18, dword ptr [{one}]{{1to8}}",
            "kmovw {missing:e}, k1",
            word = in(reg) word,
            multipliers = in(reg) multipliers.as_ptr(),
            line = in(reg) line.as_ptr(),
            one = in(reg) &1u32,
            missing = lateout(reg) missing,
            out("ymm16") _,
            out("ymm17") _,
            out("ymm18") _,
            out("k1") _,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    missing == 0
}
