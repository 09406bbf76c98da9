//! Queries of a blocked filter: whether the bits of a key are set in its line.
//!
//! One key, or many with everything that does not depend on the key done once. The steps are written here, for all
//! instruction sets; the file of each has the test of one line, and compiles the steps with its instructions.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;
mod portable;

use super::{Simd, prefetch};
use crate::filter::blocked::{Blocked, LANES, LINE_BYTES};
use crate::hash::table_hash;

/// A line and a word: whether the bits of the word are set in the line.
trait Test: Fn(&[u8; LINE_BYTES], u32) -> bool {}

impl<T: Fn(&[u8; LINE_BYTES], u32) -> bool> Test for T {}

/// Queries whose lines are asked for before the first of them is tested: more than a processor waits for at once.
const BATCH: usize = 32;

/// A call of the function in the file of the best instruction set.
macro_rules! choose {
    ($simd:expr, $function:ident($($argument:expr),*)) => {{
        #[cfg(all(target_arch = "x86_64", not(miri)))]
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
    pub(in crate::filter) fn line_has(self, body: &[u8], shape: &Blocked, line: u64, word: u32) -> bool {
        choose!(self, line_has(body, shape, line, word))
    }

    /// Whether the bits of this key hash are set, mixed with the salt, in the filter whose lines are `body`. If they are
    /// not all there, they are.
    #[inline(always)]
    pub(in crate::filter) fn lines_have(self, body: &[u8], shape: &Blocked, salt: u64, hash: u64) -> bool {
        // Outside of the function with the vectors, so that a loop asks once.
        if !all_there(body, shape) {
            return true;
        }
        if usize::from(shape.probes) > LANES {
            return self.lines_have_all(body, shape, salt, hash);
        }
        // SAFETY: all lines are there.
        choose!(self, lines_have(body, shape, salt, hash))
    }

    /// The same of more than eight probes.
    #[inline(never)]
    fn lines_have_all(self, body: &[u8], shape: &Blocked, salt: u64, hash: u64) -> bool {
        let (line, word) = shape.locate(table_hash(hash, salt));
        self.line_has(body, shape, line, word)
    }

    /// The same for each of many key hashes. If the lines are `far`, further than the caches that a processor fetches
    /// from by itself, their memory is asked for beforehand.
    pub(in crate::filter) fn lines_have_many(
        self,
        body: &[u8],
        shape: &Blocked,
        salt: u64,
        far: bool,
        (hashes, answers): (&[u64], &mut [bool]),
    ) {
        let count = hashes.len().min(answers.len());
        let (hashes, answers) = (&hashes[..count], &mut answers[..count]);
        if !all_there(body, shape) {
            return answers.fill(true);
        }
        // SAFETY: all lines are there.
        choose!(self, lines_have_many(body, shape, salt, far, (hashes, answers)));
    }
}

/// Whether there is a line at least, and each lies within `body`: what the unsafe functions rely on.
#[inline(always)]
fn all_there(body: &[u8], shape: &Blocked) -> bool {
    shape.lines > 0 && shape.lines <= (body.len() / LINE_BYTES) as u64
}

/// The line of a hash.
///
/// # Safety
///
/// [`all_there`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
#[inline(always)]
unsafe fn line(body: &[u8], line: u64) -> &[u8; LINE_BYTES] {
    // SAFETY: `reduce` gives numbers below the number of lines, all of which are there.
    unsafe { &*body.as_ptr().add(line as usize * LINE_BYTES).cast() }
}

#[inline(always)]
fn test(body: &[u8], line: u64, word: u32, test: impl Test) -> bool {
    let lines = body.as_chunks().0;
    usize::try_from(line).ok().and_then(|line| lines.get(line)).is_none_or(|line| test(line, word))
}

/// `has` is given a line's number and a word.
#[inline(always)]
fn test_many(
    body: &[u8],
    shape: &Blocked,
    salt: u64,
    far: bool,
    (hashes, answers): (&[u64], &mut [bool]),
    has: impl Fn(u64, u32) -> bool,
) {
    if !far {
        for (answer, &hash) in answers.iter_mut().zip(hashes) {
            let (line, word) = shape.locate(table_hash(hash, salt));
            *answer = has(line, word);
        }
        return;
    }
    for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        let mut located = [(0, 0); BATCH];
        for (located, &hash) in located.iter_mut().zip(hashes) {
            *located = shape.locate(table_hash(hash, salt));
            prefetch(body, located.0 as usize * LINE_BYTES);
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
    use crate::filter::blocked::positions;

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
            let shape = Blocked::new(100, probes);
            let expected = hashes.iter().map(|&hash| {
                let (line, word) = shape.locate(table_hash(hash, 5));
                expected(&body[line as usize * LINE_BYTES..][..LINE_BYTES], word, probes)
            });
            let expected: Vec<bool> = expected.collect();
            assert!(expected.contains(&true) && expected.contains(&false));
            for simd in Simd::all() {
                let each = hashes.iter().map(|&hash| simd.lines_have(&body, &shape, 5, hash));
                assert!(each.eq(expected.iter().copied()), "{simd:?} {probes}");
                for far in [false, true] {
                    for len in [0, 1, 31, 32, 33, 1000] {
                        let mut answers = [false; 1000];
                        simd.lines_have_many(&body, &shape, 5, far, (&hashes[..len], &mut answers));
                        assert_eq!(answers[..len], expected[..len], "{simd:?} {probes} {far} {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn lines_that_are_not_all_there_have_every_bit_on_every_instruction_set() {
        let body = [0; 3 * LINE_BYTES];
        for (lines, len) in [(0, 0), (0, body.len()), (3, body.len() - 1), (4, body.len()), (1 << 60, 64)] {
            let shape = Blocked::new(lines, 6);
            for simd in Simd::all() {
                assert!([0, 7 << 40, u64::MAX].into_iter().all(|hash| simd.lines_have(
                    &body[..len],
                    &shape,
                    5,
                    hash
                )));
                let mut answers = [false; 3];
                simd.lines_have_many(&body[..len], &shape, 5, true, (&[1, 2, 3, 4], &mut answers));
                assert_eq!(answers, [true; 3]);
            }
        }
    }
}
