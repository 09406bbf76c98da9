//! Computes the sections from hashes, layer by layer.
//!
//! Peak memory: 17 bytes per key with the hashes, 3 MB for three shards, and 8 bytes per key while other salts may be tried.

use alloc::vec;
use alloc::vec::Vec;

use super::band::{Band, Eliminate, ShardStarts, Solve};
use super::geometry::{GROUPS_MAX, LAYERS_MAX, Ribbon};
use super::matrix::LANES;
use super::plan::{
    Columns, Size, expected_bumped, expected_bytes, is_dense, last_slots, layer_buckets, salts,
};
use super::solution::Solution;
use super::standard::{First, SolveWide};
use super::{BUCKET_STARTS, SHARD_BITS};
use crate::arch::Simd;
use crate::hash::{reduce, table_hash};

/// The last layer has more keys only if the hashes are not uniform.
const LAST_KEYS_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) ribbon: Ribbon,
    /// The thresholds, then the column groups. Empty if there is no solution.
    pub(crate) sections: Vec<Vec<u8>>,
    pub(crate) salt: u64,
    pub(crate) hashes: Vec<u64>,
}

impl Built {
    fn maybe(salt: u64, hashes: Vec<u64>) -> Self {
        Self { ribbon: Ribbon::MAYBE, sections: Vec::new(), salt, hashes }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Groups {
    pub(crate) count: usize,
    pub(crate) first: u8,
}

impl Groups {
    fn split(self, columns: u8) -> [u8; GROUPS_MAX] {
        let mut out = [0; GROUPS_MAX];
        let (mut left, mut least) = (columns, self.first);
        for (groups, out) in (1..=self.count.clamp(1, GROUPS_MAX) as u8).rev().zip(&mut out) {
            *out = left.div_ceil(groups).max(least).min(left);
            (left, least) = (left - *out, 0);
        }
        out
    }
}

/// Empties `chunks`. If a small filter is not dense, tries other salts.
pub(crate) fn build(chunks: &mut Vec<Vec<u64>>, salt: u64, size: Size, groups: Groups) -> Built {
    let keys = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    for salt in salts(keys, salt) {
        let builder = Builder { dense_keys: Some(keys), ..Builder::new(keys, size, groups) };
        if let Some(built) = builder.build(&mut chunks.clone(), salt, |hash| table_hash(hash, salt)) {
            return built;
        }
    }
    Builder::new(keys, size, groups).build_any(chunks, salt, |hash| table_hash(hash, salt))
}

pub(crate) fn build_again(hashes: Vec<u64>, salt: u64, size: Size, groups: Groups) -> Built {
    Builder::new(hashes.len() as u64, size, groups).build_any(&mut vec![hashes], salt, |hash| hash)
}

struct Builder {
    dense_keys: Option<u64>,
    columns: Columns,
    ribbon: Ribbon,
    solution: Solution,
    thresholds: Vec<u8>,
    buckets: u64,
    band: Band,
    simd: Simd,
}

impl Builder {
    fn new(keys: u64, size: Size, groups: Groups) -> Self {
        let columns = Columns::new(keys, size);
        let groups = groups.split(columns.columns);
        let bytes = expected_bytes(keys, size);
        Self {
            dense_keys: None,
            columns,
            ribbon: Ribbon { groups, ..Ribbon::MAYBE },
            solution: Solution::new(groups, bytes + bytes / 128),
            thresholds: Vec::new(),
            buckets: 0,
            band: Band::default(),
            simd: Simd::detect(),
        }
    }

    fn build_any(self, chunks: &mut Vec<Vec<u64>>, salt: u64, mix: impl Fn(u64) -> u64) -> Built {
        let any = Self { dense_keys: None, ..self };
        any.build(chunks, salt, mix).unwrap_or_else(|| Built::maybe(salt, Vec::new()))
    }

    fn build(mut self, chunks: &mut Vec<Vec<u64>>, salt: u64, mix: impl Fn(u64) -> u64) -> Option<Built> {
        let keys = chunks.iter().map(Vec::len).sum::<usize>() as u64;
        let first_starts = layer_buckets(keys, 0).map_or(0, |buckets| buckets * BUCKET_STARTS);
        let (mut hashes, ends) = deal(chunks, first_starts, mix);
        let mut bumped = self.layer(0, &mut hashes, &ends)?;
        for layer in 1..LAYERS_MAX {
            let Some(buckets) =
                layer_buckets(bumped.len() as u64, layer).filter(|_| self.has_layer(layer - 1))
            else {
                break;
            };
            let (mut rest, ends) = deal(&mut vec![bumped], buckets * BUCKET_STARTS, |hash| hash);
            bumped = self.layer(layer, &mut rest, &ends)?;
        }
        self.band = Band::default();
        let last = if self.has_layer(0) { &bumped } else { &hashes };
        let dense_keys = self.dense_keys;
        match self.last_layer(last) {
            Some((ribbon, _)) if dense_keys.is_some_and(|keys| !is_dense(keys, ribbon.all_slots())) => None,
            Some((ribbon, sections)) => Some(Built { ribbon, sections, salt, hashes }),
            None => Some(Built::maybe(salt, hashes)),
        }
    }

    fn can_be_dense(&self, end: u64, bumped: usize) -> bool {
        let slots = end * super::BLOCK_SLOTS + last_slots(bumped as u64, 0);
        self.dense_keys.is_none_or(|keys| is_dense(keys, slots))
    }

    fn has_layer(&self, layer: usize) -> bool {
        self.ribbon.buckets[layer] > 0
    }

    fn layer(&mut self, layer: usize, hashes: &mut [u64], ends: &[usize]) -> Option<Vec<u64>> {
        let mut bumped = Vec::new();
        let Some(buckets) = layer_buckets(hashes.len() as u64, layer) else { return Some(bumped) };
        self.ribbon.buckets[layer] = buckets;
        let first = self.solution.blocks();
        let end = first + super::geometry::layer_blocks(buckets);
        let slots = (end - first) * super::BLOCK_SLOTS;
        let rest = expected_bumped(hashes.len() as u64, slots);
        self.columns.after_layer(first, end, self.buckets + buckets, rest);
        self.solution.add_column_from(self.columns.plain.unwrap_or(u64::MAX));

        let starts = buckets * BUCKET_STARTS;
        let mut hashes = hashes;
        let mut dealt = 0;
        let shards = (0..).zip(ends).map(|(shard, &end)| {
            let (part, rest) = core::mem::take(&mut hashes).split_at_mut(end - dealt);
            (hashes, dealt) = (rest, end);
            let first = shard << SHARD_BITS;
            let starts_here = (starts - first).min(1 << SHARD_BITS);
            (ShardStarts { layer: starts, first, starts: starts_here, columns: self.mask() }, part)
        });
        let mut shards: Vec<_> = shards.collect();
        for shards in shards.chunks_mut(LANES) {
            self.band.arrange(shards);
            self.simd.run(Eliminate, &mut self.band, &*shards, ());
            if !self.can_be_dense(end, bumped.len() + self.band.bumped_count()) {
                return None;
            }
            self.solve(shards, &mut bumped);
        }
        Some(bumped)
    }

    fn solve(&mut self, shards: &[(ShardStarts, &mut [u64])], bumped: &mut Vec<u64>) {
        let most = self.columns.most().into();
        let mut first = 0;
        for (index, (span, _)) in shards.iter().enumerate() {
            let base = self.solution.extend(span.slots() as u64 / super::BLOCK_SLOTS);
            let solution = &mut self.solution;
            let slots = first..first + span.slots();
            first += span.room();
            self.simd.run_probe(Solve, &self.band, (slots, most), |block, words: &[u64]| {
                solution.put(base + block, words);
            });
            self.band.take_bumped(index, bumped);
            for &threshold in self.band.thresholds(index) {
                if self.buckets.is_multiple_of(4) {
                    self.thresholds.push(0);
                }
                *self.thresholds.last_mut().expect("pushed above") |= threshold << (2 * (self.buckets % 4));
                self.buckets += 1;
            }
        }
    }

    fn last_layer(mut self, hashes: &[u64]) -> Option<(Ribbon, Vec<Vec<u8>>)> {
        if hashes.len() > LAST_KEYS_MAX {
            return None;
        }
        let (mask, keys) = (self.mask(), hashes.len() as u64);
        let band = self.simd.run(First, hashes, mask, |attempt| last_slots(keys, attempt))?;
        let slots = band.slots();
        self.ribbon.plain = self.columns.last_layer(self.solution.blocks(), slots, self.buckets);
        self.ribbon.slots = slots;
        self.ribbon.attempt = band.attempt;
        self.solution.add_column_from(self.ribbon.plain);
        let base = self.solution.extend(slots.div_ceil(super::BLOCK_SLOTS));
        let (solution, most) = (&mut self.solution, self.columns.most().into());
        self.simd.run_probe(SolveWide, &band, most, |block, words: &[u64]| solution.put(base + block, words));
        drop(band);
        let mut sections = vec![self.thresholds];
        sections.append(&mut self.solution.finish(self.ribbon.tail_slots()));
        Some((self.ribbon, sections))
    }

    fn mask(&self) -> u32 {
        (u64::MAX >> (64 - u32::from(self.columns.most()))) as u32
    }
}

/// Mixes and sorts the hashes. Returns the end of each shard.
fn deal(chunks: &mut Vec<Vec<u64>>, starts: u64, mix: impl Fn(u64) -> u64) -> (Vec<u64>, Vec<usize>) {
    let shards = starts.div_ceil(1 << SHARD_BITS).max(1) as usize;
    let shard = |hash| (reduce(hash, starts) >> SHARD_BITS) as usize;
    let mut ends = vec![0; shards];
    if shards > 1 {
        chunks.iter().flatten().for_each(|&hash| ends[shard(mix(hash))] += 1);
    }
    let mut sum = 0;
    for end in &mut ends {
        (sum, *end) = (sum + *end, sum);
    }
    let mut out = vec![0; chunks.iter().map(Vec::len).sum()];
    for chunk in chunks.drain(..) {
        for hash in chunk.into_iter().map(&mix) {
            let end = &mut ends[if shards > 1 { shard(hash) } else { 0 }];
            out[*end] = hash;
            *end += 1;
        }
    }
    (out, ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Groups = Groups { count: 1, first: 0 };

    #[test]
    fn a_last_layer_of_too_many_keys_has_no_solution() {
        let size = Size::Columns(8.0);
        let builder = || Builder::new(1000, size, ONE);
        assert!(builder().last_layer(&[7; 1000]).is_some(), "equal rows agree with each other");
        assert!(builder().last_layer(&vec![7; LAST_KEYS_MAX + 1]).is_none());
    }

    #[test]
    fn no_order_of_the_hashes_changes_a_byte_of_two_layers_and_three_shards() {
        let hashes: Vec<u64> = (0..180_000u64).map(|key| table_hash(key, 99)).collect();
        let build =
            |hashes: Vec<u64>| build(&mut vec![hashes], 1, Size::Bits(9.5), Groups { count: 2, ..ONE });
        let forward = build(hashes.clone());
        let mut backward = hashes.clone();
        backward.reverse();
        let mut mixed = hashes;
        mixed.sort_unstable_by_key(|hash| hash.rotate_left(20));
        for other in [build(backward), build(mixed)] {
            assert!(forward.ribbon == other.ribbon && forward.sections == other.sections);
        }
        assert!(forward.ribbon.buckets[0] > 2 * 512 && forward.ribbon.buckets[1] > 0);
        assert!(forward.ribbon.plain > 0 && forward.ribbon.plain < forward.ribbon.buckets[0] * 2);
        let lens: Vec<u64> = forward.sections.iter().map(|section| section.len() as u64).collect();
        assert_eq!(forward.ribbon.section_lens(), lens);
    }

    #[test]
    fn a_small_filter_takes_at_most_one_per_cent_over_its_keys_times_columns() {
        let mut sizes = vec![256, 1024, 4096, 5120, 6000, 6001, 6144, 7000];
        sizes.extend((0..22).map(|step| (256.0 * 1.32f64.powi(step)) as u64));
        let mut resalted = 0;
        for keys in sizes {
            for salt in 0..if keys == 7000 { 100 } else { 60_000 / keys.max(5000) + 1 } {
                let hashes = (0..keys).map(|key| table_hash(key, salt)).collect();
                let built = build(&mut vec![hashes], salt, Size::Columns(8.0), ONE);
                let bits = 8 * built.sections.iter().map(Vec::len).sum::<usize>() as u64;
                assert!(
                    bits >= 8 * keys && bits - 8 * keys <= 8 * keys / 100,
                    "{keys} keys, salt {salt}: {bits}"
                );
                resalted += u32::from(built.salt != salt);
            }
        }
        assert!(resalted > 0, "no filter needed a second salt: the test does not cover that case");
    }

    #[test]
    fn columns_are_split_into_groups_that_are_not_empty() {
        let split = |columns, count| Groups { count, first: 0 }.split(columns);
        assert_eq!(split(8, 1), [8, 0, 0]);
        assert_eq!(split(8, 2), [4, 4, 0]);
        assert_eq!(split(8, 3), [3, 3, 2]);
        assert_eq!(split(2, 3), [1, 1, 0]);
        assert_eq!(split(0, 3), [0, 0, 0]);
        assert_eq!(split(8, 9), [3, 3, 2]);
        let split = |columns, count| Groups { count, first: 5 }.split(columns);
        assert_eq!(split(8, 1), [8, 0, 0]);
        assert_eq!(split(8, 2), [5, 3, 0]);
        assert_eq!(split(8, 3), [5, 2, 1]);
        assert_eq!(split(11, 2), [6, 5, 0]);
        assert_eq!(split(6, 3), [5, 1, 0]);
        assert_eq!(split(5, 2), [5, 0, 0]);
        assert_eq!(split(3, 2), [3, 0, 0]);
    }
}
