//! Collects solved blocks into sections.

use alloc::vec;
use alloc::vec::Vec;

use byteorder::{ByteOrder, LittleEndian};

use super::BLOCK_SLOTS;
use super::geometry::{GROUPS_MAX, Group, Ribbon};

#[derive(Debug)]
pub(super) struct Solution {
    groups: [u8; GROUPS_MAX],
    plain: u64,
    sections: Vec<Vec<u8>>,
    blocks: u64,
}

impl Solution {
    pub(super) fn new(groups: [u8; GROUPS_MAX], bytes: u64) -> Self {
        let columns = u64::from(groups.iter().sum::<u8>()).max(1);
        let shape = Ribbon { groups, ..Ribbon::MAYBE };
        let room = |group: usize| (bytes / columns * u64::from(groups[group].max(1))) as usize;
        let sections = (0..shape.group_count()).map(|group| Vec::with_capacity(room(group))).collect();
        Self { groups, plain: u64::MAX, sections, blocks: 0 }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn add_column_from(&mut self, plain: u64) {
        debug_assert!(plain >= self.blocks || plain == self.plain, "a written block would move");
        self.plain = plain;
    }

    pub(super) fn extend(&mut self, blocks: u64) -> u64 {
        let first = self.blocks;
        self.blocks += blocks;
        for group in 0..self.sections.len() {
            let len = self.group(group).offset_of(self.blocks) as usize;
            self.sections[group].resize(len, 0);
        }
        first
    }

    pub(super) fn put(&mut self, block: u64, words: &[u64]) {
        let mut words = words.iter();
        for group in 0..self.sections.len() {
            let shape = self.group(group);
            let start = shape.offset_of(block) as usize;
            let columns = shape.columns_of(block) as usize;
            let out = self.sections[group][start..start + 8 * columns].chunks_exact_mut(8);
            out.zip(&mut words).for_each(|(out, word)| LittleEndian::write_u64(out, *word));
        }
    }

    pub(super) fn finish(mut self, slots: u64) -> Vec<Vec<u8>> {
        let tail = self.blocks - 1;
        for group in 0..self.sections.len() {
            let shape = self.group(group);
            let section = &mut self.sections[group];
            let words = section.split_off(shape.offset_of(tail) as usize);
            section.extend_from_slice(&pack(&words, slots));
        }
        self.sections
    }

    fn group(&self, group: usize) -> Group {
        let last = group + 1 == self.sections.len();
        let plain = if last { self.plain } else { u64::MAX };
        Group { columns: self.groups[group].into(), plain, blocks: self.blocks, tail_slots: BLOCK_SLOTS }
    }
}

fn pack(words: &[u8], slots: u64) -> Vec<u8> {
    let slots = slots as usize;
    let mut out = vec![0; (words.len() / 8 * slots).div_ceil(8)];
    for (column, word) in words.chunks_exact(8).enumerate() {
        for slot in (0..slots).filter(|slot| word[slot / 8] >> (slot % 8) & 1 == 1) {
            let bit = column * slots + slot;
            out[bit / 8] |= 1 << (bit % 8);
        }
    }
    out
}

/// Returns `None` if a bit after the last one is set.
pub(super) fn unpack(packed: &[u8], columns: u64, slots: u64) -> Option<Vec<u8>> {
    let bit = |at: u64| packed.get((at / 8) as usize).map_or(0, |byte| byte >> (at % 8) & 1);
    let mut out = vec![0; 8 * columns as usize];
    for (column, word) in (0..columns).zip(out.chunks_exact_mut(8)) {
        for slot in 0..slots {
            word[(slot / 8) as usize] |= bit(column * slots + slot) << (slot % 8);
        }
    }
    (columns * slots..8 * packed.len() as u64).all(|at| bit(at) == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_tail_is_unpacked() {
        for slots in 1..=64 {
            let mask = u64::MAX >> (64 - slots);
            let words: Vec<u8> = (1..6u64)
                .flat_map(|word| (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask).to_le_bytes())
                .collect();
            let packed = pack(&words, slots);
            assert_eq!(packed.len() as u64, (5 * slots).div_ceil(8));
            assert_eq!(unpack(&packed, 5, slots), Some(words));
            if 5 * slots % 8 != 0 {
                let mut bad = packed;
                *bad.last_mut().unwrap() |= 0x80;
                assert_eq!(unpack(&bad, 5, slots), None);
            }
        }
    }
}
