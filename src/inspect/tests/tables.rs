//! Tables that no reader accepts, under valid checksums.

use super::forge::{FILE, Forge, Put, filter};
use super::*;
use crate::block::{BlockHandle, BlockKind, ChunkRef};

fn wrong(bytes: &[u8]) -> Option<String> {
    let (_, report) = events_of(bytes, &View::new().detail(Detail::Shape));
    let (_, keys) = events_of(bytes, &View::new().entries(Entries::Keys));
    assert_eq!(keys.is_intact(), report.is_intact());
    let damage =
        report.first_damage.map(|damage| format!("{} at {}: {}", damage.what, damage.offset, damage.detail));
    assert!(damage.is_some() || report.accounted == report.len && !report.partial);
    damage
}

#[track_caller]
fn assert_wrong(bytes: &[u8], expected: &str) {
    let found = wrong(bytes).expect("it is damaged");
    assert!(found.contains(expected), "{found}");
}

#[track_caller]
fn assert_intact(bytes: &[u8]) {
    assert_eq!(wrong(bytes), None);
    let faults = crate::testing::fuzzing::faults_of_table(bytes.to_vec(), 5);
    assert!(faults.is_empty(), "{faults:?}");
}

fn two(separators: [&str; 2]) -> Vec<u8> {
    let mut forge = Forge::new();
    let (a, b) = (forge.keys(&["apple", "banana"]), forge.keys(&["cherry", "date"]));
    let root = forge.index(&[(separators[0], a), (separators[1], b)]);
    forge.finish(root, 1)
}

fn deep(change: impl FnOnce(&mut [(&'static str, BlockHandle); 2], BlockHandle)) -> Vec<u8> {
    let mut forge = Forge::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|key| forge.keys(&[key]));
    let partitions = [forge.index(&[("a", a), ("b", b)]), forge.index(&[("c", c), ("d", d)])];
    let mut entries = [("b", partitions[0]), ("d", partitions[1])];
    change(&mut entries, a);
    let root = forge.index(&entries);
    forge.finish(root, 2)
}

pub(crate) fn tables() -> [(&'static str, Vec<u8>); 3] {
    let mut forge = Forge::new();
    let (first, second) = (forge.chunk(32_769), forge.chunk(32_770));
    let values =
        [(first, 32_769), (second, 32_770)].map(|(at, len)| Put::Chunks(ChunkRef::new(len, at.offset)));
    let data = forge.data(&[("a", values[0]), ("b", values[1])]);
    let root = forge.index(&[("b", data)]);
    [
        ("table-deep", deep(|_, _| {})),
        ("table-chunks", forge.finish(root, 1)),
        ("table-filters", filtered(&[of_two_keys(), of_two_keys()], |_| {})),
    ]
}

#[test]
fn a_header_with_the_id_of_another_file_is_reported() {
    let mut bytes = two(["c", "date"]);
    bytes[32..48].fill(9);
    let sum = checksum32(&[9; 16], 0, &[&bytes[..60]]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    assert_wrong(&bytes, "file id at 32");
    assert!(!events_of(&bytes, &View::new().detail(Detail::Summary)).1.is_intact());
}

#[test]
fn the_index_must_lead_to_each_block_by_separators_between_their_keys() {
    assert_intact(&two(["c", "date"]));
    assert_intact(&two(["banana", "date"]));
    assert_wrong(&two(["aanana", "date"]), "key order at 84: the last key is after the separator");
    assert_wrong(&two(["cherry", "date"]), "key order");
    assert_wrong(&two(["c", "dates"]), "the last separator is not the last user key");
}

#[test]
fn swapped_and_repeated_handles_are_reported() {
    let forged = |order: [usize; 2]| {
        let mut forge = Forge::new();
        let blocks = [forge.keys(&["apple"]), forge.keys(&["cherry"])];
        let root = forge.index(&[("apple", blocks[order[0]]), ("cherry", blocks[order[1]])]);
        forge.finish(root, 1)
    };
    assert_intact(&forged([0, 1]));
    assert_wrong(&forged([1, 0]), "key order");
    assert_wrong(&forged([0, 0]), "index block");
    let mut forge = Forge::new();
    let (b, a) = (forge.keys(&["cherry"]), forge.keys(&["apple"]));
    let root = forge.index(&[("apple", a), ("cherry", b)]);
    (forge.properties.smallest, forge.properties.largest) = ("apple".into(), "cherry".into());
    assert_wrong(&forge.finish(root, 1), "is not in the order of the index");
}

#[test]
fn a_depth_that_the_index_does_not_have_is_reported() {
    for depth in [2, 3, 4] {
        let mut forge = Forge::new();
        let data = forge.keys(&["apple"]);
        let root = forge.index(&[("apple", data)]);
        assert_wrong(&forge.finish(root, depth), "block kind at 64: expected index block, found data block");
    }
    let mut forge = Forge::new();
    let data = forge.keys(&["apple"]);
    let below = forge.index(&[("apple", data)]);
    let root = forge.index(&[("apple", below)]);
    assert_wrong(&forge.finish(root, 1), "where no data block starts");
}

#[test]
fn an_index_of_more_levels_is_followed_on_each() {
    assert_intact(&deep(|_, _| {}));
    assert_wrong(&deep(|root, _| root[0].0 = "bb"), "separator");
    assert_wrong(&deep(|root, _| root[0].0 = "ab"), "separator");
    assert_wrong(&deep(|root, _| root[1].0 = "dd"), "separator");
    assert_wrong(&deep(|root, _| (root[0].1, root[1].1) = (root[1].1, root[0].1)), "index block");
    assert_wrong(&deep(|root, _| root[1].1 = root[0].1), "index block");
    assert_wrong(&deep(|root, data| root[0].1 = data), "block kind at 64");
}

#[test]
fn an_index_block_that_nothing_leads_to_is_reported() {
    let mut forge = Forge::new();
    let data = forge.keys(&["apple"]);
    // The handle refers to its own block; all handles here have the same length.
    let at = forge.out.len() as u64;
    let len = forge.index(&[("apple", BlockHandle { offset: at, len: 39 })]).len;
    assert_eq!(len, 39, "the handle is right");
    let root = forge.index(&[("apple", data)]);
    assert_wrong(&forge.finish(root, 1), "index block at 103: nothing refers to it");
    let mut forge = Forge::new();
    let data = forge.keys(&["apple"]);
    let root = forge.index(&[("apple", data)]);
    forge.index(&[("apple", data)]);
    assert_wrong(&forge.finish(root, 1), "index block");
}

#[test]
fn the_kinds_of_blocks_must_be_in_their_order() {
    for index in [false, true] {
        let mut forge = Forge::new();
        let a = forge.keys(&["apple"]);
        if index {
            forge.index(&[("apple", a)]);
        } else {
            forge.block(BlockKind::Padding, &[0; 9]);
        }
        let b = forge.keys(&["cherry"]);
        let root = forge.index(&[("b", a), ("cherry", b)]);
        assert_wrong(&forge.finish(root, 1), "block kind");
    }
    for before in [false, true] {
        let mut forge = Forge::new();
        let data = forge.keys(&["apple"]);
        let root = forge.index(&[("apple", data)]);
        let first = forge.properties(1);
        let second = forge.properties(1);
        let bytes = forge.footer(root, if before { second } else { first }, 1);
        assert_wrong(&bytes, "properties block");
    }
}

fn chunks(change: impl FnOnce(&mut [ChunkRef; 2])) -> Vec<u8> {
    let mut forge = Forge::new();
    let first = forge.chunk(40_000);
    forge.keys(&["a"]);
    let second = forge.chunk(1 << 20);
    forge.chunk(5);
    let mut references = [ChunkRef::new(40_000, first.offset), ChunkRef::new((1 << 20) + 5, second.offset)];
    change(&mut references);
    let data = forge.data(&[("b", Put::Chunks(references[0])), ("c", Put::Chunks(references[1]))]);
    let a = BlockHandle { offset: first.offset + first.len, len: second.offset - first.offset - first.len };
    let root = forge.index(&[("a", a), ("c", data)]);
    forge.finish(root, 1)
}

#[test]
fn values_in_chunks_must_be_at_the_offsets_of_their_references() {
    assert_intact(&chunks(|_| {}));
    assert_wrong(&chunks(|references| references[0].offset += 1), "chunked value");
    assert_wrong(&chunks(|references| references[1].offset = references[0].offset), "chunked value");
    assert_wrong(
        &chunks(|references| (references[0].total, references[1].total) = (40_001, (1 << 20) + 4)),
        "value chunk length",
    );
    assert_wrong(
        &chunks(|[first, second]| (first.offset, second.offset) = (second.offset, first.offset)),
        "value chunk length",
    );
    let mut forge = Forge::new();
    let (a, b) = (forge.chunk(40_000), forge.chunk(50_000));
    let data = forge.data(&[
        ("a", Put::Chunks(ChunkRef::new(50_000, a.offset))),
        ("b", Put::Chunks(ChunkRef::new(40_000, b.offset))),
    ]);
    let root = forge.index(&[("b", data)]);
    assert_wrong(&forge.finish(root, 1), "value chunk length");
}

#[test]
fn a_long_value_must_be_in_chunks() {
    for (len, is_wrong) in [(32_768, false), (32_769, true)] {
        let mut forge = Forge::new();
        let data = forge.data(&[("a", Put::Inline(&vec![b'v'; len]))]);
        let root = forge.index(&[("a", data)]);
        let found = wrong(&forge.finish(root, 1));
        assert_eq!(found.is_some_and(|found| found.contains("value length")), is_wrong);
    }
}

#[test]
fn chunks_without_a_reference_and_references_without_chunks_are_reported() {
    let mut forge = Forge::new();
    forge.chunk(40_000);
    let data = forge.keys(&["a"]);
    let root = forge.index(&[("a", data)]);
    assert_wrong(&forge.finish(root, 1), "value chunk at 64: nothing refers to it");
    let mut forge = Forge::new();
    let data = forge.data(&[("a", Put::Chunks(ChunkRef::new(40_000, 64)))]);
    let root = forge.index(&[("a", data)]);
    assert_wrong(&forge.finish(root, 1), "chunked value");
}

fn filtered(filters: &[Vec<u8>], change: impl FnOnce(&mut Forge)) -> Vec<u8> {
    let mut forge = Forge::new();
    let data = forge.keys(&["a", "b"]);
    filters.iter().for_each(|block| _ = forge.filter(block));
    change(&mut forge);
    let root = forge.index(&[("b", data)]);
    forge.finish(root, 1)
}

fn of_two_keys() -> Vec<u8> {
    filter(FILE, 5, &["a", "b"])
}

#[test]
fn a_filter_must_be_the_one_that_the_properties_name() {
    assert_intact(&filtered(&[], |_| {}));
    assert_intact(&filtered(&[of_two_keys()], |_| {}));
    type Change = fn(&mut Forge);
    let cases: [(&str, Change); 6] = [
        ("filter header checksum", |forge| forge.properties.filters[0].header_checksum ^= 1),
        ("filter block length", |forge| forge.properties.filters[0].len += 64),
        ("filter kind", |forge| forge.properties.filters[0].kind = 2),
        ("filter block", |forge| forge.properties.filters.clear()),
        ("filter handle", |forge| {
            let twice = forge.properties.filters[0].clone();
            forge.properties.filters.push(twice);
        }),
        ("filter handle", |forge| {
            let mut lost = forge.properties.filters[0].clone();
            lost.offset += 4096;
            forge.properties.filters.push(lost);
        }),
    ];
    for (what, change) in cases {
        assert_wrong(&filtered(&[of_two_keys()], change), what);
    }
}

#[test]
fn a_filter_of_another_table_or_of_other_keys_is_reported() {
    assert_wrong(&filtered(&[filter([3; 16], 5, &["a", "b"])], |_| {}), "filter owner");
    assert_wrong(&filtered(&[filter(FILE, 5, &["a"])], |_| {}), "filter key count");
    assert_intact(&filtered(&[of_two_keys(), of_two_keys()], |_| {}));
    assert_wrong(&filtered(&[of_two_keys(), filter(FILE, 6, &["a", "b"])], |_| {}), "filter seed");
}

#[test]
fn a_filter_that_is_never_probed_is_not_damaged() {
    let mut other = of_two_keys();
    other[41] = 1;
    let sum = checksum32(&FILE, 0, &[&other[..12], &other[16..256]]);
    other[12..16].copy_from_slice(&sum.to_le_bytes());
    let bytes = filtered(&[of_two_keys(), other.clone()], |_| {});
    let (_, report) = events_of(&bytes, &View::new());
    assert!(report.is_intact() && report.partial && report.accounted == report.len, "{report:?}");
    assert!(crate::testing::fuzzing::faults_of_table(bytes, 5).is_empty());
    assert_wrong(&filtered(&[other], |forge| forge.properties.filters[0].domain = 0), "filter domain");
}

#[test]
fn undecodable_properties_are_reported_after_the_envelope() {
    let mut forge = Forge::new();
    let data = forge.keys(&["a"]);
    let root = forge.index(&[("a", data)]);
    let properties = forge.block(BlockKind::Properties, &[]);
    let bytes = forge.footer(root, properties, 1);
    let mut all = Vec::new();
    let file = super::super::file::InMemory(&bytes);
    let report = describe_filter(&file, &View::new(), &mut |event: &Event<'_>| {
        all.push(format!("{event:?}"));
        Ok(())
    });
    assert_eq!(report.unwrap().first_damage.unwrap().offset, properties.offset + 20, "{all:?}");
}

#[test]
fn a_filter_that_is_named_often_is_surveyed_once() {
    let bytes = filtered(&[of_two_keys()], |forge| {
        let again = vec![forge.properties.filters[0].clone(); 3];
        forge.properties.filters.extend(again);
    });
    let (mut sections, mut facts) = (0, 0);
    let file = super::super::file::InMemory(&bytes);
    let report = describe_filter(&file, &View::new(), &mut |event: &Event<'_>| {
        sections += u64::from(matches!(event, Event::Span(span) if span.label == "section 0"));
        facts += u64::from(matches!(event, Event::Fact { label: "owner", .. }));
        Ok(())
    });
    assert_eq!((sections, facts, report.unwrap().damage_count), (1, 1, 3));
}

#[test]
fn a_good_block_after_a_broken_one_is_not_reported() {
    let mut forge = Forge::new();
    let a = forge.keys(&["m"]);
    let broken = forge.block(BlockKind::Data, &[0, 1, 0, 0, b'a', 9, 9, 9, 9, 0, 0, 0, 0, 1, 0, 0, 0]);
    let b = forge.keys(&["z"]);
    let root = forge.index(&[("m", a), ("n", broken), ("z", b)]);
    let (all, _) = events_of(&forge.finish(root, 1), &everything());
    let damaged: Vec<_> = all.iter().filter(|event| matches!(event, Reported::Damage(_))).collect();
    assert!(matches!(damaged[..], [Reported::Damage(damage)] if damage.offset < b.offset), "{damaged:?}");
}

#[test]
fn damaged_blocks_are_summed_only_so_often() {
    let mut forge = Forge::new();
    let claimed = (4u32 << 20).to_le_bytes();
    for _ in 0..300 {
        forge.out.extend_from_slice(&[&[1, 0, 0, 0][..], &claimed, &claimed, &[7; 8]].concat());
        forge.block(BlockKind::Padding, &[0; 8]);
    }
    forge.out.resize(forge.out.len() + (4 << 20), 0);
    let (_, report) = events_of(&forge.out, &View::new());
    assert!((4..=8).contains(&report.damage_count), "{}", report.damage_count);
}
