//! The order of fragments in a file.

use super::record::{BadFragment, Fragment, RECORD_BYTES_MAX, RECORD_KIND_MAX, RecordKind};
use crate::file_header::FileKind;

#[derive(Debug)]
pub(crate) struct Sequence {
    file: FileKind,
    begun: Option<(RecordKind, usize)>,
    closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Damaged(BadFragment),
    Newer { what: &'static str, found: u8, supported: u8 },
}

impl Sequence {
    pub(crate) fn new(file: FileKind) -> Self {
        Self { file, begun: None, closed: false }
    }

    pub(crate) fn give_up(&mut self) {
        self.begun = None;
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use RecordKind::{Batch, Close, Edit, Promise};

    fn fragment(kind: RecordKind, first: bool, last: bool) -> Fragment {
        let (kind, payload_bytes) = (kind as u8, 100);
        Fragment { offset: 64, kind, first, last, reserved: 0, synced: 0, payload_bytes, extent_bytes: 128 }
    }

    fn last(file: FileKind, fragments: &[Fragment]) -> Result<RecordKind, Refused> {
        let mut sequence = Sequence::new(file);
        let (last, before) = fragments.split_last().unwrap();
        for fragment in before {
            sequence.take(fragment).unwrap();
        }
        sequence.take(last)
    }

    fn damaged(why: &'static str) -> Result<RecordKind, Refused> {
        Err(Refused::Damaged(BadFragment::Misplaced(why)))
    }

    #[test]
    fn a_record_is_one_fragment_or_begins_continues_and_ends() {
        let whole = fragment(Batch, true, true);
        let parts = [(true, false), (false, false), (false, true)].map(|(f, l)| fragment(Batch, f, l));
        let (log, manifest) = (FileKind::Log, FileKind::Manifest);
        assert_eq!(last(log, &[whole, parts[0], parts[1], parts[2], whole]), Ok(Batch));
        assert_eq!(last(log, &[parts[1]]), damaged("a fragment that continues no record"));
        assert_eq!(last(log, &[whole, parts[2]]), damaged("a fragment that continues no record"));
        assert_eq!(last(log, &[parts[0], whole]), damaged("a record begins within another"));
        let other = fragment(Promise, false, true);
        assert_eq!(last(log, &[parts[0], other]), damaged("a record changes its kind"));
        let stranger = damaged("a record that does not belong in this kind of file");
        assert_eq!(last(manifest, &[whole]), stranger);
        assert_eq!(last(log, &[fragment(Edit, true, true)]), stranger);
        assert_eq!(last(manifest, &[fragment(Edit, true, true)]), Ok(Edit));
    }

    #[test]
    fn nothing_follows_a_close_record() {
        let close = fragment(Close, true, true);
        let after = last(FileKind::Log, &[fragment(Batch, true, true), close, fragment(Promise, true, true)]);
        assert_eq!(after, damaged("a record after the close record"));
        let parts = [fragment(Close, true, false), fragment(Close, false, true)];
        assert_eq!(last(FileKind::Log, &parts), Ok(Close), "it has not ended before its last fragment");
    }

    #[test]
    fn a_record_may_be_as_long_as_the_limit_and_no_longer() {
        let of = |first, last, payload_bytes| Fragment { payload_bytes, ..fragment(Batch, first, last) };
        let half = RECORD_BYTES_MAX / 2;
        let fits = [of(true, false, half), of(false, true, RECORD_BYTES_MAX - half)];
        assert_eq!(last(FileKind::Log, &fits), Ok(Batch));
        let longer = [fits[0], of(false, true, RECORD_BYTES_MAX - half + 1)];
        assert_eq!(last(FileKind::Log, &longer), damaged("a record is longer than the limit"));
        let thirds = [of(true, false, half), of(false, false, half), of(false, true, half)];
        assert_eq!(last(FileKind::Log, &thirds), damaged("a record is longer than the limit"));
        let next = [fits[0], fits[1], of(true, true, 1)];
        assert_eq!(last(FileKind::Log, &next), Ok(Batch), "the next record counts from 0");
    }

    #[test]
    fn a_record_that_is_given_up_is_not_continued() {
        let mut sequence = Sequence::new(FileKind::Log);
        assert!(sequence.begun.is_none());
        sequence.take(&fragment(Batch, true, false)).unwrap();
        assert!(sequence.begun.is_some());
        sequence.give_up();
        assert!(sequence.begun.is_none());
        assert!(sequence.take(&fragment(Batch, false, true)).is_err());
        assert_eq!(sequence.take(&fragment(Promise, true, true)), Ok(Promise));
    }

    #[test]
    fn a_fragment_of_a_newer_version_is_told_from_damage() {
        let mut newer = fragment(Batch, true, true);
        newer.reserved = 3;
        let refused = Refused::Newer { what: "log fragment flags", found: 3, supported: 0 };
        assert_eq!(last(FileKind::Log, &[newer]), Err(refused));
        let unknown = Fragment { kind: 63, ..fragment(Batch, true, true) };
        let refused = Refused::Newer { what: "log record kind", found: 63, supported: RECORD_KIND_MAX };
        assert_eq!(last(FileKind::Log, &[unknown]), Err(refused));
    }
}
