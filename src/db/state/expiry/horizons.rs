//! The horizons of all keyspaces at one moment, for snapshots and transactions.
//!
//! A reader of the newest entries finds the horizon in the version of its keyspace. A snapshot reads any keyspace later, so
//! it takes all horizons with it: as one list that is never changed, and replaced as a whole when horizons rise.

use std::collections::BTreeMap;

use crate::batch::KeyspaceId;
use crate::key::SeqNo;

/// The horizons of the keyspaces that have one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::db) struct Horizons {
    /// How often horizons have been raised.
    pub(in crate::db) rises: u64,
    by_keyspace: BTreeMap<KeyspaceId, SeqNo>,
}

/// A moment in the past of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Past {
    /// Entries with a larger number came later.
    pub(in crate::db) seqno: SeqNo,
    /// Entries with a smaller number had expired.
    pub(in crate::db) horizon: SeqNo,
}

impl Horizons {
    /// The horizon of a keyspace; 0 if it has none.
    pub(in crate::db) fn of(&self, keyspace: KeyspaceId) -> SeqNo {
        self.by_keyspace.get(&keyspace).copied().unwrap_or(0)
    }

    /// These, and higher ones of some keyspaces.
    pub(in crate::db) fn raised(&self, changes: impl IntoIterator<Item = (KeyspaceId, SeqNo)>) -> Self {
        let mut by_keyspace = self.by_keyspace.clone();
        for (keyspace, horizon) in changes {
            let before = by_keyspace.entry(keyspace).or_default();
            *before = horizon.max(*before);
        }
        Self { rises: self.rises + 1, by_keyspace }
    }
}
