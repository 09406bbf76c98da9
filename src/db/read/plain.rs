//! Compares every kind of lookup with a model and with a plain search of all tables.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::counters::Stripe;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::snapshot::Snapshot;
use crate::db::handles::store::Db;
use crate::filename::FileName;
use crate::filter::{FilterKind, FilterPolicy};
use crate::fs::MemFs;
use crate::hash::key_hash;
use crate::iter::EntryValue;
use crate::key::{SeqNo, Tag};
use crate::memory::LeaseKind;
use crate::merge::vec_iter::Random;
use crate::options::{KeyspaceOptions, Options};
use crate::version::{Lookup, Lookups, Set, TOGETHER, Version};

const DIR: &str = "/db";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Found = Option<(Tag, Vec<u8>)>;

fn found((tag, value): (Tag, EntryValue)) -> (Tag, Vec<u8>) {
    (tag, value.read().unwrap().to_vec())
}

fn plain(version: &Version, user_key: &[u8], seqno: SeqNo) -> Found {
    let mut tables = version.all_tables();
    tables.find_map(|(_, table)| table.open().unwrap().get(user_key, seqno).unwrap()).map(found)
}

/// Returns the number of keys found only in tables.
fn check(
    db: &Db,
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    model: &Model,
    snapshots: &[(Snapshot, Model)],
) -> usize {
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    let bytes = |value: Option<crate::Value>| value.map(|value| value.to_vec());
    for (key, expected) in keys.iter().zip(&expected) {
        assert_eq!(&bytes(keyspace.get(key).unwrap()), expected, "{key:?}");
        assert_eq!(keyspace.contains(key).unwrap(), expected.is_some(), "{key:?}");
        assert!(keyspace.may_contain(key) || expected.is_none(), "{key:?}");
    }
    let values: Vec<_> = keyspace.multi_get(keys).unwrap().into_iter().map(bytes).collect();
    assert_eq!(values, expected);
    let present: Vec<_> = expected.iter().map(Option::is_some).collect();
    assert_eq!(keyspace.multi_contains(keys).unwrap(), present);
    for (snapshot, model) in snapshots {
        let snapshot = snapshot.keyspace(keyspace);
        let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
        let values: Vec<_> = snapshot.multi_get(keys).unwrap().into_iter().map(bytes).collect();
        assert_eq!(values, expected);
        for (key, expected) in keys.iter().zip(&expected) {
            assert_eq!(&bytes(snapshot.get(key).unwrap()), expected, "{key:?}");
        }
    }

    let view = keyspace.tree.view();
    let last = db.engine().sequence.visible();
    let mut in_tables = 0;
    for seqno in [last, last / 2, 1] {
        let lookup = |user_key| {
            let hash = key_hash(db.engine().keyspaces.hash_seed, user_key);
            Lookup { user_key, seqno, hash, stripe: Stripe::of_thread() }
        };
        let expected: Vec<_> = keys.iter().map(|key| plain(&view.version, key, seqno)).collect();
        for (key, expected) in keys.iter().zip(&expected) {
            assert_eq!(&view.version.get(&lookup(key)).unwrap().map(found), expected, "{key:?} at {seqno}");
        }
        for (keys, expected) in keys.chunks(TOGETHER).zip(expected.chunks(TOGETHER)) {
            let lookups: Vec<_> = keys.iter().map(|key| lookup(key)).collect();
            let user_keys: Vec<_> = lookups.iter().map(|lookup| lookup.user_key).collect();
            let hashes: Vec<_> = lookups.iter().map(|lookup| lookup.hash).collect();
            let stripe = Stripe::of_thread();
            let lookups = Lookups { user_keys: &user_keys, hashes: &hashes, seqno, stripe };
            let mut entries: Vec<Found> = vec![None; keys.len()];
            let mut put = |number: usize, entry| {
                assert!(entries[number].replace(found(entry)).is_none(), "a key is found once");
                Ok(())
            };
            view.version.get_many(&lookups, Set::below(keys.len()), &mut put).unwrap();
            assert_eq!(entries, expected, "at {seqno}");
        }
        in_tables += expected.iter().flatten().count();
    }
    in_tables
}

fn around_fences(keyspace: &Keyspace) -> Vec<Vec<u8>> {
    let view = keyspace.tree.view();
    let bounds = view.version.all_tables().flat_map(|(_, table)| {
        let meta = &table.meta;
        [meta.smallest.to_vec(), meta.largest.to_vec()]
    });
    let around = bounds.flat_map(|bound| {
        let shorter = bound[..bound.len().saturating_sub(1)].to_vec();
        let longer = [&bound[..], b"\0"].concat();
        let (mut below, mut above) = (bound.clone(), bound.clone());
        if let (Some(below), Some(above)) = (below.last_mut(), above.last_mut()) {
            (*below, *above) = (below.wrapping_sub(1), above.wrapping_add(1));
        }
        [bound, shorter, longer, below, above]
    });
    around.collect()
}

fn damage_filters(fs: &MemFs, keyspace: &Keyspace) {
    for (_, table) in keyspace.tree.view().version.all_tables().step_by(2) {
        for filter in &table.meta.filters {
            let name = filter.file.map_or(FileName::Table(table.meta.number), FileName::Filter);
            let path = name.path(Path::new(DIR));
            let (_, mut bytes) =
                fs.files(Path::new(DIR)).into_iter().find(|(file, _)| *file == path).unwrap();
            bytes[(filter.offset + filter.len / 2) as usize] ^= 4;
            fs.overwrite(&path, bytes);
        }
    }
}

#[test]
fn every_lookup_finds_what_a_plain_walk_over_all_tables_finds() {
    let mut random = Random(29);
    let (mut in_tables, mut runs, mut tables, mut unusable, mut without_room) = (0, 0, 0, 0, 0);
    for round in 0..40 {
        let kinds = [
            FilterKind::Auto,
            FilterKind::Ribbon,
            FilterKind::BlockedBloom,
            FilterKind::Bloom,
            FilterKind::None,
        ];
        let commons: [&[u8]; 5] = [b"", b"k", b"https://example.org/a/b/", b"\0\0", &[b'x'; 1100]];
        let (kind, common) = (kinds[round % 5], commons[round / 5 % 5]);
        let letters = [2, 9, 14][round % 3];
        let fs = MemFs::new();
        let keyspace_options =
            KeyspaceOptions::new().filter(FilterPolicy::new(kind)).block_bytes(512).table_bytes(2 << 10);
        let keyspace_options = KeyspaceOptions { l0_runs: [4, 40][round % 2], ..keyspace_options };
        let options = Options::new().fs(Arc::new(fs.clone())).background_threads(0).memory_budget(4 << 20);
        let options = options.audit_absent([0, 0, 3][round % 3]);
        let db = options.clone().open(DIR).unwrap();
        let keyspace = db.keyspace("keyspace", keyspace_options).unwrap();

        let mut pool: Vec<Vec<u8>> = (0..150)
            .map(|_| {
                let len = random.below(letters + 1);
                let letters = (0..len).map(|_| [0, b'a', b'b', 0xff][random.below(4) as usize]);
                common.iter().copied().chain(letters).collect()
            })
            .collect();
        pool.push(Vec::new());
        let (mut model, mut snapshots) = (Model::new(), Vec::new());
        let many_runs = round % 10 == 9;
        for phase in 0..if many_runs { 16 } else { 1 + random.below(6) } {
            for write in 0..20 + random.below(60) {
                let key = &pool[if write == 0 { 150 } else { random.below(100) as usize }];
                if random.below(4) == 0 {
                    keyspace.delete(key).unwrap();
                    model.remove(key);
                } else {
                    let value = format!("{phase} {write} {:40}", "").into_bytes();
                    keyspace.put(key, &value).unwrap();
                    model.insert(key.clone(), value);
                }
                db.put(&pool[random.below(150) as usize], "of another keyspace").unwrap();
            }
            if random.below(4) == 0 {
                snapshots.push((db.snapshot(), model.clone()));
            }
            match if many_runs { 4 } else { random.below(5) } {
                0 => keyspace.compact().unwrap(),
                1 => while db.step().unwrap() {},
                2 => {}
                _ => db.flush().unwrap(),
            }
        }
        let view = keyspace.tree.view();
        runs = runs.max(view.version.all_runs().count());
        tables = tables.max(view.version.all_runs().map(|(_, run)| run.tables.len()).max().unwrap_or(0));
        drop(view);
        let around = around_fences(&keyspace);
        pool.extend(around.iter().step_by(1 + around.len() / 300).cloned());
        in_tables += check(&db, &keyspace, &pool, &model, &snapshots);

        snapshots.clear();
        drop(keyspace);
        db.close().unwrap();
        let db = options.clone().open(DIR).unwrap();
        let keyspace = db.existing_keyspace("keyspace").unwrap();
        let memory = &db.engine().context.memory;
        let taken = memory.try_lease(LeaseKind::Filters, memory.room().saturating_sub(random.below(20_000)));
        check(&db, &keyspace, &pool, &model, &[]);
        let stats = db.stats();
        let total = stats.keyspaces.iter().find(|stats| stats.name == "keyspace").unwrap().total();
        without_room += total.unloaded_filters + total.tables - total.open_tables;
        drop(taken);

        db.flush().unwrap();
        damage_filters(&fs, &keyspace);
        drop(keyspace);
        db.close().unwrap();
        let db = options.open(DIR).unwrap();
        let keyspace = db.existing_keyspace("keyspace").unwrap();
        check(&db, &keyspace, &pool, &model, &[]);
        unusable += db.stats().unusable_filters;
        while db.step().unwrap() {}
        check(&db, &keyspace, &pool, &model, &[]);
    }
    assert!(in_tables > 5000 && runs > 8 && tables >= 4, "{in_tables} {runs} {tables}");
    assert!(unusable > 20 && without_room > 20, "{unusable} {without_room}");
}
