//! Elimination and solution of shards with windows of 64 slots.
//!
//! The band matrix has at most one row per slot: a mark and 64 coefficients from that slot on, the first 1. If the slot
//! of a new row is taken, the row in the slot is added to it (exclusive or). The sum moves right to the slot of its
//! first coefficient; this repeats until a slot is free. A row without coefficients agrees with the other rows or
//! contradicts them.

use alloc::vec::Vec;
use core::ops::Range;

use super::matrix::{LANES, Matrix, Row, WINDOW};
use super::row::{narrow, next_layer};
use super::{BLOCK_SLOTS, BUCKET_STARTS};
use crate::arch::{Simd, Work};
use crate::hash::reduce;

const RANGE_BITS: u32 = 3;

const RANGES: usize = (BUCKET_STARTS >> RANGE_BITS) as usize;

/// The last range of each part: starts 40 to 127, 16 to 39, 0 to 15.
const PART_ENDS: [usize; 3] = [10, 13, 15];

const NOTHING_BUMPED: u8 = 3;

#[derive(Debug, Clone, Copy)]
pub(super) struct ShardStarts {
    pub(super) layer: u64,
    pub(super) first: u64,
    pub(super) starts: u64,
    pub(super) columns: u32,
}

impl ShardStarts {
    pub(super) fn slots(self) -> usize {
        (self.starts + BLOCK_SLOTS) as usize
    }

    pub(super) fn room(self) -> usize {
        self.slots() + WINDOW
    }
}

#[derive(Debug, Default)]
pub(super) struct Band {
    matrix: Matrix,
    shards: [Shard; LANES],
    copy: Vec<u64>,
}

#[derive(Debug, Default)]
struct Shard {
    ends: Vec<u32>,
    thresholds: Vec<u8>,
    bumped: Vec<u64>,
    slots: Vec<u32>,
}

impl Band {
    pub(super) fn arrange(&mut self, shards: &mut [(ShardStarts, &mut [u64])]) {
        for (shard, (span, hashes)) in self.shards.iter_mut().zip(&mut *shards) {
            shard.arrange(*span, hashes, &mut self.copy);
        }
        self.matrix.clear(shards.iter().map(|(span, _)| span.room()).sum());
    }

    pub(super) fn thresholds(&self, shard: usize) -> &[u8] {
        &self.shards[shard].thresholds
    }

    pub(super) fn bumped_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.bumped.len()).sum()
    }

    pub(super) fn take_bumped(&mut self, shard: usize, into: &mut Vec<u64>) {
        into.append(&mut self.shards[shard].bumped);
    }
}

impl Shard {
    fn arrange(&mut self, span: ShardStarts, hashes: &mut [u64], copy: &mut Vec<u64>) {
        let range = |hash| ((reduce(hash, span.layer) - span.first) >> RANGE_BITS) as usize ^ (RANGES - 1);
        self.ends.clear();
        self.ends.resize((span.starts >> RANGE_BITS) as usize, 0);
        hashes.iter().for_each(|&hash| self.ends[range(hash)] += 1);
        let mut sum = 0;
        for end in &mut self.ends {
            (sum, *end) = (sum + *end, sum);
        }
        copy.clear();
        copy.extend_from_slice(hashes);
        for &hash in &*copy {
            let end = &mut self.ends[range(hash)];
            hashes[*end as usize] = hash;
            *end += 1;
        }
        self.thresholds.clear();
        self.thresholds.resize((span.starts / BUCKET_STARTS) as usize, NOTHING_BUMPED);
    }
}

impl Band {
    #[inline(always)]
    fn eliminate(&mut self, shards: &[(ShardStarts, &mut [u64])]) {
        if let [(span, hashes)] = shards {
            self.eliminate_alone(*span, hashes);
        } else {
            self.eliminate_in_turns(shards);
        }
    }

    /// The order of rows affects neither free slots nor contradictions.
    #[inline(always)]
    fn eliminate_alone(&mut self, span: ShardStarts, hashes: &[u64]) {
        let Self { matrix, shards: [shard, ..], .. } = self;
        let mut lane = Lane::new(shard, span, hashes, 0);
        loop {
            let mut turns = [Row::default(); LANES];
            let mut count = 0;
            while count < LANES {
                let Some(row) = lane.take() else { break };
                turns[count] = row;
                count += 1;
            }
            while count > 0 {
                let at = matrix.eliminate(&mut turns, count);
                if lane.contradicts(turns[at]) {
                    lane.bump(matrix);
                    break;
                }
                if let Some(row) = lane.take() {
                    turns[at] = row;
                } else {
                    count -= 1;
                    turns[at] = turns[count];
                }
            }
            if !lane.next_part() {
                return;
            }
        }
    }

    #[inline(always)]
    fn eliminate_in_turns(&mut self, shards: &[(ShardStarts, &mut [u64])]) {
        let mut lanes = Vec::with_capacity(LANES);
        let mut turns = [Row::default(); LANES];
        let mut first = 0;
        for (shard, (span, hashes)) in self.shards.iter_mut().zip(shards) {
            let mut lane = Lane::new(shard, *span, hashes, first);
            if let Some(row) = lane.next() {
                turns[lanes.len()] = row;
                lanes.push(lane);
            }
            first += span.room();
        }
        while !lanes.is_empty() {
            let at = self.matrix.eliminate(&mut turns, lanes.len());
            let lane = &mut lanes[at];
            if lane.contradicts(turns[at]) {
                lane.bump(&mut self.matrix);
            }
            if let Some(row) = lane.next() {
                turns[at] = row;
            } else {
                lanes.swap_remove(at);
                turns[at] = turns[lanes.len()];
            }
        }
    }

    #[inline(always)]
    fn solve(&self, slots: Range<usize>, columns: usize, put: impl FnMut(u64, &[u64])) {
        match columns {
            0..=8 => self.solve_columns::<8>(slots, columns, put),
            9..=12 => self.solve_columns::<12>(slots, columns, put),
            13..=16 => self.solve_columns::<16>(slots, columns, put),
            _ => self.solve_columns::<32>(slots, columns, put),
        }
    }

    /// Solves extra columns to fill vector registers.
    #[inline(always)]
    fn solve_columns<const N: usize>(
        &self,
        slots: Range<usize>,
        columns: usize,
        mut put: impl FnMut(u64, &[u64]),
    ) {
        let mut words = [0u64; N];
        let (coefficients, marks) = self.matrix.rows();
        let band = coefficients[slots.clone()].iter().zip(&marks[slots]);
        for (slot, (&coefficients, &mark)) in band.enumerate().rev() {
            for (column, word) in words.iter_mut().enumerate() {
                let later = *word << 1;
                *word = later | u64::from(((later & coefficients).count_ones() ^ mark >> column) & 1);
            }
            if slot % BLOCK_SLOTS as usize == 0 {
                put(slot as u64 / BLOCK_SLOTS, &words[..columns]);
            }
        }
    }
}

pub(super) struct Eliminate;

impl<'a> Work<&mut Band, &[(ShardStarts, &'a mut [u64])], ()> for Eliminate {
    type Output = ();

    #[inline(always)]
    fn work(_: Simd, band: &mut Band, shards: &[(ShardStarts, &'a mut [u64])], (): ()) {
        band.eliminate(shards);
    }
}

pub(super) struct Solve;

impl<F: FnMut(u64, &[u64])> Work<&Band, (Range<usize>, usize), F> for Solve {
    type Output = ();

    #[inline(always)]
    fn work(_: Simd, band: &Band, (slots, columns): (Range<usize>, usize), put: F) {
        band.solve(slots, columns, put);
    }
}

struct Lane<'a> {
    span: ShardStarts,
    first: usize,
    hashes: &'a [u64],
    shard: &'a mut Shard,
    bucket: usize,
    part: usize,
    /// The hashes of the part. The hashes before `taken` are in the matrix or in elimination.
    start: usize,
    taken: usize,
    end: usize,
}

impl<'a> Lane<'a> {
    fn new(shard: &'a mut Shard, span: ShardStarts, hashes: &'a [u64], first: usize) -> Self {
        let (bucket, part, start, taken, end) = (0, 0, 0, 0, 0);
        let mut lane = Self { span, first, hashes, shard, bucket, part, start, taken, end };
        lane.prepare();
        lane
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        loop {
            if let Some(row) = self.take() {
                return Some(row);
            }
            if !self.next_part() {
                return None;
            }
        }
    }

    #[inline(always)]
    fn take(&mut self) -> Option<Row> {
        if self.taken == self.end {
            return None;
        }
        let hash = self.hashes[self.taken];
        self.taken += 1;
        let (coefficients, mark) = narrow(hash);
        let slot = (reduce(hash, self.span.layer) - self.span.first) as usize + self.first;
        Some(Row { coefficients, slot, mark: mark & self.span.columns })
    }

    /// Records the slot of a row. For a row without coefficients, returns whether its mark contradicts the other rows.
    #[inline(always)]
    fn contradicts(&mut self, ended: Row) -> bool {
        if ended.coefficients == 0 {
            return ended.mark != 0;
        }
        self.shard.slots.push(ended.slot as u32);
        false
    }

    #[inline(never)]
    fn next_part(&mut self) -> bool {
        self.part += 1;
        if self.part == PART_ENDS.len() {
            (self.bucket, self.part) = (self.bucket + 1, 0);
        }
        self.start = self.end;
        self.prepare()
    }

    fn prepare(&mut self) -> bool {
        let Shard { ends, slots, .. } = &mut *self.shard;
        let Some(&end) = ends.get(self.bucket * RANGES + PART_ENDS[self.part]) else { return false };
        (self.taken, self.end) = (self.start, end as usize);
        slots.clear();
        true
    }

    #[cold]
    #[inline(never)]
    fn bump(&mut self, matrix: &mut Matrix) {
        let Shard { ends, thresholds, bumped, slots } = &mut *self.shard;
        slots.drain(..).for_each(|slot| matrix.free(slot as usize));
        let end = ends[self.bucket * RANGES + RANGES - 1] as usize;
        bumped.extend(self.hashes[self.start..end].iter().map(|&hash| next_layer(hash)));
        thresholds[self.bucket] = self.part as u8;
        (self.part, self.taken, self.end) = (PART_ENDS.len() - 1, end, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::table_hash;

    #[derive(PartialEq)]
    struct Solved {
        thresholds: Vec<u8>,
        bumped: Vec<u64>,
        blocks: Vec<(u64, Vec<u64>)>,
    }

    fn solved(keys: u64, salt: u64, eliminate: impl Fn(&mut Band, &[(ShardStarts, &mut [u64])])) -> Solved {
        let starts = (keys * 95 / 100 - BLOCK_SLOTS) / BUCKET_STARTS * BUCKET_STARTS;
        let span = ShardStarts { layer: starts, first: 0, starts, columns: 0x1ff };
        let mut hashes: Vec<u64> = (0..keys).map(|key| table_hash(key, salt)).collect();
        let mut shards = [(span, &mut hashes[..])];
        let (mut band, mut bumped, mut blocks) = (Band::default(), Vec::new(), Vec::new());
        band.arrange(&mut shards);
        eliminate(&mut band, &shards);
        band.solve(0..span.slots(), 9, |block, words| blocks.push((block, words.to_vec())));
        band.take_bumped(0, &mut bumped);
        bumped.sort_unstable();
        Solved { thresholds: band.thresholds(0).to_vec(), bumped, blocks }
    }

    #[test]
    fn rows_of_a_lone_shard_in_turns_have_the_solution_of_rows_one_after_another() {
        for (keys, salts) in [(300, 50), (3000, 10), (60_000, 1)] {
            let salts = if cfg!(miri) { 1 } else { salts };
            let mut all_bumped = 0;
            for salt in 0..salts {
                let in_turns = solved(keys, salt, Band::eliminate);
                assert!(in_turns == solved(keys, salt, Band::eliminate_in_turns), "{keys} keys, salt {salt}");
                all_bumped += in_turns.bumped.len() as u64;
            }
            assert!(all_bumped > keys * salts / 50, "{all_bumped}");
        }
    }
}
