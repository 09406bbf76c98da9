//! Copies the batches of a log into a new closed log with the id of the copy.
//!
//! An active log grows and cannot be linked. Its batches and boundaries are copied into a new log, which has no
//! promises and ends with a close record. The close record has the mark of the copied state.

use std::sync::Arc;

use super::destination::Destination;
use super::source::Source;
use crate::checksum::FileId;
use crate::db::open::recover::open_log;
use crate::db::state::files::random_id;
use crate::error::{Error, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::FrozenFile;
use crate::key::SeqNo;
use crate::manifest::edit::LogEnd;
use crate::manifest::state::LogState;
use crate::wal::{
    Content, ContentReader, Ending, Expected, FramedReader, FramedWriter, RecordKind, encode_close,
};

pub(super) struct CopiedLog {
    pub(super) was_used: bool,
    pub(super) was_closed: bool,
    pub(super) last_seqno: SeqNo,
    pub(super) log: Option<(FileId, LogEnd)>,
}

impl Source {
    pub(super) fn copy_log(
        &self,
        number: u64,
        log: &LogState,
        to: &Destination,
        (store_id, last_seqno): (FileId, SeqNo),
    ) -> Result<CopiedLog> {
        let (from, path) = (FileName::Log(number).path(&self.dir), FileName::Log(number).path(to.path()));
        let mut file = open_log(&*self.fs, &from)?;
        let end = self.end.filter(|end| end.number == number).map(|end| end.offset);
        if let Some(end) = end {
            // Closing the log may meanwhile cut off its preallocated space.
            file = Arc::new(FrozenFile::first_bytes(file, end));
        }
        let (own, file_id) = (Some(self.store_id), Some(log.file_id));
        let expected = Expected { kind: FileKind::Log, store_id: own, file_id };
        let mut reader = FramedReader::open(&*file, &from, expected)?;
        let mut copied = CopiedLog { was_used: false, was_closed: false, last_seqno, log: None };
        let (mut contents, mut writer) = (ContentReader::default(), None);
        while let Some(record) = reader.next_record()? {
            copied.was_used = true;
            match contents.decode(record.kind, record.bytes).map_err(|error| record.error(error, &from))? {
                Content::Batch(batch) => copied.last_seqno = copied.last_seqno.max(batch.last_seqno()),
                Content::Boundaries(_) => {}
                Content::Promise(_) => continue,
                Content::Close(seqno, _) => {
                    copied.was_closed = true;
                    copied.last_seqno = copied.last_seqno.max(seqno);
                    continue;
                }
            }
            if writer.is_none() {
                let file_id = random_id()?;
                let header = FileHeader::new(FileKind::Log, store_id, file_id);
                writer = Some((file_id, FramedWriter::create(&**to.fs(), &path, header)?));
            }
            let (_, writer) = writer.as_mut().expect("it was created");
            writer.append_record(record.kind, record.bytes)?;
        }
        if end.is_some_and(|end| reader.ending() != Some(Ending::Complete) || reader.position() != end) {
            let detail = "the batches that were written to it cannot be read";
            return Err(Error::corruption(&from, reader.position(), "log", detail));
        }
        if let Some((file_id, mut writer)) = writer {
            let last_seqno = copied.last_seqno;
            writer.append_record(RecordKind::Close, &encode_close(last_seqno, self.state.mark))?;
            writer.sync()?;
            copied.log = Some((file_id, LogEnd { len: writer.len(), last_seqno, is_cut: false }));
        }
        Ok(copied)
    }
}
