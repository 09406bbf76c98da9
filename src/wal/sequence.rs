//! Which fragment may follow which: the rules by which fragments make up the records of a file.

use super::record::{BadFragment, Fragment, RECORD_BYTES_MAX, RECORD_KIND_MAX, RecordKind};
use crate::file_header::FileKind;

/// The state between two fragments of a file: which record has begun, if any.
#[derive(Debug)]
pub(crate) struct Sequence {
    file: FileKind,
    /// The kind of the record that was begun, and its bytes so far.
    begun: Option<(RecordKind, usize)>,
    /// The last record is a close record: nothing may follow it.
    closed: bool,
}

/// Why an intact fragment cannot follow those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// No writer puts it there.
    Damaged(BadFragment),
    /// It was written by a newer version.
    Newer { what: &'static str, found: u8, supported: u8 },
}

impl Sequence {
    /// At the start of a file.
    pub(crate) fn new(file: FileKind) -> Self {
        Self { file, begun: None, closed: false }
    }

    /// Whether a record was begun that has not ended.
    pub(crate) fn is_within_record(&self) -> bool {
        self.begun.is_some()
    }

    /// Drops the record that was begun: the next fragment must begin one.
    pub(crate) fn give_up(&mut self) {
        self.begun = None;
    }

    /// Takes the next fragment, if it can follow; gives the kind of its record.
    pub(crate) fn take(&mut self, fragment: &Fragment) -> Result<RecordKind, Refused> {
        if fragment.reserved != 0 {
            let found = fragment.reserved;
            return Err(Refused::Newer { what: "log fragment flags", found, supported: 0 });
        }
        let kind = RecordKind::from_u8(fragment.kind).ok_or(Refused::Newer {
            what: "log record kind",
            found: fragment.kind,
            supported: RECORD_KIND_MAX,
        })?;
        let before = self.begun.map_or(0, |(_, bytes)| bytes);
        let wrong = match self.begun {
            _ if !kind.belongs_in(self.file) => "a record that does not belong in this kind of file",
            None if self.closed => "a record after the close record",
            None if !fragment.first => "a fragment that continues no record",
            Some(_) if fragment.first => "a record begins within another",
            Some((begun, _)) if begun != kind => "a record changes its kind",
            _ if before + fragment.payload_bytes > RECORD_BYTES_MAX => "a record is longer than the limit",
            _ => {
                self.begun = (!fragment.last).then_some((kind, before + fragment.payload_bytes));
                self.closed = fragment.last && kind == RecordKind::Close;
                return Ok(kind);
            }
        };
        Err(Refused::Damaged(BadFragment::Misplaced(wrong)))
    }
}
