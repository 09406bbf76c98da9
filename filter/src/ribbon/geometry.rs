//! The layers, blocks and sections of a ribbon filter, and its rate.
//!
//! ```text
//! layer   starts 128 · buckets; shards of 2^16 starts (the last one may be smaller)
//!         blocks 2 · buckets + shards: each shard has one block more than its starts fill
//! last    slots >= 128; blocks slots / 64, rounded up; the last block of the filter is the tail
//! ```
//!
//! Blocks and buckets are numbered through all layers. In a group of `c` columns, a block has `c` words. In the last
//! group, it has one more from block `plain` on. The tail is packed: it has only the used bits of each column.

use alloc::vec::Vec;

use super::{BLOCK_SLOTS, BUCKET_STARTS, BUMPED_BELOW, COLUMNS_MAX, SHARD_BITS, SMASH, WIDE};

pub(crate) const GROUPS_MAX: usize = 3;

pub(crate) const LAYERS_MAX: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ribbon {
    pub(crate) buckets: [u64; LAYERS_MAX],
    pub(crate) slots: u64,
    /// The columns of each group, without the additional column.
    pub(crate) groups: [u8; GROUPS_MAX],
    pub(crate) plain: u64,
    pub(crate) attempt: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Layer {
    pub(super) starts: u64,
    pub(super) block: u64,
    pub(super) bucket: u64,
}

impl Layer {
    #[inline]
    pub(super) fn block_of(start: u64) -> u64 {
        start / BLOCK_SLOTS + (start >> SHARD_BITS)
    }
}

pub(super) fn layer_blocks(buckets: u64) -> u64 {
    2 * buckets + buckets.div_ceil((1 << SHARD_BITS) / BUCKET_STARTS)
}

#[inline]
pub(super) fn bumped_below(thresholds: &[u8], bucket: u64) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "byteorder has no const functions")]
    const BELOW: u32 = u32::from_le_bytes(BUMPED_BELOW);
    let byte = thresholds.get(usize::try_from(bucket / 4).ok()?)?;
    let threshold = u32::from(byte >> (2 * (bucket % 4)) & 3);
    Some((BELOW >> (8 * threshold) & 0xff).into())
}

impl Ribbon {
    pub(crate) const MAYBE: Self =
        Self { buckets: [0; LAYERS_MAX], slots: 0, groups: [0; GROUPS_MAX], plain: 0, attempt: 0 };

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if *self == Self::MAYBE {
            return Ok(());
        }
        if self.slots < WIDE || self.slots > 1 << 48 {
            return Err("the last layer has less than 128 or more than 2^48 slots");
        }
        if self.buckets.iter().any(|&buckets| buckets > 1 << 48) {
            return Err("a layer has more than 2^48 buckets");
        }
        if self.buckets.windows(2).any(|pair| pair[0] == 0 && pair[1] != 0) {
            return Err("a layer follows an unused one");
        }
        if self.groups.windows(2).any(|pair| pair[0] == 0 && pair[1] != 0) {
            return Err("a column group follows an unused one");
        }
        if self.plain > self.blocks() {
            return Err("the blocks without an additional column exceed the number of blocks");
        }
        let columns = self.groups.iter().map(|&columns| u32::from(columns)).sum::<u32>();
        if columns + u32::from(self.has_additional()) > COLUMNS_MAX.into()
            || !self.has_additional() && columns == 0
        {
            return Err("there are 0 or more than 32 columns");
        }
        Ok(())
    }

    fn has_additional(&self) -> bool {
        self.plain < self.blocks()
    }

    pub(crate) fn group_count(&self) -> usize {
        self.groups.iter().filter(|&&columns| columns > 0).count().max(1)
    }

    pub(crate) fn columns(&self, groups: usize) -> u8 {
        self.groups.iter().take(groups).sum()
    }

    pub(super) fn blocks(&self) -> u64 {
        self.last_layer_block() + self.slots.div_ceil(BLOCK_SLOTS)
    }

    pub(super) fn all_slots(&self) -> u64 {
        self.last_layer_block() * BLOCK_SLOTS + self.slots
    }

    pub(super) fn last_layer_block(&self) -> u64 {
        self.buckets.iter().map(|&buckets| layer_blocks(buckets)).sum()
    }

    pub(super) fn tail_slots(&self) -> u64 {
        (self.slots.saturating_sub(1)) % BLOCK_SLOTS + 1
    }

    pub(super) fn layers(&self) -> impl Iterator<Item = Layer> {
        let (mut block, mut bucket) = (0, 0);
        self.buckets.into_iter().take_while(|&buckets| buckets > 0).map(move |buckets| {
            let layer = Layer { starts: buckets * BUCKET_STARTS, block, bucket };
            block += layer_blocks(buckets);
            bucket += buckets;
            layer
        })
    }

    pub(super) fn group(&self, group: usize) -> Group {
        let last = group + 1 == self.group_count();
        Group {
            columns: self.groups[group].into(),
            plain: if last { self.plain } else { u64::MAX },
            blocks: self.blocks(),
            tail_slots: self.tail_slots(),
        }
    }

    pub(crate) fn section_lens(&self) -> Vec<u64> {
        if *self == Self::MAYBE {
            return Vec::new();
        }
        let thresholds = self.buckets.iter().sum::<u64>().div_ceil(4);
        let groups = (0..self.group_count()).map(|group| self.group(group).bytes());
        [thresholds].into_iter().chain(groups).collect()
    }

    /// The rate of all groups in units of 2^-64. Each layer's share is rounded down.
    pub(crate) fn rate(&self, thresholds: &[u8]) -> u64 {
        if *self == Self::MAYBE {
            return u64::MAX;
        }
        let columns = self.columns(GROUPS_MAX);
        let last = self.last_layer_starts();
        let mut rate = share(last, 0, 0, columns);
        let layers: Vec<Layer> = self.layers().collect();
        for layer in layers.iter().rev() {
            let (kept, bumped) = self.layer_starts(layer, thresholds);
            rate = share(kept, bumped, rate, columns);
        }
        rate
    }

    fn last_layer_starts(&self) -> (u64, u64) {
        let starts = self.slots - WIDE + 1;
        let plain_starts = self.plain.saturating_sub(self.last_layer_block()).saturating_mul(BLOCK_SLOTS);
        match plain_starts {
            0 => (0, starts + 2 * SMASH),
            _ if plain_starts >= starts => (starts + 2 * SMASH, 0),
            _ => (plain_starts + SMASH, starts - plain_starts + SMASH),
        }
    }

    fn layer_starts(&self, layer: &Layer, thresholds: &[u8]) -> ((u64, u64), u64) {
        let (mut plain, mut other, mut bumped) = (0, 0, 0);
        for bucket in 0..layer.starts / BUCKET_STARTS {
            let below = bumped_below(thresholds, layer.bucket + bucket).unwrap_or(BUCKET_STARTS);
            let first = layer.block + Layer::block_of(bucket * BUCKET_STARTS);
            let kept = [BLOCK_SLOTS - below.min(BLOCK_SLOTS), (2 * BLOCK_SLOTS - below).min(BLOCK_SLOTS)];
            for (block, kept) in (first..).zip(kept) {
                *if block < self.plain { &mut plain } else { &mut other } += kept;
            }
            bumped += below;
        }
        ((plain, other), bumped)
    }
}

/// Returns the mean rate of a layer's starts in units of 2^-64: `2^-columns` for `plain`, half of that for `other`,
/// and `rate` for bumped starts.
fn share((plain, other): (u64, u64), bumped: u64, rate: u64, columns: u8) -> u64 {
    let kept = (2 * u128::from(plain) + u128::from(other)) << (63 - columns);
    let sum = kept + u128::from(bumped) * u128::from(rate);
    let starts = u128::from(plain) + u128::from(other) + u128::from(bumped);
    u64::try_from(sum / starts.max(1)).unwrap_or(u64::MAX)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Group {
    pub(super) columns: u64,
    pub(super) plain: u64,
    pub(super) blocks: u64,
    pub(super) tail_slots: u64,
}

impl Group {
    #[inline]
    pub(super) fn columns_of(&self, block: u64) -> u64 {
        self.columns + u64::from(block >= self.plain)
    }

    #[inline]
    pub(super) fn offset_of(&self, block: u64) -> u64 {
        8 * (block * self.columns + block.saturating_sub(self.plain))
    }

    pub(super) fn bytes(&self) -> u64 {
        let tail = self.blocks - 1;
        self.offset_of(tail) + (self.columns_of(tail) * self.tail_slots).div_ceil(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ribbon() -> Ribbon {
        Ribbon { buckets: [513, 3, 0, 0], slots: 200, groups: [4, 4, 0], plain: 1000, attempt: 0 }
    }

    #[test]
    fn layers_blocks_and_sections_follow_each_other() {
        let ribbon = ribbon();
        ribbon.check().unwrap();
        let layers: Vec<Layer> = ribbon.layers().collect();
        assert_eq!(layers[0], Layer { starts: 65_664, block: 0, bucket: 0 });
        assert_eq!(layers[1], Layer { starts: 384, block: 1028, bucket: 513 });
        assert_eq!((ribbon.last_layer_block(), ribbon.blocks(), ribbon.tail_slots()), (1035, 1039, 8));
        // The second group has five columns from block 1000 on. Its tail of eight slots has five bytes.
        let lens = [129, 1038 * 32 + 4, 1038 * 32 + 38 * 8 + 5];
        assert_eq!(ribbon.section_lens(), lens);
        assert_eq!(Layer::block_of(65_535), 1023);
        assert_eq!(Layer::block_of(65_536), 1025);
    }

    #[test]
    fn the_rate_is_the_mean_over_all_starts() {
        let mut ribbon = Ribbon { slots: 128, groups: [8, 0, 0], plain: 2, ..Ribbon::MAYBE };
        assert_eq!(ribbon.rate(&[]), 1 << 56);
        ribbon.plain = 0;
        assert_eq!(ribbon.rate(&[]), 1 << 55);
        // The only start is in the first block, so the additional column of the second block is never read.
        ribbon.plain = 1;
        assert_eq!(ribbon.rate(&[]), 1 << 56);
        let ribbon = Ribbon { buckets: [1, 0, 0, 0], slots: 128, groups: [8, 0, 0], plain: 3, attempt: 0 };
        assert_eq!(ribbon.rate(&[1]), ((1 << 56) * 88 + (1 << 55) * 40) / 128);
        assert_eq!(ribbon.rate(&[0]), 1 << 55);
        assert_eq!(Ribbon::MAYBE.rate(&[]), u64::MAX);
    }

    #[test]
    fn shapes_that_no_filter_has_are_refused() {
        let good = ribbon();
        for bad in [
            Ribbon { slots: 127, ..good },
            Ribbon { slots: 0, ..good },
            Ribbon { slots: u64::MAX, ..good },
            Ribbon { buckets: [u64::MAX, 1, 0, 0], ..good },
            Ribbon { buckets: [0, 3, 0, 0], ..good },
            Ribbon { buckets: [513, 0, 3, 0], ..good },
            Ribbon { groups: [0, 4, 4], ..good },
            Ribbon { groups: [4, 0, 4], ..good },
            Ribbon { groups: [32, 0, 0], ..good },
            Ribbon { groups: [255, 255, 255], ..good },
            Ribbon { plain: good.blocks() + 1, ..good },
            Ribbon { plain: good.blocks(), groups: [0, 0, 0], ..good },
            Ribbon { attempt: 1, ..Ribbon::MAYBE },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        for good in [
            Ribbon { plain: good.blocks(), groups: [16, 15, 1], ..good },
            Ribbon { plain: 0, groups: [0, 0, 0], ..good },
            Ribbon::MAYBE,
        ] {
            assert_eq!(good.check(), Ok(()));
        }
    }
}
