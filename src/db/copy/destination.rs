//! The directory of a copy, built under another name next to it and renamed when complete.
//!
//! The temporary name ends with `.checkpoint-incomplete`. The directory is locked during the copy, so an unlocked one
//! is left from an interrupted copy. Its files are removed, unless there are foreign files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::db::open::steps::{lock_for_writing, sync_above};
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::fs::{Fs, LockedDir, lies_in};

const INCOMPLETE: &str = ".checkpoint-incomplete";

/// A directory that is removed on drop unless it is finished.
pub(super) struct Destination {
    base: Arc<dyn Fs>,
    dir: PathBuf,
    incomplete: PathBuf,
    fs: Arc<dyn Fs>,
    locked: Arc<LockedDir>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    Incomplete,
    Renamed,
    Finished,
}

impl Destination {
    /// Creates the directory for a copy of `store` at `dir`. `close_spare` closes an open file to make room.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] if `dir` is in the store, [`Error::Locked`] during another copy to it, [`Error::OtherFiles`] if
    /// the temporary directory has foreign files, [`Error::Io`], with the kind `AlreadyExists` if `dir` exists.
    pub(super) fn create(
        base: &Arc<dyn Fs>,
        dir: &Path,
        store: &Path,
        close_spare: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Self> {
        let look_for = |error| Error::io("look for", dir, error);
        let name = dir.file_name().ok_or_else(|| Error::invalid(format!("{} has no name", dir.display())))?;
        if lies_in(&**base, dir, store).map_err(look_for)? {
            return Err(Error::invalid(format!("{} is in the store", dir.display())));
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        base.canonical(parent).map_err(|error| Error::io("look for", parent, error))?;
        match base.list(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() != ErrorKind::NotADirectory => return Err(look_for(error)),
            _ => {
                let why = "it exists; a checkpoint needs a new directory";
                return Err(Error::io("create", dir, std::io::Error::new(ErrorKind::AlreadyExists, why)));
            }
        }
        let mut incomplete = name.to_owned();
        incomplete.push(INCOMPLETE);
        let incomplete = dir.with_file_name(incomplete);
        base.create_dir(&incomplete).map_err(|error| Error::io("create", &incomplete, error))?;
        let guard = lock_for_writing(&**base, &incomplete).inspect_err(|error| {
            if !matches!(error, Error::Locked { .. }) {
                let _ = base.remove_dir(&incomplete);
            }
        })?;
        let locked = LockedDir::new(&incomplete, base, guard);
        locked.close_spare_with(close_spare);
        remove_interrupted(&*locked, &incomplete)?;
        let fs = Arc::clone(&locked) as Arc<dyn Fs>;
        let (base, dir) = (Arc::clone(base), dir.to_path_buf());
        Ok(Self { base, dir, incomplete, fs, locked, state: State::Incomplete })
    }

    pub(super) fn path(&self) -> &Path {
        &self.incomplete
    }

    pub(super) fn fs(&self) -> &Arc<dyn Fs> {
        &self.fs
    }

    pub(super) fn finish(mut self) -> Result<()> {
        if cfg!(not(unix)) {
            self.locked.release();
        }
        let renamed = self.base.rename(&self.incomplete, &self.dir);
        renamed.map_err(|error| Error::io("rename", &self.incomplete, error))?;
        self.state = State::Renamed;
        sync_above(&*self.base, &self.dir)?;
        self.state = State::Finished;
        Ok(())
    }

    fn remove(&self) -> std::io::Result<()> {
        let dir = if self.state == State::Renamed { &self.dir } else { &self.incomplete };
        // `LOCK` is removed last, because it excludes other copies.
        let mut names = names(&*self.base, dir)?.0;
        names.sort_unstable_by_key(|name| *name == FileName::Lock);
        names.iter().try_for_each(|name| self.base.remove(&name.path(dir)))?;
        self.locked.release();
        self.base.remove_dir(dir)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        if self.state != State::Finished
            && let Err(error) = self.remove()
        {
            tracing::warn!(dir = %self.incomplete.display(), %error, "an incomplete copy could not be removed");
        }
    }
}

fn names(fs: &dyn Fs, dir: &Path) -> std::io::Result<(Vec<FileName>, Vec<String>)> {
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for name in fs.list(dir)? {
        match name.to_str().and_then(FileName::parse) {
            Some(name) => ours.push(name),
            None => others.push(name.to_string_lossy().into_owned()),
        }
    }
    Ok((ours, others))
}

fn remove_interrupted(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let (ours, mut others) = names(fs, dir).map_err(|error| Error::io("list", dir, error))?;
    if !others.is_empty() {
        let count = others.len();
        others.sort_unstable();
        others.truncate(5);
        return Err(Error::OtherFiles { dir: dir.to_path_buf(), found: others, count });
    }
    for name in ours.into_iter().filter(|name| *name != FileName::Lock) {
        let path = name.path(dir);
        fs.remove(&path).map_err(|error| Error::io("remove", &path, error))?;
    }
    Ok(())
}
