use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineName {
    Sievedb,
    Fjall,
    FjallHashed,
    FjallPartitioned,
    Rocksdb,
    RocksdbHashed,
    RocksdbCached,
    RocksdbPartitioned,
    Surrealkv,
    Redb,
    Nothing,
}

impl EngineName {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Sievedb => "sievedb",
            Self::Fjall => "fjall",
            Self::FjallHashed => "fjall, hash index",
            Self::FjallPartitioned => "fjall, partitioned filters",
            Self::Rocksdb => "RocksDB",
            Self::RocksdbHashed => "RocksDB, hash index",
            Self::RocksdbCached => "RocksDB, filters in its cache",
            Self::RocksdbPartitioned => "RocksDB, partitioned filters",
            Self::Surrealkv => "surrealkv",
            Self::Redb => "redb",
            Self::Nothing => "the loop alone",
        }
    }

    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Sievedb => "sievedb",
            Self::Fjall => "fjall",
            Self::FjallHashed => "fjall-hashed",
            Self::FjallPartitioned => "fjall-partitioned",
            Self::Rocksdb => "rocksdb",
            Self::RocksdbHashed => "rocksdb-hashed",
            Self::RocksdbCached => "rocksdb-cached",
            Self::RocksdbPartitioned => "rocksdb-partitioned",
            Self::Surrealkv => "surrealkv",
            Self::Redb => "redb",
            Self::Nothing => "nothing",
        }
    }

    pub(crate) fn is_peer(self) -> bool {
        !matches!(self, Self::Sievedb | Self::Redb | Self::Nothing)
    }

    /// Cache settings do not change a store.
    pub(crate) fn maker(self) -> Self {
        if self == Self::RocksdbCached { Self::Rocksdb } else { self }
    }

    pub(crate) fn is_rocksdb(self) -> bool {
        matches!(self, Self::Rocksdb | Self::RocksdbHashed | Self::RocksdbCached | Self::RocksdbPartitioned)
    }

    pub(crate) fn is_built(self) -> bool {
        cfg!(feature = "rocksdb") || !self.is_rocksdb()
    }
}

macro_rules! with_engine {
    ($name:expr, $function:ident($($argument:expr),*)) => {{
        use $crate::engines as e;
        use $crate::names::EngineName as N;
        match $name {
            N::Sievedb => $function::<e::sievedb::SieveDb>($($argument),*),
            N::Fjall => $function::<e::fjall::Fjall>($($argument),*),
            N::FjallHashed => $function::<e::fjall::FjallHashed>($($argument),*),
            N::FjallPartitioned => $function::<e::fjall::FjallPartitioned>($($argument),*),
            N::Surrealkv => $function::<e::surrealkv::SurrealKv>($($argument),*),
            N::Redb => $function::<e::redb::Redb>($($argument),*),
            N::Nothing => $function::<e::nothing::Nothing>($($argument),*),
            #[cfg(feature = "rocksdb")]
            N::Rocksdb => $function::<e::rocksdb::Rocks>($($argument),*),
            #[cfg(feature = "rocksdb")]
            N::RocksdbHashed => $function::<e::rocksdb::RocksHashed>($($argument),*),
            #[cfg(feature = "rocksdb")]
            N::RocksdbCached => $function::<e::rocksdb::RocksCached>($($argument),*),
            #[cfg(feature = "rocksdb")]
            N::RocksdbPartitioned => $function::<e::rocksdb::RocksPartitioned>($($argument),*),
            #[cfg(not(feature = "rocksdb"))]
            N::Rocksdb | N::RocksdbHashed | N::RocksdbCached | N::RocksdbPartitioned => {
                Err("this program was built without the feature rocksdb".into())
            }
        }
    }};
}
pub(crate) use with_engine;
