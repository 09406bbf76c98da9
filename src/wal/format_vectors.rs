//! The vectors of framed files.

use std::path::Path;

use super::reader::{Ending, Expected, FramedReader};
use super::record::{FRAGMENT_HEADER_BYTES, Fragment, RecordKind, open_fragment, put_fragment};
use crate::checksum::FileId;
use crate::error::Result;
use crate::file_header::{FileHeader, FileKind};
use crate::fs::{Fs, MemFs};
use crate::testing::{Vector, unhex};

pub(crate) fn log(vector: &Vector) {
    let kind = FileKind::from_u16(vector.number("file kind") as u16).unwrap();
    let header = FileHeader::new(kind, vector.id("store id"), vector.id("file id"));
    let mut written = header.encode().to_vec();
    for record in vector.facts("record") {
        let fields: Vec<_> = record.split(' ').collect();
        let [offset, kind, synced] = [0, 1, 2].map(|field: usize| fields[field].parse::<u64>().unwrap());
        let (kind, payload) = (RecordKind::from_u8(kind as u8).unwrap(), unhex(fields[3]));
        assert_eq!(offset, written.len() as u64);
        put_fragment(&mut written, &header.file_id, offset, (kind, true), synced, &mut &payload[..]);
        let found = open_fragment(&header.file_id, offset, &vector.bytes[offset as usize..]).unwrap();
        assert_eq!((found.kind, found.synced, found.first, found.last), (kind as u8, synced, true, true));
        let start = offset as usize + FRAGMENT_HEADER_BYTES;
        assert_eq!(vector.bytes[start..start + found.payload_bytes], payload);
    }
    for room in vector.facts("room") {
        written.resize(written.len() + room.parse::<usize>().unwrap(), 0);
    }
    assert_eq!(written, vector.bytes);
    assert_eq!(ending_of(&vector.bytes, kind).unwrap(), Ending::Complete);
}

fn ending_of(bytes: &[u8], kind: FileKind) -> Result<Ending> {
    let (fs, path) = (MemFs::new(), Path::new("/log"));
    fs.overwrite(path, bytes.to_vec());
    let file = fs.open(path).unwrap();
    let mut reader = FramedReader::open(&*file, path, Expected { kind, store_id: None, file_id: None })?;
    while reader.next_record()?.is_some() {}
    Ok(reader.ending().unwrap())
}

pub(crate) fn fragment(vector: &Vector) {
    let (id, payload): (FileId, _) = (vector.id("file id"), unhex(vector.fact("payload")));
    let expected = Fragment {
        offset: vector.number("offset"),
        kind: vector.number("kind") as u8,
        first: vector.number("first") == 1,
        last: vector.number("last") == 1,
        reserved: 0,
        synced: vector.number("synced"),
        payload_bytes: payload.len(),
        extent_bytes: vector.bytes.len(),
    };
    assert_eq!(open_fragment(&id, expected.offset, &vector.bytes), Ok(expected));
    let whole = if expected.last { payload } else { [&payload[..], b"more"].concat() };
    let place = (RecordKind::from_u8(expected.kind).unwrap(), expected.first);
    let mut written = Vec::new();
    put_fragment(&mut written, &id, expected.offset, place, expected.synced, &mut &whole[..]);
    assert_eq!(written, vector.bytes);
}
