use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::wal::Boundary;

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) ranges: Vec<Loss>,
    pub(super) last: Option<SeqNo>,
    pub(super) boundaries: Vec<(KeyspaceId, Boundary)>,
}

impl Losses {
    pub(super) fn before_loss(&self, flushed: SeqNo) -> Option<SeqNo> {
        let first = self.ranges.iter().find(|loss| loss.concerns(flushed))?;
        Some(flushed.max(first.first - 1))
    }

    pub(super) fn last(&self) -> SeqNo {
        self.last.unwrap_or(0)
    }

    /// Whether tables are missing although no file is known to be lost: the writes of a removed log were flushed, but
    /// all tables end earlier, at `newest`.
    pub(super) fn show_lost_flush(&self, flushed: SeqNo, newest: SeqNo) -> bool {
        let mut concerned = self.ranges.iter().filter(|loss| loss.is_log_gone && loss.concerns(flushed));
        concerned.any(|loss| newest < loss.last.unwrap_or(loss.first))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub(super) first: SeqNo,
    pub(super) last: Option<SeqNo>,
    pub(super) is_log_gone: bool,
}

impl Loss {
    pub(super) fn concerns(&self, flushed: SeqNo) -> bool {
        self.last.is_none_or(|last| last > flushed)
    }
}
