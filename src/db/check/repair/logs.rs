//! Recovers writes from damaged logs.
//!
//! Writes before the first loss are certain, later writes are doubtful. If the tables of a keyspace have all entries
//! up to the end of a loss, the loss does not affect the keyspace. Consecutive sequence numbers before and after
//! damage show that no write was lost.
//!
//! An undamaged manifest states the end of each log. Otherwise a newer log may show failed batches
//! ([`reused_seqnos`](super::reused_seqnos)).

use std::ops::Range;
use std::sync::Arc;

use super::plan::Certainty;
use super::report::{LostWrites, ManifestCondition, RepairReport};
use super::reused_seqnos::{NewerLogs, Standing, UsedLog};
use super::spill::Scratch;
use super::survey::Survey;
use crate::batch::{BatchReader, KeyspaceId};
use crate::db::check::repair::losses::{Loss, Losses};
use crate::db::state::open_report::DroppedTail;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::inspect::{LogItem, read_log};
use crate::key::{EntryKind, SeqNo};
use crate::spans::RangeDelete;
use crate::wal::Boundary;

pub(super) fn read_logs(
    survey: &Survey,
    scratch: &mut Scratch<'_>,
    report: &mut RepairReport,
) -> Result<Losses> {
    let is_whole = survey.manifest == ManifestCondition::Whole;
    let used = if is_whole { Vec::new() } else { UsedLog::all(survey) };
    let losses = Losses::default();
    let mut reader = Reader { survey, scratch, report, used: &used, losses, suspect: None };
    for (index, &(number, is_named)) in survey.logs.iter().enumerate() {
        reader.log(number, is_named, index + 1 == survey.logs.len())?;
    }
    reader.lose(None);
    Ok(reader.losses)
}

struct Reader<'a, 'b, 'c> {
    survey: &'a Survey,
    scratch: &'b mut Scratch<'c>,
    report: &'b mut RepairReport,
    used: &'b [UsedLog],
    losses: Losses,
    suspect: Option<Suspect>,
}

struct Suspect {
    file: String,
    offset: u64,
    is_log_gone: bool,
}

impl Reader<'_, '_, '_> {
    fn log(&mut self, number: u64, is_named: bool, is_last: bool) -> Result<()> {
        let name = FileName::Log(number).to_string();
        let stated = self.survey.state.logs.get(&number).and_then(|log| log.end);
        let is_first = self.losses.last.is_none();
        if !is_named && (self.survey.manifest == ManifestCondition::Cut || !is_first) {
            self.suspect_gone(&name);
        }
        let (file, path) = match self.survey.open_log(number) {
            Ok(opened) => opened,
            Err(error) => {
                self.report.damage.push(error);
                self.suspect_gone(&name);
                return Ok(());
            }
        };
        let (mut end, mut torn) = (None, None);
        let mut newer = NewerLogs::than(number, self.used);
        let read = read_log(&*file, &path, stated.map(|stated| stated.len), &mut |item| {
            match item {
                LogItem::Batch(bytes) => self.batch(bytes, &name, &mut newer)?,
                LogItem::Boundaries(all) => self.boundaries(all),
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
            let reason = "incomplete record".to_owned();
            self.report.dropped.push(DroppedTail { file: path, offset, bytes, reason });
        }
        match (end.or(stated.map(|stated| stated.last_seqno)), is_last) {
            (Some(_), _) if self.suspect.is_none() => self.losses.last = self.losses.last.max(end),
            (Some(end), _) if self.losses.last.is_some_and(|last| last >= end) => self.suspect = None,
            (Some(end), _) => {
                self.lose(Some(end));
                self.losses.last = Some(end);
            }
            (None, false) => self.suspect(&name, file.len().unwrap_or(0)),
            (None, true) => {}
        }
        Ok(())
    }

    fn batch(&mut self, bytes: &[u8], name: &str, newer: &mut NewerLogs<'_>) -> Result<()> {
        let Ok(batch) = BatchReader::open(bytes) else {
            self.suspect(name, 0);
            return Ok(());
        };
        let (first, last) = (batch.first, batch.last_seqno());
        let standing = newer.judge(first, bytes);
        if standing == Standing::Failed {
            return Ok(());
        }
        if self.suspect.is_some() {
            match self.losses.last {
                Some(known) if first <= known + 1 => self.suspect = None,
                _ => self.lose(first.checked_sub(1)),
            }
        }
        for entry in batch {
            let Ok(entry) = entry else {
                self.suspect(name, 0);
                break;
            };
            let survey = self.survey;
            let flushed = survey.flushed(entry.keyspace);
            let is_known = survey.state.keyspaces.contains_key(&entry.keyspace);
            let was_dropped = !is_known && entry.keyspace < survey.state.next_keyspace;
            if was_dropped || entry.seqno <= flushed {
                continue;
            }
            let is_behind_loss = self.losses.ranges.iter().any(|loss| loss.concerns(flushed));
            let is_doubtful = is_behind_loss || standing == Standing::InDoubt;
            let certainty = if is_doubtful { Certainty::Doubtful } else { Certainty::Certain };
            if entry.kind == EntryKind::RangeDelete {
                let key = |range: &Range<usize>| Arc::from(&bytes[range.clone()]);
                let end = (!entry.value.is_empty()).then(|| key(&entry.value));
                let range_delete = RangeDelete { start: key(&entry.key), end, seqno: entry.seqno };
                self.scratch.add_range(entry.keyspace, range_delete, certainty);
                continue;
            }
            let value = (entry.kind == EntryKind::Put).then(|| &bytes[entry.value.clone()]);
            let key = &bytes[entry.key.clone()];
            self.scratch.add(entry.keyspace, (key, value), entry.seqno, certainty)?;
        }
        self.losses.last = self.losses.last.max(Some(last));
        Ok(())
    }

    /// A number that precedes a boundary and has no batch was skipped.
    fn boundaries(&mut self, all: Vec<(KeyspaceId, Boundary)>) {
        let first = all.iter().map(|(_, boundary)| boundary.seqno).min();
        let before = all.iter().map(|(_, boundary)| boundary.seqno.saturating_sub(1)).max();
        if self.suspect.is_none()
            || first.is_some_and(|first| self.losses.last.is_some_and(|last| first <= last + 1))
        {
            self.losses.last = self.losses.last.max(before);
        }
        self.losses.boundaries.extend(all);
    }

    fn suspect(&mut self, name: &str, offset: u64) {
        self.suspect.get_or_insert_with(|| Suspect { file: name.to_owned(), offset, is_log_gone: false });
    }

    fn suspect_gone(&mut self, name: &str) {
        self.suspect(name, 0);
        self.suspect.iter_mut().for_each(|suspect| suspect.is_log_gone = true);
    }

    fn lose(&mut self, last: Option<SeqNo>) {
        let Some(Suspect { file, offset, is_log_gone }) = self.suspect.take() else { return };
        let flushed = self.survey.all_flushed();
        if last.is_some_and(|last| last <= flushed) {
            return;
        }
        let first = self.losses.last.unwrap_or(0).max(flushed) + 1;
        self.losses.ranges.push(Loss { first, last, is_log_gone });
        self.report.lost_writes.push(LostWrites { file, offset, seqnos: (first, last) });
    }
}
