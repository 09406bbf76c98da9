//! The writes that the logs of a store have lost.

use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::wal::Boundary;

/// The writes that the logs have lost, and how far they were read.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// In the order of the writes.
    pub(super) ranges: Vec<Loss>,
    /// The last sequence number of the batches.
    pub(super) last: Option<SeqNo>,
    /// The bucket boundaries that the logs have, in order.
    pub(super) boundaries: Vec<(KeyspaceId, Boundary)>,
}

impl Losses {
    /// The last sequence number before a loss that concerns a keyspace whose entries up to `flushed` are in
    /// tables. `None` if no loss does.
    pub(super) fn before_loss(&self, flushed: SeqNo) -> Option<SeqNo> {
        let first = self.ranges.iter().find(|loss| loss.concerns(flushed))?;
        Some(flushed.max(first.first - 1))
    }

    /// The last sequence number of the batches, or 0.
    pub(super) fn last(&self) -> SeqNo {
        self.last.unwrap_or(0)
    }

    /// Whether they show that tables are gone without a trace: a log was removed, so its writes were flushed, and
    /// no table has a sequence number that large. `newest` is the largest of all tables.
    pub(super) fn show_lost_flush(&self, flushed: SeqNo, newest: SeqNo) -> bool {
        let mut concerned = self.ranges.iter().filter(|loss| loss.is_log_gone && loss.concerns(flushed));
        concerned.any(|loss| newest < loss.last.unwrap_or(loss.first))
    }
}

/// Writes that are lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub(super) first: SeqNo,
    /// `None` if it is not known.
    pub(super) last: Option<SeqNo>,
    /// Whether a whole log may be gone.
    pub(super) is_log_gone: bool,
}

impl Loss {
    /// Whether it concerns a keyspace whose entries up to `flushed` are in tables.
    pub(super) fn concerns(&self, flushed: SeqNo) -> bool {
        self.last.is_none_or(|last| last > flushed)
    }
}
