//! Signals that would end a command without a message or with the exit code of a crash, and the limit on open files.

/// The exit code after memory has run out.
#[cfg(unix)]
const EXIT_NO_MEMORY: i32 = 3;

/// From now on:
///
/// - a write over the limit on the size of files (`ulimit -f`) fails with an error, instead of a SIGXFSZ that ends
///   the process;
/// - the abort after a failed allocation, whose message the standard library prints, ends the process with exit
///   code 3.
#[cfg(unix)]
pub(crate) fn prepare() {
    use signal_hook::{consts, flag};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    // If a handler cannot be installed, the signals keep their meaning.
    let _ = flag::register(consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let always = Arc::new(AtomicBool::new(true));
    let _ = flag::register_conditional_shutdown(consts::SIGABRT, EXIT_NO_MEMORY, always);
}

/// Lets the process open as many files as the system allows: a view of a store that is written to holds its tables open.
#[cfg(unix)]
pub(crate) fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If it is refused, a backup starts over whenever a table that it does not hold is removed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// There is no such limit.
#[cfg(not(unix))]
pub(crate) fn open_many_files() {}

/// Signals end a command on Unix only.
#[cfg(not(unix))]
pub(crate) fn prepare() {}
