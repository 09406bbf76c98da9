use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) type Module = Vec<String>;

pub(super) type Sources = BTreeMap<Module, Source>;

pub(super) struct Source {
    pub(super) text: String,
    /// Whether the module contains modules: a `mod.rs`, or the root.
    pub(super) is_folder: bool,
}

pub(super) fn without_tests(source: &str) -> String {
    let mut kept = String::new();
    let mut skipped: Option<usize> = None;
    for line in source.lines() {
        let indent = line.len() - line.trim_start().len();
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let is_test = ["#[cfg(test)]", "#[cfg(any(test"].iter().any(|start| code.trim().starts_with(start));
        match skipped {
            None if is_test => skipped = Some(indent),
            None => kept.extend([code, "\n"]),
            Some(start) if indent == start && (code.ends_with('}') || code.ends_with(';')) => skipped = None,
            Some(_) => {}
        }
    }
    kept
}

fn test_modules(source: &str) -> impl Iterator<Item = &str> {
    source.split("#[cfg(test)]\n").skip(1).filter_map(|item| {
        let (before, name) = item.split(';').next()?.split_once("mod ")?;
        (!before.contains('\n') && !name.contains('{')).then_some(name)
    })
}

pub(super) fn read(src: &Path) -> Sources {
    let mut sources = Sources::new();
    let mut tests = BTreeSet::new();
    let mut folders = vec![src.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let inside = path.strip_prefix(src).unwrap().with_extension("");
            let mut module: Module = inside.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
            let name = module.last().unwrap().clone();
            if module[0] == "testing" || matches!(&*name, "tests" | "format_vectors") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension().is_none_or(|end| end != "rs") {
                continue;
            }
            let is_folder = matches!(&*name, "mod" | "lib");
            if is_folder {
                module.pop();
            }
            let source = std::fs::read_to_string(&path).unwrap();
            tests.extend(test_modules(&source).map(|name| [&module[..], &[name.to_owned()]].concat()));
            sources.insert(module, Source { text: without_tests(&source), is_folder });
        }
    }
    sources.retain(|module, _| !tests.contains(module));
    sources
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn expand(text: &str, before: &[String], paths: &mut Vec<Module>) -> usize {
    let mut path = before.to_vec();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut inside = at + 1;
            let mut left = list;
            loop {
                let skipped = left.len() - left.trim_start_matches([' ', '\n', ',']).len();
                inside += skipped;
                left = &text[inside..];
                if left.is_empty() || left.starts_with('}') {
                    return inside + 1;
                }
                inside += expand(left, &path, paths).max(1);
                left = &text[inside..];
            }
        }
        let name: String = rest.chars().take_while(|&c| is_name(c)).collect();
        at += name.len();
        if name != "self" && !name.is_empty() {
            path.push(name);
        }
        match text[at..].strip_prefix("::") {
            Some(_) => at += 2,
            None => {
                paths.push(path);
                return at;
            }
        }
    }
}

pub(super) fn paths(module: &[String], text: &str) -> Vec<Module> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(start) {
            // Skips `some_crate::`, and the second part of `super::super::`.
            if text[..at].ends_with(is_name) || text[..at].ends_with("::") {
                continue;
            }
            let (mut base, mut rest) = match start {
                "crate::" => (Module::new(), &text[at + start.len()..]),
                _ => (module.to_vec(), &text[at..]),
            };
            while let Some(inner) = rest.strip_prefix("super::") {
                base.pop();
                rest = inner;
            }
            rest = rest.strip_prefix("self::").unwrap_or(rest);
            expand(rest, &base, &mut found);
        }
    }
    found
}

pub(super) fn reexports(module: &[String], text: &str) -> BTreeMap<String, Module> {
    let mut names = BTreeMap::new();
    for item in text.split(';') {
        let Some((before, path)) = item.rsplit_once("use ") else { continue };
        if !before.trim_start().starts_with("pub") && !before.contains("\npub") {
            continue;
        }
        let mut paths = Vec::new();
        let path = path.trim();
        let from = if path.starts_with("crate::") { Vec::new() } else { module.to_vec() };
        expand(path.strip_prefix("crate::").unwrap_or(path), &from, &mut paths);
        names.extend(paths.into_iter().filter_map(|path| Some((path.last()?.clone(), path))));
    }
    names
}
