//! Signals that would end a command without a message or like a crash; the limit on open files; the priority.

#[cfg(unix)]
const EXIT_NO_MEMORY: i32 = 3;

/// Makes a write over `ulimit -f` an error instead of SIGXFSZ. An abort after a failed allocation gets exit code 3.
#[cfg(unix)]
pub(crate) fn prepare() {
    use signal_hook::{consts, flag};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    // If this fails, the signal keeps its default action.
    let _ = flag::register(consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let always = Arc::new(AtomicBool::new(true));
    let _ = flag::register_conditional_shutdown(consts::SIGABRT, EXIT_NO_MEMORY, always);
}

/// Writers of the store get the processor first.
#[cfg(unix)]
pub(crate) fn lower_priority() {
    let _ = rustix::process::nice(NICE);
}

/// As `nice` without options.
#[cfg(unix)]
const NICE: i32 = 10;

#[cfg(not(unix))]
pub(crate) fn lower_priority() {}

/// Raises the limit on open files, because a view of a store in use holds its tables open.
#[cfg(unix)]
pub(crate) fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If refused, a backup starts again when the writer removes a table that is not open.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(not(unix))]
pub(crate) fn open_many_files() {}

#[cfg(not(unix))]
pub(crate) fn prepare() {}
