//! Reproducible pseudorandom numbers: SplitMix64 (Steele, Lea and Flood 2014).

use byteorder::{ByteOrder, LittleEndian};

/// The numbers of one stream are distinct.
#[inline]
pub(crate) fn number(stream: u64, index: u64) -> u64 {
    let mut mixed = (stream << 40 ^ index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[inline]
pub(crate) fn below(number: u64, end: u64) -> u64 {
    ((u128::from(number) * u128::from(end)) >> 64) as u64
}

#[inline]
pub(crate) fn bytes_of(number: u64) -> [u8; 8] {
    let mut bytes = [0; 8];
    LittleEndian::write_u64(&mut bytes, number);
    bytes
}

pub(crate) fn shuffle<T>(stream: u64, items: &mut [T]) {
    for index in (1..items.len()).rev() {
        items.swap(index, below(number(stream, index as u64), index as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffled_order_has_every_item_once_and_is_that_of_its_stream() {
        let shuffled = |stream| {
            let mut items: Vec<u32> = (0..1000).collect();
            shuffle(stream, &mut items);
            items
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }
}
