//! The horizons of all keyspaces at one time.
//!
//! Readers without a snapshot use the horizon in the keyspace's version. A snapshot may read any keyspace later, so it
//! holds an immutable list of all horizons. The list is replaced when a horizon rises.

use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::number_map::NumberMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::db) struct Horizons {
    pub(in crate::db) rises: u64,
    by_keyspace: NumberMap<KeyspaceId, SeqNo>,
}

/// A past state of a keyspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Past {
    pub(in crate::db) seqno: SeqNo,
    pub(in crate::db) horizon: SeqNo,
}

impl Horizons {
    pub(in crate::db) fn of(&self, keyspace: KeyspaceId) -> SeqNo {
        self.by_keyspace.get(&keyspace).copied().unwrap_or(0)
    }

    pub(in crate::db) fn raised(&self, changes: impl IntoIterator<Item = (KeyspaceId, SeqNo)>) -> Self {
        let mut by_keyspace = self.by_keyspace.clone();
        for (keyspace, horizon) in changes {
            let before = by_keyspace.get_or_insert_with(keyspace, || 0);
            *before = horizon.max(*before);
        }
        Self { rises: self.rises + 1, by_keyspace }
    }
}
