//! The inspector's output for files of the version, in `tests/golden/v1/dump/NAME.dump` and the examples of the
//! document. `SIEVEDB_BLESS=dump` rewrites only these.

use std::path::{Path, PathBuf};

use super::{blessing_dumps, golden, store};
use crate::inspect::{Detail, Text, View, describe_bytes};
use crate::testing::Vector;

const VECTORS: [&str; 14] = [
    "current",
    "manifest",
    "table",
    "table-hash-index",
    "table-spans",
    "table-spans-only",
    "filter-bloom",
    "filter-blocked",
    "filter-blocked-many-probes",
    "filter-empty",
    "filter-ribbon",
    "filter-ribbon-layers",
    "filter-file",
    "backup-index",
];

const OPENING: &str = "```dump ";

fn dump(name: &str, bytes: &[u8], detail: Detail) -> String {
    let mut text = Text::new(Vec::new());
    describe_bytes(bytes, &View::new().name(name).detail(detail), &mut text).unwrap();
    String::from_utf8(text.into_inner()).unwrap()
}

fn dumps() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let vectors = Vector::all();
    let vector = |name: &str| &vectors.iter().find(|vector| vector.name == name).expect("a vector").bytes;
    for name in VECTORS {
        all.push((name.to_owned(), dump(name, vector(name), Detail::Bytes)));
    }
    let mut damaged = vector("table").clone();
    damaged[100] ^= 1;
    all.push(("table-damaged".into(), dump("table", &damaged, Detail::Bytes)));
    let log = crate::inspect::tests::log();
    all.push(("log".into(), dump("log", &log, Detail::Bytes)));
    let ranges = crate::inspect::tests::log_of_ranges();
    all.push(("log-ranges".into(), dump("log", &ranges, Detail::Bytes)));
    all.push(("log-torn".into(), dump("log", &log[..log.len() - 30], Detail::Bytes)));
    for (name, bytes) in store::golden_files() {
        all.push((format!("store-{name}"), dump(&name, &bytes, Detail::Shape)));
    }
    all
}

fn place(name: &str) -> PathBuf {
    golden("dump").join(format!("{name}.dump"))
}

#[test]
fn every_dump_is_its_golden_file_and_every_worked_example_is_one_of_them() {
    let all = dumps();
    if blessing_dumps() {
        let _ = std::fs::remove_dir_all(golden("dump"));
        std::fs::create_dir_all(golden("dump")).unwrap();
        all.iter().for_each(|(name, text)| std::fs::write(place(name), text).unwrap());
    }
    for (name, text) in &all {
        let found = std::fs::read_to_string(place(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == *text, "{name}: the inspector now says\n{text}");
    }
    let files = std::fs::read_dir(golden("dump")).unwrap().count();
    assert_eq!(files, all.len(), "a dump is left over");

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("format-vectors.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let written = with_examples(&document, &all);
    if blessing_dumps() {
        std::fs::write(&path, &written).unwrap();
    } else {
        assert!(written == document, "a worked example is not what the inspector says");
    }
}

fn with_examples(document: &str, all: &[(String, String)]) -> String {
    let mut parts = document.split(OPENING);
    let mut out = parts.next().unwrap().to_owned();
    let mut count = 0;
    for part in parts {
        let (name, rest) = part.split_once('\n').expect("the name of an example");
        let (_, after) = rest.split_once("```").expect("the end of an example");
        let (_, text) = all.iter().find(|dump| dump.0 == name).unwrap_or_else(|| panic!("no dump {name}"));
        out.push_str(&format!("{OPENING}{name}\n{text}```{after}"));
        count += 1;
    }
    assert!(count > 0, "the document has no worked example");
    out
}
