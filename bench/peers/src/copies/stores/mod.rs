#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sievedb;

use std::path::Path;

use clap::ValueEnum;

use crate::Result;
use crate::random::mix;

pub(crate) type Entries<'a> = &'a mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>;

pub(crate) trait Store: Sync {
    /// Unsynced.
    fn write(&self, entries: Entries<'_>) -> Result<()>;

    fn settle(&self) -> Result<()>;

    fn checkpoint(&self, to: &Path) -> Result<()>;

    fn backup(&self, repository: &Path) -> Result<()>;

    fn restore(&self, repository: &Path, to: &Path) -> Result<()>;

    fn digest(&self) -> Result<u64>;

    fn digest_of(&self, dir: &Path) -> Result<u64>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    Sievedb,
    Rocksdb,
}

impl Name {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        [Self::Sievedb, Self::Rocksdb]
            .into_iter()
            .filter(|name| *name != Self::Rocksdb || cfg!(feature = "rocksdb"))
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sievedb => "SieveDB",
            Self::Rocksdb => "RocksDB",
        }
    }

    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Sievedb => "sievedb",
            Self::Rocksdb => "rocksdb",
        }
    }

    pub(crate) fn with<T>(self, dir: &Path, call: impl FnOnce(&dyn Store) -> Result<T>) -> Result<T> {
        match self {
            Self::Sievedb => call(&sievedb::Copied::open(dir)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => call(&rocksdb::Copied::open(dir)?),
            #[cfg(not(feature = "rocksdb"))]
            Self::Rocksdb => Err("built without the feature rocksdb".into()),
        }
    }
}

fn digest(sum: u64, key: &[u8], value: &[u8]) -> u64 {
    key.iter()
        .chain(value)
        .fold(mix(1, sum), |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
