//! A band matrix over single bits, and the steps of elimination in it.
//!
//! The matrix has at most one row per slot: the row that starts there. If the slot of a new row is taken, the
//! two rows are added. This clears at least the first coefficient of the new row, which moves right to its
//! next coefficient. Each step waits for memory and for the step before it. So three rows take turns. A row
//! that ends is handled outside of the loop, because in the loop that code would take registers from the
//! steps. (The steps in assembly made a build no faster.)
//!
//! # Invariant
//!
//! No row has a coefficient after the last slot. Neither has the sum of two such rows. A row moves only to
//! slots at which it has a coefficient. One that has none left goes on by [`WINDOW`] slots at a time, to a free
//! slot: there are as many behind the last one, where no row starts.

use alloc::vec::Vec;

/// Rows that take turns.
pub(super) const LANES: usize = 3;

/// Coefficients of a row; and free slots behind those of a system, where its rows without coefficients end.
pub(super) const WINDOW: usize = 64;

/// A row: 64 coefficients from a slot on, of which the first is 1 or all are 0, and a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) coefficients: u64,
    pub(super) slot: usize,
    pub(super) mark: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    /// All 0 where no row starts. (As many as a power of two, with a mask instead of the comparison of an index with
    /// their number, took two instructions a key less and 4 % more time: a step waits for the mask.)
    coefficients: Vec<u64>,
    /// As many marks, 0 where no row starts. Stored apart from the coefficients, because a pair would take 16
    /// bytes.
    marks: Vec<u32>,
}

impl Matrix {
    /// Resets it to `slots` slots without rows, the free ones behind each system included.
    pub(super) fn clear(&mut self, slots: usize) {
        self.coefficients.clear();
        self.coefficients.resize(slots, 0);
        self.marks.clear();
        self.marks.resize(slots, 0);
    }

    /// No row starts at this slot.
    pub(super) fn free(&mut self, slot: usize) {
        self.coefficients[slot] = 0;
        self.marks[slot] = 0;
    }

    /// Coefficients and marks of all slots.
    pub(super) fn rows(&self) -> (&[u64], &[u32]) {
        (&self.coefficients, &self.marks)
    }

    /// Takes steps with each of the first `count` rows in turns, until one of them has reached a free slot, and
    /// puts it there if it has a coefficient left. Returns its number. The rows are in local variables, so that
    /// they stay in registers.
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

/// Takes a step, unless the row stands at a free slot, which it returns. That is the only branch, and it waits
/// for one load only. So a row that has no coefficient left is not told from others: it takes the row that it
/// meets, meets the same one again, which leaves it as it was, and goes on by [`WINDOW`] slots.
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
    // 64 of none.
    row.slot += zeros as usize;
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Elimination of one row after another, as it is defined.
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
            // More rows than slots: some find none.
            for _ in 0..4000 {
                let lane = matrix.eliminate(&mut turns, lanes);
                // Lanes do not meet, so the order between them changes nothing.
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
