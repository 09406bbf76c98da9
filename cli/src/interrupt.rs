//! Commands that SIGINT, SIGTERM or SIGHUP ends cleanly; the second signal ends the process at once.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use sievedb_backup::{Control, Error, Stage};

use crate::failure::{Failure, Result};
use crate::progress::Progress;

pub(crate) const EXIT_INTERRUPTED: i32 = 130;

/// The word for the end of a command by a signal with this exit code.
pub(crate) fn participle(code: i32) -> &'static str {
    if code == EXIT_INTERRUPTED { "interrupted" } else { "terminated" }
}

/// Calls `handle` at each SIGINT, SIGTERM and SIGHUP, in a thread of its own, with the exit code that shells expect. On Linux, a
/// signal that the parent process ignores stays ignored, such as SIGINT after `sievedb … &` in a script.
#[cfg(unix)]
pub(crate) fn on_end_signal(mut handle: impl FnMut(i32) + Send + 'static) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::{flag, low_level};
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicUsize;

    let cannot = |source| Failure::io("prepare for signals", source);
    let (mut wakes, wakeup) = UnixStream::pair().map_err(cannot)?;
    let last = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|&signal| !is_ignored(signal)) {
        // The number is stored before the thread that reads it is woken.
        flag::register_usize(signal, Arc::clone(&last), signal as usize).map_err(cannot)?;
        low_level::pipe::register(signal, wakeup.try_clone().map_err(cannot)?).map_err(cannot)?;
    }
    let watch = move || {
        let mut byte = [0];
        while wakes.read_exact(&mut byte).is_ok() {
            handle(128 + last.load(Ordering::SeqCst) as i32);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch).map(drop).map_err(cannot)
}

/// Whether the process ignores a signal, according to `/proc`; `false` elsewhere.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.unwrap_or(0) >> (signal - 1) & 1 == 1
}

#[cfg(not(unix))]
pub(crate) fn on_end_signal(mut handle: impl FnMut(i32) + Send + 'static) -> Result<()> {
    ctrlc::set_handler(move || handle(EXIT_INTERRUPTED)).map_err(|error| match error {
        ctrlc::Error::System(source) => Failure::io("prepare for an interrupt", source),
        other => Failure::Refused(other.to_string()),
    })
}

/// The exit code of the first signal; 0 before it.
pub(crate) type Interrupted = Arc<AtomicI32>;

/// The failure of work that this signal may have ended.
pub(crate) fn failure_of(error: Error, interrupted: &AtomicI32) -> Failure {
    match error {
        Error::Cancelled => Failure::Interrupted(interrupted.load(Ordering::SeqCst)),
        error => error.into(),
    }
}

/// Shows how far a backup or restore is, limits its rate, and ends it when the process is interrupted.
pub(crate) fn watched(limit_rate: Option<usize>) -> Result<(Control<'static>, Interrupted)> {
    let interrupted = Interrupted::default();
    let (flag, is_set) = (Arc::clone(&interrupted), Arc::clone(&interrupted));
    on_end_signal(move |code| {
        if flag.swap(code, Ordering::SeqCst) != 0 {
            std::process::exit(code);
        }
    })?;
    let mut shown: Option<(Stage, Progress)> = None;
    let control = Control::new().limit_rate(limit_rate.unwrap_or(0) as u64);
    let control = control.watch(move |progress| {
        if shown.as_ref().is_none_or(|(stage, _)| *stage != progress.stage) {
            let total = Some(progress.bytes);
            let bar = match progress.stage {
                Stage::Copying => Progress::of_bytes("copying", total),
                Stage::Salvaging => Progress::of_items("repairing", total),
                _ => Progress::of_bytes("verifying", total),
            };
            shown = Some((progress.stage, bar));
        }
        if let Some((_, bar)) = &mut shown {
            bar.at(progress.bytes_done);
        }
        match is_set.load(Ordering::SeqCst) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    Ok((control, interrupted))
}
