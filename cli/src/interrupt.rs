//! Commands that end soon, with nothing half done, when they are interrupted.
//!
//! After the first interrupt the command ends soon, by itself. The second one ends the process at once.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sievedb_backup::{Control, Stage};

use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::store::note;

/// The exit code of a process that SIGINT ended.
pub(crate) const EXIT_INTERRUPTED: i32 = 130;

/// Calls `handle` at each interrupt, in a thread of its own.
pub(crate) fn on_interrupt(handle: impl FnMut() + Send + 'static) -> Result<()> {
    ctrlc::set_handler(handle).map_err(|error| match error {
        ctrlc::Error::System(source) => Failure::io("prepare for an interrupt", source),
        other => Failure::Refused(other.to_string()),
    })
}

/// Shows how far a backup or restore is, limits its rate, and ends it when the process is interrupted.
pub(crate) fn watched(limit_rate: Option<usize>) -> Result<Control<'static>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let verifies = Arc::new(AtomicBool::new(false));
    let is_verifying = Arc::clone(&verifies);
    on_interrupt(move || {
        if flag.swap(true, Ordering::SeqCst) {
            std::process::exit(EXIT_INTERRUPTED);
        }
        // Verifying and repairing end with their stage.
        if is_verifying.load(Ordering::SeqCst) {
            note("interrupted: ends when verifying has ended; another interrupt ends at once");
        }
    })?;
    let mut shown: Option<(Stage, Progress)> = None;
    let control = Control::new().limit_rate(limit_rate.unwrap_or(0) as u64);
    Ok(control.watch(move |progress| {
        verifies.store(progress.stage != Stage::Copying, Ordering::SeqCst);
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
        if interrupted.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }))
}
