//! Reads the shape of a store.

use std::path::{Path, PathBuf};

use super::shape::{KeyspaceShape, Tree};
use super::tables::Shapes;
use crate::error::{Error, Result};
use crate::filename::{FileName, names_in};
use crate::fs::Fs;
use crate::inspect::output::FileDamage;
use crate::inspect::salvage::{Records, read_edits};
use crate::manifest::current::Current;

impl Tree {
    /// Reads the shape of the store in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`] if there is none, [`Error::Io`]. Damage is no error, and is in [`Tree::damage`].
    pub fn read(fs: &dyn Fs, dir: &Path) -> Result<Self> {
        let mut damage = Vec::new();
        let names = names_in(fs, dir)?;
        let names: Vec<_> = names.iter().filter_map(|name| FileName::parse(name.to_str()?)).collect();
        let current = match Current::read(fs, dir) {
            Ok(current) => current,
            Err(Error::Corruption { offset, what, detail, .. }) => {
                let damaged = FileDamage::new(offset, what, detail);
                damage.push((FileName::Current.path(dir), damaged));
                None
            }
            Err(error) => return Err(error),
        };
        let number = current.as_ref().map(|current| current.manifest);
        let Some(number) = number.or_else(|| newest_manifest(&names)) else {
            return Self::without_manifest(fs, dir, &names, damage);
        };
        let manifest = FileName::Manifest(number).path(dir);
        if damage.is_empty() && current.is_none() {
            let detail = format!("is missing; {} is the newest manifest", FileName::Manifest(number));
            let lost = FileDamage::new(0, "CURRENT", detail);
            damage.push((FileName::Current.path(dir), lost));
        }
        if fs.open(&manifest).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            damage.push((manifest, FileDamage::new(0, "manifest", "CURRENT names it, but it is missing")));
            return Self::without_manifest(fs, dir, &names, damage);
        }
        let state = read_edits(fs, &manifest, current.as_ref(), &mut damage, Records::Short)?.state;
        let mut reader = Shapes { fs, dir, damage };
        let unplaced = if state.keyspaces.is_empty() { reader.unplaced(&names) } else { Vec::new() };
        let keyspaces = state
            .keyspaces
            .iter()
            .map(|(&id, keyspace)| KeyspaceShape {
                id,
                name: keyspace.name.clone(),
                flushed: keyspace.flushed,
                runs: reader.runs(keyspace.tables.values()),
            })
            .collect();
        let len = |path: &Path| fs.open(path).and_then(|file| file.len()).ok();
        let logs = state.logs.keys().map(|&log| (log, len(&FileName::Log(log).path(dir)))).collect();
        Ok(Self { manifest, keyspaces, unplaced, logs, damage: reader.damage })
    }

    /// The tables of a store without a manifest, as each describes itself.
    fn without_manifest(
        fs: &dyn Fs,
        dir: &Path,
        names: &[FileName],
        mut damage: Vec<(PathBuf, FileDamage)>,
    ) -> Result<Self> {
        let manifest = FileName::Current.path(dir);
        if damage.is_empty() {
            let lost = FileDamage::new(0, "CURRENT", "is missing, and there is no manifest");
            damage.push((manifest.clone(), lost));
        }
        let mut reader = Shapes { fs, dir, damage };
        let unplaced = reader.unplaced(names);
        if unplaced.is_empty() {
            let why = "it has neither a CURRENT nor a manifest";
            return Err(Error::NoStore { dir: dir.to_path_buf(), why });
        }
        let mut numbers: Vec<u64> = names
            .iter()
            .filter(|name| matches!(name, FileName::Log(_)))
            .filter_map(|name| name.number())
            .collect();
        numbers.sort_unstable();
        let len = |log| fs.open(&FileName::Log(log).path(dir)).and_then(|file| file.len()).ok();
        let logs = numbers.into_iter().map(|log| (log, len(log))).collect();
        Ok(Self { manifest, keyspaces: Vec::new(), unplaced, logs, damage: reader.damage })
    }
}

/// The manifest with the largest number.
fn newest_manifest(names: &[FileName]) -> Option<u64> {
    let manifests = names.iter().filter(|name| matches!(name, FileName::Manifest(_)));
    manifests.filter_map(|name| name.number()).max()
}
