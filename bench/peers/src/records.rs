use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::counts::Counts;
use crate::machine;
use crate::names::EngineName;
use crate::order::{Outcome, Sizes};
use crate::pages::Page;

/// A run is disturbed if other processes use more than this share of the machine, including writing back a fill.
pub(crate) const OTHERS_MAX: f64 = 0.1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Record {
    Start(Start),
    Run { row: String, engine: EngineName, round: usize, outcome: Outcome },
    Counts { row: String, engine: EngineName, counts: Counts },
    End { load: f64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) page: Page,
    pub(crate) machine: String,
    pub(crate) load: f64,
    pub(crate) versions: String,
    pub(crate) has_rocksdb: bool,
    pub(crate) target: String,
    pub(crate) sizes: Sizes,
    pub(crate) rounds: usize,
}

impl Start {
    pub(crate) fn now(page: Page, sizes: &Sizes, rounds: usize) -> Self {
        Self {
            page,
            machine: machine::describe(),
            load: machine::load(),
            versions: versions(),
            has_rocksdb: cfg!(feature = "rocksdb"),
            target: if cfg!(target_feature = "avx2") { "Haswell (AVX2)" } else { "the oldest x86-64" }.into(),
            sizes: sizes.clone(),
            rounds,
        }
    }

    pub(crate) fn needs(&self, engine: EngineName) -> bool {
        self.page != Page::Short || self.has_rocksdb || !engine.is_rocksdb()
    }
}

fn versions() -> String {
    let lock = include_str!("../Cargo.lock");
    let names = ["sievedb", "fjall", "lsm-tree", "rocksdb", "librocksdb-sys", "surrealkv", "redb"];
    let of = |name: &str| {
        let after = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?.1;
        Some(format!("{name} {}", after.split('"').next()?))
    };
    let mut versions: Vec<_> = names.into_iter().filter_map(of).collect();
    if let Some(commit) = commit() {
        versions[0].push_str(&format!(" ({commit})"));
    }
    versions.join(", ")
}

fn commit() -> Option<String> {
    let dir = env!("CARGO_MANIFEST_DIR");
    let output =
        std::process::Command::new("git").args(["-C", dir, "describe", "--always", "--dirty"]).output();
    let commit = String::from_utf8(output.ok()?.stdout).ok()?;
    Some(commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}

impl Record {
    pub(crate) fn read(file: &Path) -> Result<Vec<Self>> {
        std::fs::read_to_string(file)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_all_engines_are_known() {
        let versions = versions();
        assert_eq!(versions.split(", ").count(), 7, "{versions}");
    }
}
