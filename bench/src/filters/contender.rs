use sievedb::filter::{AlignedBytes, Expect, Filter, FilterBuilder, Kind};
use xorf::{BinaryFuse8, BinaryFuse16};

use super::lane::{Lane, Line};
use super::peers::{self, LsmBloom};
use crate::Result;

pub(super) const SEED: u64 = 1;
pub(super) const OWNER: [u8; 16] = [7; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contender {
    Blocked,
    Bloom,
    Ribbon8,
    Ribbon10,
    Sbbf,
    Fastbloom,
    LsmTree,
    Fuse8,
    Fuse16,
    PleatHomogeneous,
    PleatStandard,
}

pub(super) type Ours = Filter<AlignedBytes>;

pub(super) enum Product {
    Block(Vec<u8>),
    Lane(Box<dyn Lane>),
}

impl Contender {
    pub(super) const ALL: [Self; 11] = [
        Self::Blocked,
        Self::Bloom,
        Self::Ribbon8,
        Self::Ribbon10,
        Self::Sbbf,
        Self::Fastbloom,
        Self::LsmTree,
        Self::Fuse8,
        Self::Fuse16,
        Self::PleatHomogeneous,
        Self::PleatStandard,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Blocked => "BlockedBloom, 10 bits",
            Self::Bloom => "Bloom, 10 bits",
            Self::Ribbon8 => "Ribbon, 8 columns",
            Self::Ribbon10 => "Ribbon, 10 bits",
            Self::Sbbf => "sbbf-rs-safe, 10 bits",
            Self::Fastbloom => "fastbloom, 10 bits",
            Self::LsmTree => "lsm-tree Bloom, 10 bits",
            Self::Fuse8 => "xorf BinaryFuse8",
            Self::Fuse16 => "xorf BinaryFuse16",
            Self::PleatHomogeneous => "pleat homogeneous, r = 8",
            Self::PleatStandard => "pleat standard, r = 8",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        self.settings().is_some()
    }

    /// Whether the filter is also built with the largest number of keys. The builder of pleat's standard ribbon fails
    /// after some minutes.
    pub(super) fn takes_part_in_huge(self) -> bool {
        !matches!(self, Self::Bloom | Self::Ribbon10 | Self::LsmTree | Self::Fuse16 | Self::PleatStandard)
    }

    pub(super) fn borrows_hashes(self) -> bool {
        matches!(self, Self::Fuse8 | Self::Fuse16 | Self::PleatHomogeneous | Self::PleatStandard)
    }

    fn settings(self) -> Option<(Kind, f64, Option<f64>)> {
        match self {
            Self::Blocked => Some((Kind::BlockedBloom, 10.0, None)),
            Self::Bloom => Some((Kind::Bloom, 10.0, None)),
            Self::Ribbon8 => Some((Kind::Ribbon, 10.0, Some(8.0))),
            Self::Ribbon10 => Some((Kind::Ribbon, 10.0, None)),
            _ => None,
        }
    }

    pub(super) fn make(self, hashes: &[u64]) -> Result<Product> {
        if let Some(block) = self.block(hashes.iter().copied(), 3)? {
            return Ok(Product::Block(block));
        }
        let lane: Box<dyn Lane> = match self {
            Self::Sbbf => Box::new(peers::sbbf(hashes)),
            Self::Fastbloom => Box::new(peers::fastbloom(hashes)),
            Self::LsmTree => Box::new(LsmBloom::new(hashes)?),
            Self::Fuse8 => Box::new(BinaryFuse8::try_from(hashes)?),
            Self::Fuse16 => Box::new(BinaryFuse16::try_from(hashes)?),
            Self::PleatHomogeneous => Box::new(pleat::filter::Ribbon::<8>::from_keys_pleated(hashes)),
            _ => Box::new(pleat::filter::StdRibbon::<8>::from_keys_pleated(hashes).map_err(peers::failed)?),
        };
        Ok(Product::Lane(lane))
    }

    pub(super) fn block(self, hashes: impl Iterator<Item = u64>, salt: u64) -> Result<Option<Vec<u8>>> {
        let Some((kind, bits, columns)) = self.settings() else { return Ok(None) };
        let mut builder = FilterBuilder::new(kind, bits, SEED, salt, OWNER)?;
        if let Some(columns) = columns {
            builder = builder.columns(columns)?;
        }
        hashes.for_each(|hash| builder.add_hash(hash));
        Ok(Some(builder.finish()?))
    }

    pub(super) fn ours(self, hashes: impl Iterator<Item = u64>, salt: u64) -> Result<Ours> {
        let block = self.block(hashes, salt)?.ok_or("not one of our filters")?;
        open(&block)
    }
}

pub(super) fn open(block: &[u8]) -> Result<Ours> {
    Filter::open(AlignedBytes::copy_of(block), Expect::anything()).map_err(peers::failed)
}

pub(super) fn floor(keys: usize) -> Line {
    Line::new((keys * 10).div_ceil(512))
}
