//! The jobs themselves: flushing a memtable and carrying out a compaction task.
//!
//! Both merge their input into new tables and then publish one edit. The new tables are opened before that,
//! so that no unreadable table enters the tree.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::engine::Engine;
use super::parallel::in_parallel;
use super::progress::Progress;
use super::publish::{Change, TreeChange};
use super::retry::Work;
use super::sources::Tables;
use super::tree::{LoggedMemtable, Tree};
use crate::batch::KeyspaceId;
use crate::compaction::filters::{Output, plan_output};
use crate::compaction::retain::Retain;
use crate::compaction::run::Merge;
use crate::compaction::table_origin::{InputTable, Lineage};
use crate::compaction::task::Task;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::filter::FilterPlan;
use crate::iter::InternalIterator;
use crate::memory::Building;
use crate::memtable::{Memtable, MemtableIter};
use crate::merge::{MergeIter, RunIter};
use crate::options::KeyspaceOptions;
use crate::table::{APPEND_BYTES, TableConfig, TableWriter};
use crate::table_meta::TableMeta;
use crate::version::{SharedByTables, TableHandle, Version};

/// Why a job was not done.
#[derive(Debug)]
pub(crate) enum JobError {
    /// A table cannot be read, or no filter can be built for it. Nothing was changed, and the store stays
    /// usable.
    Table(Error),
    /// Any other error. The job is tried again, unless the error ends writing.
    Store(Error),
}

/// A merge: what goes into it, and what comes out.
struct MergeWork<'a> {
    /// The tree, with the tables that are merged.
    version: &'a Version,
    /// Their numbers; none for a flush.
    inputs: &'a HashSet<u64>,
    level: usize,
    /// The keys at which it is split, for threads of their own.
    cuts: &'a [Bytes],
    /// What the filters are planned for: the outputs, or more of which they are a part.
    output: &'a Output,
    /// What the outputs record of the inputs.
    lineage: &'a Lineage,
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    /// Writes the oldest immutable memtables of these trees into new runs of level 0, and publishes them with one
    /// edit. Those of dropped keyspaces are left out. If a later one than the first cannot be written, or somebody
    /// waits for one that is written, the job ends there, and the rest is left to other jobs.
    pub(crate) fn flush_memtables(&self, memtables: &[(Arc<Tree>, Arc<LoggedMemtable>)]) -> Result<()> {
        let mut changes = Vec::with_capacity(memtables.len());
        for (tree, memtable) in memtables.iter().filter(|(tree, _)| tree.is_alive()) {
            match self.write_memtable(tree, &tree.view().version, memtable) {
                Ok(change) => changes.push(change),
                Err(error) if changes.is_empty() => return Err(error),
                Err(error) => {
                    let error = self.fail_if_final(error);
                    if !self.health.has_failed() {
                        self.put_off(Work::Flush(tree.id), error);
                    }
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

    /// Whether somebody waits for flushes to be published: writers that are slowed meanwhile, who closes the
    /// store, who resumes writing.
    fn is_awaited(&self, flushes: &[TreeChange]) -> bool {
        self.background.is_stopping()
            || self.suspension.is_suspended()
            || flushes.iter().any(|flush| flush.tree.view_ref().immutables.len() > 1)
    }

    /// Writes the oldest immutable memtable of a tree into tables, and syncs them. The caller syncs the
    /// directory and publishes them. `version` has everything that is older.
    pub(crate) fn write_memtable(
        &self,
        tree: &Arc<Tree>,
        version: &Version,
        memtable: &Arc<LoggedMemtable>,
    ) -> Result<TreeChange> {
        let input = || -> Result<Box<dyn InternalIterator>> { Ok(Box::new(memtable.memtable.iter())) };
        let output = memtable_output(&memtable.memtable)?;
        let newest = memtable.memtable.seqno_max().unwrap_or(0);
        let lineage = Lineage { newest, ..lineage_of(tree, Vec::new()) };
        let work = MergeWork {
            version,
            inputs: &HashSet::new(),
            level: 0,
            cuts: &[],
            output: &output,
            lineage: &lineage,
        };
        let tables = self.merge_into(tree, &work, &input, &|_| false)?;
        let bytes: u64 = tables.iter().map(|table| table.meta.len).sum();
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        tracing::debug!(keyspace = tree.name, entries = memtable.memtable.len(), bytes, "flushed a memtable");
        // A larger id than that of every existing run: numbers only grow, and a tree has one flush at a time.
        let run = tables.first().map_or(0, |table| table.meta.number);
        Ok(TreeChange {
            tree: Arc::clone(tree),
            removed: Vec::new(),
            added: tables.into_iter().map(|table| (0, run, table)).collect(),
            flushed: Some(Arc::clone(memtable)),
        })
    }

    /// Carries out a compaction task.
    ///
    /// # Errors
    ///
    /// [`JobError::Table`] if an input cannot be read. The input is set aside, and later compactions skip it.
    pub(crate) fn compact(&self, tree: &Arc<Tree>, task: &Task) -> Result<(), JobError> {
        self.compact_as(tree, task, &task_output(task), None)
    }

    /// Carries out a compaction task. The filters are those of `output`, of which the task may be a part.
    pub(crate) fn compact_as(
        &self,
        tree: &Arc<Tree>,
        task: &Task,
        output: &Output,
        progress: Option<&Progress>,
    ) -> Result<(), JobError> {
        if task.trivial_move {
            let added =
                task.inputs.iter().map(|(_, table)| (task.output_level, 0, Arc::clone(table))).collect();
            self.counters.trivial_moves.fetch_add(1, Ordering::Relaxed);
            let removed = task.inputs.clone();
            let change = TreeChange { tree: Arc::clone(tree), removed, added, flushed: None };
            self.publish(Vec::new(), Change::Trees(vec![change]))?;
            return Ok(());
        }
        let view = tree.view();
        let input = || -> Result<Box<dyn InternalIterator>> {
            Ok(Box::new(MergeIter::new(task_sources(&view.version, task))))
        };
        let stop = |bytes| {
            let is_cancelled = progress.is_some_and(|progress| {
                progress.add(bytes);
                progress.is_cancelled()
            });
            is_cancelled || self.background.is_stopping() || !tree.is_alive() || self.health.has_failed()
        };
        let (version, level) = (&view.version, task.output_level);
        let merged = task_lineage(tree, task).and_then(|lineage| {
            let (inputs, cuts) = (&task.numbers(), &self.cuts(tree, task));
            let work = MergeWork { version, inputs, level, cuts, output, lineage: &lineage };
            self.merge_into(tree, &work, &input, &stop)
        });
        let added = match merged {
            Ok(added) => added,
            Err(error) => return Err(self.set_aside(tree, task, error)),
        };
        let bytes: u64 = added.iter().map(|table| table.meta.len).sum();
        let change = TreeChange {
            tree: Arc::clone(tree),
            removed: task.inputs.clone(),
            added: added.into_iter().map(|table| (task.output_level, 0, table)).collect(),
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

    /// Sets aside the input that is damaged, if the error of a merge names one.
    fn set_aside(&self, tree: &Tree, task: &Task, error: Error) -> JobError {
        if !matches!(error, Error::Corruption { .. } | Error::Unsupported { .. }) {
            return JobError::Store(error);
        }
        let is_about = |number| error.file() == Some(&FileName::Table(number).path(&self.files.dir));
        let Some((level, table)) = task.inputs.iter().find(|(_, table)| is_about(table.meta.number)) else {
            return JobError::Store(error);
        };
        table.set_aside(error.clone());
        let number = table.meta.number;
        tracing::error!(keyspace = tree.name, table = number, level, %error, "compactions leave a table alone");
        JobError::Table(error)
    }

    /// Merges `input` into new tables. They are synced and open. The caller syncs the directory and publishes
    /// them.
    fn merge_into(
        &self,
        tree: &Tree,
        work: &MergeWork<'_>,
        input: &(dyn Fn() -> Result<Box<dyn InternalIterator>> + Sync),
        stop: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Vec<Arc<TableHandle>>> {
        let &MergeWork { version, inputs, level, cuts, output, lineage } = work;
        let options = tree.options.load_full();
        let lookups = tree.lookups();
        let shape = tree.shape();
        let filter = plan_output(&options.filter, &shape, version, lookups, output);
        let memory = &self.context.memory;
        // Each thread, and a caller that compacts.
        let memory_max = memory.builder_max(self.options.background_threads + 1, options.block_bytes);
        let memory_max = memory_max / (cuts.len() + 1);
        let snapshots = self.sequence.snapshots.numbers();
        let merge_part = |part: usize, stop: &dyn Fn(u64) -> bool| {
            let building = Building::new(memory);
            let merge = Merge {
                fs: &*self.files.fs,
                dir: &self.files.dir,
                version,
                inputs,
                part: (part.checked_sub(1).map(|before| &cuts[before]), cuts.get(part)),
                output_level: level,
                shape,
                lineage,
                new_number: &|| self.files.new_number(),
                create: &|number| {
                    self.create_table(&options, level, filter, (memory_max / 8).min(APPEND_BYTES), number)
                },
                memory_max,
                memory: &|bytes| building.set(bytes),
                stop,
            };
            merge.run(&mut *input()?, Retain::new(snapshots.clone()))
        };
        let metas = self.merge_parts(cuts.len() + 1, stop, merge_part)?;
        let shared = self.shared_by_tables(tree.id);
        let tables: Vec<_> =
            metas.into_iter().map(|meta| TableHandle::new(Arc::new(meta), &shared)).collect();
        tables.iter().for_each(|table| table.set_made_at(lookups));
        if let Err(error) = tables.iter().try_for_each(|table| table.open().map(drop)) {
            tables.iter().for_each(|table| table.set_obsolete());
            return Err(error);
        }
        Ok(tables)
    }

    /// Merges the parts at the same time. After an error nothing is left of any.
    fn merge_parts(
        &self,
        parts: usize,
        stop: &(dyn Fn(u64) -> bool + Sync),
        merge_part: impl Fn(usize, &dyn Fn(u64) -> bool) -> Result<Vec<TableMeta>> + Sync,
    ) -> Result<Vec<TableMeta>> {
        let has_failed = AtomicBool::new(false);
        let merge = |part: usize| {
            let merged = merge_part(part, &|bytes| stop(bytes) || has_failed.load(Ordering::Relaxed));
            has_failed.fetch_or(merged.is_err(), Ordering::Relaxed);
            merged
        };
        let thread = || std::thread::Builder::new().name("sievedb-merge".to_owned());
        let results = in_parallel(parts, thread, merge);
        // Parts that were stopped because another one has failed say that the store is closed.
        let is_closed = |error: &&Error| matches!(error, Error::Closed);
        let mut errors: Vec<&Error> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        errors.sort_by_key(is_closed);
        if let Some(&error) = errors.first() {
            let error = error.clone();
            for meta in results.into_iter().flatten().flatten() {
                self.files.remove(FileName::Table(meta.number));
            }
            return Err(error);
        }
        Ok(results.into_iter().flatten().flatten().collect())
    }

    /// Where a task is split, so that idle threads have a part of it, if it is large.
    fn cuts(&self, tree: &Tree, task: &Task) -> Vec<Bytes> {
        let (memory, shape, threads) = (&self.context.memory, tree.shape(), self.background.threads);
        let idle = threads.saturating_sub(self.background.reservations.running());
        // A part has to have memory for whole tables: about a quarter of their length.
        let memory_max = memory.builder_max(threads + 1, tree.options.load().block_bytes) as u64;
        let with_memory = memory_max.saturating_mul(4) / shape.table_bytes.max(1);
        task.cuts(&shape, (1 + idle).min(with_memory as usize))
    }

    /// What the handles of the tables of a keyspace share.
    fn shared_by_tables(&self, keyspace: KeyspaceId) -> SharedByTables {
        SharedByTables {
            context: Arc::clone(&self.context),
            obsolete_files: Arc::clone(&self.files.obsolete),
            open_tables: Arc::clone(&self.keyspaces.open_tables),
            keyspace,
        }
    }

    fn create_table(
        &self,
        options: &KeyspaceOptions,
        level: usize,
        filter: Option<FilterPlan>,
        append_bytes: usize,
        number: u64,
    ) -> Result<TableWriter> {
        let config = TableConfig {
            number,
            store_id: self.files.store_id,
            file_id: super::files::random_id()?,
            hash_seed: self.keyspaces.hash_seed,
            block_bytes: options.block_bytes,
            compression: options.compression[level],
            filter,
            append_bytes,
        };
        TableWriter::create(&*self.files.fs, &FileName::Table(number).path(&self.files.dir), config)
    }

    /// Syncs the directory, and publishes changes with one edit. If that fails, marks the new tables for
    /// removal (those that the manifest may name are held until that is certain).
    fn publish_or_remove(&self, changes: Vec<TreeChange>) -> Result<u64> {
        let added = changes.iter().flat_map(|change| &change.added);
        let added: Vec<_> = added.map(|(_, _, table)| Arc::clone(table)).collect();
        let synced = if added.is_empty() { Ok(()) } else { self.files.sync_dir() };
        let published = synced.and_then(|()| self.publish(Vec::new(), Change::Trees(changes)));
        published.inspect_err(|_| added.iter().for_each(|table| table.set_obsolete()))
    }

    /// Removes the logs that the durable manifest does not need any more.
    fn remove_old_logs(&self, floor: u64) {
        for number in self.log().take_below(floor) {
            self.files.remove(FileName::Log(number));
        }
        self.retry.note_room();
    }
}

/// What a flush of this memtable writes.
fn memtable_output(memtable: &Arc<Memtable>) -> Result<Output> {
    let mut entries = memtable.iter();
    let bound = |entries: &MemtableIter| entries.key().map_or_else(Vec::new, |key| key.user.to_vec());
    entries.seek_first()?;
    let smallest = bound(&entries);
    entries.seek_last()?;
    let largest = bound(&entries);
    Ok(Output { level: 0, keys: memtable.len(), smallest, largest, replaces: HashSet::new() })
}

fn lineage_of(tree: &Tree, inputs: Vec<InputTable>) -> Lineage {
    Lineage { keyspace: tree.id, name: tree.name.clone(), newest: 0, inputs }
}

/// What the outputs of a compaction record of its inputs, which are read for it.
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

/// What a compaction writes.
pub(super) fn task_output(task: &Task) -> Output {
    output_of(task.output_level, task.inputs.iter().map(|(_, table)| table))
}

/// What is written to a level in place of these tables.
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

/// The inputs of a task as sources of a merge, newest first.
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

    /// A store that has written keys 0 to 999 and compacted them, and flushed another thousand while filters
    /// were built with this fault.
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
        assert!(engine.health.failure().is_none());
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
