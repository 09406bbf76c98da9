//! Opens all tables in parallel, because each opening needs a few dependent reads. If memory is short, only the first
//! tables are opened.

use crate::db::engine::Engine;
use crate::db::state::parallel::each_in_parallel;
use crate::error::Result;

const THREADS_MAX: usize = 4;

const TABLES_A_THREAD: usize = 32;

impl Engine {
    pub(in crate::db) fn open_tables(&self) -> Result<()> {
        let views: Vec<_> = self.keyspaces.all().iter().map(|tree| tree.view()).collect();
        let tables: Vec<_> = views.iter().flat_map(|view| view.version.all_tables()).collect();
        let threads = match self.options.background_threads {
            0 => 1,
            _ => (tables.len() / TABLES_A_THREAD).clamp(1, THREADS_MAX),
        };
        each_in_parallel(tables, threads, "sievedb-open", |(_, table)| table.open().map(drop))
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::filename::FileName;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn all_tables_are_opened_but_those_that_cannot_and_the_first_of_these_is_the_error() {
        let fs = MemFs::new();
        let options = |threads| Options::new().fs(Arc::new(fs.clone())).background_threads(threads);
        let db = options(0).open("/db").unwrap();
        for number in 0..150_u32 {
            let keyspace = db.keyspace(&number.to_string(), KeyspaceOptions::new()).unwrap();
            keyspace.put("key", [1]).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        for threads in [2, 0] {
            let db = options(threads).open("/db").unwrap();
            let trees = db.engine().keyspaces.all();
            let tables = || {
                trees.iter().flat_map(|tree| {
                    let version = &tree.view().version;
                    version.all_tables().map(|(_, table)| Arc::clone(table)).collect::<Vec<_>>()
                })
            };
            assert_eq!(tables().count(), 150);
            assert!(tables().all(|table| table.if_open().is_none()));
            let paths: Vec<_> =
                tables().map(|table| FileName::Table(table.meta.number).path(Path::new("/db"))).collect();
            let files = fs.files(Path::new("/db"));
            let damaged = [149, 70, 77, 148].map(|number: usize| &paths[number]);
            let overwrite = |path: &Path, bytes| {
                fs.overwrite(path, bytes);
                tables().for_each(|table| db.engine().context.forget(FileName::Table(table.meta.number)));
            };
            for path in damaged {
                let (_, mut bytes) = files.iter().find(|(file, _)| file == path).unwrap().clone();
                *bytes.last_mut().unwrap() ^= 1;
                overwrite(path, bytes);
            }
            assert_eq!(db.open_tables().unwrap_err().file(), Some(&*paths[70]));
            let closed = tables().enumerate().filter(|(_, table)| table.if_open().is_none());
            assert!(closed.map(|(number, _)| number).eq([70, 77, 148, 149]));
            for path in damaged {
                let (_, bytes) = files.iter().find(|(file, _)| file == path).unwrap().clone();
                overwrite(path, bytes);
            }
            db.open_tables().unwrap();
            assert!(tables().all(|table| table.if_open().is_some()));
            db.close().unwrap();
        }
    }
}
