//! A band matrix over single bits, and the steps of elimination in it.
//!
//! The matrix has at most one row per slot, the one that starts there. A new row whose slot is taken is added to the one
//! that is there, which clears its first coefficient at least, and moves right to its next one. That step waits for
//! memory and for itself; so three rows of parts of the matrix that do not meet take turns. As compiled code they do
//! not fit into the registers of the processor, and a step takes twice the instructions: it is written out. What is done
//! with a row that ends is elsewhere: in the same loop it would take registers from the steps.
//!
//! # Invariant
//!
//! No row has a coefficient behind the last slot. The sum of two such rows has none either, and a row that is added to
//! others only moves to slots at which it has a coefficient: to none that is not there.

#![allow(unsafe_code)]

use alloc::vec::Vec;

use super::Simd;

/// Rows that take turns.
pub(crate) const LANES: usize = 3;

/// A row: 64 coefficients from a slot on, of which the first is 1 or all are 0, and a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Row {
    pub(crate) coefficients: u64,
    pub(crate) slot: u32,
    pub(crate) mark: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    /// All 0 where no row starts.
    coefficients: Vec<u64>,
    /// As many. Apart from the others, because a pair of them would have 16 bytes.
    marks: Vec<u32>,
    /// The rows that take turns. Each is at a slot that is there, unless there are no slots.
    turns: [Row; LANES],
}

/// The instructions of a step with operands of these names, and the label behind which the row is done with.
#[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
macro_rules! step {
    ($slot:literal, $coefficients:literal, $mark:literal, $done:literal) => {
        concat!(
            "mov {there}, qword ptr [{band} + 8 * {",
            $slot,
            "}]\n",
            "test {there}, {there}\n",
            "jz ",
            $done,
            "f\n",
            "xor {",
            $mark,
            ":e}, dword ptr [{marks} + 4 * {",
            $slot,
            "}]\n",
            "xor {",
            $coefficients,
            "}, {there}\n",
            "jz ",
            $done,
            "f\n",
            "tzcnt {there}, {",
            $coefficients,
            "}\n",
            "shrx {",
            $coefficients,
            "}, {",
            $coefficients,
            "}, {there}\n",
            "add {",
            $slot,
            "}, {there}\n",
        )
    };
}

impl Matrix {
    /// Makes it one of so many slots, without a row.
    pub(crate) fn clear(&mut self, slots: usize) {
        self.coefficients.clear();
        self.coefficients.resize(slots, 0);
        self.marks.clear();
        self.marks.resize(slots, 0);
        self.turns = Default::default();
    }

    /// This row is one of those that take turns.
    #[inline(always)]
    pub(crate) fn take(&mut self, lane: usize, row: Row) {
        let end = row.slot as usize + (64 - row.coefficients.leading_zeros() as usize);
        let starts = row.coefficients & 1 == 1;
        assert!(starts && end <= self.coefficients.len(), "a row starts with a 1 and ends within the slots");
        self.turns[lane] = row;
    }

    /// The row has come to a free slot: it starts there.
    #[inline(always)]
    pub(crate) fn put(&mut self, lane: usize) {
        let row = self.turns[lane];
        self.coefficients[row.slot as usize] = row.coefficients;
        self.marks[row.slot as usize] = row.mark;
    }

    /// One row fewer takes turns: the last one is in the place of this.
    pub(crate) fn leave(&mut self, lane: usize, last: usize) {
        self.turns[lane] = self.turns[last];
    }

    /// No row starts at this slot.
    pub(crate) fn free(&mut self, slot: u32) {
        self.coefficients[slot as usize] = 0;
        self.marks[slot as usize] = 0;
    }

    /// Coefficients and marks of all slots.
    pub(crate) fn rows(&self) -> (&[u64], &[u32]) {
        (&self.coefficients, &self.marks)
    }

    /// Takes steps with each of the first `count` rows in turns, until one of them has come to a free slot, or has no
    /// coefficient left: which, and what has become of it.
    #[inline(always)]
    pub(crate) fn eliminate(&mut self, simd: Simd, count: usize) -> (usize, Row) {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        if simd.avx2 && !self.coefficients.is_empty() {
            // SAFETY: the processor has the instructions, see `Simd::detect`; and there are slots.
            let lane = unsafe {
                match count {
                    1 => self.eliminate_one(),
                    2 => self.eliminate_two(),
                    _ => self.eliminate_three(),
                }
            };
            return (lane, self.turns[lane]);
        }
        let _ = simd;
        self.eliminate_portable(count)
    }

    /// The reference. The rows are in variables of their own, which are not in memory.
    #[inline(always)]
    fn eliminate_portable(&mut self, count: usize) -> (usize, Row) {
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

    /// Whether the row has come to a free slot, or has no coefficient left.
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

    /// # Safety
    ///
    /// The processor has BMI 1 and 2. There are slots.
    #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    #[inline(always)]
    unsafe fn eliminate_one(&mut self) -> usize {
        let [one, ..] = &mut self.turns;
        let mut slot = u64::from(one.slot);
        // SAFETY: as of three.
        unsafe {
            core::arch::asm!(
                "2:",
                step!("slot_1", "row_1", "mark_1", "3"),
                "jmp 2b",
                "3:",
                band = in(reg) self.coefficients.as_ptr(),
                marks = in(reg) self.marks.as_ptr(),
                there = out(reg) _,
                slot_1 = inout(reg) slot,
                row_1 = inout(reg) one.coefficients,
                mark_1 = inout(reg) one.mark,
                options(readonly, nostack)
            );
        }
        one.slot = slot as u32;
        0
    }

    /// # Safety
    ///
    /// As of one.
    #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    #[inline(always)]
    unsafe fn eliminate_two(&mut self) -> usize {
        let [one, two, _] = &mut self.turns;
        let mut slots = [one.slot, two.slot].map(u64::from);
        let lane: usize;
        // SAFETY: as of three.
        unsafe {
            core::arch::asm!(
                "2:",
                step!("slot_1", "row_1", "mark_1", "3"),
                step!("slot_2", "row_2", "mark_2", "4"),
                "jmp 2b",
                "3:",
                "xor {there:e}, {there:e}",
                "jmp 6f",
                "4:",
                "mov {there:e}, 1",
                "6:",
                band = in(reg) self.coefficients.as_ptr(),
                marks = in(reg) self.marks.as_ptr(),
                there = out(reg) lane,
                slot_1 = inout(reg) slots[0],
                slot_2 = inout(reg) slots[1],
                row_1 = inout(reg) one.coefficients,
                row_2 = inout(reg) two.coefficients,
                mark_1 = inout(reg) one.mark,
                mark_2 = inout(reg) two.mark,
                options(readonly, nostack)
            );
        }
        (one.slot, two.slot) = (slots[0] as u32, slots[1] as u32);
        lane
    }

    /// # Safety
    ///
    /// The processor has BMI 1 and 2. There are slots.
    #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    #[inline(always)]
    unsafe fn eliminate_three(&mut self) -> usize {
        let [one, two, three] = &mut self.turns;
        let mut slots = [one.slot, two.slot, three.slot].map(u64::from);
        let lane: usize;
        // SAFETY: reads the matrix only, at slots that are there, by the module's invariant. It ends: rows move right.
        unsafe {
            core::arch::asm!(
                "2:",
                step!("slot_1", "row_1", "mark_1", "3"),
                step!("slot_2", "row_2", "mark_2", "4"),
                step!("slot_3", "row_3", "mark_3", "5"),
                "jmp 2b",
                "3:",
                "xor {there:e}, {there:e}",
                "jmp 6f",
                "4:",
                "mov {there:e}, 1",
                "jmp 6f",
                "5:",
                "mov {there:e}, 2",
                "6:",
                band = in(reg) self.coefficients.as_ptr(),
                marks = in(reg) self.marks.as_ptr(),
                there = out(reg) lane,
                slot_1 = inout(reg) slots[0],
                slot_2 = inout(reg) slots[1],
                slot_3 = inout(reg) slots[2],
                row_1 = inout(reg) one.coefficients,
                row_2 = inout(reg) two.coefficients,
                row_3 = inout(reg) three.coefficients,
                mark_1 = inout(reg) one.mark,
                mark_2 = inout(reg) two.mark,
                mark_3 = inout(reg) three.mark,
                options(readonly, nostack)
            );
        }
        (one.slot, two.slot, three.slot) = (slots[0] as u32, slots[1] as u32, slots[2] as u32);
        lane
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::random;
    use super::*;

    #[test]
    fn rows_come_to_the_same_places_on_every_instruction_set() {
        for lanes in 1..=LANES {
            same_places(lanes);
        }
    }

    fn same_places(lanes: usize) {
        let mut results = Vec::new();
        for simd in Simd::all() {
            let mut random = random();
            let mut matrix = Matrix::default();
            matrix.clear(3 * 1064);
            let mut row = |lane: usize| Row {
                coefficients: random().rotate_left(17) | 1,
                slot: (random() >> 40) as u32 % 1000 + 1064 * lane as u32,
                mark: random() as u32 & 3,
            };
            (0..lanes).for_each(|lane| matrix.take(lane, row(lane)));
            let mut put = 0;
            // More rows than slots: some find none.
            for _ in 0..4000 {
                let (lane, ended) = matrix.eliminate(simd, lanes);
                if ended.coefficients != 0 {
                    matrix.put(lane);
                    put += 1;
                }
                matrix.take(lane, row(lane));
            }
            assert!((lanes * 800..=lanes * 1064).contains(&put), "{put}");
            results.push((matrix.coefficients, matrix.marks));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn rows_of_an_earlier_use_are_gone() {
        for simd in Simd::all() {
            let mut matrix = Matrix::default();
            matrix.clear(70);
            matrix.take(2, Row { coefficients: 1, slot: 69, mark: 5 });
            assert_eq!(matrix.eliminate(simd, LANES), (0, Row::default()));
            matrix.put(2);
            assert_eq!((matrix.coefficients[69], matrix.marks[69]), (1, 5));
            matrix.clear(1);
            assert_eq!(matrix.eliminate(simd, LANES), (0, Row::default()));
            assert_eq!((matrix.coefficients, matrix.marks), (vec![0], vec![0]));
        }
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
