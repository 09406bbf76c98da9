//! Which batches of a log have failed: a newer log gave their sequence numbers again.
//!
//! A write that failed may be in its log as a whole. Then a newer log goes on with its number, and the manifest
//! says where the older one was cut (`resume`). If that edit is lost, the newer log itself tells. It counts if
//! it was used: it holds a promise, or is closed. Of an older log, the batches from its first number on
//!
//! - are copied, if both logs have the same batch there (an opening does that): those that the newer log
//!   repeats are taken from it, and the others are doubtful;
//! - have failed, if they have different ones.

use super::survey::Survey;
use crate::batch::BatchReader;
use crate::hash::key_hash;
use crate::inspect::{LogItem, read_log};
use crate::key::SeqNo;

/// The first batch of a log that was used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning {
    log: u64,
    first: SeqNo,
    hash: u64,
}

impl Beginning {
    /// Those of all logs. Damage is told by whoever reads their writes.
    pub(super) fn of_logs(survey: &Survey) -> Vec<Self> {
        survey.logs.iter().filter_map(|&(number, _)| Self::of_log(survey, number)).collect()
    }

    fn of_log(survey: &Survey, log: u64) -> Option<Self> {
        let (file, path) = survey.open_log(log).ok()?;
        let (mut found, mut was_used) = (None, false);
        let _ = read_log(&*file, &path, None, &mut |item| {
            match item {
                LogItem::Batch(bytes) if found.is_none() => found = Self::of_batch(log, bytes),
                LogItem::Promise(_) | LogItem::Close(..) => was_used = true,
                LogItem::Batch(_) | LogItem::Lost(_) | LogItem::Torn(_) => {}
            }
            Ok(())
        });
        found.filter(|_| was_used)
    }

    fn of_batch(log: u64, bytes: &[u8]) -> Option<Self> {
        let first = BatchReader::open(bytes).ok()?.first;
        Some(Self { log, first, hash: key_hash(0, bytes) })
    }
}

/// What the newer logs say of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Holds,
    /// It may have been copied, or have failed.
    InDoubt,
    Failed,
}

/// The newer logs, beside a log that is read batch by batch.
pub(super) struct NewerLogs {
    newer: Vec<Beginning>,
    has_failed: bool,
}

impl NewerLogs {
    pub(super) fn than(log: u64, all: &[Beginning]) -> Self {
        Self { newer: all.iter().filter(|newer| newer.log > log).copied().collect(), has_failed: false }
    }

    /// What they say of the next batch of the log.
    pub(super) fn judge(&mut self, first: SeqNo, bytes: &[u8]) -> Standing {
        let mut standing = Standing::Holds;
        for newer in self.newer.iter().filter(|newer| newer.first <= first) {
            standing = Standing::InDoubt;
            self.has_failed |= newer.first == first && newer.hash != key_hash(0, bytes);
        }
        if self.has_failed { Standing::Failed } else { standing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{WriteBatch, stamp};

    fn batch(first: SeqNo, key: &str) -> Vec<u8> {
        let mut batch = WriteBatch::new();
        batch.put(key, "v");
        let mut bytes = batch.into_parts().unwrap().0;
        stamp(&mut bytes, first);
        bytes
    }

    /// What a log that begins with these batches says of those of an older one.
    fn judged(newer: &[(u64, SeqNo, &str)], older: &[(SeqNo, &str)]) -> Vec<Standing> {
        let all: Vec<_> = newer
            .iter()
            .map(|&(log, first, key)| Beginning::of_batch(log, &batch(first, key)).unwrap())
            .collect();
        let mut newer = NewerLogs::than(5, &all);
        older.iter().map(|&(first, key)| newer.judge(first, &batch(first, key))).collect()
    }

    #[test]
    fn batches_fail_from_the_number_on_at_which_a_newer_log_has_another_batch() {
        use Standing::{Failed, Holds, InDoubt};
        let older = [(7, "a"), (8, "b"), (9, "c")];
        assert_eq!(judged(&[], &older), [Holds; 3]);
        assert_eq!(judged(&[(4, 1, "a"), (5, 7, "x")], &older), [Holds; 3], "they are not newer");
        assert_eq!(judged(&[(6, 10, "d")], &older), [Holds; 3]);
        assert_eq!(judged(&[(6, 8, "x")], &older), [Holds, Failed, Failed]);
        assert_eq!(judged(&[(6, 8, "b")], &older), [Holds, InDoubt, InDoubt]);
        assert_eq!(judged(&[(6, 7, "a"), (7, 9, "x")], &older), [InDoubt, InDoubt, Failed]);
        assert_eq!(judged(&[(6, 8, "x")], &[(7, "a"), (9, "c")]), [Holds, InDoubt], "the batch is gone");
    }
}
