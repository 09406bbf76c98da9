//! The process that opened a store. A process forked from it has copies of all handles but none of its threads, and
//! shares its files and its lock.

#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    /// Counts forks. `None` if the C library was out of memory; then the process id is used.
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

    /// Whether this is the process, by its id: on Linux a system call.
    pub(super) fn is_this(&self) -> bool {
        self.id == std::process::id()
    }

    /// The same as [`Self::is_this`], by reading a counter of forks of the C library. It does not count a child
    /// that was made by the bare system call `clone`.
    #[inline]
    pub(super) fn is_this_by_forks(&self) -> bool {
        #[cfg(unix)]
        if let Some(forks) = &self.forks {
            // A clone, because a guard reports each fork once.
            return !forks.clone().detected_fork();
        }
        self.is_this()
    }
}
