//! Reads the shape of a store.

use std::io::ErrorKind::NotFound;
use std::path::{Path, PathBuf};

use super::shape::{BucketShape, ExpiryShape, KeyspaceShape, RunShape, Tree};
use super::tables::Shapes;
use crate::error::{Error, Result};
use crate::expiry::times::BucketTimes;
use crate::filename::{FileName, names_in};
use crate::fs::Fs;
use crate::inspect::output::FileDamage;
use crate::inspect::salvage::{Records, read_edits};
use crate::manifest::current::Current;
use crate::manifest::keyspace_options::KeyspaceOptions;
use crate::manifest::state::{KeyspaceState, ManifestState};

impl Tree {
    /// Reads the shape of the store in `dir`.
    ///
    /// # Errors
    ///
    /// [`Error::NoStore`], [`Error::Io`]. Damage: see [`Tree::damage`].
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
        let number = number.or_else(|| numbers(&names, |name| matches!(name, FileName::Manifest(_))).pop());
        let mut manifest = number.map(|number| FileName::Manifest(number).path(dir));
        if damage.is_empty() && current.is_none() {
            let detail = match number {
                Some(number) => format!("is missing; {} is the newest manifest", FileName::Manifest(number)),
                None => "is missing, and there is no manifest".into(),
            };
            damage.push((FileName::Current.path(dir), FileDamage::new(0, "CURRENT", detail)));
        }
        let is_missing = |path: &mut PathBuf| fs.open(path).is_err_and(|error| error.kind() == NotFound);
        if let Some(path) = manifest.take_if(is_missing) {
            damage.push((path, FileDamage::new(0, "manifest", "CURRENT names it, but it is missing")));
        }
        let mut state = ManifestState::default();
        if let Some(path) = &manifest {
            let (edits, lost) = read_edits(fs, path, current.as_ref(), Records::Short)?;
            damage.extend(lost.into_iter().map(|lost| (path.clone(), lost)));
            state = edits.state;
        }
        let mut reader = Shapes { fs, dir, damage };
        let unplaced = if state.keyspaces.is_empty() {
            let tables = numbers(&names, |name| matches!(name, FileName::Table(_)));
            tables.into_iter().filter_map(|number| reader.unplaced(number)).collect()
        } else {
            Vec::new()
        };
        if manifest.is_none() && unplaced.is_empty() {
            let why = "it has neither a CURRENT nor a manifest";
            return Err(Error::NoStore { dir: dir.to_path_buf(), why });
        }
        let logs = match manifest {
            Some(_) => state.logs.keys().copied().collect(),
            None => numbers(&names, |name| matches!(name, FileName::Log(_))),
        };
        let manifest = manifest.unwrap_or_else(|| FileName::Current.path(dir));
        Ok(Self { unplaced, ..Self::of_state(reader, manifest, &state, logs) })
    }

    pub(crate) fn of(fs: &dyn Fs, dir: &Path, manifest: PathBuf, state: &ManifestState) -> Self {
        let reader = Shapes { fs, dir, damage: Vec::new() };
        Self::of_state(reader, manifest, state, state.logs.keys().copied().collect())
    }

    fn of_state(mut reader: Shapes<'_>, manifest: PathBuf, state: &ManifestState, logs: Vec<u64>) -> Self {
        let keyspaces = state.keyspaces.iter().map(|(&id, keyspace)| KeyspaceShape {
            id,
            name: keyspace.name.clone(),
            flushed: keyspace.flushed,
            expiry: expiry(keyspace),
            runs: in_buckets(keyspace, reader.runs(keyspace.tables.values())),
        });
        let keyspaces = keyspaces.collect();
        let Shapes { fs, dir, damage } = reader;
        let len = |name: FileName| fs.open(&name.path(dir)).and_then(|file| file.len()).ok();
        let logs = logs.into_iter().map(|log| (log, len(FileName::Log(log)))).collect();
        let reserve = len(FileName::Reserve);
        Self { manifest, keyspaces, unplaced: Vec::new(), logs, reserve, damage }
    }
}

fn expiry(keyspace: &KeyspaceState) -> Option<ExpiryShape> {
    let (buckets, options) = (&keyspace.buckets, options_of(keyspace));
    let is_any = options.expiry().is_some() || buckets.horizon() > 0 || buckets.last().is_some();
    let next = options.expiry().zip(keyspace.oldest_visible());
    is_any.then(|| ExpiryShape {
        ttl: options.ttl,
        buckets: options.ttl_buckets,
        time_source: options.time_source,
        horizon: buckets.horizon(),
        next_expiry: next.and_then(|(expiry, oldest)| buckets.next_expiry(&expiry, oldest)),
    })
}

fn options_of(keyspace: &KeyspaceState) -> KeyspaceOptions {
    KeyspaceOptions::decode(&keyspace.options).unwrap_or_default()
}

fn in_buckets(keyspace: &KeyspaceState, mut runs: Vec<RunShape>) -> Vec<RunShape> {
    let (buckets, expiry) = (&keyspace.buckets, options_of(keyspace).expiry());
    for run in runs.iter_mut().filter(|_| buckets.last().is_some()) {
        let newest = run.tables.iter().map(|table| table.seqnos.1).max().unwrap_or(0);
        let BucketTimes { begins, ends, expires } = buckets.times(expiry.as_ref(), buckets.bucket_of(newest));
        run.bucket = Some(BucketShape { begins, ends, expires, is_hidden: newest < buckets.horizon() });
    }
    runs
}

fn numbers(names: &[FileName], wanted: fn(&FileName) -> bool) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        names.iter().filter(|name| wanted(name)).filter_map(|name| name.number()).collect();
    numbers.sort_unstable();
    numbers
}
