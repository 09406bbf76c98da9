//! The shape of a store: keyspaces, levels, runs, tables and their filters, as the manifest in force has
//! them.
//!
//! Read from `CURRENT`, the manifest, and the first bytes of filters; no table is opened, no log replayed,
//! nothing locked. Where the manifest is damaged the shape is that of the edits that can be read, and the
//! damage is reported; if they make no keyspace, the tables in the directory describe themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::event::FileDamage;
use super::head::Head;
use super::manifest::{self, Edits};
use super::out::{Out, Stop};
use super::shapes::Shapes;
use super::view::View;
use super::window::Window;
use crate::batch::KeyspaceId;
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::filename::{FileName, names_in};
use crate::filter::Kind;
use crate::fs::Fs;
use crate::key::SeqNo;
use crate::manifest::current::Current;
use crate::manifest::state::ManifestState;

/// A store at a glance.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Tree {
    /// The manifest that it was read from; `CURRENT` if there is none.
    pub manifest: PathBuf,
    /// In the order of their ids.
    pub keyspaces: Vec<KeyspaceShape>,
    /// If no keyspace can be read from the manifest: all tables in the directory, as each describes itself.
    pub unplaced: Vec<TableShape>,
    /// The logs that the manifest names, or all if there is none: numbers, and lengths of their files if they
    /// are there.
    pub logs: Vec<(u64, Option<u64>)>,
    /// What is not as it should be, and the file that it is in.
    pub damage: Vec<(PathBuf, FileDamage)>,
}

/// The tree of a keyspace.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyspaceShape {
    /// Its number in the store.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// All entries up to this sequence number are in tables.
    pub flushed: u64,
    /// Its runs, in the order in which a lookup asks them: the newest first.
    pub runs: Vec<RunShape>,
}

/// Tables that do not overlap.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunShape {
    /// From 0, the newest, down.
    pub level: u8,
    /// Its number; on level 0 the newest run has the largest.
    pub run: u64,
    /// In the order of their keys.
    pub tables: Vec<TableShape>,
}

/// A table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TableShape {
    /// Number of its file.
    pub number: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Smallest user key; of a long one the first 1024 bytes.
    pub smallest: Vec<u8>,
    /// Largest user key; of a long one the first 1024 bytes.
    pub largest: Vec<u8>,
    /// Smallest and largest sequence number.
    pub seqnos: (u64, u64),
    /// Its filters.
    pub filters: Vec<FilterShape>,
    /// What the table says of its keyspace and of the tables that it replaced; only of a table that the
    /// manifest does not name, and `None` if it says nothing.
    pub origin: Option<OriginShape>,
}

/// Where the entries of a table come from, by its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OriginShape {
    /// Number of its keyspace.
    pub keyspace: u32,
    /// Name of its keyspace.
    pub name: String,
    /// Numbers of the tables that it replaced, in its range of keys.
    pub replaced: Vec<u64>,
}

/// A filter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FilterShape {
    /// Number of the file beside the table that it is in; `None` if it is in the table.
    pub file: Option<u64>,
    /// Length of the block in bytes.
    pub bytes: u64,
    /// What its header says: kind, and predicted false-positive rate. `None` if the header cannot be used.
    pub found: Option<(Kind, f64)>,
}

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

/// What is left of a manifest.
pub(crate) struct ManifestRemains {
    /// What the edits amount to that can be read.
    pub(crate) state: ManifestState,
    /// If edits behind damage are among them: by keyspace, the sequence number up to which all entries were in
    /// tables before the damage.
    pub(crate) flushed_before_damage: Option<BTreeMap<KeyspaceId, SeqNo>>,
    pub(crate) damage: Vec<FileDamage>,
}

/// Reads all edits of a manifest that can be read, however long they are. `current` is the file that names
/// it.
pub(crate) fn read_manifest(fs: &dyn Fs, path: &Path, current: Option<&Current>) -> Result<ManifestRemains> {
    let mut damage = Vec::new();
    let edits = read_edits(fs, path, current, &mut damage, Records::All)?;
    let flushed_before_damage = edits.flushed_before_gap().cloned();
    let damage = damage.into_iter().map(|(_, damage)| damage).collect();
    Ok(ManifestRemains { state: edits.state, flushed_before_damage, damage })
}

/// Which edits are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Records {
    /// Those that take little memory.
    Short,
    All,
}

/// The edits of the manifest that can be read.
fn read_edits(
    fs: &dyn Fs,
    path: &Path,
    current: Option<&Current>,
    damage: &mut Vec<(PathBuf, FileDamage)>,
    records: Records,
) -> Result<Edits> {
    let file = fs.open(path).map_err(|source| Error::io("open", path, source))?;
    let stopped = |stop| match stop {
        Stop::Read { source, .. } | Stop::Sink(source) => Error::io("read", path, source),
    };
    let mut window = Window::new(&*file).map_err(stopped)?;
    let mut nowhere = |_: &super::event::Event<'_>| Ok(());
    let view = View::new();
    let mut out = Out::new(&mut nowhere, &view, window.len());
    if records == Records::All {
        out = out.with_whole_records();
    }
    let mut lost = |found: FileDamage| damage.push((path.to_path_buf(), found));
    let head =
        Head::read(&mut window).map_err(stopped)?.filter(|head| head.kind() == super::event::Kind::Manifest);
    let Some(head) = head else {
        lost(FileDamage::of(0, &DecodeError::corrupt(0, "file magic", "it is no manifest")));
        return Ok(Edits::default());
    };
    match (&head.decoded, current) {
        (Err(error), _) => lost(FileDamage::of(0, error)),
        (Ok(header), Some(current)) if header.store_id != current.store_id => {
            lost(FileDamage::of(16, &DecodeError::corrupt(0, "store id", "is not that of CURRENT")));
        }
        (Ok(header), Some(current)) if header.file_id != current.manifest_id => {
            lost(FileDamage::of(
                32,
                &DecodeError::corrupt(0, "file id", "is not the one that CURRENT names"),
            ));
        }
        _ => {}
    }
    if head.is_newer() {
        return Ok(Edits::default());
    }
    let (edits, ending) = manifest::survey(&mut out, &mut window, &head).map_err(stopped)?;
    let at_damage =
        |detail| DecodeError::corrupt(ending.first_damage.unwrap_or(ending.good_end), "manifest", detail);
    if let Some(wrong) = &edits.wrong {
        lost(wrong.clone());
    } else if edits.state.keyspaces.is_empty() {
        lost(FileDamage::of(0, &at_damage("no edit that can be read makes a keyspace")));
    } else if ending.is_refused() {
        lost(FileDamage::of(0, &at_damage("an edit is lost here, and perhaps more behind it")));
    }
    Ok(edits)
}

impl RunShape {
    /// Distinct user keys of all its tables.
    #[must_use]
    pub fn keys(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.keys))
    }

    /// Bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tables.iter().fold(0, |sum, table| sum.saturating_add(table.bytes))
    }

    /// Bytes of its filters.
    #[must_use]
    pub fn filter_bytes(&self) -> u64 {
        let filters = self.tables.iter().flat_map(|table| &table.filters);
        filters.fold(0, |sum, filter| sum.saturating_add(filter.bytes))
    }

    /// The share of absent keys in its range that its filters do not recognise: the mean of its tables by
    /// their keys. A table without a usable filter counts 1.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let rate = |table: &TableShape| table.rate() * table.keys as f64;
        self.tables.iter().map(rate).sum::<f64>() / self.keys().max(1) as f64
    }
}

impl TableShape {
    /// The predicted rate of the filter that a lookup asks; 1 without one.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.filters.iter().find_map(|filter| filter.found).map_or(1.0, |found| found.1)
    }
}
