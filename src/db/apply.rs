//! Inserts the entries of a batch into the memtables of its keyspaces.
//!
//! A memtable keeps slices of the batch, not copies. If a batch is for several keyspaces, each memtable gets
//! a copy of its part. Otherwise small entries of one keyspace could keep long values of another in memory,
//! uncounted, after the other was flushed.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::tree::{LoggedMemtable, Tree};
use crate::batch::{BatchEntry, BatchReader};
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::key::Tag;
use crate::memtable::BATCH_FRAMING_BYTES;

/// Inserts the entries of a stamped batch of this log into the memtables of its trees. A dropped tree gets
/// them too, but nobody reads it.
pub(super) fn apply(bytes: Vec<u8>, trees: &[Arc<Tree>], log: u64) -> Result<()> {
    let [tree] = trees else { return apply_parts(&bytes, trees, log, |_| true) };
    let bytes = Bytes::from(bytes);
    let memtable = begin(tree, log);
    for entry in BatchReader::open(&bytes).map_err(own_batch)? {
        let entry = entry.map_err(own_batch)?;
        if entry.keyspace != tree.id {
            return Err(foreign());
        }
        insert(&memtable, &entry, bytes.slice(entry.key.clone()), bytes.slice(entry.value.clone()));
    }
    Ok(())
}

/// Inserts only the entries that are `wanted`. Each memtable gets a copy of its own entries.
pub(super) fn apply_parts(
    bytes: &[u8],
    trees: &[Arc<Tree>],
    log: u64,
    wanted: impl Fn(&BatchEntry) -> bool,
) -> Result<()> {
    let place =
        |entry: &BatchEntry| trees.iter().position(|tree| tree.id == entry.keyspace).ok_or_else(foreign);
    let wanted = |entry: &Result<BatchEntry, DecodeError>| entry.as_ref().map_or(true, &wanted);
    let mut lens = vec![0; trees.len()];
    for entry in BatchReader::open(bytes).map_err(own_batch)?.filter(wanted) {
        let entry = entry.map_err(own_batch)?;
        lens[place(&entry)?] += entry.key.len() + entry.value.len();
    }
    let parts = trees.iter().zip(lens).map(|(tree, len)| (begin(tree, log), BytesMut::with_capacity(len)));
    let mut parts: Vec<_> = parts.collect();
    for entry in BatchReader::open(bytes).map_err(own_batch)?.filter(wanted) {
        let entry = entry.map_err(own_batch)?;
        let (memtable, part) = &mut parts[place(&entry)?];
        part.extend_from_slice(&bytes[entry.key.clone()]);
        part.extend_from_slice(&bytes[entry.value.clone()]);
        let mut key = part.split().freeze();
        let value = key.split_off(entry.key.len());
        insert(memtable, &entry, key, value);
    }
    Ok(())
}

/// The memtable that gets the entries of a batch in this log.
fn begin(tree: &Tree, log: u64) -> Arc<LoggedMemtable> {
    let active = tree.memtable_for(log);
    active.memtable.charge(BATCH_FRAMING_BYTES);
    active
}

fn insert(active: &LoggedMemtable, entry: &BatchEntry, key: Bytes, value: Bytes) {
    active.memtable.insert(key, Tag::new(entry.seqno, entry.kind), value);
}

fn foreign() -> Error {
    Error::invalid("a batch holds a keyspace it does not name")
}

pub(super) fn own_batch(error: DecodeError) -> Error {
    Error::invalid(format!("a batch of this process cannot be read: {error}"))
}
