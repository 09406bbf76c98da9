//! Modules import only from lower layers, and without cycles.
//!
//! The sources are read as text. A file uses another file if it names a path into it (`crate::`, `super::`), or calls a
//! method of the engine that is defined in it. `cargo test -p sievedb --lib layers -- --nocapture` prints the figures
//! of the structure.

mod figures;
mod graph;
mod sources;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use graph::{Graph, cycles, graph};
use sources::{Module, Sources};

/// The modules of each layer, as in ARCHITECTURE.md. A module may use its own layer and the layers before it.
const LAYERS: [&[&str]; 8] = [
    &["allocator", "counters", "error", "histogram", "limits", "number_map", "sorting", "sync"],
    &["batch", "key"],
    &["block", "file_header", "iter", "memtable", "spans", "table_meta"],
    &["cache", "expiry", "filename", "fs", "manifest", "memory", "table", "wal"],
    &["compaction", "merge", "obsolete_files", "snapshot_read", "version"],
    &["inspect"],
    &["db", "options", "serialized_options"],
    &["guide"],
];

/// The rooms of the engine. A file may use its own room and the rooms on earlier lines.
const ROOMS: [&[&str]; 12] = [
    &["state"],
    &["latencies"],
    &["queues"],
    &["engine"],
    &["read"],
    &["build"],
    &["generation"],
    &["commit"],
    &["jobs", "open"],
    &["copy", "write"],
    &["handles"],
    &["check", "transaction"],
];

const INSPECTOR: [&[&str]; 11] = [
    &["output"],
    &["file"],
    &["extensible"],
    &["framed"],
    &["filter_block"],
    &["table"],
    &["describe"],
    &["verify"],
    &["probe"],
    &["salvage"],
    &["tree"],
];

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn named(module: &Module) -> String {
    module.join("/")
}

fn upward(graph: &Graph, place: impl Fn(&Module) -> Option<(usize, usize)>) -> Vec<String> {
    let uses = graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let is_wrong = |(from, to): &(&Module, &Module)| match (place(from), place(to)) {
        (Some(from), Some(to)) => to.0 > from.0 || to.0 == from.0 && to.1 != from.1,
        _ => true,
    };
    uses.filter(is_wrong).map(|(from, to)| format!("{} uses {}", named(from), named(to))).collect()
}

fn place_in(layers: &[&[&str]], name: &str) -> Option<(usize, usize)> {
    let find = |(at, layer): (usize, &&[&str])| {
        layer.iter().position(|&other| other == name).map(|within| (at, within))
    };
    layers.iter().enumerate().find_map(find)
}

#[test]
fn no_module_uses_a_higher_layer() {
    let graph = graph(&sources::read(&src()));
    let layer = |module: &Module| place_in(&LAYERS, &module[0]).map(|(at, _)| (at, 0));
    assert_eq!(upward(&graph, layer), [""; 0]);
    let used: BTreeSet<&str> = graph.keys().map(|module| &*module[0]).collect();
    let known: BTreeSet<&str> =
        LAYERS.iter().copied().flatten().copied().filter(|name| *name != "guide").collect();
    assert_eq!(used, known, "a layer names a module that does not exist");
}

fn check_rooms(of: &str, rooms: &[&[&str]], files_min: usize) {
    let inside = |module: &Module| module[0] == of;
    let graph: Graph = graph(&sources::read(&src()))
        .into_iter()
        .filter(|(from, _)| inside(from))
        .map(|(from, to)| (from, to.into_iter().filter(inside).collect()))
        .collect();
    let uses: usize = graph.values().map(BTreeSet::len).sum();
    assert!(graph.len() > files_min && uses > 2 * files_min, "uses of {of} are found");
    assert_eq!(upward(&graph, |module| place_in(rooms, &module[1])), [""; 0]);
}

#[test]
fn no_room_of_the_engine_uses_a_higher_room() {
    check_rooms("db", &ROOMS, 60);
}

#[test]
fn no_room_of_the_inspector_uses_a_higher_room() {
    check_rooms("inspect", &INSPECTOR, 20);
}

#[test]
fn no_file_uses_itself_through_others() {
    let graph = graph(&sources::read(&src()));
    let cycles: Vec<Vec<String>> =
        cycles(&graph).into_iter().map(|cycle| cycle.into_iter().map(named).collect()).collect();
    assert_eq!(cycles, [[""; 0]; 0]);
}

#[test]
fn no_folder_holds_more_than_a_dozen_files_flat() {
    let mut flat = std::collections::BTreeMap::<PathBuf, usize>::new();
    for (module, source) in sources::read(&src()) {
        let folder = if source.is_folder { continue } else { &module[..module.len() - 1] };
        *flat.entry(folder.iter().collect()).or_default() += 1;
    }
    // The crate root may have more files: it has the smallest modules of each layer.
    flat.remove(Path::new(""));
    let large: Vec<_> = flat.into_iter().filter(|&(_, files)| files > 12).collect();
    assert_eq!(large, []);
}

fn of(files: &[(&str, &str)]) -> Sources {
    let source = |&(path, text): &(&str, &str)| {
        let mut module: Module = path.split('/').map(str::to_owned).collect();
        let is_folder = module.last().is_some_and(|name| name == "mod");
        if is_folder {
            module.pop();
        }
        (module, sources::Source { text: sources::without_tests(text), is_folder })
    };
    files.iter().map(source).collect()
}

#[test]
fn imports_reexports_and_calls_of_the_engine_are_found() {
    let sources = of(&[
        ("a/mod", "pub(super) mod one;\npub use one::One;\n"),
        ("a/one", "use super::two::{self, Two};\n#[cfg(test)]\nmod tests {\n    use crate::b::b;\n}\n"),
        ("a/two", "// crate::b\nimpl X {\n    fn f() {}\n}\n\nimpl Engine {\n    pub fn work(&self) {}\n}\n"),
        ("b", "use crate::{a::{One, two::Two}};\n"),
        ("c", "fn f(engine: &Engine) {\n    engine.work();\n    some_crate::b();\n}\n"),
        ("d", "\nimpl Engine {\n    fn g(&self) {\n        self.work();\n    }\n}\n"),
    ]);
    let graph = graph(&sources);
    let used = |name: &str| -> Vec<String> {
        let module: Module = name.split('/').map(str::to_owned).collect();
        graph[&module].iter().map(named).collect()
    };
    assert_eq!(used("a/one"), ["a/two"]);
    assert_eq!(used("a/two"), [""; 0]);
    assert_eq!(used("b"), ["a/one", "a/two"]);
    assert_eq!((used("c"), used("d")), (vec!["a/two".to_owned()], vec!["a/two".to_owned()]));
}

#[test]
fn uses_of_higher_layers_and_cycles_are_found() {
    let sources = of(&[
        ("wal", "use crate::db::X;"),
        ("db", "use crate::table::T;"),
        ("table", "use crate::wal::W;"),
        ("key", ""),
    ]);
    let graph = graph(&sources);
    let place = |module: &Module| place_in(&LAYERS, &module[0]);
    assert_eq!(upward(&graph, |module| place(module).map(|(at, _)| (at, 0))), ["wal uses db"]);
    let cycles = cycles(&graph);
    let cycle: Vec<String> = cycles.iter().flatten().map(|module| named(module)).collect();
    assert_eq!(cycle, ["db", "table", "wal"]);
    assert_eq!(upward(&graph, |_| None).len(), 3);
}
