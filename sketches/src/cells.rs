use crate::arithmetic;
use crate::envelope::{DecodeError, Envelope, bytes_to_words, words_to_bytes};
use crate::error::Error;

pub(crate) const WIDTH_MAX: u64 = 32;

const BITS_MAX: u64 = 1 << 48;

/// Cell `i` starts at bit `i · width`, least significant bits first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cells {
    words: Box<[u64]>,
    count: u64,
    width: u32,
}

impl Cells {
    /// `TooLarge` without enough memory, `InvalidArgument` for 0 cells.
    pub(crate) fn new(count: u64, width: u64) -> Result<Self, Error> {
        debug_assert!((1..64).contains(&width));
        if count == 0 {
            return Err(Error::invalid("0 cells"));
        }
        let bits = count.saturating_mul(width);
        let too_large = Error::TooLarge(bits / 8);
        if bits > BITS_MAX {
            return Err(too_large);
        }
        let mut words = Vec::new();
        let len = bits.div_ceil(64) as usize;
        words.try_reserve_exact(len).map_err(|_| too_large)?;
        words.resize(len, 0);
        Ok(Self { words: words.into(), count, width: width as u32 })
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn width(&self) -> u32 {
        self.width
    }

    pub(crate) fn max(&self) -> u64 {
        (1 << self.width) - 1
    }

    #[inline]
    pub(crate) fn get(&self, index: u64) -> u64 {
        let bit = index * u64::from(self.width);
        let (word, shift) = ((bit / 64) as usize, bit as u32 % 64);
        let mut value = self.words[word] >> shift;
        if shift + self.width > 64 {
            value |= self.words[word + 1] << (64 - shift);
        }
        value & self.max()
    }

    #[inline]
    pub(crate) fn set(&mut self, index: u64, value: u64) {
        debug_assert!(value <= self.max());
        let bit = index * u64::from(self.width);
        let (word, shift) = ((bit / 64) as usize, bit as u32 % 64);
        let mask = self.max();
        self.words[word] = self.words[word] & !(mask << shift) | value << shift;
        if shift + self.width > 64 {
            let done = 64 - shift;
            self.words[word + 1] = self.words[word + 1] & !(mask >> done) | value >> done;
        }
    }

    /// The first of four cells that equals `value` except in `ignored` bits.
    #[inline]
    pub(crate) fn find_in_four(&self, first: u64, value: u64, ignored: u64) -> Option<u64> {
        debug_assert!(u64::from(self.width) <= WIDTH_MAX);
        let ones = (0..4).fold(0u128, |ones, lane| ones | 1 << (lane * self.width));
        let different = (self.four(first) ^ (ones * u128::from(value))) & !(ones * u128::from(ignored));
        // Subtracting 1 borrows into the top bit of a zero lane. Only the lowest such lane is certainly 0.
        let borrowed = different.wrapping_sub(ones) & !different & ones << (self.width - 1);
        (borrowed != 0).then(|| first + u64::from(borrowed.trailing_zeros() / self.width))
    }

    /// Four cells from `first` on, and bits above them.
    #[inline]
    fn four(&self, first: u64) -> u128 {
        let bit = first * u64::from(self.width);
        let (word, shift) = ((bit / 64) as usize, bit as u32 % 64);
        let word_at = |index: usize| u128::from(self.words.get(index).copied().unwrap_or(0));
        (word_at(word) | word_at(word + 1) << 64) >> shift | word_at(word + 2) << 1 << (127 - shift)
    }

    #[inline]
    pub(crate) fn increment(&mut self, index: u64) {
        let value = self.get(index);
        if value < self.max() {
            self.set(index, value + 1);
        }
    }

    pub(crate) fn rate(&self, probes: u64) -> f64 {
        (1.0 - self.zeros() as f64 / self.count as f64).powf(probes as f64)
    }

    pub(crate) fn keys_in_words(&self, probes: u64) -> String {
        let keys = arithmetic::keys_of_ones(self.count, probes, self.count - self.zeros());
        keys.map_or("unknown, because no cell is 0".into(), |keys| format!("about {keys:.0}"))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.count).map(|index| self.get(index))
    }

    pub(crate) fn zeros(&self) -> u64 {
        self.iter().filter(|&value| value == 0).count() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) fn byte_len(count: u64, width: u64) -> Option<u64> {
        count.checked_mul(width).filter(|&bits| bits <= BITS_MAX).map(|bits| bits.div_ceil(8))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        words_to_bytes(self.words.iter().copied(), (self.count * u64::from(self.width)).div_ceil(8))
    }

    /// Fails if a bit after the last cell is set.
    pub(crate) fn from_bytes(
        parts: &Envelope<'_>,
        bytes: &[u8],
        count: u64,
        width: u64,
    ) -> Result<Self, DecodeError> {
        debug_assert_eq!(Some(bytes.len() as u64), Self::byte_len(count, width));
        let left = count * width % 8;
        if left != 0 && bytes.last().is_some_and(|last| last >> left != 0) {
            return Err(parts.corrupt("sketch body", "bits after the last cell are set"));
        }
        Ok(Self { words: bytes_to_words(bytes).collect(), count, width: width as u32 })
    }

    pub(crate) fn from_body(parts: &Envelope<'_>, count: u64, width: u64) -> Result<Self, DecodeError> {
        let body = parts.body_of(Self::byte_len(count, width))?;
        Self::from_bytes(parts, body, count, width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hash;

    #[test]
    fn cells_of_every_width_keep_what_is_set_and_nothing_else() {
        for width in 1..64 {
            let mut cells = Cells::new(131, width).unwrap();
            let mut model = vec![0; 131];
            for round in 0..1000 {
                let (index, value) = (hash(round) % 131, hash(round + 5000) & cells.max());
                cells.set(index, value);
                model[index as usize] = value;
            }
            assert!(cells.iter().eq(model.iter().copied()), "{width}");
            assert_eq!(cells.bytes().len() as u64, Cells::byte_len(131, width).unwrap());
            assert_eq!(cells.zeros(), model.iter().filter(|&&value| value == 0).count() as u64);
        }
    }

    #[test]
    fn the_first_equal_one_of_four_cells_is_found_as_one_by_one() {
        for width in 1..=WIDTH_MAX {
            let mut cells = Cells::new(24, width).unwrap();
            for round in 0..400 {
                let value =
                    |number| [0, 1, 2, cells.max(), cells.max() - 1, hash(round)][number as usize % 6];
                let (at, value) = (hash(round) % 24, value(hash(round + 1000)) & cells.max());
                cells.set(at, value);
                let ignored = hash(round + 2000) & (cells.max() * (round % 2));
                let first = hash(round + 3000) % 6 * 4;
                let sought = cells.get(first + round % 4);
                let equal = |&index: &u64| (cells.get(index) ^ sought) & !ignored == 0;
                assert_eq!(cells.find_in_four(first, sought, ignored), (first..first + 4).find(equal));
                let other = hash(round + 4000) & cells.max();
                let equal = |&index: &u64| cells.get(index) == other;
                assert_eq!(cells.find_in_four(first, other, 0), (first..first + 4).find(equal), "{width}");
            }
        }
    }

    #[test]
    fn cells_without_end_are_refused() {
        assert!(Cells::new(0, 4).is_err());
        assert!(matches!(Cells::new(u64::MAX, 4), Err(Error::TooLarge(_))));
        assert_eq!(Cells::byte_len(u64::MAX, 32), None);
    }
}
