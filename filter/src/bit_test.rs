//! The test of the bits of one filter for one key: what each kind implements, and `probe` calls.

use super::arch::Simd;

/// What tests the bits of one kind. Both are `inline(always)`: they are compiled for each instruction set.
pub(super) trait Test {
    /// Whether a key with this table hash may be in the filter with this block, if one look at it tells: in all
    /// but some per cent of queries for absent keys. Otherwise [`Test::test_rest`] tells.
    fn test_first(&self, simd: Simd, block: &[u8], hash: u64) -> Option<bool>;

    /// The answer where [`Test::test_first`] has none. What is not in the block counts as fitting.
    fn test_rest(&self, _: Simd, _: &[u8], _: u64) -> bool {
        true
    }

    /// The answer.
    #[inline(always)]
    fn test(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        match self.test_first(simd, block, hash) {
            Some(answer) => answer,
            None => self.test_rest(simd, block, hash),
        }
    }

    /// The answer, in fewer instructions if the key is there and a loop asks for one after the other.
    #[inline(always)]
    fn test_present(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        self.test(simd, block, hash)
    }

    /// Prefetches what [`Test::test`] reads most likely.
    fn prefetch(&self, block: &[u8], hash: u64);
}
