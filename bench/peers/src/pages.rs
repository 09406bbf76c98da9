//! The pages that a run writes: which rows each has, and what it says of itself.

use serde::{Deserialize, Serialize};

use crate::rows;
use crate::workload::Workload;

/// A page of the benchmarks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Page {
    /// All rows beside other stores.
    Peers,
    /// The same on smaller stores and for a shorter time, for the same page.
    Short,
    Transactions,
}

impl Page {
    /// What is to be measured, in the order of the page.
    pub(crate) fn rows(self) -> Vec<Workload> {
        match self {
            Self::Peers | Self::Short => rows::all(),
            Self::Transactions => rows::transactions(),
        }
    }

    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Short => "short",
            Self::Transactions => "transactions",
        }
    }

    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Peers | Self::Short => "peers.md",
            Self::Transactions => "transactions.md",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Peers => "Beside other stores: measured",
            Self::Short => "Beside other stores: a short run",
            Self::Transactions => "Transactions beside other stores: measured",
        }
    }

    /// What sievedb is held against.
    pub(crate) fn peer(self) -> &'static str {
        match self {
            Self::Peers | Self::Short => "the best of the other LSM stores, at its best setting",
            Self::Transactions => "the best of the others",
        }
    }

    /// Paragraphs for the head of the page.
    pub(crate) fn note(self, has_rocksdb: bool) -> String {
        match self {
            Self::Peers => String::new(),
            Self::Short => format!(
                "This is a short run: all workloads on smaller stores and for a shorter time than in a full one. A store \
                 this small has few levels.{}\n\n",
                if has_rocksdb { "" } else { " RocksDB was not built for this run." },
            ),
            Self::Transactions => TRANSACTIONS.into(),
        }
    }
}

const TRANSACTIONS: &str = "\
A transaction reads three counters, adds one to each and writes them. A counter is the first eight bytes of a value; the \
whole value is written. Threads draw their counters from keys of their own, which never conflict, or all of them from the \
same few; one alone never conflicts. *Giving way*: between reading and writing the thread yields its processor, as if it \
had to wait for something; otherwise transactions are too short to meet on few processors. After every run all entries are read: their keys must be those from before, and the sum of all counters must \
have grown by three for each committed transaction. A lost update ends the suite.

sievedb: `transact`, which begins a transaction again after a random pause. fjall: `OptimisticTxDatabase`, begun again at \
once, as its own `update_fetch` does. surrealkv: its transactions, begun again after other tasks had a turn; they compare \
what was written, not what was read, which is enough for counters. redb: write transactions, of which one runs at a time and the others wait, so none conflicts. RocksDB's \
optimistic transactions are not in the suite. Conflicts are counted, not planned: how many there are depends on how long \
a transaction takes and on how many processors run them.

All blocks are in the caches. Buffered, what sievedb, fjall and surrealkv have committed survives the process; what redb \
has (`Durability::None`) is in its memory until a later synced commit. Synced, every commit waits for the disk.

Where a row is lost: surrealkv keeps no account of reads, and carries commits out without a check of what was read. Of \
sievedb's instructions for a transaction, with few keys, a profile by callgrind had 48 % in the commit (26 % in the \
memtable), 21 % in the three lookups and 24 % in the two maps of what was read and what was written. After a conflict \
sievedb sleeps, and the others do not.

";
