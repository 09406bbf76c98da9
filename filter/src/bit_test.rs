//! The bit test of each filter kind.

use super::arch::Simd;

/// Implementations are `inline(always)`, so they are compiled for each instruction set.
pub(super) trait Test {
    /// The answer, if the first read decides.
    fn test_first(&self, simd: Simd, block: &[u8], hash: u64) -> Option<bool>;

    /// The answer if [`Test::test_first`] returns `None`. Missing bytes count as a match.
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

    /// [`Test::test`] for present keys in a loop.
    #[inline(always)]
    fn test_present(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        self.test(simd, block, hash)
    }

    fn prefetch(&self, block: &[u8], hash: u64);
}
