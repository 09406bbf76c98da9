//! The read path. A reader loads one view and takes no lock.
//!
//! The view is loaded before the sequence number. A view holds every write up to the moment it was replaced,
//! and writes enter only the newest one, so (view, number loaded after it) is what was visible at one moment
//! between the two loads. No compaction can take anything away from it: the view holds its memtables and
//! tables. A registered [`Snapshot`](super::Snapshot) uses its own number with the view of the moment;
//! compactions keep for it what it sees.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::engine::{Engine, Owner};
use super::tree::{Tree, View};
use crate::error::{Error, Result};
use crate::hash::key_hash;
use crate::iter::{EntryValue, InternalIterator};
use crate::key::{EntryKind, SeqNo};
use crate::merge::{MergeIter, RunIter, RunSource};
use crate::version::{Lookup, TableHandle};
use crate::visible::{KeyRange, Range};

/// A value, as a view of the block or the memtable that holds it: cheap to clone, and it pins that memory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Bytes);

impl Value {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The whole of a value that a lookup found.
    pub(crate) fn read(value: EntryValue) -> Result<Self> {
        value.read().map(Self)
    }

    /// The bytes in a vector of their own, pinning nothing.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

impl std::ops::Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.0 == other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        self.0 == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.0[..] == other[..]
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        self.0 == other
    }
}

impl Engine {
    /// What `read` makes of the value of a key at `seqno`, or now. It is called while the view is held, for
    /// the table that a long value is read from must not be removed meanwhile.
    pub(crate) fn get<T>(
        &self,
        tree: &Tree,
        user_key: &[u8],
        seqno: Option<SeqNo>,
        read: impl FnOnce(EntryValue) -> Result<T>,
    ) -> Result<Option<T>> {
        let view = tree.view_ref();
        // After the view: that of a dropped keyspace is empty, and must not pass for an answer.
        self.check_readable(tree)?;
        let seqno = seqno.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        self.get_in(tree, &view, user_key, seqno)?.map(read).transpose()
    }

    /// What `read` makes of the values of several keys, all at the same moment.
    pub(crate) fn multi_get<K: AsRef<[u8]>, T>(
        &self,
        tree: &Tree,
        user_keys: &[K],
        seqno: Option<SeqNo>,
        read: impl Fn(EntryValue) -> Result<T>,
    ) -> Result<Vec<Option<T>>> {
        let view = tree.view();
        self.check_readable(tree)?;
        let seqno = seqno.unwrap_or_else(|| self.visible.load(Ordering::Acquire));
        let get = |user_key: &K| self.get_in(tree, &view, user_key.as_ref(), seqno)?.map(&read).transpose();
        user_keys.iter().map(get).collect()
    }

    fn get_in(&self, tree: &Tree, view: &View, user_key: &[u8], seqno: SeqNo) -> Result<Option<EntryValue>> {
        let hash = key_hash(self.hash_seed, user_key);
        for memtable in view.memtables() {
            if let Some((tag, value)) = memtable.memtable.get(hash, user_key, seqno) {
                return Ok((tag.kind() == EntryKind::Put).then_some(EntryValue::Inline(value)));
            }
        }
        tree.count_lookup();
        let found = view.version.get(Lookup { user_key, seqno, hash })?;
        Ok(found.filter(|(tag, _)| tag.kind() == EntryKind::Put).map(|(_, value)| value))
    }

    /// Whether memory alone can rule a key out.
    pub(crate) fn may_contain(&self, tree: &Tree, user_key: &[u8]) -> bool {
        let view = tree.view_ref();
        let seqno = self.visible.load(Ordering::Acquire);
        let hash = key_hash(self.hash_seed, user_key);
        let newest = view.memtables().find_map(|memtable| memtable.memtable.get(hash, user_key, seqno));
        match newest {
            Some((tag, _)) => tag.kind() == EntryKind::Put,
            None => view.version.may_contain(user_key, hash),
        }
    }
}

/// An iterator over the entries of a range, in the order of keys, from both ends.
///
/// It sees the store as it was when the iterator was made, and owns what it reads from. After an error it
/// yields that error once and then nothing: a `None` after an `Err` is not the end of the range.
#[derive(Debug)]
pub struct Iter {
    range: Range,
    /// Keeps the store open.
    _owner: Arc<Owner>,
}

impl Iter {
    pub(crate) fn new(
        owner: &Arc<Owner>,
        tree: &Arc<Tree>,
        range: KeyRange,
        seqno: Option<SeqNo>,
    ) -> Result<Self> {
        let view = tree.view();
        owner.check_readable(tree)?;
        let seqno = seqno.unwrap_or_else(|| owner.visible.load(Ordering::Acquire));
        let part = range.clone();
        let source = Box::new(move || Ok(sources(&view, &part)));
        Ok(Self { range: Range::new(source, seqno, range), _owner: Arc::clone(owner) })
    }

    /// An iterator that yields one error.
    pub(crate) fn failed(owner: &Arc<Owner>, error: Error) -> Self {
        let source = Box::new(move || Err(error.clone()));
        Self { range: Range::new(source, 0, KeyRange::all()), _owner: Arc::clone(owner) }
    }
}

impl Iter {
    /// The entry with its whole value. One that cannot be read ends the iterator like any other error.
    fn whole(&mut self, item: Option<Result<(Bytes, EntryValue)>>) -> Option<Result<(Value, Value)>> {
        let read = |(key, value): (Bytes, EntryValue)| Ok((Value::new(key), Value::read(value)?));
        let whole = item?.and_then(read);
        if whole.is_err() {
            self.range.end();
        }
        Some(whole)
    }
}

impl Iterator for Iter {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.range.next();
        self.whole(item)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.range.next_back();
        self.whole(item)
    }
}

impl std::iter::FusedIterator for Iter {}

/// All that a view holds of a range, newest source first.
fn sources(view: &View, range: &KeyRange) -> Box<dyn InternalIterator> {
    let mut sources: Vec<Box<dyn InternalIterator>> = Vec::new();
    for memtable in view.memtables().filter(|memtable| !memtable.memtable.is_empty()) {
        sources.push(Box::new(memtable.memtable.iter()));
    }
    for (_, run) in view.version.all_runs() {
        let meets = |table: &&Arc<TableHandle>| range.meets(&table.meta.smallest, &table.meta.largest);
        let tables: Vec<_> = run.tables.iter().filter(meets).cloned().collect();
        if !tables.is_empty() {
            sources.push(Box::new(RunIter::new(Tables { tables, fill_cache: true })));
        }
    }
    match sources.len() {
        1 => sources.remove(0),
        _ => Box::new(MergeIter::new(sources)),
    }
}

/// Tables of one run as the source of a [`RunIter`].
pub(crate) struct Tables {
    pub(crate) tables: Vec<Arc<TableHandle>>,
    pub(crate) fill_cache: bool,
}

impl RunSource for Tables {
    fn len(&self) -> usize {
        self.tables.len()
    }

    fn bounds(&self, table: usize) -> (&[u8], &[u8]) {
        let meta = &self.tables[table].meta;
        (&meta.smallest, &meta.largest)
    }

    fn open(&self, table: usize) -> Result<Box<dyn InternalIterator>> {
        Ok(Box::new(self.tables[table].open()?.iter(self.fill_cache)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::filename::FileName;
    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn a_table_that_cannot_be_opened_hides_nothing_that_is_newer() {
        let fs = MemFs::new();
        let dir = Path::new("/db");
        let options = || Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        let db = options().open(dir).unwrap();
        db.put("both", "old").unwrap();
        db.put("old only", "old").unwrap();
        db.flush().unwrap();
        db.put("both", "new").unwrap();
        db.put("the last", "new").unwrap();
        db.flush().unwrap();
        let version = Arc::clone(&db.engine().default_tree().view().version);
        let numbers: Vec<_> = version.all_tables().map(|(_, table)| table.meta.number).collect();
        assert_eq!(numbers.len(), 2);
        drop(version);
        db.close().unwrap();
        let path = FileName::Table(numbers[1]).path(dir);
        let (_, mut bytes) = fs.files(dir).into_iter().find(|(file, _)| *file == path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs.overwrite(&path, bytes);

        let db = options().open(dir).unwrap();
        for _ in 0..2 {
            assert_eq!(db.get("both").unwrap().as_deref(), Some(&b"new"[..]));
            assert_eq!(db.get("old only").unwrap_err().file(), Some(&*path));
        }
    }
}
