//! The read path. A reader loads one view and takes no lock.
//!
//! The view is loaded before the sequence number. A view has every write made before it is replaced, so the two show
//! the store at a moment between the loads. The view holds its memtables and tables, so compactions remove nothing from
//! it. A registered [`Snapshot`](crate::db::handles::snapshot::Snapshot) uses its own number with the current view.

use std::sync::Arc;

use crate::counters::Stripe;
use crate::db::engine::Engine;
use crate::db::latencies::Call;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::{Tree, View};
use crate::error::Result;
use crate::hash::key_hash;
use crate::iter::EntryValue;
use crate::key::{EntryKind, SeqNo};
use crate::version::Lookup;

impl Engine {
    /// Out of line, so that callers of [`Engine::look_up`] stay small.
    #[inline(never)]
    pub(in crate::db) fn get<T>(
        &self,
        tree: &Tree,
        user_key: &[u8],
        past: Option<&Past>,
        read: impl FnOnce(EntryValue) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.latencies.are_on() {
            return self.get_timed(tree, user_key, past, read);
        }
        self.look_up(tree, user_key, past, read)
    }

    #[cold]
    #[inline(never)]
    fn get_timed<T>(
        &self,
        tree: &Tree,
        user_key: &[u8],
        past: Option<&Past>,
        read: impl FnOnce(EntryValue) -> Result<T>,
    ) -> Result<Option<T>> {
        let _timer = self.latencies.start(Call::Get);
        self.look_up(tree, user_key, past, read)
    }

    /// `read` converts the value while the view protects its table.
    #[inline(always)]
    pub(in crate::db) fn look_up<T>(
        &self,
        tree: &Tree,
        user_key: &[u8],
        past: Option<&Past>,
        read: impl FnOnce(EntryValue) -> Result<T>,
    ) -> Result<Option<T>> {
        self.look_up_entry(tree, user_key, past, |_, value| read(value))
    }

    #[inline(always)]
    pub(in crate::db) fn look_up_entry<T>(
        &self,
        tree: &Tree,
        user_key: &[u8],
        past: Option<&Past>,
        read: impl FnOnce(SeqNo, EntryValue) -> Result<T>,
    ) -> Result<Option<T>> {
        let view = tree.view_ref();
        // Checked after the view is loaded: the empty view of a dropped keyspace must not be answered as "absent".
        self.check_readable(tree)?;
        // The second call, for the tables, may return a larger number; the tables have no entries above the first one.
        let seqno = || past.map_or_else(|| self.sequence.visible(), |past| past.seqno);
        let horizon = || past.map_or_else(|| view.version.horizon(), |past| past.horizon);
        let hash = key_hash(self.keyspaces.hash_seed, user_key);
        if view.has_memtables()
            && let Some(newest) = view.get_in_memtables(user_key, hash, seqno())
        {
            let put = newest.put().filter(|put| put.tag().seqno() >= horizon());
            return put.map(|put| read(put.tag().seqno(), EntryValue::Inline(put.value()))).transpose();
        }
        let stripe = Stripe::of_thread();
        tree.count_lookups(stripe, 1);
        if view.version.has_spans() {
            let found = view.version.get_under_spans(&Lookup { user_key, seqno: seqno(), hash, stripe })?;
            let put = found.filter(|(tag, _)| tag.kind() == EntryKind::Put && tag.seqno() >= horizon());
            return put.map(|(tag, value)| read(tag.seqno(), value)).transpose();
        }
        let Some(newest) = view.version.candidate(user_key, hash, stripe) else { return Ok(None) };
        match view.version.get_from(newest, &Lookup { user_key, seqno: seqno(), hash, stripe }) {
            Ok(Some((tag, value))) if tag.kind() == EntryKind::Put && tag.seqno() >= horizon() => {
                read(tag.seqno(), value).map(Some)
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(in crate::db) fn moment(&self, tree: &Tree, past: Option<&Past>) -> Result<(Arc<View>, Past)> {
        loop {
            let view = tree.view();
            self.check_readable(tree)?;
            if let Some(past) = past {
                return Ok((view, *past));
            }
            let (seqno, horizon) = (self.sequence.visible(), view.version.horizon());
            // If the horizon has risen, a write up to `seqno` may depend on the higher one.
            if tree.horizon() == horizon {
                return Ok((view, Past { seqno, horizon }));
            }
        }
    }

    pub(in crate::db) fn may_contain(&self, tree: &Tree, user_key: &[u8]) -> bool {
        let view = tree.view_ref();
        let hash = key_hash(self.keyspaces.hash_seed, user_key);
        match view.get_in_memtables(user_key, hash, self.sequence.visible()) {
            Some(newest) => newest.put().is_some_and(|put| put.tag().seqno() >= view.version.horizon()),
            None => view.version.may_contain(user_key, hash),
        }
    }

    #[inline]
    pub(in crate::db) fn count_skipped(&self, tree: &Tree, skipped: u64) {
        // A forked child must not wait for a lock.
        if skipped > 0 && tree.count_skipped(skipped) && self.check_writable().is_ok() {
            self.background.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use crate::counters::{FilterCounts, Stripe};
    use crate::db::Db;
    use crate::db::handles::reads_tell::ReadsTell;
    use crate::filename::FileName;
    use crate::filter::{FilterKind, FilterPolicy, PagedFilter};
    use crate::fs::MemFs;
    use crate::hash::key_hash;
    use crate::memory::{Lease, LeaseKind};
    use crate::options::{KeyspaceOptions, Options};
    use crate::version::{Lookup, TableHandle};

    const DIR: &str = "/db";
    const KEYS: u32 = 40_000;

    fn options(fs: &MemFs, kind: FilterKind) -> Options {
        let keyspace = KeyspaceOptions::new().filter(FilterPolicy::new(kind));
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(2 << 20);
        options.default_keyspace(keyspace)
    }

    fn absent(key: u32) -> Vec<u8> {
        [&key.to_be_bytes()[..], b"x"].concat()
    }

    fn table(db: &Db) -> Arc<TableHandle> {
        let version = Arc::clone(&db.engine().keyspaces.default_tree().view().version);
        let mut tables = version.all_tables().map(|(_, table)| Arc::clone(table));
        let table = tables.next().unwrap();
        assert!(tables.next().is_none());
        table
    }

    fn open_with_room(options: Options, bytes: u64) -> (Db, Lease) {
        let db = options.open(DIR).unwrap();
        let memory = &db.engine().context.memory;
        let taken = memory.try_lease(LeaseKind::Filters, memory.room() - bytes).unwrap();
        db.open_tables().unwrap();
        (db, taken)
    }

    /// A store with one table, and memory for little more than the head of its filter.
    fn without_room(options: Options) -> (Db, Lease) {
        let (db, taken) = open_with_room(options, 24 << 10);
        let total = db.stats().keyspaces[0].total();
        assert_eq!((total.tables, total.unloaded_filters, total.paged_filters), (1, 1, 1));
        (db, taken)
    }

    fn sample(kind: FilterKind) -> MemFs {
        let fs = MemFs::new();
        let db = options(&fs, kind).memory_budget(64 << 20).open(DIR).unwrap();
        (0..KEYS).for_each(|key| db.put(key.to_be_bytes(), [1]).unwrap());
        db.compact().unwrap();
        db.close().unwrap();
        fs
    }

    /// Flips a bit in every filter page that is not read at opening.
    fn damage_pages(db: &Db, fs: &MemFs) {
        let table = table(db);
        let filter = &table.meta.filters[0];
        let name = filter.file.map_or(FileName::Table(table.meta.number), FileName::Filter);
        let path = name.path(Path::new(DIR));
        let (_, mut bytes) = fs.files(Path::new(DIR)).into_iter().find(|(file, _)| *file == path).unwrap();
        let (start, end) = (filter.offset as usize, (filter.offset + filter.len) as usize);
        let needs = PagedFilter::needs(&bytes[start..end], filter.len).unwrap();
        let is_read = |at: &usize| needs.iter().any(|part| part.contains(&((at - start) as u64)));
        let head = needs[0].end as usize;
        let pages = (start + head + 64..end).step_by(4096).filter(|at| !is_read(at));
        pages.for_each(|at| bytes[at] ^= 4);
        fs.overwrite(&path, bytes);
        db.engine().context.forget(name);
    }

    #[test]
    fn an_absent_key_reads_a_page_of_a_filter_without_room_and_no_block() {
        for (kind, most) in
            [(FilterKind::BlockedBloom, 1.0), (FilterKind::Ribbon, 1.08), (FilterKind::Bloom, 2.1)]
        {
            let fs = sample(kind);
            let (db, taken) = without_room(options(&fs, kind).audit_absent(1000));
            let lookups = 5000;
            let ask = |from: u32| {
                let before = db.stats();
                let keys = from..from + lookups;
                assert!(keys.clone().all(|key| db.get(absent(key)).unwrap().is_none()));
                let after = db.stats();
                assert!(after.memory.total() <= after.memory.budget);
                let touched = |stats: &crate::Stats| stats.data_block_reads + stats.data_block_cache_hits;
                let share = f64::from((touched(&after) - touched(&before)) as u32) / f64::from(lookups);
                assert!(share < 0.02, "{kind:?}: {share} blocks a lookup");
                let pages = after.filter_page_reads - before.filter_page_reads;
                (pages, after.filter_page_cache_hits - before.filter_page_cache_hits)
            };
            let blocks = db.engine().context.memory.blocks();
            // Without a cache, each lookup reads about one page.
            blocks.set_capacity(0);
            assert!(db.may_contain(absent(1)), "no page is in memory");
            let (reads, hits) = ask(0);
            let each = reads as f64 / f64::from(lookups);
            assert!(hits == 0 && (1.0..=most).contains(&each), "{kind:?}: {each} pages for an absent key");
            assert!(db.may_contain(absent(1)));
            // Each shard has room for all pages, so each page is read once.
            blocks.set_capacity(4 << 20);
            let pages = table(&db).meta.filters[0].len / 4096 + 2;
            let (reads, hits) = ask(10_000);
            assert!(hits >= u64::from(lookups) - reads, "{kind:?}: {reads} of {pages}");
            // A rarely needed page is read late.
            let (late, _) = ask(20_000);
            assert!(reads + late <= pages, "{kind:?}: {reads} and {late} of {pages}");
            let page_reads = db.stats().filter_page_reads;
            let denied = (20_000..20_000 + lookups).filter(|&key| !db.may_contain(absent(key))).count();
            assert!(
                denied > 4900 && (0..KEYS).all(|key| db.may_contain(key.to_be_bytes())),
                "{kind:?} {denied}"
            );
            assert_eq!(db.stats().filter_page_reads, page_reads, "of memory only");
            let keys: Vec<_> = (0..KEYS).step_by(7).map(u32::to_be_bytes).collect();
            assert!(db.multi_contains(&keys).unwrap().into_iter().all(|found| found));
            let counts = db.stats().keyspaces[0].total().filter;
            assert_eq!((counts.true_positives, counts.unfiltered_misses), (keys.len() as u64, 0));
            assert_eq!(counts.negatives + counts.false_positives, 3 * u64::from(lookups));
            assert!(db.verify().unwrap().damage.is_empty());
            // Now the filter has room: it is loaded, and no page is read.
            drop(taken);
            while db.step().unwrap() {}
            assert_eq!(db.stats().keyspaces[0].total().unloaded_filters, 0);
            assert_eq!(ask(30_000), (0, 0));
        }
    }

    #[test]
    fn column_groups_without_room_are_probed_by_pages_for_keys_that_pass_the_others() {
        let fs = sample(FilterKind::Ribbon);
        let len = {
            let db = options(&fs, FilterKind::Ribbon).open(DIR).unwrap();
            table(&db).meta.filters[0].len
        };
        for is_dropped in [false, true] {
            let options = options(&fs, FilterKind::Ribbon).audit_absent(1000);
            let room = if is_dropped { len + (8 << 10) } else { len / 8 * 7 };
            let (db, taken) = open_with_room(options, room);
            if is_dropped {
                let (tree, old) = (db.engine().keyspaces.default_tree(), table(&db));
                let shorter = old.with_column_groups(1).unwrap();
                tree.replace_handles(&[(1, old)], &[shorter]);
            }
            let total = db.stats().keyspaces[0].total();
            assert_eq!((total.filter_column_groups, total.loaded_filter_column_groups), (2, 1));
            let in_memory = total.predicted_rate.unwrap();
            let touched = |stats: &crate::Stats| {
                let pages = stats.filter_page_reads + stats.filter_page_cache_hits;
                (stats.data_block_reads + stats.data_block_cache_hits, pages)
            };
            let ask = |db: &Db, keys: std::ops::Range<u32>| {
                let (blocks, pages) = touched(&db.stats());
                let count = f64::from(keys.len() as u32);
                assert!(keys.clone().all(|key| db.get(absent(key)).unwrap().is_none()));
                let after = touched(&db.stats());
                ((after.0 - blocks) as f64 / count, (after.1 - pages) as f64 / count)
            };
            let (blocks, pages) = ask(&db, 0..20_000);
            assert!(in_memory > 0.01 && blocks < in_memory / 2.0, "{blocks} {in_memory}");
            assert!((in_memory * 0.7..in_memory * 1.4).contains(&pages), "{pages} {in_memory}");
            let counts = db.stats().keyspaces[0].total().filter;
            assert_eq!(counts.negatives + counts.false_positives, 20_000);
            assert!((0..10_000_u32).all(|key| db.contains(key.to_be_bytes()).unwrap()));
            let (_, before) = touched(&db.stats());
            assert!((10_000..12_000_u32).all(|key| db.contains(key.to_be_bytes()).unwrap()));
            assert_eq!(touched(&db.stats()).1, before);
            assert!(db.stats().memory.total() <= db.stats().memory.budget);
            db.close().unwrap();
            drop(taken);
        }

        // The first probe of a damaged page finds the damage.
        let (db, _taken) = open_with_room(options(&fs, FilterKind::Ribbon), len / 8 * 7);
        db.engine().context.memory.blocks().set_capacity(0);
        damage_pages(&db, &fs);
        assert!((0..5000).all(|key| db.get(absent(key)).unwrap().is_none()));
        assert_eq!(db.stats().unusable_filters, 1);
        assert!((0..KEYS).step_by(50).all(|key| db.contains(key.to_be_bytes()).unwrap()));
    }

    #[test]
    fn column_groups_in_memory_stay_in_use_while_the_others_cannot_be_read() {
        let fs = ReadsTell::default();
        let options = || {
            let keyspace = KeyspaceOptions::new().filter(FilterPolicy::new(FilterKind::Ribbon));
            let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0);
            options.memory_budget(2 << 20).default_keyspace(keyspace)
        };
        let db = options().memory_budget(64 << 20).open(DIR).unwrap();
        (0..KEYS).for_each(|key| db.put(key.to_be_bytes(), b"value").unwrap());
        db.compact().unwrap();
        let filter = table(&db).meta.filters[0].clone();
        db.close().unwrap();
        let filter_bytes = filter.offset..filter.offset + filter.len;

        let (db, taken) = open_with_room(options(), filter.len / 8 * 7);
        let total = db.stats().keyspaces[0].total();
        assert_eq!((total.filter_column_groups, total.loaded_filter_column_groups), (2, 1));
        fs.tell_each(move |offset| match filter_bytes.contains(&offset) {
            true => Err(io::Error::other("a page of the filter")),
            false => Ok(()),
        });
        assert!((0..5000).all(|key| db.get(absent(key)).unwrap().is_none()));
        assert_eq!(db.stats().unusable_filters, 0);
        let counts = db.stats().keyspaces[0].total().filter;
        assert_eq!(counts.negatives + counts.false_positives, 5000);
        assert!(counts.negatives > 4000 && counts.false_positives > 0, "{counts:?}");
        fs.tell(|| ());
        drop(taken);
        db.close().unwrap();
    }

    #[test]
    fn many_keys_are_answered_and_counted_like_each_alone_in_few_tables_and_in_many() {
        for (table_bytes, tables, audit) in
            [(128 << 10, 2..=8, 0), (128 << 10, 2..=8, 3), (16 << 10, 9..=100, 0), (16 << 10, 9..=100, 3)]
        {
            let fs = MemFs::new();
            let filter = FilterPolicy::new(FilterKind::Ribbon);
            let keyspace = KeyspaceOptions::new().filter(filter).table_bytes(table_bytes);
            let options = options(&fs, FilterKind::Ribbon).memory_budget(64 << 20).audit_absent(audit);
            let db = options.default_keyspace(keyspace).open(DIR).unwrap();
            (0..KEYS).for_each(|key| db.put(key.to_be_bytes(), [1]).unwrap());
            db.compact().unwrap();
            db.open_tables().unwrap();
            let found = db.stats().keyspaces[0].total().tables;
            assert!(tables.contains(&found), "{found} tables");
            let key = |number: u32| match number * 7919 % KEYS {
                key if number.is_multiple_of(3) => key.to_be_bytes().to_vec(),
                key => absent(key),
            };
            let keys: Vec<_> = (0..3000).map(key).collect();
            let counts = || db.stats().keyspaces[0].total().filter;
            let before = counts();
            let alone: Vec<bool> = keys.iter().map(|key| db.contains(key).unwrap()).collect();
            let between = counts();
            assert_eq!(db.multi_contains(&keys).unwrap(), alone);
            let after = counts();
            let of = |from: &FilterCounts, to: &FilterCounts| {
                let positives = [from, to].map(|counts| (counts.false_positives, counts.true_positives));
                let [before, after] = positives;
                (to.negatives - from.negatives, after.0 - before.0, after.1 - before.1)
            };
            let (negatives, _, true_positives) = of(&before, &between);
            assert!(negatives > 1900 && true_positives == 1000, "{negatives} {true_positives}");
            assert_eq!(of(&between, &after), of(&before, &between), "{table_bytes} {audit}");
        }
    }

    #[test]
    fn a_damaged_page_of_a_paged_filter_costs_no_answer_and_the_filter_is_rebuilt() {
        for kind in [FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon] {
            let fs = sample(kind);
            // There is enough memory to build the filter but not to keep it.
            let (db, _taken) = without_room(options(&fs, kind).memory_budget(8 << 20));
            // First the filter in the table is damaged while in use, then the separate one.
            for round in 1..=2 {
                let rebuilt = round - 1;
                damage_pages(&db, &fs);
                let blocks = db.engine().context.memory.blocks();
                blocks.set_capacity(0);
                blocks.set_capacity(256 << 10);
                assert!(!db.verify().unwrap().damage.is_empty());
                assert_eq!(db.stats().unusable_filters, rebuilt, "no lookup has met it");
                let found =
                    |key: u32| db.contains(key.to_be_bytes()).unwrap() && !db.contains(absent(key)).unwrap();
                assert!((0..KEYS - 1).step_by(3).all(found));
                let stats = db.stats();
                assert_eq!((stats.unusable_filters, stats.rebuilt_filters), (round, rebuilt));
                assert_eq!((stats.block_rereads, stats.keyspaces[0].total().unusable_filters), (round, 1));
                while db.step().unwrap() {}
                let stats = db.stats();
                let total = stats.keyspaces[0].total();
                assert_eq!(
                    (stats.rebuilt_filters, total.unusable_filters, total.paged_filters),
                    (round, 0, 1)
                );
                assert!(table(&db).meta.filters[0].file.is_some());
                assert!((0..KEYS - 1).step_by(3).all(found));
                let after = db.stats();
                assert!(after.filter_page_reads > stats.filter_page_reads && after.unusable_filters == round);
                assert!(db.verify().unwrap().damage.is_empty());
            }
        }
    }

    #[test]
    fn a_filter_found_damaged_is_not_used_by_readers_of_older_views_either() {
        for kind in [FilterKind::Bloom, FilterKind::BlockedBloom, FilterKind::Ribbon] {
            let fs = sample(kind);
            let db = options(&fs, kind).memory_budget(64 << 20).open(DIR).unwrap();
            db.open_tables().unwrap();
            let tree = db.engine().keyspaces.default_tree();
            let (view, old) = (tree.view(), table(&db));
            let finds = |key: &[u8]| {
                let hash = key_hash(db.engine().keyspaces.hash_seed, key);
                let stripe = Stripe::of_thread();
                let lookup = Lookup { user_key: key, seqno: 1 << 40, hash, stripe };
                view.version.get(&lookup).unwrap().is_some()
            };
            // Number of these keys that the filter declares absent.
            let denied = |keys: std::ops::Range<u32>| {
                let before = old.counters.counts().negatives;
                keys.for_each(|key| assert!(!finds(&absent(key))));
                old.counters.counts().negatives - before
            };
            assert!(denied(0..100) > 80, "{kind:?}");
            let paged = old.with_column_groups(0).unwrap();
            tree.replace_handles(&[(1, Arc::clone(&old))], &[paged]);
            db.engine().context.memory.blocks().set_capacity(0);
            damage_pages(&db, &fs);
            (0..100).for_each(|key| assert!(db.get(absent(key)).unwrap().is_none()));
            assert_eq!(db.stats().unusable_filters, 1);
            assert_eq!(denied(100..300), 0, "{kind:?}");
            assert!((0..KEYS - 1).step_by(100).all(|key| finds(&key.to_be_bytes())));
        }
    }

    #[test]
    fn a_filter_file_without_room_that_ends_too_early_is_damage() {
        let fs = sample(FilterKind::Ribbon);
        let (db, _taken) = without_room(options(&fs, FilterKind::Ribbon));
        let policy = FilterPolicy::new(FilterKind::BlockedBloom);
        db.default_keyspace().refilter(policy).unwrap();
        let name = FileName::Filter(table(&db).meta.filters[0].file.unwrap());
        assert!(db.get(absent(7)).unwrap().is_none());
        fs.overwrite(&name.path(Path::new(DIR)), vec![0; 8192]);
        db.engine().context.forget(name);
        assert!((0..KEYS - 1).step_by(50).all(|key| db.get(absent(key)).unwrap().is_none()));
        assert_eq!(db.stats().unusable_filters, 1);
        assert!((0..KEYS).step_by(50).all(|key| db.contains(key.to_be_bytes()).unwrap()));
    }

    #[test]
    fn in_strict_mode_a_damaged_page_is_an_error_to_its_reader() {
        let fs = sample(FilterKind::BlockedBloom);
        let (db, _taken) = without_room(options(&fs, FilterKind::BlockedBloom).strict_filters(true));
        damage_pages(&db, &fs);
        let refused = (0..100).filter(|&key| db.get(absent(key)).is_err()).count();
        assert!(refused > 90, "{refused}");
        assert!(db.get(absent(0)).unwrap_err().is_corruption());
        while db.step().unwrap() {}
        assert!((0..100).all(|key| db.get(absent(key)).unwrap().is_none()));
    }

    #[test]
    fn a_table_that_cannot_be_opened_hides_nothing_that_is_newer() {
        let fs = MemFs::new();
        let dir = Path::new("/db");
        let options = || Options::new().fs(Arc::new(fs.clone())).background_threads(0);
        let db = options().open(dir).unwrap();
        db.put("both", "old").unwrap();
        db.put("old only", "old").unwrap();
        db.flush().unwrap();
        db.put("both", "new").unwrap();
        db.put("the last", "new").unwrap();
        db.flush().unwrap();
        let version = Arc::clone(&db.engine().keyspaces.default_tree().view().version);
        let numbers: Vec<_> = version.all_tables().map(|(_, table)| table.meta.number).collect();
        assert_eq!(numbers.len(), 2);
        drop(version);
        db.close().unwrap();
        let path = FileName::Table(numbers[1]).path(dir);
        let (_, mut bytes) = fs.files(dir).into_iter().find(|(file, _)| *file == path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs.overwrite(&path, bytes);

        let db = options().open(dir).unwrap();
        for _ in 0..2 {
            assert_eq!(db.get("both").unwrap().as_deref(), Some(&b"new"[..]));
            assert_eq!(db.get("old only").unwrap_err().file(), Some(&*path));
        }
    }
}
