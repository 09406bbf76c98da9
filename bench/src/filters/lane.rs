use sievedb::filter::Filter;

use crate::random::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Absent,
    Present,
    /// Absent keys; each probe depends on the previous answer.
    Dependent,
    /// Absent keys, 32 per call, or a loop of 32.
    Batch,
}

impl Mode {
    pub(super) const ALL: [Self; 4] = [Self::Absent, Self::Present, Self::Dependent, Self::Batch];
}

const BATCH: usize = 32;

pub(super) trait Lane {
    fn bits(&self) -> u64;

    fn ask(&self, hashes: &[u64], mode: Mode) -> u64;
}

pub(super) trait Probe {
    fn bits(&self) -> u64;

    fn contains(&self, hash: u64) -> bool;

    fn contains_many(&self, hashes: &[u64], answers: &mut [bool]) {
        for (answer, &hash) in answers.iter_mut().zip(hashes) {
            *answer = self.contains(hash);
        }
    }
}

impl<P: Probe> Lane for P {
    fn bits(&self) -> u64 {
        Probe::bits(self)
    }

    fn ask(&self, hashes: &[u64], mode: Mode) -> u64 {
        ask(self, hashes, mode)
    }
}

pub(super) fn ask(probe: &impl Probe, hashes: &[u64], mode: Mode) -> u64 {
    match mode {
        Mode::Absent | Mode::Present => hashes.iter().map(|&hash| u64::from(probe.contains(hash))).sum(),
        Mode::Dependent => {
            let mut found = 0u64;
            for &hash in hashes {
                found += u64::from(probe.contains(hash ^ found));
            }
            found
        }
        Mode::Batch => {
            let mut answers = [false; BATCH];
            let mut found = 0;
            for hashes in hashes.chunks(BATCH) {
                probe.contains_many(hashes, &mut answers[..hashes.len()]);
                found += answers[..hashes.len()].iter().map(|&answer| u64::from(answer)).sum::<u64>();
            }
            found
        }
    }
}

impl<B: AsRef<[u8]>> Probe for Filter<B> {
    fn bits(&self) -> u64 {
        self.as_bytes().len() as u64 * 8
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        self.may_contain(hash)
    }

    #[inline]
    fn contains_many(&self, hashes: &[u64], answers: &mut [bool]) {
        self.may_contain_many(hashes, answers);
    }
}

/// The lowest cost of a filter with one memory access: a test of one bit in a random line.
pub(super) struct Line {
    words: Vec<u64>,
}

impl Line {
    pub(super) fn new(lines: usize) -> Self {
        Self { words: (0..lines.max(1) as u64 * 8).map(|index| number(9, index)).collect() }
    }
}

impl Probe for Line {
    fn bits(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    #[inline]
    fn contains(&self, hash: u64) -> bool {
        let index = ((u128::from(hash) * self.words.len() as u128) >> 64) as usize;
        self.words[index] >> (hash & 63) & 1 == 1
    }
}
