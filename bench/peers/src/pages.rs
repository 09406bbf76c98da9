use serde::{Deserialize, Serialize};

use crate::rows;
use crate::workload::{Part, Workload};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Page {
    /// All rows, next to other stores.
    Peers,
    /// The same page with smaller stores and shorter runs.
    Short,
    Transactions,
    /// Fills, scans and mixes with paths, URLs, and tenants with UUIDs.
    Keys,
}

impl Page {
    pub(crate) fn rows(self) -> Vec<Workload> {
        match self {
            Self::Peers | Self::Short => rows::all(),
            Self::Transactions => rows::transactions(),
            Self::Keys => rows::real_keys(),
        }
    }

    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Short => "short",
            Self::Transactions => "transactions",
            Self::Keys => "keys",
        }
    }

    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Peers | Self::Short => "peers.md",
            Self::Transactions => "transactions.md",
            Self::Keys => "keys.md",
        }
    }

    pub(crate) fn counts_file(self) -> &'static str {
        match self {
            Self::Peers | Self::Short => "peers-counts.md",
            Self::Transactions => "transactions-counts.md",
            Self::Keys => "keys-counts.md",
        }
    }

    pub(crate) fn main_part(self) -> Part {
        match self {
            Self::Peers | Self::Short => Part::Absent,
            Self::Transactions => Part::Transactions,
            Self::Keys => Part::FillKeys,
        }
    }

    pub(crate) fn opening(self) -> String {
        let counts = self.counts_file();
        match self {
            Self::Peers | Self::Short => format!(
                "SieveDB and other embedded stores run the same workloads on the same machine, in turns. A longer bar \
                 is faster, except for the time of opening, and [{counts}]({counts}) has the spread of each figure, \
                 latencies, instructions, system calls and memory."
            ),
            Self::Transactions => format!(
                "One or four threads increment counters in transactions that read three keys and write them. A \
                 longer bar is faster, and [{counts}]({counts}) has the spread of each figure, conflicts, \
                 latencies, instructions and memory."
            ),
            Self::Keys => format!(
                "SieveDB and other embedded stores fill, scan and mix keys with common prefixes: file paths, URLs, and \
                 tenants with UUIDs. A longer bar is faster, and [{counts}]({counts}) has the spread of each figure, \
                 latencies, instructions, system calls and memory."
            ),
        }
    }

    pub(crate) fn counts_opening(self) -> String {
        let file = self.file();
        format!(
            "This page has all figures of the run on [{file}]({file}), which describes the machine and the settings. A \
             rate is a median of the rounds (least to greatest), and the ratio compares sievedb with {}. The last \
             column is the ratio without the loop's own time in both.",
            self.peer()
        )
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Peers => "SieveDB next to other stores: measurements",
            Self::Short => "SieveDB next to other stores: a short run",
            Self::Transactions => "Transactions next to other stores: measurements",
            Self::Keys => "Paths, URLs and UUIDs next to other stores: measurements",
        }
    }

    pub(crate) fn peer(self) -> &'static str {
        match self {
            Self::Peers | Self::Short | Self::Keys => "the best of the other LSM stores, at its best setting",
            Self::Transactions => "the best of the others",
        }
    }

    pub(crate) fn note(self, has_rocksdb: bool) -> String {
        match self {
            Self::Peers => String::new(),
            Self::Short => format!(
                "This is a short run: all workloads with smaller stores and shorter runs. A store this \
                 small has few levels.{}\n\n",
                if has_rocksdb { "" } else { " RocksDB was not built for this run." },
            ),
            Self::Transactions => TRANSACTIONS.into(),
            Self::Keys => KEYS.into(),
        }
    }
}

const KEYS: &str = "\
The workloads of [peers.md](peers.md) that fill, scan or mix, with keys that have beginnings in common: file paths (about 60 \
bytes, 40 in a directory), URLs (about 60 bytes, 100 of a host), and one of 1,000 tenants with a version 7 UUID (28 bytes, \
ascending within a tenant).

";

const TRANSACTIONS: &str = "\
A transaction reads three counters, adds one to each and writes them. A counter is the first eight bytes of a value; the \
whole value is written. Each thread draws counters from its own keys, which never conflict, or all threads draw from the \
same few keys; a single thread never conflicts. *Giving way*: the thread yields its processor between reading and writing, \
as if it waited for something; without that, transactions are too short to overlap on few processors. After every run all \
entries are read: the keys must be unchanged, and the sum of all counters must have grown by three for each committed \
transaction. A lost update ends the suite.

sievedb: `transact`, which retries a transaction after a random pause. fjall: `OptimisticTxDatabase`, with an immediate \
retry, as in its own `update_fetch`. surrealkv: its transactions, retried after other tasks had a turn; they compare only \
the written keys, which is enough for counters. redb: write transactions, which run one at a time and never conflict. The \
suite excludes RocksDB's optimistic transactions. The number of conflicts depends on the length of a transaction and on \
the number of processors.

All blocks are in the caches. *Buffered*: commits of sievedb, fjall and surrealkv survive the end of the process; commits of redb \
(`Durability::None`) are in its memory until a later synced commit. *Synced*: every commit waits for the disk.

Reasons for lost rows: surrealkv neither records nor checks reads. In a profile by callgrind, with \
few keys, sievedb spent 48 % of the instructions of a transaction in the commit (26 % in the memtable), 21 % in the three \
lookups and 24 % in the two maps of reads and writes. After a conflict sievedb sleeps, and the others do not.

";
