//! Reads a manifest past its damage.

use std::path::Path;

use crate::batch::KeyspaceId;
use crate::error::{Error, Result};
use crate::fs::{Fs, ReadFile};
use crate::inspect::file::{Head, Window};
use crate::inspect::framed::manifest::{self, Edits};
use crate::inspect::output::{Event, FileDamage, Kind, Out, Stop, View};
use crate::key::SeqNo;
use crate::manifest::current::Current;
use crate::manifest::state::ManifestState;
use crate::number_map::NumberMap;

pub(crate) struct ManifestRemains {
    pub(crate) state: ManifestState,
    /// The last sequence number in tables per keyspace before the damage; `None` unless later edits were applied.
    pub(crate) flushed_before_damage: Option<NumberMap<KeyspaceId, SeqNo>>,
    pub(crate) damage: Vec<FileDamage>,
}

/// Reads edits of any length. `current` names the manifest.
pub(crate) fn read_manifest(fs: &dyn Fs, path: &Path, current: Option<&Current>) -> Result<ManifestRemains> {
    let (edits, damage) = read_edits(fs, path, current, Records::All)?;
    let flushed_before_damage = edits.flushed_before_gap().cloned();
    Ok(ManifestRemains { state: edits.state, flushed_before_damage, damage })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::inspect) enum Records {
    Short,
    All,
}

pub(in crate::inspect) fn read_edits(
    fs: &dyn Fs,
    path: &Path,
    current: Option<&Current>,
    records: Records,
) -> Result<(Edits, Vec<FileDamage>)> {
    let file = fs.open(path).map_err(|source| Error::io("open", path, source))?;
    let mut damage = Vec::new();
    let edits = edits_of(&*file, current, &mut damage, records).map_err(|stop| stop.error(path))?;
    Ok((edits, damage))
}

fn edits_of(
    file: &dyn ReadFile,
    current: Option<&Current>,
    damage: &mut Vec<FileDamage>,
    records: Records,
) -> Result<Edits, Stop> {
    let mut window = Window::new(file)?;
    let mut nowhere = |_: &Event<'_>| Ok(());
    let mut out = Out::new(&mut nowhere, &View::new(), window.len());
    if records == Records::All {
        out = out.with_whole_records();
    }
    let mut lost = |offset, what, detail| damage.push(FileDamage::new(offset, what, detail));
    let Some(head) = Head::read(&mut window)?.filter(|head| head.kind() == Kind::Manifest) else {
        lost(0, "file magic", "it is no manifest");
        return Ok(Edits::default());
    };
    match (&head.decoded, current) {
        (Ok(header), Some(current)) if header.store_id != current.store_id => {
            lost(16, "store id", "differs from CURRENT");
        }
        (Ok(header), Some(current)) if header.file_id != current.manifest_id => {
            lost(32, "file id", "differs from CURRENT");
        }
        (Ok(_), _) => {}
        (Err(error), _) => damage.push(FileDamage::of(0, error)),
    }
    if head.is_newer() {
        return Ok(Edits::default());
    }
    let (edits, ending) = manifest::survey(&mut out, &mut window, &head)?;
    let at = ending.first_damage.unwrap_or(ending.good_end);
    if let Some(wrong) = &edits.wrong {
        damage.push(wrong.clone());
    } else if edits.state.keyspaces.is_empty() {
        damage.push(FileDamage::new(at, "manifest", "no edit that can be read makes a keyspace"));
    } else if ending.is_refused() {
        damage.push(FileDamage::new(at, "manifest", "an edit is lost here, and perhaps more behind it"));
    }
    Ok(edits)
}
