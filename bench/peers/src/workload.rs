use serde::{Deserialize, Serialize};

use crate::engine::Adding;
use crate::keys::KeySet;
use crate::names::EngineName;

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    Empty,
    /// Filled in random order, with the engine's own levels.
    Left,
    /// `Left`, merged into one run.
    Settled,
    /// `Left`, then every second key deleted, without a further merge.
    Deleted,
    Tables,
    /// Some writes are only in the log.
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cache {
    Usual,
    Whole,
    Small,
    /// `Small`, and the size of the filters that RocksDB keeps on the heap.
    SmallAndFilters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Choice {
    Uniform,
    Zipf,
}

/// Absent keys have the shape of present keys, and lie among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Absent {
    Uniform,
    Near,
    Skewed,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    Fill {
        ascending: bool,
        batch: usize,
        synced: bool,
    },
    Get {
        present_percent: u64,
        present: Choice,
        absent: Absent,
        batch: usize,
    },
    Scan {
        entries: usize,
    },
    FullScan {
        back: bool,
    },
    Ycsb(char),
    Delete,
    DeleteMixed,
    /// Increments `counters` counters, drawn from the first `among` keys or each client's own.
    Add {
        counters: usize,
        among: Option<u32>,
        how: Adding,
    },
    Open,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) work: Work,
    pub(crate) keys: KeySet,
    pub(crate) shape: Shape,
    pub(crate) times: u32,
    pub(crate) cache: Cache,
    pub(crate) cold: bool,
    pub(crate) clients: usize,
    pub(crate) counted: Counted,
    pub(crate) engines: Vec<EngineName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Counted {
    Nothing,
    Calls,
    CallsAndInstructions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    Absent,
    AbsentMemory,
    Present,
    Scan,
    Fill,
    Ycsb,
    Delete,
    Open,
    Growth,
    Transactions,
    FillKeys,
    ScanKeys,
    MixedKeys,
}

impl Part {
    pub(crate) const ALL: [Self; 13] = [
        Self::Absent,
        Self::AbsentMemory,
        Self::Present,
        Self::Scan,
        Self::Fill,
        Self::Ycsb,
        Self::Delete,
        Self::Open,
        Self::Growth,
        Self::Transactions,
        Self::FillKeys,
        Self::ScanKeys,
        Self::MixedKeys,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Absent => "Absent keys",
            Self::AbsentMemory => "Absent keys with little memory, or a cold page cache",
            Self::Present => "Present keys",
            Self::Scan => "Scans",
            Self::Fill => "Filling",
            Self::Ycsb => "YCSB",
            Self::Delete => "Deletions",
            Self::Open => "Opening",
            Self::Growth => "Ten times the keys",
            Self::Transactions => "Transactions",
            Self::FillKeys => "Filling, real keys",
            Self::ScanKeys => "Scans, real keys",
            Self::MixedKeys => "YCSB and deletions, real keys",
        }
    }

    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Absent => "absent.svg",
            Self::AbsentMemory => "absent-memory.svg",
            Self::Present => "present.svg",
            Self::Scan => "scan.svg",
            Self::Fill => "fill.svg",
            Self::Ycsb => "ycsb.svg",
            Self::Delete => "delete.svg",
            Self::Open => "open.svg",
            Self::Growth => "growth.svg",
            Self::Transactions => "transactions.svg",
            Self::FillKeys => "fill-keys.svg",
            Self::ScanKeys => "scan-keys.svg",
            Self::MixedKeys => "mixed-keys.svg",
        }
    }
}

impl Workload {
    pub(crate) fn writes(&self) -> bool {
        match self.work {
            Work::Fill { .. } | Work::Delete | Work::DeleteMixed | Work::Add { .. } => true,
            Work::Ycsb(letter) => letter != 'c',
            Work::Open => self.shape == Shape::Log,
            Work::Get { .. } | Work::Scan { .. } | Work::FullScan { .. } => false,
        }
    }

    pub(crate) fn batch(&self) -> usize {
        match self.work {
            Work::Fill { batch, .. } | Work::Get { batch, .. } | Work::Add { counters: batch, .. } => batch,
            _ => 1,
        }
    }

    pub(crate) fn new(part: Part, name: impl Into<String>, work: Work, shape: Shape) -> Self {
        use EngineName::{Fjall, Nothing, Rocksdb, Sievedb, Surrealkv};
        Self {
            name: name.into(),
            part,
            work,
            keys: KeySet::Hashed,
            shape,
            times: 1,
            cache: Cache::Usual,
            cold: false,
            clients: 1,
            counted: Counted::Nothing,
            engines: vec![Sievedb, Fjall, Rocksdb, Surrealkv, Nothing],
        }
    }

    pub(crate) fn cache(mut self, cache: Cache) -> Self {
        self.cache = cache;
        self
    }

    pub(crate) fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    pub(crate) fn cold(mut self) -> Self {
        self.cold = true;
        self
    }

    pub(crate) fn clients(mut self, clients: usize) -> Self {
        self.clients = clients;
        self
    }

    pub(crate) fn keys(mut self, keys: KeySet) -> Self {
        self.keys = keys;
        self
    }

    pub(crate) fn counted(mut self, counted: Counted) -> Self {
        self.counted = counted;
        self
    }

    pub(crate) fn beside(mut self, engines: &[EngineName]) -> Self {
        self.engines.extend(engines);
        self
    }

    pub(crate) fn only(mut self, engines: &[EngineName]) -> Self {
        self.engines = engines.to_vec();
        self
    }
}
