//! Writing what many lines say: in batches, in order, synced at the end.
//!
//! At the first line that makes no sense it stops: every line before that one is written and synced, none after
//! it. So it does when it is interrupted from the terminal (SIGINT): the batch that is being written is finished,
//! the store is closed, the message says how many lines it holds, and the exit code is 130, as a shell expects.
//! Lines that were read but not written yet do not count as loaded. Any other signal ends the process at once: what
//! was written is in the log, and is there when the store is opened again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sievedb::{Db, WriteBatch};

use crate::failure::{Failure, Result, warn};
use crate::lines::Lines;
use crate::progress::Progress;
use crate::units;

/// Size at which a batch is written.
const BATCH_BYTES: usize = 256 << 10;

/// What a shell reports for a process that SIGINT ended.
const EXIT_INTERRUPTED: i32 = 130;

/// What has been written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Lines.
    pub(crate) lines: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    /// From opening to closing.
    pub(crate) time: Duration,
}

/// Writes all lines and closes the store. `add` puts the current line into the batch and gives the bytes of its
/// key and value; `done` is what has happened to a line: "loaded".
pub(crate) fn write_lines(
    db: Db,
    lines: &mut Lines,
    done: &'static str,
    add: impl FnMut(&[u8], &mut WriteBatch) -> Result<u64>,
) -> Result<Tally> {
    let start = Instant::now();
    let progress = Some(Progress::of_bytes("reading", lines.bytes()));
    let state = Arc::new(Mutex::new(State { tally: Tally::default(), progress }));
    on_interrupt(db.clone(), Arc::clone(&state), done)?;
    let written = write_batches(&db, lines, &state, add);
    // Held from here on: an interrupt that comes now must not report on a store that is being closed.
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    state.progress = None;
    let closed = db.close();
    state.tally.time = start.elapsed();
    if !matches!(written, Err(Failure::Store(_))) {
        closed?;
    }
    let count = units::counted(state.tally.lines, "line", "lines");
    written.map_err(|failure| failure.noted(format!("{count} before it {done}")))?;
    Ok(state.tally)
}

/// What the command and an interrupt both tell of.
struct State {
    tally: Tally,
    /// The bar; `None` once nothing is to be drawn any more.
    progress: Option<Progress>,
}

/// Whether more is to come only when somebody sends it: what has come so far is written then.
fn waits(lines: &Lines) -> bool {
    lines.bytes().is_none() && lines.may_wait()
}

/// What was read before a failure is written all the same.
fn write_batches(
    db: &Db,
    lines: &mut Lines,
    state: &Mutex<State>,
    mut add: impl FnMut(&[u8], &mut WriteBatch) -> Result<u64>,
) -> Result<()> {
    let mut batch = WriteBatch::new();
    let mut read = Tally::default();
    loop {
        let added = match lines.next() {
            Ok(None) => Ok(None),
            Ok(Some(line)) => add(line, &mut batch).map(Some).map_err(|failure| lines.blame(failure)),
            Err(failure) => Err(failure),
        };
        if let Ok(Some(len)) = added {
            read.lines += 1;
            read.bytes += len;
            if batch.size_bytes() < BATCH_BYTES && !waits(lines) {
                continue;
            }
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        db.write(std::mem::take(&mut batch))?;
        state.tally = read;
        if let Some(progress) = &mut state.progress {
            progress.at(lines.position());
        }
        if added?.is_none() {
            return Ok(db.sync()?);
        }
    }
}

/// From now on an interrupt closes the store and ends the process. It is told in a thread of its own, so that it
/// comes through while the command waits for its input.
fn on_interrupt(db: Db, state: Arc<Mutex<State>>, done: &'static str) -> Result<()> {
    let handle = move || {
        // Waits for a batch that is being written.
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        // The message is not to stand behind the bar.
        state.progress = None;
        let count = units::counted(state.tally.lines, "line", "lines");
        match db.clone().close() {
            Ok(()) => warn("sievedb", &format!("interrupted; {count} {done}")),
            Err(error) => warn("sievedb", &format!("interrupted after {count}; {error}")),
        }
        std::process::exit(EXIT_INTERRUPTED);
    };
    ctrlc::set_handler(handle).map_err(|error| match error {
        ctrlc::Error::System(source) => Failure::io("prepare for an interrupt", source),
        other => Failure::Refused(other.to_string()),
    })
}
