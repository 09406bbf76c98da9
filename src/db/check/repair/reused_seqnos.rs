//! Finds failed batches whose sequence numbers a newer log reuses.
//!
//! A failed write may be in its log although the next log reuses its number. The edit with the older log's end
//! (`resume`) may be lost. Then a newer used log (with a promise or close record) is the evidence. It decides about
//! older batches from its first number on:
//!
//! - If it repeats the batch, the repetition counts. If it has no batch with this number, the older one is doubtful.
//! - If it has another batch with this number, this and all later batches of the older log have failed. Earlier
//!   repeated batches may be retries of a failed write.
//!
//! Older batches above the number in a close record have failed.

use super::survey::Survey;
use crate::batch::BatchReader;
use crate::hash::key_hash;
use crate::inspect::{LogItem, read_log};
use crate::key::SeqNo;

#[derive(Debug)]
pub(super) struct UsedLog {
    number: u64,
    /// First number and hash of each batch that may also be in older logs.
    batches: Vec<(SeqNo, u64)>,
    closed: Option<SeqNo>,
}

impl UsedLog {
    pub(super) fn all(survey: &Survey) -> Vec<Self> {
        let mut last = 0;
        survey.logs.iter().filter_map(|&(number, _)| Self::read(survey, number, &mut last)).collect()
    }

    fn read(survey: &Survey, number: u64, last: &mut SeqNo) -> Option<Self> {
        let (file, path) = survey.open_log(number).ok()?;
        let mut log = Self { number, batches: Vec::new(), closed: None };
        let (mut was_used, last_of_older) = (false, *last);
        let _ = read_log(&*file, &path, None, &mut |item| {
            match item {
                LogItem::Batch(bytes) => {
                    let Ok(batch) = BatchReader::open(bytes) else { return Ok(()) };
                    if batch.first <= last_of_older {
                        log.batches.push((batch.first, key_hash(0, bytes)));
                    }
                    *last = batch.last_seqno().max(*last);
                }
                LogItem::Promise(_) => was_used = true,
                LogItem::Close(stated, _) => (was_used, log.closed) = (true, Some(stated)),
                LogItem::Boundaries(_) | LogItem::Lost(_) | LogItem::Torn(_) => {}
            }
            Ok(())
        });
        was_used.then_some(log)
    }

    fn judge(&self, first: SeqNo, bytes: &[u8]) -> Standing {
        if self.closed.is_some_and(|last| first > last) {
            return Standing::Failed;
        }
        match self.batches.binary_search_by_key(&first, |batch| batch.0) {
            Ok(index) if self.batches[index].1 != key_hash(0, bytes) => Standing::Failed,
            Err(0) => Standing::Holds,
            Ok(_) | Err(_) => Standing::InDoubt,
        }
    }
}

/// Status according to the newer logs; the largest value applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    Holds,
    /// Either copied or failed.
    InDoubt,
    Failed,
}

pub(super) struct NewerLogs<'a> {
    newer: Vec<&'a UsedLog>,
    has_failed: bool,
}

impl<'a> NewerLogs<'a> {
    pub(super) fn than(log: u64, all: &'a [UsedLog]) -> Self {
        Self { newer: all.iter().filter(|newer| newer.number > log).collect(), has_failed: false }
    }

    pub(super) fn judge(&mut self, first: SeqNo, bytes: &[u8]) -> Standing {
        if self.has_failed {
            return Standing::Failed;
        }
        let standing = self.newer.iter().map(|newer| newer.judge(first, bytes)).max();
        self.has_failed = standing == Some(Standing::Failed);
        standing.unwrap_or(Standing::Holds)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::Standing::{Failed, Holds, InDoubt};
    use super::*;
    use crate::batch::{WriteBatch, stamp};
    use crate::file_header::{FileHeader, FileKind};
    use crate::filename::FileName;
    use crate::fs::{Fs, MemFs};
    use crate::wal::{EditMark, FramedWriter, RecordKind, encode_close, encode_promise};

    const DIR: &str = "/db";
    const MARK: EditMark = EditMark { count: 1, hash: 7 };

    /// Number and batches of a log with a promise.
    type Log<'a> = (u64, &'a [(SeqNo, &'a str)]);

    fn batch(first: SeqNo, key: &str) -> Vec<u8> {
        let mut batch = WriteBatch::new();
        batch.put(key, "v");
        let mut bytes = batch.into_parts().unwrap().0;
        stamp(&mut bytes, first);
        bytes
    }

    fn write_log(fs: &MemFs, (number, batches): Log<'_>, closed: Option<SeqNo>) {
        let header = FileHeader::new(FileKind::Log, [1; 16], [number as u8; 16]);
        let mut log = FramedWriter::create(fs, &FileName::Log(number).path(Path::new(DIR)), header).unwrap();
        log.append_record(RecordKind::Promise, &encode_promise(MARK)).unwrap();
        for &(first, key) in batches {
            log.append_record(RecordKind::Batch, &batch(first, key)).unwrap();
        }
        if let Some(last) = closed {
            log.append_record(RecordKind::Close, &encode_close(last, MARK)).unwrap();
        }
        log.flush_frames().unwrap();
        log.sync().unwrap();
    }

    /// Status of these batches of log 5.
    fn judged_in(fs: MemFs, older: &[(SeqNo, &str)]) -> Vec<Standing> {
        write_log(&fs, (5, older), None);
        let fs: Arc<dyn Fs> = Arc::new(fs);
        let (survey, _) = Survey::of(&fs, Path::new(DIR)).unwrap();
        let all = UsedLog::all(&survey);
        let mut newer = NewerLogs::than(5, &all);
        older.iter().map(|&(first, key)| newer.judge(first, &batch(first, key))).collect()
    }

    /// A store without a manifest.
    fn no_logs() -> MemFs {
        let fs = MemFs::new();
        fs.create_dir(Path::new(DIR)).unwrap();
        fs
    }

    /// Status of the batches of log 5, given other logs.
    fn judged(others: &[Log<'_>], older: &[(SeqNo, &str)]) -> Vec<Standing> {
        let fs = no_logs();
        others.iter().for_each(|&log| write_log(&fs, log, None));
        judged_in(fs, older)
    }

    fn judged_by_closed(batches: &[(SeqNo, &str)], last: SeqNo, older: &[(SeqNo, &str)]) -> Vec<Standing> {
        let fs = no_logs();
        write_log(&fs, (6, batches), Some(last));
        judged_in(fs, older)
    }

    #[test]
    fn batches_fail_from_the_number_on_at_which_a_newer_log_has_another_batch() {
        let older = [(7, "a"), (8, "b"), (9, "c")];
        assert_eq!(judged(&[], &older), [Holds; 3], "log 5 is not newer");
        assert_eq!(judged(&[(4, &[(1, "a"), (7, "x")])], &older), [Holds; 3], "log 4 is not newer");
        assert_eq!(judged(&[(6, &[(10, "d")])], &older), [Holds; 3]);
        assert_eq!(judged(&[(6, &[(8, "x")])], &older), [Holds, Failed, Failed]);
        assert_eq!(judged(&[(6, &[(8, "b")])], &older), [Holds, InDoubt, InDoubt]);
        assert_eq!(judged(&[(6, &[(7, "a")]), (7, &[(9, "x")])], &older), [InDoubt, InDoubt, Failed]);
        let gone = [(7, "a"), (9, "c")];
        assert_eq!(judged(&[(6, &[(8, "x")])], &gone), [Holds, InDoubt], "the batch is gone");
    }

    #[test]
    fn a_write_that_is_tried_again_alike_does_not_hide_that_those_behind_it_failed() {
        let older = [(4, "x"), (5, "y"), (6, "big")];
        let again = [(4, "x"), (5, "z")];
        assert_eq!(judged(&[(6, &again)], &older), [InDoubt, Failed, Failed]);
        assert_eq!(judged(&[(6, &[]), (7, &again)], &older), [InDoubt, Failed, Failed]);
        assert_eq!(judged(&[(6, &[(4, "x"), (6, "z")])], &older), [InDoubt, InDoubt, Failed]);
        assert_eq!(judged(&[(6, &older)], &older), [InDoubt; 3]);
    }

    #[test]
    fn a_newer_log_that_is_closed_shows_that_batches_behind_its_last_number_failed() {
        let older = [(7, "a"), (8, "b"), (9, "c")];
        assert_eq!(judged_by_closed(&[], 7, &older), [Holds, Failed, Failed]);
        assert_eq!(judged_by_closed(&[], 7, &[(7, "a"), (9, "c")]), [Holds, Failed], "a batch is gone");
        assert_eq!(judged_by_closed(&[], 9, &older), [Holds; 3]);
        assert_eq!(judged_by_closed(&[(7, "a")], 7, &older), [InDoubt, Failed, Failed]);
    }
}
