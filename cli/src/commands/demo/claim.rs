//! A keyspace of the demo. [`DEMOS`] maps it to its [`Contents`], the number of entries and a sum over them, written with each
//! batch. A keyspace that differs from its record is refused before anything is deleted.

use sievedb::hash::key_hash;
use sievedb::{Db, Durability, Keyspace, KeyspaceOptions, WriteBatch};

use crate::failure::{Failure, Result};
use crate::store::{DEFAULT_KEYSPACE, DEMOS};

const BATCH_BYTES: usize = 256 << 10;

pub(super) struct Claim {
    pub(super) keyspace: Keyspace,
    pub(super) deleted: u64,
    own: Keyspace,
    contents: Contents,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Contents {
    entries: u64,
    sum: u64,
}

impl Contents {
    fn hash(key: &[u8], value: &[u8]) -> u64 {
        key_hash(key_hash(0, key), value)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        self.sum = self.sum.wrapping_add(Self::hash(key, value));
    }

    fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(Self::hash(key, value));
    }

    fn of(keyspace: &Keyspace) -> Result<Self> {
        let mut contents = Self::default();
        for entry in keyspace {
            let (key, value) = entry?;
            contents.add(&key, &value);
        }
        Ok(contents)
    }

    fn encode(self) -> String {
        format!("{} entries, sum {:016x}", self.entries, self.sum)
    }
}

impl Claim {
    pub(super) fn check(db: &Db, name: &str) -> Result<()> {
        Self::contents(db, name).map(drop)
    }

    fn contents(db: &Db, name: &str) -> Result<Contents> {
        let refused = |what: &str| {
            Failure::Usage(format!(
                "keyspace {name} of {} {what}; give the demo another directory, or a new keyspace with --keyspace",
                db.path().display()
            ))
        };
        let existing = db.existing_keyspace(name);
        let is_new = existing.is_none() || (name == DEFAULT_KEYSPACE && db.open_report().created);
        let recorded = match db.existing_keyspace(DEMOS) {
            Some(own) => own.get(name)?,
            None => None,
        };
        if name == DEMOS || !(is_new || recorded.is_some()) {
            return Err(refused("was not made by the demo, which would clear it"));
        }
        let contents = existing.as_ref().map_or(Ok(Contents::default()), Contents::of)?;
        let is_as_recorded = recorded.is_some_and(|recorded| *recorded == *contents.encode().as_bytes());
        if contents.entries > 0 && !is_as_recorded {
            return Err(refused("has entries that the demo did not write, which it would delete"));
        }
        Ok(contents)
    }

    pub(super) fn take(db: &Db, name: &str, options: &KeyspaceOptions) -> Result<Self> {
        let contents = Self::contents(db, name)?;
        let own = db.keyspace(DEMOS, KeyspaceOptions::default())?;
        let mut batch = WriteBatch::new();
        batch.put_in(&own, name, contents.encode());
        db.write_with(batch, Durability::Synced)?;
        let keyspace = db.keyspace(name, options.clone())?;
        let mut claim = Self { keyspace, deleted: contents.entries, own, contents };
        claim.clear(db)?;
        claim.keyspace.set_options(options.clone())?;
        Ok(claim)
    }

    /// The key must be new.
    pub(super) fn put(&mut self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) {
        batch.put_in(&self.keyspace, key, value);
        self.contents.add(key, value);
    }

    pub(super) fn write(&self, db: &Db, mut batch: WriteBatch) -> Result<()> {
        batch.put_in(&self.own, self.keyspace.name(), self.contents.encode());
        Ok(db.write(batch)?)
    }

    fn clear(&mut self, db: &Db) -> Result<()> {
        let mut batch = WriteBatch::new();
        for entry in &self.keyspace {
            let (key, value) = entry?;
            self.contents.remove(&key, &value);
            batch.delete_in(&self.keyspace, key);
            if batch.size_bytes() >= BATCH_BYTES {
                self.write(db, std::mem::take(&mut batch))?;
            }
        }
        self.write(db, batch)?;
        Ok(self.keyspace.compact()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(db: &Db) -> Result<Claim> {
        Claim::take(db, "mine", &KeyspaceOptions::default())
    }

    fn load(db: &Db, claim: &mut Claim, keys: std::ops::Range<u32>) {
        let mut batch = WriteBatch::new();
        keys.for_each(|key| claim.put(&mut batch, format!("key {key}").as_bytes(), b"value"));
        claim.write(db, batch).unwrap();
    }

    #[test]
    fn a_keyspace_is_cleared_if_and_only_if_all_of_it_was_written_by_the_demo() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(folder.path()).unwrap();
        let mut claim = take(&db).unwrap();
        load(&db, &mut claim, 0..10);
        // Interrupted before the second batch.
        load(&db, &mut claim, 10..20);
        let mut claim = take(&db).unwrap();
        assert_eq!((claim.deleted, claim.keyspace.iter().count()), (20, 0));
        load(&db, &mut claim, 0..10);
        let keyspace = claim.keyspace.clone();
        let set = |key: &str, value: Option<&[u8]>| match value {
            Some(value) => keyspace.put(key, value).unwrap(),
            None => keyspace.delete(key).unwrap(),
        };
        for (key, value) in [("more", Some(&b""[..])), ("key 1", None), ("key 1", Some(b"x"))] {
            let old = keyspace.get(key).unwrap();
            set(key, value);
            let before = Contents::of(&keyspace).unwrap();
            assert!(matches!(take(&db), Err(Failure::Usage(_))), "{key}: {value:?}");
            assert_eq!(Contents::of(&keyspace).unwrap(), before, "{key}: {value:?}");
            set(key, old.as_deref());
        }
        assert_eq!(take(&db).unwrap().deleted, 10);
    }
}
