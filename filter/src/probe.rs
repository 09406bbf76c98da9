//! Probes a filter for one hash or many.

use core::fmt;

use super::arch::{AlignedBytes, Asked, Lines, Question, Simd, Work};
use super::bit_test::Test;
use super::blocked::LANES;
use super::bloom::Bloom;
use super::header::Header;
use super::layout::Shape;
use super::ribbon::RibbonProbe;
use crate::codec::DecodeError;
use crate::hash::table_hash;

/// More than a processor's outstanding loads.
const BATCH: usize = 32;

/// A core's private cache: smaller filters need no prefetch.
const NEAR_BYTES: usize = 1 << 20;

/// The geometry and bits of a filter, from [`Filter::probe`](super::Filter::probe), in two cache lines. Clones over
/// [`AlignedBytes`] share the bits. Prefetch first if there are many filters or keys.
///
/// ```
/// use sievedb_filter::{AlignedBytes, Expect, Filter, FilterBuilder, Kind, Probe, key_hash};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut probes: Vec<Probe> = Vec::new();
/// for (salt, key) in [(1, b"apple"), (2, b"olive")] {
///     let mut builder = FilterBuilder::new(Kind::Ribbon, 20.0, 7, salt, [42; 16])?;
///     builder.add_key(key);
///     let block = AlignedBytes::copy_of(&builder.finish()?);
///     probes.push(Filter::open(block, Expect::table([42; 16], 7, 1))?.probe().clone());
/// }
/// let hash = key_hash(7, b"olive");
/// probes.iter().for_each(|probe| probe.prefetch(hash));
/// let found: Vec<bool> = probes.iter().map(|probe| probe.may_contain(hash)).collect();
/// assert_eq!(found, [false, true]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[repr(align(64))]
pub struct Probe<B = AlignedBytes> {
    bytes: B,
    salt: u64,
    simd: Simd,
    kernel: Kernel,
    asked: Asked<Self>,
}

impl<B> fmt::Debug for Probe<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

/// A separate tag is decoded faster than a niche.
#[derive(Debug, Clone)]
#[repr(u8)]
enum Kernel {
    Blocked(BlockedProbe),
    Ribbon(RibbonProbe),
    Bloom(BloomProbe),
    Empty(bool),
}

/// [`Test::test_first`] of one kind; `None` for other kinds.
trait Look {
    fn look(simd: Simd, kernel: &Kernel, block: &[u8], hash: u64) -> Option<bool>;
}

impl<L: Look, B: AsRef<[u8]>> Question<Probe<B>> for L {
    #[inline(always)]
    fn ask(simd: Simd, probe: &Probe<B>, hash: u64) -> bool {
        match L::look(simd, &probe.kernel, probe.bytes.as_ref(), table_hash(hash, probe.salt)) {
            Some(answer) => answer,
            None => probe.ask_rest(hash),
        }
    }
}

struct LookBlocked;

impl Look for LookBlocked {
    #[inline(always)]
    fn look(simd: Simd, kernel: &Kernel, block: &[u8], hash: u64) -> Option<bool> {
        let Kernel::Blocked(blocked) = kernel else { return None };
        blocked.test_first(simd, block, hash)
    }
}

struct LookRibbon<const EQUAL: bool, const FULL: bool>;

impl<const EQUAL: bool, const FULL: bool> Look for LookRibbon<EQUAL, FULL> {
    #[inline(always)]
    fn look(simd: Simd, kernel: &Kernel, block: &[u8], hash: u64) -> Option<bool> {
        let Kernel::Ribbon(ribbon) = kernel else { return None };
        ribbon.look::<EQUAL, FULL>(simd, block, hash).answer()
    }
}

struct LookBloom;

impl Look for LookBloom {
    #[inline(always)]
    fn look(simd: Simd, kernel: &Kernel, block: &[u8], hash: u64) -> Option<bool> {
        let Kernel::Bloom(bloom) = kernel else { return None };
        bloom.test_first(simd, block, hash)
    }
}

struct LookEmpty;

impl Look for LookEmpty {
    #[inline(always)]
    fn look(_: Simd, _: &Kernel, _: &[u8], _: u64) -> Option<bool> {
        None
    }
}

struct Many;

impl<T: Test> Work<(T, &[u8]), u64, (&[u64], &mut [bool])> for Many {
    type Output = ();

    #[inline(always)]
    fn work(simd: Simd, (test, block): (T, &[u8]), salt: u64, (hashes, answers): (&[u64], &mut [bool])) {
        let is_far = block.len() > NEAR_BYTES;
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            if is_far {
                hashes.iter().for_each(|&hash| test.prefetch(block, table_hash(hash, salt)));
            }
            for (answer, &hash) in answers.iter_mut().zip(hashes) {
                *answer = test.test(simd, block, table_hash(hash, salt));
            }
        }
    }
}

struct All;

impl<T: Test> Work<(T, &[u8]), (), &[u64]> for All {
    type Output = bool;

    #[inline(always)]
    fn work(simd: Simd, (test, block): (T, &[u8]), (): (), hashes: &[u64]) -> bool {
        // A closure might lack the instructions of `simd`.
        for &hash in hashes {
            if !test.test_present(simd, block, hash) {
                return false;
            }
        }
        true
    }
}

impl<B: AsRef<[u8]>> Probe<B> {
    pub(super) fn new(
        header: &Header,
        bytes: B,
        sections: usize,
        if_empty: bool,
    ) -> Result<Self, DecodeError> {
        let block = bytes.as_ref();
        // No truncation: the section is in memory.
        let (start, end) =
            header.sections.first().map_or((0, 0), |first| (first.offset, first.offset + first.len));
        let (start, end) = (start as usize, end as usize);
        let kernel = match header.shape()? {
            Shape::Empty => Kernel::Empty(if_empty),
            Shape::Bloom(bloom) => {
                if !bloom.ends_with_zeros(block.get(start..end).unwrap_or_default()) {
                    return Err(DecodeError::corrupt(end as u64 - 1, "filter padding", "is not zero"));
                }
                Kernel::Bloom(BloomProbe { bloom, start, end })
            }
            Shape::Blocked(blocked) => Kernel::Blocked(BlockedProbe {
                lines: Lines::new(blocked.lines, start),
                multipliers: blocked.steps(),
            }),
            Shape::Ribbon(ribbon) => {
                let groups = sections.saturating_sub(1);
                Kernel::Ribbon(RibbonProbe::new(&ribbon, block, &header.sections, groups)?)
            }
        };
        Ok(Self::of(bytes, header.salt, Simd::detect(), kernel))
    }

    fn of(bytes: B, salt: u64, simd: Simd, kernel: Kernel) -> Self {
        let asked = match &kernel {
            Kernel::Blocked(_) => simd.question::<LookBlocked, Self>(),
            Kernel::Ribbon(ribbon) => match ribbon.is_equal_and_full() {
                (true, true) => simd.question::<LookRibbon<true, true>, Self>(),
                (false, true) => simd.question::<LookRibbon<false, true>, Self>(),
                (true, false) => simd.question::<LookRibbon<true, false>, Self>(),
                (false, false) => simd.question::<LookRibbon<false, false>, Self>(),
            },
            Kernel::Bloom(_) => simd.question::<LookBloom, Self>(),
            Kernel::Empty(_) => simd.question::<LookEmpty, Self>(),
        };
        Self { bytes, salt, simd, kernel, asked }
    }

    /// Whether a key with this [`key_hash`](crate::key_hash) may have been added. `false` is certain.
    ///
    /// Reads at most 30 bits, usually one or two.
    #[inline]
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.asked.ask(self, hash)
    }

    /// Has the arguments of its caller, so that no registers need to be saved.
    #[cold]
    #[inline(never)]
    fn ask_rest(&self, hash: u64) -> bool {
        let (simd, block, hash) = (self.simd, self.bytes.as_ref(), table_hash(hash, self.salt));
        match &self.kernel {
            Kernel::Blocked(blocked) => blocked.test_rest(simd, block, hash),
            Kernel::Ribbon(ribbon) => ribbon.test_rest(simd, block, hash),
            Kernel::Bloom(bloom) => bloom.test_rest(simd, block, hash),
            Kernel::Empty(answer) => *answer,
        }
    }

    /// Prefetches the memory that [`Probe::may_contain`] likely reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let (block, hash) = (self.bytes.as_ref(), table_hash(hash, self.salt));
        match &self.kernel {
            Kernel::Blocked(blocked) => blocked.prefetch(block, hash),
            Kernel::Ribbon(ribbon) => ribbon.prefetch(block, hash),
            Kernel::Bloom(bloom) => bloom.prefetch(block, hash),
            Kernel::Empty(_) => {}
        }
    }

    /// [`Probe::may_contain`] for many hashes, up to the end of the shorter slice; prefetches 32 at a time.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        match &self.kernel {
            Kernel::Blocked(blocked) => self.test_many(*blocked, hashes, answers),
            Kernel::Ribbon(ribbon) => match ribbon.is_equal_and_full() {
                (true, true) => self.test_many(ribbon.repeated::<true, true>(), hashes, answers),
                (false, true) => self.test_many(ribbon.repeated::<false, true>(), hashes, answers),
                (true, false) => self.test_many(ribbon.repeated::<true, false>(), hashes, answers),
                (false, false) => self.test_many(ribbon.repeated::<false, false>(), hashes, answers),
            },
            Kernel::Bloom(bloom) => self.test_many(*bloom, hashes, answers),
            Kernel::Empty(answer) => answers.iter_mut().zip(hashes).for_each(|(out, _)| *out = *answer),
        }
    }

    fn test_many(&self, test: impl Test, hashes: &[u64], answers: &mut [bool]) {
        self.simd.run_probe(Many, (test, self.bytes.as_ref()), self.salt, (hashes, answers));
    }

    /// Whether a ribbon filter answers "maybe" for all these salted hashes.
    pub(super) fn has_all_table_hashes(&self, hashes: &[u64]) -> bool {
        let Kernel::Ribbon(ribbon) = &self.kernel else { return hashes.is_empty() };
        let test = ribbon.repeated::<false, false>();
        self.simd.run_probe(All, (test, self.bytes.as_ref()), (), hashes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    pub(super) fn keep_groups(&self, bytes: AlignedBytes, groups: usize) -> Probe {
        let kernel = match &self.kernel {
            Kernel::Ribbon(ribbon) => Kernel::Ribbon(ribbon.keep_groups(groups)),
            other => other.clone(),
        };
        Probe::of(bytes, self.salt, self.simd, kernel)
    }

    pub(super) fn portable(self) -> Self {
        Self::of(self.bytes, self.salt, Simd::PORTABLE, self.kernel)
    }
}

impl<B> Probe<B> {
    pub(super) fn into_inner(self) -> B {
        self.bytes
    }
}

#[derive(Debug, Clone, Copy)]
struct BlockedProbe {
    lines: Lines,
    multipliers: (&'static [u32; LANES], &'static [[u32; LANES]]),
}

impl Test for BlockedProbe {
    #[inline(always)]
    fn test_first(&self, simd: Simd, block: &[u8], hash: u64) -> Option<bool> {
        let line = self.lines.line(block, hash)?;
        let (first, others) = self.multipliers;
        if !simd.line_has(line, hash as u32, first) {
            return Some(false);
        }
        for multipliers in others {
            if !simd.line_has(line, hash as u32, multipliers) {
                return Some(false);
            }
        }
        Some(true)
    }

    #[inline(always)]
    fn prefetch(&self, block: &[u8], hash: u64) {
        if let Some(line) = self.lines.line(block, hash) {
            super::arch::prefetch(line, 0);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct BloomProbe {
    bloom: Bloom,
    start: usize,
    end: usize,
}

impl Test for BloomProbe {
    #[inline(always)]
    fn test_first(&self, _: Simd, block: &[u8], hash: u64) -> Option<bool> {
        Some(self.bloom.test(block.get(self.start..self.end).unwrap_or_default(), Bloom::locate(hash)))
    }

    #[inline(always)]
    fn prefetch(&self, block: &[u8], hash: u64) {
        super::arch::prefetch(block, self.start.saturating_add(self.bloom.first_byte(Bloom::locate(hash))));
    }
}

#[cfg(test)]
impl<B> Probe<B> {
    pub(super) fn bytes_for_test(&self) -> &B {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_takes_two_cache_lines() {
        assert_eq!((size_of::<Probe>(), align_of::<Probe>()), (128, 64));
    }
}
