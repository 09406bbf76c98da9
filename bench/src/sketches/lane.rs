//! What is asked of every structure, and the lane it runs in.

use std::hint::black_box;

use sievedb_sketches::{Bloom, Counting, Cuckoo, DLeft, Expiring, Ring, Scalable, Sketch, Spectral};

use crate::clock::cost;
use crate::random::{bytes_of, number};

/// The streams of keys.
pub(super) const PRESENT: u64 = 1;
pub(super) const ABSENT: u64 = 2;
const EARLIER: u64 = 3;

/// A set that keys can be added to. Each hashes them by itself.
pub(super) trait Set {
    fn insert(&mut self, key: u64);
    fn contains(&self, key: u64) -> bool;
    /// The rate that it predicts of itself.
    fn predicted(&self) -> Option<f64> {
        None
    }
}

/// A set of so many keys, and what it took.
pub(super) struct Lane<S> {
    pub(super) name: String,
    set: S,
    bits_per_key: f64,
    insert_ns: f64,
}

impl<S: Set> Lane<S> {
    /// Makes an empty set, and gives it the present keys.
    pub(super) fn new(name: &str, keys: u64, make: impl FnOnce() -> S) -> Self {
        let mut made = None;
        let allocated = allocation_counter::measure(|| {
            let mut set = make();
            let (took, ()) = cost(|| (0..keys).for_each(|key| set.insert(number(PRESENT, key))));
            made = Some((set, took));
        });
        let (set, took) = made.expect("measure runs it");
        Self {
            name: name.to_owned(),
            set,
            bits_per_key: allocated.bytes_current as f64 * 8.0 / keys as f64,
            insert_ns: took.as_secs_f64() * 1e9 / keys as f64,
        }
    }
}

/// A lane of any structure.
pub(super) trait Contender {
    fn name(&self) -> &str;
    fn bits_per_key(&self) -> f64;
    fn insert_ns(&self) -> f64;
    fn predicted(&self) -> Option<f64>;
    /// Asks for so many keys of a stream, the first again after the last of them: nanoseconds for each, and
    /// how many were found.
    fn ask(&self, stream: u64, keys: u64, asked: u64) -> (f64, u64);
}

impl<S: Set> Contender for Lane<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bits_per_key(&self) -> f64 {
        self.bits_per_key
    }

    fn insert_ns(&self) -> f64 {
        self.insert_ns
    }

    fn predicted(&self) -> Option<f64> {
        self.set.predicted()
    }

    fn ask(&self, stream: u64, keys: u64, asked: u64) -> (f64, u64) {
        let mut found = 0;
        let (took, ()) = cost(|| {
            let mut left = asked;
            while left > 0 {
                let count = keys.min(left);
                found += (0..count).filter(|&key| black_box(self.set.contains(number(stream, key)))).count()
                    as u64;
                left -= count;
            }
        });
        (took.as_secs_f64() * 1e9 / asked as f64, found)
    }
}

/// Those of ours whose insertion cannot fail, or does not at the size that they were made for.
macro_rules! ours {
    ($($set:ty),*) => {$(
        impl Set for $set {
            fn insert(&mut self, key: u64) {
                let _ = <$set>::insert(self, &bytes_of(key));
            }

            fn contains(&self, key: u64) -> bool {
                <$set>::contains(self, &bytes_of(key))
            }

            fn predicted(&self) -> Option<f64> {
                self.summary().predicted_rate
            }
        }
    )*};
}

ours!(Bloom, Counting, Spectral, DLeft, Scalable, Cuckoo);

/// One that tells the time: a unit for each key.
pub(super) struct Clocked<S> {
    set: S,
    now: u64,
}

impl<S> Clocked<S>
where
    Self: Set,
{
    /// After twice as many earlier keys as are remembered.
    pub(super) fn after(set: S, keys: u64) -> Self {
        let mut clocked = Self { set, now: 0 };
        (0..2 * keys).for_each(|key| clocked.insert(number(EARLIER, key)));
        clocked
    }
}

macro_rules! clocked {
    ($($set:ty),*) => {$(
        impl Set for Clocked<$set> {
            fn insert(&mut self, key: u64) {
                self.now += 1;
                self.set.insert(&bytes_of(key), self.now);
            }

            fn contains(&self, key: u64) -> bool {
                self.set.contains(&bytes_of(key), self.now)
            }

            fn predicted(&self) -> Option<f64> {
                Some(self.set.predicted_rate(self.now))
            }
        }
    )*};
}

clocked!(Ring, Expiring);
