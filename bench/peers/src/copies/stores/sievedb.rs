use std::path::Path;

use sievedb::{Db, Options, WriteBatch};
use sievedb_backup::{Control, Repository, Restore};

use super::{Entries, Store, digest};
use crate::Result;

pub(super) struct Copied(Db);

impl Copied {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        Ok(Self(Options::new().memory_budget(256 << 20).open(dir)?))
    }
}

impl Store for Copied {
    fn write(&self, entries: Entries<'_>) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in entries {
            batch.put(key, value);
        }
        Ok(self.0.write(batch)?)
    }

    fn settle(&self) -> Result<()> {
        self.0.flush()?;
        Ok(self.0.settle()?)
    }

    fn checkpoint(&self, to: &Path) -> Result<()> {
        Ok(self.0.checkpoint(to)?)
    }

    fn backup(&self, repository: &Path) -> Result<()> {
        Repository::create(repository)?.backup(&self.0, &mut Control::new())?;
        Ok(())
    }

    fn restore(&self, repository: &Path, to: &Path) -> Result<()> {
        Repository::open(repository)?.restore(to, &Restore::new(), &mut Control::new())?;
        Ok(())
    }

    fn digest(&self) -> Result<u64> {
        digest_of(&self.0)
    }

    fn digest_of(&self, dir: &Path) -> Result<u64> {
        digest_of(&Options::new().read_only().open(dir)?)
    }
}

fn digest_of(db: &Db) -> Result<u64> {
    let mut sum = 0;
    for entry in db.iter() {
        let (key, value) = entry?;
        sum = digest(sum, &key, &value);
    }
    Ok(sum)
}
