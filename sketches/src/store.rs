//! The digest of a snapshot, and the difference of two stores.
//!
//! An entry becomes a *fingerprint*: XXH3-128 of its key, or of key and value, with a public seed. Messages take about 36 bytes
//! per different entry:
//!
//! 1. One side sends the [size](Fingerprints::size) of its set, 4 to 8 KiB; the other estimates the difference.
//! 2. One side sends [cells](Fingerprints::cells); the other lists the difference, or requests a quarter as many again.
//! 3. Each side finds the [keys](Fingerprints::keys) of its fingerprints.
//!
//! Each step is a full scan, in memory that does not grow with the store.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use sievedb::{Iter, KeyspaceSnapshot, Snapshot};
use xxhash_rust::xxh3::Xxh3;

use crate::difference_size::DifferenceSize;
use crate::digest::Digest;
use crate::error::Error;
use crate::hash::key_hash;
use crate::rateless::{Decoder, Rateless};
use crate::sketch::Sketch;

/// A source with the same entries in every scan.
pub trait Entries {
    /// All entries in order.
    fn entries(&self) -> Iter<'static>;
}

impl Entries for Snapshot {
    fn entries(&self) -> Iter<'static> {
        self.iter()
    }
}

impl Entries for KeyspaceSnapshot {
    fn entries(&self) -> Iter<'static> {
        self.iter()
    }
}

/// A store could not be compared or digested.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be read.
    Store(sievedb::Error),
    /// The structure could not be built.
    Sketch(Error),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Sketch(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            Self::Store(error) => error,
            Self::Sketch(error) => error,
        })
    }
}

impl From<sievedb::Error> for StoreError {
    fn from(error: sievedb::Error) -> Self {
        Self::Store(error)
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Sketch(error)
    }
}

/// A random public seed.
#[must_use]
pub fn public_seed() -> u64 {
    RandomState::new().hash_one(0x9e37_79b9u32)
}

/// The digest of a snapshot's keys, with a new public seed. A full scan, and eight bytes of memory per key.
///
/// # Errors
///
/// [`StoreError`], also unless `0 < rate < 1`.
pub fn digest(snapshot: &impl Entries, rate: f64) -> Result<Digest, StoreError> {
    let seed = public_seed();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut hashes = Vec::new();
    for entry in snapshot.entries() {
        hashes.push(key_hash(seed, &entry?.0));
    }
    Ok(Digest::from_hashes(hashes, rate, time, seed)?)
}

/// Maps entries to fingerprints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprints {
    seed: u64,
}

impl Fingerprints {
    /// Fingerprints of keys, or of keys and values, with a new seed. Its lowest bit records the choice.
    #[must_use]
    pub fn new(values: bool) -> Self {
        Self { seed: public_seed() & !1 | u64::from(values) }
    }

    /// Fingerprints with the seed of the other side.
    #[must_use]
    pub fn with_seed(seed: u64) -> Self {
        Self { seed }
    }

    /// The shared seed.
    #[must_use]
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// Whether values are compared.
    #[must_use]
    pub fn values(self) -> bool {
        self.seed & 1 == 1
    }

    fn of(self, key: &[u8], value: &[u8]) -> u128 {
        let mut hash = Xxh3::with_seed(self.seed);
        hash.update(key);
        if self.values() {
            hash.update(value);
            // The length separates key and value.
            hash.update(key.len().to_string().as_bytes());
        }
        hash.digest128()
    }

    /// Counters to estimate the difference. A full scan.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn size(self, snapshot: &impl Entries) -> Result<DifferenceSize, StoreError> {
        let mut size = DifferenceSize::new(self.seed)?;
        for entry in snapshot.entries() {
            let (key, value) = entry?;
            size.insert_hash(self.of(&key, &value) as u64);
        }
        Ok(size)
    }

    /// Cells to list the difference, 32 bytes each. A full scan.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn cells(self, snapshot: &impl Entries, range: Range<u64>) -> Result<Rateless, StoreError> {
        let mut cells = Rateless::new(range, self.seed)?;
        for entry in snapshot.entries() {
            let (key, value) = entry?;
            cells.insert(self.of(&key, &value));
        }
        Ok(cells)
    }

    /// The keys of these fingerprints, in order. A full scan.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn keys(self, snapshot: &impl Entries, wanted: &[u128]) -> Result<Vec<Vec<u8>>, StoreError> {
        let wanted: HashSet<u128> = wanted.iter().copied().collect();
        let mut keys = Vec::new();
        for entry in snapshot.entries() {
            let (key, value) = entry?;
            if wanted.contains(&self.of(&key, &value)) {
                keys.push(key.to_vec());
            }
        }
        Ok(keys)
    }
}

/// The cells to send first, two deviations above the estimate.
#[must_use]
pub fn cells_for_estimate(estimate: f64, deviation: f64) -> u64 {
    Rateless::cells_for((estimate * (1.0 + 2.0 * deviation)).ceil() as u64)
}

/// The difference of two stores.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct StoreDifference {
    /// Keys of the first store only.
    pub only_first: Vec<Vec<u8>>,
    /// Keys of the second store only.
    pub only_second: Vec<Vec<u8>>,
    /// Keys with different values.
    pub differ: Vec<Vec<u8>>,
    /// Estimated number of different entries.
    pub estimate: f64,
    /// Bytes exchanged: size, cells, and listed fingerprints.
    pub exchanged_bytes: u64,
    /// Messages of cells.
    pub rounds: u64,
}

/// Compares two snapshots as two machines would. Four full scans of each, two more per further round.
///
/// # Errors
///
/// [`StoreError`]; with [`Error::TooLarge`] above some hundred million different entries.
pub fn diff(
    first: &impl Entries,
    second: &impl Entries,
    values: bool,
) -> Result<StoreDifference, StoreError> {
    let fingerprints = Fingerprints::new(values);
    let mut found = StoreDifference::default();
    let (one, two) = (fingerprints.size(first)?, fingerprints.size(second)?);
    found.estimate = one.estimate(&two)?;
    found.exchanged_bytes = one.encode().len() as u64;
    let mut decoder = Decoder::new(fingerprints.seed());
    let mut count = cells_for_estimate(found.estimate, one.deviation());
    let listed = loop {
        let range = decoder.cells()..decoder.cells() + count;
        let cells = fingerprints.cells(first, range.clone())?;
        found.exchanged_bytes += cells.encode().len() as u64;
        found.rounds += 1;
        decoder.extend(&cells, &fingerprints.cells(second, range)?)?;
        if let Some(listed) = decoder.finish() {
            break listed;
        }
        count = (decoder.cells() / 4).max(16);
    };
    found.exchanged_bytes += 16 * listed.mine.len() as u64;
    let only_first = fingerprints.keys(first, &listed.mine)?;
    let only_second = fingerprints.keys(second, &listed.theirs)?;
    let mut sides: HashMap<Vec<u8>, u8> = HashMap::new();
    only_first.iter().for_each(|key| *sides.entry(key.clone()).or_default() |= 1);
    only_second.iter().for_each(|key| *sides.entry(key.clone()).or_default() |= 2);
    found.differ = only_first.iter().filter(|key| sides[*key] == 3).cloned().collect();
    found.only_first = only_first.into_iter().filter(|key| sides[key] == 1).collect();
    found.only_second = only_second.into_iter().filter(|key| sides[key] == 2).collect();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use sievedb::Db;

    use super::*;

    fn store(dir: &std::path::Path, entries: impl Iterator<Item = (u32, u32)>) -> Db {
        let db = Db::open(dir).unwrap();
        let mut batch = sievedb::WriteBatch::new();
        entries.for_each(|(key, value)| {
            batch.put(key.to_be_bytes(), value.to_be_bytes());
        });
        db.write(batch).unwrap();
        db
    }

    fn keys(found: &[Vec<u8>]) -> Vec<u32> {
        found.iter().map(|key| u32::from_be_bytes(key[..].try_into().unwrap())).collect()
    }

    #[test]
    fn a_difference_of_stores_is_exactly_what_was_written_differently() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let first = store(dirs[0].path(), (0..5000).map(|key| (key, key)));
        let second =
            store(dirs[1].path(), (40..5100).map(|key| (key, if key % 1000 == 7 { 0 } else { key })));
        let (one, two) = (first.snapshot(), second.snapshot());
        for values in [false, true] {
            let found = diff(&one, &two, values).unwrap();
            assert_eq!(keys(&found.only_first), (0..40).collect::<Vec<_>>());
            assert_eq!(keys(&found.only_second), (5000..5100).collect::<Vec<_>>());
            let differ = if values { vec![1007, 2007, 3007, 4007] } else { vec![] };
            assert_eq!(keys(&found.differ), differ);
            assert!((120.0..170.0).contains(&found.estimate), "{}", found.estimate);
            assert!(found.exchanged_bytes < 20_000, "{}", found.exchanged_bytes);
        }
        let same = diff(&one, &first.snapshot(), true).unwrap();
        assert_eq!((same.only_first.len(), same.only_second.len(), same.rounds), (0, 0, 1));
    }

    #[test]
    fn a_digest_of_a_store_finds_its_keys_and_each_has_a_seed_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path(), (0..1000).map(|key| (key, key)));
        let (one, two) = (digest(&db.snapshot(), 0.01).unwrap(), digest(&db.snapshot(), 0.01).unwrap());
        assert!((0..1000u32).all(|key| one.contains(&key.to_be_bytes())));
        assert_eq!(one.len(), 1000);
        assert_ne!(one.seed(), two.seed(), "every digest has a seed of its own");
        assert!(one.time() > 1_700_000_000);
    }
}
