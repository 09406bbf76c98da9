//! The process that opened a store. One that is forked from it has copies of all handles, but none of its threads,
//! and shares its files and its lock.

/// The process that this was made in.
#[derive(Debug)]
pub(super) struct Process {
    id: u32,
    /// Counts forks. `None` if the C library had no memory to note it, and then the id is asked for.
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

    /// What [`Self::is_this`] finds, at the price of reading a counter. The C library counts its forks; a child
    /// that was made by the bare system call `clone` is not in it.
    #[inline]
    pub(super) fn is_this_by_forks(&self) -> bool {
        #[cfg(unix)]
        if let Some(forks) = &self.forks {
            // A clone, because a guard tells of each fork once.
            return !forks.clone().detected_fork();
        }
        self.is_this()
    }
}
