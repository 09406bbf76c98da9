use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use sievedb::{Db, Keyspace, KeyspaceOptions, Options, TimeSource, WriteBatch};

use super::{Plan, Seen};
use crate::Result;
use crate::expiry::stream::{BUCKETS, Id, TTL_MILLIS, end_of_bucket, in_order};

fn open(dir: &Path, plan: &Plan) -> Result<Db> {
    Ok(Options::new().memory_budget(plan.memory_bytes as usize).open(dir)?)
}

fn debt(db: &Db) -> u64 {
    db.stats().keyspaces.iter().map(|keyspace| keyspace.owed_bytes).sum()
}

pub(super) struct Ttl {
    db: Db,
    ids: Keyspace,
}

impl Ttl {
    pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Self> {
        let db = open(dir, plan)?;
        let ttl = KeyspaceOptions::new().ttl(Duration::from_millis(TTL_MILLIS)).ttl_buckets(BUCKETS.into());
        let ids = db.keyspace("ids", ttl.time_source(TimeSource::Caller))?;
        Ok(Self { db, ids })
    }
}

impl Seen for Ttl {
    fn insert(&mut self, now: u64, ids: &[Id]) -> Result<Vec<bool>> {
        self.ids.advance_time(Duration::from_millis(now))?;
        Ok(self.ids.insert_new_many(ids.iter().map(|id| (id, "")))?.iter().collect())
    }

    fn debt(&self) -> Result<u64> {
        Ok(debt(&self.db))
    }
}

/// A keyspace per bucket: a lookup probes all, and the oldest is dropped.
pub(super) struct Keyspaces {
    db: Db,
    by_end: BTreeMap<u64, Keyspace>,
}

impl Keyspaces {
    pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Self> {
        let db = open(dir, plan)?;
        let mut by_end = BTreeMap::new();
        for name in db.keyspaces() {
            if let Ok(end) = name.parse() {
                by_end.insert(end, db.existing_keyspace(&name).ok_or("a keyspace is missing")?);
            }
        }
        Ok(Self { db, by_end })
    }
}

impl Seen for Keyspaces {
    fn insert(&mut self, now: u64, ids: &[Id]) -> Result<Vec<bool>> {
        while let Some(oldest) = self.by_end.first_entry().filter(|oldest| oldest.key() + TTL_MILLIS <= now) {
            self.db.drop_keyspace(oldest.remove().name())?;
        }
        let end = end_of_bucket(now);
        let current = match self.by_end.get(&end) {
            Some(current) => current.clone(),
            None => self.db.keyspace(&end.to_string(), KeyspaceOptions::new())?,
        };
        let mut is_new = vec![true; ids.len()];
        for older in self.by_end.range(..end).map(|(_, keyspace)| keyspace) {
            let left: Vec<usize> = (0..ids.len()).filter(|&at| is_new[at]).collect();
            let asked: Vec<&Id> = left.iter().map(|&at| &ids[at]).collect();
            let found = older.multi_contains(&asked)?;
            left.iter().zip(found).for_each(|(&at, found)| is_new[at] = !found);
        }
        self.by_end.insert(end, current.clone());
        let left: Vec<usize> = (0..ids.len()).filter(|&at| is_new[at]).collect();
        let new = current.insert_new_many(left.iter().map(|&at| (&ids[at], "")))?;
        left.iter().zip(new.iter()).for_each(|(&at, new)| is_new[at] = new);
        Ok(is_new)
    }

    fn debt(&self) -> Result<u64> {
        Ok(debt(&self.db))
    }
}

pub(super) struct Deletes {
    db: Db,
    ids: Keyspace,
    by_bucket: Keyspace,
}

const DELETED_TOGETHER: usize = 1000;

impl Deletes {
    pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Self> {
        let db = open(dir, plan)?;
        let [ids, by_bucket] = ["ids", "by bucket"].map(|name| db.keyspace(name, KeyspaceOptions::new()));
        Ok(Self { ids: ids?, by_bucket: by_bucket?, db })
    }

    fn delete_expired(&self, now: u64) -> Result<()> {
        let last = in_order(now.saturating_sub(TTL_MILLIS));
        let is_over = |key: &[u8]| key[..8] <= last[..];
        if !self.by_bucket.first()?.is_some_and(|(key, _)| is_over(&key)) {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        let mut count = 0;
        for item in self.by_bucket.iter() {
            let (key, _) = item?;
            if !is_over(&key) {
                break;
            }
            batch.delete_in(&self.ids, &key[8..]);
            batch.delete_in(&self.by_bucket, &key);
            count += 1;
            if count % DELETED_TOGETHER == 0 {
                self.db.write(std::mem::take(&mut batch))?;
            }
        }
        Ok(self.db.write(batch)?)
    }
}

impl Seen for Deletes {
    fn insert(&mut self, now: u64, ids: &[Id]) -> Result<Vec<bool>> {
        self.delete_expired(now)?;
        let end = in_order(end_of_bucket(now));
        let new = self.ids.insert_new_many_then(ids.iter().map(|id| (id, "")), |new, batch| {
            for (id, _) in ids.iter().zip(new.iter()).filter(|(_, is_new)| *is_new) {
                batch.put_in(&self.by_bucket, [&end[..], &id[..]].concat(), "");
            }
            Ok(())
        })?;
        Ok(new.iter().collect())
    }

    fn debt(&self) -> Result<u64> {
        Ok(debt(&self.db))
    }
}
