//! Opening, the replay: the batches of the logs go into memtables, and these into tables as they fill.
//!
//! Batches are replayed in the order of the logs. As in the commit leader (`write`), room is made in the
//! memtables for each batch, and its entries are applied. A full memtable is flushed at once, by the ordinary
//! job ([`Engine::write_memtable`]). So opening takes no more memory than writing did, however long the logs
//! are.
//!
//! The first edit of the new manifest publishes these tables, all of them together, with the number below
//! which no log is needed. Until `CURRENT` names that manifest nothing refers to them, and the old logs stay.
//! An open that is interrupted in between has changed nothing: the next one removes the tables and replays
//! the same batches.
//!
//! The batches that are left in memory are made durable in one of two ways. If the logs hold little, every
//! batch was also appended to the new log, and stays in memory; a replay of that log skips the entries that
//! are in tables. Otherwise the rest is flushed too.
//!
//! On a full disk there is no room for either. Then the old logs are kept ([`Carry::Keep`]), and only the
//! batches of the newest log of which nothing shows that they are on the disk are appended to the new log.
//! (They may be in the memory of the operating system only, for good, if a sync has failed.) The newest log
//! is cut before them. No memtable is flushed: a full one becomes immutable, and the background flushes it
//! when there is room. They were in memory together before, so with the same budget they fit again.
//!
//! A store that is opened for reading cannot write tables: it keeps everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::apply::{apply, own_batch};
use super::engine::Engine;
use super::recover::{Logged, Recovered, replay};
use super::tree::Tree;
use crate::batch::BatchReader;
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::state::{LogState, ManifestState};
use crate::memory::LeaseKind;
use crate::memtable::Memtable;
use crate::wal::{FramedWriter, READER_BYTES, RecordKind};

/// Up to this size batches are copied into the new log; above it all of them are flushed. A small store
/// copies less.
const CARRY_BYTES_MAX: u64 = 1 << 20;

/// At this size a memtable of a store that is opened for reading is made immutable; in tests at one that they reach.
const READ_ONLY_BYTES_MAX: usize = if cfg!(test) { 1 << 20 } else { Memtable::FLUSH_BYTES_MAX };

/// How the batches of the old logs stay durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Carry {
    /// In tables or in the new log. The old logs are not needed any more.
    Rewrite,
    /// In the old logs, as far as they are durable there for certain, and in the new log.
    Keep,
}

/// What a replay leaves for the store to go on with.
pub(super) struct Replayed {
    pub(super) log_number: u64,
    pub(super) log: FramedWriter,
    /// Lengths of the logs before it that are kept.
    pub(super) older: BTreeMap<u64, u64>,
    pub(super) manifest_number: u64,
}

impl Engine {
    /// Replays the logs into memory. Nothing is flushed, so memtables are as large as they may be: each is searched.
    pub(super) fn replay_for_reading(&self, recovered: &Recovered) -> Result<()> {
        let known = &recovered.manifest.state;
        replay(&*self.files.fs, &self.files.dir, recovered, &mut |&Logged { bytes, .. }| {
            let full = self.apply_lacking(known, bytes, self.lacking(known, bytes)?, 0)?;
            full.iter()
                .filter(|tree| tree.active_bytes() >= READ_ONLY_BYTES_MAX)
                .for_each(|full| full.seal());
            Ok(())
        })
    }

    /// Replays the logs, which stay, into memory. `false` if the memory for memtables is too small for that.
    pub(super) fn replay_if_it_fits(&self, recovered: &Recovered) -> Result<bool> {
        let known = &recovered.manifest.state;
        let _reading = self.context.memory.lease(LeaseKind::Tables, READER_BYTES);
        let mut fits = true;
        replay(&*self.files.fs, &self.files.dir, recovered, &mut |&Logged { bytes, log, .. }| {
            let trees = self.lacking(known, bytes)?;
            fits = fits && self.has_room(std::iter::once((bytes, &trees[..])));
            if fits {
                self.apply_lacking(known, bytes, trees, log)?.iter().for_each(|full| full.seal());
            }
            Ok(())
        })?;
        Ok(fits)
    }

    /// Replays the logs into memory and tables, durable in logs and tables, and describes all of it in the
    /// state of the new manifest.
    pub(super) fn replay_to_memtables(
        &self,
        recovered: &Recovered,
        state: &mut ManifestState,
        carry: Carry,
    ) -> Result<Replayed> {
        let newest = state.logs.keys().next_back().copied().unwrap_or(0);
        let log_number = self.files.new_number();
        let (mut writer, file_id) = self.files.create_log(log_number)?;
        // Where the newest log is cut, and the sequence number there.
        let mut cut = None;
        let is_certain =
            |batch: &Logged<'_>| batch.log != recovered.last_log || batch.end <= recovered.durable;
        let is_carried = carry == Carry::Keep
            || recovered.log_bytes <= CARRY_BYTES_MAX.min(self.options.memory_budget as u64 / 16);
        let reading = self.context.memory.lease(LeaseKind::Tables, READER_BYTES);
        let known = &recovered.manifest.state;
        replay(&*self.files.fs, &self.files.dir, recovered, &mut |batch| {
            let bytes = batch.bytes;
            let stays = carry == Carry::Keep && is_certain(batch);
            if stays && batch.log == recovered.last_log {
                cut = Some((batch.end, batch.last_seqno));
            }
            if is_carried && !stays {
                writer.append_record(RecordKind::Batch, bytes)?;
            }
            let log = if stays { batch.log } else { log_number };
            let trees = self.lacking(known, bytes)?;
            if carry == Carry::Keep {
                self.apply_lacking(known, bytes, trees, log)?.iter().for_each(|full| full.seal());
                return Ok(());
            }
            while !self.has_room(std::iter::once((bytes, &trees[..]))) {
                let Some(largest) = self.keyspaces.largest_filled() else { break };
                self.flush_into(state, &largest)?;
            }
            for full in self.apply_lacking(known, bytes, trees, log)? {
                self.flush_into(state, &full)?;
            }
            Ok(())
        })?;
        drop(reading);
        if is_carried {
            writer.sync()?;
        } else {
            while let Some(largest) = self.keyspaces.largest_filled() {
                self.flush_into(state, &largest)?;
            }
        }
        match carry {
            Carry::Rewrite => state.logs.clear(),
            Carry::Keep => keep_logs(state, recovered.last_log, cut)?,
        }
        // A power loss may have come before the edit that says where one ended.
        let len = |log: &LogState| log.end.map_or(0, |end| end.len);
        let older = state.logs.iter().map(|(&number, log)| (number, len(log))).collect();
        let predecessor = state.logs.keys().next_back().copied().unwrap_or(newest);
        let floor = state.logs.keys().next().copied().unwrap_or(log_number);
        let created = EditItem::LogCreated { number: log_number, file_id, predecessor };
        let items = vec![EditItem::LogFloor(floor), created];
        state.apply(&VersionEdit::new(items)).map_err(Error::invalid)?;
        let manifest_number = self.files.new_number();
        state.next_file = manifest_number + 1;
        Ok(Replayed { log_number, log: writer, older, manifest_number })
    }

    /// The trees that lack entries of a batch.
    fn lacking(&self, known: &ManifestState, bytes: &[u8]) -> Result<Vec<Arc<Tree>>> {
        let mut trees: Vec<Arc<Tree>> = Vec::new();
        for entry in BatchReader::open(bytes).map_err(own_batch)? {
            let entry = entry.map_err(own_batch)?;
            if known.lacks(entry.keyspace, entry.seqno) && !trees.iter().any(|tree| tree.id == entry.keyspace)
            {
                trees.extend(self.keyspaces.get(entry.keyspace));
            }
        }
        Ok(trees)
    }

    /// Applies those entries of a batch that these trees lack. The batch counts as part of this log from now
    /// on. Returns the trees whose memtables are full.
    fn apply_lacking(
        &self,
        known: &ManifestState,
        bytes: &[u8],
        trees: Vec<Arc<Tree>>,
        log: u64,
    ) -> Result<Vec<Arc<Tree>>> {
        apply(bytes, &trees, log, |entry| known.lacks(entry.keyspace, entry.seqno))?;
        Ok(self.keyspaces.full_among(std::iter::once(&trees[..])))
    }

    /// Flushes the memtable of a tree and describes the tables in the state of the new manifest.
    fn flush_into(&self, state: &mut ManifestState, tree: &Arc<Tree>) -> Result<()> {
        tree.seal();
        let Some(memtable) = tree.view().immutables.last().cloned() else { return Ok(()) };
        let change = self.write_memtable(tree, &tree.view().version, &memtable)?;
        self.files.sync_dir()?;
        state.apply(&VersionEdit::new(change.items())).map_err(Error::invalid)?;
        change.install();
        Ok(())
    }
}

/// Says in `state` where the newest log that was used ends, or takes it out if nothing of it is needed. Later
/// ones were never used.
fn keep_logs(state: &mut ManifestState, last: u64, cut: Option<(u64, SeqNo)>) -> Result<()> {
    state.logs.retain(|&number, log| number < last || number == last && (log.end.is_some() || cut.is_some()));
    match (state.logs.get(&last), cut) {
        (Some(log), Some((len, last_seqno))) if log.end.is_none() => {
            let cut = EditItem::LogCut { number: last, len, last_seqno };
            state.apply(&VersionEdit::new(vec![cut])).map_err(Error::invalid)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{CrashPolicy, MemFs};
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn a_store_opened_for_reading_makes_another_memtable_when_one_is_as_large_as_it_may_be() {
        let fs = MemFs::new();
        let options =
            || Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(64 << 20);
        let db = options().open("/db").unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::new().memtable_bytes(8 << 20)).unwrap();
        let key = |n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        (0..30_000).for_each(|n| keyspace.put(key(n), [n as u8; 100]).unwrap());
        // With less memory they are full earlier, and are not made immutable for that.
        let image = Arc::new(fs.crash(CrashPolicy::KeepAll));
        let reader = options().fs(image).memory_budget(4 << 20).read_only().open("/db").unwrap();
        let keyspace = reader.existing_keyspace("k").unwrap();
        let view = keyspace.tree.view();
        assert!((2..=4).contains(&view.immutables.len()), "{}", view.immutables.len());
        assert!((0..30_000).all(|n| keyspace.get(key(n)).unwrap().as_deref() == Some(&[n as u8; 100][..])));
        assert_eq!(keyspace.iter().count(), 30_000);
    }
}
