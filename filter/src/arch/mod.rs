//! All unsafe or processor-dependent code.
//!
//! | file | contents |
//! |---|---|
//! | `portable` | the inner loops of a probe in plain arithmetic: the reference, and the fallback |
//! | `avx2`, `avx512` | the same loops with one instruction set each, chosen at run time |
//! | `bounds` | reads from a filter's block whose bounds were checked when it was opened |
//! | `aligned` | bytes in memory that start on a cache line |
//!
//! All instruction sets give the same answers. Miri runs `portable`, `bounds` and `aligned`.

mod aligned;
#[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
mod avx2;
#[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
mod avx512;
mod bounds;
mod portable;

pub use aligned::AlignedBytes;
pub(super) use bounds::{FIRST_COLUMNS, FirstLayer, Lines};

use crate::blocked::{LANES, LINE_BYTES};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Simd {
    /// Set only by [`Simd::detect`] and by functions compiled with these instructions. Unsafe blocks rely on this.
    avx2: bool,
    avx512: bool,
}

macro_rules! choose {
    ($simd:expr, $avx2:expr, $portable:expr) => {{
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[allow(unsafe_code)]
        if $simd.avx2 {
            // SAFETY: the processor has these instructions, see `Simd::detect`.
            return unsafe { $avx2 };
        }
        $portable
    }};
}

/// Code compiled per instruction set. [`Work::work`] and its callees in loops must be `inline(always)`.
pub(super) trait Work<A, B, C> {
    type Output;

    fn work(simd: Simd, a: A, b: B, c: C) -> Self::Output;
}

/// A predicate of a hash, compiled per instruction set.
pub(super) trait Question<P> {
    fn ask(simd: Simd, probe: &P, hash: u64) -> bool;
}

/// A [`Question`] bound to an instruction set.
pub(super) struct Asked<P>(unsafe fn(&P, u64) -> bool);

impl<P> Clone for Asked<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Asked<P> {}

impl<P> Asked<P> {
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn ask(self, probe: &P, hash: u64) -> bool {
        // SAFETY: the processor has these instructions, see `Simd::question`.
        unsafe { (self.0)(probe, hash) }
    }
}

impl Simd {
    pub(super) const PORTABLE: Self = Self { avx2: false, avx512: false };

    pub(super) fn detect() -> Self {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        {
            let avx2 = std::is_x86_feature_detected!("avx2")
                && std::is_x86_feature_detected!("bmi1")
                && std::is_x86_feature_detected!("bmi2")
                && std::is_x86_feature_detected!("popcnt")
                && std::is_x86_feature_detected!("lzcnt");
            let avx512 = avx2
                && std::is_x86_feature_detected!("avx512f")
                && std::is_x86_feature_detected!("avx512vl")
                && std::is_x86_feature_detected!("avx512vpopcntdq");
            Self { avx2, avx512 }
        }
        #[cfg(not(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri))))]
        Self::PORTABLE
    }

    pub(super) fn question<Q: Question<P>, P>(self) -> Asked<P> {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        {
            if self.avx512 {
                return Asked(avx512::ask::<Q, P>);
            }
            if self.avx2 {
                return Asked(avx2::ask::<Q, P>);
            }
        }
        Asked(portable::ask::<Q, P>)
    }

    /// Whether the parities of `coefficients` over `rows` (one word per column) equal the lowest bits of `mark`.
    #[inline(always)]
    pub(super) fn matches<const N: usize>(self, rows: [&[u8]; N], coefficients: [u64; N], mark: u32) -> bool {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[allow(unsafe_code)]
        if self.avx512 {
            // SAFETY: the processor has these instructions, see `Simd::detect`.
            return unsafe { avx512::matches(rows, coefficients, mark) };
        }
        choose!(self, avx2::matches(rows, coefficients, mark), portable::matches(rows, coefficients, mark))
    }

    /// [`Simd::matches`] for two rows of at most [`FIRST_COLUMNS`] columns.
    #[inline(always)]
    pub(super) fn first_match(self, rows: [&[u8]; 2], coefficients: [u64; 2], mark: u32) -> bool {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[allow(unsafe_code)]
        if self.avx512 {
            // SAFETY: the processor has these instructions, see `Simd::detect`.
            return unsafe { avx512::first_match(rows, coefficients, mark) };
        }
        self.matches(rows, coefficients, mark)
    }

    #[inline(always)]
    pub(super) fn line_has(self, line: &[u8; LINE_BYTES], word: u32, multipliers: &[u32; LANES]) -> bool {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[allow(unsafe_code)]
        if self.avx512 {
            // SAFETY: the processor has these instructions, see `Simd::detect`.
            return unsafe { avx512::line_has(line, word, multipliers) };
        }
        choose!(self, avx2::line_has(line, word, multipliers), portable::line_has(line, word, multipliers))
    }

    /// [`Simd::run`] with the newest instructions, for probes.
    #[inline(always)]
    pub(super) fn run_probe<W: Work<A, B, C>, A, B, C>(self, work: W, a: A, b: B, c: C) -> W::Output {
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[allow(unsafe_code)]
        if self.avx512 {
            // SAFETY: the processor has these instructions, see `Simd::detect`.
            return unsafe { avx512::run::<W, A, B, C>(a, b, c) };
        }
        self.run(work, a, b, c)
    }

    #[inline(always)]
    pub(super) fn run<W: Work<A, B, C>, A, B, C>(self, _: W, a: A, b: B, c: C) -> W::Output {
        choose!(self, avx2::run::<W, A, B, C>(a, b, c), portable::run::<W, A, B, C>(a, b, c))
    }
}

#[inline(always)]
pub(super) fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    avx2::prefetch(bytes, at);
    #[cfg(not(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri))))]
    let _ = (bytes, at);
}

#[cfg(test)]
pub(super) mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::blocked::{Blocked, positions};

    /// Miri takes a thousand times as long.
    const ROUNDS: u32 = if cfg!(miri) { 12 } else { 3000 };

    impl Simd {
        pub(crate) fn all() -> Vec<Self> {
            let best = Self::detect();
            let mut all = vec![Self::PORTABLE, Self { avx512: false, ..best }, best];
            all.dedup();
            all
        }
    }

    fn random() -> impl FnMut() -> u64 {
        let mut state = 7u64;
        move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state ^ state >> 31
        }
    }

    #[test]
    fn the_instruction_sets_that_this_processor_does_not_have_are_printed() {
        let best = Simd::detect();
        let missing: Vec<&str> = [("avx2", best.avx2), ("avx512", best.avx512)]
            .iter()
            .filter(|set| !set.1)
            .map(|set| set.0)
            .collect();
        std::println!(
            "instruction sets that were not tested: {}",
            if missing.is_empty() { "none".into() } else { missing.join(", ") }
        );
        assert_eq!(Simd::all().len(), 3 - missing.len(), "the tests run every set that there is");
    }

    fn expected(line: &[u8], word: u32, probes: u8) -> bool {
        positions(word, probes).all(|bit| line[bit / 8] >> (bit % 8) & 1 == 1)
    }

    #[test]
    fn lines_have_the_same_bits_on_every_instruction_set() {
        let mut random = random();
        let mut found = 0;
        for probes in 1..=30 {
            let shape = Blocked { lines: 1, probes };
            for round in 0..ROUNDS {
                let mut line = [0; LINE_BYTES];
                line.iter_mut()
                    .for_each(|byte| *byte = (0..=round % 6).fold(0, |byte, _| byte | random() as u8));
                let word = random() as u32;
                let answer = expected(&line, word, probes);
                for simd in Simd::all() {
                    let has = shape.multipliers().all(|part| simd.line_has(&line, word, part));
                    assert_eq!(has, answer, "{simd:?} {probes} {word:x}");
                }
                found += u32::from(answer);
            }
        }
        assert!(found > ROUNDS * 3 && found < ROUNDS * 27, "{found}");
    }

    #[test]
    fn every_probe_counts_on_every_instruction_set() {
        let mut random = random();
        for probes in 1..=30 {
            let shape = Blocked { lines: 1, probes };
            let word = random() as u32;
            let mut line = [0; LINE_BYTES];
            positions(word, probes).for_each(|bit| line[bit >> 3] |= 1 << (bit & 7));
            for simd in Simd::all() {
                let has = |line: &_| shape.multipliers().all(|part| simd.line_has(line, word, part));
                assert!(has(&line));
                for bit in positions(word, probes) {
                    let mut without = line;
                    without[bit >> 3] &= !(1 << (bit & 7));
                    assert!(!has(&without), "{simd:?} {probes} {bit}");
                }
            }
        }
    }

    #[test]
    fn the_first_columns_match_the_same_marks_on_every_instruction_set() {
        let mut random = random();
        for columns in 0..=FIRST_COLUMNS as usize {
            for _ in 0..ROUNDS / 12 {
                let bytes: Vec<u8> = (0..2 * 64).map(|_| random() as u8).collect();
                let rows = [0, 64].map(|at| &bytes[at..at + 8 * columns]);
                let coefficients = [random(), random()];
                let mark = (0..columns).fold(0u32, |mark, column| {
                    let word =
                        |row: usize| u64::from_le_bytes(rows[row][8 * column..][..8].try_into().unwrap());
                    let sum = word(0) & coefficients[0] ^ word(1) & coefficients[1];
                    mark | (sum.count_ones() & 1) << column
                });
                let above = (random() as u32) << columns;
                for simd in Simd::all() {
                    assert!(simd.first_match(rows, coefficients, mark | above), "{simd:?} {columns}");
                    for column in 0..columns {
                        let other = mark ^ 1 << column | above;
                        assert!(!simd.first_match(rows, coefficients, other), "{simd:?} {columns} {column}");
                    }
                }
            }
        }
    }

    #[test]
    fn rows_match_the_same_marks_on_every_instruction_set() {
        let mut random = random();
        for columns in 0..=32 {
            for _ in 0..ROUNDS / 12 {
                let bytes: Vec<u8> = (0..3 * 8 * columns).map(|_| random() as u8).collect();
                let rows = [0, 1, 2].map(|row| &bytes[row * 8 * columns..(row + 1) * 8 * columns]);
                let coefficients = [random(), random(), random()];
                let mark = (0..columns).fold(0u32, |mark, column| {
                    let word =
                        |row: usize| u64::from_le_bytes(rows[row][8 * column..][..8].try_into().unwrap());
                    let sum = (0..3).fold(0, |sum, row| sum ^ word(row) & coefficients[row]);
                    mark | (sum.count_ones() & 1) << column
                });
                let above = (random() as u32).checked_shl(columns as u32).unwrap_or(0);
                for simd in Simd::all() {
                    assert!(simd.matches(rows, coefficients, mark | above), "{columns}");
                    for column in 0..columns {
                        assert!(!simd.matches(rows, coefficients, mark ^ 1 << column | above), "{columns}");
                    }
                }
            }
        }
    }
}
