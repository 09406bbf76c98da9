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
    let tally = Arc::new(Mutex::new(Tally::default()));
    on_interrupt(db.clone(), Arc::clone(&tally), done)?;
    let written = write_batches(&db, lines, &tally, add);
    // Held from here on: an interrupt that comes now must not report on a store that is being closed.
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    let closed = db.close();
    tally.time = start.elapsed();
    if !matches!(written, Err(Failure::Store(_))) {
        closed?;
    }
    let count = units::counted(tally.lines, "line", "lines");
    written.map_err(|failure| failure.noted(format!("{count} before it {done}")))?;
    Ok(*tally)
}

/// Whether more is to come only when somebody sends it: what has come so far is written then.
fn waits(lines: &Lines) -> bool {
    lines.bytes().is_none() && lines.may_wait()
}

/// What was read before a failure is written all the same.
fn write_batches(
    db: &Db,
    lines: &mut Lines,
    tally: &Mutex<Tally>,
    mut add: impl FnMut(&[u8], &mut WriteBatch) -> Result<u64>,
) -> Result<()> {
    let mut progress = Progress::of_bytes("reading", lines.bytes());
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
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        db.write(std::mem::take(&mut batch))?;
        *tally = read;
        progress.at(lines.position());
        if added?.is_none() {
            return Ok(db.sync()?);
        }
    }
}

/// From now on an interrupt closes the store and ends the process. It is told in a thread of its own, so that it
/// comes through while the command waits for its input.
fn on_interrupt(db: Db, tally: Arc<Mutex<Tally>>, done: &'static str) -> Result<()> {
    let handle = move || {
        // Waits for a batch that is being written.
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        let count = units::counted(tally.lines, "line", "lines");
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
