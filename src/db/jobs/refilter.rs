//! New filters for existing tables: after damage, or for a new policy.
//!
//! 1. Build a filter from the table's keys.
//! 2. Write it to a new file; sync file and directory.
//! 3. Open the table with it and check it, even without memory to keep it.
//! 4. Publish an edit with the new list of filters; replace the handle in the version.
//! 5. Remove the old filter file when the last reader of the old handle ends.
//!
//! The memory for the build is taken first: the job's share of the builders' memory (`memory`), then a lease, which
//! evicts cached blocks. A table that was written with a much larger budget may need more: [`Error::LimitExceeded`].
//! The next compaction writes smaller tables.
//!
//! The reservation protects the table from compactions.
//!
//! If the table is unreadable, memory is short, or several new filters in a row are unusable, the job ends without a
//! change or a retry. After a system error it is retried.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::flush_and_compact::JobError;
use crate::compaction::claimed_ranges::Busy;
use crate::compaction::filters::{Output, plan_output};
use crate::db::engine::Engine;
use crate::db::state::keyspace::change::{Change, FilterChange};
use crate::db::state::keyspace::tree::Tree;
use crate::error::{Error, Result};
use crate::filter::FilterPlan;
use crate::memory::{Building, Lease, LeaseKind};
use crate::version::{TableHandle, Version};

struct Room {
    building: Building,
    part: usize,
    beyond: Option<Lease>,
}

impl Room {
    fn set(&self, bytes: usize) {
        self.building.set(bytes.min(self.part));
    }

    fn shrink(&mut self, bytes: usize) {
        self.set(bytes);
        if bytes <= self.part {
            self.beyond = None;
        }
    }
}

pub(super) fn find_unusable_filter(version: &Version, busy: &Busy) -> Option<Arc<TableHandle>> {
    let mut tables = version.all_tables().map(|(_, table)| table);
    tables.find(|table| table.filter.needs_rebuild() && !busy.has(table)).cloned()
}

impl Engine {
    /// Builds the filter by the keyspace's options for the level. The caller has reserved the table. Does nothing if
    /// the table has left the tree.
    ///
    /// # Errors
    ///
    /// [`JobError::Table`] if the table is unreadable or memory is short; [`Error::Closed`];
    /// [`Error::KeyspaceDropped`]; errors of writing.
    pub(super) fn refilter_table(&self, tree: &Arc<Tree>, old: &Arc<TableHandle>) -> Result<(), JobError> {
        let number = old.meta.number;
        let view = tree.view();
        let Some((level, _)) = view.version.find(number) else { return Ok(()) };
        let lookups = tree.lookups();
        let output = Output {
            level,
            keys: old.meta.keys,
            smallest: old.meta.smallest.to_vec(),
            largest: old.meta.largest.to_vec(),
            replaces: HashSet::from([number]),
        };
        let plan = plan_output(&tree.options.load().filter, &tree.shape(), &view.version, lookups, &output);
        drop(view);
        let mut room = match self.room_to_build(tree, plan, old) {
            Ok(room) => room,
            Err(error) => return Err(self.no_filter(tree, old, error)),
        };
        let block = match self.build_filter(tree, plan, old, &room) {
            Ok(block) => block,
            Err(error) => return Err(self.no_filter(tree, old, error)),
        };
        let bytes = block.as_ref().map_or(0, Vec::len);
        let filters = block.map(|block| self.files.write_filter(&block)).transpose()?;
        let new = old.with_filters(filters.into_iter().collect());
        new.set_made_at(lookups);
        room.shrink(bytes);
        let checked = new.read_and_check_filter();
        drop(room);
        if let Err(error) = checked {
            new.set_filters_obsolete(old);
            return Err(self.no_filter(tree, old, error));
        }
        let change =
            FilterChange { tree: Arc::clone(tree), level, old: Arc::clone(old), new: Arc::clone(&new) };
        let published = self.publish(Vec::new(), Change::Filters(change));
        published.inspect_err(|_| new.set_filters_obsolete(old))?;
        self.counters.rebuilt_filters.fetch_add(1, Ordering::Relaxed);
        self.counters.rebuilt_filter_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        tracing::info!(keyspace = tree.name, table = number, level, bytes, "rebuilt a filter");
        Ok(())
    }

    fn room_to_build(&self, tree: &Tree, plan: Option<FilterPlan>, table: &TableHandle) -> Result<Room> {
        let memory = &self.context.memory;
        let needed = plan.map_or(0, |plan| plan.build_bytes(table.meta.keys));
        let part = memory.builder_max(self.options.background_threads + 1, tree.options.load().block_bytes);
        let building = Building::new(memory);
        let beyond = match needed.saturating_sub(part) as u64 {
            0 => None,
            lacking => Some(memory.try_lease_briefly(LeaseKind::Filters, lacking).ok_or_else(|| {
                Error::limit(
                    "memory to build a filter in",
                    memory.room_briefly() + part as u64,
                    needed as u64,
                )
            })?),
        };
        Ok(Room { building, part, beyond })
    }

    fn build_filter(
        &self,
        tree: &Tree,
        plan: Option<FilterPlan>,
        table: &TableHandle,
        room: &Room,
    ) -> Result<Option<Vec<u8>>> {
        let check = |bytes| {
            room.set(bytes);
            self.check_job(tree)
        };
        plan.map(|plan| table.open()?.build_filter(plan, &check)).transpose()
    }

    fn no_filter(&self, tree: &Tree, table: &TableHandle, error: Error) -> JobError {
        let is_told = matches!(error, Error::Closed | Error::KeyspaceDropped { .. } | Error::Poisoned { .. });
        if is_told || matches!(error, Error::Io { .. } | Error::FaultyMemory { .. }) {
            return JobError::Store(error);
        }
        table.filter.set_rebuild_failed();
        self.counters.failed_rebuilds.fetch_add(1, Ordering::Relaxed);
        tracing::error!(keyspace = tree.name, table = table.meta.number, %error, "a filter cannot be rebuilt");
        JobError::Table(error)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::db::Db;
    use crate::db::state::progress::Progress;
    use crate::filename::FileName;
    use crate::filter::{FilterBuilder, FilterKind, FilterPolicy, Kind};
    use crate::fs::{MemFs, Op};
    use crate::options::Options;
    use crate::version::{FilterState, REBUILDS_MAX};

    const KEYS: u32 = 500;

    fn key(n: u32) -> String {
        format!("key {n:04}")
    }

    fn options(fs: &MemFs) -> Options {
        Options::new().fs(Arc::new(fs.clone())).background_threads(0)
    }

    fn table(db: &Db) -> (Arc<Tree>, Arc<TableHandle>) {
        let tree = db.engine().keyspaces.default_tree();
        let table = tree.view().version.all_tables().next().map(|(_, table)| Arc::clone(table)).unwrap();
        (tree, table)
    }

    /// A store with one table, which the manifest names. Its filter has the wrong keys; checksums, owner, seed, salt
    /// and count are valid.
    fn forged(fs: &MemFs) {
        let db = options(fs).open("/db").unwrap();
        (0..KEYS).for_each(|n| db.put(key(n), n.to_le_bytes()).unwrap());
        db.compact().unwrap();
        let (tree, old) = table(&db);
        let engine = db.engine();
        let own =
            old.open().unwrap().build_filter(tree.options.load().filter.resolve(1000).unwrap(), &|_| Ok(()));
        let own = crate::filter::Header::decode(&own.unwrap()).unwrap();
        let mut lie = FilterBuilder::new(own.kind, 10.0, own.seed, own.salt, own.owner).unwrap();
        (0..KEYS).for_each(|n| lie.add_key(format!("other {n}").as_bytes()));
        let filter = engine.files.write_filter(&lie.finish().unwrap()).unwrap();
        let new = old.with_filters(vec![filter]);
        let change = FilterChange { tree, level: 1, old, new };
        engine.publish(Vec::new(), Change::Filters(change)).unwrap();
        db.close().unwrap();
    }

    #[test]
    fn a_filter_that_lies_with_every_checksum_right_is_caught_by_the_audit_and_replaced() {
        for one_in in [1, 3, 50] {
            let fs = MemFs::new();
            forged(&fs);
            let db = options(&fs).audit_absent(one_in).open("/db").unwrap();
            let (_, lying) = table(&db);
            assert!(lying.filter.error().is_none(), "nothing can be seen from outside");
            let wrong = (0..KEYS).filter(|&n| db.get(key(n)).unwrap().is_none()).count() as u64;
            assert!(wrong < one_in, "one in {one_in}: {wrong} wrong answers");
            let stats = db.stats();
            assert_eq!((stats.audit_failures, stats.unusable_filters), (1, 1));
            assert!(stats.audited > 0);
            let error = lying.filter.error().unwrap();
            let path = FileName::Table(lying.meta.number).path(Path::new("/db"));
            assert!(error.is_corruption() && error.file() == Some(&*path));
            assert!(db.step().unwrap());
            let stats = db.stats();
            assert_eq!((stats.rebuilt_filters, stats.keyspaces[0].total().unusable_filters), (1, 0));
            assert!((0..KEYS).all(|n| db.get(key(n)).unwrap().as_deref() == Some(&n.to_le_bytes()[..])));
            assert!((0..KEYS).all(|n| !db.contains(format!("other {n}")).unwrap()));
            assert!(db.verify().unwrap().damage.is_empty());
            assert_eq!(db.stats().audit_failures, 1);
        }
    }

    #[test]
    fn without_the_audit_that_filter_lies_and_verify_says_so() {
        let fs = MemFs::new();
        forged(&fs);
        let db = options(&fs).open("/db").unwrap();
        assert!((0..KEYS).any(|n| db.get(key(n)).unwrap().is_none()), "or the test above shows nothing");
        assert!(!db.verify().unwrap().damage.is_empty());
    }

    #[test]
    fn a_strict_store_gives_what_the_audit_finds_to_the_reader_as_an_error() {
        let fs = MemFs::new();
        forged(&fs);
        let db = options(&fs).audit_absent(1).strict_filters(true).open("/db").unwrap();
        assert!(db.get(key(7)).unwrap_err().is_corruption());
        while db.step().unwrap() {}
        assert!(db.get(key(7)).unwrap().is_some());
    }

    #[test]
    fn a_filter_too_large_to_build_is_refused_until_its_table_is_rewritten() {
        let fs = MemFs::new();
        let db = options(&fs).memory_budget(64 << 20).open("/db").unwrap();
        (0..60_000u32).for_each(|n| db.put(n.to_be_bytes(), "").unwrap());
        db.compact().unwrap();
        db.close().unwrap();
        let db = options(&fs).memory_budget(1 << 20).open("/db").unwrap();
        let (tree, before) = table(&db);
        // Cached blocks yield the missing part: 60 000 keys at 9.5 bytes are half a megabyte.
        let blocked = FilterPolicy::new(FilterKind::BlockedBloom).bits_per_key(6.0);
        db.engine().refilter(&tree, blocked, &Progress::new()).unwrap();
        let (_, between) = table(&db);
        assert!(!Arc::ptr_eq(&before, &between) && db.stats().rebuilt_filters == 1);
        // Building a ribbon filter takes more than the memory of a filter.
        let ribbon = FilterPolicy::new(FilterKind::Ribbon).bits_per_key(10.0);
        let refused = db.engine().refilter(&tree, ribbon, &Progress::new()).unwrap_err();
        assert!(matches!(refused, Error::LimitExceeded { asked, limit, .. } if asked > limit), "{refused}");
        assert!(Arc::ptr_eq(&between, &table(&db).1), "the table keeps what it has");
        let stats = db.stats();
        assert_eq!((stats.rebuilt_filters, stats.failed_rebuilds, stats.memory.builders), (1, 1, 0));
        assert!(db.contains(7u32.to_be_bytes()).unwrap());
        db.compact().unwrap();
        assert!(db.stats().keyspaces[0].total().tables > 1);
        db.engine().refilter(&tree, ribbon.bits_per_key(12.0), &Progress::new()).unwrap();
        assert!((0..60_000u32).step_by(7).all(|n| db.contains(n.to_be_bytes()).unwrap()));
    }

    /// Flips a bit at the end of every filter file.
    fn damage_filters(fs: &MemFs) {
        for (path, mut bytes) in fs.files(Path::new("/db")) {
            if path.extension().is_some_and(|extension| extension == "filter") {
                *bytes.last_mut().unwrap() ^= 1;
                fs.overwrite(&path, bytes);
            }
        }
    }

    fn has_filter_files(fs: &MemFs) -> bool {
        let files = fs.files(Path::new("/db"));
        files.iter().any(|(path, _)| path.extension().is_some_and(|extension| extension == "filter"))
    }

    /// A store with one table, in which all filter memory is taken.
    fn without_room(fs: &MemFs) -> (Db, Option<Lease>) {
        let db = options(fs).open("/db").unwrap();
        (0..KEYS).for_each(|n| db.put(key(n), n.to_le_bytes()).unwrap());
        db.compact().unwrap();
        let lease = take_room(&db);
        (db, lease)
    }

    fn take_room(db: &Db) -> Option<Lease> {
        let memory = &db.engine().context.memory;
        memory.try_lease(LeaseKind::Filters, memory.room())
    }

    /// Requests a filter that is damaged before it is checked.
    fn refilter_that_fails(db: &Db, fs: &MemFs, policy: FilterPolicy) {
        fs.observe(|fs, op| {
            if matches!(op, Op::SyncDir(_)) {
                damage_filters(fs);
            }
            Ok(())
        });
        assert!(db.engine().refilter(&table(db).0, policy, &Progress::new()).unwrap_err().is_corruption());
        fs.stop_observing();
    }

    #[test]
    fn a_damaged_new_filter_is_not_published_even_without_room_to_keep_it() {
        let fs = MemFs::new();
        let (db, _taken) = without_room(&fs);
        let (tree, before) = table(&db);
        let policy = FilterPolicy::new(FilterKind::Bloom).bits_per_key(12.0);
        refilter_that_fails(&db, &fs, policy);
        assert!(Arc::ptr_eq(&before, &table(&db).1), "the table keeps what it has");
        let stats = db.stats();
        assert_eq!((stats.failed_rebuilds, stats.rebuilt_filters, stats.memory.builders), (1, 0, 0));
        while db.step().unwrap() {}
        assert!(!has_filter_files(&fs));
        db.engine().refilter(&tree, policy, &Progress::new()).unwrap();
        let (_, after) = table(&db);
        assert!(after.open_filter().unwrap().unwrap().is_on_disk() && has_filter_files(&fs));
    }

    #[test]
    fn compact_rewrites_a_settled_table_only_if_its_filter_could_not_be_made() {
        let fs = MemFs::new();
        let (db, lease) = without_room(&fs);
        drop(lease);
        let (_, before) = table(&db);
        db.compact().unwrap();
        assert!(Arc::ptr_eq(&before, &table(&db).1), "there is nothing to be done");
        let policy = FilterPolicy::new(FilterKind::Bloom).bits_per_key(12.0);
        refilter_that_fails(&db, &fs, policy);
        db.compact().unwrap();
        let (_, after) = table(&db);
        assert_eq!(
            after.open_filter().unwrap().unwrap().header().map(|header| header.kind),
            Some(Kind::Bloom)
        );
    }

    #[test]
    fn a_filter_that_is_damaged_again_and_again_is_rebuilt_only_a_few_times() {
        let fs = MemFs::new();
        let (db, mut lease) = without_room(&fs);
        let policy = FilterPolicy::new(FilterKind::Bloom).bits_per_key(12.0);
        db.engine().refilter(&db.engine().keyspaces.default_tree(), policy, &Progress::new()).unwrap();
        for round in 0..=REBUILDS_MAX {
            db.engine().remove_obsolete_files();
            damage_filters(&fs);
            let beside = table(&db).1.meta.filters[0].file.unwrap();
            db.engine().context.forget(FileName::Filter(beside));
            lease.take();
            assert!(db.step().unwrap(), "it is loaded");
            assert!(table(&db).1.read_and_check_filter().is_err());
            lease = take_room(&db);
            assert_eq!(db.step().unwrap(), round < REBUILDS_MAX, "round {round}");
        }
        assert_eq!(db.stats().rebuilt_filters, u64::from(REBUILDS_MAX) + 1);
        assert!((0..KEYS).all(|n| db.contains(key(n)).unwrap()));
        // Explicit requests are still executed.
        lease.take();
        db.engine().refilter(&db.engine().keyspaces.default_tree(), policy, &Progress::new()).unwrap();
        assert!(matches!(table(&db).1.filter.state(), Some(FilterState::Loaded(_))));
    }
}
