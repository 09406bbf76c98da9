//! A file system that injects faults. While a fault is *armed*, a fraction of its operations fails. A failed append may
//! write a part.

use std::any::Any;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use sievedb::fs::{AppendFile, Fs, LockGuard, LockKind, ReadFile};

use crate::random::{below, number};

pub(super) const PANIC: &str = "a fault of the soak";

pub(super) fn is_fault(payload: &(dyn Any + Send)) -> bool {
    payload.downcast_ref::<&str>() == Some(&PANIC)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    NoSpace,
    ShortWrite,
    TooManyFiles,
    /// `EIO` from all operations except syncs.
    InputOutput,
    Sync,
    Panic,
}

impl Fault {
    pub(super) const ALL: [Self; 6] =
        [Self::NoSpace, Self::ShortWrite, Self::TooManyFiles, Self::InputOutput, Self::Sync, Self::Panic];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "no space",
            Self::ShortWrite => "short write",
            Self::TooManyFiles => "too many open files",
            Self::InputOutput => "input/output error",
            Self::Sync => "failed sync",
            Self::Panic => "panic",
        }
    }

    fn concerns(self, op: Op) -> bool {
        match self {
            Self::NoSpace => matches!(op, Op::Create | Op::Append | Op::Rename),
            Self::ShortWrite => op == Op::Append,
            Self::TooManyFiles => matches!(op, Op::Create | Op::Open | Op::List),
            Self::InputOutput => op != Op::Sync,
            Self::Sync => op == Op::Sync,
            Self::Panic => true,
        }
    }

    fn error(self) -> io::Error {
        let code = match self {
            Self::NoSpace | Self::ShortWrite => 28,
            Self::TooManyFiles => 24,
            Self::InputOutput | Self::Sync | Self::Panic => 5,
        };
        io::Error::from_raw_os_error(code)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    List,
    Create,
    Open,
    Read,
    Append,
    Sync,
    Rename,
    Remove,
}

#[derive(Debug)]
pub(super) struct Weather {
    seed: u64,
    /// 0, or the position of the fault in [`Fault::ALL`] plus one.
    armed: AtomicUsize,
    one_in: AtomicU64,
    operations: AtomicU64,
    changes: AtomicU64,
    fired: [AtomicU64; Fault::ALL.len()],
}

impl Weather {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            seed,
            armed: AtomicUsize::new(0),
            one_in: AtomicU64::new(1),
            operations: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            fired: Default::default(),
        })
    }

    pub(super) fn arm(&self, fault: Fault, one_in: u64) {
        self.disarm();
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.one_in.store(one_in.max(1), Ordering::SeqCst);
        self.armed.store(fault as usize + 1, Ordering::SeqCst);
    }

    pub(super) fn disarm(&self) {
        self.armed.store(0, Ordering::SeqCst);
        if self.calm().is_none() {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
    }

    pub(super) fn armed(&self) -> Option<Fault> {
        self.armed.load(Ordering::SeqCst).checked_sub(1).map(|position| Fault::ALL[position])
    }

    /// The number of the current period without faults; `None` while a fault is armed.
    pub(super) fn calm(&self) -> Option<u64> {
        Some(self.changes.load(Ordering::SeqCst)).filter(|changes| changes % 2 == 0)
    }

    pub(super) fn fired(&self) -> [u64; Fault::ALL.len()] {
        std::array::from_fn(|at| self.fired[at].load(Ordering::SeqCst))
    }

    pub(super) fn all_fired(&self) -> u64 {
        self.fired().iter().sum()
    }

    fn strike(&self, op: Op) -> Option<Fault> {
        let fault = self.armed().filter(|fault| fault.concerns(op))?;
        let dice = number(self.seed, self.operations.fetch_add(1, Ordering::Relaxed));
        if below(dice, self.one_in.load(Ordering::Relaxed)) > 0 {
            return None;
        }
        // A panic during another panic would abort the process.
        if fault == Fault::Panic && std::thread::panicking() {
            return None;
        }
        self.fired[fault as usize].fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    fn check(&self, op: Op) -> io::Result<()> {
        match self.strike(op) {
            Some(Fault::Panic) => std::panic::panic_any(PANIC),
            Some(fault) => Err(fault.error()),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct FaultyFs {
    pub(super) inner: Arc<dyn Fs>,
    pub(super) weather: Arc<Weather>,
}

impl Fs for FaultyFs {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.weather.check(Op::Create)?;
        self.inner.create_dir(dir)
    }

    fn canonical(&self, dir: &Path) -> io::Result<PathBuf> {
        self.inner.canonical(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.weather.check(Op::List)?;
        self.inner.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.weather.check(Op::Sync)?;
        self.inner.sync_dir(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn AppendFile>> {
        self.weather.check(Op::Create)?;
        let file = self.inner.create(path)?;
        Ok(Arc::new(FaultyFile { file, weather: Arc::clone(&self.weather) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.weather.check(Op::Open)?;
        let file = self.inner.open(path)?;
        Ok(Arc::new(FaultyFile { file, weather: Arc::clone(&self.weather) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.weather.check(Op::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.weather.check(Op::Remove)?;
        self.inner.remove(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.weather.check(Op::Create)?;
        self.inner.hard_link(from, to)
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.inner.free_bytes(dir)
    }

    fn lock(&self, path: &Path, kind: LockKind) -> io::Result<Box<dyn LockGuard>> {
        self.weather.check(Op::Open)?;
        let guard = self.inner.lock(path, kind)?;
        Ok(Box::new(FaultyLock { guard, weather: Arc::clone(&self.weather) }))
    }
}

#[derive(Debug)]
struct FaultyLock {
    guard: Box<dyn LockGuard>,
    weather: Arc<Weather>,
}

impl LockGuard for FaultyLock {
    fn fs(&self) -> Option<Arc<dyn Fs>> {
        let inner = self.guard.fs()?;
        Some(Arc::new(FaultyFs { inner, weather: Arc::clone(&self.weather) }))
    }

    fn is_in_place(&self) -> io::Result<bool> {
        self.guard.is_in_place()
    }
}

#[derive(Debug)]
struct FaultyFile<F: ?Sized> {
    weather: Arc<Weather>,
    file: Arc<F>,
}

impl ReadFile for FaultyFile<dyn ReadFile> {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.weather.check(Op::Read)?;
        self.file.read_at(buffer, offset)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.weather.check(Op::Read)?;
        self.file.next_data(offset)
    }

    fn read_many(&self, reads: &mut [(&mut [u8], u64)]) -> io::Result<()> {
        self.weather.check(Op::Read)?;
        self.file.read_many(reads)
    }
}

impl AppendFile for FaultyFile<dyn AppendFile> {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        match self.weather.strike(Op::Append) {
            Some(fault @ (Fault::ShortWrite | Fault::InputOutput)) => {
                self.file.append(&bytes[..bytes.len() / 2])?;
                Err(fault.error())
            }
            Some(Fault::Panic) => std::panic::panic_any(PANIC),
            Some(fault) => Err(fault.error()),
            None => self.file.append(bytes),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.weather.check(Op::Sync)?;
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sievedb::fs::MemFs;

    #[test]
    fn a_fault_happens_while_it_is_armed_and_a_short_write_leaves_a_part() {
        assert!(Fault::ALL.iter().enumerate().all(|(at, fault)| *fault as usize == at));
        let weather = Weather::new(1);
        let fs = FaultyFs { inner: Arc::new(MemFs::new()), weather: Arc::clone(&weather) };
        let (dir, path) = (Path::new("/d"), Path::new("/d/f"));
        fs.create_dir(dir).unwrap();
        let file = fs.create(path).unwrap();
        file.append(b"12").unwrap();
        weather.arm(Fault::ShortWrite, 1);
        assert_eq!(weather.calm(), None);
        assert_eq!(file.append(b"3456").unwrap_err().raw_os_error(), Some(28));
        file.sync().unwrap();
        weather.disarm();
        assert_eq!(fs.open(path).unwrap().len().unwrap(), 4);
        weather.arm(Fault::Sync, 1);
        assert!(file.sync().is_err() && fs.sync_dir(dir).is_err() && fs.open(path).is_ok());
        weather.disarm();
        assert!(file.sync().is_ok() && weather.calm().is_some());
        assert_eq!(weather.fired(), [0, 1, 0, 0, 2, 0]);
    }
}
