//! The result of a sequence of edits. [`ManifestState::apply`] checks each item against the state: contradictory edits
//! are damage.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;

use super::edit::{EditItem, LogEnd, VersionEdit};
use super::keyspace_options::KeyspaceOptions;
use crate::batch::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::checksum::FileId;
use crate::codec::DecodeError;
use crate::expiry::buckets::Buckets;
use crate::filename::FileName;
use crate::key::SeqNo;
use crate::number_map::{NumberMap, NumberSet};
use crate::table_meta::TableMeta;
use crate::wal::{Boundary, EditMark};

pub(crate) const DEFAULT_NAME: &str = "default";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogState {
    pub(crate) file_id: FileId,
    pub(crate) predecessor: u64,
    pub(crate) end: Option<LogEnd>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TablePlace {
    pub(crate) level: u8,
    pub(crate) run: u64,
    pub(crate) meta: Arc<TableMeta>,
}

impl TablePlace {
    pub(crate) fn files(&self) -> impl Iterator<Item = FileName> {
        let filters = self.meta.filters.iter().filter_map(|filter| filter.file.map(FileName::Filter));
        filters.chain([FileName::Table(self.meta.number)])
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyspaceState {
    pub(crate) name: String,
    pub(crate) options: Bytes,
    pub(crate) flushed: SeqNo,
    pub(crate) tables: BTreeMap<u64, TablePlace>,
    pub(crate) buckets: Buckets,
}

impl KeyspaceState {
    /// A lower bound of the sequence numbers of visible entries in tables.
    pub(crate) fn oldest_visible(&self) -> Option<SeqNo> {
        let tables = self.tables.values().map(|place| &place.meta);
        let visible = tables.filter(|meta| meta.seqno_max >= self.buckets.horizon());
        visible.map(|meta| meta.seqno_min).min()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ManifestState {
    pub(crate) mark: EditMark,
    pub(crate) hash_seed: u64,
    pub(crate) next_file: u64,
    pub(crate) next_keyspace: KeyspaceId,
    pub(crate) last_seqno: SeqNo,
    pub(crate) log_floor: u64,
    pub(crate) logs: NumberMap<u64, LogState>,
    pub(crate) keyspaces: NumberMap<KeyspaceId, KeyspaceState>,
    pub(crate) names: HashMap<String, KeyspaceId>,
    pub(crate) store_ids: NumberSet<FileId>,
    /// May wrap: a manifest may state any length.
    pub(crate) table_bytes: u64,
}

impl ManifestState {
    /// After an error, the state must not be used.
    pub(crate) fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        edit.items.iter().try_for_each(|item| self.apply_item(item))
    }

    pub(crate) fn apply_item(&mut self, item: &EditItem) -> Result<(), String> {
        match item {
            EditItem::Base(mark) => self.mark = *mark,
            EditItem::HashSeed(seed) => self.hash_seed = *seed,
            EditItem::NextFile(number) => self.next_file = self.next_file.max(*number),
            EditItem::NextKeyspace(id) => self.next_keyspace = self.next_keyspace.max(*id),
            EditItem::LastSeqno(seqno) => self.last_seqno = self.last_seqno.max(*seqno),
            EditItem::LogCreated { number, file_id, predecessor } => {
                if self.logs.last_key_value().is_some_and(|(last, _)| last >= number) {
                    return Err(format!("log {number} is not newer than its predecessors"));
                }
                let log = LogState { file_id: *file_id, predecessor: *predecessor, end: None };
                self.logs.insert(*number, log);
            }
            EditItem::LogEnded { number, end } => self.end_log(*number, *end)?,
            EditItem::LogFloor(number) => {
                self.log_floor = self.log_floor.max(*number);
                while self.logs.first_key_value().is_some_and(|(log, _)| *log < self.log_floor) {
                    self.logs.pop_first();
                }
            }
            EditItem::KeyspaceCreated { id, name, options } => self.create_keyspace(*id, name, options)?,
            EditItem::KeyspaceDropped(id) => {
                let dropped = self.keyspaces.remove(id);
                let dropped = dropped.ok_or_else(|| format!("keyspace {id} is not known"))?;
                self.names.remove(&dropped.name);
                for place in dropped.tables.values() {
                    self.table_bytes = self.table_bytes.wrapping_sub(place.meta.len);
                }
            }
            EditItem::KeyspaceOptions { id, options } => {
                let keyspace = self.keyspace(*id)?;
                keyspace.options = options.clone();
                if KeyspaceOptions::decode(options).is_ok_and(|options| options.expiry().is_none()) {
                    keyspace.buckets.forget_boundaries();
                }
            }
            EditItem::Flushed { keyspace, seqno } => {
                let keyspace = self.keyspace(*keyspace)?;
                keyspace.flushed = keyspace.flushed.max(*seqno);
            }
            EditItem::TableAdded { keyspace, level, run, meta } => {
                let place = TablePlace { level: *level, run: *run, meta: Arc::clone(meta) };
                if self.keyspace(*keyspace)?.tables.insert(meta.number, place).is_some() {
                    return Err(format!("table {} is added twice", meta.number));
                }
                self.table_bytes = self.table_bytes.wrapping_add(meta.len);
            }
            EditItem::TableRemoved { keyspace, number } => {
                let removed = self.keyspace(*keyspace)?.tables.remove(number);
                let removed =
                    removed.ok_or_else(|| format!("table {number} is removed but was never added"))?;
                self.table_bytes = self.table_bytes.wrapping_sub(removed.meta.len);
            }
            EditItem::FiltersReplaced { keyspace, number, filters } => {
                let place = self.keyspace(*keyspace)?.tables.get_mut(number);
                let place =
                    place.ok_or_else(|| format!("table {number} gets filters but was never added"))?;
                place.meta = Arc::new(TableMeta { filters: filters.clone(), ..(*place.meta).clone() });
            }
            EditItem::StoreIds(ids) => self.store_ids.extend(ids.iter().copied()),
            EditItem::BucketBoundary { keyspace, boundary } => {
                self.keyspace(*keyspace)?.buckets.begin(*boundary)?
            }
            EditItem::Horizon { keyspace, seqno } => self.keyspace(*keyspace)?.buckets.raise(*seqno),
        }
        Ok(())
    }

    pub(super) fn let_go_by(&self, item: &EditItem) -> Vec<FileName> {
        let place = |keyspace, number| self.keyspaces.get(keyspace)?.tables.get(number);
        match item {
            EditItem::LogFloor(floor) => {
                self.logs.range(..floor).map(|(&number, _)| FileName::Log(number)).collect()
            }
            EditItem::KeyspaceDropped(id) => {
                let tables = self.keyspaces.get(id).into_iter().flat_map(|keyspace| keyspace.tables.values());
                tables.flat_map(TablePlace::files).collect()
            }
            EditItem::TableRemoved { keyspace, number }
            | EditItem::FiltersReplaced { keyspace, number, .. } => {
                place(keyspace, number).map(|place| place.files().collect()).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Skips known boundaries, and boundaries of keyspaces without buckets, which are older than a change of options.
    pub(crate) fn begin_buckets(&mut self, boundaries: impl IntoIterator<Item = (KeyspaceId, Boundary)>) {
        for (id, boundary) in boundaries {
            if let Some(keyspace) = self.keyspaces.get_mut(&id)
                && KeyspaceOptions::decode(&keyspace.options).is_ok_and(|options| options.ttl.is_some())
            {
                keyspace.buckets.follow(boundary);
            }
        }
    }

    fn end_log(&mut self, number: u64, end: LogEnd) -> Result<(), String> {
        let log = self.logs.get_mut(&number).ok_or_else(|| format!("log {number} is not known"))?;
        match log.end {
            Some(before) if before.is_cut || end.is_cut => Err(format!("log {number} ends twice")),
            _ => {
                log.end = Some(end);
                Ok(())
            }
        }
    }

    fn create_keyspace(&mut self, id: KeyspaceId, name: &str, options: &Bytes) -> Result<(), String> {
        if self.keyspaces.contains_key(&id) || self.names.insert(name.to_owned(), id).is_some() {
            return Err(format!("keyspace {id} ({name:?}) is created twice"));
        }
        self.next_keyspace = self.next_keyspace.max(id.checked_add(1).ok_or("keyspace ids are used up")?);
        let keyspace = KeyspaceState {
            name: name.to_owned(),
            options: options.clone(),
            flushed: 0,
            tables: BTreeMap::new(),
            buckets: Buckets::default(),
        };
        self.keyspaces.insert(id, keyspace);
        Ok(())
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState, String> {
        self.keyspaces.get_mut(&id).ok_or_else(|| format!("keyspace {id} is not known"))
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = DecodeError> + use<'_> {
        let default = self.keyspaces.get(&DEFAULT_KEYSPACE);
        let no_default = default.is_none_or(|keyspace| keyspace.name != DEFAULT_NAME);
        let no_default =
            no_default.then(|| DecodeError::corrupt(0, "keyspaces", "there is no default keyspace"));
        let options = self.keyspaces.values().filter_map(|keyspace| {
            let error = KeyspaceOptions::decode(&keyspace.options).err()?;
            Some(DecodeError { offset: 0, ..error })
        });
        let logs = self.logs.keys().zip(self.logs.iter().skip(1)).filter_map(|(before, (number, log))| {
            let predecessor = log.predecessor;
            let detail = format!("log {number} follows log {predecessor}, which the manifest does not know");
            (predecessor != *before).then(|| DecodeError::corrupt(0, "logs", detail))
        });
        no_default.into_iter().chain(options).chain(logs)
    }

    pub(crate) fn lacks(&self, keyspace: KeyspaceId, seqno: SeqNo) -> bool {
        self.keyspaces.get(&keyspace).is_some_and(|keyspace| seqno > keyspace.flushed)
    }

    pub(crate) fn snapshot(&self) -> VersionEdit {
        let mut items = vec![
            EditItem::Base(self.mark),
            EditItem::HashSeed(self.hash_seed),
            EditItem::NextFile(self.next_file),
            EditItem::NextKeyspace(self.next_keyspace),
            EditItem::LastSeqno(self.last_seqno),
            EditItem::LogFloor(self.log_floor),
        ];
        if !self.store_ids.is_empty() {
            items.push(EditItem::StoreIds(self.store_ids.iter().copied().collect()));
        }
        for (&number, log) in &self.logs {
            let (file_id, predecessor) = (log.file_id, log.predecessor);
            items.push(EditItem::LogCreated { number, file_id, predecessor });
            items.extend(log.end.map(|end| EditItem::LogEnded { number, end }));
        }
        for (&id, keyspace) in &self.keyspaces {
            let (name, options) = (keyspace.name.clone(), keyspace.options.clone());
            items.push(EditItem::KeyspaceCreated { id, name, options });
            items.push(EditItem::Flushed { keyspace: id, seqno: keyspace.flushed });
            items.extend(keyspace.tables.values().map(|place| EditItem::TableAdded {
                keyspace: id,
                level: place.level,
                run: place.run,
                meta: Arc::clone(&place.meta),
            }));
            let boundaries = keyspace.buckets.boundaries().iter();
            items.extend(boundaries.map(|&boundary| EditItem::BucketBoundary { keyspace: id, boundary }));
            let seqno = keyspace.buckets.horizon();
            if seqno > 0 {
                items.push(EditItem::Horizon { keyspace: id, seqno });
            }
        }
        VersionEdit::new(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::manifest::edit::tests::{all_items, filter, meta};

    fn table_added(number: u64) -> EditItem {
        EditItem::TableAdded {
            keyspace: 1,
            level: 0,
            run: number,
            meta: Arc::new(meta(number, "a", "b", 100)),
        }
    }

    fn state() -> ManifestState {
        let mut items = all_items();
        items.retain(|item| {
            !matches!(
                item,
                EditItem::KeyspaceDropped(_)
                    | EditItem::TableRemoved { .. }
                    | EditItem::LogEnded { end: LogEnd { is_cut: false, .. }, .. }
            )
        });
        let mut state = ManifestState::default();
        state.apply(&VersionEdit::new(items)).unwrap();
        state
    }

    #[test]
    fn a_snapshot_rebuilds_the_state() {
        let state = state();
        let mut again = ManifestState::default();
        again.apply(&state.snapshot()).unwrap();
        assert_eq!(again, state);
    }

    #[test]
    fn a_table_whose_filters_are_replaced_stays_where_and_what_it_is() {
        let mut changed = state();
        let filters = vec![filter(20)];
        let item = EditItem::FiltersReplaced { keyspace: 1, number: 8, filters: filters.clone() };
        changed.apply(&VersionEdit::new(vec![item])).unwrap();
        let (old, new) = (&state().keyspaces[&1].tables[&8], &changed.keyspaces[&1].tables[&8]);
        assert_eq!((new.level, new.run, &new.meta.filters), (old.level, old.run, &filters));
        assert_eq!(TableMeta { filters: old.meta.filters.clone(), ..(*new.meta).clone() }, *old.meta);
    }

    #[test]
    fn the_name_of_a_keyspace_that_was_dropped_can_be_given_again() {
        let mut state = state();
        let created = |id| EditItem::KeyspaceCreated { id, name: "users".into(), options: Bytes::new() };
        assert!(state.clone().apply_item(&created(2)).is_err());
        state.apply_item(&EditItem::KeyspaceDropped(1)).unwrap();
        state.apply_item(&created(2)).unwrap();
        assert!(state.apply_item(&created(3)).is_err());
    }

    #[test]
    fn very_many_items_take_time_in_proportion() {
        // An algorithm with quadratic cost would take minutes.
        let mut state = ManifestState::default();
        for id in 0..100_000 {
            let item = EditItem::KeyspaceCreated { id, name: format!("{id}"), options: Bytes::new() };
            state.apply_item(&item).unwrap();
        }
        for number in 1..50_000 {
            let log = EditItem::LogCreated { number, file_id: [5; 16], predecessor: number - 1 };
            state.apply_item(&log).unwrap();
        }
        (0..300_000).for_each(|_| state.apply_item(&EditItem::LogFloor(10)).unwrap());
        assert_eq!((state.logs.len(), state.keyspaces.len()), (50_000 - 10, 100_000));
    }

    #[test]
    fn boundaries_ascend_and_those_below_the_horizon_are_forgotten_but_for_the_newest() {
        let boundary =
            |time, seqno| EditItem::BucketBoundary { keyspace: 1, boundary: Boundary { time, seqno } };
        for (time, seqno) in [(1 << 41, 250), ((1 << 41) - 1, 251), (1 << 42, 249)] {
            assert!(state().apply(&VersionEdit::new(vec![boundary(time, seqno)])).is_err());
        }
        let mut state = state();
        let horizon = |seqno| EditItem::Horizon { keyspace: 1, seqno };
        let items = vec![boundary(1 << 41, 260), boundary(1 << 42, 270), horizon(270), horizon(1)];
        state.apply(&VersionEdit::new(items)).unwrap();
        let left = |state: &ManifestState| {
            let boundaries = state.keyspaces[&1].buckets.boundaries().iter();
            boundaries.map(|boundary| boundary.seqno).collect::<Vec<_>>()
        };
        assert_eq!((left(&state), state.keyspaces[&1].buckets.horizon()), (vec![260, 270], 270));
        state.apply(&VersionEdit::new(vec![horizon(271)])).unwrap();
        assert_eq!(left(&state), [270]);
        let options = KeyspaceOptions::new().ttl(Duration::from_secs(60));
        let with = |options: &KeyspaceOptions| {
            VersionEdit::new(vec![EditItem::KeyspaceOptions { id: 1, options: options.encode() }])
        };
        state.apply(&with(&options)).unwrap();
        assert_eq!(left(&state), [270]);
        state.apply(&with(&KeyspaceOptions::new())).unwrap();
        assert_eq!((left(&state), state.keyspaces[&1].buckets.horizon()), (vec![], 271));
    }

    #[test]
    fn edits_that_do_not_fit_are_refused() {
        for item in [
            EditItem::TableRemoved { keyspace: 1, number: 99 },
            EditItem::TableRemoved { keyspace: 2, number: 8 },
            EditItem::FiltersReplaced { keyspace: 1, number: 99, filters: Vec::new() },
            EditItem::FiltersReplaced { keyspace: 2, number: 8, filters: Vec::new() },
            table_added(8),
            EditItem::KeyspaceCreated { id: 1, name: "other".into(), options: Bytes::new() },
            EditItem::KeyspaceCreated { id: 2, name: "users".into(), options: Bytes::new() },
            EditItem::KeyspaceDropped(9),
            EditItem::LogCreated { number: 12, file_id: [0; 16], predecessor: 11 },
            EditItem::LogEnded { number: 11, end: LogEnd { len: 0, last_seqno: 0, is_cut: false } },
            EditItem::LogEnded { number: 11, end: LogEnd { len: 0, last_seqno: 0, is_cut: true } },
            EditItem::LogEnded { number: 12, end: LogEnd { len: 6000, last_seqno: 300, is_cut: false } },
            EditItem::LogEnded { number: 12, end: LogEnd { len: 5000, last_seqno: 300, is_cut: true } },
        ] {
            assert!(state().apply(&VersionEdit::new(vec![item.clone()])).is_err(), "{item:?}");
        }
    }
}
