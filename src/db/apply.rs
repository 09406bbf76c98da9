//! Inserts the entries of a batch into the memtables of its keyspaces, which copy them.

use std::sync::Arc;

use super::tree::{LoggedMemtable, Tree};
use crate::batch::{BatchEntry, BatchReader, KeyspaceId};
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::key::Tag;

/// Inserts those entries of a stamped batch of this log that are `wanted` into the memtables of its trees. A
/// dropped tree gets them too, but nobody reads it.
pub(super) fn apply(
    bytes: &[u8],
    trees: &[Arc<Tree>],
    log: u64,
    wanted: impl Fn(&BatchEntry) -> bool,
) -> Result<()> {
    let memtable = |tree: &Arc<Tree>| (tree.id, tree.memtable_for(log));
    let mut memtables = trees.iter().map(memtable);
    let first = memtables.next();
    let others: Vec<(KeyspaceId, Arc<LoggedMemtable>)> =
        if trees.len() > 1 { memtables.collect() } else { Vec::new() };
    let mut has_grown = false;
    for entry in BatchReader::open(bytes).map_err(own_batch)? {
        let entry = entry.map_err(own_batch)?;
        if !wanted(&entry) {
            continue;
        }
        let mut all = first.iter().chain(&others);
        let (_, active) = all.find(|(id, _)| *id == entry.keyspace).ok_or_else(foreign)?;
        let (key, value) = (&bytes[entry.key.clone()], &bytes[entry.value.clone()]);
        has_grown |= active.memtable.insert(key, Tag::new(entry.seqno, entry.kind), value);
    }
    if has_grown {
        trees.iter().for_each(|tree| tree.set_grown());
    }
    Ok(())
}

pub(super) fn foreign() -> Error {
    Error::invalid("a batch holds a keyspace it does not name")
}

pub(super) fn own_batch(error: DecodeError) -> Error {
    Error::invalid(format!("a batch of this process cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::WriteBatch;

    #[test]
    fn entries_of_a_keyspace_that_has_no_tree_are_an_error_unless_they_are_not_wanted() {
        let mut batch = WriteBatch::new();
        batch.put("k", "v");
        let (bytes, ..) = batch.into_parts().unwrap();
        assert!(apply(&bytes, &[], 1, |_| true).is_err());
        apply(&bytes, &[], 1, |_| false).unwrap();
    }
}
