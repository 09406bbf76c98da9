//! The shape of an open store.

use std::collections::HashMap;
use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::handles::store::Db;
use crate::error::Result;
use crate::filename::FileName;
use crate::inspect::tree::{Residency, Tree};
use crate::version::TableHandle;

impl Db {
    /// The present shape of the store, without memtables: keyspaces, levels, runs, tables with filters and
    /// [`Residency`].
    ///
    /// O(tables). Reads filter headers but opens no tables. Writers continue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = sievedb::Db::open(dir.path())?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// let tree = db.tree()?;
    /// let table = &tree.keyspaces[0].runs[0].tables[0];
    /// assert_eq!((table.keys, &table.smallest[..]), (1, &b"k"[..]));
    /// assert!(table.residency.is_some());
    /// # Ok::<(), sievedb::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed); [`Error::Io`](crate::Error::Io) if the directory of a read-only store
    /// cannot be read. [`Tree::damage`] lists damage.
    pub fn tree(&self) -> Result<Tree> {
        self.engine().tree()
    }
}

impl Engine {
    fn tree(&self) -> Result<Tree> {
        self.lifecycle.check_open()?;
        let (fs, dir) = (&*self.files.fs, &*self.files.dir);
        let guard = self.manifest.lock();
        let state = guard
            .as_ref()
            .map(|manifest| (FileName::Manifest(manifest.number()).path(dir), manifest.state().clone()));
        let views: Vec<_> = self.keyspaces.all().iter().map(|tree| tree.view()).collect();
        drop(guard);
        let mut tree = match state {
            Some((manifest, state)) => Tree::of(fs, dir, manifest, &state),
            None => Tree::read(fs, dir)?,
        };
        let tables = views.iter().flat_map(|view| view.version.all_tables());
        let tables: HashMap<u64, &Arc<TableHandle>> =
            tables.map(|(_, table)| (table.meta.number, table)).collect();
        let shapes = tree.keyspaces.iter_mut().flat_map(|keyspace| &mut keyspace.runs);
        for shape in shapes.flat_map(|run| &mut run.tables) {
            shape.residency = tables.get(&shape.number).map(|table| residency(table));
        }
        Ok(tree)
    }
}

fn residency(table: &TableHandle) -> Residency {
    let state = table.filter.state();
    let header = state.and_then(|state| state.header());
    Residency {
        is_open: table.if_open().is_some(),
        filter_column_groups: header.map_or(0, |header| header.column_group_count() as u64),
        loaded_filter_column_groups: state.map_or(0, |state| state.column_groups() as u64),
        filter_memory_bytes: table.filter.memory_bytes(),
        filter: table.counters.counts(),
    }
}

#[cfg(test)]
mod tests {
    use crate::inspect::tree::{RunShape, TableShape};
    use crate::{Db, KeyspaceOptions, Options};

    fn store(dir: &std::path::Path) -> Db {
        let small = KeyspaceOptions::new().memtable_bytes(64 << 10).table_bytes(64 << 10);
        let db = Options::new().background_threads(0).default_keyspace(small).open(dir).unwrap();
        for n in 0..5000u64 {
            db.put(format!("key{:06}", n * 7919 % 5000), [b'v'; 40]).unwrap();
            while n.is_multiple_of(500) && db.step().unwrap() {}
        }
        db.flush().unwrap();
        db
    }

    fn tables(runs: &[RunShape]) -> impl Iterator<Item = &TableShape> {
        runs.iter().flat_map(|run| &run.tables)
    }

    #[test]
    fn the_shape_of_an_open_store_is_that_of_its_statistics() {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path());
        db.open_tables().unwrap();
        assert_eq!(db.get("key000000?").unwrap(), None);
        let (tree, stats) = (db.tree().unwrap(), db.stats());
        assert!(tree.damage.is_empty() && tree.keyspaces.len() == 1, "{tree:?}");
        let (runs, total) = (&tree.keyspaces[0].runs, stats.keyspaces[0].total());
        assert_eq!((runs.len() as u64, tables(runs).count() as u64), (total.runs, total.tables));
        assert!(total.tables > 1);
        assert_eq!(tables(runs).map(|table| table.entries).sum::<u64>(), total.entries);
        let states = || tables(runs).map(|table| table.residency.unwrap());
        assert_eq!(states().map(|state| state.filter_memory_bytes).sum::<u64>(), total.filter_memory_bytes);
        assert_eq!(
            states().map(|state| state.loaded_filter_column_groups).sum::<u64>(),
            total.loaded_filter_column_groups
        );
        assert_eq!(states().map(|state| state.filter.probes()).sum::<u64>(), total.filter.probes());
        assert!(states().all(|state| state.is_open) && total.filter.probes() > 0);
        db.close().unwrap();

        let db = Options::new().read_only().open(dir.path()).unwrap();
        let tree = db.tree().unwrap();
        assert!(tree.manifest.exists());
        let runs = &tree.keyspaces[0].runs;
        assert_eq!(tables(runs).count() as u64, total.tables);
        assert!(tables(runs).all(|table| table.residency.is_some_and(|state| !state.is_open)));
    }

    #[test]
    fn the_shape_has_no_damage_while_tables_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let db = store(dir.path());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..3000u64 {
                    db.put(format!("key{:06}", n * 31 % 5000), [b'w'; 40]).unwrap();
                    if n.is_multiple_of(300) {
                        db.compact().unwrap();
                    }
                }
            });
            let mut shapes = 0;
            while shapes < 3 || !writer.is_finished() {
                let tree = db.tree().unwrap();
                assert!(tree.damage.is_empty(), "{:?}", tree.damage);
                shapes += 1;
            }
            writer.join().unwrap();
        });
    }
}
