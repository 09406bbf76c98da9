use std::collections::{BTreeMap, BTreeSet};

use super::sources::{Module, Sources, paths, reexports};

/// The modules that each module uses. Folders (`mod.rs`) have no logic and are omitted.
pub(super) type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// A re-exported name counts as a use of its own module.
struct Resolver<'s> {
    sources: &'s Sources,
    reexports: BTreeMap<&'s Module, BTreeMap<String, Module>>,
}

impl<'s> Resolver<'s> {
    fn new(sources: &'s Sources) -> Self {
        let folders = sources.iter().filter(|(_, source)| source.is_folder);
        let reexports = folders.map(|(module, source)| (module, reexports(module, &source.text))).collect();
        Self { sources, reexports }
    }

    fn resolve(&self, path: &[String]) -> Option<&'s Module> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let len = (0..=path.len()).rev().find(|&len| self.sources.contains_key(&path[..len]))?;
            let (module, source) = self.sources.get_key_value(&path[..len])?;
            let target = path.get(len).and_then(|name| self.reexports.get(module)?.get(name));
            match target {
                Some(target) if *target != path[..=len] => {
                    path = [target.clone(), path[len + 1..].to_vec()].concat();
                }
                _ => return (!source.is_folder).then_some(module),
            }
        }
        None
    }
}

fn engine_blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("\nimpl Engine {\n").skip(1).map(|rest| rest.split("\n}\n").next().unwrap_or_default())
}

fn name_at(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

fn engine_methods(sources: &Sources) -> BTreeMap<&str, BTreeSet<&Module>> {
    let mut methods: BTreeMap<&str, BTreeSet<&Module>> = BTreeMap::new();
    for (module, source) in sources {
        for block in engine_blocks(&source.text) {
            let definitions =
                block.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
            for name in definitions.filter_map(|line| line.split("fn ").nth(1)).map(name_at) {
                methods.entry(name).or_default().insert(module);
            }
        }
    }
    methods
}

fn engine_calls(text: &str) -> BTreeSet<&str> {
    let after = |text, start: &'static str| {
        let joined: &str = text;
        joined.match_indices(start).map(move |(at, _)| name_at(joined[at + start.len()..].trim_start()))
    };
    let mut calls = BTreeSet::new();
    for start in ["engine.", "engine().", "engine\n            .", "engine()\n            ."] {
        calls.extend(after(text, start));
    }
    engine_blocks(text).for_each(|block| calls.extend(after(block, "self.")));
    calls
}

pub(super) fn graph(sources: &Sources) -> Graph {
    let resolver = Resolver::new(sources);
    let methods = engine_methods(sources);
    let mut graph = Graph::new();
    for (module, source) in sources.iter().filter(|(_, source)| !source.is_folder) {
        let imports = paths(module, &source.text);
        let imported = imports.iter().filter_map(|path| resolver.resolve(path));
        let called = engine_calls(&source.text).into_iter().filter_map(|name| methods.get(name)).flatten();
        let used = imported.chain(called.copied()).filter(|used| *used != module);
        graph.insert(module.clone(), used.cloned().collect());
    }
    graph
}

fn reached<'g>(graph: &'g Graph, from: &Module) -> BTreeSet<&'g Module> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Module> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    seen
}

pub(super) fn cycles(graph: &Graph) -> BTreeSet<BTreeSet<&Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        graph.keys().map(|module| (module, reached(graph, module))).collect();
    let uses = |from: &Module, to: &Module| reached.get(from).is_some_and(|all| all.contains(to));
    let mutual = |module: &&Module| uses(module, module);
    let cycle = |module| {
        graph.keys().filter(|&other| uses(module, other) && uses(other, module)).collect::<BTreeSet<_>>()
    };
    graph.keys().filter(mutual).map(cycle).collect()
}
