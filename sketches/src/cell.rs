//! The cell of the tables that list a difference.
//!
//! A cell holds the number of added minus removed items, and the exclusive or of the items and of their checks. A cell of exactly
//! one item is *pure* and reveals it; the check excludes several items.

use crate::envelope::{DecodeError, Reader, put_u64, put_varint};
use crate::hash::key_hash;

pub(crate) const CELL_MEMORY: u64 = size_of::<Cell>() as u64;

pub(crate) const CELL_BYTES_MIN: u64 = 25;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cell {
    pub(crate) count: i64,
    pub(crate) items: u128,
    pub(crate) checks: u64,
}

#[inline]
pub(crate) fn check_of(seed: u64, item: u128) -> u64 {
    key_hash(seed, &item.to_le_bytes())
}

impl Cell {
    #[inline]
    pub(crate) fn add(&mut self, item: u128, check: u64, sign: i64) {
        self.count = self.count.wrapping_add(sign);
        self.items ^= item;
        self.checks ^= check;
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        self.count = self.count.wrapping_sub(other.count);
        self.items ^= other.items;
        self.checks ^= other.checks;
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    #[inline]
    pub(crate) fn pure(&self, seed: u64) -> bool {
        matches!(self.count, 1 | -1) && check_of(seed, self.items) == self.checks
    }

    /// Appends items, checks, and the count minus `expected`.
    pub(crate) fn put(&self, out: &mut Vec<u8>, expected: i64) {
        put_u64(out, self.items as u64);
        put_u64(out, (self.items >> 64) as u64);
        put_u64(out, self.checks);
        let distance = self.count.wrapping_sub(expected);
        put_varint(out, (distance << 1 ^ distance >> 63) as u64);
    }

    pub(crate) fn get(reader: &mut Reader<'_>, expected: i64) -> Result<Self, DecodeError> {
        let (low, high) = (reader.u64("cell items")?, reader.u64("cell items")?);
        let items = u128::from(high) << 64 | u128::from(low);
        let checks = reader.u64("cell checks")?;
        let zigzag = reader.varint("cell count")?;
        let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        Ok(Self { count: expected.wrapping_add(distance), items, checks })
    }
}

/// The items of exactly one of two sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Difference {
    /// Items of the first set only.
    pub mine: Vec<u128>,
    /// Items of the second set only.
    pub theirs: Vec<u128>,
}

impl Difference {
    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mine.len() + self.theirs.len()
    }

    /// Whether the sets are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mine.is_empty() && self.theirs.is_empty()
    }
}

/// Removes the items of pure cells until none is pure. `cells_of` lists cells by check. Returns `false` if a pure cell is none
/// of its item's cells, or items outnumber cells: then the cells are not of two sets.
pub(crate) fn peel<I: Iterator<Item = usize>>(
    cells: &mut [Cell],
    seed: u64,
    mut pure: Vec<usize>,
    cells_of: impl Fn(u64) -> I,
    found: &mut Vec<(u128, i64)>,
) -> bool {
    while let Some(index) = pure.pop() {
        let Cell { count: sign, items: item, checks: check } = cells[index];
        if !cells[index].pure(seed) {
            continue;
        }
        if found.len() >= cells.len() {
            return false;
        }
        found.push((item, sign));
        let mut met = false;
        for other in cells_of(check) {
            met |= other == index;
            cells[other].add(item, check, sign.wrapping_neg());
            if cells[other].pure(seed) {
                pure.push(other);
            }
        }
        if !met {
            return false;
        }
    }
    true
}
