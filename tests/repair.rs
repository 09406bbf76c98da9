//! A store is damaged in listed ways, and repaired. After any damage:
//!
//! - Up to the reported sequence number of a keyspace, no value in it was replaced or deleted.
//! - A key with a value in the old store has it in the new one, or is in a range reported as lost or doubtful, unless its first
//!   write is in the lost part of a log.
//! - A doubtful value was written to its key at some time.
//! - The damaged store is unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use sievedb::fs::{CrashPolicy, Fs as _, MemFs};
use sievedb::{Db, KeyspaceOptions, ManifestCondition, RepairReport, Snapshot};

use crate::support::rng::Rng;
use crate::support::store::{self, DIR, contents};

const NEW: &str = "/new";

const KEYS: u64 = 150;

type Files = BTreeMap<String, Vec<u8>>;

/// Writes by sequence number; `None` deletes.
type Writes = Vec<(u64, Option<Vec<u8>>)>;

struct Model {
    files: Files,
    replaced: Files,
    history: BTreeMap<(String, Vec<u8>), Writes>,
}

struct Maker {
    fs: MemFs,
    db: Option<Db>,
    rng: Rng,
    count: u64,
    snapshots: Vec<Snapshot>,
    model: Model,
}

impl Maker {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn write(&mut self) {
        let name = if self.rng.one_in(3) { "users" } else { "default" };
        let key = format!("key {:03}", self.rng.below(KEYS)).into_bytes();
        self.count += 1;
        let long = self.rng.one_in(60);
        let value = (!self.rng.one_in(4)).then(|| {
            let mut value = format!("value {} of {name} ", self.count).into_bytes();
            value.resize(if long { 40_000 } else { 30 + self.rng.below(30) as usize }, b'.');
            value
        });
        let keyspace = self.db().existing_keyspace(name).unwrap();
        match &value {
            Some(value) => keyspace.put(&key, value).unwrap(),
            None => keyspace.delete(&key).unwrap(),
        }
        let seqno = self.db().snapshot().seqno();
        self.model.history.entry((name.to_owned(), key)).or_default().push((seqno, value));
    }

    fn reopen(&mut self) {
        self.snapshots.clear();
        self.db.take().expect("open").close().unwrap();
        self.db = Some(store::open(&self.fs).unwrap());
    }

    fn keep_tables(&mut self) {
        let tables = store::files(&self.fs).into_iter().filter(|(name, _)| name.ends_with(".sst"));
        self.model.replaced.extend(tables);
    }

    fn operation(&mut self) {
        match self.rng.below(100) {
            0..80 => self.write(),
            80..92 => drop(self.db().step().unwrap()),
            92 => self.db().settle().unwrap(),
            93 => self.db().flush().unwrap(),
            94 => self.db().sync().unwrap(),
            95 => self.snapshots.push(self.db().snapshot()),
            96 => self.snapshots.clear(),
            97 => self.keep_tables(),
            98 if self.rng.one_in(8) => self.reopen(),
            98 => {}
            _ if self.rng.one_in(6) => self.db().compact().unwrap(),
            _ => {}
        }
    }
}

impl Model {
    fn make(seed: u64, is_closed: bool) -> Self {
        let fs = MemFs::new();
        let db = store::open(&fs).unwrap();
        db.keyspace("users", store::small().memtable_bytes(2 << 10)).unwrap();
        let dropped = db.keyspace("dropped", store::small()).unwrap();
        (0..KEYS).for_each(|n| dropped.put(format!("key {n:03}"), "must not come back").unwrap());
        dropped.flush().unwrap();
        let model = Self { files: Files::new(), replaced: Files::new(), history: BTreeMap::new() };
        let (rng, snapshots) = (Rng::new(seed), Vec::new());
        let mut maker = Maker { fs, db: Some(db), rng, count: 0, snapshots, model };
        maker.keep_tables();
        maker.db().drop_keyspace("dropped").unwrap();
        maker.reopen();
        (0..600).for_each(|_| maker.operation());
        maker.snapshots.clear();
        maker.db().sync().unwrap();
        let Maker { fs, db, mut model, .. } = maker;
        if is_closed {
            db.unwrap().close().unwrap();
            model.files = store::files(&fs);
        } else {
            model.files = store::files(&fs.crash(CrashPolicy::KeepAll));
        }
        model.replaced.retain(|name, _| !model.files.contains_key(name));
        model
    }

    fn fs(files: &Files) -> MemFs {
        let fs = MemFs::new();
        fs.create_dir(Path::new(DIR)).unwrap();
        for (name, bytes) in files {
            fs.overwrite(&Path::new(DIR).join(name), bytes.clone());
        }
        fs
    }

    fn last(&self) -> u64 {
        self.history.values().flatten().map(|write| write.0).max().unwrap_or(0)
    }

    fn keys(&self) -> u64 {
        self.history.values().filter(|writes| writes.last().unwrap().1.is_some()).count() as u64
    }

    fn repair(&self, files: &Files) -> Result<RepairReport, String> {
        let fs = Self::fs(files);
        let before = store::files(&fs);
        let options = || store::options(&fs).default_keyspace(KeyspaceOptions::new());
        let report = options().repair(DIR, NEW).map_err(|error| error.to_string())?;
        if store::files(&fs) != before {
            return Err("the damaged store was changed".into());
        }
        let db = options().open(NEW).map_err(|error| format!("the new store: {error}"))?;
        let verified = db.verify().map_err(|error| error.to_string())?;
        if !verified.damage.is_empty() {
            return Err(format!("the new store is damaged: {:?}", verified.damage));
        }
        self.compare(&db, &report).map_err(|wrong| format!("{wrong}\n{report:#?}"))?;
        Ok(report)
    }

    fn compare(&self, db: &Db, report: &RepairReport) -> Result<(), String> {
        let found = contents(db)?;
        for (name, entries) in &found {
            if let Some(of) = name.strip_prefix("doubtful") {
                let of = if of.is_empty() { "default" } else { &of[1..] };
                for (key, value) in entries {
                    let writes = self.history.get(&(of.to_owned(), key.to_vec()));
                    let is_known = writes.is_some_and(|writes| {
                        writes.iter().any(|(_, written)| written.as_deref() == Some(&value[..]))
                    });
                    if !is_known && of != "dropped" && of != "unknown" {
                        return Err(format!(
                            "{name} has a value of {} that was never written",
                            store::show(key)
                        ));
                    }
                }
                continue;
            }
            let of = report.keyspaces.iter().find(|of| of.name == *name);
            let as_of = of.map_or(Some(u64::MAX), |of| of.as_of).expect("a number for what is certain");
            for (key, value) in entries {
                if !self.is_newest(name, key, value, as_of) {
                    let (key, value) = (store::show(key), store::show(value));
                    return Err(format!("{name} has {value} of {key}, which was replaced up to {as_of}"));
                }
            }
        }
        for ((name, key), _) in self.history.iter().filter(|(_, writes)| writes.last().unwrap().1.is_some()) {
            let kept = found.get(name).and_then(|entries| entries.get(&key[..]));
            let is_doubtful = report.doubtful.iter().any(|range| {
                range.keyspace.as_deref().is_none_or(|of| of == name)
                    && range.first <= *key
                    && *key <= range.last
            });
            if kept.is_none()
                && !is_doubtful
                && !report.may_have_lost(name, key)
                && !self.was_lost(report, name, key)
            {
                return Err(format!("{} of {name} is gone, and not reported", store::show(key)));
            }
        }
        Ok(())
    }

    fn is_newest(&self, keyspace: &str, key: &[u8], value: &[u8], as_of: u64) -> bool {
        let Some(writes) = self.history.get(&(keyspace.to_owned(), key.to_vec())) else { return false };
        let written = writes.iter().rposition(|(_, written)| written.as_deref() == Some(value));
        written.is_some_and(|at| writes[at + 1..].iter().all(|(seqno, _)| *seqno > as_of))
    }

    /// Whether the lost part of the logs had the newest write, and the key had no value before it.
    fn was_lost(&self, report: &RepairReport, keyspace: &str, key: &[u8]) -> bool {
        let writes = &self.history[&(keyspace.to_owned(), key.to_vec())];
        report.lost_writes.iter().any(|lost| {
            let (first, last) = (lost.seqnos.0, lost.seqnos.1.unwrap_or(u64::MAX));
            let before = writes.iter().rfind(|(seqno, _)| *seqno < first);
            before.is_none_or(|(_, value)| value.is_none())
                && writes.last().is_some_and(|(seqno, _)| (first..=last).contains(seqno))
        })
    }
}

fn name_of(files: &Files, is: impl Fn(&str) -> bool, rng: &mut Rng) -> Option<String> {
    let names: Vec<&String> = files.keys().filter(|name| is(name)).collect();
    if names.is_empty() { None } else { Some(names[rng.below(names.len() as u64) as usize].clone()) }
}

fn is_table(name: &str) -> bool {
    name.ends_with(".sst")
}

fn is_log(name: &str) -> bool {
    name.ends_with(".wal")
}

fn is_manifest(name: &str) -> bool {
    name.starts_with("MANIFEST")
}

fn data_end(table: &[u8]) -> usize {
    let footer = &table[table.len() - 128..];
    let of = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    if of(32) == 0 { of(0) } else { of(32) - 4096.min(of(32)) }.clamp(65, table.len() - 128)
}

type Damage = fn(&mut Files, &Model, &mut Rng) -> Option<()>;

const DAMAGES: [(&str, Damage); 12] = [
    ("a footer is cut", |files, _, rng| {
        let name = name_of(files, is_table, rng)?;
        let table = files.get_mut(&name)?;
        table.truncate(table.len().saturating_sub(1 + rng.below(200) as usize));
        Some(())
    }),
    ("an index and all behind it is zeros", |files, _, rng| {
        let name = name_of(files, is_table, rng)?;
        let table = files.get_mut(&name).filter(|table| table.ends_with(b"\x89SVTBL\r\n"))?;
        let footer = table.len() - 128;
        let root = u64::from_le_bytes(table[footer..footer + 8].try_into().unwrap()) as usize;
        table.get_mut(root..)?.fill(0);
        Some(())
    }),
    ("a data block has a wrong bit", |files, _, rng| {
        let name = name_of(files, is_table, rng)?;
        let table = files.get_mut(&name).filter(|table| table.ends_with(b"\x89SVTBL\r\n"))?;
        let end = data_end(table);
        table[64 + rng.below(end as u64 - 64) as usize] ^= 1 << rng.below(8);
        Some(())
    }),
    ("a table loses its first bytes", |files, _, rng| {
        let name = name_of(files, is_table, rng)?;
        files.get_mut(&name)?.iter_mut().take(100 + rng.below(400) as usize).for_each(|byte| *byte = 0);
        Some(())
    }),
    ("a table that was replaced is back", |files, model, rng| {
        let name = name_of(&model.replaced, |_| true, rng)?;
        let table = model.replaced[&name].clone();
        files.insert(name, table).map_or(Some(()), |_| Some(()))
    }),
    ("the manifest is missing", |files, _, rng| {
        let name = name_of(files, is_manifest, rng)?;
        files.remove(&name).map(drop)
    }),
    ("the manifest has lost its end", |files, _, rng| {
        let name = name_of(files, is_manifest, rng)?;
        let manifest = files.get_mut(&name)?;
        let least = manifest.len() as u64 / 3;
        manifest.truncate((least + rng.below(manifest.len() as u64 - least)) as usize);
        Some(())
    }),
    ("the manifest has a wrong bit", |files, _, rng| {
        let name = name_of(files, is_manifest, rng)?;
        let manifest = files.get_mut(&name)?;
        let at = rng.below(manifest.len() as u64) as usize;
        manifest[at] ^= 4;
        Some(())
    }),
    ("CURRENT is missing", |files, _, _| files.remove("CURRENT").map(drop)),
    ("a log is damaged in the middle", |files, _, rng| {
        let name = name_of(files, is_log, rng)?;
        let log = files.get_mut(&name).filter(|log| log.len() > 200)?;
        let at = 64 + rng.below(log.len() as u64 - 164) as usize;
        log[at..at + 40].fill(0x55);
        Some(())
    }),
    ("a filter beside a table is back", |files, _, _| {
        files.insert("000001.filter".into(), b"nothing".to_vec()).map_or(Some(()), |_| Some(()))
    }),
    ("a table is missing", |files, model, rng| {
        if model.files.iter().any(|(name, bytes)| is_manifest(name) && files.get(name) != Some(bytes)) {
            return None;
        }
        let name = name_of(files, is_table, rng)?;
        files.remove(&name).map(drop)
    }),
];

fn run(seed: u64, damages: &[usize]) {
    let model = Model::make(seed, seed.is_multiple_of(2));
    let mut rng = Rng::new(seed ^ 0xda_4a6e);
    let mut files = model.files.clone();
    let mut names = Vec::new();
    let mut damages = damages.to_vec();
    damages.sort_unstable();
    for index in damages {
        let (name, damage) = DAMAGES[index];
        if damage(&mut files, &model, &mut rng).is_some() {
            names.push(name);
        }
    }
    if let Err(wrong) = model.repair(&files) {
        panic!("seed {seed}, {names:?}: {wrong}");
    }
}

#[test]
fn a_store_that_is_intact_is_repaired_into_the_same() {
    for seed in 0..6 {
        let model = Model::make(seed, seed % 2 == 0);
        let report = model.repair(&model.files).unwrap();
        assert!(report.is_complete(), "seed {seed}: {report:#?}");
        assert_eq!(report.manifest, ManifestCondition::Whole);
        assert_eq!(report.certain_keys(), model.keys());
        for keyspace in &report.keyspaces {
            assert_eq!(keyspace.as_of, Some(model.last()), "{}", keyspace.name);
        }
    }
}

fn reports_of(damage: &str) -> Vec<(Model, RepairReport)> {
    let damage = DAMAGES.iter().find(|(name, _)| *name == damage).expect("a damage").1;
    let reports = (0..4).filter_map(|seed| {
        let (model, mut rng) = (Model::make(seed, seed % 2 == 0), Rng::new(seed));
        let mut files = model.files.clone();
        damage(&mut files, &model, &mut rng)?;
        let report = model.repair(&files).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        Some((model, report))
    });
    let reports: Vec<_> = reports.collect();
    assert!(!reports.is_empty());
    reports
}

#[test]
fn without_current_an_index_or_a_footer_nothing_is_lost() {
    for damage in [
        "a footer is cut",
        "an index and all behind it is zeros",
        "a table that was replaced is back",
        "CURRENT is missing",
        "a filter beside a table is back",
    ] {
        for (model, report) in reports_of(damage) {
            assert!(report.is_complete(), "{damage}: {report:#?}");
            assert_eq!(report.certain_keys(), model.keys(), "{damage}");
        }
    }
}

#[test]
fn damage_in_one_table_leaves_the_keys_of_the_others_certain() {
    for damage in ["a data block has a wrong bit", "a table loses its first bytes", "a table is missing"] {
        for (model, report) in reports_of(damage) {
            assert!(!report.is_complete(), "{damage}");
            let (certain, keys) = (report.certain_keys(), model.keys());
            assert!(certain * 10 > keys * 4, "{damage}: {certain} of {keys}\n{report:#?}");
        }
    }
}

#[test]
fn without_a_manifest_all_is_doubtful_and_nothing_is_lost() {
    for (model, report) in reports_of("the manifest is missing") {
        assert_eq!((report.manifest, report.certain_keys()), (ManifestCondition::Lost, 0));
        let values: u64 = report.keyspaces.iter().map(|keyspace| keyspace.keys).sum();
        assert!(values >= model.keys(), "{values} of {}: {report:#?}", model.keys());
    }
}

#[test]
fn a_store_larger_than_the_memory_budget_is_repaired() {
    let fs = MemFs::new();
    let db = store::options(&fs).default_keyspace(KeyspaceOptions::new()).open(DIR).unwrap();
    let mut rng = Rng::new(1);
    for n in 0..3000u64 {
        db.put(format!("key {:05}", n * 7919 % 3000), rng.bytes(1000)).unwrap();
    }
    db.close().unwrap();
    fs.overwrite(&Path::new(DIR).join("CURRENT"), Vec::new());
    assert!(store::files(&fs).values().map(Vec::len).sum::<usize>() > 2 << 20);
    let options = || store::options(&fs).default_keyspace(KeyspaceOptions::new());
    let report = options().repair(DIR, NEW).unwrap();
    assert!(report.is_complete() && report.certain_keys() == 3000, "{report:#?}");
    let (old, new) = (options().read_only(), options().open(NEW).unwrap());
    assert!(old.open(DIR).is_err());
    assert_eq!(new.iter().count(), 3000);
}

#[test]
fn after_each_damage_certain_values_are_right_and_the_rest_is_reported() {
    for damage in 0..DAMAGES.len() {
        for seed in 0..4 {
            run(seed + 100 * damage as u64, &[damage]);
        }
    }
}

#[test]
fn after_all_damages_at_once_certain_values_are_right_and_the_rest_is_reported() {
    let all: Vec<usize> = (0..DAMAGES.len()).collect();
    (0..4).for_each(|seed| run(10_000 + seed, &all));
}

#[test]
fn after_any_damages_certain_values_are_right_and_the_rest_is_reported() {
    let first = std::env::var("SIEVEDB_SEED").map_or(20_000, |seed| seed.parse().expect("a number"));
    let seeds = if std::env::var_os("SIEVEDB_THOROUGH").is_some() { 400 } else { 20 };
    for seed in (first..first + seeds).chain([20_011, 20_229, 40_005, 50_231]) {
        let mut rng = Rng::new(seed);
        let damages: Vec<usize> =
            (0..1 + rng.below(5)).map(|_| rng.below(DAMAGES.len() as u64) as usize).collect();
        run(seed, &damages);
    }
}
