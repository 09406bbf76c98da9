//! A Bloom filter with timestamps, for keys with a time to live.
//!
//! 1. A tick is half the time to live. A cell has four bits: 0, or `1 + tick mod 15` of its last write.
//! 2. An insertion writes the current tick into the key's `k` cells.
//! 3. A key is possibly present if all its cells are from this tick or the two before.
//! 4. Each tick clears the expired cells in the next twelfth of the table, before their values wrap.
//!
//! As in the gem `bloombroom` (C. Haughton's "continuous" filter, 2012), where an unread cell looks fresh again after 13 ticks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arithmetic::{self, checked_rate, optimal_bits, optimal_probes};
use crate::envelope::{DecodeError, Kind, bytes_to_words, words_to_bytes};
use crate::error::Error;
use crate::hash::key_hash;
use crate::leap::Leaps;
use crate::probes::{PROBES_MAX, positions};
use crate::sketch::{Parts, Sketch, Summary};

/// Cell values for ticks.
const CLOCK: u64 = 15;

/// Earlier ticks of live cells.
const FRESH: u64 = 2;

/// Ticks of a complete sweep.
const SWEEP_TICKS: u64 = CLOCK - FRESH - 1;

const CELLS: u64 = 16;

const CELLS_MAX: u64 = 1 << 46;

/// Finds keys for a time to live, and up to half as long again.
///
/// Time has any unit. Times before the latest count as the latest.
///
/// ```
/// use sievedb_sketches::Expiring;
///
/// // For 60 seconds, with 1000 keys in that time.
/// let mut seen = Expiring::with_rate(1000, 0.01, 60, 42)?;
/// seen.insert(b"request 7", 1_000_000)?;
/// assert!(seen.contains(b"request 7", 1_000_060));
/// assert!(!seen.contains(b"request 7", 1_000_000 + seen.longest() + 1));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
///
/// # Guarantees
///
/// As for [`Ring`](crate::Ring#guarantees), with [`Expiring::least`], [`Expiring::longest`] and [`Expiring::predicted_rate`].
/// [Times that leap](crate::Ring#times-that-leap) fail.
///
/// # Cost
///
/// `k` cells per operation. Four bits per cell for the keys of 1.5 times the time to live: 58 bits per live key at 1 %.
///
/// # When not to use it
///
/// Little space: a [`Ring`](crate::Ring) of five spans takes 19 bits and probes five filters.
#[doc(alias = "ttl")]
#[derive(Debug)]
pub struct Expiring {
    words: Box<[AtomicU64]>,
    shape: Shape,
    present: u64,
    hand: u64,
    leaps: Leaps,
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    cells: u64,
    probes: u64,
    tick: u64,
}

/// Ticks since this nonzero value was written, modulo 15.
#[inline]
fn age(present: u64, value: u64) -> u64 {
    (present % CLOCK + CLOCK - (value - 1)) % CLOCK
}

impl Expiring {
    /// Finds keys for at least `ttl`, with at most `rate` at `keys` keys per `ttl`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1` and the time is at least 1; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, ttl: u64, seed: u64) -> Result<Self, Error> {
        let keys = keys.saturating_add(keys.div_ceil(2)).max(1);
        let cells = optimal_bits(keys, checked_rate(rate)?).max(CELLS);
        let probes = optimal_probes(cells as f64 / keys as f64).min(PROBES_MAX);
        Self::with_shape(cells, probes, ttl.div_ceil(2), seed)
    }

    /// `cells` cells, `probes` per key, and ticks of `tick`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are cells, 1 to 64 probes, and a tick of at least 1; [`Error::TooLarge`].
    pub fn with_shape(cells: u64, probes: u64, tick: u64, seed: u64) -> Result<Self, Error> {
        if cells == 0 || probes == 0 || probes > PROBES_MAX || tick == 0 {
            let detail = format!(
                "{cells} cells, {probes} probes, a tick of {tick}, expected 1 or more, 1 to {PROBES_MAX}, 1 or more"
            );
            return Err(Error::invalid(detail));
        }
        let too_large = Error::TooLarge(cells.div_ceil(2));
        if cells > CELLS_MAX {
            return Err(too_large);
        }
        let mut words = Vec::new();
        let len = cells.div_ceil(CELLS) as usize;
        words.try_reserve_exact(len).map_err(|_| too_large)?;
        words.resize_with(len, AtomicU64::default);
        let leaps = Leaps::new(tick.saturating_mul(FRESH + 1), false);
        let shape = Shape { cells, probes, tick };
        Ok(Self { words: words.into(), shape, present: 0, hand: 0, leaps, seed })
    }

    /// Sets the largest leap of a time, at least a tick. Not encoded.
    #[must_use]
    pub fn leap_max(mut self, units: u64) -> Self {
        self.leaps.set_max(units, self.shape.tick);
        self
    }

    /// Advances to `now`, as insertions do. Sweeps a twelfth of the cells per tick.
    ///
    /// # Errors
    ///
    /// [`Error::LeapTooLarge`].
    pub fn advance(&mut self, now: u64) -> Result<(), Error> {
        self.leaps.check(self.present.saturating_mul(self.shape.tick), now)?;
        self.leap(now);
        Ok(())
    }

    /// [`Expiring::advance`] without a limit on the leap.
    pub fn leap(&mut self, now: u64) {
        self.leaps.begin();
        let now = now / self.shape.tick;
        if now > self.present.saturating_add(FRESH) {
            self.words.iter_mut().for_each(|word| *word.get_mut() = 0);
            self.present = now;
        }
        while self.present < now {
            self.present += 1;
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let len = self.words.len() as u64;
        for _ in 0..len.div_ceil(SWEEP_TICKS) {
            let word = self.words[self.hand as usize].get_mut();
            for shift in (0..64).step_by(4) {
                let value = *word >> shift & 15;
                if value != 0 && age(self.present, value) > FRESH {
                    *word &= !(15 << shift);
                }
            }
            self.hand = if self.hand + 1 == len { 0 } else { self.hand + 1 };
        }
    }

    /// Adds a key, or renews its lifetime.
    ///
    /// # Errors
    ///
    /// [`Error::LeapTooLarge`].
    pub fn insert(&mut self, key: &(impl AsRef<[u8]> + ?Sized), now: u64) -> Result<(), Error> {
        self.insert_hash(key_hash(self.seed, key.as_ref()), now)
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// [`Error::LeapTooLarge`].
    pub fn insert_hash(&mut self, hash: u64, now: u64) -> Result<(), Error> {
        self.advance(now)?;
        let value = 1 + self.present % CLOCK;
        for cell in positions(hash, self.shape.probes, self.shape.cells) {
            let (word, shift) = (self.words[(cell / CELLS) as usize].get_mut(), 4 * (cell % CELLS));
            *word = *word & !(15 << shift) | value << shift;
        }
        Ok(())
    }

    /// Adds a key at the latest time, while other threads use the filter.
    pub fn insert_shared(&self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.insert_hash_shared(key_hash(self.seed, key.as_ref()));
    }

    /// [`insert_shared`](Self::insert_shared) by [hash](crate::hash).
    pub fn insert_hash_shared(&self, hash: u64) {
        let value = 1 + self.present % CLOCK;
        for cell in positions(hash, self.shape.probes, self.shape.cells) {
            let (word, shift) = (&self.words[(cell / CELLS) as usize], 4 * (cell % CELLS));
            // Time cannot advance now: all threads write the same value.
            if word.load(Relaxed) >> shift & 15 != value {
                let _ =
                    word.fetch_update(Relaxed, Relaxed, |word| Some(word & !(15 << shift) | value << shift));
            }
        }
    }

    /// Whether a key may have been inserted recently. `false` is certain until [`Expiring::least`].
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized), now: u64) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()), now)
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    pub fn contains_hash(&self, hash: u64, now: u64) -> bool {
        let behind = (now / self.shape.tick).saturating_sub(self.present);
        positions(hash, self.shape.probes, self.shape.cells).all(|cell| self.is_fresh(cell, behind))
    }

    #[inline]
    fn is_fresh(&self, cell: u64, behind: u64) -> bool {
        let value = self.words[(cell / CELLS) as usize].load(Relaxed) >> (4 * (cell % CELLS)) & 15;
        value != 0 && age(self.present, value).saturating_add(behind) <= FRESH
    }

    /// Least lifetime of a key.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.shape.tick.saturating_mul(FRESH)
    }

    /// Longest lifetime of a key.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.shape.tick.saturating_mul(FRESH + 1)
    }

    fn fresh(&self, now: u64) -> u64 {
        let behind = (now / self.shape.tick).saturating_sub(self.present);
        (0..self.shape.cells).filter(|&cell| self.is_fresh(cell, behind)).count() as u64
    }

    /// The rate at `now`. Linear.
    #[must_use]
    pub fn predicted_rate(&self, now: u64) -> f64 {
        (self.fresh(now) as f64 / self.shape.cells as f64).powf(self.shape.probes as f64)
    }

    /// The expected rate with `keys` distinct keys in three ticks.
    #[must_use]
    pub fn expected_rate(&self, keys: u64) -> f64 {
        arithmetic::rate(self.shape.cells as f64 / keys as f64, self.shape.probes as f64)
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.shape.cells
    }

    /// Cells per key.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.shape.probes
    }

    fn loads(&self) -> impl Iterator<Item = u64> {
        self.words.iter().map(|word| word.load(Relaxed))
    }
}

impl Clone for Expiring {
    fn clone(&self) -> Self {
        Self { words: self.loads().map(AtomicU64::new).collect(), ..*self }
    }
}

impl PartialEq for Expiring {
    fn eq(&self, other: &Self) -> bool {
        let fields = |filter: &Self| (filter.shape, filter.present, filter.hand, filter.seed);
        fields(self) == fields(other) && self.loads().eq(other.loads())
    }
}

impl Sketch for Expiring {
    const KIND: Kind = Kind::Expiring;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.shape.cells, self.shape.probes, self.shape.tick, self.present, self.hand]
    }

    fn body(&self) -> Vec<u8> {
        words_to_bytes(self.loads(), self.shape.cells.div_ceil(2))
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let cells = parameters.number_in(1, CELLS_MAX, "expiring cells")?;
        let probes = parameters.number_in(1, PROBES_MAX, "expiring probes")?;
        let tick = parameters.number_in(1, u64::MAX, "expiring tick")?;
        let present = parameters.number("expiring present tick")?;
        let hand = parameters.number_in(0, cells.div_ceil(CELLS) - 1, "expiring hand")?;
        parameters.finish()?;
        let body = parts.body_of(Some(cells.div_ceil(2)))?;
        if !cells.is_multiple_of(2) && body.last().is_some_and(|last| last >> 4 != 0) {
            return Err(parts.corrupt("expiring body", "bits after the last cell are set"));
        }
        let has_begun = present > 0 || body.iter().any(|&byte| byte != 0);
        let leaps = Leaps::new(tick.saturating_mul(FRESH + 1), has_begun);
        let words = bytes_to_words(body).map(AtomicU64::new).collect();
        Ok(Self { words, shape: Shape { cells, probes, tick }, present, hand, leaps, seed: parts.seed })
    }

    fn summary(&self) -> Summary {
        let keys = arithmetic::keys_of_ones(self.shape.cells, self.shape.probes, self.fresh(0));
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("cells", format!("{} of 4 bits", self.shape.cells)),
                ("probes", self.shape.probes.to_string()),
                ("remembers", format!("{} to {} units of time", self.least(), self.longest())),
                ("latest tick", format!("from {}", self.present.saturating_mul(self.shape.tick))),
                (
                    "keys",
                    keys.map_or("unknown, because all cells are live".into(), |keys| {
                        format!("about {keys:.0} in three ticks")
                    }),
                ),
            ],
            predicted_rate: Some(self.predicted_rate(0)),
            body_bytes: self.shape.cells.div_ceil(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    quickcheck! {
        fn a_key_is_found_as_long_as_promised_and_no_longer(times: Vec<u16>, tick: u8, ask: u8) -> bool {
            let mut filter = Expiring::with_shape(50_000, 20, 1 + u64::from(tick) % 9, 1).unwrap();
            let mut latest = 0;
            let mut model = Vec::new();
            for (number, &time) in times.iter().enumerate() {
                let now = u64::from(time) % 1000;
                latest = now.max(latest);
                filter.insert_hash(hash(number as u64), now).unwrap();
                model.push(latest);
            }
            let now = latest + u64::from(ask);
            model.iter().enumerate().all(|(number, &inserted)| {
                let found = filter.contains_hash(hash(number as u64), now);
                let age = now - inserted;
                (age > filter.least() || found) && (age < filter.longest() || !found)
            })
        }
    }

    #[test]
    fn the_lifetime_is_between_the_least_and_the_longest_at_every_time_of_insertion() {
        let filter = Expiring::with_rate(10, 0.000_001, 60, 1).unwrap();
        assert_eq!((filter.least(), filter.longest()), (60, 90));
        let (mut shortest, mut longest) = (u64::MAX, 0);
        for inserted in 0..1000 {
            let mut filter = filter.clone();
            filter.insert(b"key", inserted).unwrap();
            let life = (0..200).take_while(|age| filter.contains(b"key", inserted + age)).count() as u64;
            assert!((0..200).all(|age| filter.contains(b"key", inserted + age) == (age < life)));
            (shortest, longest) = (shortest.min(life), longest.max(life));
        }
        assert_eq!((shortest, longest), (61, 90));
    }

    #[test]
    fn a_forgotten_key_stays_forgotten_when_the_clock_comes_round() {
        let mut filter = Expiring::with_shape(10_000, 10, 10, 1).unwrap();
        let mut zombies = 0;
        for tick in 0..200 {
            filter.insert_hash(hash(tick), 10 * tick).unwrap();
            let over = (0..tick.saturating_sub(FRESH)).map(hash);
            zombies += over.filter(|&hash| filter.contains_hash(hash, 10 * tick)).count();
        }
        assert_eq!(zombies, 0);
    }

    #[test]
    fn without_the_sweep_they_would_come_back() {
        let mut filter = Expiring::with_shape(10_000, 10, 10, 1).unwrap();
        let mut zombies = 0;
        for tick in 0..200 {
            filter.present = tick;
            filter.insert_hash(hash(tick), 10 * tick).unwrap();
            let over = (0..tick.saturating_sub(FRESH)).map(hash);
            zombies += over.filter(|&hash| filter.contains_hash(hash, 10 * tick)).count();
        }
        assert!(zombies > 1000, "{zombies}");
    }

    #[test]
    fn the_rate_is_that_of_the_keys_of_three_ticks_for_ever() {
        // The example of bloombroom: 60 000 keys in three ticks, 0.1 %.
        let mut filter = Expiring::with_rate(40_000, 0.001, 1000, 1).unwrap();
        assert_eq!(filter.probes(), 10);
        assert!(filter.cells().abs_diff(862_656) < 100, "{}", filter.cells());
        for now in 0..20_000 {
            (0..40).for_each(|key| filter.insert_hash(hash(40 * now + key), now).unwrap());
        }
        let found = absent_hashes(1_000_000).filter(|&hash| filter.contains_hash(hash, 19_999)).count();
        assert_rate("end", found as u64, 1_000_000, filter.expected_rate(60_000), 0.03);
        assert_rate("end", found as u64, 1_000_000, filter.predicted_rate(19_999), 0.03);
        let old = hashes(400_000).filter(|&hash| filter.contains_hash(hash, 19_999)).count();
        assert_rate("forgotten", old as u64, 400_000, filter.predicted_rate(19_999), 0.03);
    }

    #[test]
    fn one_time_far_ahead_is_refused_and_new_keys_stay_new() {
        let found_wrongly = |takes_it: bool| {
            let mut filter = Expiring::with_rate(60, 0.01, 60, 1).unwrap();
            let mut found = 0;
            for (number, hash) in hashes(20_000).enumerate() {
                let now = 1_700_000_000 + number as u64;
                if number == 100 {
                    let before = filter.clone();
                    let error = filter.insert_hash(hash, now << 10).unwrap_err();
                    assert!(matches!(error, Error::LeapTooLarge { max: 90_000, .. }), "{error}");
                    assert!(filter == before);
                    if takes_it {
                        filter.leap(now << 10);
                    }
                }
                found += u32::from(filter.contains_hash(hash, now));
                filter.insert_hash(hash, now).unwrap();
            }
            found
        };
        assert!(found_wrongly(false) < 400, "{}", found_wrongly(false));
        assert!(found_wrongly(true) > 18_000, "{}", found_wrongly(true));
    }

    #[test]
    fn the_bound_on_leaps_is_set_by_the_caller_and_holds_after_decoding() {
        let mut filter = Expiring::with_shape(100, 3, 10, 1).unwrap().leap_max(25);
        filter.insert(b"first", 1_000_000).unwrap();
        filter.advance(1_000_025).unwrap();
        assert_eq!(filter.advance(1_000_046), Err(Error::LeapTooLarge { ahead: 26, max: 25 }));
        filter.leap(1_000_046);
        let mut decoded = Expiring::decode(&filter.encode()).unwrap();
        assert!(decoded == filter);
        decoded.advance(1_000_040 + 30_000).unwrap();
        assert!(decoded.advance(1_000_040 + 70_000).is_err());
        let mut filter = Expiring::with_shape(100, 3, 10, 1).unwrap().leap_max(0);
        (0..100).for_each(|now| filter.insert(b"key", now).unwrap());
        let empty = Expiring::with_shape(100, 3, 10, 1).unwrap().encode();
        Expiring::decode(&empty).unwrap().advance(u64::MAX).unwrap();
    }

    #[test]
    fn threads_insert_at_the_present_tick() {
        let mut filter = Expiring::with_shape(100_000, 7, 10, 1).unwrap();
        (0..100).for_each(|now| filter.insert_hash(hash(now), 10 * now).unwrap());
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let filter = &filter;
                scope.spawn(move || {
                    (0..1000u64).for_each(|key| filter.insert_shared(&(thread * 1000 + key).to_le_bytes()))
                });
            }
        });
        assert!((0..4000u64).all(|key| filter.contains(&key.to_le_bytes(), 990)));
        assert!((98..100).all(|key| filter.contains_hash(hash(key), 990)));
    }

    #[test]
    fn time_that_leaps_leaves_nothing_and_time_that_goes_back_is_the_latest() {
        let mut filter = Expiring::with_shape(10_000, 20, 10, 1).unwrap().leap_max(u64::MAX);
        hashes(20).for_each(|hash| filter.insert_hash(hash, 5).unwrap());
        filter.insert(b"now", 5 + 150 * 1000).unwrap();
        assert!(hashes(20).all(|hash| !filter.contains_hash(hash, 0)));
        filter.insert(b"late", 3).unwrap();
        assert!(filter.contains(b"late", 150_000) && filter.contains(b"now", 7));
        filter.insert(b"end", u64::MAX).unwrap();
        assert!(filter.contains(b"end", u64::MAX) && !filter.contains(b"now", u64::MAX));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        let mut filter = Expiring::with_shape(77, 3, 10, 1).unwrap();
        hashes(30)
            .enumerate()
            .for_each(|(number, hash)| filter.insert_hash(hash, 3 * number as u64).unwrap());
        check_codec(&filter);
    }
}
