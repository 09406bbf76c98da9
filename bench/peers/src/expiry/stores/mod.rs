#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sievedb;

use std::path::Path;

use clap::ValueEnum;

use super::Plan;
use super::stream::Id;
use crate::Result;

pub(crate) trait Seen {
    fn insert(&mut self, now: u64, ids: &[Id]) -> Result<Vec<bool>>;

    fn debt(&self) -> Result<u64>;
}

/// A store, and its way to drop expired ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    SievedbTtl,
    SievedbKeyspaces,
    SievedbDeletes,
    RocksdbTtl,
}

impl Name {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let all = [Self::SievedbTtl, Self::SievedbKeyspaces, Self::SievedbDeletes, Self::RocksdbTtl];
        all.into_iter().filter(|name| *name != Self::RocksdbTtl || cfg!(feature = "rocksdb"))
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SievedbTtl => "SieveDB, time to live",
            Self::SievedbKeyspaces => "SieveDB, a keyspace per bucket",
            Self::SievedbDeletes => "SieveDB, a delete per id",
            Self::RocksdbTtl => "RocksDB, compaction filter and ttl",
        }
    }

    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::SievedbTtl => "sievedb-ttl",
            Self::SievedbKeyspaces => "sievedb-keyspaces",
            Self::SievedbDeletes => "sievedb-deletes",
            Self::RocksdbTtl => "rocksdb-ttl",
        }
    }

    pub(crate) fn open(self, dir: &Path, plan: &Plan) -> Result<Box<dyn Seen>> {
        Ok(match self {
            Self::SievedbTtl => Box::new(sievedb::Ttl::open(dir, plan)?),
            Self::SievedbKeyspaces => Box::new(sievedb::Keyspaces::open(dir, plan)?),
            Self::SievedbDeletes => Box::new(sievedb::Deletes::open(dir, plan)?),
            #[cfg(feature = "rocksdb")]
            Self::RocksdbTtl => Box::new(rocksdb::Ttl::open(dir, plan)?),
            #[cfg(not(feature = "rocksdb"))]
            Self::RocksdbTtl => return Err("built without the feature rocksdb".into()),
        })
    }
}
