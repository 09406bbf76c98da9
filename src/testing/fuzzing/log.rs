//! Framed files: write-ahead logs, and the framing of manifests.
//!
//! # Strategy
//!
//! The first byte chooses: 0 *raw*; 1 *header prepended*, the rest is resealed; 2 *resealed*; 3 *built*, the rest
//! describes records for the writer, and damage to the file.
//!
//! # Invariants
//!
//! - Records ascend, do not overlap, and are no longer than the file.
//! - The records of a complete file, written again, give a complete file with the same records.
//! - A prefix of a file is an error or has a prefix of the records.
//! - The pages divide into areas without gaps.
//! - A built file with damage in one place is an error, torn, or unchanged.

use std::path::Path;

use super::seal;
use crate::error::Result;
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::filter::fuzzing::Input;
use crate::fs::{Fs, MemFs};
use crate::wal::record::PAGE_BYTES;
use crate::wal::search::areas;
use crate::wal::{Ending, Expected, FramedReader, FramedWriter, RecordKind};

const STORE: [u8; 16] = [1; 16];
const FILE: [u8; 16] = [2; 16];

/// The kind, the offset and the bytes.
pub(super) type Found = (RecordKind, u64, Vec<u8>);

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.below(4);
    let kind = if input.flag() { FileKind::Manifest } else { FileKind::Log };
    let cut = input.u16();
    let file = match mode {
        0 => input.rest().to_vec(),
        1 => {
            let header = FileHeader::new(kind, STORE, FILE).encode();
            let mut file = [&header[..], input.rest()].concat();
            seal::framed(&mut file);
            file
        }
        2 => {
            let mut file = input.rest().to_vec();
            seal::framed(&mut file);
            file
        }
        _ => return built(&mut input, kind),
    };
    check(&file, kind, usize::from(cut));
}

fn read(file: &[u8], kind: FileKind) -> Result<(Vec<Found>, Ending)> {
    let (fs, path) = (MemFs::new(), Path::new("/log"));
    fs.overwrite(path, file.to_vec());
    let file = fs.open(path).expect("the file is there");
    let expected = Expected { kind, store_id: None, file_id: None };
    let mut reader = FramedReader::open(&*file, path, expected)?;
    let mut found = Vec::new();
    while let Some(record) = reader.next_record()? {
        found.push((record.kind, record.offset, record.bytes.to_vec()));
    }
    Ok((found, reader.ending().expect("the end was reached")))
}

pub(super) fn taken(file: &[u8]) -> Option<(Vec<Found>, u64)> {
    let (found, ending) = read(file, FileKind::Log).ok()?;
    Some((found, torn_bytes(ending)))
}

pub(super) fn torn_bytes(ending: Ending) -> u64 {
    match ending {
        Ending::Complete => 0,
        Ending::Torn { dropped_bytes, .. } => dropped_bytes,
    }
}

fn write(records: &[Found], kind: FileKind, synced_every: usize) -> Vec<u8> {
    let (fs, path) = (MemFs::new(), Path::new("/log"));
    fs.create_dir(Path::new("/")).expect("memory does not fail");
    let header = FileHeader::new(kind, STORE, FILE);
    let mut writer = FramedWriter::create(&fs, path, header).expect("memory does not fail");
    for (index, (kind, _, bytes)) in records.iter().enumerate() {
        writer.append_record(*kind, bytes).expect("memory does not fail");
        if index % synced_every == 0 {
            writer.sync().expect("memory does not fail");
        }
    }
    writer.flush_frames().expect("memory does not fail");
    fs.files(Path::new("/")).remove(0).1
}

fn check(file: &[u8], kind: FileKind, cut: usize) {
    check_spans(file);
    let Ok((records, ending)) = read(file, kind) else { return };
    let mut end = HEADER_BYTES as u64;
    for (_, offset, bytes) in &records {
        assert!(*offset >= end, "records do not overlap");
        end = offset + 16 + bytes.len() as u64;
    }
    assert!(end <= file.len() as u64);
    if let Ending::Torn { offset, dropped_bytes, damage_offset, .. } = ending {
        assert!(end <= offset && offset <= damage_offset && offset + dropped_bytes == file.len() as u64);
    }
    if let Ok((fewer, _)) = read(&file[..file.len() - cut.min(file.len())], kind) {
        assert!(records.starts_with(&fewer), "a shorter file holds a beginning of the records");
    }
    let again = write(&records, kind, usize::MAX);
    let (found, ending) = read(&again, kind).expect("what was written is read");
    assert_eq!(ending, Ending::Complete);
    assert!(found.iter().map(without_place).eq(records.iter().map(without_place)));
}

fn without_place((kind, _, bytes): &Found) -> (RecordKind, &[u8]) {
    (*kind, bytes)
}

fn check_spans(file: &[u8]) {
    let Some(id) = seal::file_id(file) else { return };
    let mut next = HEADER_BYTES;
    while next < file.len() {
        let page_end = (next + 1).next_multiple_of(PAGE_BYTES).min(file.len());
        for span in areas(&id, next as u64, &file[next..page_end]) {
            assert!(span.offset == next as u64 && span.bytes > 0, "areas have no gaps");
            next += span.bytes;
        }
        assert_eq!(next, page_end);
    }
}

fn built(input: &mut Input<'_>, kind: FileKind) {
    let synced_every = 1 + input.below(4);
    let (at, xor, cut) = (input.u32(), input.u32().to_le_bytes(), input.u16());
    let mut records = Vec::new();
    while !input.is_empty() {
        let kind = match kind {
            FileKind::Manifest => RecordKind::Edit,
            _ => [RecordKind::Batch, RecordKind::Promise][input.below(2)],
        };
        let repeat = 1 << input.below(12);
        records.push((kind, 0, input.short().repeat(repeat)));
        if records.len() > 64 {
            break;
        }
    }
    let mut file = write(&records, kind, synced_every);
    let (whole, ending) = read(&file, kind).expect("what was written is read");
    assert_eq!(ending, Ending::Complete);
    assert!(whole.iter().map(without_place).eq(records.iter().map(without_place)));
    let intact = file.clone();
    let start = at as usize % file.len();
    for (byte, xor) in file[start..].iter_mut().zip(xor) {
        *byte ^= xor;
    }
    file.truncate(file.len() - usize::from(cut).min(file.len()));
    check_spans(&file);
    if let Ok((found, ending)) = read(&file, kind) {
        assert!(whole.starts_with(&found), "damage leaves a beginning of the records");
        let changed = !intact.starts_with(&file);
        assert!(!changed || found.len() < whole.len() || records.is_empty());
        if changed && ending == Ending::Complete {
            let room = &file[write(&found, kind, usize::MAX).len()..];
            assert!(kind == FileKind::Log && room.iter().all(|&byte| byte == 0), "only zeros are no record");
        }
    }
}
