//! The bit test that each filter kind implements and `probe` calls.

use super::arch::Simd;

/// Tests the bits of one kind. Implementations are `inline(always)`, to be compiled for each instruction set.
pub(super) trait Test {
    /// Whether a key with this table hash may be in the filter with this block, if the first read decides. It
    /// decides for all but a few per cent of absent keys; otherwise call [`Test::test_rest`].
    fn test_first(&self, simd: Simd, block: &[u8], hash: u64) -> Option<bool>;

    /// The answer if [`Test::test_first`] has none. Missing bytes count as a match.
    fn test_rest(&self, _: Simd, _: &[u8], _: u64) -> bool {
        true
    }

    #[inline(always)]
    fn test(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        match self.test_first(simd, block, hash) {
            Some(answer) => answer,
            None => self.test_rest(simd, block, hash),
        }
    }

    /// [`Test::test`], optimized for present keys in a loop.
    #[inline(always)]
    fn test_present(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        self.test(simd, block, hash)
    }

    /// Prefetches the bytes that [`Test::test`] most likely reads.
    fn prefetch(&self, block: &[u8], hash: u64);
}
