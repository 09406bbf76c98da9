//! The process that opened a store. A forked process has no background threads, and shares the files and the lock.

#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    /// `None` if the C library was out of memory.
    #[cfg(unix)]
    forks: Option<forkguard::Guard>,
}

impl Process {
    pub(super) fn this() -> Self {
        Self {
            id: std::process::id(),
            #[cfg(unix)]
            forks: forkguard::Guard::try_new().ok(),
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Makes a system call on Linux.
    pub(super) fn is_this(&self) -> bool {
        self.id == std::process::id()
    }

    /// Does not detect children created with a direct `clone` system call.
    #[inline]
    pub(super) fn is_this_by_forks(&self) -> bool {
        #[cfg(unix)]
        if let Some(forks) = &self.forks {
            // A guard reports each fork only once, so each check uses a clone.
            return !forks.clone().detected_fork();
        }
        self.is_this()
    }
}
