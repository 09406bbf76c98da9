//! The few lines of a query that gain from vector instructions: one file per instruction set, chosen at run time.
//!
//! `portable` is the reference: every other file gives the same answer for the same bytes, and the tests
//! compare them. This folder is the only place of the crate with unsafe code: calls of functions for which
//! the processor was asked beforehand, and unaligned loads from slices whose length is checked.

mod portable;

use super::blocked::{LINE_BYTES, test_line};

/// The instruction set that queries use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Simd {
    /// What every processor has.
    #[default]
    Portable,
}

impl Simd {
    /// The best one that this processor has.
    pub(super) fn detect() -> Self {
        Self::Portable
    }

    /// Whether the parities of `coefficients` over the columns of `rows` are the lowest bits of `mark`, column by
    /// column. A row is one word of 64 bits for each column; all rows are equally long.
    #[inline]
    pub(super) fn matches<const N: usize>(self, rows: [&[u8]; N], coefficients: [u64; N], mark: u32) -> bool {
        portable::matches(rows, coefficients, mark)
    }

    /// Whether the bits of this word (see `blocked`) are set in the line.
    #[inline]
    pub(super) fn line_has(self, line: &[u8; LINE_BYTES], word: u64, probes: u8) -> bool {
        test_line(line, word, probes)
    }

    /// Asks for the cache line of `bytes` around byte `at`.
    #[inline]
    pub(super) fn prefetch(self, _bytes: &[u8], _at: usize) {}

    /// Runs code with the instructions of the set.
    #[inline]
    pub(super) fn run<R>(self, work: impl FnOnce() -> R) -> R {
        work()
    }
}
