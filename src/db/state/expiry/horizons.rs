//! The horizons of all keyspaces at one moment.
//!
//! Readers of the present find the horizon in the keyspace's version. A snapshot may read any keyspace later: it holds an
//! immutable list of all horizons, replaced when they rise.

use std::collections::BTreeMap;

use crate::batch::KeyspaceId;
use crate::key::SeqNo;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::db) struct Horizons {
    pub(in crate::db) rises: u64,
    by_keyspace: BTreeMap<KeyspaceId, SeqNo>,
}

/// A past moment of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Past {
    /// Larger numbers came later.
    pub(in crate::db) seqno: SeqNo,
    /// Smaller numbers had expired.
    pub(in crate::db) horizon: SeqNo,
}

impl Horizons {
    /// 0 without a horizon.
    pub(in crate::db) fn of(&self, keyspace: KeyspaceId) -> SeqNo {
        self.by_keyspace.get(&keyspace).copied().unwrap_or(0)
    }

    pub(in crate::db) fn raised(&self, changes: impl IntoIterator<Item = (KeyspaceId, SeqNo)>) -> Self {
        let mut by_keyspace = self.by_keyspace.clone();
        for (keyspace, horizon) in changes {
            let before = by_keyspace.entry(keyspace).or_default();
            *before = horizon.max(*before);
        }
        Self { rises: self.rises + 1, by_keyspace }
    }
}
