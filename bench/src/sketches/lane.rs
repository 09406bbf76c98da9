use std::hint::black_box;
use std::time::Duration;

use sievedb_sketches::{
    Bloom, Counting, Cuckoo, DLeft, Expiring, HashCompaction, Ring, Scalable, Sketch, Spectral,
};

use crate::clock::cost;
use crate::random::{bytes_of, number};

pub(super) const PRESENT: u64 = 1;
pub(super) const ABSENT: u64 = 2;
const EARLIER: u64 = 3;

pub(super) trait Set {
    fn contains(&self, key: u64) -> bool;

    fn holds(&self, key: u64) -> bool {
        self.contains(key)
    }

    fn predicted(&self) -> Option<f64> {
        None
    }

    fn encoded_bytes(&self) -> Option<usize> {
        None
    }

    fn value_bits(&self) -> f64 {
        0.0
    }
}

pub(super) trait Grow: Set {
    fn insert(&mut self, key: u64);
}

pub(super) struct Lane<S> {
    pub(super) name: String,
    set: S,
    bits_per_key: f64,
    insert_ns: f64,
    probes_max: u64,
    why: &'static str,
}

impl<S: Set> Lane<S> {
    pub(super) fn new(name: &str, keys: u64, make: impl FnOnce() -> S) -> Self
    where
        S: Grow,
    {
        let mut took = Duration::ZERO;
        let mut lane = Self::built(name, keys, || {
            let mut set = make();
            took = cost(|| (0..keys).for_each(|key| set.insert(number(PRESENT, key)))).0;
            set
        });
        lane.insert_ns = took.as_secs_f64() * 1e9 / keys as f64;
        lane
    }

    pub(super) fn built(name: &str, keys: u64, make: impl FnOnce() -> S) -> Self {
        let mut made = None;
        let allocated = allocation_counter::measure(|| made = Some(cost(make)));
        let (took, set) = made.expect("measure runs it");
        Self {
            name: name.to_owned(),
            set,
            bits_per_key: allocated.bytes_current as f64 * 8.0 / keys as f64,
            insert_ns: took.as_secs_f64() * 1e9 / keys as f64,
            probes_max: u64::MAX,
            why: "",
        }
    }

    pub(super) fn at_most(self, probes_max: u64) -> Self {
        Self { probes_max, ..self }
    }

    pub(super) fn because(self, why: &'static str) -> Self {
        Self { why, ..self }
    }
}

pub(super) trait Contender {
    fn name(&self) -> &str;
    fn bits_per_key(&self) -> f64;
    fn encoded_bits(&self, keys: u64) -> Option<f64>;
    fn value_bits(&self) -> f64;
    fn insert_ns(&self) -> f64;
    fn predicted(&self) -> Option<f64>;
    fn why(&self) -> &'static str;
    fn probe(&self, stream: u64, keys: u64, probes: u64) -> Probed;
}

pub(super) struct Probed {
    pub(super) ns: f64,
    pub(super) probes: u64,
    /// The number of present keys with a correct answer, or of absent keys that were found.
    pub(super) found: u64,
}

impl<S: Set> Contender for Lane<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bits_per_key(&self) -> f64 {
        self.bits_per_key
    }

    fn encoded_bits(&self, keys: u64) -> Option<f64> {
        self.set.encoded_bytes().map(|bytes| bytes as f64 * 8.0 / keys as f64)
    }

    fn value_bits(&self) -> f64 {
        self.set.value_bits()
    }

    fn insert_ns(&self) -> f64 {
        self.insert_ns
    }

    fn predicted(&self) -> Option<f64> {
        self.set.predicted()
    }

    fn why(&self) -> &'static str {
        self.why
    }

    fn probe(&self, stream: u64, keys: u64, probes: u64) -> Probed {
        let probes = probes.min(self.probes_max);
        let mut found = 0;
        let answer = |key| match stream {
            PRESENT => self.set.holds(number(stream, key)),
            _ => self.set.contains(number(stream, key)),
        };
        let (took, ()) = cost(|| {
            let mut left = probes;
            while left > 0 {
                let count = keys.min(left);
                found += (0..count).filter(|&key| black_box(answer(key))).count() as u64;
                left -= count;
            }
        });
        Probed { ns: took.as_secs_f64() * 1e9 / probes as f64, probes, found }
    }
}

macro_rules! ours {
    ($($set:ty),*) => {$(
        impl Set for $set {
            fn contains(&self, key: u64) -> bool {
                <$set>::contains(self, &bytes_of(key))
            }

            fn predicted(&self) -> Option<f64> {
                self.summary().predicted_rate
            }

            fn encoded_bytes(&self) -> Option<usize> {
                Some(self.encode().len())
            }
        }

        impl Grow for $set {
            fn insert(&mut self, key: u64) {
                let _ = <$set>::insert(self, &bytes_of(key));
            }
        }
    )*};
}

ours!(Bloom, Counting, Spectral, DLeft, Scalable, Cuckoo, HashCompaction);

pub(super) struct Clocked<S> {
    set: S,
    now: u64,
}

impl<S> Clocked<S>
where
    Self: Grow,
{
    pub(super) fn after(set: S, keys: u64) -> Self {
        let mut clocked = Self { set, now: 0 };
        (0..2 * keys).for_each(|key| clocked.insert(number(EARLIER, key)));
        clocked
    }
}

macro_rules! clocked {
    ($($set:ty),*) => {$(
        impl Grow for Clocked<$set> {
            fn insert(&mut self, key: u64) {
                self.now += 1;
                self.set.insert(&bytes_of(key), self.now).expect("keys are counted one by one");
            }
        }

        impl Set for Clocked<$set> {
            fn contains(&self, key: u64) -> bool {
                self.set.contains(&bytes_of(key), self.now)
            }

            fn predicted(&self) -> Option<f64> {
                Some(self.set.predicted_rate(self.now))
            }

            fn encoded_bytes(&self) -> Option<usize> {
                Some(self.set.encode().len())
            }
        }
    )*};
}

clocked!(Ring, Expiring);
