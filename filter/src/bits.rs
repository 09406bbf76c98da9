//! Bits per key, and the false-positive rate that each kind has with them.

use alloc::format;

use super::header::Kind;
use super::{blocked, bloom, ribbon};
use crate::error::FilterError;

/// Most bits per key of a policy. No filter improves with more.
pub const BITS_PER_KEY_MAX: f64 = 64.0;

pub(super) fn check_bits_per_key(bits: f64) -> Result<(), FilterError> {
    if bits > 0.0 && bits <= BITS_PER_KEY_MAX {
        return Ok(());
    }
    Err(FilterError::invalid(format!("{bits} bits per key are not over 0 and up to {BITS_PER_KEY_MAX}")))
}

/// Thousandths of a bit, rounded down: the unit in which the number of probes is chosen.
pub(super) fn millibits(bits_per_key: f64) -> u32 {
    (bits_per_key * 1000.0) as u32
}

/// The best rate of `kind` with this size.
pub(super) fn rate(kind: Kind, millibits: u32) -> f64 {
    let bits = f64::from(millibits.max(1)) / 1000.0;
    match kind {
        Kind::Bloom => bloom::rate(bits, bloom::best_probes(millibits)),
        Kind::BlockedBloom => blocked::rate(bits, blocked::best_probes(millibits)),
        Kind::Ribbon => ribbon::rate(bits),
    }
}

/// The fewest bits per key, in thousandths, for a rate of at most `wanted`.
pub(super) fn bits_for_rate(kind: Kind, wanted: f64) -> Option<f64> {
    let (mut low, mut high) = (0, millibits(BITS_PER_KEY_MAX));
    if rate(kind, high) > wanted {
        return None;
    }
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        if rate(kind, middle) <= wanted { high = middle } else { low = middle }
    }
    Some(f64::from(high) / 1000.0)
}
