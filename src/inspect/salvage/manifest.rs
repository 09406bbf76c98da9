//! Reads a manifest past its damage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::batch::KeyspaceId;
use crate::codec::DecodeError;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inspect::file::{Head, Window};
use crate::inspect::framed::manifest::{self, Edits};
use crate::inspect::output::{Event, FileDamage, Kind, Out, Stop, View};
use crate::key::SeqNo;
use crate::manifest::current::Current;
use crate::manifest::state::ManifestState;

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
pub(in crate::inspect) enum Records {
    /// Those that take little memory.
    Short,
    All,
}

/// The edits of the manifest that can be read.
pub(in crate::inspect) fn read_edits(
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
    let mut nowhere = |_: &Event<'_>| Ok(());
    let view = View::new();
    let mut out = Out::new(&mut nowhere, &view, window.len());
    if records == Records::All {
        out = out.with_whole_records();
    }
    let mut lost = |found: FileDamage| damage.push((path.to_path_buf(), found));
    let head = Head::read(&mut window).map_err(stopped)?.filter(|head| head.kind() == Kind::Manifest);
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
