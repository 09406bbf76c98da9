//! Version edits: the changes of a flush, a compaction, a new log or a new keyspace.
//!
//! ```text
//! edit record   edit count u64 · running hash u64 · field*            (fields as in `codec`)
//! running hash  XXH3-64 (seed 0) of (hash before it u64 · edit count u64 · fields)
//! ```
//!
//! Edits are counted from 1 over the whole life of a store, and each hash covers the previous one. A manifest starts
//! with the count and hash that it continues ([`EditItem::Base`]). Promises in logs repeat both, to detect the loss of
//! a manifest's tail.

use std::sync::Arc;

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::batch::KeyspaceId;
use crate::checksum::FileId;
use crate::codec::{
    CRITICAL, DecodeError, Field, Reader, put_field, put_length_prefixed, put_u64, put_varint, put_varints,
    u64_bytes,
};
use crate::key::SeqNo;
use crate::limits::{FILE_NUMBER_MAX, KEYSPACE_NAME_BYTES_MAX, SEQNO_MAX};
use crate::table_meta::{FilterRef, TableMeta};
use crate::wal::{Boundary, EditMark};

pub(crate) const LEVELS: usize = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) len: u64,
    pub(crate) last_seqno: SeqNo,
    /// The log has no close record. Bytes after `len` are ignored.
    pub(crate) is_cut: bool,
}

/// The field numbers are on disk: append only, see format.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditItem {
    /// The first item of a manifest; items with the whole state follow.
    Base(EditMark),
    HashSeed(u64),
    NextFile(u64),
    NextKeyspace(KeyspaceId),
    LastSeqno(SeqNo),
    LogCreated {
        number: u64,
        file_id: FileId,
        predecessor: u64,
    },
    LogEnded {
        number: u64,
        end: LogEnd,
    },
    LogFloor(u64),
    KeyspaceCreated {
        id: KeyspaceId,
        name: String,
        options: Bytes,
    },
    KeyspaceDropped(KeyspaceId),
    KeyspaceOptions {
        id: KeyspaceId,
        options: Bytes,
    },
    Flushed {
        keyspace: KeyspaceId,
        seqno: SeqNo,
    },
    TableAdded {
        keyspace: KeyspaceId,
        level: u8,
        run: u64,
        meta: Arc<TableMeta>,
    },
    TableRemoved {
        keyspace: KeyspaceId,
        number: u64,
    },
    FiltersReplaced {
        keyspace: KeyspaceId,
        number: u64,
        filters: Vec<FilterRef>,
    },
    /// Valid ids in addition to the store's own, ascending.
    StoreIds(Vec<FileId>),
    /// The keyspace's entries with smaller sequence numbers were written before that time.
    BucketBoundary {
        keyspace: KeyspaceId,
        boundary: Boundary,
    },
    /// The keyspace's entries with smaller sequence numbers are hidden.
    Horizon {
        keyspace: KeyspaceId,
        seqno: SeqNo,
    },
}

const BASE: u64 = 1 << 1 | CRITICAL;
const HASH_SEED: u64 = 2 << 1 | CRITICAL;
const NEXT_FILE: u64 = 3 << 1 | CRITICAL;
const NEXT_KEYSPACE: u64 = 4 << 1 | CRITICAL;
const LAST_SEQNO: u64 = 5 << 1 | CRITICAL;
const LOG_CREATED: u64 = 6 << 1 | CRITICAL;
const LOG_CLOSED: u64 = 7 << 1 | CRITICAL;
const LOG_FLOOR: u64 = 8 << 1 | CRITICAL;
const KEYSPACE_CREATED: u64 = 9 << 1 | CRITICAL;
const KEYSPACE_DROPPED: u64 = 10 << 1 | CRITICAL;
const KEYSPACE_OPTIONS: u64 = 11 << 1 | CRITICAL;
const FLUSHED: u64 = 12 << 1 | CRITICAL;
const TABLE_ADDED: u64 = 13 << 1 | CRITICAL;
const TABLE_REMOVED: u64 = 14 << 1 | CRITICAL;
/// Not critical: without it, a reader uses the previous filters, or none if they were removed.
const FILTERS_REPLACED: u64 = 15 << 1;
const STORE_IDS: u64 = 16 << 1 | CRITICAL;
const LOG_CUT: u64 = 17 << 1 | CRITICAL;
const BUCKET_BOUNDARY: u64 = 18 << 1 | CRITICAL;
const HORIZON: u64 = 19 << 1 | CRITICAL;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct VersionEdit {
    pub(crate) items: Vec<EditItem>,
}

impl VersionEdit {
    pub(crate) fn new(items: Vec<EditItem>) -> Self {
        Self { items }
    }

    pub(crate) fn encode(&self, previous: EditMark) -> (Vec<u8>, EditMark) {
        let mut fields = Vec::new();
        self.items.iter().for_each(|item| item.encode(&mut fields));
        let mark = previous.after(&fields);
        let mut record = Vec::with_capacity(16 + fields.len());
        mark.encode(&mut record);
        record.extend_from_slice(&fields);
        (record, mark)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn decode(record: &[u8], previous: Option<EditMark>) -> Result<(Self, EditMark), DecodeError> {
        let (items, mark) = EditItems::open(record, previous)?;
        Ok((Self { items: items.collect::<Result<_, _>>()? }, mark))
    }
}

/// Decodes items one by one, because all items together may take twenty times the record's memory. Ends after the first
/// error.
#[derive(Clone)]
pub(crate) struct EditItems<'a> {
    reader: Reader<'a>,
    base: BaseItem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BaseItem {
    Possible,
    Refused,
}

impl<'a> EditItems<'a> {
    /// `previous` is the mark of the previous edit. It is `None` for a manifest's first edit, which contains the mark.
    pub(crate) fn open(
        record: &'a [u8],
        previous: Option<EditMark>,
    ) -> Result<(Self, EditMark), DecodeError> {
        let (mut items, mark) = Self::behind_gap(record)?;
        if previous.is_some() {
            items.base = BaseItem::Refused;
        }
        let previous = match (previous, items.clone().next().transpose()) {
            (Some(previous), _) => previous,
            (None, Ok(Some(EditItem::Base(base)))) => base,
            (None, first) => {
                first?;
                return Err(DecodeError::corrupt(16, "edit", "does not say which edit it continues"));
            }
        };
        let expected = previous.after(&record[16..]);
        if mark != expected {
            let detail = format!("expected edit {expected:x?} after {previous:x?}, found {mark:x?}");
            return Err(DecodeError::corrupt(0, "edit count and hash", detail));
        }
        Ok((items, mark))
    }

    pub(crate) fn behind_gap(record: &'a [u8]) -> Result<(Self, EditMark), DecodeError> {
        let mut reader = Reader::new(record);
        let mark = EditMark::decode(&mut reader, "edit count", "edit hash")?;
        Ok((Self { reader, base: BaseItem::Possible }, mark))
    }

    fn read(&mut self) -> Result<Option<EditItem>, DecodeError> {
        while let Some(mut field) = self.reader.field()? {
            let base = std::mem::replace(&mut self.base, BaseItem::Refused);
            if field.tag == BASE && base == BaseItem::Refused {
                let detail = "continues another one, but is not the first item of a manifest";
                return Err(DecodeError::corrupt(field.offset, "edit", detail));
            }
            if let Some(item) = EditItem::decode(&mut field)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }
}

impl Iterator for EditItems<'_> {
    type Item = Result<EditItem, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.read();
        if item.is_err() {
            self.reader = Reader::new(&[]);
        }
        item.transpose()
    }
}

impl EditMark {
    pub(crate) fn after(self, fields: &[u8]) -> Self {
        let count = self.count.wrapping_add(1);
        let mut hash = Xxh3::new();
        [self.hash, count].iter().for_each(|number| hash.update(&u64_bytes(*number)));
        hash.update(fields);
        Self { count, hash: hash.digest() }
    }
}

impl EditItem {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Base(mark) => put_field(out, BASE, |out| mark.encode(out)),
            Self::HashSeed(seed) => put_field(out, HASH_SEED, |out| put_u64(out, *seed)),
            Self::NextFile(number) => put_field(out, NEXT_FILE, |out| put_varint(out, *number)),
            Self::NextKeyspace(id) => put_field(out, NEXT_KEYSPACE, |out| put_varint(out, u64::from(*id))),
            Self::LastSeqno(seqno) => put_field(out, LAST_SEQNO, |out| put_varint(out, *seqno)),
            Self::LogCreated { number, file_id, predecessor } => put_field(out, LOG_CREATED, |out| {
                put_varint(out, *number);
                out.extend_from_slice(file_id);
                put_varint(out, *predecessor);
            }),
            Self::LogEnded { number, end } => {
                let tag = if end.is_cut { LOG_CUT } else { LOG_CLOSED };
                put_field(out, tag, |out| put_varints(out, &[*number, end.len, end.last_seqno]))
            }
            Self::LogFloor(number) => put_field(out, LOG_FLOOR, |out| put_varint(out, *number)),
            Self::KeyspaceCreated { id, name, options } => put_field(out, KEYSPACE_CREATED, |out| {
                put_varint(out, u64::from(*id));
                put_length_prefixed(out, name.as_bytes());
                out.extend_from_slice(options);
            }),
            Self::KeyspaceDropped(id) => {
                put_field(out, KEYSPACE_DROPPED, |out| put_varint(out, u64::from(*id)))
            }
            Self::KeyspaceOptions { id, options } => put_field(out, KEYSPACE_OPTIONS, |out| {
                put_varint(out, u64::from(*id));
                out.extend_from_slice(options);
            }),
            Self::Flushed { keyspace, seqno } => {
                put_field(out, FLUSHED, |out| put_varints(out, &[(*keyspace).into(), *seqno]))
            }
            Self::TableAdded { keyspace, level, run, meta } => put_field(out, TABLE_ADDED, |out| {
                put_varint(out, u64::from(*keyspace));
                out.push(*level);
                put_varint(out, *run);
                meta.encode(out);
            }),
            Self::TableRemoved { keyspace, number } => {
                put_field(out, TABLE_REMOVED, |out| put_varints(out, &[(*keyspace).into(), *number]))
            }
            Self::FiltersReplaced { keyspace, number, filters } => put_field(out, FILTERS_REPLACED, |out| {
                put_varints(out, &[(*keyspace).into(), *number]);
                FilterRef::encode_all(filters, out);
            }),
            Self::StoreIds(ids) => {
                put_field(out, STORE_IDS, |out| ids.iter().for_each(|id| out.extend_from_slice(id)))
            }
            Self::BucketBoundary { keyspace, boundary } => {
                put_field(out, BUCKET_BOUNDARY, |out| boundary.encode(*keyspace, out))
            }
            Self::Horizon { keyspace, seqno } => {
                put_field(out, HORIZON, |out| put_varints(out, &[(*keyspace).into(), *seqno]))
            }
        }
    }

    pub(crate) fn decode(field: &mut Field<'_>) -> Result<Option<Self>, DecodeError> {
        let reader = &mut field.reader;
        let item = match field.tag {
            BASE => Self::Base(EditMark::decode(reader, "base edit count", "base hash")?),
            HASH_SEED => Self::HashSeed(reader.u64("hash seed")?),
            NEXT_FILE => Self::NextFile(reader.varint_up_to(FILE_NUMBER_MAX, "next file number")?),
            NEXT_KEYSPACE => Self::NextKeyspace(keyspace_id(reader)?),
            LAST_SEQNO => Self::LastSeqno(reader.varint_up_to(SEQNO_MAX, "last sequence number")?),
            LOG_CREATED => Self::LogCreated {
                number: log_number(reader)?,
                file_id: reader.array("log file id")?,
                predecessor: reader.varint_up_to(FILE_NUMBER_MAX, "predecessor of the log")?,
            },
            LOG_CLOSED | LOG_CUT => Self::LogEnded {
                number: log_number(reader)?,
                end: LogEnd {
                    len: reader.varint("log length")?,
                    last_seqno: reader.varint_up_to(SEQNO_MAX, "last sequence number of the log")?,
                    is_cut: field.tag == LOG_CUT,
                },
            },
            LOG_FLOOR => Self::LogFloor(reader.varint("log floor")?),
            KEYSPACE_CREATED => {
                let id = keyspace_id(reader)?;
                let start = reader.offset();
                let wrong = |detail: String| DecodeError::corrupt(start, "keyspace name", detail);
                let name = reader.length_prefixed(KEYSPACE_NAME_BYTES_MAX as u64, "keyspace name")?;
                let name = std::str::from_utf8(name).map_err(|error| wrong(error.to_string()))?.to_owned();
                if name.is_empty() {
                    return Err(wrong("is empty".into()));
                }
                Self::KeyspaceCreated { id, name, options: rest(reader)? }
            }
            KEYSPACE_DROPPED => Self::KeyspaceDropped(keyspace_id(reader)?),
            KEYSPACE_OPTIONS => Self::KeyspaceOptions { id: keyspace_id(reader)?, options: rest(reader)? },
            FLUSHED => Self::Flushed {
                keyspace: keyspace_id(reader)?,
                seqno: reader.varint_up_to(SEQNO_MAX, "flushed sequence number")?,
            },
            TABLE_ADDED => {
                let keyspace = keyspace_id(reader)?;
                let start = reader.offset();
                let level = reader.u8("level")?;
                if usize::from(level) >= LEVELS {
                    return Err(DecodeError::unsupported(start, "level", level.into(), LEVELS as u64 - 1));
                }
                let start = reader.offset();
                let run = reader.varint("run")?;
                if level > 0 && run != 0 {
                    let detail = format!("{run} of level {level}, which has one, number 0");
                    return Err(DecodeError::corrupt(start, "run", detail));
                }
                let meta = TableMeta::decode(reader.rest())?;
                Self::TableAdded { keyspace, level, run, meta: Arc::new(meta) }
            }
            TABLE_REMOVED => {
                Self::TableRemoved { keyspace: keyspace_id(reader)?, number: reader.varint("table number")? }
            }
            FILTERS_REPLACED => {
                let (keyspace, number) = (keyspace_id(reader)?, reader.varint("table number")?);
                let filters = FilterRef::decode_all(reader.rest())?;
                Self::FiltersReplaced { keyspace, number, filters }
            }
            STORE_IDS => Self::StoreIds(store_ids(reader)?),
            BUCKET_BOUNDARY => {
                let (keyspace, boundary) = Boundary::decode(reader)?;
                Self::BucketBoundary { keyspace, boundary }
            }
            HORIZON => Self::Horizon {
                keyspace: keyspace_id(reader)?,
                seqno: reader.varint_up_to(SEQNO_MAX, "horizon")?,
            },
            _ => return field.skip_unknown().map(|()| None),
        };
        field.finish("edit field")?;
        Ok(Some(item))
    }
}

fn log_number(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let start = reader.offset();
    match reader.varint_up_to(FILE_NUMBER_MAX, "log number")? {
        0 => Err(DecodeError::corrupt(start, "log number", "is zero")),
        number => Ok(number),
    }
}

fn store_ids(reader: &mut Reader<'_>) -> Result<Vec<FileId>, DecodeError> {
    let mut ids: Vec<FileId> = Vec::new();
    while ids.is_empty() || !reader.is_empty() {
        let start = reader.offset();
        let id = reader.array("store id")?;
        if ids.last().is_some_and(|last| *last >= id) {
            return Err(DecodeError::corrupt(start, "store ids", "do not ascend"));
        }
        ids.push(id);
    }
    Ok(ids)
}

fn keyspace_id(reader: &mut Reader<'_>) -> Result<KeyspaceId, DecodeError> {
    Ok(reader.length(u64::from(u32::MAX), "keyspace id")? as KeyspaceId)
}

fn rest(reader: &mut Reader<'_>) -> Result<Bytes, DecodeError> {
    Ok(Bytes::copy_from_slice(reader.bytes(reader.remaining(), "keyspace options")?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::codec::DecodeErrorKind;

    pub(crate) fn meta(number: u64, smallest: &str, largest: &str, len: u64) -> TableMeta {
        TableMeta {
            number,
            file_id: [number as u8; 16],
            len,
            footer_checksum: 0,
            entries: 10,
            tombstones: 0,
            keys: 10,
            data_bytes: len,
            seqno_min: 1,
            seqno_max: 100,
            smallest: Bytes::copy_from_slice(smallest.as_bytes()),
            largest: Bytes::copy_from_slice(largest.as_bytes()),
            filters: Vec::new(),
            trimmed: false,
            spans: None,
        }
    }

    pub(crate) fn filter(file: u64) -> FilterRef {
        FilterRef { file: Some(file), kind: 3, domain: 0, offset: 4096, len: 512, header_checksum: 77 }
    }

    pub(crate) fn all_items() -> Vec<EditItem> {
        vec![
            EditItem::HashSeed(77),
            EditItem::NextFile(13),
            EditItem::NextKeyspace(2),
            EditItem::LastSeqno(300),
            EditItem::LogCreated { number: 12, file_id: [5; 16], predecessor: 9 },
            EditItem::LogEnded { number: 9, end: LogEnd { len: 4096, last_seqno: 299, is_cut: false } },
            EditItem::LogEnded { number: 12, end: LogEnd { len: 5000, last_seqno: 300, is_cut: true } },
            EditItem::LogFloor(9),
            EditItem::KeyspaceCreated {
                id: 1,
                name: "users".into(),
                options: Bytes::from_static(&[2, 1, 9]),
            },
            EditItem::KeyspaceOptions { id: 1, options: Bytes::from_static(&[2, 1, 8]) },
            EditItem::Flushed { keyspace: 1, seqno: 200 },
            EditItem::TableAdded { keyspace: 1, level: 2, run: 0, meta: Arc::new(meta(8, "a", "b", 5000)) },
            EditItem::TableRemoved { keyspace: 1, number: 7 },
            EditItem::FiltersReplaced { keyspace: 1, number: 8, filters: vec![filter(15), filter(16)] },
            EditItem::StoreIds(vec![[3; 16], [9; 16]]),
            EditItem::BucketBoundary { keyspace: 1, boundary: Boundary { time: 1 << 41, seqno: 250 } },
            EditItem::Horizon { keyspace: 1, seqno: 250 },
            EditItem::KeyspaceDropped(1),
        ]
    }

    #[test]
    fn every_item_comes_back() {
        let before = EditMark { count: 41, hash: 0x1234 };
        let (record, mark) = VersionEdit::new(all_items()).encode(before);
        assert_eq!(mark.count, 42);
        assert_eq!(VersionEdit::decode(&record, Some(before)), Ok((VersionEdit::new(all_items()), mark)));
    }

    #[test]
    fn store_ids_are_at_least_one_and_ascend() {
        let decode = |ids: Vec<FileId>| {
            let (record, _) = VersionEdit::new(vec![EditItem::StoreIds(ids)]).encode(EditMark::default());
            VersionEdit::decode(&record, Some(EditMark::default())).map_err(|error| error.what)
        };
        assert!(decode(vec![[3; 16], [4; 16]]).is_ok());
        assert_eq!(decode(vec![]), Err("store id"));
        assert_eq!(decode(vec![[3; 16], [3; 16]]), Err("store ids"));
        assert_eq!(decode(vec![[4; 16], [3; 16]]), Err("store ids"));
    }

    #[test]
    fn an_edit_out_of_sequence_is_corruption() {
        let before = EditMark { count: 41, hash: 0x1234 };
        let (record, _) = VersionEdit::new(all_items()).encode(before);
        for wrong in [EditMark { count: 40, ..before }, EditMark { hash: 0x1235, ..before }] {
            assert_eq!(VersionEdit::decode(&record, Some(wrong)).unwrap_err().what, "edit count and hash");
        }
        assert!(VersionEdit::decode(&record, None).is_err(), "it does not say what it continues");
    }

    #[test]
    fn the_first_edit_of_a_manifest_says_what_it_continues() {
        let before = EditMark { count: 41, hash: 0x1234 };
        let edit = VersionEdit::new(vec![EditItem::Base(before), EditItem::NextFile(3)]);
        let (record, mark) = edit.encode(before);
        assert_eq!(VersionEdit::decode(&record, None), Ok((edit, mark)));
        assert!(VersionEdit::decode(&record, Some(before)).is_err(), "a base in the middle");
    }

    #[test]
    fn numbers_over_their_limits_are_corruption() {
        for item in [
            EditItem::NextFile(u64::MAX),
            EditItem::LastSeqno(u64::MAX),
            EditItem::LogCreated { number: 0, file_id: [5; 16], predecessor: 0 },
            EditItem::LogCreated { number: u64::MAX, file_id: [5; 16], predecessor: 9 },
            EditItem::LogEnded {
                number: 9,
                end: LogEnd { len: 4096, last_seqno: SEQNO_MAX + 1, is_cut: false },
            },
            EditItem::Flushed { keyspace: 0, seqno: SEQNO_MAX + 1 },
        ] {
            let (record, _) = VersionEdit::new(vec![item.clone()]).encode(EditMark::default());
            let error = VersionEdit::decode(&record, Some(EditMark::default())).unwrap_err();
            assert!(matches!(error.kind, DecodeErrorKind::Corrupt(_)), "{item:?}: {error}");
        }
    }

    fn record_with(fields: impl FnOnce(&mut Vec<u8>)) -> (Vec<u8>, u64) {
        let mut out = Vec::new();
        EditItem::LastSeqno(3).encode(&mut out);
        let at = 16 + out.len() as u64;
        fields(&mut out);
        let mark = EditMark::default().after(&out);
        ([&mark.count.to_le_bytes()[..], &mark.hash.to_le_bytes(), &out].concat(), at)
    }

    fn error_of(record: &[u8]) -> DecodeError {
        VersionEdit::decode(record, Some(EditMark::default())).unwrap_err()
    }

    #[test]
    fn an_error_has_the_offset_of_the_wrong_field_in_the_record() {
        let (record, at) = record_with(|out| put_field(out, 99 << 1 | CRITICAL, |out| out.push(1)));
        let error = error_of(&record);
        assert_eq!((error.offset, error.what), (at, "critical field"));
        let (record, at) =
            record_with(|out| put_field(out, LAST_SEQNO, |out| put_varint(out, SEQNO_MAX + 1)));
        assert_eq!(error_of(&record).offset, at + 2);
        let (record, at) = record_with(|out| put_field(out, NEXT_FILE, |out| out.extend_from_slice(&[1, 2])));
        let error = error_of(&record);
        assert_eq!((error.offset, error.what), (at + 3, "edit field"));
        let (record, at) = record_with(|out| {
            put_field(out, TABLE_ADDED, |out| {
                out.extend_from_slice(&[1, 2, 0, 99 << 1 | 1, 0]);
            });
        });
        assert_eq!(error_of(&record).offset, at + 5);
        let (record, at) = record_with(|out| {
            put_field(out, FILTERS_REPLACED, |out| out.extend_from_slice(&[1, 2, 99 << 1 | 1, 0]));
        });
        assert_eq!(error_of(&record).offset, at + 4);
    }

    #[test]
    fn a_keyspace_has_a_name_and_only_level_0_has_runs_with_numbers() {
        let of = |item: EditItem| {
            let (record, _) = VersionEdit::new(vec![item]).encode(EditMark::default());
            VersionEdit::decode(&record, Some(EditMark::default())).map_err(|error| error.what)
        };
        let created =
            |name: &str| EditItem::KeyspaceCreated { id: 4, name: name.into(), options: Bytes::new() };
        assert!(of(created("a")).is_ok());
        assert_eq!(of(created("")), Err("keyspace name"));
        let meta = Arc::new(meta(8, "a", "b", 5000));
        let added = |level, run| EditItem::TableAdded { keyspace: 1, level, run, meta: Arc::clone(&meta) };
        assert!(of(added(0, 8)).is_ok() && of(added(6, 0)).is_ok());
        assert_eq!(of(added(1, 1)), Err("run"));
    }

    #[test]
    fn only_the_first_item_of_a_manifest_says_what_it_continues() {
        let base = EditItem::Base(EditMark::default());
        let edit = VersionEdit::new(vec![base.clone(), EditItem::NextFile(3), base]);
        let (record, _) = edit.encode(EditMark::default());
        let error = VersionEdit::decode(&record, None).unwrap_err();
        assert_eq!((error.offset, error.what), (16 + 18 + 3, "edit"));
    }

    #[test]
    fn items_are_decoded_when_they_are_asked_for() {
        let (record, _) = record_with(|out| put_field(out, LOG_CREATED, |out| out.push(0)));
        let (mut items, _) = EditItems::open(&record, Some(EditMark::default())).unwrap();
        assert_eq!(items.next(), Some(Ok(EditItem::LastSeqno(3))));
        assert!(matches!(items.next(), Some(Err(_))));
        assert_eq!(items.next(), None, "behind an error there are none");
    }

    #[test]
    fn flipped_bits_and_truncations_are_errors() {
        let before = EditMark::default();
        let (record, _) = VersionEdit::new(all_items()).encode(before);
        for bit in 0..record.len() * 8 {
            let mut bad = record.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(VersionEdit::decode(&bad, Some(before)).is_err(), "bit {bit}");
        }
        for len in 0..record.len() {
            assert!(VersionEdit::decode(&record[..len], Some(before)).is_err(), "length {len}");
        }
    }
}
