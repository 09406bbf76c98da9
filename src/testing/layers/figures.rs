use std::collections::{BTreeMap, BTreeSet};

use super::graph::{cycles, graph};
use super::sources::{self, Sources};
use super::src;

fn code_lines(text: &str) -> usize {
    text.lines().filter(|line| !line.trim().is_empty()).count()
}

fn types(text: &str, name: &str) -> BTreeSet<String> {
    let end = |rest: &str| {
        let mut depth = 0;
        rest.char_indices().find_map(|(at, c)| {
            depth += match c {
                '<' => 1,
                '>' => -1,
                _ => 0,
            };
            (depth == 0).then_some(at + 1)
        })
    };
    let argument = |(at, _): (usize, &str)| {
        let rest = &text[at + name.len()..];
        rest.starts_with('<').then(|| rest[..end(rest).unwrap_or(0)].split_whitespace().collect::<String>())
    };
    text.match_indices(name).filter_map(argument).map(|argument| format!("{name}{argument}")).collect()
}

fn count(sources: &Sources, what: &str) -> usize {
    sources.values().map(|source| source.text.matches(what).count()).sum()
}

#[test]
fn the_figures_of_the_structure_are_printed() {
    let sources = sources::read(&src());
    let mut rooms = BTreeMap::<String, (usize, usize)>::new();
    for (module, source) in &sources {
        let names = if module.first().is_some_and(|name| name == "db") { 2 } else { 1 };
        let room = rooms.entry(module.iter().take(names).cloned().collect::<Vec<_>>().join("/")).or_default();
        *room = (room.0 + 1, room.1 + code_lines(&source.text));
    }
    println!("{:<24}{:>6}{:>8}", "room", "files", "lines");
    rooms.iter().for_each(|(room, (files, lines))| println!("{room:<24}{files:>6}{lines:>8}"));
    let lines: usize = rooms.values().map(|(_, lines)| lines).sum();
    println!("{:<24}{:>6}{lines:>8}", "all", sources.len());
    let graph = graph(&sources);
    let mutual = graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let mutual =
        mutual.filter(|(from, to)| from < to && graph.get(*to).is_some_and(|back| back.contains(*from)));
    let largest = cycles(&graph).iter().map(BTreeSet::len).max().unwrap_or(0);
    println!("largest import cycle {largest}, mutual pairs {}", mutual.count());
    let maps: BTreeSet<String> = sources
        .values()
        .flat_map(|source| types(&source.text, "BTreeMap").into_iter().chain(types(&source.text, "BTreeSet")))
        .collect();
    println!("types of tree maps named {}", maps.len());
    let locks = ["Mutex<", "Condvar", "RwLock<"].map(|what| count(&sources, &format!(": {what}")));
    let atomics =
        [": AtomicBool", ": AtomicU64", ": AtomicUsize", ": AtomicU32", ": AtomicI64", ": AtomicU8"];
    let atomics: usize = atomics.iter().map(|what| count(&sources, what)).sum();
    println!("fields: mutexes {}, condition variables {}, atomics {atomics}", locks[0] + locks[2], locks[1]);
    println!("lines with `pub(crate)` {}", count(&sources, "pub(crate)"));
    assert!(lines > 10_000 && !maps.is_empty(), "the sources are read");
}
