//! New tables from a memtable or compaction inputs, synced and open. The caller syncs the directory and publishes them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::KeyspaceOptions;
use crate::batch::KeyspaceId;
use crate::compaction::filters::{Output, plan_output};
use crate::compaction::retain::Retain;
use crate::compaction::run::Merge;
use crate::compaction::table_origin::{InputTable, Lineage};
use crate::db::engine::Engine;
use crate::db::state::files::random_id;
use crate::db::state::keyspace::change::TreeChange;
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree};
use crate::db::state::parallel::in_parallel;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::filter::FilterPlan;
use crate::iter::InternalIterator;
use crate::memory::Building;
use crate::memtable::{Memtable, MemtableIter};
use crate::spans::{RangeDelete, fragment};
use crate::table::{APPEND_BYTES, TableConfig, TableWriter};
use crate::table_meta::TableMeta;
use crate::version::{SharedByTables, TableHandle, Version};

/// Smaller compactions reuse a filter plan: their share of filter memory is negligible.
const SMALL_KEYS: u64 = 4096;

pub(in crate::db) struct MergeWork<'a> {
    pub(in crate::db) version: &'a Version,
    pub(in crate::db) inputs: &'a HashSet<u64>,
    pub(in crate::db) level: usize,
    pub(in crate::db) cuts: &'a [Bytes],
    pub(in crate::db) output: &'a Output,
    pub(in crate::db) lineage: &'a Lineage,
    pub(in crate::db) range_deletes: Vec<RangeDelete>,
}

impl Engine {
    /// Returns no table if all entries have expired. `version` contains everything older.
    pub(in crate::db) fn write_memtable(
        &self,
        tree: &Arc<Tree>,
        version: &Version,
        memtable: &Arc<LoggedMemtable>,
    ) -> Result<TreeChange> {
        let change = |added| TreeChange {
            tree: Arc::clone(tree),
            removed: Vec::new(),
            added,
            flushed: Some(Arc::clone(memtable)),
        };
        if tree.expires() && memtable.memtable.seqno_max() < Some(self.droppable_below(tree)) {
            return Ok(change(Vec::new()));
        }
        let input =
            || -> Result<Box<dyn InternalIterator>> { Ok(Box::new(memtable.memtable.iter().with_values())) };
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
            range_deletes: memtable.memtable.spans().above(0),
        };
        let tables = self.merge_into(tree, work, &input, &|_| Ok(()))?;
        let bytes: u64 = tables.iter().map(|table| table.meta.len).sum();
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
        tracing::debug!(keyspace = tree.name, entries = memtable.memtable.len(), bytes, "flushed a memtable");
        // The number exceeds existing run ids, because a tree has one flush at a time.
        let run = tables.first().map_or(0, |table| table.meta.number);
        Ok(change(tables.into_iter().map(|table| (0, run, table)).collect()))
    }

    pub(in crate::db) fn merge_into(
        &self,
        tree: &Tree,
        work: MergeWork<'_>,
        input: &(dyn Fn() -> Result<Box<dyn InternalIterator>> + Sync),
        check: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<Vec<Arc<TableHandle>>> {
        let MergeWork { version, inputs, level, cuts, output, lineage, range_deletes } = work;
        let options = tree.options.load_full();
        let lookups = tree.lookups();
        let shape = tree.shape();
        let plan = || plan_output(&options.filter, &shape, version, lookups, output);
        let (place, tables) = ((output.level, output.keys), version.totals().tables);
        let filter = match !options.filter.expect_hits && (inputs.is_empty() || output.keys < SMALL_KEYS) {
            true => tree.planned_filter(options.filter, place, tables, plan),
            false => plan(),
        };
        let memory = &self.context.memory;
        let memory_max = memory.builder_max(self.options.background_threads + 1, options.block_bytes);
        let memory_max = memory_max / (cuts.len() + 1);
        let snapshots = self.sequence.snapshots.numbers();
        let spans = Arc::new(fragment(range_deletes, &snapshots));
        // Entries below a horizon must keep their numbers, even if entries no longer expire.
        let may_expire = tree.expires() || tree.horizon() > 0;
        let expired_below = may_expire.then(|| self.droppable_below(tree));
        let merge_part = |part: usize, check: &dyn Fn(u64) -> Result<()>| {
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
                check,
            };
            let retain = Retain::new(snapshots.clone()).with_spans(Arc::clone(&spans));
            let retain = match expired_below {
                Some(horizon) => retain.expiring(horizon),
                None => retain,
            };
            merge.run(&mut *input()?, retain)
        };
        let metas = self.merge_parts(cuts.len() + 1, check, merge_part)?;
        let shared = self.shared_by_tables(tree.id);
        let tables: Vec<_> =
            metas.into_iter().map(|meta| TableHandle::new(Arc::new(meta), &shared)).collect();
        tables.iter().for_each(|table| table.set_made_at(lookups));
        if let Err(error) =
            tables.iter().try_for_each(|table| table.open().map(drop).and(table.spans().map(drop)))
        {
            tables.iter().for_each(|table| table.set_obsolete());
            return Err(error);
        }
        Ok(tables)
    }

    fn merge_parts(
        &self,
        parts: usize,
        check: &(dyn Fn(u64) -> Result<()> + Sync),
        merge_part: impl Fn(usize, &dyn Fn(u64) -> Result<()>) -> Result<Vec<TableMeta>> + Sync,
    ) -> Result<Vec<TableMeta>> {
        let failure: OnceLock<Error> = OnceLock::new();
        let merge = |part: usize| {
            let check = |bytes| check(bytes).and_then(|()| failure.get().cloned().map_or(Ok(()), Err));
            let merged = merge_part(part, &check);
            if let Err(error) = &merged {
                let _ = failure.set(error.clone());
            }
            merged
        };
        let thread = || std::thread::Builder::new().name("sievedb-merge".to_owned());
        let results = in_parallel(parts, thread, merge);
        if let Some(error) = failure.into_inner() {
            for meta in results.into_iter().flatten().flatten() {
                self.files.remove(FileName::Table(meta.number));
            }
            return Err(error);
        }
        Ok(results.into_iter().flatten().flatten().collect())
    }

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
            file_id: random_id()?,
            hash_seed: self.keyspaces.hash_seed,
            block_bytes: options.block_bytes,
            compression: options.compression[level],
            filter,
            append_bytes,
        };
        TableWriter::create(&*self.files.fs, &FileName::Table(number).path(&self.files.dir), config)
    }
}

fn memtable_output(memtable: &Arc<Memtable>) -> Result<Output> {
    let mut entries = memtable.iter();
    let bound = |entries: &MemtableIter| entries.key().map_or_else(Vec::new, |key| key.user.to_vec());
    entries.seek_first()?;
    let smallest = bound(&entries);
    entries.seek_last()?;
    let largest = bound(&entries);
    Ok(Output { level: 0, keys: memtable.len(), smallest, largest, replaces: HashSet::new() })
}

pub(in crate::db) fn lineage_of(tree: &Tree, inputs: Vec<InputTable>) -> Lineage {
    Lineage { keyspace: tree.id, name: tree.name.clone(), newest: 0, inputs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;
    use crate::compaction::filters::tests::PLANNED_WITH;
    use crate::fs::MemFs;
    use crate::options::Options;

    fn open(options: KeyspaceOptions) -> Db {
        let fs = Arc::new(MemFs::new());
        Options::new().fs(fs).background_threads(0).default_keyspace(options).open("/db").unwrap()
    }

    fn tables(db: &Db) -> usize {
        db.engine().keyspaces.default_tree().view().version.all_tables().count()
    }

    #[test]
    fn flushes_of_single_keys_leave_few_tables_whatever_their_order() {
        for step in [1, 7, 299] {
            let db = open(KeyspaceOptions::new());
            for n in 0..300u32 {
                db.put((n * step % 300).to_be_bytes(), "value").unwrap();
                db.flush().unwrap();
                while db.step().unwrap() {}
                assert!(tables(&db) <= 16, "{} tables after {n} flushes in steps of {step}", tables(&db));
            }
            assert!((0..300u32).all(|n| db.contains(n.to_be_bytes()).unwrap()));
        }
    }

    #[test]
    fn a_flush_plans_its_filter_with_as_many_tables_in_the_mean_however_many_there_are() {
        let small = KeyspaceOptions::new().block_bytes(512).table_bytes(2 << 10).memtable_bytes(64 << 10);
        let db = open(small);
        let mut planned = Vec::new();
        for round in 0..3u32 {
            for n in 0..4000 * round {
                db.put((round << 16 | n).to_be_bytes(), n.wrapping_mul(0x9e37_79b9).to_be_bytes().repeat(8))
                    .unwrap();
            }
            db.flush().unwrap();
            while db.step().unwrap() {}
            let (tables, before) = (tables(&db), PLANNED_WITH.get());
            let mut flushes = 0;
            for n in 0..64u32 {
                db.put((u32::MAX - n).to_be_bytes(), "v").unwrap();
                let before = PLANNED_WITH.get();
                db.flush().unwrap();
                flushes += PLANNED_WITH.get() - before;
                while db.step().unwrap() {}
            }
            planned.push((tables, flushes / 64, (PLANNED_WITH.get() - before) / 64));
        }
        let [(few, _, _), (many, _, _), (most, _, _)] = planned[..] else { panic!() };
        assert!(few < 10 && many > 100 && most > many + 100, "{planned:?}");
        let is_bounded = |&(_, of_flush, in_all): &(usize, usize, usize)| of_flush <= 80 && in_all <= 160;
        assert!(planned.iter().all(is_bounded), "{planned:?}");
    }
}
