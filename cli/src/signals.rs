//! Signals that would end a command without a message or with the exit code of a crash.

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

/// Signals end a command on Unix only.
#[cfg(not(unix))]
pub(crate) fn prepare() {}
