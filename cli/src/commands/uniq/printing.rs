//! Printing decided lots.

use std::io::ErrorKind;
use std::time::Duration;

use sievedb::{Commit, Db, Error, Keyspace, WriteBatch};

use super::Args;
use super::lot::Lot;
use super::stages::{Groups, Size};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Progress;
use crate::{store, units};

/// Further tries to remove lines on a full disk.
const TRIES: u32 = 10;

const PAUSE: Duration = Duration::from_millis(20);

const KEPT: &str = "no line is removed from the store";

pub(super) struct Decided {
    pub(super) lot: Lot,
    pub(super) new: Vec<bool>,
    /// The commit of the new keys; `None` with a journal and in a dry run.
    pub(super) commit: Option<Commit>,
}

impl Size for Decided {
    fn lines(&self) -> usize {
        self.lot.lines()
    }

    fn bytes(&self) -> usize {
        self.lot.bytes()
    }
}

/// Makes the decided lines durable, and prints them, or their number at the end. Counts all lines in `done`.
pub(super) fn print_all(
    db: &Db,
    keyspace: &Keyspace,
    args: &Args,
    bytes: Option<u64>,
    groups: &mut Groups<'_, Decided>,
    done: &mut u64,
) -> Result<()> {
    let mut progress = Progress::of_bytes("reading", bytes);
    let (mut out, mut printed) = (Output::new(), 0_u64);
    while let Some(group) = groups.next() {
        // The commit of the last lot completes after those before it.
        let durable = match group.last().and_then(|last| last.commit.as_ref()) {
            Some(commit) => commit.wait(),
            None if args.dry_run => Ok(()),
            None => db.sync(),
        };
        if let Err(error) = durable {
            let failure = Failure::from(error).with_note(state(args, *done, printed));
            let lots = group.into_iter().chain(groups.end());
            let new: usize = lots.map(|lot| lot.new.iter().filter(|&&is_new| is_new).count()).sum();
            let prints_new = new > 0 && args.journal.is_none() && !args.count && !args.seen;
            return Err(if prints_new { failure.with_note(unprinted_note(new as u64)) } else { failure });
        }
        let begin = out.written();
        if let Err(failure) = print(&group, args, &mut out) {
            let bytes = out.written() - begin;
            let failure = match out.end_after_line() {
                true => failure,
                false => failure.with_note("the output ends with a part of a line"),
            };
            let lots = group.into_iter().chain(groups.end());
            return Err(forget(db, keyspace, args, lots, bytes, printed, failure));
        }
        for Decided { lot, new, .. } in &group {
            *done += lot.lines() as u64;
            printed += new.iter().filter(|&&is_new| args.chooses(is_new)).count() as u64;
            progress.at(lot.position);
        }
    }
    if !args.dry_run {
        groups.note_failure(|| state(args, *done, printed));
    }
    if !args.count {
        return out.finish();
    }
    let counted = out.text(&printed.to_string()).and_then(|()| out.finish());
    counted.map_err(|failure| if args.dry_run { failure } else { failure.with_note(KEPT) })
}

fn state(args: &Args, done: u64, printed: u64) -> String {
    let done = units::counted(done, "line before it is stored", "lines before it are stored");
    let printed = match (args.count, &args.journal) {
        (true, _) => String::new(),
        (false, None) => format!(", {} printed", units::count(printed)),
        (false, Some(_)) => format!(", {} written to the journal", units::count(printed)),
    };
    format!("{done}{printed}; with the same input, the next run counts them as seen")
}

fn unprinted_note(new: u64) -> String {
    let lines = units::counted(new, "line is", "lines are");
    format!("up to {lines} stored but not printed, which --journal avoids and --batch limits")
}

fn print(group: &[Decided], args: &Args, out: &mut Output) -> Result<()> {
    if args.journal.is_some() || args.count {
        return Ok(());
    }
    for Decided { lot, new, .. } in group {
        for (line, is_new) in lot.answered(new).filter(|(_, is_new)| args.chooses(*is_new)) {
            out.raw(args.tag_of(is_new))?;
            out.raw(line)?;
        }
    }
    out.flush()
}

/// Removes the new lines after the first `bytes` of the output of these lots from the store, so that the next run prints
/// them.
fn forget(
    db: &Db,
    keyspace: &Keyspace,
    args: &Args,
    lots: impl Iterator<Item = Decided>,
    bytes: u64,
    mut printed: u64,
    failure: Failure,
) -> Failure {
    if args.dry_run {
        return failure;
    }
    if args.seen {
        return failure.with_note(KEPT);
    }
    let (mut end, mut unprinted, mut removed) = (0, 0_u64, Ok(()));
    for Decided { lot, new, .. } in lots {
        let (mut batch, numbers) = (WriteBatch::new(), 0..);
        for ((line, is_new), number) in lot.answered(&new).zip(numbers) {
            if args.chooses(is_new) {
                end += (args.tag_of(is_new).len() + line.len()) as u64;
                printed += u64::from(end <= bytes);
            }
            if is_new && end > bytes {
                batch.delete_in(keyspace, lot.key(number));
                unprinted += 1;
            }
        }
        removed = removed.and_then(|()| remove(db, &batch));
    }
    let printed = units::counted(printed, "line is", "lines are");
    let later = "later new lines are not stored, and are new in the next run";
    match removed {
        Ok(()) if matches!(failure, Failure::PipeClosed) => {
            store::note(&format!(
                "the reader of the output exited: {printed} printed, and count as seen even if it did not read them; {later}"
            ));
            failure
        }
        Ok(()) => failure.with_note(format!("{printed} printed; {later}")),
        Err(error) => Failure::from(error).with_note(format!("{failure}; {}", unprinted_note(unprinted))),
    }
}

/// If the store shares the full disk with the output, a write may fail before the reserve is released.
fn remove(db: &Db, batch: &WriteBatch) -> Result<(), Error> {
    let is_full = |error: &Error| match error {
        Error::Io { source, .. } => {
            matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
        }
        _ => false,
    };
    for _ in 0..TRIES {
        match db.write(batch.clone()) {
            Err(error) if is_full(&error) => std::thread::sleep(PAUSE),
            written => return written,
        }
    }
    db.write(batch.clone())
}
