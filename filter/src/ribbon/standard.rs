//! The last layer, with windows of 128 slots. Like `band`, but a contradiction ends the attempt.

use alloc::vec::Vec;

use super::row::{Wide, wide};
use super::{ATTEMPTS_MAX, BLOCK_SLOTS, WIDE};
use crate::arch::{Simd, Work};

#[derive(Debug, Default)]
pub(super) struct WideBand {
    // Stored separately, because a pair would take 32 bytes.
    coefficients: Vec<u128>,
    marks: Vec<u32>,
    pub(super) attempt: u16,
}

#[derive(Debug, Clone, Copy)]
struct Moving {
    coefficients: u128,
    slot: usize,
    mark: u32,
}

impl Moving {
    #[inline(always)]
    fn new(row: Wide, columns: u32) -> Self {
        let [low, high] = row.coefficients;
        let coefficients = u128::from(high) << 64 | u128::from(low);
        Self { coefficients, slot: row.start as usize, mark: row.mark & columns }
    }
}

impl WideBand {
    #[inline(always)]
    fn first(hashes: &[u64], columns: u32, slots: impl Fn(u16) -> u64) -> Option<Self> {
        let mut band = Self::default();
        for attempt in 0..ATTEMPTS_MAX {
            band.attempt = attempt;
            band.clear(slots(attempt) as usize);
            let rows = hashes.iter().map(|&hash| Moving::new(wide(hash, attempt, slots(attempt)), columns));
            if band.add_all(rows) {
                return Some(band);
            }
        }
        None
    }

    pub(super) fn slots(&self) -> u64 {
        self.coefficients.len() as u64
    }

    fn clear(&mut self, slots: usize) {
        self.coefficients.clear();
        self.coefficients.resize(slots, 0);
        self.marks.clear();
        self.marks.resize(slots, 0);
    }

    /// Two rows take turns. Returns whether all rows agree.
    #[inline(always)]
    fn add_all(&mut self, mut rows: impl Iterator<Item = Moving>) -> bool {
        let Some(mut one) = rows.next() else { return true };
        let Some(mut two) = rows.next() else { return self.add(one) };
        loop {
            match self.step(&mut one) {
                None => {}
                Some(false) => return false,
                Some(true) => match rows.next() {
                    Some(row) => one = row,
                    None => return self.add(two),
                },
            }
            match self.step(&mut two) {
                None => {}
                Some(false) => return false,
                Some(true) => match rows.next() {
                    Some(row) => two = row,
                    None => return self.add(one),
                },
            }
        }
    }

    #[inline(always)]
    fn add(&mut self, mut row: Moving) -> bool {
        loop {
            if let Some(agrees) = self.step(&mut row) {
                return agrees;
            }
        }
    }

    /// Stores or moves the row. Returns whether it agrees, or `None` until this is known.
    #[inline(always)]
    fn step(&mut self, row: &mut Moving) -> Option<bool> {
        let there = &mut self.coefficients[row.slot];
        if *there == 0 {
            *there = row.coefficients;
            self.marks[row.slot] = row.mark;
            return Some(true);
        }
        row.coefficients ^= *there;
        row.mark ^= self.marks[row.slot];
        if row.coefficients == 0 {
            return Some(row.mark == 0);
        }
        let zeros = row.coefficients.trailing_zeros();
        row.coefficients >>= zeros;
        row.slot += zeros as usize;
        None
    }

    #[inline(always)]
    fn solve(&self, columns: usize, mut put: impl FnMut(u64, &[u64])) {
        let mut words = [[0u64; 2]; 32];
        let words = &mut words[..columns];
        let mut block = [0; 32];
        for (slot, (&coefficients, &mark)) in self.coefficients.iter().zip(&self.marks).enumerate().rev() {
            let [low, high] = [coefficients as u64, (coefficients >> 64) as u64];
            for (column, word) in words.iter_mut().enumerate() {
                let later = [word[0] << 1, word[1] << 1 | word[0] >> 63];
                let parity = (later[0] & low ^ later[1] & high).count_ones();
                *word = [later[0] | u64::from((parity ^ mark >> column) & 1), later[1]];
            }
            if slot % BLOCK_SLOTS as usize == 0 {
                block.iter_mut().zip(&*words).for_each(|(out, word)| *out = word[0]);
                put(slot as u64 / BLOCK_SLOTS, &block[..columns]);
            }
        }
    }
}

pub(super) struct First;

impl<F: Fn(u16) -> u64> Work<&[u64], u32, F> for First {
    type Output = Option<WideBand>;

    #[inline(always)]
    fn work(_: Simd, hashes: &[u64], columns: u32, slots: F) -> Option<WideBand> {
        WideBand::first(hashes, columns, slots)
    }
}

pub(super) struct SolveWide;

impl<F: FnMut(u64, &[u64])> Work<&WideBand, usize, F> for SolveWide {
    type Output = ();

    #[inline(always)]
    fn work(_: Simd, band: &WideBand, columns: usize, put: F) {
        band.solve(columns, put);
    }
}

/// Returns the coefficients from slot `offset` of a block, over three blocks.
#[inline]
pub(super) fn aligned(row: &Wide, offset: u32) -> [u64; 3] {
    debug_assert!(u64::from(offset) < BLOCK_SLOTS && WIDE == 2 * BLOCK_SLOTS);
    let [low, high] = row.coefficients;
    [low << offset, (low >> 1 >> (63 - offset)) | high << offset, high >> 1 >> (63 - offset)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_a_solution_ends_the_attempts() {
        let row = Wide { start: 3, coefficients: [5, 7], mark: 1 };
        let mut band = WideBand::default();
        let moving = |row| Moving::new(row, 0xff);
        for rows in [&[row][..], &[row, row], &[row, Wide { mark: 0x101, ..row }, row]] {
            band.clear(140);
            let rows = rows.iter().copied();
            assert!(
                band.add_all(rows.map(moving)),
                "a row agrees with itself, in the columns that are solved"
            );
        }
        assert!(!band.add(moving(Wide { mark: 2, ..row })));
        for other in 0..5 {
            band.clear(140);
            let rows = (0..5).map(|number| Wide { mark: 1 + u32::from(number == other), ..row });
            assert!(!band.add_all(rows.map(moving)), "{other}");
        }
        let hashes: Vec<u64> = (0..1000u64).map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        assert!(WideBand::first(&hashes, 0xff, |_| 900).is_none());
        let band = WideBand::first(&hashes, 0xff, |_| 1010).unwrap();
        assert_eq!(band.slots(), 1010);
    }

    #[test]
    fn coefficients_lie_over_the_blocks_that_the_window_meets() {
        let row = Wide { start: 0, coefficients: [u64::MAX; 2], mark: 0 };
        assert_eq!(aligned(&row, 0), [u64::MAX, u64::MAX, 0]);
        assert_eq!(aligned(&row, 1), [u64::MAX - 1, u64::MAX, 1]);
        assert_eq!(aligned(&row, 63), [1 << 63, u64::MAX, u64::MAX >> 1]);
    }
}
