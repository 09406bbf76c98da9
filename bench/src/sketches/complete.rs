use std::collections::HashMap;
use std::fmt::Debug;

use boomphf::Mphf;
use golomb_coded_set::{GCSFilterReader, GCSFilterWriter, SipHasher24Builder};
use sievedb_sketches::{Approximator, Digest, GolombSet, Max, Sketch, StaticMap};
use xorf::{BinaryFuse8, Filter};

use super::lane::{Contender, Grow, Lane, PRESENT, Set};
use super::{Lanes, RATE, SEED};
use crate::random::{bytes_of, number};

const VALUE_BITS: u32 = 8;

const VALUES: u64 = 5;

const FINGERPRINTS: u64 = 6;

fn value_of(key: u64) -> u8 {
    number(VALUES, key) as u8
}

fn present(keys: u64) -> impl Iterator<Item = u64> {
    (0..keys).map(|key| number(PRESENT, key))
}

fn boxed<S: Set + 'static>(lane: Lane<S>) -> Box<dyn Contender> {
    Box::new(lane)
}

fn made<T>(made: Result<T, impl Debug>) -> T {
    made.expect("right arguments")
}

pub(super) fn sets(keys: u64) -> Lanes {
    let golomb = || made(GolombSet::build(present(keys).map(bytes_of), RATE, SEED));
    let digest = || made(Digest::build(present(keys).map(bytes_of), RATE, 0, SEED));
    vec![
        boxed(Lane::built("**GolombSet**", keys, golomb).because(
            "it is made for transfer and archives: a probe decodes half a block of 256 numbers, and the \
             fuse filter reads three bytes. It takes log2(1 / rate) + 1.5 bits at any rate, the fuse \
             filter 1.13 times log2(1 / rate) at two rates only. Its numbers can be listed and merged",
        )),
        boxed(Lane::built("**Digest**", keys, digest).because(
            "it is a ribbon filter: a probe reads one window of the table and a word per column, and the \
             fuse filter compares three bytes. Building solves linear equations, and the fuse filter \
             peels. It takes 0.5 % more than one bit per halving of the rate, the fuse filter 13 % more",
        )),
        boxed(Lane::built("golomb-coded-set", keys, || coded(keys)).at_most(300)),
        boxed(Lane::built("xorf BinaryFuse8", keys, || {
            made(BinaryFuse8::try_from(&present(keys).collect::<Vec<_>>()))
        })),
    ]
}

pub(super) fn maps(keys: u64) -> Lanes {
    let map = |fingerprint_bits| {
        move || {
            let pairs = present(keys).map(|key| (bytes_of(key), value_of(key).into()));
            made(StaticMap::build(pairs, VALUE_BITS, fingerprint_bits, SEED))
        }
    };
    vec![
        boxed(Lane::built("**StaticMap**, 8 bits of fingerprint", keys, map(8)).because(
            "it reads three blocks of 16 words, one for each bit of value and fingerprint, and the others \
             read one or two bytes. Building solves a linear equation for each key. The perfect hash \
             function takes 3 bits per key more, and a table with the keys over ten times as much",
        )),
        boxed(Lane::built("boomphf, and an array of 2 bytes", keys, || Perfect::new(keys))),
        boxed(Lane::built("std HashMap", keys, || {
            Exact(present(keys).map(|key| (key, value_of(key))).collect())
        })),
    ]
}

pub(super) fn bounds(keys: u64) -> Lanes {
    vec![
        boxed(
            Lane::new("**Approximator** of `Max`", keys, || {
                made(Approximator::<Max>::with_rate(keys, RATE, SEED))
            })
            .because(
                "each of its seven cells has the 64 bits of a value, so with room for all keys it is larger \
                 than a table with keys of eight bytes. It is useful if memory is limited and the values \
                 of most keys no longer matter ([conflict checks](inside-the-store.md)), and for \
                 concurrent use: it needs no lock",
            ),
        ),
        boxed(Lane::new("std HashMap", keys, || Exact(HashMap::<u64, u64>::new()))),
    ]
}

macro_rules! encoded {
    () => {
        fn predicted(&self) -> Option<f64> {
            Some(self.predicted_rate())
        }

        fn encoded_bytes(&self) -> Option<usize> {
            Some(self.encode().len())
        }
    };
}

impl Set for GolombSet {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &bytes_of(key))
    }

    encoded!();
}

impl Set for Digest {
    fn contains(&self, key: u64) -> bool {
        Self::contains(self, &bytes_of(key))
    }

    encoded!();
}

impl Set for StaticMap {
    fn contains(&self, key: u64) -> bool {
        self.get(&bytes_of(key)).is_some()
    }

    fn holds(&self, key: u64) -> bool {
        self.get(&bytes_of(key)) == Some(value_of(key).into())
    }

    fn value_bits(&self) -> f64 {
        Self::value_bits(self).into()
    }

    encoded!();
}

impl Set for Approximator<Max> {
    fn contains(&self, key: u64) -> bool {
        self.get(&bytes_of(key)) != 0
    }

    fn holds(&self, key: u64) -> bool {
        self.get(&bytes_of(key)) >= key
    }

    fn value_bits(&self) -> f64 {
        64.0
    }

    encoded!();
}

impl Grow for Approximator<Max> {
    fn insert(&mut self, key: u64) {
        Self::insert(self, &bytes_of(key), key);
    }
}

impl Set for BinaryFuse8 {
    fn contains(&self, key: u64) -> bool {
        Filter::contains(self, &key)
    }
}

struct Coded(Vec<u8>);

const CODED: (u64, u8) = (100, 6);

fn coded(keys: u64) -> Coded {
    let mut bytes = Vec::new();
    let mut writer = GCSFilterWriter::new(&mut bytes, SipHasher24Builder::new(0, 0), CODED.0, CODED.1);
    present(keys).for_each(|key| writer.add_element(&bytes_of(key)));
    made(writer.finish());
    Coded(bytes)
}

impl Set for Coded {
    fn contains(&self, key: u64) -> bool {
        let reader = GCSFilterReader::new(SipHasher24Builder::new(0, 0), CODED.0, CODED.1);
        let key = bytes_of(key);
        made(reader.match_any(&mut self.0.as_slice(), &mut std::iter::once(key.as_slice())))
    }

    fn encoded_bytes(&self) -> Option<usize> {
        Some(self.0.len())
    }

    fn predicted(&self) -> Option<f64> {
        Some(1.0 / CODED.0 as f64)
    }
}

struct Perfect {
    function: Mphf<u64>,
    cells: Vec<[u8; 2]>,
}

impl Perfect {
    fn new(keys: u64) -> Self {
        let present: Vec<u64> = present(keys).collect();
        let function = Mphf::new(1.7, &present);
        let mut cells = vec![[0; 2]; present.len()];
        for key in present {
            cells[function.hash(&key) as usize] = [number(FINGERPRINTS, key) as u8, value_of(key)];
        }
        Self { function, cells }
    }

    fn get(&self, key: u64) -> Option<u8> {
        let [fingerprint, value] = *self.cells.get(self.function.try_hash(&key)? as usize)?;
        (fingerprint == number(FINGERPRINTS, key) as u8).then_some(value)
    }
}

impl Set for Perfect {
    fn contains(&self, key: u64) -> bool {
        self.get(key).is_some()
    }

    fn holds(&self, key: u64) -> bool {
        self.get(key) == Some(value_of(key))
    }

    fn value_bits(&self) -> f64 {
        VALUE_BITS.into()
    }
}

struct Exact<V>(HashMap<u64, V>);

impl Set for Exact<u8> {
    fn contains(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    fn holds(&self, key: u64) -> bool {
        self.0.get(&key) == Some(&value_of(key))
    }

    fn value_bits(&self) -> f64 {
        VALUE_BITS.into()
    }
}

impl Set for Exact<u64> {
    fn contains(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    fn value_bits(&self) -> f64 {
        64.0
    }
}

impl Grow for Exact<u64> {
    fn insert(&mut self, key: u64) {
        self.0.insert(key, key);
    }
}
