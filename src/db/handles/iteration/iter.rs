//! Iterators over the entries of a range: full, only keys, only values, or with lazy values. All wrap a [`Scan`].

use std::fmt;
use std::io::{self, Write};
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;

use super::key_copies::KeyCopies;
use crate::db::handles::owner::Owner;
use crate::db::handles::read_view::Reads;
use crate::db::latencies::{Call, Latencies};
use crate::db::queues::value::Value;
use crate::db::read::laid_over::Direction;
use crate::db::read::merged::Merged;
use crate::db::read::sources::Sources;
use crate::db::state::keyspace::tree::{Tree, View};
use crate::error::{Error, Result};
use crate::iter::EntryValue;
use crate::snapshot_read::{KeyRange, Range, Visible};

pub(in crate::db) struct Scan<'t> {
    range: Range<Sources>,
    keys: KeyCopies,
    own: Option<Box<Merged>>,
    of: Option<Scanned>,
    latencies: Latencies,
    /// Whether steps have neither `own` writes nor latencies to handle.
    is_plain: bool,
    owner: Arc<Owner>,
    transaction: PhantomData<&'t ()>,
}

trait Read {
    type Item;

    fn read(keys: &mut KeyCopies, entry: Visible<'_, Sources>) -> Option<Result<Self::Item>>;
}

struct Scanned {
    tree: Arc<Tree>,
    view: Arc<View>,
}

impl Scan<'_> {
    pub(in crate::db) fn new(reads: &Reads<'_>, range: KeyRange) -> Self {
        Self::begin(reads, range).unwrap_or_else(|error| Self::failed(reads.owner, error))
    }

    fn begin(reads: &Reads<'_>, range: KeyRange) -> Result<Self> {
        let (view, moment, source) = reads.sources(&range)?;
        let tree = Arc::clone(reads.tree);
        let own = reads.own.as_deref().map(|own| Box::new(Merged::new(own.clone(), &range)));
        let range = Range::new(source, moment, range);
        let scan = Self::of_range(range, reads.owner);
        let is_plain = scan.is_plain && own.is_none();
        Ok(Self { own, of: Some(Scanned { tree, view }), is_plain, ..scan })
    }

    fn failed(owner: &Arc<Owner>, error: Error) -> Self {
        let source = Box::new(move || Err(error.clone()));
        Self::of_range(Range::new(source, 0, KeyRange::all()), owner)
    }

    fn of_range(range: Range<Sources>, owner: &Arc<Owner>) -> Self {
        let keys = KeyCopies::default();
        let latencies = owner.engine().latencies.clone();
        let is_plain = !latencies.are_on();
        let owner = Arc::clone(owner);
        Self { range, keys, own: None, of: None, latencies, is_plain, owner, transaction: PhantomData }
    }

    #[cold]
    fn end(&mut self) {
        self.range.end();
        self.own = None;
        self.of = None;
    }

    #[inline(always)]
    fn count_skipped(&mut self) {
        let skipped = self.range.take_skipped();
        if skipped > 0
            && let Some(of) = &self.of
        {
            self.owner.engine().count_skipped(&of.tree, skipped);
        }
    }

    #[cold]
    fn over<T>(&mut self, error: Option<Error>) -> Option<Result<T>> {
        self.count_skipped();
        self.end();
        error.map(Err)
    }

    #[inline(always)]
    fn next<R: Read>(&mut self) -> Option<Result<R::Item>> {
        if self.is_plain { self.step::<R>() } else { self.any_step::<R>(Direction::Up) }
    }

    #[inline(always)]
    fn next_back<R: Read>(&mut self) -> Option<Result<R::Item>> {
        if self.is_plain { self.step_back::<R>() } else { self.any_step::<R>(Direction::Down) }
    }

    #[cold]
    #[inline(never)]
    fn any_step<R: Read>(&mut self, direction: Direction) -> Option<Result<R::Item>> {
        let latencies = mem::take(&mut self.latencies);
        let item = latencies.time(Call::ScanStep, || match direction {
            _ if self.own.is_some() => self.next_of_both::<R>(direction),
            Direction::Up => self.step::<R>(),
            Direction::Down => self.step_back::<R>(),
        });
        self.latencies = latencies;
        item
    }

    #[inline(always)]
    fn step<R: Read>(&mut self) -> Option<Result<R::Item>> {
        let item = match self.range.next() {
            Ok(Some(entry)) => R::read(&mut self.keys, entry),
            Ok(None) => return self.over(None),
            Err(error) => return self.over(Some(error)),
        };
        self.after(&item);
        item
    }

    #[inline(always)]
    fn step_back<R: Read>(&mut self) -> Option<Result<R::Item>> {
        let item = match self.range.next_back() {
            Ok(Some(entry)) => R::read(&mut self.keys, entry),
            Ok(None) => return self.over(None),
            Err(error) => return self.over(Some(error)),
        };
        self.after(&item);
        item
    }

    #[inline(always)]
    fn after<T>(&mut self, item: &Option<Result<T>>) {
        self.count_skipped();
        if let Some(Err(_)) = item {
            self.end();
        }
    }

    #[cold]
    fn next_of_both<R: Read>(&mut self, direction: Direction) -> Option<Result<R::Item>> {
        match self.own.as_mut()?.step(&mut self.range, direction) {
            Some(Ok((key, mut value))) => {
                let item = R::read(&mut self.keys, Visible::kept(&key, &mut value));
                self.after(&item);
                item
            }
            Some(Err(error)) => self.over(Some(error)),
            None => self.over(None),
        }
    }

    pub(in crate::db) fn is_empty(&mut self) -> Result<bool> {
        self.next::<Nothing>().transpose().map(|entry| entry.is_none())
    }

    pub(in crate::db) fn count(mut self) -> Result<u64> {
        let mut count = 0;
        while self.next::<Nothing>().transpose()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("of", &self.of.as_ref().map(|of| &of.tree)).finish_non_exhaustive()
    }
}

enum Both {}

impl Read for Both {
    type Item = (Value, Value);

    #[inline(always)]
    fn read(keys: &mut KeyCopies, entry: Visible<'_, Sources>) -> Option<Result<(Value, Value)>> {
        let key = keys.copy(entry.key);
        match entry.value() {
            EntryValue::Inline(value) => Some(Ok((key, Value::new(value)))),
            long @ EntryValue::Chunked(_) => Some(Value::read(long).map(|value| (key, value))),
        }
    }
}

enum Key {}

impl Read for Key {
    type Item = Value;

    #[inline(always)]
    fn read(keys: &mut KeyCopies, entry: Visible<'_, Sources>) -> Option<Result<Value>> {
        Some(Ok(keys.copy(entry.key)))
    }
}

enum ValueOnly {}

impl Read for ValueOnly {
    type Item = Value;

    #[inline(always)]
    fn read(_: &mut KeyCopies, entry: Visible<'_, Sources>) -> Option<Result<Value>> {
        Some(Value::read(entry.value()))
    }
}

enum Unread {}

impl Read for Unread {
    type Item = (Value, EntryValue);

    #[inline(always)]
    fn read(keys: &mut KeyCopies, entry: Visible<'_, Sources>) -> Option<Result<(Value, EntryValue)>> {
        Some(Ok((keys.copy(entry.key), entry.value())))
    }
}

enum Nothing {}

impl Read for Nothing {
    type Item = ();

    #[inline(always)]
    fn read(_: &mut KeyCopies, _: Visible<'_, Sources>) -> Option<Result<()>> {
        Some(Ok(()))
    }
}

/// An iterator over the entries of a range in key order, usable from both ends.
///
/// The iterator sees the store as of its creation. In a [`Transaction`](crate::Transaction) it cannot outlive the
/// transaction; elsewhere it is an `Iter<'static>`. After an error it returns `None`.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("a", "1")?;
/// db.put("b", "2")?;
/// let mut iter = db.iter();
/// let (first, _) = iter.next().expect("two entries")?;
/// let (last, _) = iter.next_back().expect("one more")?;
/// assert_eq!((first, last), ("a".into(), "b".into()));
/// assert!(iter.next().is_none());
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Debug)]
pub struct Iter<'t>(Scan<'t>);

impl<'t> Iter<'t> {
    pub(in crate::db) fn new(scan: Scan<'t>) -> Self {
        Self(scan)
    }

    /// Iterates over keys. Long values are not read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("user:1", "Ada")?;
    /// let keys: Vec<_> = db.prefix("user:").keys().collect::<Result<_, _>>()?;
    /// assert_eq!(keys, ["user:1"]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn keys(self) -> Keys<'t> {
        Keys(self.0)
    }

    /// Iterates over values, in key order.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("user:1", "Ada")?;
    /// let names: Vec<_> = db.prefix("user:").values().collect::<Result<_, _>>()?;
    /// assert_eq!(names, ["Ada"]);
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn values(self) -> Values<'t> {
        Values(self.0)
    }

    /// Reads values on demand. This only matters for values over 32 KiB, which have their own blocks.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("photo:1", vec![0; 1 << 20])?;
    /// for item in db.prefix("photo:").lazy() {
    ///     let (name, photo) = item?;
    ///     println!("{name} has {} bytes", photo.len());
    /// }
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    pub fn lazy(self) -> LazyIter<'t> {
        LazyIter(self.0)
    }
}

macro_rules! iterate {
    ($iterator:ident, $item:ty, $read:ty) => {
        impl Iterator for $iterator<'_> {
            type Item = Result<$item>;

            fn next(&mut self) -> Option<Self::Item> {
                self.0.next::<$read>()
            }
        }

        impl DoubleEndedIterator for $iterator<'_> {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.0.next_back::<$read>()
            }
        }

        impl FusedIterator for $iterator<'_> {}
    };
}

iterate!(Iter, (Value, Value), Both);

/// An iterator over keys; see [`Iter::keys`].
#[derive(Debug)]
pub struct Keys<'t>(Scan<'t>);

iterate!(Keys, Value, Key);

/// An iterator over values; see [`Iter::values`].
#[derive(Debug)]
pub struct Values<'t>(Scan<'t>);

iterate!(Values, Value, ValueOnly);

/// An iterator with values read on demand; see [`Iter::lazy`].
#[derive(Debug)]
pub struct LazyIter<'t>(Scan<'t>);

impl LazyIter<'_> {
    fn pins(&self) -> Option<(Arc<View>, Arc<Owner>)> {
        self.0.of.as_ref().map(|of| (Arc::clone(&of.view), Arc::clone(&self.0.owner)))
    }
}

impl Iterator for LazyIter<'_> {
    type Item = Result<(Value, LazyValue)>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.0.next::<Unread>()?;
        Some(item.map(|(key, value)| (key, LazyValue::new(value, || self.pins()))))
    }
}

impl DoubleEndedIterator for LazyIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let item = self.0.next_back::<Unread>()?;
        Some(item.map(|(key, value)| (key, LazyValue::new(value, || self.pins()))))
    }
}

impl FusedIterator for LazyIter<'_> {}

/// A value read on demand; see [`LazyIter`]. A long value keeps the store open, and keeps the memtables and tables of
/// its iterator.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = sievedb::Db::open(dir.path())?;
/// db.put("photo", vec![7; 1 << 20])?;
/// let (_, photo) = db.iter().lazy().next().expect("there is an entry")?;
/// assert_eq!(photo.len(), 1 << 20);
/// assert_eq!(photo.read()?.len(), 1 << 20);
/// # Ok::<(), sievedb::Error>(())
/// ```
#[derive(Clone)]
pub struct LazyValue {
    value: EntryValue,
    _pins: Option<(Arc<View>, Arc<Owner>)>,
}

impl LazyValue {
    pub(in crate::db) fn new(
        value: EntryValue,
        pins: impl FnOnce() -> Option<(Arc<View>, Arc<Owner>)>,
    ) -> Self {
        let _pins = if matches!(value, EntryValue::Chunked(_)) { pins() } else { None };
        Self { value, _pins }
    }

    /// Length in bytes. No I/O.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.value.len()
    }

    /// Whether the value is empty. No I/O.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the value. O(length) if the value is long.
    ///
    /// # Errors
    ///
    /// [`Corruption`](Error::Corruption) or [`Io`](Error::Io) if it cannot be read.
    pub fn read(&self) -> Result<Value> {
        Value::read(self.value.clone())
    }

    /// Writes the value to `out` in chunks, so that a long one is never in memory as a whole.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("photo", vec![7; 1 << 20])?;
    /// let (_, photo) = db.iter().lazy().next().expect("there is an entry")?;
    /// let mut file = Vec::new();
    /// photo.write_to(&mut file)?;
    /// assert_eq!(file.len(), 1 << 20);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of `out`, and those of [`LazyValue::read`] converted. Earlier chunks were written.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let chunks = match &self.value {
            EntryValue::Inline(bytes) => return out.write_all(bytes),
            EntryValue::Chunked(chunks) => chunks,
        };
        let mut written = Ok(());
        let read = chunks.read_chunks(&mut |chunk| {
            written = out.write_all(chunk);
            // This error ends the reading; the caller gets `written`.
            if written.is_ok() { Ok(()) } else { Err(Error::Cancelled) }
        });
        written.and_then(|()| Ok(read?))
    }
}

impl fmt::Debug for LazyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::db::Db;
    use crate::fs::MemFs;
    use crate::options::Options;

    const LONG: usize = 300_000;

    fn sample() -> Db {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        for (key, value) in [("a", vec![1; 3]), ("b", vec![2; LONG]), ("c", Vec::new()), ("d", vec![4; LONG])]
        {
            db.put(key, value).unwrap();
        }
        db.compact().unwrap();
        db
    }

    #[test]
    fn keys_and_lazy_values_read_no_chunk_until_they_are_asked_to() {
        let db = sample();
        let before = db.stats().value_chunk_reads;
        let chunks = || db.stats().value_chunk_reads - before;
        let keys: Vec<_> = db.keys().map(Result::unwrap).collect();
        assert_eq!(keys, ["a", "b", "c", "d"]);
        assert!(db.range("b"..).keys().rev().map(Result::unwrap).eq(["d", "c", "b"]));
        assert_eq!((db.len().unwrap(), db.is_empty().unwrap()), (4, false));
        let lazy: Vec<_> = db.range("b"..).lazy().map(Result::unwrap).collect();
        let lens: Vec<_> = lazy.iter().map(|(key, value)| (key.to_string(), value.len())).collect();
        let expected = [("b", LONG as u64), ("c", 0), ("d", LONG as u64)];
        assert_eq!(lens, expected.map(|(key, len)| (key.to_owned(), len)));
        assert!(lazy[1].1.is_empty() && !lazy[2].1.is_empty());
        assert_eq!(chunks(), 0);
        assert_eq!(lazy[2].1.read().unwrap(), vec![4; LONG]);
        assert!(chunks() > 0);
        let values: Vec<_> = db.values().rev().map(|value| value.unwrap().len()).collect();
        assert_eq!(values, [LONG, 0, LONG, 3]);
    }

    #[test]
    fn a_lazy_value_outlives_its_iterator_its_table_and_the_handle() {
        let db = sample();
        let (_, value) = db.iter().lazy().nth(1).unwrap().unwrap();
        (b'a'..b'e').for_each(|key| db.delete([key]).unwrap());
        db.compact().unwrap();
        assert_eq!((db.len().unwrap(), db.stats().held_files), (0, 1));
        db.engine().context.memory.blocks().set_capacity(0);
        drop(db);
        let mut written = Vec::new();
        value.write_to(&mut written).unwrap();
        assert_eq!(written, vec![2; LONG]);
    }

    #[test]
    fn a_long_value_is_written_until_the_writer_fails() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match self.0 {
                    0 => Err(io::ErrorKind::StorageFull.into()),
                    room => {
                        let len = bytes.len().min(room);
                        self.0 -= len;
                        Ok(len)
                    }
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let db = sample();
        let (_, value) = db.iter().lazy().nth(1).unwrap().unwrap();
        for room in [0, 1, LONG - 1] {
            let mut out = Full(room);
            assert_eq!(value.write_to(&mut out).unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!(out.0, 0);
        }
        assert!(value.write_to(&mut Full(LONG)).is_ok());
    }
}
