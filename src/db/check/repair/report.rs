//! The report of a repair.

use std::ops::Bound;

use bytes::Bytes;

use crate::db::handles::stats::expiry_stats::ExpiryStats;
use crate::db::state::open_report::{DroppedTail, IgnoredFile};
use crate::error::Error;

/// Maximum number of ranges per file or keyspace; further ranges extend the last one.
const RANGES_MAX: usize = 10_000;

/// Result of a repair.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Readable part of the manifest.
    pub manifest: ManifestCondition,
    /// Keyspaces of the new store; doubtful ones last.
    pub keyspaces: Vec<RepairedKeyspace>,
    /// Tables read at least in part.
    pub tables: u64,
    /// Logs read at least in part.
    pub logs: u64,
    /// Entries lost by tables.
    pub lost_entries: Vec<LostEntries>,
    /// Writes lost by logs, which may be of any key.
    pub lost_writes: Vec<LostWrites>,
    /// Ranges of keys without a certain value. Their values are in [`DoubtfulKeys::into`].
    pub doubtful: Vec<DoubtfulKeys>,
    /// Unused files, with the reason.
    pub left_out: Vec<IgnoredFile>,
    /// Torn ends of logs, which were never durable and are not losses.
    pub dropped: Vec<DroppedTail>,
    /// Damage of `CURRENT` and the manifest, and unreadable files.
    pub damage: Vec<Error>,
}

/// Readable part of the manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestCondition {
    /// All of the manifest is readable.
    #[default]
    Whole,
    /// Edits are missing: tables newer than the last readable edit are doubtful.
    Cut,
    /// No part is readable: every entry is doubtful.
    Lost,
}

/// A keyspace of the new store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RepairedKeyspace {
    /// Name.
    pub name: String,
    /// Keys written to it.
    pub keys: u64,
    /// Whether its entries are doubtful.
    pub is_doubtful: bool,
    /// All values are current as of this sequence number, which precedes any possibly lost write. `None` for doubtful
    /// entries.
    pub as_of: Option<u64>,
    /// State of expiry in the new store, if entries expire.
    pub expiry: Option<ExpiryStats>,
}

/// Entries lost by a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEntries {
    /// File name.
    pub file: String,
    /// The keyspace, if known.
    pub keyspace: Option<String>,
    /// Keys that may have lost entries.
    pub ranges: Vec<LostRange>,
    /// Number of lost entries, if known.
    pub entries: Option<u64>,
    /// Whether the whole file is unreadable.
    pub whole: bool,
}

/// A range of user keys.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRange {
    /// Start.
    pub from: Bound<Vec<u8>>,
    /// End.
    pub to: Bound<Vec<u8>>,
}

/// Writes lost by a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostWrites {
    /// Name of the log.
    pub file: String,
    /// Offset of the damage, in bytes.
    pub offset: u64,
    /// First and last lost sequence number, if known.
    pub seqnos: (u64, Option<u64>),
}

/// Keys without a certain value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DoubtfulKeys {
    /// Their keyspace in the old store, if known.
    pub keyspace: Option<String>,
    /// The keyspace of the new store with their values.
    pub into: String,
    /// First key.
    pub first: Vec<u8>,
    /// Last key. No certain key is between.
    pub last: Vec<u8>,
    /// Number of keys.
    pub keys: u64,
}

impl RepairReport {
    /// Whether nothing is lost or doubtful.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.manifest == ManifestCondition::Whole
            && self.lost_entries.is_empty()
            && self.lost_writes.is_empty()
            && self.doubtful.is_empty()
    }

    /// Whether a table may have lost an entry of a key.
    #[must_use]
    pub fn may_have_lost(&self, keyspace: &str, key: &[u8]) -> bool {
        let of = |lost: &&LostEntries| lost.keyspace.as_deref().is_none_or(|name| name == keyspace);
        self.lost_entries.iter().filter(of).flat_map(|lost| &lost.ranges).any(|range| range.contains(key))
    }

    /// Certain keys of all keyspaces.
    #[must_use]
    pub fn certain_keys(&self) -> u64 {
        self.keyspaces.iter().filter(|keyspace| !keyspace.is_doubtful).map(|keyspace| keyspace.keys).sum()
    }

    /// Keys without a certain value.
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

    /// Whether the range contains `key`.
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

pub(super) struct DoubtfulRanges {
    pub(super) keyspace: Option<String>,
    pub(super) into: String,
    ranges: Vec<DoubtfulKeys>,
    goes_on: bool,
}

impl DoubtfulRanges {
    pub(super) fn new(keyspace: Option<String>, into: String) -> Self {
        Self { keyspace, into, ranges: Vec::new(), goes_on: false }
    }

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
