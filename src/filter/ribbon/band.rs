//! Elimination and solution of shards with windows of 64 slots.
//!
//! The band matrix has at most one row per slot, the one that starts there: 64 coefficients of which the first
//! is 1, and a mark. A new row whose start is taken is added to the one that is there (both are bits, so that
//! adding is exclusive or), which clears its first coefficient at least, and moves right to its next one. It ends
//! where the slot is free; or with no coefficients left: then it follows from others, and either agrees with
//! them or can never be true along with them.

use super::row::{narrow, next_layer};
use super::{BLOCK_SLOTS, BUCKET_STARTS};
use crate::filter::arch::{Simd, Work};
use crate::hash::reduce;

/// Starts per range within a bucket, as a power of two: ranges are eliminated from the highest to the lowest.
const RANGE_BITS: u32 = 3;

/// Ranges per bucket.
const RANGES: usize = (BUCKET_STARTS >> RANGE_BITS) as usize;

/// The number of the last range of a bucket's first, second and third part: starts from 40, 16 and 0 on.
const PART_ENDS: [usize; 3] = [10, 13, 15];

/// The threshold of a bucket of which nothing is bumped.
const NOTHING_BUMPED: u8 = 3;

/// The starts of one shard: `starts` of them from `first` on, in a layer of `layer` starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) layer: u64,
    pub(super) first: u64,
    pub(super) starts: u64,
    /// The columns that are solved, as bits: only these can contradict each other.
    pub(super) columns: u32,
}

impl Span {
    pub(super) fn slots(self) -> usize {
        (self.starts + BLOCK_SLOTS) as usize
    }
}

/// One shard: its memory is used for one after another.
#[derive(Debug, Default)]
pub(super) struct Band {
    coefficients: Vec<u64>,
    marks: Vec<u32>,
    /// Where the hashes of each range end.
    ends: Vec<u32>,
    /// Of each bucket.
    pub(super) thresholds: Vec<u8>,
    /// Hashes that were bumped, as the next layer has them.
    pub(super) bumped: Vec<u64>,
    undo: Vec<u32>,
}

impl Band {
    /// Brings the hashes of a shard into the order in which they are eliminated, and empties the band.
    pub(super) fn arrange(&mut self, span: Span, hashes: &mut [u64]) {
        let range = |hash| ((reduce(hash, span.layer) - span.first) >> RANGE_BITS) as usize ^ (RANGES - 1);
        self.ends.clear();
        self.ends.resize((span.starts >> RANGE_BITS) as usize, 0);
        hashes.iter().for_each(|&hash| self.ends[range(hash)] += 1);
        let mut sum = 0;
        for end in &mut self.ends {
            (sum, *end) = (sum + *end, sum);
        }
        // The band's memory holds the copy that they are dealt out from.
        self.coefficients.clear();
        self.coefficients.extend_from_slice(hashes);
        for &hash in &self.coefficients {
            let end = &mut self.ends[range(hash)];
            hashes[*end as usize] = hash;
            *end += 1;
        }
        self.coefficients.clear();
        self.coefficients.resize(span.slots(), 0);
        self.marks.clear();
        self.marks.resize(span.slots(), 0);
        self.thresholds.clear();
        self.thresholds.resize((span.starts / BUCKET_STARTS) as usize, NOTHING_BUMPED);
    }

    /// Eliminates the arranged hashes of two shards in turns.
    #[inline(always)]
    fn eliminate(lanes: [(&mut Self, Span, &[u64]); 2]) {
        let [first, second] = lanes;
        let (mut first, mut second) = (Lane::new(first), Lane::new(second));
        let (mut one, mut two) = match (first.next(), second.next()) {
            (Some(one), Some(two)) => (one, two),
            (one, two) => {
                first.run(one);
                return second.run(two);
            }
        };
        loop {
            if first.step(&mut one) {
                let Some(next) = first.next() else { return second.run(Some(two)) };
                one = next;
            }
            if second.step(&mut two) {
                let Some(next) = second.next() else { return first.run(Some(one)) };
                two = next;
            }
        }
    }

    /// Solves the system: for each block from the last to the first, its number in the shard and its words.
    #[inline(always)]
    fn solve(&self, columns: usize, put: impl FnMut(u64, &[u64])) {
        match columns {
            0..=8 => self.solve_columns::<8>(columns, put),
            9..=16 => self.solve_columns::<16>(columns, put),
            _ => self.solve_columns::<32>(columns, put),
        }
    }

    /// The same with as many columns as the words of a whole number of vectors, of which those over `columns` are
    /// solved for nothing: so all of them stay in registers.
    #[inline(always)]
    fn solve_columns<const N: usize>(&self, columns: usize, mut put: impl FnMut(u64, &[u64])) {
        let mut words = [0u64; N];
        for (slot, (&coefficients, &mark)) in self.coefficients.iter().zip(&self.marks).enumerate().rev() {
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

/// [`Band::eliminate`].
pub(super) struct Eliminate;

impl<'a> Work<[(&'a mut Band, Span, &'a [u64]); 2], (), ()> for Eliminate {
    type Output = ();

    #[inline(always)]
    fn work(_: Simd, lanes: [(&'a mut Band, Span, &'a [u64]); 2], (): (), (): ()) {
        Band::eliminate(lanes);
    }
}

/// [`Band::solve`].
pub(super) struct Solve;

impl<F: FnMut(u64, &[u64])> Work<&Band, usize, F> for Solve {
    type Output = ();

    #[inline(always)]
    fn work(_: Simd, band: &Band, columns: usize, put: F) {
        band.solve(columns, put);
    }
}

struct Row {
    slot: usize,
    coefficients: u64,
    mark: u32,
}

/// The elimination of one shard, one step at a time.
struct Lane<'a> {
    // The band's, taken apart so that no step has to look for it.
    coefficients: &'a mut [u64],
    /// As many.
    marks: &'a mut [u32],
    ends: &'a [u32],
    thresholds: &'a mut [u8],
    bumped: &'a mut Vec<u64>,
    undo: &'a mut Vec<u32>,
    span: Span,
    hashes: &'a [u64],
    bucket: usize,
    /// The part of the bucket that is being eliminated, 0 to 2.
    part: usize,
    /// Where the hashes of the part start and end, and the next one.
    start: usize,
    end: usize,
    at: usize,
}

impl<'a> Lane<'a> {
    #[inline(always)]
    fn new((band, span, hashes): (&'a mut Band, Span, &'a [u64])) -> Self {
        let Band { coefficients, marks, ends, thresholds, bumped, undo } = band;
        let marks = &mut marks[..coefficients.len()];
        let end = ends.get(PART_ENDS[0]).map_or(0, |&end| end as usize);
        undo.clear();
        Self {
            coefficients,
            marks,
            ends,
            thresholds,
            bumped,
            undo,
            span,
            hashes,
            bucket: 0,
            part: 0,
            start: 0,
            end,
            at: 0,
        }
    }

    /// The next row, if there is one.
    #[inline(always)]
    fn next(&mut self) -> Option<Row> {
        while self.at == self.end {
            self.part += 1;
            if self.part == PART_ENDS.len() {
                (self.bucket, self.part) = (self.bucket + 1, 0);
            }
            self.start = self.end;
            self.end = *self.ends.get(self.bucket * RANGES + PART_ENDS[self.part])? as usize;
            self.undo.clear();
        }
        let hash = self.hashes[self.at];
        self.at += 1;
        let (coefficients, mark) = narrow(hash);
        let slot = (reduce(hash, self.span.layer) - self.span.first) as usize;
        Some(Row { slot, coefficients, mark: mark & self.span.columns })
    }

    /// One step of elimination. Whether the row is done with.
    #[inline(always)]
    fn step(&mut self, row: &mut Row) -> bool {
        let there = self.coefficients[row.slot];
        if there == 0 {
            self.coefficients[row.slot] = row.coefficients;
            self.marks[row.slot] = row.mark;
            self.undo.push(row.slot as u32);
            return true;
        }
        row.coefficients ^= there;
        row.mark ^= self.marks[row.slot];
        if row.coefficients == 0 {
            if row.mark != 0 {
                self.bump();
            }
            return true;
        }
        let zeros = row.coefficients.trailing_zeros();
        row.coefficients >>= zeros;
        row.slot += zeros as usize;
        false
    }

    /// The part has a row that cannot be true: it and the parts after it leave the band.
    #[cold]
    #[inline(never)]
    fn bump(&mut self) {
        for slot in self.undo.drain(..) {
            self.coefficients[slot as usize] = 0;
            self.marks[slot as usize] = 0;
        }
        let end = self.ends[self.bucket * RANGES + RANGES - 1] as usize;
        self.bumped.extend(self.hashes[self.start..end].iter().map(|&hash| next_layer(hash)));
        self.thresholds[self.bucket] = self.part as u8;
        (self.part, self.at, self.end) = (PART_ENDS.len() - 1, end, end);
    }

    /// To the end of the shard.
    #[inline(always)]
    fn run(&mut self, mut row: Option<Row>) {
        while let Some(current) = &mut row {
            if self.step(current) {
                row = self.next();
            }
        }
    }
}
