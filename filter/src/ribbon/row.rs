//! Maps a hash to a row of the system. Part of the format.

use super::{SMASH, WIDE};
use crate::bloom::remix;
use crate::hash::{reduce, table_hash};

/// The first 64 binary digits of the fraction of √2, made odd.
const SPREAD: u64 = 0x6a09_e667_f3bc_c909;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the coefficients, the first of which is 1, and the mark, with column 0 in the lowest bit.
#[inline]
pub(super) fn narrow(hash: u64) -> (u64, u32) {
    let product = u128::from(hash) * u128::from(SPREAD);
    let low = product as u64;
    (low | 1, ((product >> 64) as u64 ^ low) as u32)
}

#[inline]
pub(super) fn next_layer(hash: u64) -> u64 {
    remix(hash)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wide {
    pub(super) start: u64,
    /// The coefficients of 128 slots, the lower 64 slots first.
    pub(super) coefficients: [u64; 2],
    pub(super) mark: u32,
}

#[inline]
pub(super) fn wide(hash: u64, attempt: u16, slots: u64) -> Wide {
    let hash = remix(table_hash(hash, STEP.wrapping_mul(u64::from(attempt) + 1)));
    let last = slots.saturating_sub(WIDE);
    let start = reduce(hash, last + 1 + 2 * SMASH).saturating_sub(SMASH).min(last);
    let product = u128::from(hash) * u128::from(SPREAD);
    let low = product as u64;
    let mark = ((product >> 64) as u64 ^ low) as u32;
    Wide { start, coefficients: [low | 1, remix(low)], mark }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_coefficient_of_every_row_is_one_and_no_window_leaves_the_slots() {
        for hash in (0..10_000u64).map(|seed| remix(seed + 1)).chain([0, 1, u64::MAX]) {
            assert_eq!(narrow(hash).0 & 1, 1);
            for slots in [128, 129, 1000, 1 << 40] {
                for attempt in [0, 1, u16::MAX] {
                    let row = wide(hash, attempt, slots);
                    assert_eq!(row.coefficients[0] & 1, 1);
                    assert!(row.start + WIDE <= slots);
                }
            }
        }
    }

    #[test]
    fn rows_are_pinned_by_vectors() {
        assert_eq!(narrow(1), (SPREAD, SPREAD as u32));
        // (2^64 - 1) * SPREAD = SPREAD * 2^64 - SPREAD: the halves are SPREAD - 1 and -SPREAD.
        assert_eq!(narrow(u64::MAX), (SPREAD.wrapping_neg(), ((SPREAD - 1) ^ SPREAD.wrapping_neg()) as u32));
    }
}
