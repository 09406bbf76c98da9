//! Manifests, `CURRENT`, and the contents of edits: table records and keyspace options.
//!
//! # Strategy
//!
//! The first byte chooses: 0 *raw*, a manifest; 1 *resealed*, with hashes and checksums recomputed; 2 *edits*, the
//! fields of edits, each preceded by its length, in a valid manifest; 3 a `CURRENT`, 4 the same resealed; 5 options of
//! a keyspace; 6 a table record.
//!
//! # Invariants
//!
//! - A decoded edit encodes to an equal edit, and to the same bytes if all fields are known.
//! - A state equals the state of its snapshot.

use std::path::Path;

use super::seal::{self, Mended};
use crate::codec::Reader;
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::filter::fuzzing::Input;
use crate::fs::{Fs, MemFs};
use crate::manifest::current::Current;
use crate::manifest::edit::VersionEdit;
use crate::manifest::keyspace_options::KeyspaceOptions;
use crate::manifest::log::{self as manifest_log, ReadManifest};
use crate::manifest::state::ManifestState;
use crate::table_meta::TableMeta;
use crate::wal::EditMark;
use crate::wal::{FramedWriter, RecordKind};

const STORE: [u8; 16] = [1; 16];
const FILE: [u8; 16] = [2; 16];
const DIR: &str = "/db";

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mode = input.below(7);
    match mode {
        0 | 1 => {
            let mut file = input.rest().to_vec();
            if mode == 1 {
                seal::manifest(&mut file, &mut Mended::default());
            }
            check(&file);
        }
        2 => check(&manifest_of_fields(&mut input)),
        3 | 4 => {
            let mut file = input.rest().to_vec();
            if mode == 4 {
                seal::current(&mut file);
            }
            check_current(&file);
        }
        5 => {
            if let Ok(options) = KeyspaceOptions::decode(input.rest()) {
                options.validate().expect("decoded options are within their limits");
                assert_eq!(KeyspaceOptions::decode(&options.encode()), Ok(options));
            }
        }
        _ => {
            if let Ok(meta) = TableMeta::decode(Reader::new(input.rest())) {
                check_table_record(&meta);
            }
        }
    }
}

fn manifest_of_fields(input: &mut Input<'_>) -> Vec<u8> {
    let (fs, path) = (MemFs::new(), Path::new("/manifest"));
    fs.create_dir(Path::new("/")).expect("memory does not fail");
    let header = FileHeader::new(FileKind::Manifest, STORE, FILE);
    let mut writer = FramedWriter::create(&fs, path, header).expect("memory does not fail");
    let base = EditMark { count: 41, hash: 7 };
    let mut previous = base;
    while !input.is_empty() {
        let len = usize::from(input.u16());
        let mut fields = Vec::new();
        if previous == base {
            fields.extend_from_slice(&[3, 16]);
            fields.extend_from_slice(&base.count.to_le_bytes());
            fields.extend_from_slice(&base.hash.to_le_bytes());
        }
        fields.extend_from_slice(input.take(len));
        let mark = previous.after(&fields);
        let record = [&mark.count.to_le_bytes()[..], &mark.hash.to_le_bytes(), &fields].concat();
        writer.append_record(RecordKind::Edit, &record).expect("memory does not fail");
        previous = mark;
    }
    writer.flush_frames().expect("memory does not fail");
    fs.files(Path::new("/")).remove(0).1
}

pub(super) fn read(file: &[u8]) -> Option<ReadManifest> {
    let header = FileHeader::decode(file).ok()?;
    let fs = MemFs::new();
    let current = Current { store_id: header.store_id, manifest: 1, manifest_id: header.file_id };
    fs.overwrite(&FileName::Manifest(1).path(Path::new(DIR)), file.to_vec());
    manifest_log::read(&fs, Path::new(DIR), &current).ok()
}

fn check(file: &[u8]) {
    let Some(manifest) = read(file) else { return };
    let last = *manifest.marks.last().expect("there is a first edit");
    manifest.check_promise(last, Path::new("log")).expect("it has come as far as it has");
    let further = EditMark { count: last.count.wrapping_add(1), hash: last.hash };
    assert!(manifest.check_promise(further, Path::new("log")).is_err() || further.count == 0);

    let state = manifest.state;
    for keyspace in state.keyspaces.values() {
        let _ = KeyspaceOptions::decode(&keyspace.options);
        keyspace.tables.values().for_each(|place| check_table_record(&place.meta));
    }
    let snapshot = state.snapshot();
    let (record, mark) = snapshot.encode(state.mark);
    let (again, found) = VersionEdit::decode(&record, None).expect("a snapshot is an edit");
    assert_eq!((&again, found), (&snapshot, mark), "an edit comes back");
    let mut anew = ManifestState::default();
    anew.apply(&again).expect("a snapshot fits");
    assert_eq!(anew, state, "a state is what its snapshot makes anew");
}

fn check_table_record(meta: &TableMeta) {
    let mut record = Vec::new();
    meta.encode(&mut record);
    let again = TableMeta::decode(Reader::new(&record)).expect("a record that was encoded is decoded");
    let mut twice = Vec::new();
    again.encode(&mut twice);
    assert_eq!(record, twice, "one encoding is enough");
    if !again.trimmed || meta.trimmed {
        assert_eq!(again.smallest.len().min(1024), meta.smallest.len().min(1024));
    }
    assert_eq!((again.number, again.filters), (meta.number, meta.filters.clone()));
}

fn check_current(file: &[u8]) {
    let Ok(current) = Current::decode(file) else { return };
    let id = seal::file_id(file).expect("it has a header");
    let again = current.encode(id);
    assert_eq!(Current::decode(&again), Ok(current));
    assert_eq!(again[64..92], file[64..92]);
}
