//! Finds the readable manifest, tables and logs. Read-only.
//!
//! A manifest is complete if it is readable to its end, has every promised edit, and no table in the directory
//! replaced one of its tables. Without `CURRENT`, the newest manifest that is readable to its end counts; if there is
//! none, the newest with a readable keyspace.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::losses::Losses;
use super::plan::{FoundTable, Plan, plan};
use super::report::ManifestCondition;
use crate::batch::KeyspaceId;
use crate::checksum::FileId;
use crate::db::open::recover::{list, strays};
use crate::db::state::open_report::IgnoredFile;
use crate::error::{Error, Result};
use crate::expiry::buckets::Buckets;
use crate::file_header::{FileHeader, HEADER_BYTES};
use crate::filename::FileName;
use crate::fs::{Fs, ReadFile};
use crate::inspect::{LogItem, ManifestRemains, TableFacts, as_errors, read_log, read_manifest};
use crate::key::SeqNo;
use crate::manifest::current::Current;
use crate::manifest::state::{ManifestState, TablePlace};
use crate::number_map::{NumberMap, NumberSet};
use crate::table_meta::TableMeta;
use crate::wal::Boundary;
use crate::wal::EditMark;

const HEADER_LEN: u64 = HEADER_BYTES as u64;

pub(super) struct Survey {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    pub(super) store_id: Option<FileId>,
    pub(super) manifest: ManifestCondition,
    pub(super) state: ManifestState,
    pub(super) metas: HashMap<u64, Arc<TableMeta>>,
    /// Newest flushed number of each keyspace before the damage, if edits follow it.
    flushed_before_damage: Option<NumberMap<KeyspaceId, SeqNo>>,
    told: NumberMap<KeyspaceId, String>,
    /// Log numbers, and whether the manifest names them.
    pub(super) logs: Vec<(u64, bool)>,
    pub(super) damage: Vec<Error>,
    pub(super) left_out: Vec<IgnoredFile>,
}

impl Survey {
    pub(super) fn of(fs: &Arc<dyn Fs>, dir: &std::path::Path) -> Result<(Self, Plan)> {
        let listing = list(&**fs, dir)?;
        let mut survey = Self {
            fs: Arc::clone(fs),
            dir: dir.to_path_buf(),
            store_id: None,
            manifest: ManifestCondition::Lost,
            state: ManifestState::default(),
            metas: HashMap::new(),
            flushed_before_damage: None,
            told: NumberMap::new(),
            logs: Vec::new(),
            damage: Vec::new(),
            left_out: listing.ignored.clone(),
        };
        let number = survey.read_manifest(&listing.ours)?;
        survey.store_id = survey.store_id.or_else(|| survey.any_store_id(&listing.ours));
        if survey.manifest == ManifestCondition::Lost && survey.store_id.is_none() {
            return Err(Error::NoStore { dir: dir.to_path_buf(), why: "it holds no file of a store" });
        }
        if survey.state.keyspaces.is_empty() {
            // The valid ids of a copy are unknown: most tables have the original's id, but the newest log has the
            // copy's own.
            let of_kind = |is_kind: fn(&FileName) -> bool| {
                listing.ours.iter().copied().filter(is_kind).collect::<Vec<_>>()
            };
            let tables = of_kind(|name| matches!(name, FileName::Table(_)));
            let logs = of_kind(|name| matches!(name, FileName::Log(_)));
            let newest_log = logs.last().and_then(|name| survey.header(*name)).map(|header| header.store_id);
            let ids = survey.any_store_id(&tables).into_iter().chain(newest_log);
            survey.state.store_ids.extend(ids);
        }
        let mut unnamed = strays(&listing, &survey.state, number.unwrap_or(0));
        unnamed.retain(|name| survey.is_of_store(*name));
        if survey.manifest == ManifestCondition::Whole && !survey.keeps_promises(&unnamed)? {
            survey.manifest = ManifestCondition::Cut;
        }
        let damaged = survey.damage.len();
        let mut tables = survey.find_tables(&unnamed);
        if survey.manifest == ManifestCondition::Whole && lacks_replaced(&tables) {
            survey.manifest = ManifestCondition::Cut;
            survey.damage.truncate(damaged);
            tables = survey.find_tables(&unnamed);
        }
        survey.find_logs(&unnamed);
        let next_keyspace = survey.state.next_keyspace;
        let keyspaces: NumberSet<KeyspaceId> = survey.state.keyspaces.keys().copied().collect();
        let is_dropped = |id: KeyspaceId| id < next_keyspace && !keyspaces.contains(&id);
        let plan = plan(survey.manifest, tables, &is_dropped);
        for &(number, why) in &plan.left_out {
            survey.left_out.push(IgnoredFile { name: FileName::Table(number).to_string(), why });
        }
        Ok((survey, plan))
    }

    pub(super) fn name(&self, id: KeyspaceId) -> Option<&str> {
        let named = self.state.keyspaces.get(&id).map(|keyspace| &keyspace.name[..]);
        named.or_else(|| self.told.get(&id).map(|name| &name[..]))
    }

    pub(super) fn buckets(&self, id: KeyspaceId, logged: &[(KeyspaceId, Boundary)]) -> Buckets {
        let keyspace = self.state.keyspaces.get(&id);
        let mut buckets = keyspace.map(|keyspace| keyspace.buckets.clone()).unwrap_or_default();
        let logged = logged.iter().filter(|(of, _)| *of == id);
        logged.for_each(|(_, boundary)| buckets.follow(*boundary));
        buckets
    }

    /// Entries up to this number are in tables. 0 without a manifest, because tables alone do not prove a completed
    /// flush.
    pub(super) fn flushed(&self, id: KeyspaceId) -> SeqNo {
        self.state.keyspaces.get(&id).map_or(0, |keyspace| keyspace.flushed)
    }

    pub(super) fn all_flushed(&self) -> SeqNo {
        self.state.keyspaces.values().map(|keyspace| keyspace.flushed).min().unwrap_or(0)
    }

    /// Values are certain as of this sequence number: no log or flush up to it has lost a write.
    ///
    /// If edits follow damage, only values flushed before it are certain: a flush and a merge with an empty result may
    /// be lost although no file is missing.
    pub(super) fn as_of(&self, id: KeyspaceId, losses: &Losses) -> SeqNo {
        if let Some(flushed) = &self.flushed_before_damage {
            return flushed.get(&id).copied().unwrap_or(0);
        }
        let newest = || self.state.keyspaces.values().map(|keyspace| keyspace.flushed).max().unwrap_or(0);
        losses.before_loss(self.flushed(id)).unwrap_or_else(|| losses.last().max(newest()))
    }

    pub(super) fn open_table(&self, number: u64) -> Option<(Arc<dyn ReadFile>, TableFacts)> {
        let path = FileName::Table(number).path(&self.dir);
        let file = self.fs.open(&path).ok()?;
        let facts = TableFacts::read(&file, &path, self.metas.get(&number).map(|meta| &**meta)).ok()?;
        Some((file, facts))
    }

    pub(super) fn open_log(&self, number: u64) -> Result<(Arc<dyn ReadFile>, PathBuf)> {
        let path = FileName::Log(number).path(&self.dir);
        let file = self.fs.open(&path).map_err(|error| Error::io("open", &path, error))?;
        Ok((file, path))
    }

    fn read_manifest(&mut self, names: &[FileName]) -> Result<Option<u64>> {
        let current = match Current::read(&*self.fs, &self.dir) {
            Ok(current) => current,
            Err(error) => {
                self.damage.push(error);
                None
            }
        };
        if let (None, true) = (&current, self.damage.is_empty()) {
            let path = FileName::Current.path(&self.dir);
            self.damage.push(Error::corruption(&path, 0, "CURRENT", "is missing"));
        }
        let named = current.as_ref().map(|current| current.manifest);
        let others = names.iter().rev().filter_map(|name| match name {
            FileName::Manifest(number) if Some(*number) != named => Some(*number),
            _ => None,
        });
        let mut best: Option<(u64, bool, ManifestRemains)> = None;
        for number in named.into_iter().chain(others) {
            let path = FileName::Manifest(number).path(&self.dir);
            let of_current = current.as_ref().filter(|current| current.manifest == number);
            let found = match read_manifest(&*self.fs, &path, of_current) {
                Ok(found) => found,
                Err(error) => {
                    self.damage.push(error);
                    continue;
                }
            };
            self.damage.extend(as_errors(&path, &found.damage));
            if found.state.keyspaces.is_empty() {
                continue;
            }
            let is_whole = found.damage.is_empty();
            if best.as_ref().is_none_or(|best| is_whole && !best.1) {
                let is_in_force = is_whole && named.is_none_or(|named| named == number);
                best = Some((number, is_in_force, found));
            }
            if is_whole {
                break;
            }
        }
        let Some((number, is_whole, found)) = best else { return Ok(named) };
        self.manifest = if is_whole { ManifestCondition::Whole } else { ManifestCondition::Cut };
        (self.state, self.flushed_before_damage) = (found.state, found.flushed_before_damage);
        let places = self.state.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
        self.metas = places.map(|place| (place.meta.number, Arc::clone(&place.meta))).collect();
        self.store_id = current.as_ref().map(|current| current.store_id);
        self.store_id = self.store_id.or_else(|| self.header(FileName::Manifest(number))?.store_id.into());
        Ok(Some(number))
    }

    fn header(&self, name: FileName) -> Option<FileHeader> {
        let mut bytes = [0; HEADER_BYTES];
        self.fs.open(&name.path(&self.dir)).ok()?.read_at(&mut bytes, 0).ok()?;
        FileHeader::decode(&bytes).ok()
    }

    fn any_store_id(&self, names: &[FileName]) -> Option<FileId> {
        let mut counts = NumberMap::<FileId, u64>::new();
        for header in names.iter().filter_map(|name| self.header(*name)) {
            *counts.get_or_insert_with(header.store_id, || 0) += 1;
        }
        counts.into_iter().max_by_key(|count| count.1).map(|count| count.0)
    }

    /// Includes the ids inherited by tables, filters and closed logs.
    fn is_own(&self, id: FileId) -> bool {
        Some(id) == self.store_id || self.state.store_ids.contains(&id)
    }

    fn is_of_store(&mut self, name: FileName) -> bool {
        let is_other = self.header(name).is_some_and(|header| !self.is_own(header.store_id));
        if is_other {
            self.left_out.push(IgnoredFile { name: name.to_string(), why: "it is of another store" });
        }
        !is_other
    }

    fn find_logs(&mut self, unnamed: &[FileName]) {
        self.logs = self.state.logs.keys().map(|&number| (number, true)).collect();
        let floor = self.state.log_floor;
        let is_whole = self.manifest == ManifestCondition::Whole;
        for name in unnamed {
            match name {
                FileName::Log(number) if !is_whole && *number >= floor && !self.is_empty_log(*number) => {
                    self.logs.push((*number, false));
                }
                FileName::Log(_) | FileName::Manifest(_) | FileName::Filter(_) => {
                    let why = "the manifest does not name it";
                    self.left_out.push(IgnoredFile { name: name.to_string(), why });
                }
                _ => {}
            }
        }
        self.logs.sort_unstable();
        // Logs created in advance prove nothing about the previous log.
        while let Some(&(number, _)) = self.logs.last()
            && self.state.logs.get(&number).is_some_and(|log| log.end.is_none())
            && self.is_empty_log(number)
            && self.header(FileName::Log(number)).is_some()
        {
            self.logs.pop();
        }
    }

    fn is_empty_log(&self, number: u64) -> bool {
        let len = self.open_log(number).map(|(file, _)| file.len());
        matches!(len, Ok(Ok(0..=HEADER_LEN)))
    }

    fn keeps_promises(&self, unnamed: &[FileName]) -> Result<bool> {
        let own = self.state.mark;
        let mut kept = true;
        let mut check = |promised: EditMark| {
            kept &= promised.count < own.count || promised == own;
        };
        let unnamed = unnamed.iter().filter_map(|name| match name {
            FileName::Log(number) => Some(*number),
            _ => None,
        });
        for number in self.state.logs.keys().copied().chain(unnamed) {
            let header = self.header(FileName::Log(number));
            if header.is_some_and(|header| Some(header.store_id) != self.store_id) {
                // Its promises refer to the original store.
                continue;
            }
            let Ok((file, path)) = self.open_log(number) else { continue };
            let _ = read_log(&*file, &path, None, &mut |item| {
                match item {
                    LogItem::Promise(mark) | LogItem::Close(_, mark) => check(mark),
                    LogItem::Batch(_) | LogItem::Boundaries(_) | LogItem::Lost(_) | LogItem::Torn(_) => {}
                }
                Ok(())
            });
        }
        Ok(kept)
    }

    fn find_tables(&mut self, unnamed: &[FileName]) -> Vec<FoundTable> {
        let mut tables = Vec::new();
        let needs_origins = self.manifest != ManifestCondition::Whole;
        let named: Vec<(KeyspaceId, TablePlace)> = self
            .state
            .keyspaces
            .iter()
            .flat_map(|(&id, keyspace)| keyspace.tables.values().map(move |place| (id, place.clone())))
            .collect();
        for (id, place) in named {
            let meta = &place.meta;
            let facts = self.facts(meta.number);
            tables.push(FoundTable {
                number: meta.number,
                keyspace: Some(id),
                place: Some((place.level, place.run)),
                is_readable: facts.is_some(),
                origin: facts.filter(|_| needs_origins).and_then(|facts| Some(*facts.properties?.origin?)),
                bounds: Some(meta.wide_bounds()),
                seqno_max: Some(meta.seqno_max),
                entries: Some(meta.entries),
                has_single_entries: meta.keys == meta.entries,
            });
        }
        for name in unnamed {
            let FileName::Table(number) = *name else { continue };
            let facts = self.facts(number);
            let properties = facts.as_ref().and_then(|facts| facts.properties.as_ref());
            let origin = properties.and_then(|own| own.origin.as_deref().cloned());
            if let Some(origin) = &origin {
                self.told.get_or_insert_with(origin.keyspace, || origin.name.clone());
            }
            tables.push(FoundTable {
                number,
                keyspace: origin.as_ref().map(|origin| origin.keyspace),
                place: None,
                is_readable: facts.is_some(),
                bounds: properties.map(|own| {
                    let bounds = own.to_meta(number, [0; 16], 0, 0);
                    (bounds.smallest, bounds.largest)
                }),
                seqno_max: properties.map(|own| own.seqno_max),
                entries: properties.map(|own| own.entries),
                has_single_entries: properties.is_some_and(|own| own.keys == own.entries),
                origin,
            });
        }
        tables
    }

    fn facts(&mut self, number: u64) -> Option<TableFacts> {
        let path = FileName::Table(number).path(&self.dir);
        let file = match self.fs.open(&path) {
            Ok(file) => file,
            Err(error) => {
                self.damage.push(Error::io("open", &path, error));
                return None;
            }
        };
        match TableFacts::read(&file, &path, self.metas.get(&number).map(|meta| &**meta)) {
            Ok(facts) if facts.store_id.is_none_or(|id| self.is_own(id)) => Some(facts),
            Ok(_) => {
                self.damage.push(Error::corruption(&path, 16, "store id", "the file is of another store"));
                None
            }
            Err(error) => {
                self.damage.push(error);
                None
            }
        }
    }
}

fn lacks_replaced(tables: &[FoundTable]) -> bool {
    let missing: NumberSet<u64> = tables
        .iter()
        .filter(|table| !table.is_readable && table.place.is_some())
        .map(|table| table.number)
        .collect();
    let strays =
        tables.iter().filter(|table| table.place.is_none()).filter_map(|table| table.origin.as_ref());
    !missing.is_empty()
        && strays
            .flat_map(|origin| origin.replaced.iter().chain(&origin.earlier))
            .any(|number| missing.contains(number))
}
