//! What a repair reports: what it kept, what is gone, what is doubtful.

use std::ops::Bound;

use bytes::Bytes;

use crate::db::state::open_report::{DroppedTail, IgnoredFile};
use crate::error::Error;

/// Most ranges of keys that are listed for a file or a keyspace; a further one is joined with the last.
const RANGES_MAX: usize = 10_000;

/// What a repair kept, what is gone and what is doubtful.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// How much of the manifest could be read.
    pub manifest: ManifestCondition,
    /// The keyspaces of the new store, those with doubtful entries last.
    pub keyspaces: Vec<RepairedKeyspace>,
    /// Tables that were read, at least in part.
    pub tables: u64,
    /// Logs that were read, at least in part.
    pub logs: u64,
    /// Entries that tables have lost, by table.
    pub lost_entries: Vec<LostEntries>,
    /// Writes that logs have lost. Any key may have been written there: [`RepairedKeyspace::as_of`] is the last
    /// sequence number before them that concerns the keyspace.
    pub lost_writes: Vec<LostWrites>,
    /// Keys whose value in the new store would not be certain, in ranges. If they have a value, it is in
    /// the keyspace [`DoubtfulKeys::into`].
    pub doubtful: Vec<DoubtfulKeys>,
    /// Files that were not used, and why.
    pub left_out: Vec<IgnoredFile>,
    /// Torn ends of logs. They were never promised to be durable, and are no loss.
    pub dropped: Vec<DroppedTail>,
    /// What is wrong with `CURRENT`, the manifest, and files that could not be read at all.
    pub damage: Vec<Error>,
}

/// How much of the manifest could be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestCondition {
    /// All of it.
    #[default]
    Whole,
    /// Edits are missing: tables that are newer than what is left of it are doubtful.
    Cut,
    /// Nothing: every entry is doubtful.
    Lost,
}

/// A keyspace of the new store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedKeyspace {
    /// Its name.
    pub name: String,
    /// Keys that were written to it.
    pub keys: u64,
    /// Whether its entries are doubtful.
    pub is_doubtful: bool,
    /// No write up to this sequence number has deleted or replaced a value that it has now. It is the last one of
    /// the store, or that before writes that may be lost. `None` if its entries are doubtful.
    pub as_of: Option<u64>,
}

/// Entries that a table has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEntries {
    /// The name of the file.
    pub file: String,
    /// The keyspace, if it is known.
    pub keyspace: Option<String>,
    /// Keys that may be concerned: no other key of the table has lost an entry.
    pub ranges: Vec<LostRange>,
    /// Number of entries that are lost, if the manifest or the table says how many there were.
    pub entries: Option<u64>,
    /// Whether the whole file is missing or cannot be read.
    pub whole: bool,
}

/// A range of user keys.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// Where it begins.
    pub from: Bound<Vec<u8>>,
    /// Where it ends.
    pub to: Bound<Vec<u8>>,
}

/// Writes that a log has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostWrites {
    /// The name of the log.
    pub file: String,
    /// Where the damage begins, in bytes.
    pub offset: u64,
    /// The first and the last sequence number that are lost; the last is `None` if it is not known.
    pub seqnos: (u64, Option<u64>),
}

/// Keys whose value is not certain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoubtfulKeys {
    /// The keyspace that they belong to; `None` if the table did not say.
    pub keyspace: Option<String>,
    /// The keyspace of the new store that has their values.
    pub into: String,
    /// The first of them.
    pub first: Vec<u8>,
    /// The last of them. No certain key lies between.
    pub last: Vec<u8>,
    /// How many they are.
    pub keys: u64,
}

impl RepairReport {
    /// Whether nothing is lost and nothing is doubtful: the new store holds what the old one held.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.manifest == ManifestCondition::Whole
            && self.lost_entries.is_empty()
            && self.lost_writes.is_empty()
            && self.doubtful.is_empty()
    }

    /// Whether a key of a keyspace may have lost an entry of a table.
    #[must_use]
    pub fn may_have_lost(&self, keyspace: &str, key: &[u8]) -> bool {
        let of = |lost: &&LostEntries| lost.keyspace.as_deref().is_none_or(|name| name == keyspace);
        self.lost_entries.iter().filter(of).flat_map(|lost| &lost.ranges).any(|range| range.contains(key))
    }

    /// Keys of all keyspaces that are certain.
    #[must_use]
    pub fn certain_keys(&self) -> u64 {
        self.keyspaces.iter().filter(|keyspace| !keyspace.is_doubtful).map(|keyspace| keyspace.keys).sum()
    }

    /// Keys whose value is not certain.
    #[must_use]
    pub fn doubtful_keys(&self) -> u64 {
        self.doubtful.iter().map(|range| range.keys).sum()
    }
}

impl LostRange {
    pub(super) fn new(from: &Bound<Bytes>, to: &Bound<Bytes>) -> Self {
        let bound = |bound: &Bound<Bytes>| bound.as_ref().map(|key| key.to_vec());
        Self { from: bound(from), to: bound(to) }
    }

    /// Whether the key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        use std::ops::RangeBounds;
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
            (self.from.as_ref().map(|key| &key[..]), self.to.as_ref().map(|key| &key[..]));
        <(Bound<&[u8]>, Bound<&[u8]>) as RangeBounds<[u8]>>::contains(&bounds, key)
    }
}

impl LostEntries {
    pub(super) fn add(&mut self, range: LostRange) {
        let is_full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if is_full => last.to = range.to,
            _ => self.ranges.push(range),
        }
    }
}

/// Joins the doubtful keys of a keyspace into ranges.
pub(super) struct DoubtfulRanges {
    pub(super) keyspace: Option<String>,
    pub(super) into: String,
    ranges: Vec<DoubtfulKeys>,
    /// Whether no certain key came after the last one.
    goes_on: bool,
}

impl DoubtfulRanges {
    pub(super) fn new(keyspace: Option<String>, into: String) -> Self {
        Self { keyspace, into, ranges: Vec::new(), goes_on: false }
    }

    /// Takes the next key in ascending order.
    pub(super) fn add(&mut self, key: &[u8], is_doubtful: bool) {
        if !is_doubtful {
            self.goes_on = false;
            return;
        }
        let is_full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if self.goes_on || is_full => {
                last.last.clear();
                last.last.extend_from_slice(key);
                last.keys += 1;
            }
            _ => self.ranges.push(DoubtfulKeys {
                keyspace: self.keyspace.clone(),
                into: self.into.clone(),
                first: key.to_vec(),
                last: key.to_vec(),
                keys: 1,
            }),
        }
        self.goes_on = true;
    }

    pub(super) fn finish(self) -> Vec<DoubtfulKeys> {
        self.ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubtful_keys_between_certain_ones_are_one_range() {
        let mut ranges = DoubtfulRanges::new(None, "doubtful".into());
        for (key, is_doubtful) in [("a", true), ("b", true), ("c", false), ("d", true), ("e", false)] {
            ranges.add(key.as_bytes(), is_doubtful);
        }
        let found: Vec<_> =
            ranges.finish().into_iter().map(|range| (range.first, range.last, range.keys)).collect();
        assert_eq!(found, [(b"a".to_vec(), b"b".to_vec(), 2), (b"d".to_vec(), b"d".to_vec(), 1)]);
    }

    #[test]
    fn a_range_holds_the_keys_between_its_bounds() {
        let range = LostRange { from: Bound::Excluded(b"b".to_vec()), to: Bound::Included(b"d".to_vec()) };
        let held: Vec<bool> = [b"b", b"c", b"d", b"e"].iter().map(|key| range.contains(&key[..])).collect();
        assert_eq!(held, [false, true, true, false]);
    }
}
