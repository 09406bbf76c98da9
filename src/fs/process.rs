//! The process that opened a store. A forked process has none of its threads, and shares files and lock.

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

    /// On Linux a system call.
    pub(super) fn is_this(&self) -> bool {
        self.id == std::process::id()
    }

    /// Misses children of the bare system call `clone`.
    #[inline]
    pub(super) fn is_this_by_forks(&self) -> bool {
        #[cfg(unix)]
        if let Some(forks) = &self.forks {
            // A guard reports each fork once, so a clone is used.
            return !forks.clone().detected_fork();
        }
        self.is_this()
    }
}
