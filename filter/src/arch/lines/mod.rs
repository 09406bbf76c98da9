//! Queries of a blocked filter: whether the bits of a key are set in its line.
//!
//! One key, or many with everything that does not depend on the key done once. The steps are written here, for all
//! instruction sets; the file of each has the test of one line, and compiles the steps with its instructions.

#[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
mod avx2;
#[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
mod avx512;
mod portable;

use super::{Simd, prefetch};
use crate::blocked::{Blocked, LANES, LINE_BYTES};
use crate::hash::table_hash;

/// A line and a word: whether the bits of the word are set in the line.
trait Test: Fn(&[u8; LINE_BYTES], u32) -> bool {}

impl<T: Fn(&[u8; LINE_BYTES], u32) -> bool> Test for T {}

/// Queries whose lines are asked for before the first of them is tested: more than a processor waits for at once.
const BATCH: usize = 32;

/// A call of the function in the file of the best instruction set.
macro_rules! choose {
    ($simd:expr, $function:ident($($argument:expr),*)) => {{
        #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        #[allow(unsafe_code)]
        {
            if $simd.avx512 {
                // SAFETY: the processor has all instructions that the function is compiled with, see `Simd::detect`; and
                // what the caller says.
                return unsafe { avx512::$function($($argument),*) };
            }
            if $simd.avx2 {
                // SAFETY: likewise.
                return unsafe { avx2::$function($($argument),*) };
            }
        }
        portable::$function($($argument),*)
    }};
}

impl Simd {
    /// Whether the bits of this word are set in this line of `body`. A line outside of it counts as full.
    #[inline(always)]
    pub(crate) fn line_has(self, body: &[u8], shape: &Blocked, line: u64, word: u32) -> bool {
        choose!(self, line_has(body, shape, line, word))
    }

    /// The same for a line of this filter's block.
    #[inline(always)]
    pub(crate) fn line_of_has(self, block: &[u8], lines: &Lines, line: u64, word: u32) -> bool {
        self.line_has(block.get(lines.start..).unwrap_or_default(), &lines.shape, line, word)
    }

    /// Whether the bits of this key hash are set. If not all lines are there, they are.
    ///
    /// What does not depend on the key is asked here, outside of the functions with the vectors: as a part of the
    /// caller's loop it is asked once.
    #[inline(always)]
    pub(crate) fn lines_have(self, block: &[u8], lines: &Lines, hash: u64) -> bool {
        if block.len() < lines.len {
            return true;
        }
        if usize::from(lines.shape.probes) > LANES {
            return self.lines_have_all(block, lines, hash);
        }
        // SAFETY: all lines are there.
        choose!(self, lines_have(block, lines, hash))
    }

    /// The same of more than eight probes.
    #[inline(never)]
    fn lines_have_all(self, block: &[u8], lines: &Lines, hash: u64) -> bool {
        let (line, word) = lines.locate(hash);
        self.line_of_has(block, lines, line, word)
    }

    /// The same for each of many key hashes. If the lines are `far`, further than the caches that a processor fetches
    /// from by itself, their memory is asked for beforehand.
    pub(crate) fn lines_have_many(
        self,
        block: &[u8],
        lines: &Lines,
        far: bool,
        (hashes, answers): (&[u64], &mut [bool]),
    ) {
        let count = hashes.len().min(answers.len());
        let (hashes, answers) = (&hashes[..count], &mut answers[..count]);
        if block.len() < lines.len {
            return answers.fill(true);
        }
        // SAFETY: all lines are there.
        choose!(self, lines_have_many(block, lines, far, (hashes, answers)));
    }
}

/// The lines of one filter: what a query needs, found out once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lines {
    shape: Blocked,
    salt: u64,
    /// Where the first one stands in the filter's block.
    start: usize,
    /// The length from which a block has a line at least, and all of them: what the unsafe functions rely on.
    len: usize,
}

impl Lines {
    pub(crate) fn new(shape: Blocked, salt: u64, start: usize) -> Self {
        let end = || {
            let lines = usize::try_from(shape.lines).ok().filter(|&lines| lines > 0)?;
            lines.checked_mul(LINE_BYTES)?.checked_add(start)
        };
        Self { shape, salt, start, len: end().unwrap_or(usize::MAX) }
    }

    /// Number of the line, and the word that the bits in it come from.
    #[inline(always)]
    pub(crate) fn locate(&self, hash: u64) -> (u64, u32) {
        self.shape.locate(table_hash(hash, self.salt))
    }

    /// Asks for the memory of a line.
    #[inline(always)]
    pub(crate) fn prefetch(&self, block: &[u8], line: u64) {
        prefetch(block, self.start.saturating_add((line as usize).saturating_mul(LINE_BYTES)));
    }

    /// A line that [`Lines::locate`] gave.
    ///
    /// # Safety
    ///
    /// `block` is at least as long as `len`.
    #[cfg(all(feature = "std", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
    #[allow(unsafe_code)]
    #[inline(always)]
    unsafe fn line<'a>(&self, block: &'a [u8], number: u64) -> &'a [u8; LINE_BYTES] {
        // SAFETY: `reduce` gives numbers below the number of lines, all of which are there.
        unsafe { &*block.as_ptr().add(self.start + number as usize * LINE_BYTES).cast() }
    }
}

#[inline(always)]
fn test(body: &[u8], line: u64, word: u32, test: impl Test) -> bool {
    let lines = body.as_chunks().0;
    usize::try_from(line).ok().and_then(|line| lines.get(line)).is_none_or(|line| test(line, word))
}

/// `has` is given a line's number and a word.
#[inline(always)]
fn test_many(
    block: &[u8],
    lines: &Lines,
    far: bool,
    (hashes, answers): (&[u64], &mut [bool]),
    has: impl Fn(u64, u32) -> bool,
) {
    if !far {
        for (answer, &hash) in answers.iter_mut().zip(hashes) {
            let (line, word) = lines.locate(hash);
            *answer = has(line, word);
        }
        return;
    }
    for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        let mut located = [(0, 0); BATCH];
        for (located, &hash) in located.iter_mut().zip(hashes) {
            *located = lines.locate(hash);
            lines.prefetch(block, located.0);
        }
        for (answer, &(line, word)) in answers.iter_mut().zip(&located) {
            *answer = has(line, word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::random;
    use super::*;
    use crate::blocked::positions;

    /// By the definition, bit by bit.
    fn expected(line: &[u8], word: u32, probes: u8) -> bool {
        positions(word, probes).all(|bit| line[bit / 8] >> (bit % 8) & 1 == 1)
    }

    #[test]
    fn lines_have_the_same_bits_on_every_instruction_set() {
        let mut random = random();
        let mut found = 0;
        for probes in 1..=30 {
            let shape = Blocked::new(1, probes);
            for round in 0..3000 {
                // Ever fuller lines, so that both answers occur with any number of probes.
                let mut line = [0; LINE_BYTES];
                line.iter_mut()
                    .for_each(|byte| *byte = (0..=round % 6).fold(0, |byte, _| byte | random() as u8));
                let word = random() as u32;
                let answer = expected(&line, word, probes);
                for simd in Simd::all() {
                    assert_eq!(simd.line_has(&line, &shape, 0, word), answer, "{simd:?} {probes} {word:x}");
                }
                found += u32::from(answer);
            }
        }
        assert!((10_000..80_000).contains(&found), "{found}");
    }

    #[test]
    fn every_probe_counts_on_every_instruction_set() {
        let mut random = random();
        for probes in 1..=30 {
            let shape = Blocked::new(1, probes);
            let word = random() as u32;
            let mut line = [0; LINE_BYTES];
            positions(word, probes).for_each(|bit| line[bit >> 3] |= 1 << (bit & 7));
            for simd in Simd::all() {
                assert!(simd.line_has(&line, &shape, 0, word));
                for bit in positions(word, probes) {
                    let mut without = line;
                    without[bit >> 3] &= !(1 << (bit & 7));
                    assert!(!simd.line_has(&without, &shape, 0, word), "{simd:?} {probes} {bit}");
                }
            }
        }
    }

    #[test]
    fn many_answers_are_those_of_each_near_and_far_on_every_instruction_set() {
        let mut random = random();
        let body: Vec<u8> = (0..100 * LINE_BYTES).map(|_| (random() | random()) as u8).collect();
        let hashes: Vec<u64> = (0..1000).map(|_| random().wrapping_mul(random() | 1)).collect();
        for probes in [1, 6, 8, 9, 17, 30] {
            let lines = Lines::new(Blocked::new(100, probes), 5, 0);
            let expected = hashes.iter().map(|&hash| {
                let (line, word) = lines.locate(hash);
                expected(&body[line as usize * LINE_BYTES..][..LINE_BYTES], word, probes)
            });
            let expected: Vec<bool> = expected.collect();
            assert!(expected.contains(&true) && expected.contains(&false));
            for simd in Simd::all() {
                let each = hashes.iter().map(|&hash| simd.lines_have(&body, &lines, hash));
                assert!(each.eq(expected.iter().copied()), "{simd:?} {probes}");
                for far in [false, true] {
                    for len in [0, 1, 31, 32, 33, 1000] {
                        let mut answers = [false; 1000];
                        simd.lines_have_many(&body, &lines, far, (&hashes[..len], &mut answers));
                        assert_eq!(answers[..len], expected[..len], "{simd:?} {probes} {far} {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_that_are_not_all_there_have_every_bit_on_every_instruction_set() {
        let body = [0; 3 * LINE_BYTES];
        for (count, start, len) in [
            (0, 0, 0),
            (0, 0, body.len()),
            (3, 0, body.len() - 1),
            (2, LINE_BYTES + 1, body.len()),
            (4, 0, body.len()),
            (1 << 58, 0, body.len()),
            (1, usize::MAX - 63, body.len()),
            (1 << 60, 0, LINE_BYTES),
        ] {
            let lines = Lines::new(Blocked::new(count, 6), 5, start);
            let body = &body[..len];
            for simd in Simd::all() {
                assert!([0, 7 << 40, u64::MAX].into_iter().all(|hash| simd.lines_have(body, &lines, hash)));
                let mut answers = [false; 3];
                simd.lines_have_many(body, &lines, true, (&[1, 2, 3, 4], &mut answers));
                assert_eq!(answers, [true; 3]);
            }
        }
        let lines = Lines::new(Blocked::new(2, 6), 5, LINE_BYTES);
        assert!(Simd::all().into_iter().all(|simd| !simd.lines_have(&body, &lines, 7)));
    }
}
