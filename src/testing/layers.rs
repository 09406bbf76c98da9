//! Modules import only what is below them, and no two need each other.
//!
//! The sources are read as text: every `crate::NAME` outside of comments and tests is an import. A name that
//! `lib.rs` re-exports counts as its module.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The modules of each layer, as in ARCHITECTURE.md. A module may use those of its own layer and of the
/// layers above it in this list.
const LAYERS: [&[&str]; 8] = [
    &["counters", "error", "limits", "sync"],
    &["batch", "key"],
    &["block", "file_header", "iter", "memtable", "table_meta"],
    &["cache", "filename", "fs", "manifest", "memory", "table", "wal"],
    &["compaction", "merge", "obsolete_files", "snapshot_read", "version"],
    &["inspect"],
    &["db", "options"],
    &["guide"],
];

/// The parts of `inspect`. Each may use those before it in this list.
const INSPECT: [&str; 11] = [
    "output",
    "file",
    "extensible",
    "framed",
    "filter_block",
    "table",
    "describe",
    "verify",
    "probe",
    "salvage",
    "tree",
];

/// The crate below all layers, by the names that it has here.
const FILTER_CRATE: [&str; 4] = ["checksum", "codec", "filter", "hash"];

/// Which modules each module imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The source without comments and without items that exist only in tests.
fn without_tests(source: &str) -> String {
    let mut kept = String::new();
    let mut skipped: Option<usize> = None;
    for line in source.lines() {
        let indent = line.len() - line.trim_start().len();
        let code = line.split("//").next().unwrap_or_default().trim();
        match skipped {
            None if code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(any(test") => {
                skipped = Some(indent);
            }
            None => kept.extend([code, "\n"]),
            Some(start) if indent == start && (code.ends_with('}') || code.ends_with(';')) => skipped = None,
            Some(_) => {}
        }
    }
    kept
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The name after each `crate::`; of a list in braces, all first names.
fn imported(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (at, _) in source.match_indices("crate::") {
        // Not `some_crate::`.
        if source[..at].ends_with(is_name) {
            continue;
        }
        let rest = &source[at + "crate::".len()..];
        match rest.strip_prefix('{').and_then(|list| list.split_once('}')) {
            Some((list, _)) => {
                names.extend(list.split(',').filter_map(|item| item.trim().split("::").next()))
            }
            None => names.extend(rest.split(|c| !is_name(c)).next()),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The module that each name re-exported by `lib.rs` comes from.
fn reexports(lib: &str) -> BTreeMap<&str, &str> {
    let mut modules = BTreeMap::new();
    for item in lib.split("pub use ").skip(1) {
        let Some((module, names)) = item.split(';').next().and_then(|item| item.split_once("::")) else {
            continue;
        };
        modules.extend(names.split(|c| !is_name(c)).map(|name| (name, module)));
    }
    modules
}

fn read_imports(src: &Path) -> Imports {
    let lib = std::fs::read_to_string(src.join("lib.rs")).unwrap();
    let reexports = reexports(&lib);
    let mut imports = Imports::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let inside = path.strip_prefix(src).unwrap();
            let module = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if matches!(&*module, "lib" | "testing") || matches!(name, "tests" | "format_vectors") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = without_tests(&std::fs::read_to_string(&path).unwrap());
            let used = imported(&source).into_iter();
            let used = used.map(|name| reexports.get(name).copied().unwrap_or(name).to_owned());
            let below = |name: &String| FILTER_CRATE.contains(&&**name) || name.starts_with("sievedb_");
            let used: Vec<_> = used.filter(|name| *name != module && !below(name)).collect();
            imports.entry(module).or_default().extend(used);
        }
    }
    imports
}

/// Imports of a module in a higher layer, or in none.
fn upward(imports: &Imports) -> Vec<String> {
    let layer = |name: &str| LAYERS.iter().position(|layer| layer.contains(&name));
    let edges = imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let wrong = edges.filter(|(from, to)| match (layer(from), layer(to)) {
        (Some(from), Some(to)) => to > from,
        _ => true,
    });
    wrong.map(|(from, to)| format!("{from} imports {to}")).collect()
}

/// Modules that need themselves, through others.
fn mutual(imports: &Imports) -> Vec<&str> {
    let needs_itself = |module: &str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![module];
        while let Some(name) = next.pop() {
            let new = imports.get(name).into_iter().flatten().filter(|name| seen.insert(&***name));
            next.extend(new.map(|name| &**name));
        }
        seen.contains(module)
    };
    imports.keys().map(|module| &**module).filter(|module| needs_itself(module)).collect()
}

#[test]
fn no_module_imports_upward_and_no_two_need_each_other() {
    let imports = read_imports(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let known: BTreeSet<_> = LAYERS.iter().copied().flatten().map(|name| (*name).to_owned()).collect();
    assert_eq!(imports.keys().cloned().collect::<BTreeSet<_>>(), known, "a module without a layer");
    assert!(imports["db"].contains("table") && imports["table"].contains("block"), "imports are found");
    assert_eq!(upward(&imports), [""; 0]);
    assert_eq!(mutual(&imports), [""; 0]);
}

#[test]
fn no_part_of_inspect_imports_a_later_one() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/inspect");
    for entry in std::fs::read_dir(&src).unwrap() {
        let path = entry.unwrap().path();
        let part = path.file_stem().unwrap().to_str().unwrap();
        if matches!(part, "mod" | "tests") {
            continue;
        }
        let rank = |name: &str| INSPECT.iter().position(|known| *known == name);
        let own = rank(part).expect("a part that is listed");
        let files = match path.is_dir() {
            true => std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()).collect(),
            false => vec![path.clone()],
        };
        for file in files {
            let source = without_tests(&std::fs::read_to_string(&file).unwrap());
            let source = source.replace("crate::", "other::").replace("other::inspect::", "crate::");
            let later: Vec<_> = imported(&source).into_iter().filter(|name| rank(name) > Some(own)).collect();
            assert_eq!(later, [""; 0], "{}", file.display());
        }
    }
}

#[test]
fn imports_upward_and_mutual_ones_are_found() {
    let source = "use crate::db::Db;\n/// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\nuse crate::{key, codec};\n";
    assert_eq!(imported(&without_tests(source)), ["db", "key", "codec"]);
    let to = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let edges =
        [("wal", to(&["db"])), ("db", to(&["table"])), ("table", to(&["wal"])), ("key", to(&["error"]))];
    let imports: Imports = edges.into_iter().map(|(from, to)| (from.to_owned(), to)).collect();
    assert_eq!(upward(&imports), ["wal imports db"]);
    assert_eq!(mutual(&imports), ["db", "table", "wal"]);
    assert_eq!(reexports("pub use a::{B, C};\npub use d::E;")["C"], "a");
}
