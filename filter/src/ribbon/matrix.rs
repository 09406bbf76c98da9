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
//! slots at which it has a coefficient, so it never leaves the matrix.

use alloc::vec::Vec;

/// Rows that take turns.
pub(super) const LANES: usize = 3;

/// A row: 64 coefficients from a slot on, of which the first is 1 or all are 0, and a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) coefficients: u64,
    pub(super) slot: u32,
    pub(super) mark: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    /// All 0 where no row starts.
    coefficients: Vec<u64>,
    /// As many marks. Stored apart from the coefficients, because a pair would take 16 bytes.
    marks: Vec<u32>,
    /// The rows that take turns. Each is at a slot of the matrix, unless there are no slots.
    turns: [Row; LANES],
}

impl Matrix {
    /// Resets it to `slots` slots without rows.
    pub(super) fn clear(&mut self, slots: usize) {
        self.coefficients.clear();
        self.coefficients.resize(slots, 0);
        self.marks.clear();
        self.marks.resize(slots, 0);
        self.turns = Default::default();
    }

    /// This row is one of those that take turns.
    #[inline(always)]
    pub(super) fn take(&mut self, lane: usize, row: Row) {
        let end = row.slot as usize + (64 - row.coefficients.leading_zeros() as usize);
        let starts = row.coefficients & 1 == 1;
        assert!(starts && end <= self.coefficients.len(), "a row starts with a 1 and ends within the slots");
        self.turns[lane] = row;
    }

    /// The row has reached a free slot and starts there.
    #[inline(always)]
    pub(super) fn put(&mut self, lane: usize) {
        let row = self.turns[lane];
        self.coefficients[row.slot as usize] = row.coefficients;
        self.marks[row.slot as usize] = row.mark;
    }

    /// One row fewer takes turns: the last row replaces this one.
    pub(super) fn leave(&mut self, lane: usize, last: usize) {
        self.turns[lane] = self.turns[last];
    }

    /// No row starts at this slot.
    pub(super) fn free(&mut self, slot: u32) {
        self.coefficients[slot as usize] = 0;
        self.marks[slot as usize] = 0;
    }

    /// Coefficients and marks of all slots.
    pub(super) fn rows(&self) -> (&[u64], &[u32]) {
        (&self.coefficients, &self.marks)
    }

    /// Takes steps with each of the first `count` rows in turns, until one of them has reached a free slot or
    /// has no coefficient left. Returns its number and the row. The rows are in local variables, so that they
    /// stay in registers.
    #[inline(always)]
    pub(super) fn eliminate(&mut self, count: usize) -> (usize, Row) {
        let [mut one, mut two, mut three] = self.turns;
        let lane = match count {
            1 => loop {
                if self.step(&mut one) {
                    break 0;
                }
            },
            2 => loop {
                if self.step(&mut one) {
                    break 0;
                }
                if self.step(&mut two) {
                    break 1;
                }
            },
            _ => loop {
                if self.step(&mut one) {
                    break 0;
                }
                if self.step(&mut two) {
                    break 1;
                }
                if self.step(&mut three) {
                    break 2;
                }
            },
        };
        self.turns = [one, two, three];
        (lane, self.turns[lane])
    }

    /// Whether the row has reached a free slot or has no coefficient left.
    #[inline(always)]
    fn step(&self, row: &mut Row) -> bool {
        let slot = row.slot as usize;
        let there = self.coefficients[slot];
        if there == 0 {
            return true;
        }
        row.coefficients ^= there;
        row.mark ^= self.marks[slot];
        if row.coefficients == 0 {
            return true;
        }
        let zeros = row.coefficients.trailing_zeros();
        row.coefficients >>= zeros;
        row.slot += zeros;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_turns_come_to_the_places_of_rows_one_after_the_other() {
        for lanes in 1..=LANES {
            let mut state = 7u64;
            let mut random = move || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                state ^ state >> 31
            };
            let (mut matrix, mut single) = (Matrix::default(), Matrix::default());
            matrix.clear(3 * 1064);
            single.clear(3 * 1064);
            let mut row = |lane: usize| Row {
                coefficients: random().rotate_left(17) | 1,
                slot: (random() >> 40) as u32 % 1000 + 1064 * lane as u32,
                mark: random() as u32 & 3,
            };
            let mut taken: [Row; LANES] = core::array::from_fn(&mut row);
            (0..lanes).for_each(|lane| matrix.take(lane, taken[lane]));
            let mut put = 0;
            // More rows than slots: some find none.
            for _ in 0..4000 {
                let (lane, ended) = matrix.eliminate(lanes);
                // Lanes do not meet, so the order between them changes nothing.
                single.take(0, taken[lane]);
                assert_eq!(single.eliminate(1), (0, ended));
                if ended.coefficients != 0 {
                    matrix.put(lane);
                    single.put(0);
                    put += 1;
                }
                taken[lane] = row(lane);
                matrix.take(lane, taken[lane]);
            }
            assert!((lanes * 800..=lanes * 1064).contains(&put), "{put}");
            assert_eq!(matrix.rows(), single.rows());
        }
    }

    #[test]
    fn rows_of_an_earlier_use_are_gone() {
        let mut matrix = Matrix::default();
        matrix.clear(70);
        matrix.take(2, Row { coefficients: 1, slot: 69, mark: 5 });
        assert_eq!(matrix.eliminate(LANES), (0, Row::default()));
        matrix.put(2);
        assert_eq!((matrix.coefficients[69], matrix.marks[69]), (1, 5));
        matrix.clear(1);
        assert_eq!(matrix.eliminate(LANES), (0, Row::default()));
        assert_eq!((matrix.coefficients, matrix.marks), (vec![0], vec![0]));
    }

    #[test]
    #[should_panic(expected = "ends within the slots")]
    fn a_row_that_leaves_the_slots_is_refused() {
        let mut matrix = Matrix::default();
        matrix.clear(128);
        matrix.take(0, Row { coefficients: 1 << 63 | 1, slot: 64, mark: 0 });
        matrix.take(1, Row { coefficients: 1 << 63 | 1, slot: 65, mark: 0 });
    }
}
