use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sievedb::fs::{CrashPolicy, Fs, MemFs, StdFs};
use sievedb::{Db, Error, Options};

use super::dice::{Dice, keyspace_options};
use super::faults::{FaultyFs, Weather};
use super::life::Life;
use super::watch::Call;

pub(super) enum Place {
    Disk(PathBuf),
    Memory(MemFs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    Moved,
    Replaced,
    Unlocked,
}

impl Disturbance {
    pub(super) const ALL: [Self; 3] = [Self::Moved, Self::Replaced, Self::Unlocked];
}

impl Place {
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Disk(dir) => dir,
            Self::Memory(_) => Path::new("/soak"),
        }
    }

    fn fs(&self) -> Arc<dyn Fs> {
        match self {
            Self::Disk(_) => Arc::new(StdFs),
            Self::Memory(fs) => Arc::new(fs.clone()),
        }
    }

    pub(super) fn options(&self, weather: &Arc<Weather>, dice: &mut Dice) -> Options {
        Options::new()
            .fs(Arc::new(FaultyFs { inner: self.fs(), weather: Arc::clone(weather) }))
            .memory_budget([6 << 20, 16 << 20, 64 << 20][dice.below(3) as usize])
            .background_threads(1 + dice.below(3) as usize)
            .log_bytes_max([256 << 10, 1 << 20, 4 << 20][dice.below(3) as usize])
            .open_files_max([8, 24, 256][dice.below(3) as usize])
            .audit_absent(20)
            .default_keyspace(keyspace_options(dice))
    }

    pub(super) fn lose_power(&mut self, policy: CrashPolicy) {
        if let Self::Memory(fs) = self {
            *fs = fs.crash(policy);
        }
    }

    pub(super) fn disturb(&self, what: Disturbance, life: &Life, dice: &mut Dice) -> Result<(), String> {
        let Self::Disk(dir) = self else { return Ok(()) };
        let aside = dir.with_extension("aside");
        life.is_disturbed.store(true, Ordering::SeqCst);
        let moved =
            |from: &Path, to: &Path| std::fs::rename(from, to).map_err(|error| format!("move: {error}"));
        match what {
            Disturbance::Unlocked => {
                std::fs::remove_file(dir.join("LOCK")).map_err(|error| format!("remove LOCK: {error}"))?;
                self.is_locked(dir, life)
            }
            Disturbance::Moved => {
                moved(dir, &aside)?;
                std::thread::sleep(Duration::from_millis(dice.below(300)));
                self.is_locked(&aside, life)?;
                moved(&aside, dir)
            }
            Disturbance::Replaced => {
                moved(dir, &aside)?;
                other_store(dir, Duration::from_millis(dice.below(300)))
                    .map_err(|wrong| format!("a store at the old path: {wrong}"))?;
                std::fs::remove_dir_all(dir).map_err(|error| format!("remove: {error}"))?;
                moved(&aside, dir)
            }
        }
    }

    fn is_locked(&self, dir: &Path, life: &Life) -> Result<(), String> {
        let open = || Options::new().create_if_missing(false).open(dir);
        let opened = life.watch.during(life.watch.controller(), Call::OpenSecond, open);
        match opened {
            Err(Error::Locked { .. }) => Ok(()),
            Ok(_) if life.is_closing.load(Ordering::SeqCst) => Ok(()),
            other => Err(format!("an open store was opened again: {other:?}")),
        }
    }

    pub(super) fn keep(&self, below: &Path) -> PathBuf {
        let Self::Memory(fs) = self else { return self.dir().to_path_buf() };
        let kept = below.join("memory");
        let _ = std::fs::create_dir_all(&kept);
        for (path, bytes) in fs.files(self.dir()) {
            if let Some(name) = path.file_name() {
                let _ = std::fs::write(kept.join(name), bytes);
            }
        }
        kept
    }
}

fn other_store(dir: &Path, lasting: Duration) -> Result<(), Error> {
    let db = Db::open(dir)?;
    db.put("other", "store")?;
    db.sync()?;
    std::thread::sleep(lasting);
    db.close()?;
    let db = Db::open(dir)?;
    let found: Vec<_> = db.iter().collect::<Result<_, _>>()?;
    let damage = db.verify()?.damage.len();
    let is_right = found.len() == 1 && *found[0].0 == *b"other" && *found[0].1 == *b"store" && damage == 0;
    assert!(is_right, "another store was changed: {found:?}, {damage} places are damaged");
    db.close()
}
