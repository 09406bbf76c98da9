//! Writes lines in batches, in order, and syncs at the end. An invalid line, SIGINT (exit code 130), SIGTERM (143) or SIGHUP
//! (129) ends it when the earlier lines are written and synced. After other fatal signals, the written batches are in the log.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sievedb::{Db, WriteBatch};

use crate::failure::{Failure, Result, warn};
use crate::interrupt::{self, on_end_signal};
use crate::lines::Lines;
use crate::progress::Progress;
use crate::store::Settling;
use crate::units;

const BATCH_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    pub(crate) settling: Duration,
}

/// `add` puts a line into the batch and returns the bytes of its key and value; `participle` is for messages, such as "loaded".
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
    close_on_signal(db.clone(), Arc::clone(&state), participle)?;
    let result = write_batches(&db, lines, &state, add);
    let time = start.elapsed();
    // Not under the lock, so that an interrupt can end the wait.
    let settled = if result.is_ok() { settling.settle(&db) } else { Ok(()) };
    // Held to the end, because an interrupt must not report on a closing store.
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
    result.map_err(|failure| {
        let is_input = failure.code() == 2;
        let failure = failure.with_note(format!("{count} before it {participle}"));
        if is_input { failure } else { failure.with_note("the command can be repeated with the same input") }
    })?;
    settled.map_err(|failure| failure.with_note(format!("all {count} {participle}")))?;
    Ok(state.written)
}

struct State {
    written: Written,
    progress: Option<Progress>,
}

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

/// Runs in its own thread because the command may wait for input.
fn close_on_signal(db: Db, state: Arc<Mutex<State>>, participle: &'static str) -> Result<()> {
    on_end_signal(move |code| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        state.progress = None;
        let count = units::counted(state.written.lines, "line", "lines");
        let end = interrupt::participle(code);
        match db.clone().close() {
            Ok(()) => warn("sievedb", &format!("{end}; {count} {participle}")),
            Err(error) => warn("sievedb", &format!("{end} after {count}; {error}")),
        }
        std::process::exit(code);
    })
}
