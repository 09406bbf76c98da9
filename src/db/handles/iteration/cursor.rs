use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;

use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::{Reads, SourceOf};
use crate::db::latencies::Call;
use crate::db::queues::value::Value;
use crate::db::read::merged_cursor::MergedCursor;
use crate::db::read::sources::Sources;
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::iter::EntryValue;
use crate::snapshot_read::{self, KeyRange, Movement};

/// A position among the entries of a range. It moves in both directions and seeks to any key.
///
/// The cursor is before the first entry, at an entry, or after the last one. A movement returns whether it has reached
/// an entry. After the last entry, [`prev`](Cursor::prev) moves to the last entry and [`next`](Cursor::next) does
/// nothing; before the first entry, the reverse applies. Initially `next` moves to the first entry and `prev` to the
/// last.
///
/// The cursor sees the store as of its creation and keeps its memtables and tables alive. Seeks and changes of
/// direction are binary searches in each memtable and run; a step costs as much as a step of an iterator. Long values
/// are read on demand.
///
/// In a [`Transaction`](crate::Transaction) it also sees earlier writes of the transaction. A movement counts as a
/// read of all keys from its start to its destination; without a destination, up to the end of the range. Outside of
/// transactions it is a `Cursor<'static>`.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// for key in ["a", "c", "e"] {
///     db.put(key, "")?;
/// }
/// let mut cursor = db.cursor(..);
/// assert!(cursor.seek("b")?);
/// assert_eq!(cursor.key(), Some(&b"c"[..]));
/// assert!(cursor.seek_for_prev("b")?);
/// assert_eq!(cursor.key(), Some(&b"a"[..]));
/// assert!(!cursor.prev()?, "it is before the first entry");
/// let mut keys = Vec::new();
/// while cursor.next()? {
///     keys.extend(cursor.key().map(<[u8]>::to_vec));
/// }
/// assert_eq!(keys, [b"a", b"c", b"e"]);
/// # Ok::<(), sievedb::Error>(())
/// ```
///
/// # Errors
///
/// Movements return [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a file cannot be read;
/// [`KeyspaceDropped`](crate::Error::KeyspaceDropped) or [`Closed`](crate::Error::Closed) if the keyspace was dropped
/// or the store closed before the cursor was created. Later movements return the same error.
#[doc(alias = "DBRawIterator")]
#[doc(alias = "raw_iterator")]
pub struct Cursor<'t> {
    store: snapshot_read::Cursor<Sources>,
    own: Option<Box<MergedCursor>>,
    tree: Arc<Tree>,
    owner: Arc<Owner>,
    transaction: PhantomData<&'t ()>,
}

impl Cursor<'_> {
    pub(in crate::db) fn new(reads: &Reads<'_>, range: KeyRange) -> Self {
        let (own, source, at, range): (_, SourceOf, _, _) = match reads.sources(&range) {
            Ok((_, at, source)) => {
                let own = reads.own.as_deref();
                (own.map(|own| Box::new(MergedCursor::new(own.clone(), &range))), source, at, range)
            }
            Err(error) => (None, Box::new(move || Err(error.clone())), 0.into(), KeyRange::all()),
        };
        let store = snapshot_read::Cursor::new(source, at, range);
        let (tree, owner) = (Arc::clone(reads.tree), Arc::clone(reads.owner));
        Self { store, own, tree, owner, transaction: PhantomData }
    }

    fn go(&mut self, movement: Movement<'_>) -> Result<bool> {
        let (own, store) = (&mut self.own, &mut self.store);
        let arrived = self.owner.engine().latencies.time(Call::ScanStep, || match own {
            None => store.go(movement),
            Some(own) => own.go(store, movement),
        });
        self.owner.engine().count_skipped(&self.tree, self.store.take_skipped());
        arrived
    }

    fn place(&self) -> Option<&(Bytes, EntryValue)> {
        match &self.own {
            None => self.store.entry(),
            Some(own) => own.entry(),
        }
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    ///
    /// See [`Cursor`].
    #[doc(alias = "seek_to_first")]
    pub fn seek_first(&mut self) -> Result<bool> {
        self.go(Movement::First)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    ///
    /// See [`Cursor`].
    #[doc(alias = "seek_to_last")]
    pub fn seek_last(&mut self) -> Result<bool> {
        self.go(Movement::Last)
    }

    /// Moves to the first entry at or after `key`, or after the last entry.
    ///
    /// # Errors
    ///
    /// See [`Cursor`].
    #[doc(alias = "lower_bound")]
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go(Movement::Seek(key.as_ref()))
    }

    /// Moves to the last entry at or before `key`, or before the first entry.
    ///
    /// # Errors
    ///
    /// See [`Cursor`].
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.go(Movement::SeekForPrev(key.as_ref()))
    }

    /// Moves to the next entry; initially to the first.
    ///
    /// # Errors
    ///
    /// See [`Cursor`].
    #[expect(clippy::should_implement_trait, reason = "a cursor is no iterator: it also moves back")]
    pub fn next(&mut self) -> Result<bool> {
        self.go(Movement::Next)
    }

    /// Moves to the previous entry; initially to the last.
    ///
    /// # Errors
    ///
    /// See [`Cursor`].
    pub fn prev(&mut self) -> Result<bool> {
        self.go(Movement::Prev)
    }

    /// Whether the cursor is at an entry.
    #[doc(alias = "valid")]
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.place().is_some()
    }

    /// The key of the entry, if any.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.place().map(|(key, _)| &key[..])
    }

    /// The value of the entry, if any. Each call reads a long value again.
    ///
    /// # Errors
    ///
    /// [`Corruption`](crate::Error::Corruption) or [`Io`](crate::Error::Io) if a long value cannot be read. The
    /// cursor does not move.
    pub fn value(&self) -> Result<Option<Value>> {
        self.place().map(|(_, value)| Value::read(value.clone())).transpose()
    }

    /// Length of the value in bytes, if the cursor is at an entry. No I/O.
    #[must_use]
    pub fn value_len(&self) -> Option<u64> {
        self.place().map(|(_, value)| value.len())
    }

    /// Key and value of the entry, if any.
    ///
    /// # Errors
    ///
    /// See [`Cursor::value`].
    #[doc(alias = "item")]
    pub fn entry(&self) -> Result<Option<(Value, Value)>> {
        let Some((key, value)) = self.place() else { return Ok(None) };
        Ok(Some((Value::new(key.clone()), Value::read(value.clone())?)))
    }
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key().map(|key| key.escape_ascii().to_string());
        f.debug_struct("Cursor").field("keyspace", &self.tree.name).field("key", &key).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::{Bound, RangeBounds};
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::db::handles::store::Db;
    use crate::db::transaction::indexed_batch::IndexedBatch;
    use crate::error::Error;
    use crate::fs::MemFs;
    use crate::merge::vec_iter::Random;
    use crate::options::{KeyspaceOptions, Options};
    use crate::table::Compression;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Place {
        New,
        Before,
        At(usize),
        After,
    }

    struct Expected {
        entries: Vec<(Vec<u8>, Vec<u8>)>,
        place: Place,
    }

    impl Expected {
        fn up(&mut self, at: usize) {
            self.place = if at < self.entries.len() { Place::At(at) } else { Place::After };
        }

        fn down(&mut self, beyond: usize) {
            self.place = beyond.checked_sub(1).map_or(Place::Before, Place::At);
        }

        fn next(&mut self) {
            match self.place {
                Place::New | Place::Before => self.up(0),
                Place::At(at) => self.up(at + 1),
                Place::After => {}
            }
        }

        fn prev(&mut self) {
            match self.place {
                Place::New | Place::After => self.down(self.entries.len()),
                Place::At(at) => self.down(at),
                Place::Before => {}
            }
        }

        fn entry(&self) -> Option<&(Vec<u8>, Vec<u8>)> {
            match self.place {
                Place::At(at) => Some(&self.entries[at]),
                _ => None,
            }
        }
    }

    fn change(db: &Db, model: &mut Model, random: &mut Random, writes: u64) {
        for _ in 0..writes {
            let key = random.key();
            let value = match random.below(60) {
                0 => vec![7; 40_000],
                _ => random.below(1000).to_string().into_bytes(),
            };
            match random.below(60) {
                0 => db.compact().unwrap(),
                1..4 => db.flush().unwrap(),
                4..6 => (0..12).for_each(|_| db.put(&key, b"again").unwrap()),
                _ => {}
            }
            if random.below(3) == 0 {
                db.delete(&key).unwrap();
                model.remove(&key);
            } else {
                db.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }

    fn move_at_random(
        cursor: &mut Cursor<'_>,
        expected: &mut Expected,
        random: &mut Random,
    ) -> (usize, usize) {
        let (mut turns, mut arrivals) = (0, 0);
        let mut was_upward = true;
        for step in 0..60 {
            let key = random.key();
            let (before, end) = (expected.place, expected.entries.len());
            let movement = random.below(10);
            let arrived = match movement {
                0 => (expected.up(0), cursor.seek_first()).1,
                1 => (expected.down(end), cursor.seek_last()).1,
                2 => {
                    expected.up(expected.entries.partition_point(|(other, _)| *other < key));
                    cursor.seek(&key)
                }
                3 => {
                    expected.down(expected.entries.partition_point(|(other, _)| *other <= key));
                    cursor.seek_for_prev(&key)
                }
                4 | 6 | 8 => (expected.next(), cursor.next()).1,
                _ => (expected.prev(), cursor.prev()).1,
            };
            let entry = expected.entry();
            let at = format!("step {step}: movement {movement} from {before:?}, key {key:?}");
            assert_eq!(arrived.unwrap(), entry.is_some(), "{at}");
            assert_eq!(cursor.is_valid(), entry.is_some(), "{at}");
            assert_eq!(cursor.key(), entry.map(|(key, _)| &key[..]), "{at}");
            assert_eq!(cursor.value_len(), entry.map(|(_, value)| value.len() as u64), "{at}");
            let read = cursor.entry().unwrap().map(|(key, value)| (key.into(), value.into()));
            assert_eq!(read.as_ref(), entry, "{at}");
            let is_upward = movement.is_multiple_of(2);
            turns += usize::from(movement > 3 && is_upward != was_upward && matches!(before, Place::At(_)));
            arrivals += usize::from(entry.is_some());
            was_upward = is_upward;
        }
        (turns, arrivals)
    }

    fn random_bound<'a>(random: &mut Random, key: &'a [u8]) -> Bound<&'a [u8]> {
        match random.below(4) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        }
    }

    #[test]
    fn a_cursor_moved_at_random_is_where_one_over_a_sorted_map_is() {
        let mut random = Random(7);
        let (mut turns, mut arrivals) = (0, 0);
        for _ in 0..40 {
            let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
            let db = options.open("/db").unwrap();
            let mut model = Model::new();
            let writes = 10 + random.below(120);
            change(&db, &mut model, &mut random, writes);
            for _ in 0..6 {
                let (low, high) = (random.key(), random.key());
                let bounds = (random_bound(&mut random, &low), random_bound(&mut random, &high));
                let within = |key: &Vec<u8>| RangeBounds::<&[u8]>::contains(&bounds, &key.as_slice());
                let entries = model.iter().filter(|(key, _)| within(key));
                let entries = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
                let mut expected = Expected { entries, place: Place::New };
                let (snapshot, mut cursor) = (db.snapshot(), db.cursor(bounds));
                change(&db, &mut model, &mut random, 20);
                if random.below(2) == 0 {
                    cursor = snapshot.cursor(bounds);
                }
                let (more_turns, more_arrivals) = move_at_random(&mut cursor, &mut expected, &mut random);
                turns += more_turns;
                arrivals += more_arrivals;
            }
        }
        assert!(turns > 1000 && arrivals > 5000, "{turns} turns, {arrivals} arrivals");
    }

    #[test]
    fn a_cursor_over_own_writes_is_where_one_over_a_sorted_map_with_them_is() {
        let mut random = Random(8);
        let (mut turns, mut arrivals) = (0, 0);
        for round in 0..240 {
            let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
            let db = options.open("/db").unwrap();
            let mut model = Model::new();
            let writes = random.below(60);
            change(&db, &mut model, &mut random, writes);
            let (tx, mut batch) = (db.transaction(), IndexedBatch::new());
            for n in 0..random.below(40) {
                let (key, value) = (random.key(), [n as u8]);
                if random.below(2) == 0 {
                    tx.delete(&key);
                    batch.delete(&key);
                    model.remove(&key);
                } else {
                    tx.put(&key, value);
                    batch.put(&key, value);
                    model.insert(key, value.to_vec());
                }
            }
            let (low, high) = (random.key(), random.key());
            let bounds = (random_bound(&mut random, &low), random_bound(&mut random, &high));
            let within = |key: &Vec<u8>| RangeBounds::<&[u8]>::contains(&bounds, &key.as_slice());
            let entries = model.clone().into_iter().filter(|(key, _)| within(key)).collect();
            let mut cursor = match round % 3 {
                0 => tx.cursor(bounds),
                1 => tx.keyspace(&db.default_keyspace()).cursor(bounds),
                _ => batch.over(tx.snapshot()).cursor(bounds),
            };
            // Later writes are invisible, including the transaction's own.
            tx.put(random.key(), "later");
            batch.put(random.key(), "later");
            change(&db, &mut model, &mut random, 20);
            let mut expected = Expected { entries, place: Place::New };
            let (more_turns, more_arrivals) = move_at_random(&mut cursor, &mut expected, &mut random);
            turns += more_turns;
            arrivals += more_arrivals;
        }
        assert!(turns > 1000 && arrivals > 5000, "{turns} turns, {arrivals} arrivals");
    }

    #[test]
    fn a_cursor_that_failed_repeats_its_error_and_is_nowhere() {
        let fs = MemFs::new();
        let plain = KeyspaceOptions::new().compression(Compression::None);
        let options = || Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        let db = options().default_keyspace(plain).open("/db").unwrap();
        (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), [1; 100]).unwrap());
        db.compact().unwrap();
        db.close().unwrap();
        for (path, mut bytes) in fs.files(Path::new("/db")) {
            if path.extension().is_some_and(|extension| extension == "sst") {
                bytes[20_000..60_000].fill(0);
                fs.overwrite(&path, bytes);
            }
        }
        let db = options().open("/db").unwrap();
        let mut batch = IndexedBatch::new();
        batch.put("own", "");
        for mut cursor in [db.cursor(..), batch.over(&db).cursor(..)] {
            assert!(cursor.seek_first().unwrap());
            let failed = cursor.seek(300u32.to_be_bytes());
            assert!(matches!(failed, Err(Error::Corruption { .. })), "{failed:?}");
            assert!(!cursor.is_valid() && cursor.key().is_none() && cursor.entry().unwrap().is_none());
            assert!(cursor.next().is_err() && cursor.prev().is_err() && cursor.seek_last().is_err());
            assert!(cursor.seek("own").is_err());
        }
    }

    #[test]
    fn a_cursor_of_a_dropped_keyspace_fails_whatever_its_range() {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        let keyspace = db.open_keyspace("k").unwrap();
        keyspace.put("a", "1").unwrap();
        let mut before = keyspace.cursor(..);
        db.drop_keyspace("k").unwrap();
        assert!(before.next().unwrap(), "it has what it reads from");
        for mut cursor in [keyspace.cursor(..), keyspace.cursor("b".."a")] {
            assert!(matches!(cursor.next(), Err(Error::KeyspaceDropped { .. })));
            assert!(matches!(cursor.seek_for_prev("a"), Err(Error::KeyspaceDropped { .. })));
        }
    }

    #[test]
    fn cursors_go_between_threads() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<Cursor<'static>>();
    }
}
