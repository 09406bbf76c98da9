//! The ring: keys inserted recently, which expire by spans.
//!
//! There is a Bloom filter for each of the last `N` spans of equal length, and one that is being cleared. An insertion goes to
//! the present span's filter. A key is possibly present if one of the `N` has it.
//!
//! A key is found for more than `N - 1` and up to `N` spans. The rates add up. This is the double buffering of Chang, Feng and
//! Li (2004, section IV) with more buffers.

use crate::arithmetic::{checked_rate, optimal_bits, optimal_probes};
use crate::bloom::Bloom;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::key_hash;
use crate::leap::Leaps;
use crate::probes::{Hashing, PROBES_MAX};
use crate::sketch::{Parts, Sketch, Summary};

const SPANS_MAX: u64 = 255;

const SPAN_MAX: u64 = u64::MAX - 1;

/// Words of the expired filter cleared per insertion.
const SWEEP_WORDS: usize = 16;

/// Finds keys for a time after insertion.
///
/// Time has any unit. Times before the latest count as the latest.
///
/// ```
/// use sievedb_sketches::Ring;
///
/// // For at least 60 seconds; 1000 keys in such a time.
/// let mut seen = Ring::with_rate(1000, 0.01, 60, 4, 42)?;
/// seen.insert(b"request 7", 1_000_000)?;
/// assert!(seen.contains(b"request 7", 1_000_060));
/// assert!(!seen.contains(b"request 7", 1_000_000 + seen.longest() + 1));
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
///
/// # Guarantees
///
/// A key is found for [`Ring::least`] after its last insertion, and expires after at most [`Ring::longest`]. An expired or
/// absent key is found with probability [`Ring::predicted_rate`].
///
/// # Times that leap
///
/// A time far in the future would stop expiry until then. So a time more than 1000 longest lifetimes after the latest one fails
/// with [`Error::LeapTooLarge`], unless it is the first. [`Ring::leap_max`] sets another bound; [`Ring::leap`] has none.
///
/// # Cost
///
/// An absent key probes `N` Bloom filters. Space for the keys of `N + 1` spans at `rate / N`: 19 bits per live key at 1 % with 5
/// spans.
///
/// # When not to use it
///
/// If keys may be found 1.5 times as long: [`Expiring`](crate::Expiring) probes one filter. Constant memory:
/// [`Stable`](crate::Stable).
#[derive(Debug, Clone)]
pub struct Ring {
    /// Filter `i` has the latest span whose number, modulo the number of filters, is `i`.
    slices: Vec<Bloom>,
    span: u64,
    present: u64,
    /// First uncleared word of the next span's filter.
    dirty: usize,
    leaps: Leaps,
    seed: u64,
}

impl Ring {
    /// Finds keys for at least `ttl` and at most `ttl · spans / (spans - 1)`, slightly more if `spans - 1` does not divide `ttl`,
    /// with at most `rate` at `keys` keys per `ttl`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless `0 < rate < 1`, `ttl > 0`, and there are 2 to 255 spans; [`Error::TooLarge`].
    pub fn with_rate(keys: u64, rate: f64, ttl: u64, spans: u64, seed: u64) -> Result<Self, Error> {
        if !(2..=SPANS_MAX).contains(&spans) || ttl == 0 {
            return Err(Error::invalid(format!(
                "{spans} spans and a time of {ttl}, expected 2 to 255 and 1 or more"
            )));
        }
        let span = ttl.div_ceil(spans - 1);
        let keys = (keys as f64 * span as f64 / ttl as f64).ceil().max(1.0) as u64;
        let bits = optimal_bits(keys, checked_rate(rate)? / spans as f64).max(64);
        let probes = optimal_probes(bits as f64 / keys as f64).min(PROBES_MAX);
        Self::with_shape(spans, span, bits, probes, seed)
    }

    /// `spans + 1` filters of `bits` bits and `probes` probes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] unless there are 1 to 255 spans of at least 1, 1 to 64 probes, and bits; [`Error::TooLarge`].
    pub fn with_shape(spans: u64, span: u64, bits: u64, probes: u64, seed: u64) -> Result<Self, Error> {
        if !(1..=SPANS_MAX).contains(&spans) || span == 0 {
            return Err(Error::invalid(format!("{spans} spans of {span}, expected 1 to 255 of 1 or more")));
        }
        let slice = |_| Bloom::with_shape(bits, probes, Hashing::Enhanced, seed);
        let slices = (0..=spans).map(slice).collect::<Result<Vec<_>, _>>()?;
        let dirty = slices[0].word_count();
        let leaps = Leaps::new(span.saturating_mul(spans), false);
        Ok(Self { slices, span, present: 0, dirty, leaps, seed })
    }

    /// Sets the largest leap of a time, at least a span. Not encoded.
    #[must_use]
    pub fn leap_max(mut self, units: u64) -> Self {
        self.leaps.set_max(units, self.span);
        self
    }

    fn spans(&self) -> u64 {
        self.slices.len() as u64 - 1
    }

    fn place(&self, span: u64) -> usize {
        (span % self.slices.len() as u64) as usize
    }

    fn span_at(&self, now: u64) -> u64 {
        (now / self.span).clamp(self.present, SPAN_MAX)
    }

    /// Advances to the time `now`, as insertions do.
    ///
    /// # Errors
    ///
    /// [`Error::LeapTooLarge`].
    pub fn advance(&mut self, now: u64) -> Result<(), Error> {
        self.leaps.check(self.present.saturating_mul(self.span), now)?;
        self.leap(now);
        Ok(())
    }

    /// [`Ring::advance`] without a limit on the leap.
    pub fn leap(&mut self, now: u64) {
        self.leaps.begin();
        let present = self.span_at(now);
        let first = (self.present + 1).max(present.saturating_sub(self.spans()));
        for span in first..=present {
            if span > self.present + 1 {
                self.present = span - 1;
                self.dirty = 0;
            }
            self.sweep(usize::MAX);
            self.present = span;
            self.dirty = 0;
        }
    }

    fn sweep(&mut self, words: usize) {
        let spare = self.place(self.present + 1);
        self.dirty = self.slices[spare].clear_words(self.dirty, words);
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
        self.sweep(SWEEP_WORDS);
        let place = self.place(self.present);
        self.slices[place].insert_hash(hash);
        Ok(())
    }

    /// Adds a key at the latest time, while other threads use the ring.
    pub fn insert_shared(&self, key: &(impl AsRef<[u8]> + ?Sized)) {
        self.insert_hash_shared(key_hash(self.seed, key.as_ref()));
    }

    /// [`insert_shared`](Self::insert_shared) by [hash](crate::hash).
    pub fn insert_hash_shared(&self, hash: u64) {
        self.slices[self.place(self.present)].insert_hash_shared(hash);
    }

    /// Whether a key may have been inserted recently. `false` is certain until [`Ring::least`].
    #[must_use]
    pub fn contains(&self, key: &(impl AsRef<[u8]> + ?Sized), now: u64) -> bool {
        self.contains_hash(key_hash(self.seed, key.as_ref()), now)
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    #[must_use]
    pub fn contains_hash(&self, hash: u64, now: u64) -> bool {
        self.live(now).any(|span| self.slices[self.place(span)].contains_hash(hash))
    }

    fn live(&self, now: u64) -> impl Iterator<Item = u64> + use<> {
        let oldest = self.span_at(now).saturating_sub(self.spans() - 1);
        (oldest..=self.present).rev()
    }

    /// Least lifetime of a key.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.span.saturating_mul(self.spans() - 1)
    }

    /// Longest lifetime of a key.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.span.saturating_mul(self.spans())
    }

    /// The rate at `now`. Linear.
    #[must_use]
    pub fn predicted_rate(&self, now: u64) -> f64 {
        let recognised = |span| 1.0 - self.slices[self.place(span)].predicted_rate();
        1.0 - self.live(now).map(recognised).product::<f64>()
    }
}

/// Compares the encoded fields.
impl PartialEq for Ring {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |ring: &Self| (ring.span, ring.present, ring.dirty, ring.seed);
        numbers(self) == numbers(other) && self.slices == other.slices
    }
}

impl Sketch for Ring {
    const KIND: Kind = Kind::Ring;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.spans(), self.span, self.slices[0].bits(), self.slices[0].probes(), self.present]
    }

    fn body(&self) -> Vec<u8> {
        let live = (0..self.spans()).rev().filter_map(|age| self.present.checked_sub(age));
        let mut body: Vec<u8> = live.flat_map(|span| self.slices[self.place(span)].body()).collect();
        let len = self.slices[0].bits().div_ceil(8) * self.spans();
        body.resize(len as usize, 0);
        body
    }

    fn from_parts(Parts(parts): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = parts.parameters();
        let spans = parameters.number_in(1, SPANS_MAX, "ring spans")?;
        let span = parameters.number_in(1, u64::MAX, "ring span")?;
        let bits = parameters.number_in(1, 1 << 48, "ring bits")?;
        let probes = parameters.number_in(1, PROBES_MAX, "ring probes")?;
        let present = parameters.number_in(0, SPAN_MAX, "ring present span")?;
        parameters.finish()?;
        let len = bits.div_ceil(8);
        let body = parts.body_of(Some(len * spans))?;
        let filter = |bytes: &[u8]| Bloom::from_bits(&parts, bytes, bits, probes, Hashing::Enhanced);
        let empty = filter(&vec![0; len as usize])?;
        let dirty = empty.word_count();
        let has_begun = present > 0 || body.iter().any(|&byte| byte != 0);
        let leaps = Leaps::new(span.saturating_mul(spans), has_begun);
        let slices = vec![empty; spans as usize + 1];
        let mut ring = Self { slices, span, present, dirty, leaps, seed: parts.seed };
        let known = (0..spans).rev().filter_map(|age| present.checked_sub(age));
        let mut bodies = body.chunks(len as usize);
        for (span, bytes) in known.zip(&mut bodies) {
            let place = ring.place(span);
            ring.slices[place] = filter(bytes)?;
        }
        if bodies.any(|bytes| bytes.iter().any(|&byte| byte != 0)) {
            return Err(parts.corrupt("ring body", "has keys of spans before the first"));
        }
        Ok(ring)
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("spans", self.spans().to_string()),
                ("span", format!("{} units of time", self.span)),
                ("remembers", format!("{} to {} units of time", self.least(), self.longest())),
                ("bits", format!("{} per span", self.slices[0].bits())),
                ("probes", self.slices[0].probes().to_string()),
                ("latest span", format!("from {}", self.present.saturating_mul(self.span))),
            ],
            predicted_rate: Some(self.predicted_rate(0)),
            body_bytes: self.slices[0].bits().div_ceil(8) * self.spans(),
        }
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    quickcheck! {
        fn a_key_is_found_as_long_as_promised_and_no_longer(times: Vec<u16>, spans: u8, span: u8, ask: u16) -> bool {
            let (spans, span) = (1 + u64::from(spans) % 9, 1 + u64::from(span) % 50);
            let mut ring = Ring::with_shape(spans, span, 100_000, 20, 1).unwrap();
            let mut latest = 0;
            let mut model = Vec::new();
            for (number, &time) in times.iter().enumerate() {
                let now = u64::from(time) % 1000;
                latest = now.max(latest);
                ring.insert_hash(hash(number as u64), now).unwrap();
                model.push(latest);
            }
            let now = latest + u64::from(ask) % 600;
            model.iter().enumerate().all(|(number, &inserted)| {
                let found = ring.contains_hash(hash(number as u64), now);
                let age = now - inserted;
                (age > ring.least() || found) && (age < ring.longest() || !found)
            })
        }
    }

    #[test]
    fn the_lifetime_is_between_the_least_and_the_longest_at_every_time_of_insertion() {
        let ring = Ring::with_rate(10, 0.000_001, 90, 4, 1).unwrap();
        assert_eq!((ring.least(), ring.longest()), (90, 120));
        let (mut shortest, mut longest) = (u64::MAX, 0);
        for inserted in 0..200 {
            let mut ring = ring.clone();
            ring.insert(b"key", inserted).unwrap();
            let life = (0..200).take_while(|age| ring.contains(b"key", inserted + age)).count() as u64;
            assert!((0..200).all(|age| ring.contains(b"key", inserted + age) == (age < life)));
            (shortest, longest) = (shortest.min(life), longest.max(life));
        }
        assert_eq!((shortest, longest), (91, 120));
    }

    #[test]
    fn rates_add_up_to_that_asked_for() {
        let mut ring = Ring::with_rate(10_000, 0.01, 1000, 5, 1).unwrap();
        for (number, hash) in hashes(30_000).enumerate() {
            ring.insert_hash(hash, number as u64 / 10).unwrap();
        }
        let now = 2999;
        let found = absent_hashes(500_000).filter(|&hash| ring.contains_hash(hash, now)).count();
        assert_rate("five slices", found as u64, 500_000, ring.predicted_rate(now), 0.03);
        assert!(ring.predicted_rate(now) < 0.0102 && ring.predicted_rate(now) > 0.008);
        let forgotten = hashes(15_000).filter(|&hash| ring.contains_hash(hash, now)).count();
        assert!(forgotten < 250, "{forgotten}");
    }

    #[test]
    fn time_that_leaps_leaves_nothing_and_time_that_goes_back_is_the_latest() {
        let mut ring = Ring::with_shape(3, 10, 10_000, 20, 1).unwrap().leap_max(u64::MAX);
        hashes(20).for_each(|hash| ring.insert_hash(hash, 5).unwrap());
        ring.insert(b"now", 1_000_000).unwrap();
        assert!(hashes(20).all(|hash| !ring.contains_hash(hash, 0)));
        ring.insert(b"late", 3).unwrap();
        assert!(ring.contains(b"late", 1_000_000) && ring.contains(b"now", 7));
        ring.insert(b"end", u64::MAX).unwrap();
        assert!(ring.contains(b"end", u64::MAX) && !ring.contains(b"now", u64::MAX));
    }

    #[test]
    fn one_time_far_ahead_is_refused_and_new_keys_stay_new() {
        let found_wrongly = |takes_it: bool| {
            let mut ring = Ring::with_rate(60, 0.01, 60, 4, 1).unwrap();
            let mut found = 0;
            for (number, hash) in hashes(20_000).enumerate() {
                let now = 1_700_000_000 + number as u64;
                if number == 100 {
                    let before = ring.clone();
                    let error = ring.insert_hash(hash, now << 10).unwrap_err();
                    assert!(matches!(error, Error::LeapTooLarge { max: 80_000, .. }), "{error}");
                    assert!(ring == before);
                    if takes_it {
                        ring.leap(now << 10);
                    }
                }
                found += u32::from(ring.contains_hash(hash, now));
                ring.insert_hash(hash, now).unwrap();
            }
            found
        };
        assert!(found_wrongly(false) < 400, "{}", found_wrongly(false));
        assert!(found_wrongly(true) > 18_000, "{}", found_wrongly(true));
    }

    #[test]
    fn the_bound_on_leaps_is_set_by_the_caller_and_holds_after_decoding() {
        let mut ring = Ring::with_shape(3, 10, 100, 3, 1).unwrap().leap_max(25);
        ring.insert(b"first", 1_000_000).unwrap();
        ring.advance(1_000_025).unwrap();
        assert_eq!(ring.advance(1_000_046), Err(Error::LeapTooLarge { ahead: 26, max: 25 }));
        ring.leap(1_000_046);
        ring.insert(b"late", 7).unwrap();
        let mut decoded = Ring::decode(&ring.encode()).unwrap();
        assert!(decoded == ring);
        decoded.advance(1_000_040 + 30_000).unwrap();
        assert!(decoded.advance(1_000_040 + 70_000).is_err());
        let mut ring = Ring::with_shape(3, 10, 100, 3, 1).unwrap().leap_max(0);
        (0..100).for_each(|now| ring.insert(b"key", now).unwrap());
        Ring::decode(&Ring::with_shape(3, 10, 100, 3, 1).unwrap().encode())
            .unwrap()
            .advance(u64::MAX)
            .unwrap();
    }

    #[test]
    fn a_summary_has_the_number_of_spans_and_the_length_of_one() {
        let facts = Ring::with_rate(1000, 0.01, 42, 7, 1).unwrap().summary().facts;
        let fact = |name| facts.iter().find(|(known, _)| *known == name).unwrap().1.clone();
        assert_eq!((fact("spans"), fact("span")), ("7".into(), "7 units of time".into()));
        assert_eq!(fact("remembers"), "42 to 49 units of time");
    }

    #[test]
    fn threads_insert_into_the_present_span() {
        let mut ring = Ring::with_shape(3, 10, 100_000, 7, 1).unwrap();
        ring.advance(1234).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let ring = &ring;
                scope.spawn(move || {
                    (0..1000u64).for_each(|key| ring.insert_shared(&(thread * 1000 + key).to_le_bytes()))
                });
            }
        });
        assert!((0..4000u64).all(|key| ring.contains(&key.to_le_bytes(), 1234)));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        let mut ring = Ring::with_shape(2, 10, 100, 3, 1).unwrap();
        check_codec(&ring);
        hashes(30).enumerate().for_each(|(number, hash)| ring.insert_hash(hash, 3 * number as u64).unwrap());
        let decoded = Ring::decode(&ring.encode()).unwrap();
        assert!(
            (0..200).all(|key| ring.contains_hash(hash(key), 90) == decoded.contains_hash(hash(key), 90))
        );
        check_codec(&decoded);
    }
}
