//! Opening, the replay: what the logs hold, back into memtables, and into tables as these fill.
//!
//! Batches come in the order of the logs, and each is treated as the commit leader treats one (`write`): the memtables
//! get room for it, its entries are applied, and a memtable that is full then is done with. What the leader leaves to
//! the background is done here at once: the memtable is flushed by the ordinary job ([`Engine::write_memtable`]).
//! So opening takes no more memory than writing did, however much there is in the logs.
//!
//! The tables are published by the first edit of the manifest to come, all of them together and with the floor under
//! which no log is needed. Until `CURRENT` names that manifest nothing refers to them, and the old logs stay. An open that is
//! interrupted in between has changed nothing: the next one removes the tables and replays the same batches.
//!
//! What is left in memory in the end is made durable in one of two ways. If the logs hold little, every
//! batch was also appended to the new log, and stays in memory; the entries of it that are in tables already are passed over when
//! that log is replayed, like any that were flushed. Otherwise the rest is flushed too.
//!
//! A store that is opened for reading cannot write tables: it keeps everything.

use std::sync::Arc;

use super::apply::{apply_parts, own_batch};
use super::engine::Engine;
use super::recover::{Recovered, replay};
use super::tree::Tree;
use crate::batch::BatchReader;
use crate::error::{Error, Result};
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::state::ManifestState;
use crate::memory::LeaseKind;
use crate::wal::{FramedWriter, READER_BYTES, RecordKind};

/// Up to this size batches are copied into the new log; above it all of them are flushed. A small store copies less.
const CARRY_BYTES_MAX: u64 = 1 << 20;

impl Engine {
    /// Brings what the logs hold into memory.
    pub(super) fn replay_for_reading(&self, recovered: &Recovered) -> Result<()> {
        let known = &recovered.manifest.state;
        replay(&*self.files.fs, &self.files.dir, recovered, &mut |bytes| {
            self.apply_lacking(known, bytes, self.lacking(known, bytes)?, 0).map(drop)
        })
    }

    /// Brings what the logs hold into memory and tables, durable in the new log and in these, and describes both in
    /// the state of the manifest to come. Gives the new log and the manifest's number.
    pub(super) fn replay_to_memtables(
        &self,
        recovered: &Recovered,
        state: &mut ManifestState,
        log_number: u64,
    ) -> Result<(FramedWriter, u64)> {
        let predecessor = state.logs.keys().next_back().copied().unwrap_or(0);
        let (mut writer, file_id) = self.files.create_log(log_number)?;
        let is_carried = recovered.log_bytes <= CARRY_BYTES_MAX.min(self.options.memory_budget as u64 / 16);
        let reading = self.context.memory.lease(LeaseKind::Tables, READER_BYTES);
        let known = &recovered.manifest.state;
        replay(&*self.files.fs, &self.files.dir, recovered, &mut |bytes| {
            if is_carried {
                writer.append_record(RecordKind::Batch, bytes)?;
            }
            let trees = self.lacking(known, bytes)?;
            while !self.has_room(&[(bytes, &trees)]) {
                let Some(largest) = self.keyspaces.largest_filled() else { break };
                self.flush_into(state, &largest)?;
            }
            for full in self.apply_lacking(known, bytes, trees, log_number)? {
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
        let created = EditItem::LogCreated { number: log_number, file_id, predecessor };
        let items = vec![EditItem::LogFloor(log_number), created];
        state.apply(&VersionEdit::new(items)).map_err(Error::invalid)?;
        let manifest_number = self.files.new_number();
        state.next_file = manifest_number + 1;
        Ok((writer, manifest_number))
    }

    /// The trees that lack some of a batch of the logs.
    fn lacking(&self, known: &ManifestState, bytes: &[u8]) -> Result<Vec<Arc<Tree>>> {
        let all = self.keyspaces.load();
        let mut trees: Vec<Arc<Tree>> = Vec::new();
        for entry in BatchReader::open(bytes).map_err(own_batch)? {
            let entry = entry.map_err(own_batch)?;
            if known.lacks(entry.keyspace, entry.seqno) && !trees.iter().any(|tree| tree.id == entry.keyspace)
            {
                trees.extend(all.get(&entry.keyspace).cloned());
            }
        }
        Ok(trees)
    }

    /// Applies what these trees lack of a batch, which is in this log from now on. Gives those whose memtables are full.
    fn apply_lacking(
        &self,
        known: &ManifestState,
        bytes: &[u8],
        trees: Vec<Arc<Tree>>,
        log: u64,
    ) -> Result<Vec<Arc<Tree>>> {
        apply_parts(bytes, &trees, log, |entry| known.lacks(entry.keyspace, entry.seqno))?;
        Ok(self.keyspaces.full_among(trees, &self.context.memory))
    }

    /// Flushes the memtable of a tree, into the state of the manifest to come.
    fn flush_into(&self, state: &mut ManifestState, tree: &Arc<Tree>) -> Result<()> {
        tree.seal();
        tree.count_active_bytes();
        let Some(memtable) = tree.view().immutables.last().cloned() else { return Ok(()) };
        let change = self.write_memtable(tree, &memtable)?;
        state.apply(&VersionEdit::new(change.items())).map_err(Error::invalid)?;
        change.install();
        Ok(())
    }
}
