//! Reads the writes of the logs past their damage.
//!
//! Writes before the first loss are certain, and those behind it are doubtful: their order is known, and
//! something between is gone. Damage that took no write (a promise, a close record) is none: the sequence
//! numbers of the batches around it follow each other.

use super::plan::{Certainty, Manifest};
use super::report::{LostWrites, RepairReport};
use super::scratch::Scratch;
use super::survey::Survey;
use crate::batch::BatchReader;
use crate::db::open::DroppedTail;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::inspect::{LogItem, read_log};
use crate::key::{EntryKind, SeqNo};

/// Reads all logs into `scratch`.
pub(super) fn read_logs(survey: &Survey, scratch: &mut Scratch<'_>, report: &mut RepairReport) -> Result<()> {
    let mut reader = Reader { survey, scratch, report, last: None, suspect: None, is_broken: false };
    for (index, &(number, is_named)) in survey.logs.iter().enumerate() {
        reader.log(number, is_named, index + 1 == survey.logs.len())?;
    }
    reader.finish();
    Ok(())
}

struct Reader<'a, 'b, 'c> {
    survey: &'a Survey,
    scratch: &'b mut Scratch<'c>,
    report: &'b mut RepairReport,
    /// The last sequence number of the batches so far.
    last: Option<SeqNo>,
    /// A place where writes may be lost: file and offset.
    suspect: Option<(String, u64)>,
    /// Whether writes are lost.
    is_broken: bool,
}

impl Reader<'_, '_, '_> {
    fn log(&mut self, number: u64, is_named: bool, is_last: bool) -> Result<()> {
        let name = FileName::Log(number).to_string();
        let closed = self.survey.state.logs.get(&number).and_then(|log| log.closed);
        if !is_named && (self.survey.manifest == Manifest::Cut || self.last.is_some()) {
            // Which logs were between is not known: the sequence numbers must tell.
            self.suspect(&name, 0);
        }
        let (file, path) = match self.survey.open_log(number) {
            Ok(opened) => opened,
            Err(error) => {
                self.report.damage.push(error);
                self.suspect(&name, 0);
                return Ok(());
            }
        };
        let (mut end, mut torn) = (None, None);
        let read = read_log(&*file, &path, closed.map(|closed| closed.0), &mut |item| {
            match item {
                LogItem::Batch(bytes) => self.batch(bytes, &name)?,
                LogItem::Promise(_) => {}
                LogItem::Close(seqno, _) => end = Some(seqno),
                LogItem::Lost(offset) => self.suspect(&name, offset),
                LogItem::Torn(offset) => torn = torn.or(Some(offset)),
            }
            Ok(())
        });
        match read {
            Ok(()) => self.report.logs += 1,
            Err(error @ (Error::Io { .. } | Error::Corruption { .. })) if error.file() == Some(&path) => {
                self.report.damage.push(error);
                self.suspect(&name, 0);
            }
            Err(error) => return Err(error),
        }
        if let Some(offset) = torn.filter(|_| is_last) {
            let bytes = file.len().map_or(0, |len| len.saturating_sub(offset));
            let reason = "no whole record".to_owned();
            self.report.dropped.push(DroppedTail { file: path, offset, bytes, reason });
        }
        match (end.or(closed.map(|closed| closed.1)), is_last) {
            // Sequence numbers may have been given out that no batch has.
            (Some(_), _) if self.suspect.is_none() => self.last = self.last.max(end),
            (Some(end), _) if self.last.is_some_and(|last| last >= end) => self.suspect = None,
            (Some(end), _) => {
                self.lose(Some(end));
                self.last = Some(end);
            }
            (None, false) => self.suspect(&name, file.len().unwrap_or(0)),
            (None, true) => {}
        }
        Ok(())
    }

    /// Takes a batch.
    fn batch(&mut self, bytes: &[u8], name: &str) -> Result<()> {
        let Ok(batch) = BatchReader::open(bytes) else {
            self.suspect(name, 0);
            return Ok(());
        };
        let (first, last) = (batch.first, batch.last_seqno());
        if self.suspect.is_some() {
            match self.last {
                Some(known) if first <= known + 1 => self.suspect = None,
                _ => self.lose(first.checked_sub(1)),
            }
        }
        let certainty = if self.is_broken { Certainty::Doubtful } else { Certainty::Certain };
        for entry in batch {
            let Ok(entry) = entry else {
                self.suspect(name, 0);
                break;
            };
            let survey = self.survey;
            let is_known = survey.state.keyspaces.contains_key(&entry.keyspace);
            let was_dropped = !is_known && entry.keyspace < survey.state.next_keyspace;
            if was_dropped || entry.seqno <= survey.flushed(entry.keyspace) {
                continue;
            }
            let value = (entry.kind == EntryKind::Put).then(|| &bytes[entry.value.clone()]);
            let key = &bytes[entry.key.clone()];
            self.scratch.add(entry.keyspace, (key, value), entry.seqno, certainty)?;
        }
        self.last = self.last.max(Some(last));
        Ok(())
    }

    /// Notes that writes may be lost from here on.
    fn suspect(&mut self, name: &str, offset: u64) {
        self.suspect.get_or_insert_with(|| (name.to_owned(), offset));
    }

    /// Writes up to this sequence number are lost where they were suspected to be.
    fn lose(&mut self, to: Option<SeqNo>) {
        let Some((file, offset)) = self.suspect.take() else { return };
        let flushed = self.survey.all_flushed();
        if to.is_some_and(|to| to <= flushed) {
            // All of them are in tables.
            return;
        }
        self.is_broken = true;
        let from = self.last.unwrap_or(0).max(flushed) + 1;
        self.report.lost_writes.push(LostWrites { file, offset, seqnos: (from, to) });
    }

    fn finish(&mut self) {
        self.lose(None);
    }
}
