use std::fmt::Debug;

use fastbloom::BloomFilter;
use lsm_tree::table::filter::standard_bloom::{Builder, StandardBloomFilterReader};
use pleat::filter::{Ribbon, StdRibbon};
use xorf::{BinaryFuse8, BinaryFuse16, Filter};

use super::lane::{Lane, Mode, Probe, ask};
use crate::Result;

const BITS_PER_KEY: usize = 10;

pub(super) fn failed(error: impl Debug) -> Box<dyn std::error::Error> {
    format!("{error:?}").into()
}

pub(super) fn sbbf(hashes: &[u64]) -> sbbf_rs_safe::Filter {
    let mut filter = sbbf_rs_safe::Filter::new(BITS_PER_KEY, hashes.len());
    for &hash in hashes {
        filter.insert_hash(hash);
    }
    filter
}

impl Probe for sbbf_rs_safe::Filter {
    fn bits(&self) -> u64 {
        self.as_bytes().len() as u64 * 8
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.contains_hash(hash)
    }
}

pub(super) fn fastbloom(hashes: &[u64]) -> BloomFilter {
    let mut filter =
        BloomFilter::with_num_bits(hashes.len() * BITS_PER_KEY).seed(&1).expected_items(hashes.len());
    for &hash in hashes {
        filter.insert_hash(hash);
    }
    filter
}

impl Probe for BloomFilter {
    fn bits(&self) -> u64 {
        self.num_bits() as u64
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.contains_hash(hash)
    }
}

/// The Bloom filter of `lsm-tree`, the engine of `fjall`. Its header is parsed once per loop here, and once per lookup
/// in the engine.
pub(super) struct LsmBloom {
    bytes: Vec<u8>,
}

impl LsmBloom {
    pub(super) fn new(hashes: &[u64]) -> Result<Self> {
        let mut builder = Builder::with_bpk(hashes.len(), BITS_PER_KEY as f32);
        for &hash in hashes {
            builder.set_with_hash(hash);
        }
        let bytes = builder.build();
        StandardBloomFilterReader::new(&bytes).map_err(failed)?;
        Ok(Self { bytes })
    }
}

impl Lane for LsmBloom {
    fn bits(&self) -> u64 {
        self.bytes.len() as u64 * 8
    }

    fn ask(&self, hashes: &[u64], mode: Mode) -> u64 {
        StandardBloomFilterReader::new(&self.bytes).map_or(0, |reader| ask(&reader, hashes, mode))
    }
}

impl Probe for StandardBloomFilterReader<'_> {
    fn bits(&self) -> u64 {
        self.len() as u64 * 8
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.contains_hash(hash)
    }
}

impl Probe for BinaryFuse8 {
    fn bits(&self) -> u64 {
        self.len() as u64 * 8
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        Filter::contains(self, &hash)
    }
}

impl Probe for BinaryFuse16 {
    fn bits(&self) -> u64 {
        self.len() as u64 * 16
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        Filter::contains(self, &hash)
    }
}

impl<const R: usize> Probe for Ribbon<R> {
    fn bits(&self) -> u64 {
        self.size_bytes() as u64 * 8
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.contains(hash)
    }

    #[inline]
    fn contains_many(&self, hashes: &[u64], answers: &mut [bool]) {
        self.contains_batch(hashes, answers);
    }
}

impl<const R: usize> Probe for StdRibbon<R> {
    fn bits(&self) -> u64 {
        self.size_bytes() as u64 * 8
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.contains(hash)
    }

    #[inline]
    fn contains_many(&self, hashes: &[u64], answers: &mut [bool]) {
        self.contains_batch(hashes, answers);
    }
}
