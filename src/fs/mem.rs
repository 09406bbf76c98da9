//! A file system in memory that simulates power losses.
//!
//! It records the synced part of each file and directory. [`MemFs::crash`] returns a file system in the state after a
//! crash; a [`CrashPolicy`] decides what survives. An observer is called with every [`Op`] before the change.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use super::{AppendFile, Fs, HeldByThisProcess, LockGuard, LockKind, ReadFile};

/// A change that a [`MemFs`] is about to make.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Op<'a> {
    CreateDir(&'a Path),
    SyncDir(&'a Path),
    Create(&'a Path),
    Append(&'a Path, &'a [u8]),
    SetLen(&'a Path, u64),
    Sync(&'a Path),
    Rename(&'a Path, &'a Path),
    Remove(&'a Path),
    HardLink(&'a Path, &'a Path),
    RemoveDir(&'a Path),
}

/// The unsynced state that survives a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashPolicy {
    /// Only synced bytes and directory entries survive.
    DropUnsynced,
    /// Everything survives, as after a killed process. A later crash can still lose unsynced state.
    KeepAll,
    /// The seed decides which unsynced directory entries survive, and which prefix of each file's unsynced bytes. The
    /// last 512-byte sector may be garbage. In space preallocated by [`AppendFile::set_len`], a page of 4 KiB of
    /// unsynced bytes may also become zeros.
    Random(u64),
}

/// An in-memory file system. Clones share the files.
#[derive(Clone, Default)]
pub struct MemFs {
    inner: Arc<Inner>,
}

type Observer = Arc<dyn Fn(&MemFs, Op<'_>) -> io::Result<()> + Send + Sync>;

#[derive(Default)]
struct Inner {
    room: AtomicU64,
    tree: Mutex<Tree>,
    observer: Mutex<Option<Observer>>,
}

#[derive(Default, Clone)]
struct Tree {
    dirs: Vec<PathBuf>,
    durable_dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Arc<MemFile>>,
    durable: BTreeMap<PathBuf, Arc<MemFile>>,
    /// Old and new name of each renamed directory, until the new names are durable.
    moved: Vec<(PathBuf, PathBuf)>,
    locks: Vec<(PathBuf, LockKind)>,
}

type MemFile = RwLock<FileData>;

#[derive(Default, Debug, Clone)]
struct FileData {
    bytes: Vec<u8>,
    synced: usize,
    set_len: usize,
    synced_len: usize,
}

impl fmt::Debug for MemFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemFs").field("files", &self.tree().files.keys().collect::<Vec<_>>()).finish()
    }
}

impl MemFs {
    /// An empty file system.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the function called before every change. Its error fails the operation, which then changes nothing. The
    /// function may call [`MemFs::crash`] and read files, but not change files.
    pub fn observe(&self, observer: impl Fn(&MemFs, Op<'_>) -> io::Result<()> + Send + Sync + 'static) {
        *self.inner.observer.lock().expect("observer lock") = Some(Arc::new(observer));
    }

    /// Limits the bytes of all files together; `None` removes the limit. An append beyond it adds the bytes that fit,
    /// and fails with `StorageFull`.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.inner.room.store(bytes.map_or(0, |bytes| bytes.max(1)), Ordering::SeqCst);
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn used(&self) -> u64 {
        let len = |file: &Arc<MemFile>| file.read().expect("file lock").bytes.len() as u64;
        self.tree().files.values().map(len).sum()
    }

    fn room_left(&self) -> u64 {
        match self.inner.room.load(Ordering::SeqCst) {
            0 => u64::MAX,
            room => room.saturating_sub(self.used()),
        }
    }

    /// Removes the observer.
    pub fn stop_observing(&self) {
        *self.inner.observer.lock().expect("observer lock") = None;
    }

    /// Returns the state after a crash, without locks and observer.
    #[must_use]
    pub fn crash(&self, policy: CrashPolicy) -> Self {
        // No name changes meanwhile. Concurrent appends to several files may be seen in any order.
        let locked = self.tree();
        let mut tree = locked.clone();
        let room = AtomicU64::new(self.inner.room.load(Ordering::SeqCst));
        let with =
            |tree| Self { inner: Arc::new(Inner { room, tree: Mutex::new(tree), ..Inner::default() }) };
        if policy == CrashPolicy::KeepAll {
            return with(tree.as_it_is());
        }
        let mut dice = Dice(match policy {
            CrashPolicy::Random(seed) => seed,
            _ => 0,
        });
        let is_random = matches!(policy, CrashPolicy::Random(_));
        while let Some((from, to)) = tree.moved.pop() {
            if !(is_random && dice.coin()) {
                tree.move_dir(&to, &from);
            }
        }
        let mut image = Tree::default();
        for dir in &tree.dirs {
            let survives = tree.is_durable_dir(dir) || is_random && dice.coin();
            if survives && dir.parent().is_none_or(|parent| image.has_dir(parent)) {
                image.dirs.push(dir.clone());
            }
        }
        image.durable_dirs = image.dirs.iter().cloned().collect();
        let mut names: Vec<&PathBuf> = tree.files.keys().chain(tree.durable.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (now, durable) = (tree.files.get(name), tree.durable.get(name));
            let survivor = match policy {
                CrashPolicy::Random(_) if dice.coin() => now,
                _ => durable,
            };
            let has_dir = name.parent().is_none_or(|dir| !tree.has_dir(dir) || image.has_dir(dir));
            if let Some(file) = survivor.filter(|_| has_dir) {
                let data = file.read().expect("file lock").after_crash(policy, &mut dice);
                let file = Arc::new(RwLock::new(data));
                image.files.insert(name.clone(), Arc::clone(&file));
                image.durable.insert(name.clone(), file);
            }
        }
        with(image)
    }

    /// The names and contents of all files below `dir`, sorted.
    #[must_use]
    pub fn files(&self, dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let tree = self.tree();
        let below = tree.files.iter().filter(|(path, _)| path.starts_with(dir));
        below.map(|(path, file)| (path.clone(), file.read().expect("file lock").all())).collect()
    }

    /// Whether the file and its directory entry would survive a power loss.
    #[must_use]
    pub fn is_durable(&self, path: &Path) -> bool {
        let tree = self.tree();
        match (tree.files.get(path), tree.durable.get(path)) {
            (Some(now), Some(durable)) if Arc::ptr_eq(now, durable) => {
                let data = now.read().expect("file lock");
                data.synced == data.bytes.len()
            }
            _ => false,
        }
    }

    /// Creates or replaces a file, durably, for tests of damage.
    pub fn overwrite(&self, path: &Path, bytes: Vec<u8>) {
        let synced = bytes.len();
        let file = Arc::new(RwLock::new(FileData { bytes, synced, ..FileData::default() }));
        let mut tree = self.tree();
        let dirs: Vec<_> =
            path.ancestors().skip(1).filter(|dir| tree.has_dir(dir)).map(Path::to_path_buf).collect();
        tree.durable_dirs.extend(dirs);
        tree.files.insert(path.to_path_buf(), Arc::clone(&file));
        tree.durable.insert(path.to_path_buf(), file);
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.inner.tree.lock().expect("tree lock")
    }

    fn announce(&self, op: Op<'_>) -> io::Result<()> {
        let observer = self.inner.observer.lock().expect("observer lock").clone();
        observer.map_or(Ok(()), |observer| observer(self, op))
    }
}

impl Tree {
    fn has_dir(&self, dir: &Path) -> bool {
        self.dirs.binary_search_by(|known| known.as_path().cmp(dir)).is_ok()
    }

    fn is_durable_dir(&self, dir: &Path) -> bool {
        dir.parent().is_none() || self.durable_dirs.contains(dir)
    }

    fn move_dir(&mut self, from: &Path, to: &Path) {
        let moved = |path: PathBuf| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
            Ok(rest) => to.join(rest),
            Err(_) => path,
        };
        let all = |files: &mut BTreeMap<PathBuf, Arc<MemFile>>| {
            std::mem::take(files).into_iter().map(|(path, file)| (moved(path), file)).collect()
        };
        (self.files, self.durable) = (all(&mut self.files), all(&mut self.durable));
        self.dirs = std::mem::take(&mut self.dirs).into_iter().map(moved).collect();
        self.dirs.sort_unstable();
        self.durable_dirs = std::mem::take(&mut self.durable_dirs).into_iter().map(moved).collect();
    }

    fn is_empty_dir(&self, dir: &Path) -> bool {
        let mut paths = self.files.keys().chain(&self.dirs);
        !paths.any(|path| path.parent() == Some(dir))
    }

    fn as_it_is(&self) -> Self {
        let mut originals: Vec<_> = self.files.values().chain(self.durable.values()).collect();
        originals.sort_unstable_by_key(|file| Arc::as_ptr(file));
        originals.dedup_by_key(|file| Arc::as_ptr(file));
        let copy = |file: &&Arc<MemFile>| Arc::new(RwLock::new(file.read().expect("file lock").clone()));
        let copies: Vec<Arc<MemFile>> = originals.iter().map(copy).collect();
        let copied = |(path, file): (&PathBuf, &Arc<MemFile>)| {
            let at = originals.partition_point(|original| Arc::as_ptr(original) < Arc::as_ptr(file));
            (path.clone(), Arc::clone(&copies[at]))
        };
        let files = self.files.iter().map(copied).collect();
        let durable = self.durable.iter().map(copied).collect();
        let (dirs, durable_dirs) = (self.dirs.clone(), self.durable_dirs.clone());
        Self { dirs, durable_dirs, files, durable, moved: self.moved.clone(), locks: Vec::new() }
    }
}

impl FileData {
    fn len(&self) -> usize {
        self.bytes.len().max(self.set_len)
    }

    fn all(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.resize(self.len(), 0);
        bytes
    }

    fn after_crash(&self, policy: CrashPolicy, dice: &mut Dice) -> Self {
        let is_random = matches!(policy, CrashPolicy::Random(_));
        let more = if is_random { dice.below(self.bytes.len() - self.synced + 1) } else { 0 };
        let mut bytes = self.bytes[..self.synced + more].to_vec();
        if is_random && bytes.len() > self.synced && dice.coin() {
            let sector = self.synced.max((bytes.len() - 1) / 512 * 512);
            bytes[sector..].iter_mut().for_each(|byte| *byte = dice.below(256) as u8);
        }
        let mut len = self.synced_len;
        if is_random && self.set_len.max(len) > self.synced {
            let new_len = self.set_len.max(bytes.len());
            if dice.coin() {
                len = new_len;
            }
            let within = bytes.len().min(len);
            if within > self.synced && dice.coin() {
                let page = (self.synced + dice.below(within - self.synced)) / 4096 * 4096;
                bytes[page.max(self.synced)..within.min(page + 4096)].fill(0);
            }
        }
        Self { synced: bytes.len(), bytes, set_len: len, synced_len: len }
    }
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {}", path.display()))
}

impl Fs for MemFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.announce(Op::CreateDir(dir))?;
        let mut tree = self.tree();
        tree.dirs.extend(dir.ancestors().map(Path::to_path_buf));
        tree.dirs.sort_unstable();
        tree.dirs.dedup();
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let tree = self.tree();
        if !tree.has_dir(dir) {
            return Err(not_found(dir));
        }
        let inside = tree.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| path.file_name()).map(OsString::from).collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.announce(Op::SyncDir(dir))?;
        let mut tree = self.tree();
        let now = tree.files.iter().filter(|(path, _)| path.parent() == Some(dir));
        let now: Vec<_> = now.map(|(path, file)| (path.clone(), Arc::clone(file))).collect();
        tree.durable.retain(|path, _| path.parent() != Some(dir));
        tree.durable.extend(now);
        let dir = if dir == Path::new(".") { Path::new("") } else { dir };
        let inside: Vec<_> = tree.dirs.iter().filter(|path| path.parent() == Some(dir)).cloned().collect();
        tree.durable_dirs.extend(inside);
        tree.moved.retain(|(_, to)| to.parent() != Some(dir));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.announce(Op::Create(path))?;
        let mut tree = self.tree();
        if !path.parent().is_some_and(|dir| tree.has_dir(dir)) {
            return Err(not_found(path));
        }
        if tree.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(MemFile::default());
        tree.files.insert(path.to_path_buf(), Arc::clone(&file));
        Ok(Arc::new(Handle { fs: self.clone(), path: path.to_path_buf(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let tree = self.tree();
        let file = Arc::clone(tree.files.get(path).ok_or_else(|| not_found(path))?);
        Ok(Arc::new(Handle { fs: self.clone(), path: path.to_path_buf(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(Op::Rename(from, to))?;
        let mut tree = self.tree();
        if tree.has_dir(from) {
            if tree.has_dir(to) || tree.files.contains_key(to) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            tree.move_dir(from, to);
            tree.moved.push((from.to_path_buf(), to.to_path_buf()));
            return Ok(());
        }
        let file = tree.files.remove(from).ok_or_else(|| not_found(from))?;
        tree.files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.announce(Op::Remove(path))?;
        self.tree().files.remove(path).map(drop).ok_or_else(|| not_found(path))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.announce(Op::HardLink(from, to))?;
        let mut tree = self.tree();
        if tree.files.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::clone(tree.files.get(from).ok_or_else(|| not_found(from))?);
        tree.files.insert(to.to_path_buf(), file);
        Ok(())
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.announce(Op::RemoveDir(dir))?;
        let mut tree = self.tree();
        if !tree.has_dir(dir) {
            return Err(not_found(dir));
        }
        if !tree.is_empty_dir(dir) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        tree.dirs.retain(|known| known != dir);
        // The removed files must not reappear in another directory of this name.
        tree.durable.retain(|path, _| path.parent() != Some(dir));
        tree.durable_dirs.remove(dir);
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<Option<u64>> {
        Ok(Some(self.room_left()))
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        let mut tree = self.tree();
        if kind == LockKind::Exclusive && !tree.files.contains_key(path) {
            let file = Arc::new(MemFile::default());
            tree.files.insert(path.to_path_buf(), Arc::clone(&file));
            tree.durable.insert(path.to_path_buf(), file);
        }
        let file = tree.files.get(path).cloned();
        let excludes = |held: LockKind| LockKind::Exclusive == kind || LockKind::Exclusive == held;
        if tree.locks.iter().any(|(locked, held)| locked == path && excludes(*held)) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, HeldByThisProcess));
        }
        let lock = (path.to_path_buf(), kind);
        tree.locks.push(lock.clone());
        Ok(Box::new(MemLock { fs: self.clone(), lock, file }))
    }
}

#[derive(Debug)]
struct MemLock {
    fs: MemFs,
    lock: (PathBuf, LockKind),
    file: Option<Arc<MemFile>>,
}

impl LockGuard for MemLock {
    fn is_in_place(&self) -> io::Result<bool> {
        let tree = self.fs.tree();
        let found = tree.files.get(&self.lock.0);
        Ok(self.file.as_ref().is_none_or(|file| found.is_some_and(|found| Arc::ptr_eq(file, found))))
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        let locks = &mut self.fs.tree().locks;
        if let Some(at) = locks.iter().position(|lock| *lock == self.lock) {
            locks.swap_remove(at);
        }
    }
}

#[derive(Debug)]
struct Handle {
    fs: MemFs,
    path: PathBuf,
    file: Arc<MemFile>,
}

impl ReadFile for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.read().expect("file lock").len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let data = self.file.read().expect("file lock");
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end > data.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let there = data.bytes.get(start..end.min(data.bytes.len())).unwrap_or_default();
        let (front, rest) = buffer.split_at_mut(there.len());
        front.copy_from_slice(there);
        rest.fill(0);
        Ok(())
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        let data = self.file.read().expect("file lock");
        Ok((offset < data.bytes.len() as u64).then_some(offset))
    }
}

impl AppendFile for Handle {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        self.fs.announce(Op::Append(&self.path, bytes))?;
        let room = self.fs.room_left().min(bytes.len() as u64) as usize;
        self.file.write().expect("file lock").bytes.extend_from_slice(&bytes[..room]);
        if room < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.fs.announce(Op::Sync(&self.path))?;
        let mut data = self.file.write().expect("file lock");
        data.synced = data.bytes.len();
        data.synced_len = data.len();
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.fs.announce(Op::SetLen(&self.path, len))?;
        let mut data = self.file.write().expect("file lock");
        let len = usize::try_from(len).map_err(io::Error::other)?;
        assert!(len >= data.bytes.len(), "a length of {len} after {} bytes", data.bytes.len());
        data.set_len = len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fs() -> (MemFs, PathBuf) {
        let fs = MemFs::new();
        let dir = PathBuf::from("/db");
        fs.create_dir(&dir).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        (fs, dir)
    }

    #[test]
    fn a_crash_drops_what_was_not_synced_and_keeps_what_was() {
        let (fs, dir) = fs();
        let path = dir.join("a");
        let file = fs.create(&path).unwrap();
        file.append(b"kept").unwrap();
        file.sync().unwrap();
        assert!(fs.crash(CrashPolicy::DropUnsynced).files(&dir).is_empty(), "the entry was not synced");
        fs.sync_dir(&dir).unwrap();
        file.append(b"lost").unwrap();
        assert_eq!(fs.crash(CrashPolicy::DropUnsynced).files(&dir), [(path.clone(), b"kept".to_vec())]);
        assert_eq!(fs.crash(CrashPolicy::KeepAll).files(&dir), [(path.clone(), b"keptlost".to_vec())]);
        assert!(!fs.is_durable(&path));
    }

    #[test]
    fn a_crash_drops_a_directory_whose_name_was_not_synced_in_each_directory_above() {
        let fs = MemFs::new();
        let (above, dir) = (Path::new("/a"), Path::new("/a/db"));
        fs.create_dir(dir).unwrap();
        fs.create(&dir.join("f")).unwrap();
        fs.sync_dir(dir).unwrap();
        let is_left = |policy| fs.crash(policy).open(&dir.join("f")).is_ok();
        assert!(is_left(CrashPolicy::KeepAll) && !is_left(CrashPolicy::DropUnsynced));
        let left = (0..64).filter(|&seed| is_left(CrashPolicy::Random(seed))).count();
        assert!((4..28).contains(&left), "{left}");
        fs.sync_dir(above).unwrap();
        assert!(!is_left(CrashPolicy::DropUnsynced));
        fs.sync_dir(Path::new("/")).unwrap();
        assert!(is_left(CrashPolicy::DropUnsynced) && is_left(CrashPolicy::Random(0)));
    }

    #[test]
    fn a_power_loss_may_keep_a_length_that_was_set_and_lose_a_page_within_it() {
        let (fs, dir) = fs();
        let path = dir.join("a");
        let file = fs.create(&path).unwrap();
        fs.sync_dir(&dir).unwrap();
        file.append(b"kept").unwrap();
        file.set_len(20_000).unwrap();
        let left = |policy| fs.crash(policy).files(&dir).remove(0).1;
        assert!(left(CrashPolicy::DropUnsynced).is_empty());
        assert_eq!(left(CrashPolicy::KeepAll).len(), 20_000);
        file.sync().unwrap();
        file.append(&[7; 10_000]).unwrap();
        let zeros = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == 0).count();
        assert_eq!(zeros(&left(CrashPolicy::DropUnsynced)), 20_000 - 4);
        let (mut whole, mut holes) = (0, 0);
        for seed in 0..200 {
            let bytes = left(CrashPolicy::Random(seed));
            assert!(bytes.len() == 20_000 && bytes.starts_with(b"kept"));
            let last = bytes.iter().rposition(|&byte| byte != 0).unwrap();
            match zeros(&bytes[..last]) {
                0 => whole += 1,
                hole => holes += usize::from(hole >= 4092),
            }
        }
        assert!(whole > 20 && holes > 20, "{whole} {holes}");
    }

    #[test]
    fn a_removal_and_a_rename_need_a_directory_sync() {
        let (fs, dir) = fs();
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs.create(&a).unwrap();
        fs.sync_dir(&dir).unwrap();
        fs.rename(&a, &b).unwrap();
        let names = |fs: &MemFs| fs.files(&dir).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(names(&fs.crash(CrashPolicy::DropUnsynced)), [a]);
        fs.sync_dir(&dir).unwrap();
        fs.remove(&b).unwrap();
        assert_eq!(names(&fs.crash(CrashPolicy::DropUnsynced)), [b]);
    }

    #[test]
    fn a_renamed_directory_keeps_its_files_and_its_new_name_needs_a_sync_of_the_directory_above() {
        let (fs, dir) = fs();
        let to = PathBuf::from("/copy");
        fs.create(&dir.join("synced")).unwrap();
        fs.sync_dir(&dir).unwrap();
        fs.create(&dir.join("other")).unwrap();
        fs.rename(&dir, &to).unwrap();
        let names =
            |fs: &MemFs| fs.files(Path::new("/")).into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        assert_eq!(names(&fs), [to.join("other"), to.join("synced")]);
        assert!(fs.list(&dir).is_err() && fs.list(&to).unwrap().len() == 2);
        assert_eq!(names(&fs.crash(CrashPolicy::DropUnsynced)), [dir.join("synced")]);
        assert_eq!(names(&fs.crash(CrashPolicy::KeepAll)), names(&fs));
        let is_moved = |seed| names(&fs.crash(CrashPolicy::Random(seed))).contains(&to.join("synced"));
        assert!((4..60).contains(&(0..64).filter(|&seed| is_moved(seed)).count()));
        fs.sync_dir(Path::new("/")).unwrap();
        assert_eq!(names(&fs.crash(CrashPolicy::DropUnsynced)), [to.join("synced")]);
        fs.create_dir(&dir).unwrap();
        assert_eq!(fs.rename(&dir, &to).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs.remove_dir(&to).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
        fs.remove_dir(&dir).unwrap();
        assert!(fs.list(&dir).is_err());
    }

    #[test]
    fn an_append_beyond_the_room_adds_what_fits_until_something_is_removed() {
        let (fs, dir) = fs();
        let (a, b) = (dir.join("a"), dir.join("b"));
        fs.create(&a).unwrap().append(b"abc").unwrap();
        fs.set_room(Some(5));
        let file = fs.create(&b).unwrap();
        assert_eq!(file.append(b"defg").unwrap_err().kind(), io::ErrorKind::StorageFull);
        let files = |fs: &MemFs| fs.files(&dir).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        assert_eq!(files(&fs), [&b"abc"[..], b"de"]);
        assert!(fs.crash(CrashPolicy::KeepAll).create(&dir.join("c")).unwrap().append(b"x").is_err());
        fs.remove(&a).unwrap();
        file.append(b"fgh").unwrap();
        assert!(file.append(b"i").is_err());
        fs.set_room(None);
        file.append(b"i").unwrap();
    }

    #[test]
    fn an_observer_can_make_an_operation_fail() {
        let (fs, dir) = fs();
        fs.observe(|_, op| match op {
            Op::Append(..) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        });
        let file = fs.create(&dir.join("a")).unwrap();
        assert_eq!(file.append(b"x").unwrap_err().kind(), io::ErrorKind::StorageFull);
        fs.stop_observing();
        file.append(b"x").unwrap();
    }
}
