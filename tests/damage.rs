//! Flips every bit of a small store, and cuts every file at every length, lengthens it, deletes it and exchanges it.
//! Runs a sample unless `SIEVEDB_THOROUGH` is set (`support::sample`).
//!
//! In the *closed* store, every lookup returns the right answer or an error that names a file. The *crashed* store was
//! copied while open. Damage after the last sync of its log may leave a prefix of the writes; `OpenReport` lists the
//! dropped bytes. A damaged filter changes no answer, counts as unusable, and is named by `verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use sievedb::filter::Header;
use sievedb::filter::header::HEADER_BYTES;
use sievedb::fs::{CrashPolicy, MemFs};
use sievedb::{Db, Durability, FilterKind, FilterPolicy, WriteBatch};

use crate::support::history::{History, Write};
use crate::support::parallel::cases;
use crate::support::rng::Rng;
use crate::support::sample;
use crate::support::store::{self, Contents, DIR, Findings, contents, examine};

struct Sample {
    files: BTreeMap<String, Vec<u8>>,
    history: History,
    newest: Contents,
    /// The current log and its length at the last sync; `None` if the store was closed.
    open_log: Option<(String, usize)>,
    absent: Vec<Vec<u8>>,
}

static CLOSED: LazyLock<Sample> = LazyLock::new(|| Sample::make(false, 1));
static CRASHED: LazyLock<Sample> = LazyLock::new(|| Sample::make(true, 1));
static OTHER: LazyLock<Sample> = LazyLock::new(|| Sample::make(false, 2));

type Change<'a> = (&'a str, Option<Vec<u8>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Write,
    Read,
    ReadAndVerify,
}

impl Look {
    /// Runs for one change in nine, because it takes as long as all other checks.
    fn read(n: usize) -> Self {
        if n.is_multiple_of(9) { Self::ReadAndVerify } else { Self::Read }
    }

    fn either(n: usize) -> Self {
        if n.is_multiple_of(2) { Self::read(n / 2) } else { Self::Write }
    }
}

fn verify_at_rest(fs: &MemFs) -> Result<bool, String> {
    let before = store::files(fs);
    let report = store::options(fs).verify(DIR).map_err(|error| format!("verify: {error}"))?;
    report.damage.iter().try_for_each(|damage| store::names_its_place(&damage.error))?;
    if store::files(fs) != before {
        return Err("verify changed a file".into());
    }
    Ok(report.damage.is_empty())
}

struct Maker {
    db: Db,
    history: History,
    rng: Rng,
}

impl Maker {
    fn batch(&mut self, keys: Range<u64>, durability: Durability) {
        let users = self.db.existing_keyspace("users").unwrap();
        let mut batch = WriteBatch::new();
        let mut writes: Vec<Write> = Vec::new();
        for n in keys {
            let key = format!("key {:03}", n * 7 % 100).into_bytes();
            let len = 4 + self.rng.below(20) as usize;
            let value = (n % 5 != 3).then(|| self.rng.bytes(len));
            match &value {
                Some(value) => batch.put(&key, value),
                None => batch.delete(&key),
            };
            writes.push(Write::Key(0, key.clone().into(), value.map(Into::into)));
            if n % 3 == 0 {
                batch.put_in(&users, &key, [n as u8; 5]);
                writes.push(Write::Key(1, key.into(), Some([n as u8; 5].into())));
            }
        }
        self.history.write(&writes);
        self.db.write_with(batch, durability).unwrap();
        if durability == Durability::Synced {
            self.history.all_durable();
        }
    }
}

impl Sample {
    fn make(crashed: bool, seed: u64) -> Self {
        let fs = MemFs::new();
        let roomy = store::small().memtable_bytes(1 << 20);
        let options = store::options(&fs).reserve_bytes(0);
        let db = options.default_keyspace(roomy.clone()).open(DIR).unwrap();
        let mut history = History::new();
        for name in ["users", "dropped", "empty", "brief"] {
            history.create(name);
            db.keyspace(name, roomy.clone()).unwrap();
        }
        db.existing_keyspace("dropped").unwrap().put("key 000", "must not come back").unwrap();
        let mut maker = Maker { db, history, rng: Rng::new(seed) };
        maker.batch(0..40, Durability::Buffered);
        maker.db.compact().unwrap();
        if !crashed {
            let policy = FilterPolicy::new(FilterKind::Bloom);
            maker.db.existing_keyspace("users").unwrap().refilter(policy).unwrap();
        }
        maker.batch(40..60, Durability::Buffered);
        maker.db.default_keyspace().flush().unwrap();
        // Without a table in the second keyspace, the loss of the manifest's last edit is undetectable.
        for name in ["dropped", "brief"] {
            maker.history.remove(name);
            maker.db.drop_keyspace(name).unwrap();
        }
        maker.history.keyspaces_durable();
        for n in 0..5 {
            maker.batch(60 + 3 * n..63 + 3 * n, Durability::Synced);
        }
        let open_log = crashed.then(|| {
            let synced = store::files(&fs.crash(CrashPolicy::DropUnsynced));
            let (name, bytes) = synced.into_iter().rfind(|(name, _)| name.ends_with(".wal")).unwrap();
            for n in 0..4 {
                maker.batch(80 + 2 * n..82 + 2 * n, Durability::Buffered);
            }
            (name, store::written(&bytes))
        });
        let Maker { db, history, .. } = maker;
        while db.step().unwrap() {}
        let image = if crashed { fs.crash(CrashPolicy::KeepAll) } else { fs.clone() };
        db.close().unwrap();
        let absent = (0..110).step_by(7).map(|n| format!("key {n:03}x").into_bytes());
        let absent = absent.chain([Vec::new(), b"key".to_vec(), b"zzz".to_vec()]).collect();
        let mut files = store::files(&image);
        if let Some((log, _)) = &open_log {
            store::leave_little_room(files.get_mut(log).unwrap());
        }
        Self { files, newest: history.newest(), history, open_log, absent }
    }

    fn fs(&self, changed: &[Change<'_>]) -> MemFs {
        use sievedb::fs::Fs as _;
        let fs = MemFs::new();
        fs.create_dir(Path::new(DIR)).unwrap();
        for (name, bytes) in &self.files {
            let change = changed.iter().find(|(changed, _)| changed == name);
            if let Some(bytes) = change.map_or(Some(bytes), |(_, bytes)| bytes.as_ref()) {
                fs.overwrite(&Path::new(DIR).join(name), bytes.clone());
            }
        }
        fs
    }

    fn kind(&self, name: &str) -> &'static str {
        match name {
            "LOCK" => "LOCK",
            "CURRENT" => "CURRENT",
            _ if name.starts_with("MANIFEST") => "manifest",
            _ if name.ends_with(".wal") => "log",
            _ if name.ends_with(".filter") => "filter",
            _ => "table",
        }
    }

    fn ask(&self, changed: &[Change<'_>], ambiguous: bool, look: Look) -> Result<Answer, String> {
        let fs = self.fs(changed);
        let is_sound = if look == Look::ReadAndVerify { Some(verify_at_rest(&fs)?) } else { None };
        let opened = if look == Look::Write { store::open(&fs) } else { store::open_read_only(&fs) };
        let db = match opened {
            Ok(db) => db,
            Err(error) => {
                store::names_its_place(&error)?;
                if is_sound == Some(true) {
                    return Err(format!("verify finds nothing, but: {error}"));
                }
                return Ok(Answer::Refused);
            }
        };
        let mut least = self.history.written();
        let mut expected = None;
        if ambiguous {
            let found = contents(&db)?;
            least = self.history.find_from(0, &found)?;
            expected = Some(found);
        }
        let expected = expected.as_ref().unwrap_or(&self.newest);
        let findings = examine(&db, expected, &self.absent)?;
        if is_sound.is_some_and(|is_sound| is_sound != findings.damage.is_empty()) {
            return Err(format!("verify says {is_sound:?} before opening, then {:?}", findings.damage));
        }
        let is_reported = !db.open_report().dropped.is_empty();
        if look == Look::Write && findings.errors.is_empty() {
            db.close().map_err(|error| format!("does not close: {error}"))?;
            let again = store::open(&fs).map_err(|error| format!("opens once, then: {error}"))?;
            examine(&again, expected, &[]).map_err(|wrong| format!("opened again: {wrong}"))?;
        }
        Ok(Answer::Given { batches: least, is_reported, findings })
    }

    fn is_dead(&self, name: &str, at: usize) -> bool {
        let owner = |bytes: &[u8]| Header::decode(&bytes[4096..]).unwrap().owner;
        let beside = self.files.iter().filter(|(name, _)| self.kind(name) == "filter");
        let mut owners = beside.map(|(_, bytes)| owner(bytes));
        self.kind(name) == "table"
            && owners.any(|owner| owner == self.files[name][32..48])
            && self.filters(name).iter().any(|filter| filter.contains(&at))
    }

    fn filters(&self, name: &str) -> Vec<Range<usize>> {
        let bytes = &self.files[name];
        let starts = (0..bytes.len()).step_by(4096).filter(|&at| at + HEADER_BYTES <= bytes.len());
        let headers = starts.filter_map(|at| Header::decode(&bytes[at..]).ok().map(|header| (at, header)));
        headers.map(|(at, header)| at..at + header.block_len as usize).collect()
    }
}

enum Answer {
    Refused,
    Given { batches: usize, is_reported: bool, findings: Findings },
}

#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    changes: u64,
    refused: u64,
    read_errors: u64,
    only_verify: u64,
    shorter: u64,
    harmless: u64,
}

fn tally(results: Vec<(&'static str, Tally)>) -> BTreeMap<&'static str, Tally> {
    let mut sums = BTreeMap::<_, Tally>::new();
    for (kind, tally) in results {
        let sum = sums.entry(kind).or_default();
        sum.changes += tally.changes;
        sum.refused += tally.refused;
        sum.read_errors += tally.read_errors;
        sum.only_verify += tally.only_verify;
        sum.shorter += tally.shorter;
        sum.harmless += tally.harmless;
    }
    println!("{sums:#?}");
    sums
}

impl Sample {
    fn is_ambiguous(&self, name: &str, at: usize) -> bool {
        self.open_log.as_ref().is_some_and(|(log, synced)| log == name && at >= *synced)
    }

    /// A damaged filter must be counted, and is not an error for readers.
    fn judge_filter(&self, name: &str, at: usize, answer: &Answer) -> Result<(), String> {
        if self.kind(name) != "filter" && !self.filters(name).iter().any(|filter| filter.contains(&at)) {
            return Ok(());
        }
        let Answer::Given { findings, .. } = answer else {
            return Err("a damaged filter keeps the store from opening".into());
        };
        if let Some(error) = findings.errors.first() {
            return Err(format!("a damaged filter is an error to a reader: {error}"));
        }
        if findings.unusable_filters == 0 {
            return Err("a damaged filter is not counted".into());
        }
        Ok(())
    }

    fn judge(&self, name: &str, answer: Answer, tally: &mut Tally) -> Result<(), String> {
        tally.changes += 1;
        let Answer::Given { batches, is_reported, findings } = answer else {
            tally.refused += 1;
            return Ok(());
        };
        if batches < self.history.written() {
            tally.shorter += 1;
            if batches < self.history.durable() {
                return Err(format!("{batches} batches are left, {} were synced", self.history.durable()));
            }
            if !is_reported {
                return Err(format!("{batches} batches are left, and the report does not say so"));
            }
        }
        if matches!(self.kind(name), "table" | "filter") && findings.damage.is_empty() {
            return Err("verify does not find it".into());
        }
        if self.kind(name) == "filter" && !findings.errors.is_empty() {
            return Err(format!("a filter is an error to a reader: {:?}", findings.errors));
        }
        match (findings.errors.is_empty(), findings.damage.is_empty()) {
            (false, _) => tally.read_errors += 1,
            (true, false) => tally.only_verify += 1,
            (true, true) => tally.harmless += 1,
        }
        Ok(())
    }

    fn is_padding(&self, name: &str, at: usize) -> bool {
        let bytes = &self.files[name];
        at >= 64 && bytes.get(at - 64..at + 64).is_some_and(|around| around.iter().all(|&byte| byte == 0))
    }

    fn flip_everything(&self) -> BTreeMap<&'static str, Tally> {
        let places: Vec<(&str, usize)> = self
            .files
            .iter()
            .flat_map(|(name, bytes)| (0..bytes.len()).map(move |at| (name.as_str(), at)))
            .collect();
        let results = cases(&places, |&(name, at)| {
            let mut tally = Tally::default();
            let len = self.files[name].len();
            let bits =
                if self.is_padding(name, at) { sample::padding_bits(at) } else { sample::bits(at, len) };
            for bit in bits {
                let mut bytes = self.files[name].clone();
                bytes[at] ^= 1 << bit;
                let look = match self.kind(name) {
                    "table" | "filter" => Look::read(8 * at + bit),
                    _ => Look::either(8 * at + bit),
                };
                let answer = self.ask(&[(name, Some(bytes))], self.is_ambiguous(name, at), look);
                if self.is_dead(name, at) {
                    match answer? {
                        Answer::Given { findings, .. } if findings.is_sound() => continue,
                        _ => return Err(format!("byte {at} of {name}, which nobody reads, is missed")),
                    }
                }
                answer
                    .and_then(|answer| {
                        self.judge_filter(name, at, &answer)?;
                        self.judge(name, answer, &mut tally)
                    })
                    .map_err(|what| format!("bit {bit} of byte {at} of {name} flipped: {what}"))?;
            }
            Ok((self.kind(name), tally))
        });
        tally(results)
    }
}

#[test]
fn the_samples_have_every_kind_of_file_and_several_levels() {
    for sample in [&*CLOSED, &*CRASHED] {
        let sizes: Vec<_> = sample.files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
        println!("{sizes:?}");
        let db = store::open(&sample.fs(&[])).unwrap();
        let stats = db.stats();
        let default = stats.keyspace("default").unwrap();
        assert!(default.levels[0].tables > 0 && default.levels[1..].iter().any(|level| level.tables > 0));
        assert!(default.total().tombstones > 0 && default.memtable_entries > 0, "{default:?}");
        assert_eq!(default.total().filter_keys, default.total().keys);
        let findings = examine(&db, &sample.newest, &sample.absent).unwrap();
        assert!(findings.is_sound(), "{findings:?}");
        let tables = sample.files.keys().filter(|name| sample.kind(name) == "table");
        tables.for_each(|name| assert_eq!(sample.filters(name).len(), 1, "{name}"));
    }
    let (_, synced) = CRASHED.open_log.as_ref().unwrap();
    assert!(*synced > 64 && CRASHED.history.written() == CRASHED.history.durable() + 4);
}

#[test]
fn a_flipped_bit_in_a_closed_store_is_an_error_with_offset_or_changes_no_answer() {
    let tallies = CLOSED.flip_everything();
    assert!(tallies.values().all(|tally| tally.shorter == 0));
    assert!(tallies["table"].only_verify > 1000 && tallies["table"].harmless == 0, "no filter was hit");
    assert!(
        ["CURRENT", "manifest", "log", "table", "filter"].iter().all(|kind| tallies[kind].changes > 500),
        "{tallies:?}"
    );
}

#[test]
fn a_flipped_bit_in_a_crashed_store_loses_at_most_unsynced_writes_and_is_reported() {
    let tallies = CRASHED.flip_everything();
    assert!(
        tallies["log"].shorter > 500
            && tallies.iter().all(|(kind, tally)| *kind == "log" || tally.shorter == 0)
    );
}

#[test]
fn a_closed_store_with_a_file_cut_anywhere_is_refused_or_answers_as_before() {
    let results = cut_everywhere(&CLOSED, |name, len| {
        let bytes = CLOSED.files[name][..len].to_vec();
        let answer = CLOSED.ask(&[(name, Some(bytes))], false, Look::either(len))?;
        let mut tally = Tally::default();
        CLOSED.judge(name, answer, &mut tally)?;
        Ok((CLOSED.kind(name), tally))
    });
    let tallies = tally(results);
    assert_eq!(tallies["table"].changes, tallies["table"].refused + tallies["table"].read_errors);
    assert!(tallies.values().all(|tally| tally.shorter == 0));
}

/// A cut log has lost its promises, so a prefix is allowed. The report states a cut within a record.
#[test]
fn a_crashed_store_with_a_file_cut_anywhere_is_refused_or_holds_a_prefix() {
    let (log, _) = CRASHED.open_log.as_ref().unwrap();
    let silent = cut_everywhere(&CRASHED, |name, len| {
        let bytes = CRASHED.files[name][..len].to_vec();
        let look = Look::either(len);
        if name != log {
            let answer = CRASHED.ask(&[(name, Some(bytes))], false, look)?;
            CRASHED.judge(name, answer, &mut Tally::default())?;
            return Ok(None);
        }
        let end = store::written(&bytes);
        match CRASHED.ask(&[(name, Some(bytes))], true, look)? {
            Answer::Given { batches, is_reported, findings } if findings.errors.is_empty() => {
                Ok((batches < CRASHED.history.written() && !is_reported).then_some(end))
            }
            Answer::Given { findings, .. } => Err(format!("{:?}", findings.errors)),
            Answer::Refused => Ok(None),
        }
    });
    let silent = silent.into_iter().flatten().collect::<BTreeSet<_>>().len();
    println!("{silent} cuts of the log lie between two records");
    assert!(silent <= 4 + CRASHED.history.written(), "{silent} cuts of {log} are not reported");
}

fn cut_everywhere<T: Send>(store: &Sample, run: impl Fn(&str, usize) -> Result<T, String> + Sync) -> Vec<T> {
    let places: Vec<(&str, usize)> = store
        .files
        .iter()
        .flat_map(|(name, bytes)| (0..bytes.len()).map(move |len| (name.as_str(), len)))
        .filter(|&(name, len)| sample::cuts_at(len, store.files[name].len()))
        .collect();
    cases(&places, |&(name, len)| run(name, len).map_err(|what| format!("{name} cut to {len} bytes: {what}")))
}

#[test]
fn a_lengthened_file_is_refused_or_answers_as_before() {
    let mut rng = Rng::new(7);
    for sample in [&*CLOSED, &*CRASHED] {
        let tails: Vec<Vec<u8>> = [1, 7, 8, 16, 64, 512, 4096, 40_000]
            .into_iter()
            .flat_map(|len| [vec![0; len], vec![0xff; len], rng.bytes(len)])
            .chain(sample.files.values().filter(|bytes| !bytes.is_empty()).cloned())
            .collect();
        let changes: Vec<_> =
            sample.files.keys().flat_map(|name| tails.iter().map(move |tail| (name, tail))).collect();
        cases(&changes, |&(name, tail)| {
            let longer = [&sample.files[name][..], tail].concat();
            let look = if tail.len().is_multiple_of(2) { Look::ReadAndVerify } else { Look::Write };
            let answer = sample.ask(&[(name, Some(longer))], false, look);
            answer
                .and_then(|answer| sample.judge(name, answer, &mut Tally::default()))
                .map_err(|what| format!("{} bytes {:?}.. behind {name}: {what}", tail.len(), &tail[..1]))
        });
    }
}

#[test]
fn a_missing_or_exchanged_file_is_noticed() {
    for sample in [&*CLOSED, &*CRASHED] {
        let names: Vec<&String> = sample.files.keys().filter(|name| *name != "LOCK").collect();
        let mut changes: Vec<(String, Vec<Change<'_>>)> = Vec::new();
        for &name in &names {
            changes.push((format!("{name} deleted"), vec![(name, None)]));
            for &other in names.iter().filter(|other| **other > name) {
                let swapped = vec![
                    (name.as_str(), Some(sample.files[other].clone())),
                    (other, Some(sample.files[name].clone())),
                ];
                changes.push((format!("{name} and {other} exchanged"), swapped));
            }
            let kind = sample.kind(name);
            for (other, bytes) in OTHER.files.iter().filter(|(other, _)| OTHER.kind(other) == kind) {
                changes.push((
                    format!("{name} replaced by another store's {other}"),
                    vec![(name, Some(bytes.clone()))],
                ));
            }
            changes.push((format!("{name} emptied"), vec![(name, Some(Vec::new()))]));
        }
        cases(&changes, |(what, change)| {
            for look in [Look::Write, Look::ReadAndVerify] {
                match sample.ask(change, false, look) {
                    Ok(Answer::Refused) => {}
                    Ok(Answer::Given { findings, .. }) if !findings.damage.is_empty() => {}
                    Ok(_) => return Err(format!("{what}: nobody notices")),
                    Err(wrong) => return Err(format!("{what} ({look:?}): {wrong}")),
                }
            }
            Ok(())
        });
        sample.ask(&[("LOCK", None)], false, Look::Write).map(drop).unwrap();
    }
}
