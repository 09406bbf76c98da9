//! The cuckoo filter: each fingerprint is in one of two buckets.
//!
//! 1. A key has a fingerprint `p`, a first bucket `i`, and a second bucket `h(p) - i` modulo `B`. This map is its own inverse,
//!    so a fingerprint can move without its key.
//! 2. A bucket has four slots. A key is possibly present if one of its buckets has its fingerprint.
//! 3. An insertion into full buckets moves fingerprints to their other buckets, up to 500 times. If it finds no free slot, all
//!    moves are undone.
//!
//! Fan, Andersen, Kaminsky and Mitzenmacher, "Cuckoo Filter: Practically Better Than Bloom" (2014), section 3, with `i xor h(p)`,
//! for which `B` must be a power of two.

use crate::arithmetic::checked_rate;
use crate::cells::{Cells, WIDTH_MAX};
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::{STEP, key_hash, nth, reduce, remix, spread};
use crate::sketch::{Parts, Sketch, Summary};

const SLOTS: u64 = 4;

const MOVES_MAX: usize = 500;

const LOAD: f64 = 0.95;

const BUCKETS_MAX: u64 = 1 << 44;

/// A filter with removal, smaller than a Bloom filter at rates below 0.4 %.
///
/// ```
/// use sievedb_sketches::{Cuckoo, Error};
///
/// let mut open = Cuckoo::with_rate(10_000, 0.001, 42)?;
/// open.insert(b"connection 7")?;
/// open.remove(b"connection 7")?;
/// assert!(!open.contains(b"connection 7"));
/// assert_eq!(open.remove(b"connection 7"), Err(Error::Absent));
/// # Ok::<(), Error>(())
/// ```
///
/// # Guarantees
///
/// As for [`Counting`](crate::Counting#guarantees), with [`Cuckoo::predicted_rate`].
///
/// # Cost
///
/// A query reads two buckets. An insertion moves about ten fingerprints at a load of 95 %. `f / 0.95` bits per key, `f` at least
/// `log2(8 / rate)`: 10.5 at 1 %.
///
/// # When not to use it
///
/// Filters that must never be full. Keys inserted more than eight times: [`DLeft`](crate::DLeft). Complete sets:
/// [`Digest`](crate::Digest).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuckoo {
    cells: Cells,
    buckets: u64,
    width: u64,
    used: u64,
    state: u64,
    seed: u64,
}

impl Cuckoo {
    /// Has at most `rate` at `keys` keys.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if the rate is not between 2^-29 and 1; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, seed: u64) -> Result<Self, Error> {
        let rate = checked_rate(rate)?;
        let width = (2.0 * SLOTS as f64 * LOAD / rate + 1.0).log2().ceil().max(2.0);
        // The load varies more in a small table.
        let slots = keys as f64 / LOAD + 4.0 * (keys as f64).sqrt().min(16.0);
        Self::with_shape((slots / SLOTS as f64).ceil().max(1.0) as u64, width as u64, seed)
    }

    /// `buckets` buckets of four `width`-bit fingerprints.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are buckets and the width is 2 to 32; [`Error::TooLarge`].
    pub fn with_shape(buckets: u64, width: u64, seed: u64) -> Result<Self, Error> {
        if !(2..=WIDTH_MAX).contains(&width) {
            return Err(Error::invalid(format!("fingerprints of {width} bits, expected 2 to {WIDTH_MAX}")));
        }
        if buckets > BUCKETS_MAX {
            return Err(Error::TooLarge(buckets));
        }
        let cells = Cells::new(buckets * SLOTS, width)?;
        Ok(Self { cells, buckets, width, used: 0, state: seed, seed })
    }

    #[inline]
    fn places(&self, hash: u64) -> (u64, [u64; 2]) {
        let hash = spread(hash);
        let fingerprint = 1 + reduce(remix(hash), self.cells.max());
        let first = reduce(hash, self.buckets);
        (fingerprint, [first, self.other(fingerprint, first)])
    }

    #[inline]
    fn other(&self, fingerprint: u64, bucket: u64) -> u64 {
        let sum = reduce(nth(fingerprint, 1), self.buckets);
        if sum >= bucket { sum - bucket } else { sum + self.buckets - bucket }
    }

    /// A slot with this fingerprint; for 0, a free slot.
    #[inline]
    fn find(&self, bucket: u64, fingerprint: u64) -> Option<u64> {
        self.cells.find_in_four(bucket * SLOTS, fingerprint, 0)
    }

    /// Adds a key; a repeated key takes another slot.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there is no room.
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        self.insert_hash(key_hash(self.seed, key.as_ref()))
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`Cuckoo::insert`].
    pub fn insert_hash(&mut self, hash: u64) -> Result<(), Error> {
        let (fingerprint, buckets) = self.places(hash);
        let free = buckets.into_iter().find_map(|bucket| self.find(bucket, 0));
        match free {
            Some(slot) => self.cells.set(slot, fingerprint),
            None => self.make_room(fingerprint, buckets)?,
        }
        self.used += 1;
        Ok(())
    }

    fn make_room(&mut self, fingerprint: u64, buckets: [u64; 2]) -> Result<(), Error> {
        let before = self.state;
        let mut moved = Vec::new();
        let mut carried = fingerprint;
        let mut bucket = buckets[(self.chance() & 1) as usize];
        while moved.len() < MOVES_MAX {
            let slot = bucket * SLOTS + self.chance() % SLOTS;
            let found = self.cells.get(slot);
            self.cells.set(slot, carried);
            moved.push((slot, found));
            carried = found;
            bucket = self.other(carried, bucket);
            if let Some(free) = self.find(bucket, 0) {
                self.cells.set(free, carried);
                return Ok(());
            }
        }
        moved.into_iter().rev().for_each(|(slot, found)| self.cells.set(slot, found));
        self.state = before;
        Err(Error::Full)
    }

    fn chance(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        spread(spread(self.state)) >> 32
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
    /// As [`Cuckoo::remove`].
    pub fn remove_hash(&mut self, hash: u64) -> Result<(), Error> {
        let (fingerprint, buckets) = self.places(hash);
        let slot =
            buckets.into_iter().find_map(|bucket| self.find(bucket, fingerprint)).ok_or(Error::Absent)?;
        self.cells.set(slot, 0);
        self.used -= 1;
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
        let (fingerprint, buckets) = self.places(hash);
        buckets.into_iter().any(|bucket| self.find(bucket, fingerprint).is_some())
    }

    /// Insertions minus removals.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.used
    }

    /// Whether the filter has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Number of slots, of which 95 to 98 % can be used.
    #[must_use]
    pub fn slots(&self) -> u64 {
        self.cells.count()
    }

    /// The rate at the average load.
    #[must_use]
    pub fn predicted_rate(&self) -> f64 {
        self.expected_rate(self.used)
    }

    /// The expected rate at `keys` keys.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        let met = 2.0 - 1.0 / self.buckets as f64;
        let met = met * keys as f64 / self.buckets as f64;
        -(met * (-1.0 / self.cells.max() as f64).ln_1p()).exp_m1()
    }
}

impl Sketch for Cuckoo {
    const KIND: Kind = Kind::Cuckoo;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.buckets, self.width, self.state]
    }

    fn body(&self) -> Vec<u8> {
        self.cells.bytes()
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let buckets = parameters.number_in(1, BUCKETS_MAX, "cuckoo buckets")?;
        let width = parameters.number_in(2, WIDTH_MAX, "cuckoo width")?;
        let state = parameters.number("cuckoo state")?;
        parameters.finish()?;
        let cells = Cells::from_body(&parts, buckets * SLOTS, width)?;
        let used = cells.count() - cells.zeros();
        Ok(Self { cells, buckets, width, used, state, seed: parts.seed })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("buckets", format!("{} of {SLOTS} slots", self.buckets)),
                ("fingerprints", format!("{} bits", self.width)),
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
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    fn filled(filter: Cuckoo, keys: u64) -> Cuckoo {
        let mut filter = filter;
        hashes(keys).for_each(|hash| filter.insert_hash(hash).unwrap());
        filter
    }

    quickcheck! {
        fn what_is_inserted_and_not_removed_is_found(keys: Vec<u16>, removed: Vec<u16>, buckets: u8, width: u8) -> bool {
            let (buckets, width) = (1 + u64::from(buckets) % 40, 2 + u64::from(width) % 31);
            let mut filter = Cuckoo::with_shape(buckets, width, 1).unwrap();
            let mut model = Vec::new();
            for key in keys {
                let before = filter.clone();
                match filter.insert(&key.to_le_bytes()) {
                    Ok(()) => model.push(key),
                    Err(_) => assert!(filter == before),
                }
            }
            for key in removed {
                if let Some(at) = model.iter().position(|known| *known == key) {
                    model.swap_remove(at);
                    filter.remove(&key.to_le_bytes()).unwrap();
                }
            }
            filter.len() == model.len() as u64 && model.iter().all(|key| filter.contains(&key.to_le_bytes()))
        }

        fn removing_everything_leaves_nothing(keys: Vec<u16>) -> bool {
            let mut filter = Cuckoo::with_shape(1000, 12, 1).unwrap();
            let mut kept = Vec::new();
            keys.iter().for_each(|key| if filter.insert(&key.to_le_bytes()).is_ok() { kept.push(key) });
            kept.iter().for_each(|key| filter.remove(&key.to_le_bytes()).unwrap());
            filter.is_empty() && filter.cells.zeros() == filter.slots()
        }

        fn the_other_bucket_of_the_other_is_the_first(hash: u64, buckets: u16) -> bool {
            let filter = Cuckoo::with_shape(1 + u64::from(buckets), 8, 1).unwrap();
            let (fingerprint, [first, second]) = filter.places(hash);
            second <= u64::from(buckets) && filter.other(fingerprint, second) == first
        }
    }

    #[test]
    fn the_rate_is_that_of_the_formula() {
        for rate in [0.1, 0.01, 0.001] {
            let filter = filled(Cuckoo::with_rate(100_000, rate, 1).unwrap(), 100_000);
            assert!(filter.predicted_rate() < rate && filter.predicted_rate() > rate / 2.1);
            let found = absent_hashes(500_000).filter(|&hash| filter.contains_hash(hash)).count();
            assert_rate(&format!("{rate}"), found as u64, 500_000, filter.predicted_rate(), 0.02);
        }
    }

    #[test]
    fn a_filter_of_any_size_takes_the_keys_that_it_was_made_for() {
        for keys in [1, 2, 10, 100, 1000, 1023, 1025, 50_000, 300_000] {
            for seed in 0..if keys < 2000 { 50 } else { 2 } {
                let mut filter = Cuckoo::with_rate(keys, 0.001, seed).unwrap();
                assert!(
                    (0..keys).all(|key| filter.insert_hash(hash(key + (seed << 32))).is_ok()),
                    "{keys} {seed}"
                );
            }
        }
        let filter = Cuckoo::with_rate(300_000, 0.001, 1).unwrap();
        assert!((filter.slots() as f64) < 300_000.0 / 0.949);
    }

    #[test]
    fn a_full_filter_says_so_and_has_lost_nothing() {
        for buckets in [1, 7, 1000] {
            let mut filter = Cuckoo::with_shape(buckets, 12, 1).unwrap();
            let taken = hashes(1 << 20).take_while(|&hash| filter.insert_hash(hash).is_ok()).count() as u64;
            assert!(
                taken <= filter.slots() && (buckets < 1000 || taken * 100 > filter.slots() * 96),
                "{taken}"
            );
            let full = filter.clone();
            assert_eq!(filter.insert_hash(hash(taken)), Err(Error::Full));
            assert!(filter == full);
            assert!(hashes(taken).all(|hash| filter.contains_hash(hash)));
            filter.remove_hash(hash(0)).unwrap();
            assert_eq!(filter.len(), taken - 1);
        }
    }

    #[test]
    fn eight_of_one_key_are_all_that_fit() {
        let mut filter = Cuckoo::with_shape(100, 12, 1).unwrap();
        (0..8).for_each(|_| filter.insert(b"same").unwrap());
        assert_eq!(filter.insert(b"same"), Err(Error::Full));
        filter.insert(b"other").unwrap();
        (0..8).for_each(|_| filter.remove(b"same").unwrap());
        assert_eq!(filter.remove(b"same"), Err(Error::Absent));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        check_codec(&filled(Cuckoo::with_shape(11, 9, 1).unwrap(), 30));
    }
}
