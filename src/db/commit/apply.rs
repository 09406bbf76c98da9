//! Inserts the entries of a batch into memtables. Consecutive entries of one memtable form a group.

use std::cell::OnceCell;
use std::ptr;
use std::sync::Arc;

use crate::batch::{BatchEntry, BatchReader, foreign, own_batch};
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::key::{EntryKind, SeqNo, Tag};
use crate::memtable::{GROUP_MAX, Memtable, NewEntry};

/// Inserts the `wanted` entries of a stamped batch, including those of dropped trees.
pub(in crate::db) fn apply(
    bytes: &[u8],
    trees: &[Arc<Tree>],
    log: u64,
    wanted: impl Fn(&BatchEntry) -> bool,
) -> Result<()> {
    let mut memtables = trees.iter().map(|tree| (tree, OnceCell::new()));
    let first = memtables.next();
    let others: Vec<_> = if trees.len() > 1 { memtables.collect() } else { Vec::new() };
    let mut has_grown = false;
    let reader = BatchReader::open(bytes).map_err(own_batch)?;
    let is_alone = reader.count == 1;
    let mut group = Vec::with_capacity(if is_alone { 0 } else { GROUP_MAX.min(reader.count as usize) });
    let mut last: Option<&Memtable> = None;
    let mut last_put = None;
    for entry in reader {
        let entry = entry.map_err(own_batch)?;
        if !wanted(&entry) {
            continue;
        }
        if entry.kind == EntryKind::Put {
            last_put = Some(entry.seqno);
        }
        let mut all = first.iter().chain(&others);
        let (tree, active) = all.find(|(tree, _)| tree.id == entry.keyspace).ok_or_else(foreign)?;
        let active = active.get_or_init(|| tree.memtable_for(log));
        let memtable = &*active.memtable;
        if entry.kind == EntryKind::RangeDelete {
            memtable.delete_range(&bytes[entry.key], &bytes[entry.value], entry.seqno);
            has_grown = true;
            continue;
        }
        let tag = Tag::new(entry.seqno, entry.kind);
        let new = NewEntry { key: &bytes[entry.key], tag, value: &bytes[entry.value] };
        if is_alone {
            has_grown = memtable.insert_group(&[new]);
            continue;
        }
        let before = last.replace(memtable).unwrap_or(memtable);
        if group.len() == GROUP_MAX || !ptr::eq(before, memtable) {
            has_grown |= before.insert_group(&group);
            group.clear();
        }
        group.push(new);
    }
    if let Some(last) = last {
        has_grown |= last.insert_group(&group);
    }
    if has_grown {
        trees.iter().for_each(|tree| tree.set_grown());
    }
    if let Some(seqno) = last_put {
        trees.iter().for_each(|tree| note_puts(bytes, tree, seqno));
    }
    Ok(())
}

#[inline]
fn note_puts(bytes: &[u8], tree: &Tree, seqno: SeqNo) {
    tree.empty_ranges.note_puts(seqno, || {
        let entries = BatchReader::open(bytes).into_iter().flatten().flatten();
        let puts = entries.filter(|entry| entry.keyspace == tree.id && entry.kind == EntryKind::Put);
        puts.map(|entry| &bytes[entry.key])
    });
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
