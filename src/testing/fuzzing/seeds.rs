//! The first inputs of a fuzzer: golden files and vectors, in every mode.

use super::store;
use crate::file_header::{FileHeader, FileKind};
use crate::testing::Vector;

#[derive(Debug)]
pub(super) struct Seed {
    pub(super) target: &'static str,
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn all() -> Vec<Seed> {
    let mut seeds = Seeds(Vec::new());
    seeds.filters();
    seeds.blocks();
    seeds.logs();
    seeds.manifests();
    seeds.batches();
    seeds.tables();
    seeds.dumps();
    seeds.stores();
    seeds.ops();
    seeds.0
}

fn vector(name: &str) -> Vec<u8> {
    let mut found = Vector::all().into_iter().filter(|vector| vector.name == name);
    found.next().unwrap_or_else(|| panic!("no vector {name}")).bytes
}

fn golden(kind: FileKind) -> Vec<Vec<u8>> {
    let of_kind = |file: &Vec<u8>| FileHeader::decode_kind(file, kind).is_ok();
    let mut found: Vec<_> = store::golden().into_values().filter(of_kind).collect();
    found.sort_by_key(Vec::len);
    found
}

struct Seeds(Vec<Seed>);

impl Seeds {
    fn add(&mut self, target: &'static str, name: impl Into<String>, parts: &[&[u8]]) {
        self.0.push(Seed { target, name: name.into(), bytes: parts.concat() });
    }

    fn filters(&mut self) {
        for name in
            ["filter-bloom", "filter-blocked", "filter-empty", "filter-ribbon", "filter-ribbon-layers"]
        {
            let block = vector(name);
            self.add("filter", format!("{name}-raw"), &[&[0], &block]);
            self.add("filter", format!("{name}-resealed"), &[&[1], &block]);
        }
        // Kind; flags, seed, salt; keys, rate, size, probes.
        let bits = [0x5a, 0x81, 0xff, 0x10];
        let head = [0, 7, 9, 3, 10, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        for kind in 0..2 {
            let size = [&[10][..], &[0; 7], &[0x60, 6]].concat();
            self.add("filter", format!("forged-{kind}"), &[&[2, kind], &head, &size, &bits]);
        }
        // Ribbon: size 200; attempt; plain blocks 2; two groups of 4 and 3 columns; one layer of two buckets.
        let slots = [&[8][..], &[0; 7], &[200, 0]].concat();
        let plain = [&[2][..], &[0; 7], &[0x80]].concat();
        let layers = [&[1, 2][..], &[0; 7], &[0x80]].concat();
        let ribbon = [&slots[..], &[0, 0], &plain, &[2, 4, 3], &layers].concat();
        self.add("filter", "forged-ribbon", &[&[2, 2], &head, &ribbon, &bits]);
        for kind in 0..3 {
            // Seed, salt, bits per key, groups, place and kind of the damage, numbers, keys.
            let built = [1, 2, 0, 80, 3, 130, 0, 0, 0, 1, 0, 0, 0];
            self.add(
                "filter",
                format!("built-few-{kind}"),
                &[&[3, kind], &built, &[0, 0], b"\x05apple\x00\x04kiwi"],
            );
            self.add("filter", format!("built-many-{kind}"), &[&[3, kind], &built, &2500u16.to_le_bytes()]);
        }
    }

    fn blocks(&mut self) {
        let data = vector("data-block");
        let table = vector("table");
        // The index block of the vector follows its data block.
        let index = &table[64 + data.len()..][..40];
        for (target, block) in [("data_block", &data[..]), ("index_block", index)] {
            self.add(target, "raw", &[&[0], block]);
            self.add(target, "resealed", &[&[1], block]);
            self.add(target, "payload", &[&[2], &block[20..]]);
        }
        self.add("data_block", "hash-index-resealed", &[&[1], &vector("data-block-hash-index")]);
        self.add("data_block", "compressed-raw", &[&[0], &vector("compressed-block")]);
        self.add("data_block", "compressed-resealed", &[&[1], &vector("compressed-block")]);
        let store = golden(FileKind::Table).pop().expect("there are tables");
        let first = &store[64..64 + 20 + usize::from(u16::from_le_bytes([store[68], store[69]]))];
        self.add("data_block", "store-resealed", &[&[1], first]);
        // Shared, suffix, kind, sequence number, value.
        let entry = [4, 3, b'a', b'b', b'c', 1, 9, 0, 2, b'x', b'y'];
        let other = [2, 1, b'z', 0, 8, 0];
        self.add("data_block", "built", &[&[3, 1, 0], &entry.repeat(9), &other.repeat(20), &entry.repeat(9)]);
        let built = [&[3, 19, 0], &entry.repeat(9)[..], &other.repeat(20), &entry.repeat(9)];
        self.add("data_block", "built-with-hash-index", &built);
        self.add("data_block", "built-and-changed", &[&[3, 3, 1, 20, 0, 1], &entry, &other, &entry]);
        let entry = [4, 3, b'a', b'b', b'c', 1, 9, 0, 64, 0, 0, 0, 100, 0];
        let other = [2, 1, b'z', 0, 8, 0, 164, 0, 0, 0, 100, 0];
        self.add("index_block", "built", &[&[3, 3, 0], &entry.repeat(9), &other.repeat(20)]);
        self.add("index_block", "built-and-changed", &[&[3, 3, 1, 20, 0, 1], &entry, &other]);
    }

    fn logs(&mut self) {
        for (kind, name, file) in [
            (0, "vector-log", vector("log-small")),
            (1, "vector-manifest", vector("manifest")),
            (0, "store-log", golden(FileKind::Log).remove(0)),
            (1, "store-manifest", golden(FileKind::Manifest).remove(0)),
        ] {
            self.add("log", format!("{name}-raw"), &[&[0, kind, 8, 0], &file]);
            self.add("log", format!("{name}-prepended"), &[&[1, kind, 0, 0], &file[64..]]);
            self.add("log", format!("{name}-resealed"), &[&[2, kind, 24, 0], &file]);
        }
        // Cut; synced; place and kind of the damage, cut; kind, length, repeats, bytes.
        let records = b"\x00\x02\x05hello\x01\x00\x10promised, closed\x00\x0b\x40";
        let records = [&records[..], &[7; 64], &[0, 0, 3, 1, 2, 3]].concat();
        for at in [20, 70, 90, 33_000, 140_000u32] {
            let head = [&[3, 0, 0, 0, 1][..], &at.to_le_bytes(), &[0, 1, 0, 0], &[0, 0]].concat();
            self.add("log", format!("built-{at}"), &[&head, &records]);
        }
    }

    fn manifests(&mut self) {
        for (name, file) in [("vector", vector("manifest")), ("store", golden(FileKind::Manifest).remove(0))]
        {
            self.add("manifest", format!("{name}-raw"), &[&[0], &file]);
            self.add("manifest", format!("{name}-resealed"), &[&[1], &file]);
        }
        // The fields of the vector's two edits: behind count and hash, the first also behind its base.
        let file = vector("manifest");
        let (first, second) = (&file[64 + 16 + 16 + 18..64 + 16 + 0xd3], &file[296 + 32..296 + 16 + 0xcb]);
        let edits: Vec<u8> = [first, second]
            .iter()
            .flat_map(|fields| [&(fields.len() as u16).to_le_bytes()[..], fields].concat())
            .collect();
        self.add("manifest", "fields", &[&[2], &edits]);
        self.add("manifest", "current-raw", &[&[3], &vector("current")]);
        self.add("manifest", "current-resealed", &[&[4], &vector("current")]);
        for name in ["store-ids", "expiry"].map(|name| format!("manifest-{name}")) {
            self.add("manifest", format!("{name}-resealed"), &[&[1], &vector(&name)]);
        }
        for name in ["keyspace-options", "keyspace-options-expiry"] {
            self.add("manifest", name.trim_start_matches("keyspace-"), &[&[5], &vector(name)]);
        }
        for name in ["table-record", "table-record-spans", "table-record-spans-only"] {
            self.add("manifest", name, &[&[6], &vector(name)]);
        }
    }

    fn batches(&mut self) {
        let batch = vector("batch");
        self.add("batch", "raw", &[&[0], &batch]);
        self.add("batch", "prepended", &[&[1, 7, 0, 0, 0], &batch[12..]]);
        self.add("batch", "promise", &[&[2], &vector("promise")]);
        self.add("batch", "close", &[&[3], &vector("close")]);
        self.add("batch", "range-delete", &[&[0], &vector("batch-range-delete")]);
        self.add("batch", "boundaries", &[&[4], &vector("boundaries")]);
        let entries =
            b"\x00\x00\x01\x05apple\x03red\x00\x00\x00\x05apple\x02\x03\x02\x00\x00\x00\x00\x02\x01a\x01c";
        self.add("batch", "built", &[&[5, 1, 0, 0, 0, 8], entries]);
        self.add("batch", "built-many", &[&[5, 1, 0, 0, 0, 8], &entries.repeat(30)]);
    }

    fn tables(&mut self) {
        let mut files = golden(FileKind::Table);
        files.truncate(2);
        files.extend(["table", "table-hash-index", "table-spans", "table-spans-only"].map(vector));
        for (name, file) in files.iter().enumerate() {
            self.add("table", format!("{name}-raw"), &[&[0], file]);
            self.add("table", format!("{name}-resealed"), &[&[1], file]);
        }
        // Bits per key, filter, block size, compression; resealed; place and kind of the damage, more of it.
        for (name, config, damage, more) in [
            ("plain", [80, 0, 0, 0], [0, 100, 0, 0, 0, 1, 0, 0, 0], &[][..]),
            ("bloom", [80, 1, 1, 1], [0, 0, 16, 0, 0, 0, 1, 0, 0], &[]),
            ("blocked", [80, 2, 2, 1], [1, 100, 0, 0, 0, 1, 0, 0, 0], &[0]),
            ("ribbon", [80, 3, 3, 0], [1, 0, 16, 0, 0, 0, 1, 0, 0], &[1, 90, 0, 0, 0, 2, 0, 0, 0]),
        ] {
            let head = [&[2][..], &config, &damage, more].concat();
            // Numbers, prefix; key, repeats, sequence number, kind and length of the value.
            let few = [&[3, 0, 2][..], b"\x05apple\x00\x07\x00\x01\x03red\x05apple\x00\x02\x00\x00"].concat();
            self.add("table", format!("built-few-{name}"), &[&head, &few]);
            let long = [&[0, 3, 200][..], b"\x01z\x01\x07\x00\x11\xf0", &[b'v'; 240]].concat();
            self.add("table", format!("built-deep-{name}"), &[&head, &long]);
        }
    }

    fn dumps(&mut self) {
        let mut files = vec![("table", vector("table")), ("current", vector("current"))];
        let others = [
            "log-small",
            "manifest",
            "table-spans",
            "table-spans-only",
            "filter-bloom",
            "filter-blocked",
            "filter-empty",
            "filter-ribbon",
            "filter-file",
        ];
        files.extend(others.map(|name| (name, vector(name))));
        for (name, kind) in [
            ("store-table", FileKind::Table),
            ("store-log", FileKind::Log),
            ("store-manifest", FileKind::Manifest),
        ] {
            files.push((name, golden(kind).remove(0)));
        }
        files.push(("log", crate::inspect::tests::log()));
        files.extend(crate::inspect::tests::tables());
        for (index, (name, file)) in files.into_iter().enumerate() {
            for resealed in 0..2 {
                // Detail, what else of the view.
                let view = [4 - resealed, 1 + (index as u8 * 2 + resealed) % 7, resealed];
                self.add("dump", format!("{name}-{resealed}"), &[&view, &file]);
            }
            self.add("dump", format!("{name}-block"), &[&[4, 0, 1, 1], &file]);
        }
    }

    fn stores(&mut self) {
        let small = store::small();
        self.add("store", "files-small", &[&[0], &store::described(&small)]);
        self.add("store", "files-small-resealed", &[&[1], &store::described(&small)]);
        for file in 0..store::golden().len() as u8 {
            // File, kind, place, change.
            self.add("store", format!("golden-damaged-{file}"), &[&[2, file, 0, 200, 0, 0, 0, 1, 0, 0, 0]]);
            self.add("store", format!("golden-cut-{file}"), &[&[2, file, 1, 90, 0, 0, 0]]);
            self.add("store", format!("golden-without-{file}"), &[&[2, file, 2]]);
            for kind in 0..8 {
                let change = [3, 0, file, kind, 80, 0, 0, 0, 3, 1, 0, 7];
                self.add("store", format!("golden-resealed-{file}-{kind}"), &[&change]);
            }
        }
    }

    fn ops(&mut self) {
        let write = [0, 0, 0, 7, 100, 1, 1, 7, 2, 13, 210, 5, 2, 0, 6, 7];
        let batch = [3, 20, 0, 2, 9, 50, 1, 3, 9, 60, 2, 0, 11, 255, 3, 1, 20, 30, 4, 6, 9, 7, 2];
        let read = [4, 7, 9, 20, 0, 5, 1, 0, 0, 0xa5, 6, 0, 1, 9, 2, 40, 0x33, 7, 0, 1, 3, 0xff];
        let transact = [20, 2, 0, 0, 9, 1, 2, 0, 0, 0xa5, 0, 4, 9, 20, 3, 1, 0, 9, 5, 1, 2, 7];
        let keep = [8, 10, 0, 12, 9, 0, 3, 11, 0, 14];
        for (name, ends) in [("close", &[16][..]), ("keep", &[17]), ("drop", &[18]), ("random", &[19, 7, 1])]
        {
            let mut all = Vec::new();
            for round in 0..6 {
                for part in [&write[..], &batch, &transact, &read, &keep, ends] {
                    all.extend(part.iter().map(|byte| byte ^ (round & 1)));
                    all.extend_from_slice(part);
                }
            }
            for kind in 0..5 {
                self.add("ops", format!("{name}-{kind}"), &[&[kind, 80, 0, 0, 0, 0, 0, 0, 1, 3], &all]);
            }
        }
    }
}
