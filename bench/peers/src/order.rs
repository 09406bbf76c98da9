use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::engine::{Adding, Settings, Writes};
use crate::keys::KeySet;
use crate::machine::Io;
use crate::names::EngineName;
use crate::workload::{Cache, Shape, Work, Workload};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sizes {
    pub(crate) keys: u32,
    pub(crate) value_bytes: usize,
    pub(crate) cache_bytes: u64,
    pub(crate) small_cache_bytes: u64,
    pub(crate) whole_cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) seconds_max: u64,
    pub(crate) fill_seconds_max: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Task {
    /// `Settled` and `Deleted` start from a store of shape `Left`.
    Prepare {
        engine: EngineName,
        keys: KeySet,
        shape: Shape,
    },
    Run {
        engine: EngineName,
        workload: Box<Workload>,
        amount: Amount,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Amount {
    Timed,
    /// `steps` of `planned` steps without a time limit, for counts.
    Counted {
        steps: usize,
        planned: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) task: Task,
    pub(crate) sizes: Sizes,
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Keys looked up or written, entries scanned, scans, transactions, or stores opened.
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) processor_seconds: f64,
    pub(crate) io: Io,
    pub(crate) blocks: Option<u64>,
    pub(crate) allocations: Option<u64>,
    pub(crate) conflicts: u64,
    pub(crate) longest_ms: f64,
    pub(crate) latency: Option<Latency>,
    pub(crate) peak_bytes: u64,
    pub(crate) shape: Option<String>,
    pub(crate) filled: Option<Filled>,
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
    pub(crate) others: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Filled {
    pub(crate) user_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) disk_bytes: u64,
}

impl Sizes {
    pub(crate) fn times(&self, times: u32) -> Self {
        Self { keys: self.keys * times, ..self.clone() }
    }

    fn user_bytes(&self) -> u64 {
        u64::from(self.keys) * (16 + self.value_bytes as u64)
    }

    pub(crate) fn logged_keys(&self) -> u32 {
        (u64::from(self.keys) * 15 / 100).max(1) as u32
    }

    pub(crate) fn settings(&self, shape: Shape, cache: Cache, writes: Writes) -> Settings {
        Settings {
            cache_bytes: match cache {
                Cache::Usual => self.cache_bytes,
                Cache::Whole => self.whole_cache_bytes,
                Cache::Small | Cache::SmallAndFilters => self.small_cache_bytes,
            },
            memtable_bytes: self.memtable_bytes * if shape == Shape::Log { 4 } else { 1 },
            table_bytes: if shape == Shape::Tables { self.user_bytes() / 1000 } else { self.memtable_bytes },
            level_base_bytes: 4 * self.memtable_bytes,
            writes,
        }
    }

    pub(crate) fn for_workload(&self, workload: &Workload, engine: EngineName) -> Settings {
        let writes = match workload.work {
            Work::Fill { .. } => Writes::Only,
            Work::Open if workload.shape == Shape::Log => Writes::Only,
            _ if workload.writes() => Writes::Some,
            _ => Writes::None,
        };
        let mut settings = self.settings(workload.shape, workload.cache, writes);
        if workload.cache == Cache::SmallAndFilters && engine == EngineName::Sievedb {
            settings.cache_bytes += u64::from(self.keys) * 10 / 8;
        }
        settings
    }

    pub(crate) fn steps(&self, work: Work) -> usize {
        let keys = self.keys as usize;
        match work {
            Work::Fill { synced: true, .. } => keys / 20,
            Work::Fill { .. } => keys,
            Work::Get { present_percent: 0..50, .. } => keys,
            Work::Get { .. } | Work::Delete | Work::DeleteMixed => keys / 2,
            Work::Scan { .. } | Work::Ycsb('e') => keys / 20,
            Work::Ycsb(_) => keys / 4,
            Work::Add { counters, how: Adding { synced: true, .. }, .. } => keys / 100 * counters,
            Work::Add { counters, .. } => keys / 4 * counters,
            Work::FullScan { .. } | Work::Open => 1,
        }
    }
}
