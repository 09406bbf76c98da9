//! The last misses of blocks, as tags in a table. They decide how long a block that is read again stays in the cache.
//!
//! Each miss replaces the tag in its slot, so old misses disappear without a clock. A wrong match, one in 65,536, keeps
//! a block longer than needed.
//!
//! The cache crate's own list of evicted keys is not used: each change of the capacity loses some keys, and a key takes
//! as much memory as the slot of a block.

use std::sync::atomic::{AtomicU16, Ordering};

const TAG_BITS: u32 = 16;

pub(super) struct RecentMisses {
    tags: Box<[AtomicU16]>,
    slot_bits: u32,
}

impl RecentMisses {
    pub(super) fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two();
        let tags = (0..slots).map(|_| AtomicU16::new(0)).collect();
        Self { tags, slot_bits: slots.trailing_zeros() }
    }

    /// Notes a miss. Returns whether the block was missed recently. Uses the high bits of `hash`.
    pub(super) fn note(&self, hash: u64) -> bool {
        let rotated = hash.rotate_left(self.slot_bits);
        let slot = &self.tags[rotated as usize & (self.tags.len() - 1)];
        let tag = (rotated >> (u64::BITS - TAG_BITS)) as u16;
        let is_recent = slot.load(Ordering::Relaxed) == tag;
        slot.store(tag, Ordering::Relaxed);
        is_recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_remembered_until_its_slot_has_another_one() {
        let misses = RecentMisses::new(1000);
        let known = |blocks: std::ops::Range<u64>| {
            blocks.filter(|&block| misses.note(block.wrapping_mul(0x9e37_79b9_7f4a_7c15))).count()
        };
        assert_eq!(known(1..101), 0);
        assert!(known(1..101) > 80);
        assert!(known(1000..101_000) < 20, "others");
        assert_eq!(known(1..101), 0, "forgotten");
    }
}
