//! Chooses the number of slots and columns for a number of keys. Readers do not depend on this choice.
//!
//! A bumped layer has 4.3 % fewer slots than keys: with fewer slots, more keys are bumped; with more slots, more slots
//! stay empty. The last layer has more slots than keys. The excess grows with the keys, because longer bands fail more
//! often.

use super::geometry::{Ribbon, layer_blocks};
use super::{BLOCK_SLOTS, BUCKET_STARTS, COLUMNS_MAX, LAYERS_MAX, SHARD_BITS, WIDE};
use crate::bloom::rate_of;
#[cfg(not(any(test, feature = "std")))]
use crate::float::Float;

const LOAD: u64 = 980;

/// Maximum number of keys in the last layer, unless all bumped layers exist.
const LAST_KEYS: u64 = 6000;

const ATTEMPTS_PER_SIZE: u16 = 16;

const SALTS_MAX: u64 = 16;

/// Larger filters need no other salts: their free slots are close to the mean.
const RESALTED_KEYS: u64 = 1 << 16;

const SALT_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Size {
    Bits(f64),
    /// The rate is exactly `2^-columns` if this number is whole.
    Columns(f64),
}

pub(super) fn layer_buckets(keys: u64, layer: usize) -> Option<u64> {
    if keys <= LAST_KEYS || layer == LAYERS_MAX {
        return None;
    }
    let slots = (u128::from(keys) * u128::from(LOAD) / 1024) as u64;
    let shards = slots.div_ceil((1 << SHARD_BITS) + BLOCK_SLOTS);
    Some(((slots - shards * BLOCK_SLOTS + BUCKET_STARTS / 2) / BUCKET_STARTS).max(1))
}

pub(super) fn last_slots(keys: u64, attempt: u16) -> u64 {
    let doublings = u64::from((keys / 1024).checked_ilog2().map_or(0, |log| log + 1));
    let excess = keys / 1024 * (5 + doublings) + keys % 1024 / 256 + 1;
    let more = u64::from(attempt / ATTEMPTS_PER_SIZE) * (keys / 256 + 1);
    (keys + excess + more).max(WIDE)
}

pub(super) fn salts(keys: u64, salt: u64) -> impl Iterator<Item = u64> {
    let tried = keys > LAST_KEYS && keys <= RESALTED_KEYS;
    (0..if tried { SALTS_MAX } else { 0 }).map(move |index| salt.wrapping_add(index.wrapping_mul(SALT_STEP)))
}

/// Whether the slots exceed the keys by less than 1 %. Then the bits of 7 columns with thresholds also exceed the
/// minimum by less than 1 %.
pub(super) fn is_dense(keys: u64, slots: u64) -> bool {
    slots <= keys + keys / 128
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    keys: u64,
    size: Size,
    pub(super) columns: u8,
    pub(super) plain: Option<u64>,
}

impl Columns {
    pub(super) fn new(keys: u64, size: Size) -> Self {
        let wanted = match size {
            Size::Columns(columns) => columns,
            Size::Bits(bits) => columns_of(keys, bits),
        };
        // Any filter has at least [`WIDE`] slots, so with fewer keys a fraction of a column has no benefit.
        let wanted = if keys < WIDE { wanted.round().max(1.0) } else { wanted };
        let columns = (wanted.max(0.0) as u64).min(COLUMNS_MAX.into()) as u8;
        let whole = keys < WIDE || matches!(size, Size::Columns(columns) if columns.fract() == 0.0);
        let plain = (columns == COLUMNS_MAX || whole).then_some(u64::MAX);
        Self { keys, size, columns, plain }
    }

    pub(super) fn most(&self) -> u8 {
        self.columns + u8::from(self.plain != Some(u64::MAX))
    }

    /// Starts the additional column in blocks `first..end`, if it needs more blocks than the later layers of `rest` keys
    /// have.
    pub(super) fn after_layer(&mut self, first: u64, end: u64, buckets: u64, rest: u64) {
        if self.plain.is_none() {
            let blocks = end + slots_of_rest(rest) / BLOCK_SLOTS;
            let plain = blocks - self.additional(blocks * BLOCK_SLOTS, buckets).min(blocks);
            self.plain = (plain < end).then_some(plain.max(first));
        }
    }

    pub(super) fn last_layer(&self, first: u64, slots: u64, buckets: u64) -> u64 {
        let end = first + slots.div_ceil(BLOCK_SLOTS);
        let plain = match self.plain {
            Some(plain) => plain.min(end),
            None if first == 0 => self.nearest(slots),
            None => match self.additional(first * BLOCK_SLOTS + slots, buckets).min(end - first) {
                // No window starts in the last two blocks.
                additional @ 3.. => end - additional,
                _ => end,
            },
        };
        if self.columns == 0 { plain.min(end - 1) } else { plain }
    }

    /// Returns the nearest size. No window starts in the last two blocks, so in a small filter an additional column is
    /// useful in all blocks or in none.
    fn nearest(&self, slots: u64) -> u64 {
        let wanted = self.additional_bits(slots, 0);
        let starts = 0..=(slots - WIDE) / BLOCK_SLOTS;
        let with = starts.map(|plain| (plain, slots - plain * BLOCK_SLOTS));
        let all = with.chain([(slots.div_ceil(BLOCK_SLOTS), 0)]);
        let off = |bits: u64| (bits as f64 - wanted).abs();
        all.min_by(|one, other| off(one.1).total_cmp(&off(other.1))).map_or(0, |nearest| nearest.0)
    }

    fn additional_bits(&self, slots: u64, buckets: u64) -> f64 {
        let slots = slots as f64;
        match self.size {
            Size::Columns(columns) => (columns - f64::from(self.columns)) * slots,
            Size::Bits(bits) => {
                (self.keys as f64 * bits).round() - (2 * buckets) as f64 - f64::from(self.columns) * slots
            }
        }
    }

    fn additional(&self, slots: u64, buckets: u64) -> u64 {
        let additional = self.additional_bits(slots, buckets);
        // Counts from the end, because the last block may be partial.
        let last = (slots.max(1) - 1) % BLOCK_SLOTS + 1;
        let additional = additional.max(0.0) as u64;
        if additional < last { 0 } else { 1 + (additional - last) / BLOCK_SLOTS }
    }
}

fn columns_of(keys: u64, bits_per_key: f64) -> f64 {
    if keys < WIDE {
        return bits_per_key;
    }
    let (slots, buckets) = expected_slots(keys);
    (keys as f64 * bits_per_key - 2.0 * buckets as f64) / slots as f64
}

/// One slot in 512 stays empty.
pub(super) fn expected_bumped(keys: u64, slots: u64) -> u64 {
    keys.saturating_sub(slots - slots / 512)
}

fn slots_of_rest(keys: u64) -> u64 {
    keys + keys / 256
}

fn expected_slots(keys: u64) -> (u64, u64) {
    match layer_buckets(keys, 0) {
        None => (last_slots(keys, 0), 0),
        Some(buckets) => {
            let slots = layer_blocks(buckets) * BLOCK_SLOTS;
            (slots + slots_of_rest(expected_bumped(keys, slots)), buckets + buckets / 28)
        }
    }
}

pub(crate) fn expected_bytes(keys: u64, size: Size) -> u64 {
    let (slots, buckets) = expected_slots(keys);
    let columns = match size {
        Size::Columns(columns) => columns,
        Size::Bits(bits) => columns_of(keys, bits).max(0.0),
    };
    (slots as f64 * columns.min(COLUMNS_MAX.into())) as u64 / 8 + buckets / 4 + 1
}

/// The inverse of [`columns_of`]. Below [`WIDE`] keys, returns the columns.
pub(crate) fn bits_for_columns(keys: u64, columns: f64) -> f64 {
    if keys < WIDE {
        return columns;
    }
    let (slots, buckets) = expected_slots(keys);
    (slots as f64 * columns + 2.0 * buckets as f64) / keys as f64
}

/// The exact rate of a filter of one layer; `None` for a larger one.
pub(crate) fn rate_of_one_layer(keys: u64, bits_per_key: f64) -> Option<f64> {
    if keys == 0 || layer_buckets(keys, 0).is_some() {
        return None;
    }
    let columns = Columns::new(keys, Size::Bits(bits_per_key));
    let slots = last_slots(keys, 0);
    let plain = columns.last_layer(0, slots, 0);
    let ribbon = Ribbon { slots, groups: [columns.columns, 0, 0], plain, ..Ribbon::MAYBE };
    Some(rate_of(ribbon.rate(&[])))
}

pub(crate) fn rate(bits_per_key: f64) -> f64 {
    let columns = columns_of(1 << 30, bits_per_key).clamp(0.0, COLUMNS_MAX.into());
    let whole = columns.floor();
    (-whole).exp2() * (1.0 - (columns - whole) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_has_slightly_fewer_slots_than_keys_and_the_last_one_slightly_more() {
        for keys in [LAST_KEYS + 1, 20_000, 70_000, 1_000_000, 1 << 33, 1 << 47] {
            let slots = layer_blocks(layer_buckets(keys, 0).unwrap()) * BLOCK_SLOTS;
            let load = slots as f64 / keys as f64;
            assert!((0.945..0.97).contains(&load), "{keys}: {load}");
            assert_eq!(layer_buckets(keys, LAYERS_MAX), None);
        }
        for keys in 256..=LAST_KEYS {
            let slots = last_slots(keys, 0);
            assert!(slots > keys && (slots - keys) * 124 <= keys, "{keys}: {slots}");
            assert!(last_slots(keys, ATTEMPTS_PER_SIZE) > slots);
        }
        assert_eq!(last_slots(1, 0), WIDE);
    }

    #[test]
    fn the_additional_column_never_starts_in_a_layer_that_is_written() {
        let mut columns = Columns::new(1_000_000, Size::Bits(19.09));
        columns.after_layer(0, 14_953, 7469, 44_877);
        assert_eq!((columns.columns, columns.plain), (19, None));
        columns.after_layer(14_953, 15_616, 7800, 1921);
        assert_eq!(columns.plain, Some(14_953));
        let mut clamped = 0;
        for step in 0..20_000u32 {
            let mut columns = Columns::new(1_000_000, Size::Bits(6.0 + f64::from(step) / 1000.0));
            let (mut first, mut buckets) = (0, 0);
            let mut keys = 1_000_000;
            for layer in 0..2 {
                buckets += layer_buckets(keys, layer).unwrap();
                let end = layer_blocks(buckets);
                keys = expected_bumped(keys, (end - first) * BLOCK_SLOTS);
                columns.after_layer(first, end, buckets, keys);
                if let Some(plain) = columns.plain.filter(|&plain| plain != u64::MAX) {
                    assert!((first..end).contains(&plain), "{step}: {plain}");
                    clamped += u32::from(layer == 1 && plain == first);
                    break;
                }
                (first, keys) = (end, keys - u64::from(step % 7) * keys / 100);
            }
        }
        assert!(clamped > 20, "{clamped}: the test says little");
    }
}
