//! Logs and manifests that recovery refuses, and long records.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::batch::{WriteBatch, stamp};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::{Fs, MemFs, ReadFile};
use crate::manifest::current::Current;
use crate::manifest::edit::tests::meta;
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::keyspace_options::KeyspaceOptions;
use crate::wal::EditMark;
use crate::wal::record::FRAGMENT_HEADER_BYTES;
use crate::wal::{encode_close, encode_promise};

const OWNER: [u8; 16] = [2; 16];

pub(super) fn framed(kind: FileKind, records: &[(RecordKind, Vec<u8>)]) -> Vec<u8> {
    let mut out = FileHeader::new(kind, [1; 16], OWNER).encode().to_vec();
    for (kind, body) in records {
        let (mut payload, mut first) = (&body[..], true);
        let synced = out.len() as u64;
        while first || !payload.is_empty() {
            let at = out.len() as u64;
            put_fragment(&mut out, &OWNER, at, (*kind, first), synced, &mut payload);
            first = false;
        }
    }
    out
}

#[derive(Debug)]
struct Sparse {
    head: Vec<u8>,
    reads: AtomicUsize,
}

impl ReadFile for Sparse {
    fn len(&self) -> io::Result<u64> {
        Ok(1 << 40)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        buffer.fill(0);
        let head = self.head.get(offset as usize..).unwrap_or_default();
        let len = head.len().min(buffer.len());
        buffer[..len].copy_from_slice(&head[..len]);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok((offset < self.head.len() as u64).then_some(offset))
    }
}

#[test]
fn the_hole_of_a_file_that_has_grown_is_passed_over_at_once() {
    for name in ["log", "manifest", "table"] {
        let head = file(name);
        let written = head.len() as u64;
        let sparse = Sparse { head, reads: AtomicUsize::new(0) };
        let (mut dropped, mut room) = (0, 0);
        let view = View::new().detail(Detail::Shape);
        let report = describe(&sparse, &view, &mut |event: &Event<'_>| {
            if let Event::Span(Span { label, bytes: _, place: Place::File(at), len, .. }) = event
                && (*label == "torn end" || *label == "room")
            {
                *(if *label == "room" { &mut room } else { &mut dropped }) += len;
                assert!(*at >= written, "{at}");
            }
            Ok(())
        })
        .unwrap();
        let reads = sparse.reads.load(Ordering::Relaxed);
        assert!(reads < 100, "{name}: {reads} reads");
        let hole = (1 << 40) - written;
        match name {
            "table" => assert!(report.first_damage.is_some()),
            "log" => assert_eq!((report.torn_bytes, room, report.accounted), (0, hole, 1 << 40)),
            _ => assert_eq!((report.torn_bytes, dropped), (hole, hole), "{name}"),
        }
    }
}

fn batch(first: u64, value: &[u8]) -> Vec<u8> {
    let mut batch = WriteBatch::new();
    batch.put("key", value);
    let (mut bytes, ..) = batch.into_parts().unwrap();
    stamp(&mut bytes, first);
    bytes
}

fn wrong(bytes: &[u8]) -> Option<String> {
    let views = [View::new().detail(Detail::Shape), View::new().entries(Entries::Keys), everything()];
    let damage = views.map(|view| {
        let (_, report) = events_of(bytes, &view);
        report.first_damage.map(|damage| format!("{} at {}: {}", damage.what, damage.offset, damage.detail))
    });
    assert!(damage.iter().all(|other| *other == damage[0]), "{damage:?}");
    damage.into_iter().next().flatten()
}

#[track_caller]
fn assert_wrong(bytes: &[u8], expected: &str) {
    let found = wrong(bytes).expect("it is damaged");
    assert!(found.contains(expected), "{found}");
}

fn log_of_records(records: &[(RecordKind, Vec<u8>)]) -> Vec<u8> {
    framed(FileKind::Log, records)
}

#[test]
fn a_record_of_a_log_that_recovery_refuses_is_reported() {
    let mark = EditMark { count: 3, hash: 9 };
    let good = (RecordKind::Batch, batch(5, b"value"));
    assert_eq!(wrong(&log_of_records(&[good.clone(), (RecordKind::Close, encode_close(5, mark))])), None);
    let mut promise = encode_promise(mark);
    promise.push(0);
    let empty = |first: u64| [&first.to_le_bytes()[..], &[0; 4]].concat();
    let mut followed = batch(6, b"value");
    followed.push(0);
    for (record, expected) in [
        ((RecordKind::Close, encode_close(u64::MAX, mark)), "last sequence number of the log"),
        ((RecordKind::Close, encode_close(4, mark)), "last sequence number of the log"),
        ((RecordKind::Close, vec![0; 23]), "edit hash"),
        ((RecordKind::Promise, promise), "log record"),
        ((RecordKind::Batch, empty(0)), "batch sequence number"),
        ((RecordKind::Batch, empty(5)), "batch sequence number"),
        ((RecordKind::Batch, batch(5, b"value")), "batch sequence number"),
        ((RecordKind::Batch, followed), "bytes follow"),
        ((RecordKind::Batch, Vec::new()), "batch"),
    ] {
        assert_wrong(&log_of_records(&[good.clone(), record]), expected);
    }
    assert_wrong(&log_of_records(&[(RecordKind::Batch, empty(0))]), "batch sequence number");
}

#[test]
fn a_record_too_long_to_be_put_together_is_no_damage_and_not_said_to_be_read() {
    let long = batch(1, &vec![7; 65 << 20]);
    let fragments = long.len().div_ceil(32_768 - FRAGMENT_HEADER_BYTES) as u64;
    let log = log_of_records(&[(RecordKind::Batch, long), (RecordKind::Batch, batch(2, b"v"))]);
    for view in [View::new().entries(Entries::Keys), View::new().detail(Detail::Shape), View::new().block(0)]
    {
        let (_, report) = events_of(&log, &view);
        assert!(
            report.is_intact() && report.partial && report.accounted == report.len,
            "{view:?} {report:?}"
        );
    }
    let text = text(&log, &View::new());
    let counted = format!("{},{:03} fragments", fragments / 1000, fragments % 1000);
    assert!(text.contains(&counted), "{counted}: {text}");
}

fn manifest_of(edits: &[Vec<EditItem>]) -> Vec<u8> {
    framed(FileKind::Manifest, &records_of(edits))
}

fn records_of(edits: &[Vec<EditItem>]) -> Vec<(RecordKind, Vec<u8>)> {
    let mut mark = EditMark { count: 6, hash: 8 };
    let mut records = Vec::new();
    for (number, items) in edits.iter().enumerate() {
        let base = (number == 0).then_some(EditItem::Base(mark));
        let (record, next) = VersionEdit::new(base.into_iter().chain(items.clone()).collect()).encode(mark);
        records.push((RecordKind::Edit, record));
        mark = next;
    }
    records
}

fn created(id: u32, name: &str, options: Vec<u8>) -> EditItem {
    EditItem::KeyspaceCreated { id, name: name.into(), options: options.into() }
}

fn default() -> EditItem {
    created(0, "default", KeyspaceOptions::default().encode().to_vec())
}

fn added(number: u64, level: u8, run: u64, keys: [&str; 2]) -> EditItem {
    let meta = Arc::new(meta(number, keys[0], keys[1], 5000));
    EditItem::TableAdded { keyspace: 0, level, run, meta }
}

fn log_created(number: u64, predecessor: u64) -> EditItem {
    EditItem::LogCreated { number, file_id: [5; 16], predecessor }
}

#[test]
fn a_state_of_a_manifest_that_opening_refuses_is_reported() {
    let good = [default(), log_created(3, 0), log_created(5, 3), added(7, 1, 0, ["a", "c"])];
    assert_eq!(wrong(&manifest_of(&[good.to_vec()])), None);
    assert_eq!(wrong(&manifest_of(&[good.to_vec(), vec![added(8, 1, 0, ["d", "e"])]])), None);
    let run = |number| added(number, 0, number, ["a", "c"]);
    assert_eq!(wrong(&manifest_of(&[good.to_vec(), vec![run(8), run(9)]])), None);
    let mut comparator = Vec::new();
    crate::codec::put_field(&mut comparator, 3, |out| out.push(2));
    for (edits, expected) in [
        (vec![vec![log_created(3, 0)]], "there is no default keyspace"),
        (vec![vec![created(0, "other", Vec::new())]], "there is no default keyspace"),
        (vec![vec![default(), created(1, "users", comparator)]], "comparator"),
        (vec![vec![default(), log_created(3, 0)], vec![log_created(5, 4)]], "log 5 follows log 4"),
        (vec![good.to_vec(), vec![added(8, 1, 0, ["c", "e"])]], "overlap"),
        (vec![vec![default()], vec![EditItem::KeyspaceDropped(0)]], "there is no default keyspace"),
    ] {
        assert_wrong(&manifest_of(&edits), expected);
    }
}

#[test]
fn bounds_that_were_cut_overlap_only_if_that_is_certain() {
    let cut = |number, smallest: &str, largest: &str| {
        let meta = crate::table_meta::TableMeta { trimmed: true, ..meta(number, smallest, largest, 5000) };
        EditItem::TableAdded { keyspace: 0, level: 1, run: 0, meta: Arc::new(meta) }
    };
    let long = "k".repeat(1024);
    let longer = format!("{}l", "k".repeat(1023));
    let touching = vec![default(), cut(7, "a", &long), cut(8, &long, "z")];
    assert_eq!(wrong(&manifest_of(&[touching])), None);
    let alike = vec![default(), cut(7, &long, "z"), cut(8, &long, &long)];
    assert_eq!(wrong(&manifest_of(&[alike])), None, "whose number is larger is not behind");
    assert_wrong(&manifest_of(&[vec![default(), cut(7, "a", &longer), cut(8, &long, "z")]]), "overlap");
    assert_wrong(&manifest_of(&[vec![default(), cut(7, "a", &long), added(8, 1, 0, ["k", "z"])]]), "overlap");
}

#[test]
fn an_edit_too_long_to_be_put_together_is_no_damage() {
    let long = vec![created(1, "long", vec![0; 65 << 20])];
    let manifest = manifest_of(&[vec![default()], long, vec![EditItem::NextFile(9)]]);
    let (_, report) = events_of(&manifest, &View::new().detail(Detail::Shape));
    assert!(report.is_intact() && report.partial, "{report:?}");
}

#[test]
fn the_count_of_edits_cannot_overflow_and_a_gap_in_them_is_said() {
    let base = EditMark { count: u64::MAX - 1, hash: 8 };
    let (record, _) = VersionEdit::new(vec![EditItem::Base(base), default()]).encode(base);
    let bytes = framed(FileKind::Manifest, &[(RecordKind::Edit, record)]);
    assert!(text(&bytes, &View::new()).contains("18,446,744,073,709,551,615th to 18,446"));
    let next = |file| vec![EditItem::NextFile(file)];
    let mut records = records_of(&[vec![default()], next(3), next(4), next(5)]);
    records[1].1[8] ^= 1;
    let bytes = framed(FileKind::Manifest, &records);
    let text = text(&bytes, &View::new());
    assert!(text.contains("7th to 10th of the store, with a gap"), "{text}");
}

#[test]
fn an_intact_fragment_within_another_is_a_witness_to_damage_before_it() {
    let mut log = FileHeader::new(FileKind::Log, [1; 16], OWNER).encode().to_vec();
    let kind = RecordKind::Batch;
    put_fragment(&mut log, &OWNER, 64, (kind, true), 0, &mut &batch(1, b"value")[..]);
    let outer = log.len() as u64;
    let mut inner = vec![0; 16];
    put_fragment(&mut inner, &OWNER, outer + 32, (kind, true), 100, &mut &b"12345678"[..]);
    let mut payload = &inner[..];
    put_fragment(&mut log, &OWNER, outer, (kind, true), 0, &mut payload);
    log[90] ^= 1;
    log.resize(outer as usize + 200, 0);
    let found = text(&log, &View::new());
    assert!(outer == 104 && found.contains("corrupt at 64"), "{found}");
}

fn store(manifest: &[u8]) -> MemFs {
    let (fs, dir) = (MemFs::new(), Path::new("/db"));
    fs.create_dir(dir).unwrap();
    fs.overwrite(&FileName::Manifest(1).path(dir), manifest.to_vec());
    let current = Current { store_id: [1; 16], manifest: 1, manifest_id: OWNER };
    current.install(&fs, dir, [7; 16]).unwrap();
    fs
}

#[test]
fn the_tree_reports_damage_in_the_manifest() {
    let edits = [vec![default(), added(7, 1, 0, ["a", "c"])], vec![created(1, "second", Vec::new())]];
    let whole = records_of(&[edits[0].clone(), edits[1].clone(), vec![created(2, "third", Vec::new())]]);
    let read = |bytes: &[u8]| {
        let tree = tree::Tree::read(&store(bytes), Path::new("/db")).unwrap();
        let names: Vec<_> = tree.keyspaces.iter().map(|keyspace| keyspace.name.clone()).collect();
        let damage: Vec<_> = tree
            .damage
            .iter()
            .filter(|(path, _)| path.ends_with("MANIFEST-000001"))
            .map(|(_, damage)| damage.what.to_string())
            .collect();
        (names.join(" "), damage.join(", "))
    };
    let good = framed(FileKind::Manifest, &whole);
    assert_eq!(read(&good), ("default second third".into(), String::new()));
    let mut head = good.clone();
    head[20] ^= 1;
    assert_eq!(read(&head).1, "file header checksum");
    let mut other = good.clone();
    other[16] ^= 1;
    let sum = checksum32(&OWNER, 0, &[&other[..60]]);
    other[60..64].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(read(&other).1, "store id");
    let mut hash = whole.clone();
    hash[1].1[9] ^= 1;
    let found = read(&framed(FileKind::Manifest, &hash));
    assert_eq!(found, ("default third".into(), "edit count and hash".into()));
    let mut flipped = good;
    let second = starts(&flipped, "edit ").nth(1).unwrap();
    flipped[second + 40] ^= 1;
    assert_eq!(read(&flipped), ("default third".into(), "manifest".into()));
}

#[test]
fn fields_are_named_as_their_decoders_take_them() {
    let mut options = KeyspaceOptions::default().encode().to_vec();
    crate::codec::put_field(&mut options, 7 << 1, |out| out.push(1));
    crate::codec::put_field(&mut options, 4 << 1 | 1, |out| out.push(1));
    let found = text(&manifest_of(&[vec![created(0, "default", options)]]), &everything());
    assert!(found.contains("nearly all lookups are for keys that are there"), "{found}");
    assert!(found.contains("unknown field") && found.contains("critical field"), "{found}");
}
