//! `sievedb uniq`: the lines that were never seen before, in this input or in any earlier one.
//!
//! Three stages (`stages`) handle lots of lines at the same time. For each lot:
//!
//! 1. One `insert_new_many_pending` inserts the keys, in their order, so that blocks are read in the order of the file, and
//!    returns the new ones.
//! 2. Once these are durable, their lines are printed, in the order of the input.
//!
//! With a journal, one `insert_new_many_then` first appends the new lines to it and syncs it, then writes their keys and its
//! length. Nothing is printed.
//!
//! Nothing else writes to the store meanwhile, because it is locked. But a time to live may end before the keys are
//! written: the answers change, and the lines that were appended are replaced by those that are new now.
//!
//! SIGINT and SIGTERM end the input. When the lines that were read are printed, or a later stage failed, the printer ends
//! the process, because the reader may be waiting for its input.

mod stages;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sievedb::{Commit, Db, Durability, Error, Keyspace, NewKeys, Refresh};
use stages::{BYTES_MAX, Filled, Groups, Pace, Size, Stop};

use crate::arguments::check_limits;
use crate::failure::{Failure, Result, warn};
use crate::interrupt::{EXIT_INTERRUPTED, on_end_signal};
use crate::journal::{self, Journal};
use crate::line_format::{Content, LineFormat};
use crate::line_key::LineKey;
use crate::lines::Lines;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, JOURNALS, Settling, Store, Within};
use crate::units;
use crate::window::{Window, time};

/// Lines of a lot at most. In larger lots more lines find their block in the processor's caches.
const LINES_MAX: usize = 16_000;

/// Prints each line that was never seen before, in order, and stores it.
///
/// A line is seen if it came earlier in the input or in an earlier run with the same store, or if its key was stored by another
/// command. The answer is exact. A line is the same key for `contains` and `load`. By default, blank lines are skipped, and lines
/// that end with a carriage return are refused. Lines are printed unchanged, with a newline, and without the carriage return that
/// --crlf drops. A key has at most 64 KiB, a line with --key 16 MiB.
///
/// Lines are stored, synced, then printed: before the command waits for the next line, and every --sync-every milliseconds.
/// SIGINT (Ctrl-C) and SIGTERM end the input: every stored line is printed, then the exit code is 130 or 143. A second signal
/// ends the command at once. If it is killed, or the reader of its output exits, lines since the last sync may be stored but not
/// printed; --batch limits their number. With --journal no line is lost or doubled: the command writes the lines to a file, and
/// commits its length together with the lines. Started again with the same input, it removes uncommitted lines from the file and
/// continues. After the file was moved away, --new-journal starts another one.
///
/// With --ttl a line is forgotten, and counts as new again, that long after it was first seen (with --refresh on-sight: last
/// seen), at most a bucket later (--ttl-buckets). The space is freed without a compaction.
///
/// After the last line the command waits for compactions, so that later lookups are fast, unless --no-settle is given.
///
/// The first line without a key, or with one that is too long, ends the command with exit code 2 after the lines before it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  find / -xdev | sievedb uniq paths.db                      # the paths that are new since the last time
  tail -F access.log | sievedb uniq visitors.db --key 1     # the first line of each visitor
  sievedb uniq events.db events.log --key 'id=(\\w+)' --journal unique.log
  mv unique.log unique.log.1 && sievedb uniq events.db events.log --journal unique.log --new-journal
  sievedb uniq words.db words.txt --count                   # how many are new
  tail -F access.log | sievedb uniq visitors.db --key 1 --tag --dry-run
  tail -F access.log | sievedb uniq seen.db --ttl 1h        # the lines that are new within the last hour")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The file to read; `-` reads standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// The key in a line: the number of a field between spaces or tabs, from 1, or a regular expression, whose first group, or
    /// else whole match, is the key.
    #[arg(long, value_name = "FIELD|REGEX", value_parser = LineKey::parse)]
    key: Option<LineKey>,
    /// Print the lines that were seen before, instead of the others.
    #[arg(long)]
    seen: bool,
    /// Print every line after `new` or `seen` and a tab, and flush the output before the next line is waited for.
    #[arg(long, conflicts_with_all = ["seen", "count", "journal"])]
    tag: bool,
    /// Store nothing: the store must exist. New keys of the input are kept in memory.
    #[arg(long, conflicts_with_all = ["journal", "ttl"])]
    dry_run: bool,
    /// Exclude spaces and tabs at both ends from the key. A line without others is blank.
    #[arg(long)]
    trim: bool,
    /// Print the number of lines instead of the lines.
    #[arg(long)]
    count: bool,
    /// Sync and print after so many lines, before more are stored. This takes longer than --sync-every.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// Milliseconds between two syncs while lines keep coming.
    #[arg(long, value_name = "MS", default_value_t = 100, conflicts_with = "batch", value_parser = clap::value_parser!(u32).range(0..=60_000))]
    sync_every: u32,
    /// Forget each line so long after it was first seen: a number with s, m, h or d, such as 90s or 24h. The keyspace keeps this
    /// option, and its present entries expire too.
    #[arg(long, value_name = "TIME", value_parser = time)]
    ttl: Option<Duration>,
    /// Number of steps in which lines are forgotten during --ttl [default: 24, or the keyspace's].
    #[arg(long, value_name = "N", requires = "ttl", value_parser = clap::value_parser!(u64).range(1..=128))]
    ttl_buckets: Option<u64>,
    /// Restart the time to live of a line only when it returns after it was forgotten, or each time it is seen, once in a bucket
    /// [default: on-write, or the keyspace's].
    #[arg(long, value_name = "WHEN", requires = "ttl", value_parser = refresh)]
    refresh: Option<Refresh>,
    /// Write the lines to this file, each exactly once; it begins empty.
    #[arg(long, value_name = "OUT", conflicts_with_all = ["seen", "count"])]
    journal: Option<PathBuf>,
    /// Start a new journal, in a file that is missing or empty, in place of the current journal of the store.
    #[arg(long, requires = "journal")]
    new_journal: bool,
    #[command(flatten)]
    settling: Settling,
    #[command(flatten)]
    lines: LineFormat,
    #[command(flatten)]
    within: Within,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let content = if args.key.is_some() { Content::Text(BYTES_MAX) } else { Content::Line };
    let mut lines = Lines::open(&args.file, args.lines, content)?;
    args.check_journal()?;
    let db = if args.dry_run { args.store.for_reading()? } else { args.store.or_create()? };
    let keyspace = if args.dry_run { args.within.existing(&db)? } else { args.within.or_create(&db)? };
    let Args { ttl, ttl_buckets: buckets, refresh, .. } = *args;
    Window { ttl, buckets, refresh }.set(&keyspace)?;
    let journal = args.journal.as_ref();
    let journal = journal.map(|path| Kept::open(&db, path, &keyspace, args.new_journal)).transpose()?;
    // A line may count as seen because of an earlier program's unsynced writes.
    if !args.dry_run {
        db.sync()?;
    }
    let unwritten = args.dry_run.then(HashSet::new);
    let mut sieve = Sieve { keyspace, journal, unwritten };
    let bytes = lines.bytes();
    let fill = |lot: &mut Lot| lot.fill(&mut lines, args);
    let ending = Arc::new(Ending::default());
    ending.watch_signals()?;
    let print = |groups: &mut Groups<'_, Decided>| {
        let mut done = 0;
        let printed = print_all(&db, args, bytes, groups, &mut done);
        ending.finish(&db, done, printed);
        Ok(())
    };
    let passed = stages::run(args.pace(), &ending.stop, fill, |lot| sieve.decide(lot), print);
    lines.print_notes();
    let settled = if passed.is_ok() && !args.dry_run { args.settling.settle(&db) } else { Ok(()) };
    let closed = db.close();
    passed?;
    settled?;
    Ok(closed?)
}

impl Args {
    /// Runs before a store is created.
    fn check_journal(&self) -> Result<()> {
        let Some(path) = &self.journal else { return Ok(()) };
        if self.within.keyspace.as_deref() == Some(JOURNALS) {
            return Err(Failure::Usage(format!("the keyspace {JOURNALS} has the records of journals")));
        }
        let has_no_record = self.new_journal || !self.store.db.exists();
        if has_no_record { Journal::check_new(path) } else { Ok(()) }
    }

    fn pace(&self) -> Pace {
        Pace {
            lines_max: self.batch.map_or(LINES_MAX, |batch| batch as usize),
            one_at_a_time: self.batch.is_some(),
            sync_every: Duration::from_millis(self.sync_every.into()),
        }
    }
}

fn refresh(text: &str) -> Result<Refresh, String> {
    match text {
        "on-write" => Ok(Refresh::OnWrite),
        "on-sight" => Ok(Refresh::OnSight),
        _ => Err("on-write or on-sight".into()),
    }
}

/// How a signal ends the command.
#[derive(Default)]
struct Ending {
    stop: Stop,
    phase: Mutex<Phase>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Lines,
    /// The exit code after the lines that were read.
    Signalled(i32),
    /// Every line is stored and printed; no stage failed.
    Printed,
}

impl Ending {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch_signals(self: &Arc<Self>) -> Result<()> {
        let ending = Arc::clone(self);
        on_end_signal(move |code| match std::mem::replace(&mut *ending.phase(), Phase::Signalled(code)) {
            Phase::Lines => ending.stop.request(),
            Phase::Signalled(_) | Phase::Printed => exit(Some(code), ending.stop.take_failure()),
        })
    }

    /// After the last line was printed. Ends the process after a signal, and after a failure that the reader may not
    /// notice before its next line.
    fn finish(&self, db: &Db, lines: u64, printed: Result<()>) {
        self.stop.keep(printed);
        let signal = {
            let mut phase = self.phase();
            match *phase {
                Phase::Signalled(code) => Some(code),
                _ if self.stop.has_failed() && !self.stop.is_read() => None,
                _ if self.stop.has_failed() => return,
                _ => {
                    *phase = Phase::Printed;
                    return;
                }
            }
        };
        if let Some(code) = signal {
            let word = if code == EXIT_INTERRUPTED { "interrupted" } else { "terminated" };
            warn("sievedb", &format!("{word} after {}", units::counted(lines, "line", "lines")));
        }
        let closed = db.clone().close().map_err(Failure::from);
        exit(signal, self.stop.take_failure().or(closed.err()))
    }
}

/// Reports the failure and ends the process.
fn exit(signal: Option<i32>, failure: Option<Failure>) -> ! {
    if let Some(failure) = &failure {
        failure.report("sievedb");
    }
    std::process::exit(exit_code(signal, failure.as_ref()))
}

/// A failure counts more than the signal, except a closed pipe.
fn exit_code(signal: Option<i32>, failure: Option<&Failure>) -> i32 {
    match failure.map_or(0, Failure::code) {
        0 => signal.unwrap_or(0),
        code => code.into(),
    }
}

/// A journal and the place of its record.
struct Kept {
    journal: Journal,
    keyspace: Keyspace,
    key: String,
}

impl Kept {
    fn open(db: &Db, path: &Path, lines: &Keyspace, is_new: bool) -> Result<Self> {
        let keyspace = db.open_keyspace(JOURNALS)?;
        let key = lines.name().to_owned();
        let recorded = keyspace.get(&key)?;
        if is_new && let Some(before) = recorded.as_deref().and_then(journal::describe) {
            store::note(&format!("the journal before this one is {before}"));
        }
        let recorded = recorded.as_deref().filter(|_| !is_new);
        let kept = Self { journal: Journal::open(path, recorded)?, keyspace, key };
        // Before any append: from here on the file is known to be the journal.
        let written = kept.keyspace.put_with(&kept.key, kept.journal.record(), Durability::Synced);
        if written.is_err() {
            kept.journal.remove_if_created();
        }
        written?;
        Ok(kept)
    }

    /// Appends new lines, then writes their keys with the length of the journal.
    fn append_new(&mut self, lines: &Keyspace, lot: &Lot, order: &[u32]) -> Result<NewKeys> {
        let Self { journal, keyspace, key } = self;
        let (end, mut failed) = (journal.end(), None);
        let new = lines.insert_new_many_then(lot.keys(order).map(|key| (key, b"")), |new, batch| {
            // It runs again if a time to live ended meanwhile.
            let mut append = || -> Result<()> {
                journal.roll_back(&end)?;
                if new.count() > 0 {
                    let new = by_line(order, new.iter());
                    let lines = lot.answered(&new).filter(|(_, is_new)| *is_new);
                    journal.append(&lines.map(|(line, _)| line).collect::<Vec<_>>().concat())?;
                    batch.put_in(keyspace, &*key, journal.record());
                }
                Ok(())
            };
            failed = append().err();
            if failed.is_none() { Ok(()) } else { Err(Error::Cancelled) }
        });
        match failed {
            Some(failure) => Err(failure),
            None => Ok(new?),
        }
    }
}

/// Lines and keys in one text. A key that is not a part of its line follows it.
#[derive(Default)]
struct Lot {
    text: Vec<u8>,
    lines: Vec<Line>,
    /// The end of the input that was read.
    position: u64,
}

/// Ends of a line and its key; a text has less than 4 GiB.
struct Line {
    start: u32,
    end: u32,
    key_start: u32,
    key_end: u32,
}

impl Size for Lot {
    fn lines(&self) -> usize {
        self.lines.len()
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }
}

impl Lot {
    fn fill(&mut self, lines: &mut Lines, args: &Args) -> Result<Filled> {
        let Some(line) = lines.next()? else { return Ok(Filled::End) };
        if let Err(failure) = self.push(line, args) {
            return Err(lines.blame(failure));
        }
        self.position = lines.position();
        Ok(if lines.waits_for_more() { Filled::Waits } else { Filled::More })
    }

    fn push(&mut self, line: &[u8], args: &Args) -> Result<()> {
        let part = LineKey::of(args.key.as_ref(), line)?;
        let part = if args.trim { trimmed(part) } else { part };
        if args.trim && args.lines.skips(part) {
            return Ok(());
        }
        let key = args.lines.decode(part)?;
        check_limits(&key, b"")?;
        let start = self.text.len();
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        let end = self.text.len();
        let key_start = match &key {
            // It is a part of its line.
            Cow::Borrowed(_) => start + (part.as_ptr() as usize - line.as_ptr() as usize),
            Cow::Owned(key) => {
                self.text.extend_from_slice(key);
                end
            }
        };
        let [start, end, key_start, key_end] =
            [start, end, key_start, key_start + key.len()].map(|place| place as u32);
        self.lines.push(Line { start, end, key_start, key_end });
        Ok(())
    }

    fn key(&self, number: u32) -> &[u8] {
        let Line { key_start, key_end, .. } = self.lines[number as usize];
        &self.text[key_start as usize..key_end as usize]
    }

    fn keys(&self, order: &[u32]) -> impl Iterator<Item = &[u8]> {
        order.iter().map(|&number| self.key(number))
    }

    /// The numbers of the lines by key; equal keys in the order of the input.
    fn order(&self) -> Vec<u32> {
        let numbers = 0..self.lines.len() as u32;
        let first = numbers.clone().next().map_or(&[][..], |first| self.key(first));
        let same = |key: &[u8]| first.iter().zip(key).take_while(|(one, other)| one == other).count();
        let same = numbers.clone().map(|number| same(self.key(number))).min().unwrap_or(0);
        // Most keys differ in the eight bytes after their common prefix.
        let head = |number| {
            let rest = self.key(number)[same..].iter().copied().chain(std::iter::repeat(0));
            (rest.take(8).fold(0_u64, |head, byte| head << 8 | u64::from(byte)), number)
        };
        let mut heads: Vec<(u64, u32)> = numbers.map(head).collect();
        heads.sort_unstable_by(|(head, number), (other_head, other)| {
            let by_key = || self.key(*number).cmp(self.key(*other));
            head.cmp(other_head).then_with(by_key).then_with(|| number.cmp(other))
        });
        heads.into_iter().map(|(_, number)| number).collect()
    }

    /// The lines, each with whether its key is new.
    fn answered(&self, new: &[bool]) -> impl Iterator<Item = (&[u8], bool)> {
        let text = |line: &Line| &self.text[line.start as usize..line.end as usize];
        self.lines.iter().zip(new).map(move |(line, &is_new)| (text(line), is_new))
    }
}

/// The answers by the numbers of the lines.
fn by_line(order: &[u32], answers: impl IntoIterator<Item = bool>) -> Vec<bool> {
    let mut by_line = vec![false; order.len()];
    order.iter().zip(answers).for_each(|(&number, answer)| by_line[number as usize] = answer);
    by_line
}

fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

/// A lot, and which of its keys are new.
struct Decided {
    lot: Lot,
    new: Vec<bool>,
    /// The lines written without a journal.
    commit: Option<Commit>,
}

impl Size for Decided {
    fn lines(&self) -> usize {
        self.lot.lines()
    }

    fn bytes(&self) -> usize {
        self.lot.bytes()
    }
}

struct Sieve {
    keyspace: Keyspace,
    journal: Option<Kept>,
    /// The new keys of a dry run.
    unwritten: Option<HashSet<Vec<u8>>>,
}

impl Sieve {
    /// Writes the new keys, not durably yet.
    fn decide(&mut self, lot: Lot) -> Result<Decided> {
        let (order, mut commit) = (lot.order(), None);
        let new = if let Some(unwritten) = &mut self.unwritten {
            Self::decide_dry(&self.keyspace, unwritten, &lot, &order)?
        } else if let Some(kept) = &mut self.journal {
            by_line(&order, kept.append_new(&self.keyspace, &lot, &order)?.iter())
        } else {
            let entries = lot.keys(&order).map(|key| (key, b""));
            let (new, pending) = self.keyspace.insert_new_many_pending(entries, Durability::Buffered)?;
            commit = Some(pending);
            by_line(&order, new.iter())
        };
        Ok(Decided { lot, new, commit })
    }

    /// Also finds keys of earlier lots.
    fn decide_dry(
        keyspace: &Keyspace,
        unwritten: &mut HashSet<Vec<u8>>,
        lot: &Lot,
        order: &[u32],
    ) -> Result<Vec<bool>> {
        let known = keyspace.multi_contains(&lot.keys(order).collect::<Vec<_>>())?;
        let is_new = |(key, known): (&[u8], bool)| !known && unwritten.insert(key.to_vec());
        Ok(by_line(order, lot.keys(order).zip(known).map(is_new)))
    }
}

/// Makes the decided lines durable, and prints them, or their number at the end. Counts all lines in `done`.
fn print_all(
    db: &Db,
    args: &Args,
    bytes: Option<u64>,
    groups: &mut Groups<'_, Decided>,
    done: &mut u64,
) -> Result<()> {
    let mut progress = Progress::of_bytes("reading", bytes);
    let (mut out, mut printed) = (Output::new(), 0_u64);
    for group in groups {
        // The commit of the last lot completes after those before it.
        match group.last().and_then(|last| last.commit.as_ref()) {
            Some(commit) => commit.wait()?,
            None if args.dry_run => {}
            None => db.sync()?,
        }
        for Decided { lot, new, .. } in &group {
            *done += lot.lines() as u64;
            for (line, is_new) in lot.answered(new) {
                let is_chosen = args.tag || is_new != args.seen;
                printed += u64::from(is_chosen);
                if is_chosen && args.journal.is_none() && !args.count {
                    if args.tag {
                        out.raw(if is_new { b"new\t" } else { b"seen\t" })?;
                    }
                    out.raw(line)?;
                }
            }
            progress.at(lot.position);
        }
        out.flush()?;
    }
    if args.count {
        out.text(&printed.to_string())?;
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_counts_more_than_a_signal_except_a_closed_pipe() {
        let cases = [
            (None, Some(Failure::PipeClosed), 0),
            (None, Some(Failure::No), 1),
            (Some(130), None, 130),
            (Some(143), Some(Failure::PipeClosed), 143),
            (Some(143), Some(Failure::Refused(String::new())), 3),
        ];
        for (signal, failure, code) in cases {
            assert_eq!(exit_code(signal, failure.as_ref()), code, "{signal:?} {failure:?}");
        }
    }

    #[test]
    fn lines_are_ordered_by_their_keys_and_equal_keys_by_their_lines() {
        for same in ["", "https://example.org/"] {
            let mut lot = Lot::default();
            for number in 0..2000_u32 {
                let mixed = number.wrapping_mul(0x9e37_79b9);
                // Keys of 0 to 11 letters that repeat, some the beginnings of others, with zeros at their ends.
                let letters = (0..mixed >> 28).map(|at| char::from((mixed >> (2 * at) & 3) as u8 * 40));
                let key: String = same.chars().chain(letters.take(11)).collect();
                let start = lot.text.len() as u32;
                lot.text.extend_from_slice(key.as_bytes());
                let end = lot.text.len() as u32;
                lot.lines.push(Line { start, end, key_start: start, key_end: end });
            }
            let mut expected: Vec<u32> = (0..2000).collect();
            expected.sort_by_key(|&number| lot.key(number));
            let order = lot.order();
            assert_eq!(order, expected);
            let answers = by_line(&order, order.iter().map(|number| number % 3 == 0));
            assert!(answers.into_iter().eq((0..2000).map(|number| number % 3 == 0)));
        }
        assert!(Lot::default().order().is_empty());
    }
}
