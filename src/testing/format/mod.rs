//! These tests compare the code, `format.md` and the golden files. `format.md` is the law.
//!
//! - Every vector of `format-vectors.md` has a check here or in its codec's module, and vice versa: the bytes decode to
//!   the stated facts, and the facts encode to the same bytes.
//! - `tests/golden/v1/NAME.bin` has the original bytes of a vector, to detect a change of both document and code.
//! - Every layout table adds up to the size in the code.
//! - A whole store of the version can be opened, read and written.
//! - The inspector's output is in golden files and in the document.
//!
//! `SIEVEDB_BLESS=1 cargo test testing::format` rewrites the golden files; see `tests/golden/README.md`.

mod dumps;
mod layouts;
mod records;
mod store;

use std::path::PathBuf;

use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::testing::Vector;

type Check = fn(&Vector);

const CHECKS: [(&str, Check); 42] = [
    ("varints", records::varints),
    ("checksums", records::checksums),
    ("file-header", records::file_header),
    ("current", records::current),
    ("log-small", crate::wal::format_vectors::log),
    ("log-room", crate::wal::format_vectors::log),
    ("log-fragment-takes-the-rest-of-its-page", crate::wal::format_vectors::fragment),
    ("log-fragment-without-payload-ends-a-page", crate::wal::format_vectors::fragment),
    ("log-fragment-goes-on-in-the-next-page", crate::wal::format_vectors::fragment),
    ("batch", records::batch),
    ("batch-range-delete", records::batch_range_delete),
    ("promise", records::promise),
    ("close", records::close),
    ("boundaries", records::boundaries),
    ("keyspace-options", records::keyspace_options),
    ("keyspace-options-expiry", records::keyspace_options_expiry),
    ("table-record", records::table_record),
    ("table-record-spans", records::table_record_spans),
    ("table-record-spans-only", records::table_record_spans_only),
    ("manifest", records::manifest),
    ("manifest-log-cut", records::manifest_log_cut),
    ("manifest-store-ids", records::manifest_store_ids),
    ("manifest-expiry", records::manifest_expiry),
    ("data-block", crate::table::format_vectors::data_block),
    ("data-block-hash-index", crate::table::format_vectors::data_block_hash_index),
    ("compressed-block", crate::table::format_vectors::compressed_block),
    ("span-block", crate::table::format_vectors::span_block),
    ("footer", crate::table::format_vectors::footer),
    ("table-origin", crate::table::format_vectors::origin),
    ("table", crate::table::format_vectors::table),
    ("table-hash-index", crate::table::format_vectors::table_hash_index),
    ("table-spans", crate::table::format_vectors::table_spans),
    ("table-spans-only", crate::table::format_vectors::table_spans_only),
    ("filter-bloom", crate::filter::format_vectors::filter),
    ("filter-blocked", crate::filter::format_vectors::filter),
    ("filter-blocked-many-probes", crate::filter::format_vectors::filter),
    ("filter-empty", crate::filter::format_vectors::filter),
    ("filter-ribbon", crate::filter::format_vectors::filter),
    ("filter-ribbon-layers", crate::filter::format_vectors::filter),
    ("filter-file", crate::table::format_vectors::filter_file),
    ("contents", records::contents),
    ("backup-index", records::backup_index),
];

fn golden(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "v1", name].iter().collect()
}

fn blessing() -> bool {
    std::env::var_os("SIEVEDB_BLESS").is_some_and(|what| what != "dump")
}

fn blessing_dumps() -> bool {
    std::env::var_os("SIEVEDB_BLESS").is_some()
}

#[test]
fn every_vector_of_the_document_has_a_check_and_every_check_a_vector() {
    let documented: Vec<_> = Vector::all().iter().map(|vector| vector.name).collect();
    let checked: Vec<_> = CHECKS.iter().map(|check| check.0).collect();
    assert_eq!(documented, checked);
}

#[test]
fn every_vector_decodes_to_its_facts_and_encodes_to_its_bytes() {
    for vector in Vector::all() {
        let (_, check) = CHECKS.iter().find(|check| check.0 == vector.name).expect("a check");
        println!("{}", vector.name);
        check(&vector);
    }
}

#[test]
fn every_vector_is_its_golden_file_and_no_golden_file_is_left_over() {
    let mut expected = Vec::new();
    for vector in Vector::all() {
        let name = format!("{}.bin", vector.name);
        if blessing() {
            std::fs::write(golden(&name), &vector.bytes).unwrap();
        }
        let found = std::fs::read(golden(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == vector.bytes, "{name} is not what the document says");
        expected.push(name);
    }
    let entries = std::fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut found: Vec<_> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn every_kind_of_file_that_is_written_has_a_vector() {
    let files = Vector::all().into_iter().filter(|vector| vector.bytes.len() > HEADER_BYTES);
    let headers: Vec<_> = files.filter_map(|vector| FileHeader::decode(&vector.bytes).ok()).collect();
    let kinds: Vec<_> = (0..=u16::MAX).filter_map(FileKind::from_u16).collect();
    assert_eq!(kinds.len(), 6);
    for kind in kinds {
        assert!(headers.iter().any(|header| header.kind == kind), "{kind:?}");
    }
}
