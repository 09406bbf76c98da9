//! The model of one thread of the writer: write `n` puts the key of slot `n % keys`, so the number of writes determines the
//! contents.

use byteorder::{BigEndian, ByteOrder};
use sievedb::{Db, WriteBatch};

use crate::Result;
use crate::random::{bytes_of, number};

pub(super) struct Ring {
    pub(super) thread: u64,
    pub(super) keys: u64,
}

impl Ring {
    fn key(&self, slot: u64) -> [u8; 17] {
        let mut key = [self.thread as u8; 17];
        key[1..9].copy_from_slice(&bytes_of(number(30 + self.thread, slot)));
        BigEndian::write_u64(&mut key[9..], slot);
        key
    }

    fn counter(&self) -> String {
        format!("written by {}", self.thread)
    }

    pub(super) fn written(&self, db: &Db) -> Result<u64> {
        Ok(db.get(self.counter())?.map_or(0, |value| BigEndian::read_u64(&value)))
    }

    pub(super) fn batch(&self, first: u64, entries: u64, value: &mut [u8]) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for write in first..first + entries {
            BigEndian::write_u64(value, write);
            batch.put(self.key(write % self.keys), &*value);
        }
        let mut written = [0; 8];
        BigEndian::write_u64(&mut written, first + entries);
        batch.put(self.counter(), written);
        batch
    }

    pub(super) fn check(&self, db: &Db) -> Result<u64> {
        let written = self.written(db)?;
        for slot in 0..self.keys {
            let last = written.checked_sub(1 + slot).map(|rest| slot + rest / self.keys * self.keys);
            let found = db.get(self.key(slot))?.map(|value| BigEndian::read_u64(&value));
            if found != last {
                return Err(format!("{written} writes, slot {slot}: {found:?}, expected {last:?}").into());
            }
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_with_so_many_writes_is_accepted_and_one_with_another_entry_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let ring = Ring { thread: 1, keys: 50 };
        let mut value = [0; 100];
        for first in (0..230).step_by(10) {
            assert_eq!(ring.check(&db).unwrap(), first);
            db.write(ring.batch(first, 10, &mut value)).unwrap();
        }
        assert_eq!(ring.check(&db).unwrap(), 230);
        let old = db.get(ring.key(7)).unwrap().unwrap();
        BigEndian::write_u64(&mut value, 157);
        db.put(ring.key(7), value).unwrap();
        assert!(ring.check(&db).is_err());
        db.put(ring.key(7), old).unwrap();
        db.delete(ring.key(49)).unwrap();
        assert!(ring.check(&db).is_err());
    }
}
