//! Properties of every description, on the vectors of format-vectors.md.

mod forge;
mod records;
mod tables;

pub(crate) use tables::tables;

use super::*;
use crate::checksum::{checksum, checksum32};
use crate::testing::Vector;
use crate::wal::RecordKind;
use crate::wal::record::put_fragment;

const FILES: [&str; 8] =
    ["current", "log", "manifest", "table", "filter-bloom", "filter-blocked", "filter-ribbon", "filter-file"];

fn file(name: &str) -> Vec<u8> {
    if name == "log" {
        return log();
    }
    Vector::all().into_iter().find(|vector| vector.name == name).expect("a vector").bytes
}

pub(crate) fn log() -> Vec<u8> {
    log_of(&[file("batch")])
}

pub(crate) fn log_of_ranges() -> Vec<u8> {
    let records = [(RecordKind::Boundaries, "boundaries"), (RecordKind::Batch, "batch-range-delete")];
    log_of_records(records.map(|(kind, name)| (kind, file(name))).to_vec())
}

fn log_of(batches: &[Vec<u8>]) -> Vec<u8> {
    log_of_records(batches.iter().map(|batch| (RecordKind::Batch, batch.clone())).collect())
}

fn log_of_records(records: Vec<(RecordKind, Vec<u8>)>) -> Vec<u8> {
    let mut out = file("log-small")[..64].to_vec();
    let owner = *out[32..48].first_chunk::<16>().unwrap();
    let rest = [(RecordKind::Promise, file("promise")), (RecordKind::Close, file("close"))];
    for (kind, body) in records.into_iter().chain(rest) {
        let (mut payload, mut first) = (&body[..], true);
        let is_first = matches!(kind, RecordKind::Batch | RecordKind::Boundaries);
        let synced = if is_first { 0 } else { out.len() as u64 };
        while first || !payload.is_empty() {
            let at = out.len() as u64;
            put_fragment(&mut out, &owner, at, (kind, first), synced, &mut payload);
            first = false;
        }
    }
    out
}

#[derive(Debug, PartialEq)]
enum Reported {
    Span { place: Place, len: u64, label: String, is_bytes: bool },
    Entry { key: Vec<u8>, value: Option<Vec<u8>> },
    Damage(FileDamage),
    Other,
}

fn events_of(bytes: &[u8], view: &View) -> (Vec<Reported>, Report) {
    let mut all = Vec::new();
    let report = describe_bytes(bytes, view, &mut |event: &Event<'_>| {
        all.push(match event {
            Event::Span(span) => Reported::Span {
                place: span.place,
                len: span.len,
                label: span.label.to_string(),
                is_bytes: !span.bytes.is_empty() || span.value == Value::Secret,
            },
            Event::Entry(entry) => {
                Reported::Entry { key: entry.key.to_vec(), value: entry.value.map(<[u8]>::to_vec) }
            }
            Event::Damage(damage) => Reported::Damage(damage.clone()),
            _ => Reported::Other,
        });
        Ok(())
    });
    (all, report.expect("bytes in memory can be read"))
}

fn text(bytes: &[u8], view: &View) -> String {
    let mut text = Text::new(Vec::new());
    describe_bytes(bytes, view, &mut text).unwrap();
    String::from_utf8(text.into_inner()).unwrap()
}

fn everything() -> View {
    View::new().detail(Detail::Bytes)
}

#[test]
fn every_byte_of_a_file_is_reported_once_and_in_order() {
    for name in FILES {
        let bytes = file(name);
        let (all, report) = events_of(&bytes, &everything());
        let mut at = 0;
        for span in all {
            if let Reported::Span { place: Place::File(offset), len, label, is_bytes: true } = span {
                assert_eq!(offset, at, "{name}: {label}");
                at += len;
            }
        }
        assert_eq!(at, bytes.len() as u64, "{name}");
        assert_eq!((report.accounted, report.damage_count), (at, 0), "{name}: {report:?}");
        assert!(report.checksums > 0 && !report.partial, "{name}: {report:?}");
    }
}

#[test]
fn whichever_bit_is_flipped_the_damage_is_reported() {
    for name in FILES {
        let good = file(name);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            if name == "filter-file" && (1024..32_000).contains(&bit) && bit % 97 != 0 {
                continue;
            }
            let views = [View::new().detail(Detail::Shape), View::new().entries(Entries::Keys), everything()];
            let (_, report) = events_of(&bad, &views[bit % 3]);
            let found = !report.is_intact() || report.torn_bytes > 0;
            assert!(found, "{name}, bit {bit}, {:?}", views[bit % 3]);
        }
    }
}

#[test]
fn wherever_a_file_is_cut_the_damage_is_reported() {
    for name in FILES {
        let good = file(name);
        let mut intact = Vec::new();
        for len in 0..good.len() {
            let (all, report) = events_of(&good[..len], &everything());
            let first = report.first_damage.as_ref().map_or(0, |damage| damage.offset);
            assert!(first <= len as u64, "{name} cut to {len}: {report:?}");
            assert_eq!(
                report.is_intact(),
                !all.iter().any(|event| matches!(event, Reported::Damage(_))),
                "{name}, {len}"
            );
            if report.is_intact() && report.torn_bytes == 0 {
                intact.push(len);
            }
        }
        let ends = match name {
            "log" => starts(&good, "record ").collect(),
            "manifest" => starts(&good, "edit ").skip(1).collect(),
            _ => Vec::new(),
        };
        assert_eq!(intact, ends, "{name}");
    }
}

fn starts(bytes: &[u8], prefix: &str) -> impl Iterator<Item = usize> {
    events_of(bytes, &everything()).0.into_iter().filter_map(move |event| match event {
        Reported::Span { place: Place::File(at), label, .. }
            if label.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u64>().is_ok()) =>
        {
            Some(at as usize)
        }
        _ => None,
    })
}

#[test]
fn for_any_bytes_after_a_good_header_nothing_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    for name in FILES {
        let good = file(name);
        for round in 0..200 {
            let mut bad = good.clone();
            bad.truncate(64 + usize::from(random()) * 2);
            let from = if round % 2 == 0 { 64 } else { bad.len() / 2 };
            bad.iter_mut().skip(from).for_each(|byte| *byte = random());
            for view in [everything(), View::new().block(0), View::new().entries(Entries::Values)] {
                let _ = events_of(&bad, &view);
            }
        }
    }
    for len in 0..300 {
        let noise: Vec<u8> = (0..len).map(|_| random()).collect();
        assert!(!events_of(&noise, &View::new()).1.is_intact());
    }
}

fn longer_table() -> (Vec<u8>, Vec<usize>) {
    let table = file("table");
    let owner = *table[32..48].first_chunk::<16>().unwrap();
    let block = &table[64..137];
    let mut out = table[..64].to_vec();
    let mut offsets = Vec::new();
    for _ in 0..3 {
        let at = out.len();
        offsets.push(at);
        out.extend_from_slice(block);
        let sum = checksum(&owner, at as u64, &[&block[..12], &block[20..]]);
        out[at + 12..at + 20].copy_from_slice(&sum.to_le_bytes());
    }
    (out, offsets)
}

#[test]
fn after_a_damaged_block_the_walk_continues_with_the_next_one() {
    let (good, offsets) = longer_table();
    let blocks = |bytes: &[u8]| -> Vec<(usize, bool)> {
        let (all, _) = events_of(bytes, &View::new().detail(Detail::Blocks));
        let damaged: Vec<u64> = all
            .iter()
            .filter_map(|event| if let Reported::Damage(damage) = event { Some(damage.offset) } else { None })
            .collect();
        all.iter()
            .filter_map(|event| match event {
                Reported::Span { place: Place::File(at), label, .. } if label.starts_with("block ") => {
                    Some((*at as usize, !damaged.iter().any(|damage| (*at..*at + 73).contains(damage))))
                }
                _ => None,
            })
            .collect()
    };
    assert_eq!(blocks(&good)[..3].iter().map(|block| block.0).collect::<Vec<_>>(), offsets);
    for place in [40, 4, 5, 7, 0] {
        let mut bad = good.clone();
        bad[offsets[1] + place] ^= 0x10;
        let found = blocks(&bad);
        assert!(found.contains(&(offsets[0], true)), "{place}: {found:?}");
        assert!(!found.contains(&(offsets[1], true)), "{place}: {found:?}");
        assert!(found.iter().any(|block| block.0 == offsets[2]), "{place}: {found:?}");
    }
}

#[test]
fn a_damaged_file_header_does_not_hide_the_table_after_it() {
    let mut bad = file("table");
    bad[40] ^= 1;
    let (all, report) = events_of(&bad, &View::new().entries(Entries::Values));
    let entries: Vec<_> = all.iter().filter(|event| matches!(event, Reported::Entry { .. })).collect();
    assert_eq!((entries.len(), report.damage_count), (4, 1), "{report:?}");
}

#[test]
fn keys_and_values_are_the_entries_in_their_order_and_nothing_else() {
    let (all, report) = events_of(&file("table"), &View::new().entries(Entries::Values));
    let expected: [(&[u8], Option<&[u8]>); 4] =
        [(b"apple", Some(b"red")), (b"apple", None), (b"apricot", Some(b"orange")), (b"banana", Some(b""))];
    let entries: Vec<_> = all
        .iter()
        .filter_map(|event| match event {
            Reported::Entry { key, value } => Some((&key[..], value.as_deref())),
            _ => None,
        })
        .collect();
    assert_eq!(entries, expected);
    assert!(!all.iter().any(|event| matches!(event, Reported::Span { .. })) && report.is_intact());
    let text = text(&file("table"), &View::new().entries(Entries::Keys));
    assert!(
        text.contains("\n7\tput\tapple\n2\tdelete\tapple\n0\tput\tapricot\n300\tput\tbanana\n"),
        "{text}"
    );
}

#[test]
fn one_block_is_reported_alone_and_one_that_is_not_there_is_not() {
    let table = file("table");
    let (all, report) = events_of(&table, &View::new().block(1));
    let groups: Vec<_> = all
        .iter()
        .filter_map(|event| match event {
            Reported::Span { label, .. } if label.starts_with("block ") => Some(&label[..]),
            _ => None,
        })
        .collect();
    assert_eq!(groups, ["block 1, index"]);
    assert!(report.is_intact() && report.partial);
    let (all, report) = events_of(&table, &View::new().block(3));
    assert!(!all.iter().any(|event| matches!(event, Reported::Span { .. })));
    assert!(report.is_intact() && report.partial && report.units == 3, "{report:?}");
    let (all, _) = events_of(&log(), &View::new().block(0));
    assert!(all.iter().any(|event| matches!(event, Reported::Span { label, .. } if label == "record 0")));
}

#[test]
fn a_batch_over_pages_is_reported_whole_and_a_lost_page_costs_that_batch_only() {
    let value = vec![b'v'; 70_000];
    let batch = |first: u64| {
        let mut batch = crate::WriteBatch::new();
        batch.put("long", &value);
        let (mut bytes, ..) = batch.into_parts().unwrap();
        crate::batch::stamp(&mut bytes, first);
        bytes
    };
    let good = log_of(&[batch(1), batch(2), file("batch")]);
    let keys = |bytes: &[u8]| {
        let (all, report) = events_of(bytes, &View::new().entries(Entries::Values));
        let lens: Vec<_> = all
            .iter()
            .filter_map(|event| match event {
                Reported::Entry { value, .. } => Some(value.as_ref().map_or(0, Vec::len)),
                _ => None,
            })
            .collect();
        (lens, report)
    };
    let (lens, report) = keys(&good);
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(lens[..2], [70_000, 70_000]);
    let mut bad = good.clone();
    bad[40_000] ^= 1;
    let (left, report) = keys(&bad);
    assert_eq!((&left[..], report.is_intact()), (&lens[1..], false));
    let first = report.first_damage.unwrap();
    assert_eq!((first.offset, first.what), (64, "log fragment"));
    assert!(text(&bad, &View::new()).contains("corrupt at 32768"), "{}", text(&bad, &View::new()));
}

#[test]
fn a_summary_reads_no_block() {
    let mut bad = file("table");
    bad[100] ^= 1;
    let (_, report) = events_of(&bad, &View::new().detail(Detail::Summary));
    assert!(report.is_intact() && report.partial);
    assert!(text(&bad, &View::new().detail(Detail::Summary)).contains("intact as far as it was read"));
}

#[test]
fn the_hash_seed_is_shown_only_on_request() {
    for (name, seed, bytes) in [
        ("filter-bloom", "0123456789abcdef", "ef cd ab 89 67 45 23 01"),
        ("manifest", "fedcba9876543210", "10 32 54 76 98 ba dc fe"),
    ] {
        let seeds = |view: &View| {
            let text = text(&file(name), view);
            let lines = text.lines().filter(|line| line.contains(" seed "));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let hidden = seeds(&everything());
        assert!(
            hidden.len() == 1 && hidden[0].ends_with("secret") || hidden[0].contains("secret,"),
            "{hidden:?}"
        );
        assert!(!hidden[0].contains(&bytes[..5]), "{hidden:?}");
        let shown = seeds(&everything().secrets(true));
        assert!(shown[0].contains(seed), "{shown:?}");
    }
}

#[test]
fn an_empty_file_is_a_lock_by_its_name_only() {
    assert_eq!(events_of(&[], &View::new().name("LOCK")).1.kind, Kind::Lock);
    assert!(events_of(&[], &View::new().name("LOCK")).1.is_intact());
    assert!(!events_of(&[], &View::new()).1.is_intact());
    assert!(!events_of(b"x", &View::new().name("LOCK")).1.is_intact());
    for bytes in [vec![], vec![7; 5], vec![0; 5000], vec![9; 5000]] {
        let report = events_of(&bytes, &View::new().name("RESERVE")).1;
        assert!(report.kind == Kind::Reserve && report.is_intact() && report.accounted == report.len);
    }
}

#[test]
fn a_newer_file_is_called_newer_and_not_damaged() {
    for name in ["table", "log", "manifest", "current"] {
        let mut newer = file(name);
        newer[10] = 2;
        let owner = *newer[32..48].first_chunk::<16>().unwrap();
        let sum = checksum32(&owner, 0, &[&newer[..60]]);
        newer[60..64].copy_from_slice(&sum.to_le_bytes());
        let (_, report) = events_of(&newer, &everything());
        let first = report.first_damage.unwrap();
        assert!(first.newer && first.what == "format version", "{first:?}");
    }
}

#[test]
fn a_sink_that_fails_ends_the_description() {
    let mut left = 5;
    let stopped = describe_bytes(&file("table"), &everything(), &mut |_: &Event<'_>| {
        left -= 1;
        if left == 0 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    });
    assert!(matches!(stopped, Err(Stop::Sink(error)) if error.kind() == std::io::ErrorKind::BrokenPipe));
    assert_eq!(left, 0);
}
