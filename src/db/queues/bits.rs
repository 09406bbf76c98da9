//! A fixed-length bit set.

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(in crate::db) struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    pub(in crate::db) fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    pub(in crate::db) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::db) fn get(&self, at: usize) -> bool {
        assert!(at < self.len, "bit {at} of {}", self.len);
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    pub(in crate::db) fn set(&mut self, at: usize, bit: bool) {
        assert!(at < self.len, "bit {at} of {}", self.len);
        let word = &mut self.words[at / 64];
        *word = *word & !(1 << (at % 64)) | u64::from(bit) << (at % 64);
    }

    pub(in crate::db) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(in crate::db) fn any(&self) -> bool {
        self.words.iter().any(|&word| word != 0)
    }

    pub(in crate::db) fn all(&self) -> bool {
        self.count() == self.len
    }
}

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(bits: I) -> Self {
        let mut all = Self::default();
        for bit in bits {
            if all.len.is_multiple_of(64) {
                all.words.push(0);
            }
            all.len += 1;
            all.set(all.len - 1, bit);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_that_were_set_at_every_length() {
        for len in [0, 1, 63, 64, 65, 200] {
            let wanted: Vec<bool> = (0..len).map(|at| at % 3 == 0).collect();
            let mut bits = Bits::none(len);
            wanted.iter().enumerate().for_each(|(at, &bit)| bits.set(at, bit));
            assert_eq!(bits, wanted.iter().copied().collect());
            assert_eq!((0..len).map(|at| bits.get(at)).collect::<Vec<_>>(), wanted);
            assert_eq!((bits.len(), bits.count()), (len, len.div_ceil(3)));
            assert_eq!((bits.any(), bits.all()), (len > 0, len < 2));
            (0..len).for_each(|at| bits.set(at, false));
            assert_eq!((bits.any(), bits), (false, Bits::none(len)));
        }
    }
}
