//! d-left counting: fingerprints with counters, each in the emptiest of four buckets.
//!
//! 1. There are four subtables of `B` buckets of eight cells: `r` bits of fingerprint and a counter.
//! 2. A hash is a bucket number and a remainder of `r` bits. Each subtable permutes such pairs: two keys share a pair in all
//!    subtables or in none.
//! 3. An insertion increments the counter of the cell with its remainder, or stores the remainder in the emptiest, leftmost of
//!    its four buckets.
//! 4. A removal decrements the counter. At 0 the cell is free.
//!
//! Bonomi, Mitzenmacher, Panigrahy, Singh and Varghese, "An Improved Construction for Counting Bloom Filters" (2006), section 3.
//! Without the permutations, a removal could decrement another key's counter. The rate is `24 / 2^r`: 24 keys in four buckets.

use crate::arithmetic::checked_rate;
use crate::cells::Cells;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::{key_hash, nth, reduce, remix, spread};
use crate::sketch::{Parts, Sketch, Summary};

const TABLES: u64 = 4;

const HEIGHT: u64 = 8;

const LOAD: f64 = 6.0;

/// Counters of [`DLeft::with_rate`] count up to 3.
const COUNTER_BITS: u64 = 2;

const BUCKETS_MAX: u64 = 1 << 40;

/// A filter with removal in half the space of [`Counting`](crate::Counting).
///
/// ```
/// use sievedb_sketches::{DLeft, Error};
///
/// let mut open = DLeft::with_rate(10_000, 0.01, 42)?;
/// open.insert(b"connection 7")?;
/// open.remove(b"connection 7")?;
/// assert!(!open.contains(b"connection 7"));
/// assert_eq!(open.remove(b"connection 7"), Err(Error::Absent));
/// # Ok::<(), Error>(())
/// ```
///
/// # Guarantees
///
/// As for [`Counting`](crate::Counting#guarantees), with [`DLeft::predicted_rate`]. A saturated cell is never freed.
///
/// # Cost
///
/// Up to four buckets per operation. `(r + 2) · 8/6` bits per key, `r = log2(24 / rate)`: 19 for 1 %.
///
/// # When not to use it
///
/// Filters that must never be full: [`Counting`](crate::Counting). Distinct keys inserted once:
/// [`Cuckoo`](crate::Cuckoo).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DLeft {
    cells: Cells,
    shape: Shape,
    used: u64,
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    buckets: u64,
    remainder_bits: u64,
    counter_bits: u64,
}

impl Shape {
    fn cells(self) -> u64 {
        TABLES * self.buckets * HEIGHT
    }

    fn width(self) -> u64 {
        self.remainder_bits + self.counter_bits
    }

    #[inline]
    fn places(self, hash: u64) -> [(u64, u64); TABLES as usize] {
        let hash = spread(hash);
        let mask = (1 << self.remainder_bits) - 1;
        let (bucket, remainder) = (reduce(hash, self.buckets), remix(hash) >> 32 & mask);
        std::array::from_fn(|table| {
            let table = table as u64;
            // Two Feistel rounds, except in the first table.
            let (mut bucket, mut remainder) = (bucket, remainder);
            if table > 0 {
                bucket += reduce(nth(remainder, table), self.buckets);
                if bucket >= self.buckets {
                    bucket -= self.buckets;
                }
                remainder ^= nth(bucket, TABLES + table) & mask;
            }
            ((table * self.buckets + bucket) * HEIGHT, remainder)
        })
    }
}

impl DLeft {
    /// At most `rate` at `keys` distinct keys; with room for a third more.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the rate is not between 2^-25 and 1; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, seed: u64) -> Result<Self, Error> {
        let remainder_bits = (TABLES as f64 * LOAD / checked_rate(rate)?).log2().ceil() as u64;
        let buckets = (keys as f64 / (TABLES as f64 * LOAD)).ceil() as u64;
        Self::with_shape(buckets.max(1), remainder_bits, COUNTER_BITS, seed)
    }

    /// Four tables of `buckets` buckets with these remainder and counter bits.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless all are at least 1 and both bits together at most 32; [`Error::TooLarge`].
    pub fn with_shape(
        buckets: u64,
        remainder_bits: u64,
        counter_bits: u64,
        seed: u64,
    ) -> Result<Self, Error> {
        if remainder_bits == 0 || counter_bits == 0 || remainder_bits.saturating_add(counter_bits) > 32 {
            let detail = format!("{remainder_bits} and {counter_bits} bits, expected 1 or more and up to 32");
            return Err(Error::invalid(detail));
        }
        if buckets > BUCKETS_MAX {
            return Err(Error::TooLarge(buckets));
        }
        let shape = Shape { buckets, remainder_bits, counter_bits };
        Ok(Self { cells: Cells::new(shape.cells(), shape.width())?, shape, used: 0, seed })
    }

    fn most(&self) -> u64 {
        (1 << self.shape.counter_bits) - 1
    }

    /// Counter 0 is free.
    #[inline]
    fn cell(&self, index: u64) -> (u64, u64) {
        let cell = self.cells.get(index);
        (cell >> self.shape.counter_bits, cell & self.most())
    }

    fn set(&mut self, index: u64, remainder: u64, count: u64) {
        let value = if count == 0 { 0 } else { remainder << self.shape.counter_bits | count };
        self.cells.set(index, value);
    }

    /// The cell with the hash's remainder, the remainder, and the count.
    #[inline]
    fn find(&self, places: [(u64, u64); 4]) -> Option<(u64, u64, u64)> {
        places.into_iter().find_map(|(first, remainder)| {
            if remainder == 0 {
                // A free cell also has remainder 0.
                let stored = |&index: &u64| matches!(self.cell(index), (0, 1..));
                let index = (first..first + HEIGHT).find(stored)?;
                return Some((index, remainder, self.cell(index).1));
            }
            let value = remainder << self.shape.counter_bits;
            let mut halves = (first..first + HEIGHT).step_by(4);
            let index = halves.find_map(|half| self.cells.find_in_four(half, value, self.most()))?;
            Some((index, remainder, self.cell(index).1))
        })
    }

    /// Adds a key; repetitions count.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if the key's four buckets are full.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        self.insert_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`DLeft::insert`].
    pub fn insert_hash(&mut self, hash: u64) -> Result<(), Error> {
        let places = self.shape.places(hash);
        if let Some((index, remainder, count)) = self.find(places) {
            self.set(index, remainder, (count + 1).min(self.most()));
            return Ok(());
        }
        let load = |first: u64| (first..first + HEIGHT).filter(|&index| self.cell(index).1 > 0).count();
        let loads = places.map(|(first, _)| load(first));
        let Some((table, _)) = loads.iter().enumerate().min_by_key(|&(_, load)| *load) else {
            return Err(Error::Full);
        };
        let (first, remainder) = places[table];
        let free = (first..first + HEIGHT).find(|&index| self.cell(index).1 == 0).ok_or(Error::Full)?;
        self.set(free, remainder, 1);
        self.used += 1;
        Ok(())
    }

    /// Undoes one insertion of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Absent`] if the key is certainly absent.
    pub fn remove(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        self.remove_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`remove`](Self::remove) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`DLeft::remove`].
    pub fn remove_hash(&mut self, hash: u64) -> Result<(), Error> {
        let (index, remainder, count) = self.find(self.shape.places(hash)).ok_or(Error::Absent)?;
        if count < self.most() {
            self.set(index, remainder, count - 1);
            self.used -= u64::from(count == 1);
        }
        Ok(())
    }

    /// Whether a key may be present.
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    #[inline]
    pub fn contains_hash(&self, hash: u64) -> bool {
        self.find(self.shape.places(hash)).is_some()
    }

    /// An upper bound of a key's insertions minus removals. `None` if saturated.
    #[must_use]
    pub fn count(&self, key: &(impl AsRef<[u8]> + ?Sized)) -> Option<u64> {
        self.count_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`count`](Self::count) by [hash](crate::hash).
    #[must_use]
    pub fn count_hash(&self, hash: u64) -> Option<u64> {
        let found = self.find(self.shape.places(hash));
        let count = found.map_or(0, |(_, _, count)| count);
        (count < self.most()).then_some(count)
    }

    /// Number of present keys. Keys with equal bucket and remainder count once.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.used
    }

    /// Whether the table has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Number of cells. If 6 of 8 are used, no bucket is full in practice.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.cells.count()
    }

    /// The rate: the share of pairs that are present.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        self.used as f64 / (self.shape.buckets as f64 * (self.shape.remainder_bits as f64).exp2())
    }

    /// The expected rate at `keys` distinct keys.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        let remainders = (self.shape.remainder_bits as f64).exp2();
        let met = keys as f64 / self.shape.buckets as f64;
        -(met * (-1.0 / remainders).ln_1p()).exp_m1()
    }
}

impl Sketch for DLeft {
    const KIND: Kind = Kind::DLeft;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.shape.buckets, self.shape.remainder_bits, self.shape.counter_bits]
    }

    fn body(&self) -> Vec<u8> {
        self.cells.bytes()
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let buckets = parameters.number_in(1, BUCKETS_MAX, "d-left buckets")?;
        let remainder_bits = parameters.number_in(1, 31, "d-left remainder bits")?;
        let counter_bits = parameters.number_in(1, 32 - remainder_bits, "d-left counter bits")?;
        parameters.finish()?;
        let shape = Shape { buckets, remainder_bits, counter_bits };
        let cells = Cells::from_body(&parts, shape.cells(), shape.width())?;
        let mut table = Self { cells, shape, used: 0, seed: parts.seed };
        for index in 0..shape.cells() {
            let (remainder, count) = table.cell(index);
            if count == 0 && remainder != 0 {
                return Err(parts.corrupt("d-left cell", "a free cell is not 0"));
            }
            table.used += u64::from(count > 0);
        }
        Ok(table)
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("buckets", format!("{TABLES} times {}, of {HEIGHT} cells", self.shape.buckets)),
                (
                    "cell",
                    format!("{} bits, {} of them a counter", self.shape.width(), self.shape.counter_bits),
                ),
                ("keys", self.used.to_string()),
                ("in use", format!("{:.1} %", 100.0 * self.used as f64 / self.cells.count() as f64)),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: self.cells.bytes().len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::counting::Counting;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hashes};

    fn filled(table: DLeft, keys: u64) -> DLeft {
        let mut table = table;
        hashes(keys).for_each(|hash| table.insert_hash(hash).unwrap());
        table
    }

    quickcheck! {
        fn what_is_inserted_and_not_removed_is_found(keys: Vec<u16>, removed: Vec<u16>) -> bool {
            let mut table = DLeft::with_shape(20, 3, 2, 1).unwrap();
            let mut model = Vec::new();
            for key in keys {
                if table.insert(&key.to_le_bytes()).is_ok() {
                    model.push(key);
                }
            }
            for key in removed {
                if let Some(at) = model.iter().position(|known| *known == key) {
                    model.swap_remove(at);
                    table.remove(&key.to_le_bytes()).unwrap();
                }
            }
            model.iter().all(|key| table.contains(&key.to_le_bytes()))
        }

        fn removing_everything_leaves_nothing(keys: Vec<u16>) -> bool {
            let mut table = DLeft::with_shape(100, 9, 8, 1).unwrap();
            keys.iter().for_each(|key| table.insert(&key.to_le_bytes()).unwrap());
            keys.iter().for_each(|key| table.remove(&key.to_le_bytes()).unwrap());
            table.is_empty() && table.cells.zeros() == table.cells()
        }

        fn permutations_let_keys_meet_in_all_tables_or_in_none(one: u64, two: u64, buckets: u8) -> bool {
            let shape = Shape { buckets: 1 + u64::from(buckets) % 7, remainder_bits: 3, counter_bits: 2 };
            let (one, two) = (shape.places(one), shape.places(two));
            let same = one.iter().zip(&two).filter(|(one, two)| one == two).count();
            same == 0 || same == 4
        }
    }

    #[test]
    fn a_permutation_reaches_every_pair_once() {
        let shape = Shape { buckets: 5, remainder_bits: 4, counter_bits: 1 };
        for table in 0..4 {
            let mut pairs = std::collections::HashMap::new();
            for hash in hashes(10_000) {
                let places = shape.places(hash);
                assert_eq!(*pairs.entry(places[0]).or_insert(places[table]), places[table]);
            }
            let images: std::collections::HashSet<_> = pairs.values().collect();
            assert_eq!((pairs.len(), images.len()), (80, 80));
        }
    }

    #[test]
    fn the_rate_is_that_of_the_formula() {
        for (rate, bits) in [(0.1, 8), (0.01, 12), (0.001, 15)] {
            let table = filled(DLeft::with_rate(50_000, rate, 1).unwrap(), 50_000);
            assert_eq!(table.shape.remainder_bits, bits);
            let found = absent_hashes(500_000).filter(|&hash| table.contains_hash(hash)).count();
            assert!(table.predicted_rate() < rate);
            assert_rate(&format!("{rate}"), found as u64, 500_000, table.predicted_rate(), 0.01);
            assert_rate(&format!("{rate}"), found as u64, 500_000, table.expected_rate(50_000), 0.02);
        }
    }

    #[test]
    fn a_table_as_full_as_planned_has_room_and_a_full_one_loses_nothing() {
        for keys in [10, 100, 1000, 100_000] {
            let mut table = filled(DLeft::with_rate(keys, 0.001, 1).unwrap(), keys);
            let more = absent_hashes(keys).take_while(|&hash| table.insert_hash(hash).is_ok()).count();
            assert!(more as u64 > keys / 6, "{keys}: {more}");
            let before = table.clone();
            assert!(absent_hashes(2 * keys + 100).any(|hash| table.insert_hash(hash) == Err(Error::Full)));
            assert!(hashes(keys).all(|hash| table.contains_hash(hash)));
            assert!(table.len() >= before.len());
        }
    }

    #[test]
    fn it_takes_half_of_what_a_counting_filter_takes() {
        let table = DLeft::with_rate(100_000, 0.001, 1).unwrap().cells.bytes().len();
        let counting = Counting::with_rate(100_000, 0.001, 1).unwrap().body().len();
        assert!(2 * table < counting, "{table} {counting}");
    }

    #[test]
    fn in_the_space_of_a_counting_filter_the_rate_is_28_000_times_lower() {
        let keys = 24_000;
        let table = DLeft::with_shape(keys / 24, 26, 2, 1).unwrap();
        let counting = Counting::with_rate(keys, 0.01, 1).unwrap();
        assert!(table.body().len() < counting.body().len());
        let ratio = counting.expected_rate(keys) / table.expected_rate(keys);
        assert!((27_500.0..28_500.0).contains(&ratio), "{ratio}");
    }

    fn lost(keys: u64, places: impl Fn(u64) -> [(u64, u64); 4]) -> usize {
        let mut buckets: std::collections::HashMap<u64, Vec<(u64, u64)>> = std::collections::HashMap::new();
        let mut change = |hash: u64, insert: bool| {
            let places = places(hash);
            for (bucket, remainder) in places {
                let cells = buckets.entry(bucket).or_default();
                if let Some(at) = cells.iter().position(|cell| cell.0 == remainder) {
                    cells[at].1 = if insert { cells[at].1 + 1 } else { cells[at].1 - 1 };
                    cells.retain(|cell| cell.1 > 0);
                    return true;
                }
            }
            if insert {
                let (bucket, remainder) =
                    places.into_iter().min_by_key(|place| buckets[&place.0].len()).unwrap();
                buckets.entry(bucket).or_default().push((remainder, 1));
            }
            insert
        };
        hashes(keys).for_each(|hash| _ = change(hash, true));
        hashes(keys).step_by(2).for_each(|hash| _ = change(hash, false));
        // A key that is not found is lost. Removing the others can lose keys that are removed later.
        hashes(keys).skip(1).step_by(2).filter(|&hash| !change(hash, false)).count()
    }

    #[test]
    fn without_permutations_removals_lose_present_keys() {
        let shape = Shape { buckets: 250, remainder_bits: 8, counter_bits: 8 };
        let independent = |hash: u64| {
            let remainder = remix(spread(hash)) >> 32 & 0xff;
            std::array::from_fn(|table| {
                let table = table as u64;
                ((table * 250 + reduce(nth(hash, table), 250)) * HEIGHT, remainder)
            })
        };
        assert_eq!(lost(6000, |hash| shape.places(hash)), 0);
        let lost = lost(6000, independent);
        assert!(lost > 20, "{lost}");
    }

    #[test]
    fn a_count_at_its_end_stays_there() {
        let mut table = DLeft::with_shape(10, 8, 2, 1).unwrap();
        (0..3).for_each(|_| table.insert(b"often").unwrap());
        assert_eq!((table.count(b"often"), table.count(b"never")), (None, Some(0)));
        (0..9).for_each(|_| table.remove(b"often").unwrap());
        assert!(table.contains(b"often"));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&filled(DLeft::with_shape(3, 9, 2, 1).unwrap(), 40));
        let mut bytes = DLeft::with_shape(1, 4, 4, 1).unwrap().encode();
        *bytes.last_mut().unwrap() = 0x10;
        crate::envelope::reseal(&mut bytes);
        assert_eq!(DLeft::decode(&bytes).unwrap_err().what, "d-left cell");
    }
}
