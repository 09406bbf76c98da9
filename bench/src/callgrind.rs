//! Counts instructions of all threads. The program runs itself twice under callgrind, with a small and a large amount
//! of work; the difference excludes start and end. Valgrind supports AVX2 but not AVX-512.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

use crate::Result;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Counter {
    Instructions,
    Misses,
}

impl Counter {
    fn option(self) -> &'static str {
        if self == Self::Misses { "--cache-sim=yes" } else { "--cache-sim=no" }
    }
}

/// Returns the instructions per unit of work: the difference of runs of `args` with `few` and `many` units. `None`
/// without valgrind, or if a run fails.
pub(crate) fn each(args: &[&str], few: u64, many: u64) -> Option<f64> {
    each_of(Counter::Instructions, args, few, many)
}

pub(crate) fn each_of(counter: Counter, args: &[&str], few: u64, many: u64) -> Option<f64> {
    let collected = |times| parse(counter, &run(counter, args, times, Path::new("/dev/null"))?);
    Some((collected(many)? - collected(few)?) / (many - few) as f64)
}

pub(crate) fn files(args: &[&str], few: u64, many: u64) -> Option<BTreeMap<String, f64>> {
    let [few_by_file, mut by_file] = [few, many].map(|times| {
        let dir = tempfile::tempdir().ok()?;
        let out = dir.path().join("callgrind.out");
        run(Counter::Instructions, args, times, &out)?;
        Some(by_file(&std::fs::read_to_string(out).ok()?))
    });
    let by_file = by_file.as_mut()?;
    for (file, counted) in few_by_file? {
        *by_file.entry(file).or_default() -= counted;
    }
    let each = |counted: &f64| counted / (many - few) as f64;
    Some(by_file.iter().map(|(file, counted)| (file.clone(), each(counted))).collect())
}

pub(crate) fn print_files(files: Option<BTreeMap<String, f64>>, items: u64) -> Result<()> {
    let files = files.ok_or("callgrind counted nothing; is valgrind installed?")?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("the package has no folder above it")?;
    let inside = |file: &str| {
        let file = Path::new(file).strip_prefix(root).ok()?.to_str()?.to_owned();
        (file.starts_with("src/") || file.starts_with("filter/src/")).then_some(file)
    };
    let mut ours = BTreeMap::new();
    for (file, counted) in files {
        let name = inside(&file).unwrap_or_else(|| "elsewhere".to_owned());
        *ours.entry(name).or_default() += counted / items as f64;
    }
    ours.retain(|_, counted| *counted >= 0.5);
    println!("  {} lines", ours.len());
    ours.into_iter().for_each(|(file, counted): (_, f64)| println!("  {counted:>8.1}  {file}"));
    Ok(())
}

fn by_file(profile: &str) -> BTreeMap<String, f64> {
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut by_file = BTreeMap::new();
    let (mut file, mut is_call) = ("", false);
    for line in profile.lines() {
        if let Some(name) = ["fl=", "fi=", "fe="].iter().find_map(|start| line.strip_prefix(start)) {
            let (id, name) = name.split_once(' ').unwrap_or((name, ""));
            file = if name.is_empty() { names.get(id).copied().unwrap_or(id) } else { name };
            names.insert(id, file);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let counted = line.split(' ').nth(1).and_then(|counted| counted.parse::<f64>().ok());
            if !std::mem::take(&mut is_call) {
                *by_file.entry(file.to_owned()).or_default() += counted.unwrap_or(0.0);
            }
        } else if let Some(name) = ["cfl=", "cfi="].iter().find_map(|start| line.strip_prefix(start))
            && let Some((id, name)) = name.split_once(' ')
        {
            names.insert(id, name);
        }
    }
    by_file
}

fn run(counter: Counter, args: &[&str], times: u64, out: &Path) -> Option<String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", counter.option()])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe().ok()?)
        .args(args)
        .arg(times.to_string())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        eprintln!("{text}");
        return None;
    }
    Some(text)
}

/// The first number counts instructions, the fifth and sixth first-level read and write misses.
fn parse(counter: Counter, text: &str) -> Option<f64> {
    let collected = text.lines().find_map(|line| line.split_once("Collected :"))?.1;
    let number = |at| collected.split_whitespace().nth(at)?.parse::<f64>().ok();
    match counter {
        Counter::Instructions => number(0),
        Counter::Misses => Some(number(4)? + number(5)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_among_what_valgrind_prints() {
        let text =
            "==7== Events    : Ir\n==7== Collected : 3318144\n==7== \n==7== I   refs:      3,318,144\n";
        assert_eq!(parse(Counter::Instructions, text), Some(3_318_144.0));
        assert_eq!(parse(Counter::Instructions, "==7== Events    : Ir\n"), None);
        assert_eq!(parse(Counter::Misses, text), None);
        let text = "==7== Collected : 9123 2210 1180 5 70 8 3 40 2\n";
        assert_eq!(parse(Counter::Misses, text), Some(78.0));
    }

    #[test]
    fn instructions_are_summed_by_file_without_those_of_calls() {
        let profile = "fl=(1) src/a.rs\nfn=(1) f\n10 5\n+1 2\nfi=(2) src/b.rs\n3 7\nfe=(1)\n12 1\ncfi=(3) src/c.rs\n\
                       cfn=(2) g\ncalls=1 4\n12 100\n\nfl=(3)\nfn=(2)\n4 90\n* 10\n";
        let files = by_file(profile).into_iter().collect::<Vec<_>>();
        let of = |(file, counted): &(&str, f64)| ((*file).to_owned(), *counted);
        let expected = [("src/a.rs", 8.0), ("src/b.rs", 7.0), ("src/c.rs", 100.0)];
        assert_eq!(files, expected.iter().map(of).collect::<Vec<_>>());
    }
}
