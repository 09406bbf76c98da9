//! Opens a store for writing: locks it, recovers it ([`recover`](super::recover)), and builds an engine.
//!
//! A closed store is opened without writing if the entries of its logs fit into memtables and its options do not
//! change. [`begin`](crate::db::generation::begin) creates the new log and manifest before the first change. Any
//! other store gets a new generation ([`new_generation`](crate::db::generation::new_generation)):
//!
//! 1. lock; recover; remove unreferenced files;
//! 2. replay ([`replay_to_memtables`](super::replay_to_memtables));
//! 3. put the generation in force. If the disk is full at the first promise, writing is suspended until `resume`;
//! 4. remove files that the new state does not name. Files that the last edit dropped are removed only now, because
//!    that edit may not have been durable in step 1.
//!
//! Until `CURRENT` names the new manifest, old files are unchanged, and an interrupted opening can be repeated. If
//! opening fails, it removes its own files.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use byteorder::{ByteOrder, LittleEndian};

use super::recover::{Recovered, check_never_used, is_leftover, is_ours, list, recover};
use super::replay_buffer::part_bytes_max;
use super::replay_to_memtables::Carry;
use crate::batch::DEFAULT_KEYSPACE;
use crate::cache::FileCache;
use crate::db::engine::{Engine, EngineParts};
use crate::db::generation::new_generation::NewGeneration;
use crate::db::open::closed_store::Closed;
use crate::db::state::disk_space::account::DiskSpace;
use crate::db::state::disk_space::reserve_file::remove_reserve_file;
use crate::db::state::expiry::clock::Clock;
use crate::db::state::failure::is_out_of_space;
use crate::db::state::files::{Numbers, StoreFiles, random_id};
use crate::db::state::keyspace::keyspaces::{Keyspaces, Trees};
use crate::db::state::keyspace::memtables::{DiskParts, Memtables};
use crate::db::state::keyspace::tree::Tree;
use crate::db::state::open_report::OpenReport;
use crate::error::{Error, InFile, Result};
use crate::expiry::options::TimeSource;
use crate::file_header::StoreIds;
use crate::filename::{FileName, dangling, names_in};
use crate::fs::{Fs, HeldByThisProcess, LockGuard, LockKind, LockedDir, refuses_dir_syncs};
use crate::key::SeqNo;
use crate::limits::FILE_NUMBER_MAX;
use crate::manifest::edit::{EditItem, VersionEdit};
use crate::manifest::log::ReadManifest;
use crate::manifest::state::{DEFAULT_NAME, KeyspaceState, ManifestState};
use crate::memory::Memory;
use crate::number_map::{NumberMap, NumberSet};
use crate::options::{KeyspaceOptions, Options};
use crate::table::{FilterTrust, TableContext, TableIo};
use crate::version::{SharedByTables, TableHandle, Version};

const OTHER_FILES_NAMED: usize = 5;

const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

pub(super) type KnownTables = NumberMap<u64, Arc<TableHandle>>;

pub(in crate::db) fn open_for_writing(dir: &Path, options: Options) -> Result<Engine> {
    let fs = prepare_directory(dir, &options)?;
    let recovered = match recover(&*fs, dir, part_bytes_max(options.memory_budget))? {
        Some(recovered) => recovered,
        None if options.create => new_store(&*fs, dir, &options)?,
        None => return Err(no_current(dir)),
    };
    let clock = Clock::new(options.clock.as_ref());
    let mut state = recovered.manifest.state.clone();
    state.last_seqno = recovered.last_seqno;
    state.next_file = state.next_file.max(recovered.largest_number + 1);
    // The upper half of the numbers suffices for the life of any store.
    if state.next_file > FILE_NUMBER_MAX / 2 {
        return Err(Error::limit("file number", FILE_NUMBER_MAX / 2, state.next_file));
    }
    if let Some(options) = &options.default_keyspace
        && let Some(keyspace) = state.keyspaces.get_mut(&DEFAULT_KEYSPACE)
    {
        change_expiry(keyspace, options, recovered.last_seqno, &clock)?;
        keyspace.options = options.encode();
    }
    let let_go: NumberSet<FileName> = recovered.manifest.let_go.iter().copied().collect();
    let (later, strays): (Vec<_>, Vec<_>) =
        recovered.strays.iter().copied().partition(|name| let_go.contains(name));
    remove_strays(&*fs, dir, &strays)?;
    if let Some(engine) = open_unchanged(dir, &options, &recovered, &state, &fs)? {
        engine.look_at_disk();
        return Ok(engine);
    }
    let write = |carry| write_anew(dir, &options, &recovered, state.clone(), &fs, carry);
    let (mut engine, new) = match write(Carry::Rewrite) {
        Err(error) if is_out_of_space(&error) => {
            let free = fs.free_bytes(dir).ok().flatten();
            let removed = remove_reserve_file(&*fs, dir, recovered.store_id).unwrap_or_else(|error| {
                tracing::warn!(dir = %dir.display(), %error, "RESERVE could not be removed");
                0
            });
            let mut kept = write(Carry::Keep)?;
            kept.0.report.full_disk = Some(error.to_string());
            kept.0.note_full_disk(&error, free, removed);
            kept
        }
        written => written?,
    };
    engine.report.created = recovered.current.is_none();
    engine.report.clock_leap = engine.hide_at_opening(false);
    engine.report.directory_syncs_refused = fs.refuses_dir_syncs();
    engine.report.flushes = engine.counters.flushes.load(Ordering::Relaxed);
    match engine.put_in_force(new)? {
        Err(error) if is_out_of_space(&error) => {
            engine.report.full_disk = Some(engine.suspend(error).to_string());
        }
        activated => activated?,
    }
    let old = recovered.current.map(|current| FileName::Manifest(current.manifest));
    later.into_iter().chain(old).for_each(|name| engine.files.obsolete.add(name));
    engine.remove_obsolete_files();
    engine.look_at_disk();
    Ok(engine)
}

fn change_expiry(
    keyspace: &mut KeyspaceState,
    options: &KeyspaceOptions,
    last_seqno: SeqNo,
    clock: &Clock,
) -> Result<()> {
    let before = KeyspaceOptions::decode(&keyspace.options).unwrap_or_default().expiry();
    let now = match options.time_source {
        TimeSource::System if options.ttl.is_some() => Some(clock.read()?.time),
        _ => keyspace.buckets.last().map(|last| last.time),
    };
    if options.ttl.is_none() {
        keyspace.buckets.forget_boundaries();
    }
    let boundary = keyspace
        .buckets
        .change(before, options.expiry(), now, true, last_seqno + 1)
        .map_err(Error::invalid)?;
    boundary.map_or(Ok(()), |boundary| keyspace.buckets.begin(boundary).map_err(Error::invalid))
}

fn write_anew(
    dir: &Path,
    options: &Options,
    recovered: &Recovered,
    state: ManifestState,
    fs: &Arc<LockedDir>,
    carry: Carry,
) -> Result<(Engine, NewGeneration)> {
    let mut engine = build_engine(dir, options.clone(), recovered, &state, Arc::clone(fs))?;
    let new = engine.prepare(state, |draft| engine.replay_to_memtables(recovered, draft, carry));
    let mut new = new.inspect_err(|_| {
        engine.remove_obsolete_files();
    })?;
    if let Some(log) = new.take_log() {
        engine.set_writable(log, None);
    }
    Ok((engine, new))
}

fn open_unchanged(
    dir: &Path,
    options: &Options,
    recovered: &Recovered,
    state: &ManifestState,
    fs: &Arc<LockedDir>,
) -> Result<Option<Engine>> {
    let Some(closed) = Closed::of(recovered, state) else { return Ok(None) };
    let mut engine = build_engine(dir, options.clone(), recovered, state, Arc::clone(fs))?;
    let fits = engine.replay_if_it_fits(recovered)?;
    if fits {
        engine.set_unchanged(&closed, recovered);
        engine.report.clock_leap = engine.hide_at_opening(false);
    }
    Ok(fits.then_some(engine))
}

fn build_engine(
    dir: &Path,
    options: Options,
    recovered: &Recovered,
    state: &ManifestState,
    locked: Arc<LockedDir>,
) -> Result<Engine> {
    let options = options.fs(Arc::clone(&locked) as Arc<dyn Fs>);
    let ids = StoreIds::new(recovered.store_id, &state.store_ids);
    let context = shared(dir, &options, ids, state.hash_seed);
    let tables = Arc::clone(&context.files);
    locked.close_spare_with(move || tables.close_one());
    let shared = SharedByTables {
        context,
        obsolete_files: Arc::default(),
        open_tables: Arc::default(),
        keyspace: DEFAULT_KEYSPACE,
    };
    build_engine_over(dir, options, recovered, state, locked, &shared, &KnownTables::new())
}

pub(super) fn build_engine_over(
    dir: &Path,
    options: Options,
    recovered: &Recovered,
    state: &ManifestState,
    locked: Arc<LockedDir>,
    shared: &SharedByTables,
    known: &KnownTables,
) -> Result<Engine> {
    let store_id = recovered.store_id;
    let numbers = Numbers::new(state.next_file, recovered.taken_numbers.clone());
    let obsolete = Arc::clone(&shared.obsolete_files);
    let files = StoreFiles::new(locked, dir.to_path_buf(), store_id, numbers, obsolete);
    let context = Arc::clone(&shared.context);
    let stored = state.table_bytes.saturating_add(recovered.log_bytes);
    let free = files.fs.free_bytes(dir).ok().flatten();
    let disk = free.map_or(DiskParts::default(), |free| DiskParts::of(free, stored));
    let memtables = Memtables::new(Arc::clone(&context.memory), state.hash_seed, disk);
    let open_tables = Arc::clone(&shared.open_tables);
    let trees = build_trees(dir, state, &memtables, shared, known)?;
    let disk_space = DiskSpace::open(&*files.fs, dir, store_id, state.table_bytes, options.reserve_bytes);
    let (memory_budget, memory_budget_from) = (options.memory_budget as u64, options.budget_source);
    Ok(Engine::new(EngineParts {
        options,
        report: OpenReport { memory_budget, memory_budget_from, ..recovered.report.clone() },
        files,
        context,
        keyspaces: Keyspaces::new(trees, memtables, open_tables, state.next_keyspace),
        visible: recovered.last_seqno,
        disk_space,
    }))
}

/// Syncs the directory first: an interrupted opening may have replaced `CURRENT` without a sync. A power loss could
/// restore the previous `CURRENT`, which may name these files.
fn remove_strays(fs: &dyn Fs, dir: &Path, strays: &[FileName]) -> Result<()> {
    if !strays.is_empty() {
        fs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        remove(fs, dir, strays);
    }
    Ok(())
}

fn prepare_directory(dir: &Path, options: &Options) -> Result<Arc<LockedDir>> {
    let fs = &*options.fs;
    if options.create {
        if fs.open(&FileName::Current.path(dir)).is_err() {
            create_directory(fs, dir)?;
        }
        check_other_files(fs, dir, options)?;
    } else {
        names_in(fs, dir)?;
        let current = fs.open(&FileName::Current.path(dir));
        if current.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            recover(fs, dir, 0)?;
            return Err(no_current(dir));
        }
    }
    Ok(LockedDir::new(dir, &options.fs, lock_for_writing(fs, dir)?))
}

/// Retries, because live views briefly take the shared lock to test for a writer.
pub(in crate::db) fn lock_for_writing(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn LockGuard>> {
    let path = FileName::Lock.path(dir);
    for _ in 1..LOCK_TRIES {
        match fs.lock(&path, LockKind::Exclusive) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => sleep(LOCK_PAUSE),
            lock => return lock.map_err(|error| lock_error(dir, error)),
        }
    }
    fs.lock(&path, LockKind::Exclusive).map_err(|error| lock_error(dir, error))
}

/// Syncs all ancestors, even if the directory exists: an interrupted creation may not have synced them.
fn create_directory(fs: &dyn Fs, dir: &Path) -> Result<()> {
    fs.create_dir(dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists if fs.has_dangling_link(dir) => dangling(dir),
        std::io::ErrorKind::AlreadyExists => {
            Error::NoStore { dir: dir.to_path_buf(), why: "it is a file, not a directory" }
        }
        _ => Error::io("create", dir, error),
    })?;
    sync_above(fs, dir)
}

pub(in crate::db) fn sync_above(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let path = fs.canonical(dir).map_err(|error| Error::io("look for", dir, error))?;
    for parent in path.ancestors().skip(1) {
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match fs.sync_dir(parent) {
            Err(error) if !refuses_dir_syncs(&error) => return Err(Error::io("sync", parent, error)),
            _ => {}
        }
    }
    Ok(())
}

fn check_other_files(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<()> {
    let listing = list(fs, dir)?;
    if options.create_among_other_files || listing.ours.contains(&FileName::Current) {
        return Ok(());
    }
    check_never_used(fs, dir, &listing)?;
    // Only tables and filters are checked: an interrupted creation may leave all other kinds of files.
    let is_other = |name: &&FileName| {
        matches!(name, FileName::Table(_) | FileName::Filter(_)) && !is_ours(fs, &name.path(dir))
    };
    let named_like_ours = listing.ours.iter().filter(is_other).map(ToString::to_string);
    let others = listing.ignored.into_iter().map(|file| file.name);
    let mut found: Vec<_> = others.filter(|name| name != "lost+found").chain(named_like_ours).collect();
    let count = found.len();
    found.truncate(OTHER_FILES_NAMED);
    match count {
        0 => Ok(()),
        _ => Err(Error::OtherFiles { dir: dir.to_path_buf(), found, count }),
    }
}

pub(super) fn no_current(dir: &Path) -> Error {
    Error::NoStore { dir: dir.to_path_buf(), why: "the directory holds no CURRENT" }
}

/// Excludes writers during a repair. If there is no lock file, only the directory is locked.
pub(in crate::db) fn lock_for_reading(fs: &dyn Fs, dir: &Path) -> Result<Box<dyn LockGuard>> {
    let lock = fs.lock(&FileName::Lock.path(dir), LockKind::Shared);
    lock.map_err(|error| lock_error(dir, error))
}

fn lock_error(dir: &Path, error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            let by_this_process = error.get_ref().is_some_and(|inner| inner.is::<HeldByThisProcess>());
            Error::Locked { dir: dir.to_path_buf(), by_this_process }
        }
        _ => Error::io("lock", &FileName::Lock.path(dir), error),
    }
}

/// Returns the state of a store to be created. Removes files of an interrupted creation.
fn new_store(fs: &dyn Fs, dir: &Path, options: &Options) -> Result<Recovered> {
    let names = fs.list(dir).map_err(|error| Error::io("list", dir, error))?;
    let ours = names.iter().filter_map(|name| name.to_str().and_then(FileName::parse));
    let kept = [FileName::Lock, FileName::Current, FileName::Reserve];
    let strays = ours.filter(|name| !kept.contains(name));
    let (strays, others): (Vec<_>, Vec<_>) = strays.partition(|name| is_leftover(fs, &name.path(dir), None));
    remove(fs, dir, &strays);
    let seed = random_id()?;
    let mut state = ManifestState { next_file: 1, ..ManifestState::default() };
    let keyspace = options.default_keyspace.clone().unwrap_or_default();
    let items = vec![
        EditItem::HashSeed(LittleEndian::read_u64(&seed[..8])),
        EditItem::KeyspaceCreated {
            id: DEFAULT_KEYSPACE,
            name: DEFAULT_NAME.to_owned(),
            options: keyspace.encode(),
        },
    ];
    state.apply(&VersionEdit::new(items)).map_err(Error::invalid)?;
    let path = FileName::Current.path(dir);
    Ok(Recovered {
        store_id: random_id()?,
        manifest: ReadManifest { state, ..ReadManifest::empty(path) },
        current: None,
        log_bytes: 0,
        kept: None,
        last_log: 0,
        durable: 0,
        last_seqno: 0,
        report: OpenReport::default(),
        largest_number: 0,
        strays: Vec::new(),
        taken_numbers: others.iter().filter_map(|name| name.number()).collect(),
    })
}

pub(in crate::db) fn shared(
    dir: &Path,
    options: &Options,
    store_ids: StoreIds,
    hash_seed: u64,
) -> Arc<TableContext> {
    let memory = Memory::new(options.memory_budget, options.memtables_max());
    let files = Arc::new(FileCache::new(options.open_files()));
    let (fs, dir) = (Arc::clone(&options.fs), dir.to_path_buf());
    let trust = FilterTrust { strict: options.strict_filters, audit_one_in: options.audit_absent };
    let io = TableIo::default();
    let context = TableContext { fs, dir, store_ids, hash_seed, memory, files, trust, io };
    Arc::new(context)
}

fn build_trees(
    dir: &Path,
    state: &ManifestState,
    memtables: &Arc<Memtables>,
    shared: &SharedByTables,
    known: &KnownTables,
) -> Result<Trees> {
    let mut trees = Trees::new();
    for (&id, keyspace) in &state.keyspaces {
        let options = KeyspaceOptions::decode(&keyspace.options).map_err(|error| error.in_file(dir, 0))?;
        let shared = SharedByTables { keyspace: id, ..shared.clone() };
        let version = build_version(dir, keyspace, &shared, known)?;
        let (name, buckets) = (keyspace.name.clone(), keyspace.buckets.clone());
        trees.insert(id, Tree::new(id, name, options, memtables, version, buckets));
    }
    Ok(trees)
}

fn build_version(
    dir: &Path,
    keyspace: &KeyspaceState,
    shared: &SharedByTables,
    known: &KnownTables,
) -> Result<Arc<Version>> {
    let mut added = Vec::with_capacity(keyspace.tables.len());
    for place in keyspace.tables.values() {
        let mut meta = Arc::clone(&place.meta);
        let same = known.get(&meta.number).filter(|known| known.meta.filters == meta.filters);
        if let Some(table) = same {
            added.push((usize::from(place.level), place.run, Arc::clone(table)));
            continue;
        }
        if meta.trimmed {
            meta = Arc::new(crate::table::with_full_bounds(&shared.context, &meta)?);
        }
        let table = TableHandle::new(meta, shared);
        added.push((usize::from(place.level), place.run, table));
    }
    let version = Version::default().apply(&HashSet::new(), added);
    if let Some((a, b)) = version.overlap_in_a_run() {
        let path = FileName::Table(b).path(dir);
        return Err(Error::corruption(
            &path,
            0,
            "table",
            format!("its keys overlap those of table {a} in one run"),
        ));
    }
    Ok(Arc::new(version))
}

fn remove(fs: &dyn Fs, dir: &Path, names: &[FileName]) {
    for name in names {
        if let Err(error) = fs.remove(&name.path(dir)) {
            tracing::warn!(%name, %error, "an obsolete file could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::file_header::{FileHeader, FileKind, MAGIC};
    use crate::fs::{CrashPolicy, MemFs, Op};

    #[test]
    fn a_stray_file_with_a_huge_number_neither_blocks_opening_nor_makes_a_number_twice() {
        for number in [u64::MAX, FILE_NUMBER_MAX, FILE_NUMBER_MAX / 2, FILE_NUMBER_MAX / 4] {
            for content in [&b""[..], b"somebody else's"] {
                let fs = MemFs::new();
                let (dir, options) =
                    (Path::new("/db"), Options::new().background_threads(0).fs(Arc::new(fs.clone())));
                options.clone().open(dir).unwrap().close().unwrap();
                let stray = dir.join(format!("{number}.wal"));
                fs.overwrite(&stray, content.to_vec());
                let db = options.clone().open(dir).unwrap();
                assert!(db.engine().files.next_number() < 100, "{number}");
                db.close().unwrap();
                let is_foreign = !content.is_empty() || number > FILE_NUMBER_MAX;
                assert_eq!(fs.files(dir).iter().any(|(path, _)| *path == stray), is_foreign, "{number}");
            }
        }
    }

    #[test]
    fn what_the_last_edit_has_let_go_stays_until_a_newer_state_is_durable() {
        let fs = MemFs::new();
        let (dir, none) = (Path::new("/db"), Options::new().background_threads(0));
        let open = |fs: &MemFs| none.clone().fs(Arc::new(fs.clone())).open(dir).unwrap();
        let db = open(&fs);
        for n in 0..200u32 {
            db.put((n / 2).to_be_bytes(), n.to_be_bytes()).unwrap();
            if n % 20 == 19 {
                db.flush().unwrap();
            }
        }
        // The process is killed between append and sync of an edit.
        let images = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&images);
        fs.observe(move |fs, op| {
            if matches!(op, Op::Sync(path) if path.to_string_lossy().contains("MANIFEST")) {
                taken.lock().unwrap().push(fs.crash(CrashPolicy::KeepAll));
            }
            Ok(())
        });
        db.compact().unwrap();
        db.drop_keyspace("none").unwrap_err();
        fs.stop_observing();
        let (images, mut crashed, mut strays) = (std::mem::take(&mut *images.lock().unwrap()), 0, 0);
        for image in images {
            let left = Arc::new(Mutex::new(Vec::new()));
            let taken = Arc::clone(&left);
            image.observe(move |fs, _| {
                let random = taken.lock().unwrap().len() as u64;
                let policies = [CrashPolicy::DropUnsynced, CrashPolicy::Random(random)];
                taken.lock().unwrap().extend(policies.map(|policy| fs.crash(policy)));
                Ok(())
            });
            let opened = open(&image);
            image.stop_observing();
            strays += opened.open_report().ignored.len();
            let tables = |fs: &MemFs| {
                let files = fs.files(dir).into_iter();
                files.filter(|(path, _)| path.extension() == Some("sst".as_ref())).count()
            };
            let named = opened.engine().keyspaces.default_tree().view().version.all_tables().count();
            assert_eq!(tables(&image), named, "nothing is left over");
            for left in std::mem::take(&mut *left.lock().unwrap()) {
                crashed += 1;
                assert_eq!(open(&left).iter().count(), 100);
            }
        }
        assert!(crashed > 20 && strays > 2, "{crashed}, {strays}");
    }

    #[test]
    fn files_that_are_only_named_like_ours_stay_and_their_numbers_are_passed_over() {
        let fs = MemFs::new();
        let (dir, options) =
            (Path::new("/db"), Options::new().background_threads(0).fs(Arc::new(fs.clone())));
        let db = options.clone().open(dir).unwrap();
        let next = db.engine().files.next_number();
        db.close().unwrap();
        let theirs: Vec<_> =
            (next..next + 40).step_by(2).map(|number| FileName::Table(number).path(dir)).collect();
        theirs.iter().for_each(|path| fs.overwrite(path, b"SQLite format 3".to_vec()));
        // Also tests a file of another store. A log with a torn header counts as a file of this store.
        let header = FileHeader::new(FileKind::Filter, [7; 16], [8; 16]).encode().to_vec();
        fs.overwrite(&FileName::Filter(next + 41).path(dir), header);
        fs.overwrite(&FileName::Log(next + 43).path(dir), MAGIC[..5].to_vec());
        // A preallocated log without a header is a leftover; files with a damaged header or data after zeros are not.
        fs.overwrite(&FileName::Log(next + 45).path(dir), vec![0; 100_000]);
        let mut damaged = FileHeader::new(FileKind::Log, [7; 16], [8; 16]).encode().to_vec();
        damaged[20] ^= 1;
        damaged.extend_from_slice(b"records");
        fs.overwrite(&FileName::Log(next + 47).path(dir), damaged);
        let zeros = [vec![0; 70_000], b"data".to_vec()].concat();
        fs.overwrite(&FileName::Log(next + 49).path(dir), zeros);
        for round in 0..3u32 {
            let db = options.clone().open(dir).unwrap();
            let ignored = &db.open_report().ignored;
            let count = |why| ignored.iter().filter(|file| file.why == why).count();
            let of_others = count("named like a file of the store, but is none");
            assert_eq!((of_others, count(HEADER_LOST)), (theirs.len() + 1, 2), "{ignored:?}");
            for n in 0..5u32 {
                db.put((round * 5 + n).to_be_bytes(), "v").unwrap();
                db.flush().unwrap();
            }
            db.close().unwrap();
        }
        assert!(theirs.iter().all(|path| fs.open(path).unwrap().len().unwrap() == 15));
        assert!([43, 45].iter().all(|place| fs.open(&FileName::Log(next + place).path(dir)).is_err()));
        assert!([47, 49].iter().all(|place| fs.open(&FileName::Log(next + place).path(dir)).is_ok()));
        assert_eq!(options.open(dir).unwrap().iter().count(), 15);
    }

    const PAGE: usize = 4096;

    const HEADER_LOST: &str = "its header is lost or damaged, so its owner is unknown";

    #[test]
    fn a_table_without_its_first_page_is_kept_and_named_after_a_power_loss_and_one_of_zeros_is_removed() {
        let fs = MemFs::new();
        let (dir, options) = (Path::new("/db"), Options::new().background_threads(0));
        let open = |fs: &MemFs| options.clone().fs(Arc::new(fs.clone())).open(dir).unwrap();
        let db = open(&fs);
        for n in 0..100u32 {
            let words = (0..50).map(|word| (50 * n + word).wrapping_mul(0x9e37_79b9));
            db.put(n.to_be_bytes(), words.flat_map(u32::to_le_bytes).collect::<Vec<_>>()).unwrap();
        }
        let images = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&images);
        fs.observe(move |fs, op| {
            if let Op::Sync(path) = op
                && path.extension() == Some("sst".as_ref())
            {
                taken.lock().unwrap().push((path.to_path_buf(), fs.crash(CrashPolicy::KeepAll)));
            }
            Ok(())
        });
        db.flush().unwrap();
        fs.stop_observing();
        let (path, image) = images.lock().unwrap().pop().unwrap();
        let written = image.files(&path).remove(0).1;
        assert!(written.len() > 2 * PAGE);
        for (lost, is_kept) in [(PAGE, true), (written.len(), false)] {
            let image = image.crash(CrashPolicy::KeepAll);
            image.overwrite(&path, [vec![0; lost], written[lost..].to_vec()].concat());
            for round in 1..3u32 {
                let report = options.clone().fs(Arc::new(image.clone())).verify(dir).unwrap();
                let named = report.ignored.iter().filter(|file| file.why == HEADER_LOST);
                assert_eq!(named.count(), usize::from(is_kept), "{:?}", report.ignored);
                let db = open(&image);
                db.put([round as u8], "v").unwrap();
                db.flush().unwrap();
                assert_eq!(db.iter().count() as u32, 100 + round);
                assert!(report.damage.is_empty() && db.verify().unwrap().damage.is_empty());
            }
            assert_eq!(image.files(dir).iter().any(|(found, _)| *found == path), is_kept);
        }
    }

    /// A file system that refuses the lock this many times, as if a reader held it.
    #[derive(Debug)]
    struct Busy(MemFs, Mutex<u32>);

    impl Fs for Busy {
        fn create_dir(&self, dir: &Path) -> std::io::Result<()> {
            self.0.create_dir(dir)
        }

        fn list(&self, dir: &Path) -> std::io::Result<Vec<std::ffi::OsString>> {
            self.0.list(dir)
        }

        fn sync_dir(&self, dir: &Path) -> std::io::Result<()> {
            self.0.sync_dir(dir)
        }

        fn create(&self, path: &Path) -> std::io::Result<Arc<dyn crate::fs::AppendFile>> {
            self.0.create(path)
        }

        fn open(&self, path: &Path) -> std::io::Result<Arc<dyn crate::fs::ReadFile>> {
            self.0.open(path)
        }

        fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
            self.0.rename(from, to)
        }

        fn remove(&self, path: &Path) -> std::io::Result<()> {
            self.0.remove(path)
        }

        fn hard_link(&self, from: &Path, to: &Path) -> std::io::Result<()> {
            self.0.hard_link(from, to)
        }

        fn lock(&self, path: &Path, kind: LockKind) -> std::io::Result<Box<dyn LockGuard>> {
            let mut times = self.1.lock().unwrap();
            if *times > 0 {
                *times -= 1;
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            self.0.lock(path, kind)
        }
    }

    #[test]
    fn a_writer_opens_although_a_reader_looks_at_the_lock_and_not_if_it_stays_held() {
        for (times, is_open) in [(0, true), (LOCK_TRIES - 1, true), (LOCK_TRIES, false)] {
            let fs = Arc::new(Busy(MemFs::new(), Mutex::new(times)));
            let opened = Options::new().background_threads(0).fs(fs).open("/db");
            assert_eq!(opened.is_ok(), is_open, "{times}: {opened:?}");
            assert!(is_open || matches!(opened, Err(Error::Locked { .. })));
        }
    }
}
