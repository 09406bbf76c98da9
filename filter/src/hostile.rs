//! Blocks of a hostile writer: valid checksums, invalid contents. If a change is undetectable, queries must still be
//! bounded and never panic.

use super::frozen::tests::reseal;
use super::header::{HEADER_BYTES, Header};
use super::{AlignedBytes, Expect, Filter, FilterBuilder, Kind, pages};
use crate::checksum::FileId;
use crate::codec::{DecodeError, DecodeErrorKind};
use crate::hash::key_hash;

const OWNER: FileId = [6; 16];
const SEED: u64 = 77;
const KEYS: u64 = 100;

type Patch = (usize, &'static [u8]);
const ONES: &[u8] = &[0xff; 8];

fn block(kind: Kind, keys: u64, salt: u64) -> Vec<u8> {
    let mut builder = FilterBuilder::new(kind, 10.0, SEED, salt, OWNER).unwrap().column_groups(1);
    (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
    builder.finish().unwrap()
}

fn blocks() -> impl Iterator<Item = (Kind, Vec<u8>)> {
    let grouped = |kind, keys: u64, groups| {
        let mut builder = FilterBuilder::new(kind, 10.0, SEED, 5, OWNER).unwrap().column_groups(groups);
        (0..keys).for_each(|key| builder.add_key(&key.to_le_bytes()));
        (kind, builder.finish().unwrap())
    };
    Kind::ALL.into_iter().flat_map(move |kind| {
        [(1, 1), (KEYS, 1), (KEYS, 3), (7000, 2), (20_000, 3)]
            .map(move |(keys, groups)| grouped(kind, keys, groups))
    })
}

fn open(bytes: &[u8]) -> Result<Filter<&[u8]>, DecodeError> {
    Filter::open(bytes, Expect::anything())
}

fn forged(kind: Kind, keys: u64, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = block(kind, keys, 5);
    change(&mut bytes);
    reseal(&mut bytes);
    bytes
}

fn patched(kind: Kind, (offset, patch): Patch) -> Vec<u8> {
    forged(kind, KEYS, |bytes| bytes[offset..offset + patch.len()].copy_from_slice(patch))
}

fn probe_all<B: AsRef<[u8]> + Clone>(filter: &Filter<B>) -> Vec<bool> {
    let hashes: Vec<u64> = (0..300u64)
        .map(|key| key_hash(SEED, &key.to_le_bytes()))
        .chain([0, 1, u64::MAX, 1 << 63, u64::from(u32::MAX)])
        .collect();
    let mut many = vec![false; hashes.len()];
    filter.may_contain_many(&hashes, &mut many);
    let portable = filter.clone().portable();
    for (&hash, &answer) in hashes.iter().zip(&many) {
        filter.prefetch(hash);
        assert_eq!(filter.may_contain(hash), answer);
        assert_eq!(portable.may_contain(hash), answer);
        for groups in [0, 1, 2, usize::MAX] {
            assert!(!answer || filter.keep_groups(groups).may_contain(hash), "fewer columns rule out less");
        }
    }
    many
}

/// Changed bytes in the header of a filter of 100 keys, and the field named in the error.
const CORRUPT: &[(Kind, Patch, &str)] = &[
    (Kind::Bloom, (0, b"X"), "filter magic"),
    (Kind::Bloom, (10, &[0, 0]), "filter header length"),
    (Kind::Bloom, (10, &[63, 0]), "filter header length"),
    (Kind::Bloom, (10, &[64, 0]), "filter header length"),
    (Kind::Bloom, (10, &[128, 0]), "filter header length"),
    (Kind::Bloom, (10, &[64, 1]), "filter header length"),
    (Kind::Bloom, (10, &[0x40, 0x10]), "filter header length"),
    (Kind::Bloom, (10, &[0xff, 0xff]), "filter header length"),
    (Kind::Bloom, (32, &[0; 8]), "filter block length"),
    (Kind::Bloom, (32, &[1]), "filter block length"),
    (Kind::Bloom, (36, &[1]), "filter block length"),
    (Kind::Bloom, (32, ONES), "filter block length"),
    (Kind::Bloom, (32, &[0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), "filter block length"),
    (Kind::Bloom, (43, &[0]), "unused filter sections"),
    (Kind::Bloom, (43, &[2]), "filter section count"),
    (Kind::Bloom, (43, &[5]), "filter section count"),
    (Kind::Bloom, (43, &[6]), "filter section count"),
    (Kind::Bloom, (43, &[255]), "filter section count"),
    (Kind::Bloom, (64, &[0; 8]), "filter key count"),
    (Kind::Bloom, (80, &[0; 8]), "filter size"),
    (Kind::Bloom, (80, &[1]), "filter section length"),
    (Kind::Bloom, (80, &[32, 4]), "filter section length"),
    (Kind::Bloom, (80, &[64, 4]), "filter section length"),
    (Kind::Bloom, (80, &[64, 0]), "filter section length"),
    (Kind::Bloom, (84, &[1]), "filter section length"),
    (Kind::Bloom, (80, &[0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), "filter section length"),
    (Kind::Bloom, (80, ONES), "filter section length"),
    (Kind::BlockedBloom, (80, &[0; 8]), "filter size"),
    (Kind::BlockedBloom, (80, &[1]), "filter section length"),
    (Kind::BlockedBloom, (80, &[3]), "filter section length"),
    (Kind::BlockedBloom, (87, &[4]), "filter section length"),
    (Kind::BlockedBloom, (80, ONES), "filter section length"),
    (Kind::Bloom, (88, &[0]), "filter probes"),
    (Kind::Bloom, (88, &[31]), "filter probes"),
    (Kind::Bloom, (88, &[255]), "filter probes"),
    (Kind::BlockedBloom, (88, &[0]), "filter probes"),
    (Kind::BlockedBloom, (88, &[31]), "filter probes"),
    (Kind::Bloom, (89, &[1]), "filter header reserved bytes"),
    (Kind::BlockedBloom, (91, &[1]), "filter header reserved bytes"),
    (Kind::Bloom, (92, &[1]), "filter header reserved bytes"),
    (Kind::Bloom, (94, &[1]), "filter header reserved bytes"),
    (Kind::Bloom, (96, &[1]), "filter header reserved bytes"),
    (Kind::Bloom, (127, &[128]), "filter header reserved bytes"),
    (Kind::Ribbon, (43, &[1]), "unused filter sections"),
    (Kind::Ribbon, (43, &[3]), "filter section count"),
    (Kind::Ribbon, (64, &[0; 8]), "filter key count"),
    (Kind::Ribbon, (80, &[0; 8]), "ribbon parameters"),
    (Kind::Ribbon, (80, &[127]), "ribbon parameters"),
    (Kind::Ribbon, (80, &[129]), "filter section length"),
    (Kind::Ribbon, (85, &[1]), "filter section length"),
    (Kind::Ribbon, (80, ONES), "ribbon parameters"),
    (Kind::Ribbon, (88, &[1]), "filter probes"),
    (Kind::Ribbon, (89, &[0]), "ribbon parameters"),
    (Kind::Ribbon, (89, &[9]), "filter section length"),
    (Kind::Ribbon, (89, &[33]), "ribbon parameters"),
    (Kind::Ribbon, (89, &[255]), "ribbon parameters"),
    (Kind::Ribbon, (90, &[1]), "filter section count"),
    (Kind::Ribbon, (91, &[1]), "ribbon parameters"),
    (Kind::Ribbon, (94, &[1]), "filter header reserved bytes"),
    (Kind::Ribbon, (95, &[1]), "filter header reserved bytes"),
    (Kind::Ribbon, (96, &[1]), "filter section length"),
    (Kind::Ribbon, (96, ONES), "ribbon parameters"),
    (Kind::Ribbon, (104, &[1]), "ribbon parameters"),
    (Kind::Ribbon, (127, &[128]), "ribbon parameters"),
    (Kind::Ribbon, (128, &[0; 8]), "filter section offset"),
    (Kind::Ribbon, (136, &[1]), "filter section length"),
    (Kind::Ribbon, (152, &[1]), "filter section offset"),
    (Kind::Ribbon, (160, ONES), "filter section length"),
    (Kind::Ribbon, (168, &[0; 4]), "filter page checksums"),
    (Kind::Ribbon, (176, &[1]), "unused filter sections"),
    (Kind::Ribbon, (248, &[1]), "filter section length"),
    (Kind::Ribbon, (248, &[200]), "ribbon parameters"),
    (Kind::Ribbon, (248, ONES), "ribbon parameters"),
    (Kind::Ribbon, (256, &[0; 4]), "filter page checksums"),
    (Kind::Ribbon, (319, &[1]), "filter padding"),
    (Kind::Ribbon, (320, &[0; 64]), "filter page"),
    (Kind::Bloom, (128, &[0; 8]), "filter section offset"),
    (Kind::Bloom, (128, &[0, 1]), "filter section offset"),
    (Kind::Bloom, (128, &[65]), "filter section offset"),
    (Kind::Bloom, (128, ONES), "filter section offset"),
    (Kind::Bloom, (132, &[1]), "filter section offset"),
    (Kind::Bloom, (136, &[0; 8]), "filter section length"),
    (Kind::Bloom, (136, &[127]), "filter section length"),
    (Kind::Bloom, (136, ONES), "filter section length"),
    (Kind::Bloom, (140, &[1]), "filter section length"),
    (Kind::Bloom, (144, &[0; 4]), "filter page checksums"),
    (Kind::Bloom, (148, &[1]), "filter section reserved bytes"),
    (Kind::Bloom, (152, &[1]), "unused filter sections"),
    (Kind::Bloom, (247, &[1]), "unused filter sections"),
    (Kind::Bloom, (248, &[1]), "filter header reserved bytes"),
    (Kind::Bloom, (255, &[1]), "filter header reserved bytes"),
    (Kind::Bloom, (256, &[0; 4]), "filter page checksums"),
    (Kind::Bloom, (260, &[1]), "filter padding"),
    (Kind::Bloom, (319, &[1]), "filter padding"),
    (Kind::Bloom, (320, &[0; 64]), "filter page"),
    (Kind::Bloom, (80, &[0, 0, 0, 0, 1]), "filter section length"),
    (Kind::Bloom, (80, &[0xc0, 0xff, 0xff, 0xff]), "filter section length"),
    (Kind::BlockedBloom, (80, &[0, 0, 0, 0, 1]), "filter section length"),
    (Kind::BlockedBloom, (80, &[0, 0, 0, 0, 0, 0, 0, 4]), "filter section length"),
    (Kind::BlockedBloom, (88, &[255]), "filter probes"),
    (Kind::BlockedBloom, (136, &[63]), "filter section length"),
    (Kind::BlockedBloom, (248, &[1]), "filter header reserved bytes"),
    (Kind::Ribbon, (80, &[0, 0, 0, 0, 1]), "filter section length"),
    (Kind::Ribbon, (80, &[0, 0, 0, 0, 0, 0, 1]), "filter section length"),
    (Kind::Ribbon, (80, &[1, 0, 0, 0, 0, 0, 1]), "ribbon parameters"),
    (Kind::Ribbon, (88, &[255]), "filter probes"),
    (Kind::Ribbon, (96, &[0, 0, 0, 0, 0, 0, 1]), "filter section length"),
    (Kind::Ribbon, (96, &[1, 0, 0, 0, 0, 0, 1]), "ribbon parameters"),
    (Kind::Ribbon, (112, &[1]), "ribbon parameters"),
    (Kind::Ribbon, (120, ONES), "ribbon parameters"),
];

const UNSUPPORTED: &[(Patch, &str)] = &[
    ((8, &[0, 0]), "filter format version"),
    ((8, &[2, 0]), "filter format version"),
    ((8, &[0xff, 0xff]), "filter format version"),
    ((44, &[1, 0]), "filter required flags"),
    ((44, &[0, 128]), "filter required flags"),
    ((40, &[0]), "filter kind"),
    ((40, &[4]), "filter kind"),
    ((40, &[255]), "filter kind"),
    ((41, &[1]), "filter domain"),
    ((41, &[2]), "filter domain"),
    ((41, &[255]), "filter domain"),
    ((42, &[0]), "filter hash id"),
    ((42, &[2]), "filter hash id"),
];

/// Changed fields that the block does not contradict.
const BELIEVED: &[(Patch, &str)] = &[
    ((46, &[0xff, 0xff]), "optional flags"),
    ((48, ONES), "another seed"),
    ((56, ONES), "another salt"),
    ((64, &[1, 0, 0, 0, 0, 0, 0, 0]), "one key"),
    ((64, &[0xff, 0xff, 0xff, 0xff]), "2^32 - 1 keys"),
    ((64, &[0, 0, 0, 0, 1]), "2^32 keys"),
    ((64, &[1, 0, 0, 0, 1]), "2^32 + 1 keys"),
    ((64, ONES), "2^64 - 1 keys"),
    ((72, &[0; 8]), "a rate of 0"),
    ((72, ONES), "a rate of 1"),
];

#[test]
fn a_forged_header_is_an_error_that_names_the_field() {
    for &(kind, patch, what) in CORRUPT {
        let bytes = patched(kind, patch);
        for error in
            [open(&bytes).unwrap_err(), Filter::open_groups(&bytes[..], Expect::anything(), 1).unwrap_err()]
        {
            assert!(matches!(error.kind, DecodeErrorKind::Corrupt(_)), "{kind:?} {patch:?}: {error}");
            assert_eq!(error.what, what, "{kind:?} {patch:?}: {error}");
        }
    }
}

#[test]
fn an_intact_block_that_asks_for_more_is_unsupported_not_corrupt() {
    for kind in Kind::ALL {
        for &(patch, what) in UNSUPPORTED {
            let error = open(&patched(kind, patch)).unwrap_err();
            assert!(matches!(error.kind, DecodeErrorKind::Unsupported { .. }), "{patch:?}: {error}");
            assert_eq!(error.what, what);
        }
    }
}

#[test]
fn what_a_block_cannot_know_is_believed_alone_and_refused_by_its_table() {
    for kind in Kind::ALL {
        let good = block(kind, KEYS, 5);
        let table = Expect::table(OWNER, SEED, KEYS).header_checksum(super::header::checksum(&good).unwrap());
        assert!(Filter::open(&good[..], table).is_ok());
        for &(patch, name) in BELIEVED {
            let bytes = patched(kind, patch);
            let answers = probe_all(&open(&bytes).unwrap());
            if ![48, 56].contains(&patch.0) {
                assert!(answers[..KEYS as usize].iter().all(|&maybe| maybe), "{kind:?} {name}");
            }
            assert!(Filter::open(&bytes[..], table).is_err(), "{kind:?} {name}");
        }
    }
}

#[test]
fn the_filter_of_another_table_is_refused_by_this_one() {
    for kind in Kind::ALL {
        let own = block(kind, KEYS, 5);
        let table = Expect::table(OWNER, SEED, KEYS);
        let pinned = table.header_checksum(super::header::checksum(&own).unwrap());
        let mut other = FilterBuilder::new(kind, 10.0, SEED, 5, [7; 16]).unwrap();
        (0..KEYS).for_each(|key| other.add_key(&key.to_le_bytes()));
        let mut other = other.finish().unwrap();
        assert_eq!(Filter::open(&other[..], table).unwrap_err().what, "filter owner");
        other[16..32].copy_from_slice(&OWNER);
        reseal(&mut other);
        assert_eq!(Filter::open(&other[..], table).unwrap_err().what, "filter page checksums");
        let salted = block(kind, KEYS, 6);
        assert_eq!(Filter::open(&salted[..], pinned).unwrap_err().what, "filter header checksum");
        let of_another_kind = block(Kind::ALL[kind as usize % 3], KEYS, 5);
        assert_eq!(Filter::open(&of_another_kind[..], pinned).unwrap_err().what, "filter header checksum");
    }
}

#[test]
fn every_beginning_of_a_block_is_an_error_unless_it_ends_with_a_column_group() {
    for (kind, bytes) in blocks() {
        let header = Header::decode(&bytes).unwrap();
        let step = if bytes.len() > 5000 { 41 } else { 1 };
        for len in (0..bytes.len()).step_by(step) {
            assert!(open(&bytes[..len]).is_err(), "{kind:?} {len}");
            for groups in 1..=3 {
                let opened = Filter::open_groups(&bytes[..len], Expect::anything(), groups);
                let whole = (1 + groups).min(header.sections.len());
                assert_eq!(opened.is_ok(), len as u64 == header.prefix_len(whole), "{kind:?} {len} {groups}");
            }
        }
    }
}

#[test]
fn fewer_column_groups_never_make_a_key_absent() {
    for (kind, bytes) in blocks() {
        let whole = open(&bytes).unwrap();
        let keys = whole.key_count();
        for groups in [0, 1, 2, 3, 4, usize::MAX] {
            let kept = whole.keep_groups(groups);
            let len = kept.as_bytes().len();
            let read = Filter::open_groups(&bytes[..len], Expect::table(OWNER, SEED, keys), groups).unwrap();
            assert_eq!(
                (read.predicted_rate(), read.column_groups()),
                (kept.predicted_rate(), kept.column_groups())
            );
            for key in 0..keys {
                let hash = key_hash(SEED, &key.to_le_bytes());
                assert!(kept.may_contain(hash) && read.may_contain(hash), "{kind:?} {groups}");
            }
            kept.verify().unwrap();
        }
    }
}

fn reseal_all(bytes: &mut [u8]) {
    reseal(bytes);
    let Ok(mut header) = Header::decode(bytes) else { return };
    if bytes.len() as u64 != header.block_len {
        return;
    }
    pages::seal(bytes, &header.owner, &mut header.sections);
    for (index, section) in header.sections.iter().enumerate() {
        bytes[144 + 24 * index..][..4].copy_from_slice(&section.checksum.to_le_bytes());
    }
    reseal(bytes);
}

#[test]
fn any_bytes_under_right_checksums_are_an_error_or_answer_in_bounded_time() {
    let mut state = 99u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 33
    };
    let mut opened = 0;
    for (kind, good) in blocks() {
        for round in 0..200 {
            let mut bytes = good.clone();
            for _ in 0..1 + round % 3 {
                let at = match round % 4 {
                    0 => 72 + random() as usize % (HEADER_BYTES - 72),
                    1 => HEADER_BYTES + random() as usize % 200,
                    _ => random() as usize,
                } % bytes.len();
                bytes[at] = [0, 1, 0x7f, 0xff, random() as u8][random() as usize % 5];
            }
            reseal_all(&mut bytes);
            if let Ok(filter) = Filter::open(AlignedBytes::copy_of(&bytes), Expect::anything()) {
                opened += 1;
                probe_all(&filter);
                let _ = (filter.verify(), filter.predicted_rate());
            }
            let _ = (Filter::open_groups(&bytes[..], Expect::anything(), 1), kind);
        }
    }
    assert!(opened > 300, "{opened}");
}

#[test]
fn bits_that_are_all_set_or_thresholds_of_every_sort_say_maybe_or_answer() {
    for (kind, mut bytes) in blocks() {
        let header = Header::decode(&bytes).unwrap();
        for (index, section) in header.sections.iter().enumerate() {
            for fill in [0xff, 0x55, 0xaa, 0] {
                bytes[section.offset as usize..][..section.len as usize].fill(fill);
                reseal_all(&mut bytes);
                // A tail with bits after its last slot is rejected.
                let Ok(filter) = open(&bytes) else { continue };
                let answers = probe_all(&filter);
                assert!(
                    kind == Kind::Ribbon || fill != 0xff || answers.iter().all(|&maybe| maybe),
                    "{index}"
                );
            }
        }
    }
}

#[test]
fn a_filter_of_no_keys_has_no_parameters_and_no_sections() {
    for (offset, what) in [
        (43, "filter section count"),
        (64, "filter probes"),
        (72, "filter key count"),
        (80, "filter key count"),
        (88, "filter key count"),
        (128, "unused filter sections"),
    ] {
        let error = open(&forged(Kind::Bloom, 0, |bytes| bytes[offset] = 1)).unwrap_err();
        assert_eq!(error.what, what, "{offset}");
    }
    let no_section = forged(Kind::Bloom, 0, |bytes| {
        (bytes[64], bytes[80], bytes[88]) = (1, 64, 1);
    });
    assert_eq!(open(&no_section).unwrap_err().what, "filter section count");
}
