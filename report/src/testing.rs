//! Shapes for tests, modelled on a real store.

use std::sync::OnceLock;

use sievedb::filter::Kind;
use sievedb::inspect::tree::{KeyspaceShape, RunShape, TableShape, Tree};

fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let db = sievedb::Options::new().background_threads(0).open(dir.path()).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        let mut tree = db.tree().unwrap();
        let tables =
            tree.keyspaces.iter_mut().flat_map(|keyspace| &mut keyspace.runs).flat_map(|run| &mut run.tables);
        tables.for_each(|table| table.residency = None);
        tree
    })
}

pub(crate) fn table(number: u64, keys: u64) -> TableShape {
    let mut table = tree().keyspaces[0].runs[0].tables[0].clone();
    (table.number, table.keys, table.entries, table.bytes) = (number, keys, keys, 100 * keys);
    (table.smallest, table.largest) = (format!("key{number:06}").into(), format!("key{number:06}z").into());
    table.filters[0].bytes = 10 * keys / 8;
    table.filters[0].found = Some((Kind::Ribbon, 0.001));
    table
}

pub(crate) fn keyspace(name: &str, runs: Vec<(u8, Vec<TableShape>)>) -> KeyspaceShape {
    let mut keyspace = tree().keyspaces[0].clone();
    let run = &keyspace.runs[0];
    let runs = runs.into_iter().enumerate().map(|(number, (level, tables))| {
        let mut run: RunShape = run.clone();
        (run.level, run.run, run.tables) = (level, number as u64, tables);
        run
    });
    (keyspace.runs, keyspace.name) = (runs.collect(), name.into());
    keyspace
}

pub(crate) fn tree_of(keyspaces: Vec<KeyspaceShape>) -> Tree {
    let mut tree = tree().clone();
    tree.keyspaces = keyspaces;
    tree
}
