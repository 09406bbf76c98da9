//! The newest write of the logs to each key, sorted in two temporary keyspaces of the new store (tags and values),
//! because the logs may exceed memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::plan::{Certainty, Head};
use super::range_deletes::Logged;
use crate::batch::{KeyspaceId, WriteBatch};
use crate::codec::{Reader, put_u64};
use crate::db::handles::iteration::iter::Iter;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::store::Db;
use crate::db::state::durability::Durability;
use crate::db::state::keyspace::change::{Change, OptionsChange};
use crate::error::{Error, Result};
use crate::expiry::buckets::Buckets;
use crate::key::{EntryKind, SeqNo, Tag};
use crate::manifest::keyspace_options::KeyspaceOptions;
use crate::spans::RangeDelete;

pub(super) const BATCH_BYTES: usize = 64 << 10;

const UNFINISHED: &str = "repair-unfinished";

pub(super) struct Scratch<'a> {
    db: &'a Db,
    keyspaces: BTreeMap<KeyspaceId, [Keyspace; 2]>,
    range_deletes: BTreeMap<KeyspaceId, Vec<Logged>>,
    prefix: String,
}

impl<'a> Scratch<'a> {
    pub(super) fn new(db: &'a Db, taken: &[String]) -> Self {
        let mut prefix = UNFINISHED.to_owned();
        while taken.iter().any(|name| name.starts_with(&prefix)) {
            prefix.push('-');
        }
        Self { db, keyspaces: BTreeMap::new(), range_deletes: BTreeMap::new(), prefix }
    }

    pub(super) fn add_range(&mut self, id: KeyspaceId, range_delete: RangeDelete, certainty: Certainty) {
        self.range_deletes.entry(id).or_default().push((range_delete, certainty));
    }

    pub(super) fn range_deletes(&self, id: KeyspaceId) -> &[Logged] {
        self.range_deletes.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The larger sequence number wins. If they are equal, the later call wins: a newer log reuses the number. Copied
    /// writes remain certain.
    pub(super) fn add(
        &mut self,
        id: KeyspaceId,
        (key, value): (&[u8], Option<&[u8]>),
        seqno: SeqNo,
        certainty: Certainty,
    ) -> Result<()> {
        let [writes, values] = self.of(id)?;
        if let Some(known) = writes.get(key)? {
            let known = decode(&known)?;
            let is_copy = || Ok::<_, Error>(values.get(key)?.as_deref() == value);
            if known.0.seqno() > seqno
                || known.0.seqno() == seqno && known.1 == Certainty::Certain && is_copy()?
            {
                return Ok(());
            }
        }
        let mut record = vec![u8::from(certainty == Certainty::Certain)];
        let kind = if value.is_some() { EntryKind::Put } else { EntryKind::Delete };
        put_u64(&mut record, Tag::new(seqno, kind).to_u64());
        let mut batch = WriteBatch::new();
        batch.put_in(&writes, key, record);
        match value {
            Some(value) => batch.put_in(&values, key, value),
            None => batch.delete_in(&values, key),
        };
        self.db.write_with(batch, Durability::Buffered)
    }

    fn of(&mut self, id: KeyspaceId) -> Result<[Keyspace; 2]> {
        if let Some(known) = self.keyspaces.get(&id) {
            return Ok(known.clone());
        }
        let make = |what| self.db.keyspace(&format!("{}-{id}-{what}", self.prefix), KeyspaceOptions::new());
        let made = [make("writes")?, make("values")?];
        self.keyspaces.insert(id, made.clone());
        Ok(made)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = KeyspaceId> + '_ {
        self.keyspaces.keys().copied()
    }

    pub(super) fn writes(&self, id: KeyspaceId) -> Result<Option<LoggedWrites>> {
        let Some([writes, values]) = self.keyspaces.get(&id) else { return Ok(None) };
        let mut found = LoggedWrites { writes: writes.iter(), values: values.clone(), head: None };
        found.advance()?;
        Ok(Some(found))
    }

    pub(super) fn by_bucket(&self, buckets: Buckets) -> Result<ByBucket<'a>> {
        let prefix = format!("{}-bucket", self.prefix);
        let numbers = self.db.keyspace(&prefix, KeyspaceOptions::new())?;
        Ok(ByBucket { db: self.db, prefix, numbers, buckets, keyspaces: BTreeMap::new() })
    }

    pub(super) fn finish(self) -> Result<()> {
        let names: Vec<String> =
            self.keyspaces.values().flatten().map(|keyspace| keyspace.name().to_owned()).collect();
        names.iter().try_for_each(|name| self.db.drop_keyspace(name))
    }
}

/// Entries of an expiring keyspace. They are written to the new store bucket by bucket, with new boundaries.
pub(super) struct ByBucket<'a> {
    db: &'a Db,
    prefix: String,
    numbers: Keyspace,
    buckets: Buckets,
    keyspaces: BTreeMap<usize, Keyspace>,
}

impl ByBucket<'_> {
    pub(super) fn is_hidden(&self, seqno: SeqNo) -> bool {
        seqno < self.buckets.horizon()
    }

    pub(super) fn put(
        &mut self,
        batch: &mut WriteBatch,
        key: &[u8],
        value: &[u8],
        seqno: SeqNo,
    ) -> Result<()> {
        let bucket = self.buckets.bucket_of(seqno);
        if !self.keyspaces.contains_key(&bucket) {
            let made = self.db.keyspace(&format!("{}-{bucket}", self.prefix), KeyspaceOptions::new())?;
            self.keyspaces.insert(bucket, made);
        }
        batch.put_in(&self.keyspaces[&bucket], key, value);
        Ok(())
    }

    /// Writes the entries, then sets `options`. Before that, the caller's clock of the keyspace is unset, so it
    /// writes no other boundary.
    pub(super) fn finish(self, keyspace: &Keyspace, options: KeyspaceOptions) -> Result<()> {
        let (engine, tree) = (self.db.engine(), &keyspace.tree);
        for bucket in 0..=self.buckets.open() {
            if let Some(before) = bucket.checked_sub(1) {
                let time = self.buckets.boundaries()[before].time;
                engine.write_boundary(tree, time)?;
                self.numbers.delete("")?;
            }
            let Some(entries) = self.keyspaces.get(&bucket) else { continue };
            let mut batch = WriteBatch::new();
            for entry in entries.iter() {
                let (key, value) = entry?;
                batch.put_in(keyspace, &key, &value);
                if batch.size_bytes() >= BATCH_BYTES {
                    self.db.write_with(std::mem::take(&mut batch), Durability::Buffered)?;
                }
            }
            self.db.write_with(batch, Durability::Buffered)?;
        }
        let change = OptionsChange::Expiry(options, None);
        engine.publish(Vec::new(), Change::Options(Arc::clone(tree), change))?;
        let temporary = self.keyspaces.values().chain([&self.numbers]);
        temporary.into_iter().try_for_each(|keyspace| self.db.drop_keyspace(keyspace.name()))
    }
}

pub(super) struct LoggedWrites {
    writes: Iter<'static>,
    values: Keyspace,
    head: Option<Head>,
}

impl LoggedWrites {
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    pub(super) fn value(&self) -> Result<Option<Bytes>> {
        let Some(head) = &self.head else { return Ok(None) };
        Ok(self.values.get(&head.user)?.map(|value| Bytes::copy_from_slice(&value)))
    }

    pub(super) fn pass(&mut self, user: &[u8]) -> Result<()> {
        match self.head.as_ref().is_some_and(|head| head.user == user) {
            true => self.advance(),
            false => Ok(()),
        }
    }

    fn advance(&mut self) -> Result<()> {
        self.head = match self.writes.next().transpose()? {
            None => None,
            Some((key, record)) => {
                let (tag, certainty) = decode(&record)?;
                let user = Bytes::copy_from_slice(&key);
                Some(Head { user, tag, certainty, age: tag.seqno(), number: u64::MAX })
            }
        };
        Ok(())
    }
}

fn decode(record: &[u8]) -> Result<(Tag, Certainty)> {
    let mut reader = Reader::new(record);
    let read = reader.u8("certainty").and_then(|certain| Ok((certain, reader.u64("tag")?)));
    let found = read.ok().and_then(|(certain, tag)| Some((Tag::from_u64(tag)?, certain)));
    let (tag, certain) = found.ok_or_else(|| Error::invalid("a record of the repair cannot be read"))?;
    Ok((tag, if certain == 1 { Certainty::Certain } else { Certainty::Doubtful }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fs::MemFs;
    use crate::options::Options;

    #[test]
    fn of_equal_sequence_numbers_the_write_of_the_newer_log_stays() {
        use Certainty::{Certain, Doubtful};
        let db = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).open("/db").unwrap();
        let mut scratch = Scratch::new(&db, &[]);
        let mut add = |key: &str, value: Option<&str>, seqno, certainty| {
            scratch.add(0, (key.as_bytes(), value.map(str::as_bytes)), seqno, certainty).unwrap();
        };
        add("given again", Some("failed"), 5, Certain);
        add("given again", Some("taken"), 5, Certain);
        add("in doubt", Some("failed"), 5, Certain);
        add("in doubt", None, 5, Doubtful);
        add("a copy", Some("copied"), 5, Certain);
        add("a copy", Some("copied"), 5, Doubtful);
        add("later", Some("later"), 6, Certain);
        add("later", Some("earlier"), 5, Certain);
        let mut writes = scratch.writes(0).unwrap().unwrap();
        let mut found = Vec::new();
        while let Some(head) = writes.head().cloned() {
            let value = writes.value().unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap());
            found.push((String::from_utf8(head.user.to_vec()).unwrap(), value, head.certainty));
            writes.pass(&head.user).unwrap();
        }
        let expected = [
            ("a copy", Some("copied"), Certain),
            ("given again", Some("taken"), Certain),
            ("in doubt", None, Doubtful),
            ("later", Some("later"), Certain),
        ];
        let expected =
            expected.map(|(key, value, certainty)| (key.to_owned(), value.map(str::to_owned), certainty));
        assert_eq!(found, expected);
    }
}
