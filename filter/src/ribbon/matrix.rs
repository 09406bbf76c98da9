//! A band matrix over single bits, and its elimination steps.
//!
//! A step waits for memory and for the previous step, so three rows take turns. Assembly was not faster.
//!
//! Invariant: rows have no coefficients after the last slot. A row moves to its next coefficient. If there is none, it
//! moves by [`WINDOW`], until it reaches one of the [`WINDOW`] free slots at the end.

use alloc::vec::Vec;

pub(super) const LANES: usize = 3;

/// The number of coefficients of a row, and of free slots after a system.
pub(super) const WINDOW: usize = 64;

/// The first coefficient is 1, or all coefficients are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) coefficients: u64,
    pub(super) slot: usize,
    pub(super) mark: u32,
}

#[derive(Debug, Default)]
pub(super) struct Matrix {
    /// 0 if the slot has no row. A mask instead of the bounds check was 4 % slower.
    coefficients: Vec<u64>,
    /// Stored separately from the coefficients, because pairs would take 16 bytes.
    marks: Vec<u32>,
}

impl Matrix {
    pub(super) fn clear(&mut self, slots: usize) {
        self.coefficients.clear();
        self.coefficients.resize(slots, 0);
        self.marks.clear();
        self.marks.resize(slots, 0);
    }

    pub(super) fn free(&mut self, slot: usize) {
        self.coefficients[slot] = 0;
        self.marks[slot] = 0;
    }

    pub(super) fn rows(&self) -> (&[u64], &[u32]) {
        (&self.coefficients, &self.marks)
    }

    /// Steps the first `count` rows in turns until one of them reaches a free slot, and returns its number. Locals stay
    /// in registers.
    #[inline(always)]
    pub(super) fn eliminate(&mut self, turns: &mut [Row; LANES], count: usize) -> usize {
        let coefficients = &mut self.coefficients[..];
        let marks = &mut self.marks[..coefficients.len()];
        let [mut one, mut two, mut three] = *turns;
        let lane = match count {
            1 => loop {
                if is_at_free_slot(coefficients, marks, &mut one) {
                    break 0;
                }
            },
            2 => loop {
                if is_at_free_slot(coefficients, marks, &mut one) {
                    break 0;
                }
                if is_at_free_slot(coefficients, marks, &mut two) {
                    break 1;
                }
            },
            _ => loop {
                if is_at_free_slot(coefficients, marks, &mut one) {
                    break 0;
                }
                if is_at_free_slot(coefficients, marks, &mut two) {
                    break 1;
                }
                if is_at_free_slot(coefficients, marks, &mut three) {
                    break 2;
                }
            },
        };
        *turns = [one, two, three];
        let row = turns[lane];
        if row.coefficients != 0 {
            coefficients[row.slot] = row.coefficients;
            marks[row.slot] = row.mark;
        }
        lane
    }
}

/// The only branch waits for one load. A row without coefficients adds the row of a taken slot twice, which has no effect.
#[inline(always)]
fn is_at_free_slot(coefficients: &[u64], marks: &[u32], row: &mut Row) -> bool {
    let there = coefficients[row.slot];
    if there == 0 {
        return true;
    }
    row.coefficients ^= there;
    row.mark ^= marks[row.slot];
    let zeros = row.coefficients.trailing_zeros();
    row.coefficients = row.coefficients.wrapping_shr(zeros);
    row.slot += zeros as usize;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eliminates one row after another, by the definition.
    fn eliminate_plainly(rows: &mut [Row], mut row: Row) -> Row {
        while row.coefficients != 0 && rows[row.slot].coefficients != 0 {
            row.coefficients ^= rows[row.slot].coefficients;
            row.mark ^= rows[row.slot].mark;
            while row.coefficients != 0 && row.coefficients & 1 == 0 {
                row.coefficients >>= 1;
                row.slot += 1;
            }
        }
        if row.coefficients != 0 {
            rows[row.slot] = row;
        }
        row
    }

    #[test]
    fn rows_in_turns_come_to_the_places_of_rows_one_after_the_other() {
        const SLOTS: usize = 1000 + 2 * WINDOW;
        for lanes in 1..=LANES {
            let mut state = 7u64;
            let mut random = move || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                state ^ state >> 31
            };
            let mut matrix = Matrix::default();
            matrix.clear(lanes * SLOTS);
            let mut plain = vec![Row::default(); lanes * SLOTS];
            let mut row = |lane: usize| Row {
                coefficients: random().rotate_left(17) | 1,
                slot: (random() >> 40) as usize % 1000 + SLOTS * lane,
                mark: random() as u32 & 3,
            };
            let mut turns: [Row; LANES] = core::array::from_fn(|lane| row(lane % lanes));
            let mut taken = turns;
            let mut dependent = 0;
            for _ in 0..4000 {
                let lane = matrix.eliminate(&mut turns, lanes);
                let (ended, expected) = (turns[lane], eliminate_plainly(&mut plain, taken[lane]));
                assert_eq!((ended.coefficients, ended.mark), (expected.coefficients, expected.mark));
                assert!(ended.coefficients == 0 || ended.slot == expected.slot);
                dependent += usize::from(ended.coefficients == 0);
                taken[lane] = row(lane);
                turns[lane] = taken[lane];
            }
            assert!((lanes * 800..=lanes * 1064).contains(&(4000 - dependent)), "{dependent}");
            let (coefficients, marks) = matrix.rows();
            assert!(plain.iter().map(|row| row.coefficients).eq(coefficients.iter().copied()));
            assert!(plain.iter().map(|row| row.mark).eq(marks.iter().copied()));
        }
    }

    #[test]
    fn rows_of_an_earlier_use_are_gone() {
        let mut matrix = Matrix::default();
        let mut put = |slots, slot| {
            matrix.clear(slots);
            assert!(matrix.rows().0.iter().all(|&coefficients| coefficients == 0));
            matrix.eliminate(&mut [Row { coefficients: 1, slot, mark: 5 }; LANES], 1);
            assert_eq!((matrix.rows().0[slot], matrix.rows().1[slot]), (1, 5));
        };
        put(70, 69);
        put(100, 99);
        put(1, 0);
        put(1000, 69);
    }
}
