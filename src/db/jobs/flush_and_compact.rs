//! Flush and compaction jobs.
//!
//! Both merge their input into new tables and publish one edit. New tables are opened first, so that no unreadable
//! table becomes part of the tree.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::compaction::filters::Output;
use crate::compaction::table_origin::{InputTable, Lineage};
use crate::compaction::task::Task;
use crate::db::build::tables::{MergeWork, lineage_of};
use crate::db::engine::Engine;
use crate::db::latencies::Call;
use crate::db::queues::retry::Work;
use crate::db::read::sources::Tables;
use crate::db::state::keyspace::change::{Change, TreeChange};
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree};
use crate::db::state::progress::Progress;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::iter::InternalIterator;
use crate::merge::{MergeIter, RunIter};
use crate::spans::RangeDelete;
use crate::version::{TableHandle, Version};

#[derive(Debug)]
pub(in crate::db) enum JobError {
    /// A table is unreadable, or a filter cannot be built. Nothing has changed, and the store remains usable.
    Table(Error),
    Store(Error),
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    pub(super) fn fail_job(&self, error: JobError) -> Error {
        match error {
            JobError::Table(error) => error,
            JobError::Store(error) => self.fail_if_final(error),
        }
    }

    pub(super) fn check_job(&self, tree: &Tree) -> Result<()> {
        self.lifecycle.check_not_failed()?;
        if self.background.is_stopping() {
            return Err(Error::Closed);
        }
        tree.check_alive()
    }

    /// Writes the oldest memtables of these trees with one edit; skips dropped keyspaces. If a later memtable fails,
    /// or writers of a written one are slowed, the remaining memtables are left to other jobs.
    pub(super) fn flush_memtables(&self, memtables: &[(Arc<Tree>, Arc<LoggedMemtable>)]) -> Result<()> {
        let mut changes = Vec::with_capacity(memtables.len());
        for (tree, memtable) in memtables.iter().filter(|(tree, _)| tree.is_alive()) {
            match self.write_memtable(tree, &tree.view().version, memtable) {
                Ok(change) => changes.push(change),
                Err(error) if changes.is_empty() => return Err(error),
                Err(error) => {
                    self.fail_or_put_off(Work::Flush(tree.id), error);
                    break;
                }
            }
            if self.is_awaited(&changes) {
                break;
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let log_floor = self.publish_or_remove(changes)?;
        self.remove_old_logs(log_floor);
        Ok(())
    }

    fn is_awaited(&self, flushes: &[TreeChange]) -> bool {
        self.background.is_stopping()
            || self.lifecycle.is_suspended()
            || flushes.iter().any(|flush| flush.tree.view_ref().immutables.len() > 1)
    }

    pub(in crate::db) fn compact(&self, tree: &Arc<Tree>, task: &Task) -> Result<(), JobError> {
        self.compact_as(tree, task, &task_output(task), None)
    }

    /// Filters are planned for `output`, of which the task may be a part.
    pub(super) fn compact_as(
        &self,
        tree: &Arc<Tree>,
        task: &Task,
        output: &Output,
        progress: Option<&Progress>,
    ) -> Result<(), JobError> {
        if task.trivial_move {
            let moved = if task.drops() { &[][..] } else { &task.inputs };
            let added = moved.iter().map(|(_, table)| (task.output_level, 0, Arc::clone(table))).collect();
            if !task.drops() {
                self.counters.trivial_moves.fetch_add(1, Ordering::Relaxed);
            }
            let removed = task.inputs.clone();
            let change = TreeChange { tree: Arc::clone(tree), removed, added, flushed: None };
            self.publish(Vec::new(), Change::Trees(vec![change]))?;
            return Ok(());
        }
        self.latencies.time(Call::Compaction, || self.rewrite(tree, task, output, progress))
    }

    fn rewrite(
        &self,
        tree: &Arc<Tree>,
        task: &Task,
        output: &Output,
        progress: Option<&Progress>,
    ) -> Result<(), JobError> {
        let view = tree.view();
        let input = || -> Result<Box<dyn InternalIterator>> {
            Ok(Box::new(MergeIter::new(task_sources(&view.version, task))))
        };
        let check = |bytes| {
            self.check_job(tree)?;
            progress.map_or(Ok(()), |progress| progress.add_and_check(bytes))
        };
        let (version, level) = (&view.version, task.output_level);
        let merged = task_lineage(tree, task).and_then(|lineage| {
            let (inputs, cuts) = (&task.numbers(), &self.cuts(tree, task));
            let range_deletes = task_range_deletes(task)?;
            let work = MergeWork { version, inputs, level, cuts, output, lineage: &lineage, range_deletes };
            self.merge_into(tree, work, &input, &check)
        });
        let added = match merged {
            Ok(added) => added,
            Err(error) => return Err(self.set_aside(tree, task, error)),
        };
        let bytes: u64 = added.iter().map(|table| table.meta.len).sum();
        let mut run = 0;
        if task.output_level == 0 {
            run = version.newest_run(&task.numbers());
            let since = task.inputs.iter().map(|(_, table)| table.since()).min();
            added.iter().for_each(|table| table.set_since(since.unwrap_or_default()));
        }
        let change = TreeChange {
            tree: Arc::clone(tree),
            removed: task.inputs.clone(),
            added: added.into_iter().map(|table| (task.output_level, run, table)).collect(),
            flushed: None,
        };
        let outputs = change.added.len();
        self.publish_or_remove(vec![change])?;
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.counters.compacted_bytes.fetch_add(bytes, Ordering::Relaxed);
        let (inputs, level) = (task.inputs.len(), task.output_level);
        tracing::debug!(keyspace = tree.name, inputs, outputs, bytes, level, "compacted");
        Ok(())
    }

    fn set_aside(&self, tree: &Tree, task: &Task, error: Error) -> JobError {
        if !matches!(error, Error::Corruption { .. } | Error::Unsupported { .. }) {
            return JobError::Store(error);
        }
        let is_about = |number| error.file() == Some(&FileName::Table(number).path(&self.files.dir));
        let Some((level, table)) = task.inputs.iter().find(|(_, table)| is_about(table.meta.number)) else {
            return JobError::Store(error);
        };
        table.set_aside(error.clone());
        self.counters.set_aside.fetch_add(1, Ordering::Relaxed);
        let number = table.meta.number;
        tracing::error!(keyspace = tree.name, table = number, level, %error, "compactions skip an unreadable table");
        JobError::Table(error)
    }

    fn cuts(&self, tree: &Tree, task: &Task) -> Vec<Bytes> {
        let (memory, shape, threads) = (&self.context.memory, tree.shape(), self.background.threads);
        let idle = threads.saturating_sub(self.background.reservations.running());
        // Each part needs memory for whole tables, about a quarter of their length.
        let memory_max = memory.builder_max(threads + 1, tree.options.load().block_bytes) as u64;
        let with_memory = memory_max.saturating_mul(4) / shape.table_bytes.max(1);
        task.cuts(&shape, (1 + idle).min(with_memory as usize))
    }

    /// On failure marks the new tables for removal, except those that the manifest may name.
    fn publish_or_remove(&self, changes: Vec<TreeChange>) -> Result<u64> {
        let added = changes.iter().flat_map(|change| &change.added);
        let added: Vec<_> = added.map(|(_, _, table)| Arc::clone(table)).collect();
        let synced = if added.is_empty() { Ok(()) } else { self.files.sync_dir() };
        let published = synced.and_then(|()| self.publish(Vec::new(), Change::Trees(changes)));
        published.inspect_err(|_| added.iter().for_each(|table| table.set_obsolete()))
    }

    fn remove_old_logs(&self, floor: u64) {
        for number in self.log().take_below(floor) {
            self.files.remove(FileName::Log(number));
        }
        self.retry.note_room();
    }
}

fn task_lineage(tree: &Tree, task: &Task) -> Result<Lineage> {
    let (mut newest, mut inputs) = (0, Vec::with_capacity(task.inputs.len()));
    for (_, handle) in &task.inputs {
        let origin = handle.open()?.read_origin()?;
        let meta = &handle.meta;
        newest = newest.max(meta.seqno_max).max(origin.as_ref().map_or(0, |origin| origin.newest));
        inputs.push(InputTable {
            number: meta.number,
            smallest: meta.smallest.clone(),
            largest: meta.largest.clone(),
            replaced: origin.map_or_else(Vec::new, |origin| [origin.replaced, origin.earlier].concat()),
        });
    }
    Ok(Lineage { newest, ..lineage_of(tree, inputs) })
}

fn task_range_deletes(task: &Task) -> Result<Vec<RangeDelete>> {
    let mut range_deletes = Vec::new();
    for (_, table) in &task.inputs {
        range_deletes.extend(table.spans()?.iter().flat_map(|spans| spans.to_range_deletes()));
    }
    Ok(range_deletes)
}

pub(super) fn task_output(task: &Task) -> Output {
    output_of(task.output_level, task.inputs.iter().map(|(_, table)| table))
}

pub(super) fn output_of<'t>(level: usize, tables: impl Iterator<Item = &'t Arc<TableHandle>>) -> Output {
    let tables: Vec<_> = tables.collect();
    let metas = || tables.iter().map(|table| &table.meta);
    Output {
        level,
        keys: metas().map(|meta| meta.keys).fold(0, u64::saturating_add),
        smallest: metas().map(|meta| &meta.smallest[..]).min().unwrap_or_default().to_vec(),
        largest: metas().map(|meta| &meta.largest[..]).max().unwrap_or_default().to_vec(),
        replaces: metas().map(|meta| meta.number).collect(),
    }
}

fn task_sources(version: &Version, task: &Task) -> Vec<RunIter<Tables>> {
    let numbers = task.numbers();
    let mut sources = Vec::new();
    for (_, run) in version.all_runs() {
        let inputs = run.tables.iter().filter(|table| numbers.contains(&table.meta.number));
        let tables: Vec<_> = inputs.cloned().collect();
        if !tables.is_empty() {
            sources.push(RunIter::new(Tables::to_compact(tables)));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::{JobError, Task};
    use crate::db::Db;
    use crate::error::Error;
    use crate::filter::fault_injection;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    /// A store with keys 0 to 999 compacted, and another thousand flushed while this fault damaged filters being
    /// built.
    fn flushed(fault: fn(&mut [u8], u32)) -> (Db, Result<(), Error>) {
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0);
        let db = options.open("/db").unwrap();
        (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), "old").unwrap());
        db.compact().unwrap();
        (500..1500u32).for_each(|key| db.put(key.to_be_bytes(), "new").unwrap());
        fault_injection::set(Some(fault));
        let flushed = db.flush();
        fault_injection::set(None);
        (db, flushed)
    }

    #[test]
    fn a_filter_that_cannot_be_built_ends_no_flush_is_counted_and_goes_with_its_table() {
        let (db, flushed) = flushed(|bits, _| bits.fill(0));
        flushed.unwrap();
        let total = || db.stats().keyspaces[0].total();
        db.open_tables().unwrap();
        assert_eq!((total().tables, total().unbuilt_filters, total().unusable_filters), (2, 1, 0));
        assert!(total().predicted_rate.unwrap() > 0.4, "half of the keys have a filter that says maybe");
        let new = |key: u32| db.get(key.to_be_bytes()).unwrap().is_some_and(|value| value == b"new");
        assert!((500..1500).all(new) && (0..500).all(|key| db.contains(u32::to_be_bytes(key)).unwrap()));
        assert!((1500..2000).all(|key| !db.contains(u32::to_be_bytes(key)).unwrap()));
        assert!(db.verify().unwrap().damage.is_empty());
        while db.step().unwrap() {}
        assert_eq!(db.stats().rebuilt_filters, 0, "it is not damaged: another would be the same");
        db.compact().unwrap();
        db.open_tables().unwrap();
        assert_eq!((total().tables, total().unbuilt_filters), (1, 0));
        assert!((500..1500).all(new));
    }

    #[test]
    fn faulty_memory_while_a_filter_is_built_ends_the_flush_with_an_error() {
        let (db, flushed) = flushed(|bits, before| bits.fill(before as u8));
        assert!(matches!(flushed, Err(Error::FaultyMemory { .. })), "{flushed:?}");
        let refused = db.put("k", "v").unwrap_err();
        assert!(matches!(&refused, Error::Poisoned { .. }) && refused.to_string().contains("memory"));
        assert!((0..1500u32).all(|key| db.contains(key.to_be_bytes()).unwrap()));
    }

    #[test]
    fn a_job_that_cannot_read_its_table_is_an_error_and_writing_goes_on() {
        let fs = MemFs::new();
        let options = || Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        let db = options().open("/db").unwrap();
        (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), [7; 100]).unwrap());
        db.compact().unwrap();
        db.close().unwrap();
        let is_table = |path: &Path| path.extension().is_some_and(|end| end == "sst");
        let (path, mut bytes) =
            fs.files(Path::new("/db")).into_iter().find(|(path, _)| is_table(path)).unwrap();
        bytes[4096 + 100] ^= 1;
        fs.overwrite(&path, bytes);

        let db = options().open("/db").unwrap();
        let (engine, tree) = (db.engine(), db.engine().keyspaces.default_tree());
        let (level, table) =
            tree.view().version.all_tables().map(|(level, table)| (level, Arc::clone(table))).next().unwrap();
        let inputs = vec![(level, Arc::clone(&table))];
        let task = Task { inputs, output_level: level, trivial_move: false };
        let about = |result: Result<(), JobError>| match result {
            Err(JobError::Table(error)) => error.file().map(Path::to_path_buf),
            _ => None,
        };
        assert_eq!(about(engine.compact(&tree, &task)), Some(path.clone()));
        assert!(table.set_aside_for().is_some());
        assert_eq!(about(engine.refilter_table(&tree, &table)), Some(path.clone()));
        assert!(engine.lifecycle.failure().is_none());
        assert!(db.put("k", "v").is_ok() && db.step().is_ok());
    }

    #[test]
    fn blocks_that_are_large_for_the_budget_do_not_make_a_table_of_each_key() {
        for (budget, block_bytes, threads) in
            [(16 << 20, 1 << 20, 0), (16 << 20, 512 << 10, 3), (1 << 20, 4096, 32)]
        {
            let fs = Arc::new(MemFs::new());
            let options = Options::new().fs(fs).memory_budget(budget).background_threads(threads);
            let keyspace = KeyspaceOptions::new().block_bytes(block_bytes);
            let db = options.default_keyspace(keyspace).open("/db").unwrap();
            (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), [7; 100]).unwrap());
            db.flush().unwrap();
            let tables = db.engine().keyspaces.default_tree().view().version.all_tables().count();
            assert!((1..=16).contains(&tables), "{tables} tables of {block_bytes} a block with {budget}");
            assert!((0..1000u32).all(|key| db.contains(key.to_be_bytes()).unwrap()));
        }
    }
}
