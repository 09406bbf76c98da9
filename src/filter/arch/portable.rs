//! The reference: plain 64-bit arithmetic.

use super::{Simd, Work};

/// Columns at a time.
const COLUMNS: usize = 8;

/// See `Simd::run`. Not inlined: it would lie in the way of the other sets.
#[inline(never)]
pub(super) fn run<W: Work<A, B, C>, A, B, C>(a: A, b: B, c: C) -> W::Output {
    W::work(Simd::PORTABLE, a, b, c)
}

/// See `Simd::matches`.
#[inline]
pub(super) fn matches<const N: usize>(mut rows: [&[u8]; N], coefficients: [u64; N], mut mark: u32) -> bool {
    loop {
        let mut words = [0u64; COLUMNS];
        let mut columns = COLUMNS;
        for (row, coefficients) in rows.iter_mut().zip(coefficients) {
            // The number of words is fixed where there are enough, so that the loop has no end to be foreseen.
            if let Some((part, rest)) = row.split_first_chunk::<{ 8 * COLUMNS }>() {
                add(&mut words, part, coefficients);
                *row = rest;
            } else {
                columns = row.len() / 8;
                add(&mut words, row, coefficients);
                *row = &[];
            }
        }
        let differ = (u32::from(parities(words)) ^ mark) & ((1 << columns) - 1);
        if differ != 0 {
            return false;
        }
        if rows.iter().all(|row| row.is_empty()) {
            return true;
        }
        mark >>= COLUMNS;
    }
}

/// See `Simd::pair_matches`.
///
/// Four columns settle 15 of 16 queries for absent keys.
#[inline]
pub(super) fn pair_matches(bytes: &[u8], stride: usize, coefficients: [u64; 2], mark: u32) -> bool {
    let Some((one, rest)) = bytes.split_at_checked(stride) else { return true };
    let Some(two) = rest.get(..stride) else { return true };
    if let (Some(first), Some(second)) = (one.first_chunk::<32>(), two.first_chunk::<32>()) {
        let mut words = [0; 4];
        add(&mut words, first, coefficients[0]);
        add(&mut words, second, coefficients[1]);
        if (four_parities(words) ^ mark) & 0xf != 0 {
            return false;
        }
    }
    matches([one, two], coefficients, mark)
}

/// Adds those of `bytes`' words that `coefficients` selects.
#[inline(always)]
fn add(words: &mut [u64], bytes: &[u8], coefficients: u64) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]];
        *word ^= u64::from_le_bytes(bytes) & coefficients;
    }
}

/// The parity of each word, that of the first as the lowest bit.
///
/// Two words are folded into the halves of one, again and again, until each has a byte of its own: less than
/// half of the work of eight parities where the processor has no instruction to count bits.
#[inline]
fn parities(words: [u64; COLUMNS]) -> u8 {
    let fold = |low: u64, high: u64, shift: u32, mask: u64| {
        ((low ^ (low >> shift)) & mask) | ((high ^ (high << shift)) & !mask)
    };
    let halves = |low, high| fold(low, high, 32, 0x0000_0000_ffff_ffff);
    let quarters = |low, high| fold(low, high, 16, 0x0000_ffff_0000_ffff);
    let even = quarters(halves(words[0], words[4]), halves(words[2], words[6]));
    let odd = quarters(halves(words[1], words[5]), halves(words[3], words[7]));
    let mut bytes = fold(even, odd, 8, 0x00ff_00ff_00ff_00ff);
    bytes ^= bytes >> 4;
    bytes ^= bytes >> 2;
    bytes ^= bytes >> 1;
    // Moves the lowest bit of byte i to bit i of the highest byte.
    ((bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The parity of each of four words, likewise: each becomes 16 bits of one.
#[inline]
fn four_parities(words: [u64; 4]) -> u32 {
    let [one, two, three, four] = words.map(|word| word ^ word >> 32).map(|half| half ^ half >> 16);
    let low = one & 0xffff | two << 16 & 0xffff_0000;
    let high = three & 0xffff | four << 16 & 0xffff_0000;
    let mut quarters = low | high << 32;
    quarters ^= quarters >> 8;
    quarters ^= quarters >> 4;
    quarters ^= quarters >> 2;
    quarters ^= quarters >> 1;
    // Moves bit 0 of each 16 to the lowest bits of the highest four.
    ((quarters & 0x0001_0001_0001_0001).wrapping_mul(0x1000_2000_4000_8000) >> 60) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parities_of_eight_words_are_those_of_each() {
        let mut state = 1u64;
        for _ in 0..1000 {
            let words = [(); COLUMNS].map(|()| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                state ^ (state >> 29)
            });
            let parities = parities(words);
            for (column, word) in words.iter().enumerate() {
                assert_eq!(u32::from(parities >> column & 1), word.count_ones() & 1, "{column}");
            }
            let four = [words[0], words[1], words[2], words[3]];
            assert_eq!(four_parities(four), u32::from(parities) & 0xf);
        }
    }
}
