//! The sizes of the parts of a filter block.

use alloc::vec::Vec;

use super::header::{HEADER_BYTES, Header};
use super::section::PAGE_BYTES;
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;

/// Sizes in bytes, which add up to the block.
///
/// ```
/// # use sievedb_filter::{Expect, Filter, FilterBuilder, Kind};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = FilterBuilder::new(Kind::Ribbon, 8.0, 1, 2, [3; 16])?.column_groups(2);
/// (0..100_000u64).for_each(|key| builder.add_key(&key.to_le_bytes()));
/// let bytes = builder.finish()?;
/// let sizes = Filter::open(&bytes, Expect::anything())?.sizes();
/// assert_eq!(sizes.block, bytes.len() as u64);
/// assert_eq!(sizes.sections.len(), 3); // thresholds, and two column groups
/// assert!(sizes.overhead_of_sections().unwrap() < 0.01);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Sizes {
    /// The header.
    pub header: u64,
    /// The page checksums.
    pub page_checksums: u64,
    /// The bits of a Bloom filter, or a ribbon filter's thresholds and column groups.
    pub sections: Vec<u64>,
    /// Zeros between the parts.
    pub padding: u64,
    /// Sum of all sizes: the block.
    pub block: u64,
    /// `keys · log2(1 / rate)`, the minimum number of bits for any structure (Carter, Floyd, Gill, Markowsky and Wegman
    /// 1978). `None` for 0 keys or a rate of 1.
    pub least_bits: Option<f64>,
}

impl Sizes {
    /// Returns the sizes that a header states.
    #[must_use]
    pub fn of(header: &Header) -> Self {
        let sections: Vec<u64> = header.sections.iter().map(|section| section.len).collect();
        let page_checksums = sections.iter().map(|len| 4 * len.div_ceil(PAGE_BYTES)).sum();
        let parts = HEADER_BYTES as u64 + page_checksums + sections.iter().sum::<u64>();
        let least_bits = header.key_count as f64 * (64.0 - (header.rate as f64).log2());
        Self {
            header: HEADER_BYTES as u64,
            page_checksums,
            sections,
            padding: header.block_len.saturating_sub(parts),
            block: header.block_len,
            least_bits: Some(least_bits).filter(|bits| bits.is_finite() && *bits > 0.0),
        }
    }

    /// The relative excess of the sections over [`Sizes::least_bits`].
    #[must_use]
    pub fn overhead_of_sections(&self) -> Option<f64> {
        self.overhead(self.sections.iter().sum())
    }

    /// The relative excess of the block over [`Sizes::least_bits`].
    #[must_use]
    pub fn overhead_of_block(&self) -> Option<f64> {
        self.overhead(self.block)
    }

    fn overhead(&self, bytes: u64) -> Option<f64> {
        self.least_bits.map(|least| 8.0 * bytes as f64 / least - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expect, Filter, FilterBuilder, Kind};
    use super::*;

    fn sizes(kind: Kind, keys: u64) -> Sizes {
        let mut builder = FilterBuilder::new(kind, 10.0, 1, 2, [3; 16]).unwrap().column_groups(3);
        (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
        let bytes = builder.finish().unwrap();
        let sizes = Filter::open(&bytes, Expect::anything()).unwrap().sizes();
        assert_eq!(sizes.block, bytes.len() as u64);
        sizes
    }

    #[test]
    fn the_parts_add_up_to_the_block() {
        for kind in Kind::ALL {
            for keys in [0, 1, 100, 10_000, 100_000] {
                let sizes = sizes(kind, keys);
                let sections: u64 = sizes.sections.iter().sum();
                assert_eq!(sizes.header + sizes.page_checksums + sections + sizes.padding, sizes.block);
                assert!(sizes.padding <= 64 * (1 + sizes.sections.len() as u64), "{kind:?} {keys} {sizes:?}");
                assert_eq!(sizes.least_bits.is_some(), keys > 0);
            }
        }
    }

    #[test]
    fn each_kind_is_as_far_from_the_least_as_theory_says() {
        for (kind, expected) in [(Kind::Bloom, 0.442), (Kind::BlockedBloom, 0.494), (Kind::Ribbon, 0.005)] {
            let sizes = sizes(kind, 100_000);
            let overhead = sizes.overhead_of_sections().unwrap();
            assert!((overhead - expected).abs() < 0.01, "{kind:?} {overhead}");
            let whole = sizes.overhead_of_block().unwrap();
            assert!(whole > overhead && whole < overhead + 0.01, "{kind:?} {whole}");
        }
    }
}
