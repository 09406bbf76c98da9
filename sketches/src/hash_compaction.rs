//! Hash compaction: visited states as short signatures in an open-addressing table.
//!
//! A table has `m` cells, a prime number. A state has two independent hashes: its first cell, and a nonzero signature of `b`
//! bits, which determines the steps from there. Its probe sequence passes larger signatures and stops
//!
//! 1. at its own signature: the state counts as visited (if new, it is *omitted*);
//! 2. at an empty cell: the state is new and stored;
//! 3. at a smaller signature: likewise; the smaller one moves on by its own steps.
//!
//! Rule 3 is ordered hashing (Amble and Knuth 1974): absent states visit as few cells as present ones, in any order of insertion.
//!
//! # Error
//!
//! At a load of `a`, a signature of rank `u` (1 is the smallest) passes a share `x = a*u` of the cells. Equal signatures have
//! equal steps; two of their probe sequences end in the same cell with probability `(1 + x) / (1 - x) / m`. There are `n / (2^b -
//! 1)` equal signatures among `n` entries. Integrated over `u`:
//!
//! ```text
//! P(omission at load a) = (2 ln(1 / (1 - a)) - a) / (2^b - 1)
//! expected omissions while n states come in = m (2 ((1 - a) ln(1 - a) + a) - a^2 / 2) / (2^b - 1)
//! ```
//!
//! plus `n / 2^64` for equal hashes. The usual formula `1/a ln(1/(1-a)) / (2^b - 1)` is for other steps, and 1.6 times too low
//! at 95 %.
//!
//! Stern and Dill, CHARME 1995 and FORTE/PSTV 1996 (the table; the error is derived here and simulated in tests); Wolper and
//! Leroy, CAV 1993 (the idea).

use crate::arithmetic;
use crate::cells::Cells;
use crate::envelope::{DecodeError, Kind};
use crate::error::Error;
use crate::hash::{key_hash, nth, reduce};
use crate::sketch::{Parts, Sketch, Summary};

const LOAD: f64 = 0.95;

const SIGNATURE_BITS_MAX: u32 = 56;

/// Testing for a prime takes up to its square root in steps.
const CELLS_MAX: u64 = 1 << 40;

/// The visited states of a model checker, in a few bits per state.
///
/// # Guarantees
///
/// - An inserted state is found.
/// - A new state is *omitted* (reported as visited) with probability [`predicted_rate`](Self::predicted_rate), and with it states
///   that are reachable only through it.
/// - A full table loses no state.
///
/// # Cost
///
/// 3.2 cache lines per operation at a load of 95 %. `b / load` bits per state.
///
/// # When not to use it
///
/// States that can be listed in order: sorted exact sets. Fewer than about 20 bits per state: [`Bloom`](crate::Bloom).
///
/// ```
/// use sievedb_sketches::HashCompaction;
///
/// // A million states, and at most one chance in a thousand that any is omitted.
/// let mut visited = HashCompaction::for_states(1_000_000, 0.001, 7)?;
/// assert!(visited.insert(b"state 1")?);
/// assert!(!visited.insert(b"state 1")?);
/// # Ok::<(), sievedb_sketches::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashCompaction {
    seed: u64,
    len: u64,
    /// 0 is empty.
    cells: Cells,
}

impl HashCompaction {
    /// A table for `states` states and 5 % more, with `omissions` on average. If small, this is the probability of any.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if no signature is long enough.
    pub fn for_states(states: u64, omissions: f64, seed: u64) -> Result<Self, Error> {
        let cells = (states.max(1) as f64 / LOAD) as u64 + 1;
        let enough = |&bits: &u32| arithmetic::compaction_omissions(states, cells, bits) <= omissions;
        match (4..=SIGNATURE_BITS_MAX).find(enough) {
            Some(bits) => Self::with_shape(cells, bits, seed),
            None => Err(Error::invalid(format!(
                "{omissions} omissions of {states} states need hashes of more than 64 bits"
            ))),
        }
    }

    /// At least `cells` cells (the next prime), with signatures of 4 to 56 bits.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for other lengths, [`Error::TooLarge`] for more than 2^40 cells.
    pub fn with_shape(cells: u64, signature_bits: u32, seed: u64) -> Result<Self, Error> {
        if !(4..=SIGNATURE_BITS_MAX).contains(&signature_bits) {
            return Err(Error::invalid(format!("signatures of {signature_bits} bits, expected 4 to 56")));
        }
        if cells > CELLS_MAX {
            return Err(Error::TooLarge(cells.saturating_mul(signature_bits.into()) / 8));
        }
        Ok(Self { seed, len: 0, cells: Cells::new(prime_from(cells), signature_bits.into())? })
    }

    /// Adds a state. Returns whether it is new, and not omitted. `O(1 / (1 - load))`.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] for a new state if every cell is taken.
    pub fn insert(&mut self, state: &(impl AsRef<[u8]> + ?Sized)) -> Result<bool, Error> {
        self.insert_hash(key_hash(self.seed, state.as_ref()))
    }

    /// [`insert`](Self::insert) by [hash](crate::hash).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_hash(&mut self, hash: u64) -> Result<bool, Error> {
        if self.len == self.cells.count() {
            return if self.contains_hash(hash) { Ok(false) } else { Err(Error::Full) };
        }
        let (mut place, mut carried) = self.place(hash);
        let mut new = false;
        loop {
            let there = self.cells.get(place);
            if there == carried {
                return Ok(new);
            }
            if there < carried {
                self.cells.set(place, carried);
                new = true;
                if there == 0 {
                    self.len += 1;
                    return Ok(true);
                }
                carried = there;
            }
            place = self.next(place, carried);
        }
    }

    /// Whether the state is inserted or omitted. `O(1 / (1 - load))`.
    pub fn contains(&self, state: &(impl AsRef<[u8]> + ?Sized)) -> bool {
        self.contains_hash(key_hash(self.seed, state.as_ref()))
    }

    /// [`contains`](Self::contains) by [hash](crate::hash).
    pub fn contains_hash(&self, hash: u64) -> bool {
        let (mut place, signature) = self.place(hash);
        for _ in 0..self.cells.count() {
            let there = self.cells.get(place);
            if there <= signature {
                return there == signature;
            }
            place = self.next(place, signature);
        }
        false
    }

    /// Number of signatures; equal ones in one cell count once.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no state was inserted.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of cells.
    pub fn cells(&self) -> u64 {
        self.cells.count()
    }

    /// Bits of a signature.
    pub fn signature_bits(&self) -> u32 {
        self.cells.width()
    }

    /// Share of the cells that are taken.
    pub fn load(&self) -> f64 {
        self.len as f64 / self.cells.count() as f64
    }

    /// The present probability that a new state is omitted.
    pub fn predicted_rate(&self) -> f64 {
        arithmetic::compaction_rate(self.len, self.cells.count(), self.cells.width())
    }

    /// The expected omissions so far.
    pub fn expected_omissions(&self) -> f64 {
        arithmetic::compaction_omissions(self.len, self.cells.count(), self.cells.width())
    }

    #[inline]
    fn place(&self, hash: u64) -> (u64, u64) {
        (reduce(nth(hash, 0), self.cells.count()), 1 + reduce(nth(hash, 1), self.cells.max()))
    }

    /// Every step reaches all cells, because their number is prime.
    #[inline]
    fn next(&self, place: u64, signature: u64) -> u64 {
        let next = place + 1 + reduce(nth(signature, 2), self.cells.count() - 1);
        if next >= self.cells.count() { next - self.cells.count() } else { next }
    }
}

impl Sketch for HashCompaction {
    const KIND: Kind = Kind::HashCompaction;

    fn seed(&self) -> u64 {
        self.seed
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.cells.count(), self.cells.width().into(), self.len]
    }

    fn body(&self) -> Vec<u8> {
        self.cells.bytes()
    }

    fn from_parts(Parts(envelope): Parts<'_>) -> Result<Self, DecodeError> {
        let mut parameters = envelope.parameters();
        let cells = parameters.number_in(3, 2 * CELLS_MAX, "hash compaction cells")?;
        let bits = parameters.number_in(4, SIGNATURE_BITS_MAX.into(), "hash compaction signature bits")?;
        let len = parameters.number_in(0, cells, "hash compaction states")?;
        parameters.finish()?;
        let packed = Cells::from_body(&envelope, cells, bits)?;
        if !is_prime(cells) {
            return Err(envelope.corrupt("hash compaction cells", "not a prime number"));
        }
        let taken = cells - packed.zeros();
        if taken != len {
            return Err(envelope
                .corrupt("hash compaction states", format!("expected {len} cells in use, found {taken}")));
        }
        Ok(Self { seed: envelope.seed, len, cells: packed })
    }

    fn summary(&self) -> Summary {
        Summary {
            kind: Self::KIND,
            seed: self.seed,
            facts: vec![
                ("states", self.len.to_string()),
                ("cells", self.cells.count().to_string()),
                ("signature bits", self.cells.width().to_string()),
                ("omitted so far", format!("{:.3e} states expected", self.expected_omissions())),
            ],
            predicted_rate: Some(self.predicted_rate()),
            body_bytes: self.cells.bytes().len() as u64,
        }
    }
}

/// The first prime number from `least.max(3)` on.
fn prime_from(least: u64) -> u64 {
    let mut candidate = least.max(3);
    while !is_prime(candidate) {
        candidate += 1;
    }
    candidate
}

/// At most a million steps.
fn is_prime(number: u64) -> bool {
    number == 2
        || number > 2
            && number % 2 == 1
            && (3..)
                .step_by(2)
                .take_while(|divisor| divisor * divisor <= number)
                .all(|divisor| !number.is_multiple_of(divisor))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use quickcheck::quickcheck;

    use super::*;
    use crate::testing::{absent_hashes, assert_rate, check_codec, hash, hashes};

    quickcheck! {
        fn a_state_that_was_inserted_is_found(states: Vec<u16>, cells: u16, bits: u8) -> bool {
            let mut table = HashCompaction::with_shape(cells.into(), 4 + u32::from(bits) % 53, 1).unwrap();
            let mut known = HashSet::new();
            for state in states {
                match table.insert(&state.to_le_bytes()) {
                    Ok(new) => {
                        if known.contains(&state) && new { return false; }
                        known.insert(state);
                    }
                    Err(_) => assert_eq!(table.len(), table.cells()),
                }
                if !known.iter().all(|state| table.contains(&state.to_le_bytes())) { return false; }
            }
            true
        }

        fn the_order_of_insertion_does_not_matter(states: HashSet<u8>) -> bool {
            let mut tables = [(); 2].map(|()| HashCompaction::with_shape(257, 40, 1).unwrap());
            let mut states: Vec<u8> = states.into_iter().collect();
            for table in &mut tables {
                states.iter().for_each(|&state| assert!(table.insert(&[state]).unwrap()));
                states.sort_unstable();
            }
            tables[0] == tables[1]
        }
    }

    #[test]
    fn omissions_are_as_many_as_the_formula_says_at_every_load() {
        for bits in [10, 13] {
            for percent in [30, 70, 90, 95] {
                let mut table = HashCompaction::with_shape(100_003, bits, 0).unwrap();
                let (mut next, mut omitted) = (0, 0);
                while table.load() < f64::from(percent) / 100.0 {
                    omitted += u64::from(!table.insert_hash(hash(next)).unwrap());
                    next += 1;
                }
                let found = absent_hashes(1_000_000).filter(|&hash| table.contains_hash(hash)).count() as u64;
                let what = format!("{bits} bits at {percent} %");
                assert_rate(&what, found, 1_000_000, table.predicted_rate(), 0.03);
                let share = table.expected_omissions() / next as f64;
                assert_rate(&format!("{what}, on the way"), omitted, next, share, 0.05);
            }
        }
    }

    #[test]
    fn a_full_table_is_an_error_and_loses_nothing() {
        let mut table = HashCompaction::with_shape(101, 50, 3).unwrap();
        hashes(101).for_each(|hash| assert!(table.insert_hash(hash).unwrap()));
        let before = table.clone();
        assert_eq!(table.insert_hash(hash(500)), Err(Error::Full));
        assert_eq!(table.insert_hash(hash(50)), Ok(false), "what is there needs no room");
        assert!(table == before);
    }

    #[test]
    fn a_table_for_so_many_states_has_room_and_signatures_for_them() {
        // Five bytes for 80 million states, as in the paper.
        let omissions = arithmetic::compaction_omissions(80_000_000, 84_210_527, 40);
        assert!((1e-5..1.3e-3).contains(&omissions), "{omissions}");
        let mut table = HashCompaction::for_states(10_000, 0.001, 1).unwrap();
        assert_eq!((table.cells(), table.signature_bits()), (10_529, 24));
        hashes(10_000).for_each(|hash| assert!(table.insert_hash(hash).unwrap()));
        assert!(table.expected_omissions() <= 0.001);
        assert!(HashCompaction::for_states(1 << 40, 1e-9, 1).is_err());
        assert!(
            HashCompaction::with_shape(10, 3, 1).is_err() && HashCompaction::with_shape(10, 57, 1).is_err()
        );
        assert!(matches!(HashCompaction::with_shape(u64::MAX, 40, 1), Err(Error::TooLarge(_))));
    }

    #[test]
    fn bits_without_a_cell_of_their_own_omit_as_many_as_the_birthday_formula_says() {
        let trials = 4000;
        let none = |trial: &u64| {
            let mut known = HashSet::new();
            (0..1000).all(|state| known.insert(hash(trial * 1000 + state) >> 44))
        };
        let found = (0..trials).filter(none).count() as u64;
        let without = |states: f64, bits: i32| (-states * states / 2f64.powi(bits + 1)).exp();
        assert_rate("trials without an omission", found, trials, without(1e3, 20), 0.0);
        assert!(1.0 - without(1e6, 49) < 0.001 && 1.0 - without(1e6, 48) > 0.001);
        assert_eq!(HashCompaction::for_states(1_000_000, 0.001, 1).unwrap().signature_bits(), 31);
    }

    #[test]
    fn prime_numbers_are_those_of_the_sieve() {
        let primes: Vec<u64> = (0..40).filter(|&number| is_prime(number)).collect();
        assert_eq!(primes, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]);
        assert_eq!((prime_from(0), prime_from(24), prime_from(1 << 32)), (3, 29, 4_294_967_311));
    }

    #[test]
    fn the_encoding_keeps_the_rules_of_all() {
        let mut table = HashCompaction::with_shape(7, 9, 3).unwrap();
        hashes(4).for_each(|hash| assert!(table.insert_hash(hash).unwrap()));
        check_codec(&table);
    }
}
