//! What a query of one filter needs, found out once when it is opened.
//!
//! A query is in two steps, so that a lookup that asks several filters can first compute where each will be read
//! ([`Query::locate`], which touches none of the bits) and only then wait for memory ([`Query::test`]). Who asks one filter
//! uses [`Query::may_contain`]: of two kinds a way of its own, straight, short enough to become a part of the
//! caller's loop. A processor works ahead of memory by as many queries as fit into its window of a few hundred
//! instructions, so each one counts.

use super::arch::{Lines, Simd};
use super::bloom::Bloom;
use super::header::Header;
use super::layout::Shape;
use super::ribbon::{Reading, TestMany};
use crate::codec::DecodeError;
use crate::hash::table_hash;

/// Probes that are under way at one time: more than a processor waits for at once.
const BATCH: usize = 32;

/// What a core has in caches of its own on most machines: queries of smaller filters do not wait for memory.
const NEAR_BYTES: usize = 1 << 20;

/// See the module. Its tag is not hidden in a field, which would take instructions to find.
#[derive(Debug, Clone)]
#[repr(u8)]
pub(super) enum Query {
    Lines(Lines),
    Ribbon(Reading),
    Bloom {
        bloom: Bloom,
        salt: u64,
        /// Where the section stands in the filter's block.
        start: usize,
        end: usize,
    },
    /// Of no keys: the answer.
    Empty(bool),
}

/// Where one filter will look for one hash: the result of [`Filter::locate`](super::Filter::locate), for the same
/// filter's [`Filter::test`](super::Filter::test).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Probe(u64, u64);

impl Query {
    /// Of a verified block that begins with this header and has the first `sections` of its sections; `if_empty` is the
    /// answer of a filter of no keys.
    pub(super) fn new(
        header: &Header,
        block: &[u8],
        sections: usize,
        if_empty: bool,
    ) -> Result<Self, DecodeError> {
        // Both fit: they lie within bytes that are in memory.
        let (start, end) =
            header.sections.first().map_or((0, 0), |first| (first.offset, first.offset + first.len));
        let (start, end) = (start as usize, end as usize);
        Ok(match header.shape()? {
            Shape::Empty => Self::Empty(if_empty),
            Shape::Bloom(bloom) => {
                if !bloom.ends_with_zeros(block.get(start..end).unwrap_or_default()) {
                    return Err(DecodeError::corrupt(end as u64 - 1, "filter padding", "is not zero"));
                }
                Self::Bloom { bloom, salt: header.salt, start, end }
            }
            Shape::Blocked(blocked) => Self::Lines(Lines::new(blocked, header.salt, start)),
            Shape::Ribbon(ribbon) => {
                let groups = sections.saturating_sub(1);
                Self::Ribbon(Reading::new(&ribbon, block, &header.sections, groups, header.salt)?)
            }
        })
    }

    /// Whether a key with this key hash may be there.
    #[inline(always)]
    pub(super) fn may_contain(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        // Not as one of many cases: the kinds for which a nanosecond counts.
        match self {
            Self::Lines(lines) => simd.lines_have(block, lines, hash),
            Self::Ribbon(reading) => reading.may_contain(simd, block, hash),
            _ => self.test_otherwise(simd, block, hash),
        }
    }

    #[inline(never)]
    fn test_otherwise(&self, simd: Simd, block: &[u8], hash: u64) -> bool {
        self.test(simd, block, self.locate(hash))
    }

    /// All that can be computed without touching the bits.
    #[inline]
    pub(super) fn locate(&self, hash: u64) -> Probe {
        let (first, second) = match self {
            Self::Lines(lines) => {
                let (line, word) = lines.locate(hash);
                (line, word.into())
            }
            Self::Ribbon(reading) => (reading.table_hash(hash), 0),
            Self::Bloom { salt, .. } => Bloom::locate(table_hash(hash, *salt)),
            Self::Empty(_) => (0, 0),
        };
        Probe(first, second)
    }

    /// Asks the processor to fetch what [`Query::test`] will read most likely, without waiting for it.
    #[inline]
    pub(super) fn prefetch(&self, simd: Simd, block: &[u8], probe: Probe) {
        match self {
            Self::Lines(lines) => lines.prefetch(block, probe.0),
            Self::Ribbon(reading) => reading.prefetch(simd, block, probe.0),
            Self::Bloom { bloom, start, .. } => {
                simd.prefetch(block, start.saturating_add(bloom.first_byte((probe.0, probe.1))));
            }
            Self::Empty(_) => {}
        }
    }

    /// The second half: reads the bits.
    #[inline]
    pub(super) fn test(&self, simd: Simd, block: &[u8], probe: Probe) -> bool {
        match self {
            Self::Lines(lines) => simd.line_of_has(block, lines, probe.0, probe.1 as u32),
            Self::Ribbon(reading) => reading.has_table_hash(simd, block, probe.0),
            Self::Bloom { bloom, start, end, .. } => {
                bloom.test(block.get(*start..*end).unwrap_or_default(), (probe.0, probe.1))
            }
            Self::Empty(answer) => *answer,
        }
    }

    /// [`Query::may_contain`] for many hashes. If the filter is larger than a core's own caches, the memory of 32 queries
    /// is asked for before the first of them waits.
    pub(super) fn may_contain_many(&self, simd: Simd, block: &[u8], hashes: &[u64], answers: &mut [bool]) {
        let far = block.len() > NEAR_BYTES;
        match self {
            Self::Lines(lines) => simd.lines_have_many(block, lines, far, (hashes, answers)),
            Self::Ribbon(reading) => {
                simd.ask(
                    TestMany,
                    (reading, block),
                    (far, |hash| reading.table_hash(hash)),
                    (hashes, answers),
                );
            }
            _ => self.ask_many(simd, block, hashes, answers),
        }
    }

    fn ask_many(&self, simd: Simd, block: &[u8], hashes: &[u64], answers: &mut [bool]) {
        for (hashes, answers) in hashes.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
            let mut probes = [Probe::default(); BATCH];
            for (probe, &hash) in probes.iter_mut().zip(hashes) {
                *probe = self.locate(hash);
                self.prefetch(simd, block, *probe);
            }
            for ((answer, &probe), _) in answers.iter_mut().zip(&probes).zip(hashes) {
                *answer = self.test(simd, block, probe);
            }
        }
    }

    /// Whether a ribbon filter has all of these, mixed with the salt already.
    pub(super) fn has_all_table_hashes(&self, simd: Simd, block: &[u8], hashes: &[u64]) -> bool {
        let Self::Ribbon(reading) = self else { return hashes.is_empty() };
        hashes.chunks(BATCH).all(|hashes| {
            let answers = &mut [false; BATCH][..hashes.len()];
            simd.ask(TestMany, (reading, block), (false, |hash| hash), (hashes, &mut *answers));
            !answers.contains(&false)
        })
    }

    /// Of the same filter with the first `groups` column groups only.
    pub(super) fn keep_groups(&self, groups: usize) -> Self {
        match self {
            Self::Ribbon(reading) => Self::Ribbon(reading.keep_groups(groups)),
            _ => self.clone(),
        }
    }
}
