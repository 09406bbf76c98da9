//! Writing many lines: in batches, in order, synced at the end.
//!
//! The first line that cannot be written ends it: every line before it is written and synced, later lines are not. An
//! interrupt from the terminal (SIGINT) ends it too: the current batch is finished, the store is closed, a message
//! has the number of written lines, and the exit code is 130, as shells expect. Lines that were read and not written
//! do not count. Any other signal ends the process at once: the written batches are in the log, and are read from it
//! when the store is opened again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sievedb::{Db, WriteBatch};

use crate::failure::{Failure, Result, warn};
use crate::interrupt::{EXIT_INTERRUPTED, on_interrupt};
use crate::lines::Lines;
use crate::progress::Progress;
use crate::store::Settling;
use crate::units;

/// Size at which a batch is written.
const BATCH_BYTES: usize = 256 << 10;

/// The written lines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    /// Lines.
    pub(crate) lines: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    /// Time until they were synced.
    pub(crate) time: Duration,
    /// Time that compactions took after that, until the store closed.
    pub(crate) settling: Duration,
}

/// Writes all lines, settles the store, and closes it. `add` puts a line into the batch and returns the bytes of its key
/// and value; `participle` is the word of messages for a written line: "loaded".
pub(crate) fn write_lines(
    db: Db,
    lines: &mut Lines,
    settling: Settling,
    participle: &'static str,
    add: impl FnMut(&[u8], &mut WriteBatch) -> Result<u64>,
) -> Result<Written> {
    let start = Instant::now();
    let progress = Some(Progress::of_bytes("reading", lines.bytes()));
    let state = Arc::new(Mutex::new(State { written: Written::default(), progress }));
    close_on_interrupt(db.clone(), Arc::clone(&state), participle)?;
    let result = write_batches(&db, lines, &state, add);
    let time = start.elapsed();
    // Not locked yet: an interrupt ends the wait.
    let settled = if result.is_ok() { settling.settle(&db) } else { Ok(()) };
    // Locked until the end: an interrupt that comes now must not report on a store that is being closed.
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.progress = None;
    let closed = db.close();
    (state.written.time, state.written.settling) = (time, start.elapsed().saturating_sub(time));
    lines.print_notes();
    lines.print_note_on_escapes();
    if !matches!(result, Err(Failure::Store(_))) {
        closed?;
    }
    let count = units::counted(state.written.lines, "line", "lines");
    result.map_err(|failure| failure.with_note(format!("{count} before it {participle}")))?;
    settled.map_err(|failure| failure.with_note(format!("all {count} {participle}")))?;
    Ok(state.written)
}

/// Shared with the handler of interrupts.
struct State {
    written: Written,
    /// `None` once drawing has ended.
    progress: Option<Progress>,
}

/// Writes every line that was read, also when a later one fails.
fn write_batches(
    db: &Db,
    lines: &mut Lines,
    state: &Mutex<State>,
    mut add: impl FnMut(&[u8], &mut WriteBatch) -> Result<u64>,
) -> Result<()> {
    let mut batch = WriteBatch::new();
    let mut read = Written::default();
    loop {
        let added = match lines.next() {
            Ok(None) => Ok(None),
            Ok(Some(line)) => add(line, &mut batch).map(Some).map_err(|failure| lines.blame(failure)),
            Err(failure) => Err(failure),
        };
        if let Ok(Some(len)) = added {
            read.lines += 1;
            read.bytes += len;
            if batch.size_bytes() < BATCH_BYTES && !lines.waits_for_more() {
                continue;
            }
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        db.write(std::mem::take(&mut batch))?;
        state.written = read;
        if let Some(progress) = &mut state.progress {
            progress.at(lines.position());
        }
        if added?.is_none() {
            return Ok(db.sync()?);
        }
    }
}

/// From now on an interrupt closes the store and ends the process. It is handled in a thread of its own, and
/// so also while the command waits for its input.
fn close_on_interrupt(db: Db, state: Arc<Mutex<State>>, participle: &'static str) -> Result<()> {
    let handle = move || {
        // Waits for a batch that is being written.
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        // Clears the bar, so that the message has the line to itself.
        state.progress = None;
        let count = units::counted(state.written.lines, "line", "lines");
        match db.clone().close() {
            Ok(()) => warn("sievedb", &format!("interrupted; {count} {participle}")),
            Err(error) => warn("sievedb", &format!("interrupted after {count}; {error}")),
        }
        std::process::exit(EXIT_INTERRUPTED);
    };
    on_interrupt(handle)
}
