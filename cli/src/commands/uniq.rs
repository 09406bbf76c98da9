//! `sievedb uniq`: the lines that were never seen before, in this input or in any earlier one.
//!
//! Lines are taken in lots, which three stages handle at the same time (`stages`): one reads, one decides, one prints. Of
//! each lot:
//!
//! 1. the new keys are inserted, in one `insert_new_many_pending`, which returns the keys that were new;
//! 2. once they are durable, the lines are printed.
//!
//! With a journal, the lines that are new are appended to it and synced before their keys are written, together with the
//! length of the journal, in one `insert_new_many_then`; they are not printed.
//!
//! Nothing else writes to the store meanwhile, because it is locked, so no answer changes and each lot is appended once.

mod stages;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sievedb::{Commit, Db, Durability, Error, Keyspace, NewKeys};
use stages::{BYTES_MAX, Filled, Groups, Pace, Size};

use crate::arguments::check_limits;
use crate::failure::{Failure, Result};
use crate::journal::{self, Journal};
use crate::line_format::{Content, LineFormat};
use crate::line_key::LineKey;
use crate::lines::Lines;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, JOURNALS, Settling, Store, Within};
use crate::window::Window;

/// The greatest number of lines of a lot. The data that their lookups touch fit in the processor's caches.
const LINES_MAX: usize = 4000;

/// With a journal, whose sync each lot waits for.
const JOURNAL_LINES_MAX: usize = 64_000;

/// Prints each line that was never seen before, in order, and stores it.
///
/// A line is seen if it came earlier in the input, or in an earlier run with the same store, or if its key is in the
/// store for another reason (`load`, `put`). The answer is exact. A line is the same key for `contains` and `load`.
/// By default, blank lines are skipped, and lines that end with a carriage return are refused. Lines are printed
/// unchanged, with a newline even if the last one had none, and without the carriage return that --crlf drops. A key
/// has at most 64 KiB, a line with --key 16 MiB.
///
/// Lines are printed once they are stored durably: at once if the command must wait for the next line, and every
/// --sync-every milliseconds while lines keep coming. If the command is killed, or the reader of its output exits,
/// lines since the last sync may be stored without being printed; --batch limits their number. With --journal no line
/// is lost or doubled: the command writes the lines to a file, and commits its length together with the lines.
/// Started again with the same input, it removes uncommitted lines from the file and continues. After the file was
/// moved away, --new-journal starts another one.
///
/// With --ttl a line is forgotten that long after it was first seen, at most a bucket later (--ttl-buckets), and counts as
/// new again. Their space is freed without a compaction.
///
/// After the last line the command waits for compactions, so that later lookups are fast, unless --no-settle is given.
///
/// The first line that has no key, or one that is too long, ends the command with exit code 2; the lines before
/// it are done.
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
    /// The part of a line that is its key: the number of a field between spaces or tabs, from 1, or a regular
    /// expression, whose first group, or else whole match, is the key.
    #[arg(long, value_name = "FIELD|REGEX", value_parser = LineKey::parse)]
    key: Option<LineKey>,
    /// Print the lines that were seen before, instead of the others.
    #[arg(long)]
    seen: bool,
    /// Print every line after `new` or `seen` and a tab, and flush the output before the next line is waited for.
    #[arg(long, conflicts_with_all = ["seen", "count", "journal"])]
    tag: bool,
    /// Store nothing: the store must exist, and is only read. New keys of the input are kept in memory.
    #[arg(long, conflicts_with_all = ["journal", "ttl"])]
    dry_run: bool,
    /// Leave spaces and tabs at both ends out of the key. A line of nothing else is blank.
    #[arg(long)]
    trim: bool,
    /// Print how many lines there are, instead of the lines.
    #[arg(long)]
    count: bool,
    /// Sync and print after so many lines, before any more are remembered. It takes longer; without it, --sync-every
    /// counts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: Option<u32>,
    /// Milliseconds between two syncs while lines keep coming.
    #[arg(long, value_name = "MS", default_value_t = 100, conflicts_with = "batch", value_parser = clap::value_parser!(u32).range(0..=60_000))]
    sync_every: u32,
    #[command(flatten)]
    window: Window,
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
    args.window.set(&keyspace)?;
    let journal = args.journal.as_ref();
    let journal = journal.map(|path| Kept::open(&db, path, &keyspace, args.new_journal)).transpose()?;
    // Unsynced writes of an earlier program may be the reason why a line counts as seen.
    if !args.dry_run {
        db.sync()?;
    }
    let unwritten = args.dry_run.then(HashSet::new);
    let mut sieve = Sieve { keyspace, journal, unwritten };
    let bytes = lines.bytes();
    let fill = |lot: &mut Lot| lot.fill(&mut lines, args);
    let passed =
        stages::run(args.pace(), fill, |lot| sieve.decide(lot), |groups| print_all(&db, args, bytes, groups));
    lines.print_notes();
    let settled = if passed.is_ok() && !args.dry_run { args.settling.settle(&db) } else { Ok(()) };
    let closed = db.close();
    passed?;
    settled?;
    Ok(closed?)
}

impl Args {
    /// Refuses a journal that cannot be one, before a store is created.
    fn check_journal(&self) -> Result<()> {
        let Some(path) = &self.journal else { return Ok(()) };
        if self.within.keyspace.as_deref() == Some(JOURNALS) {
            return Err(Failure::Usage(format!("the keyspace {JOURNALS} has the records of journals")));
        }
        let has_no_record = self.new_journal || !self.store.db.exists();
        if has_no_record { Journal::check_new(path) } else { Ok(()) }
    }

    fn pace(&self) -> Pace {
        let lines_max = if self.journal.is_some() { JOURNAL_LINES_MAX } else { LINES_MAX };
        Pace {
            lines_max: self.batch.map_or(lines_max, |batch| batch as usize),
            one_at_a_time: self.batch.is_some(),
            sync_every: Duration::from_millis(self.sync_every.into()),
        }
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
        // Before anything is appended: from here on the file is known to be the journal.
        let written = kept.keyspace.put_with(&kept.key, kept.journal.record(), Durability::Synced);
        if written.is_err() {
            kept.journal.remove_if_created();
        }
        written?;
        Ok(kept)
    }

    /// Appends the lines that are new to the journal. Then writes their keys, with the length of the journal.
    fn append_new(&mut self, lines: &Keyspace, lot: &Lot) -> Result<NewKeys> {
        let Self { journal, keyspace, key } = self;
        let mut failed = None;
        let new = lines.insert_new_many_then(lot.keys().map(|key| (key, b"")), |new, batch| {
            if new.count() > 0 {
                let lines = lot.answered(new.iter()).filter(|(_, is_new)| *is_new).map(|(line, _)| line);
                let appended = journal.append(&lines.collect::<Vec<_>>().concat());
                failed = appended.err();
                batch.put_in(keyspace, &*key, journal.record());
            }
            if failed.is_none() { Ok(()) } else { Err(Error::Cancelled) }
        });
        failed.map_or(Ok(new?), Err)
    }
}

/// Lines with their keys, as ranges of one text. A key that is not a part of its line is behind it.
#[derive(Default)]
struct Lot {
    text: Vec<u8>,
    lines: Vec<(Range<usize>, Range<usize>)>,
    /// Where the input has been read to.
    position: u64,
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
    /// Adds the next line.
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
        self.lines.push((start..end, key_start..key_start + key.len()));
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(|(_, key)| &self.text[key.clone()])
    }

    /// The lines, each with whether its key is new.
    fn answered(&self, new: impl Iterator<Item = bool>) -> impl Iterator<Item = (&[u8], bool)> {
        self.lines.iter().zip(new).map(|((line, _), is_new)| (&self.text[line.clone()], is_new))
    }
}

/// Without spaces and tabs at both ends.
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
    /// Finds out which keys are new, and writes these; not durably yet.
    fn decide(&mut self, lot: Lot) -> Result<Decided> {
        if let Some(unwritten) = &mut self.unwritten {
            let new = Self::decide_dry(&self.keyspace, unwritten, &lot)?;
            return Ok(Decided { lot, new, commit: None });
        }
        let (new, commit) = match &mut self.journal {
            Some(kept) => (kept.append_new(&self.keyspace, &lot)?, None),
            None => {
                let entries = lot.keys().map(|key| (key, b""));
                let (new, commit) = self.keyspace.insert_new_many_pending(entries, Durability::Buffered)?;
                (new, Some(commit))
            }
        };
        Ok(Decided { lot, new: new.iter().collect(), commit })
    }

    /// Finds out which keys are new and were not in an earlier lot.
    fn decide_dry(keyspace: &Keyspace, unwritten: &mut HashSet<Vec<u8>>, lot: &Lot) -> Result<Vec<bool>> {
        let known = keyspace.multi_contains(&lot.keys().collect::<Vec<_>>())?;
        let is_new = |(key, known): (&[u8], bool)| !known && unwritten.insert(key.to_vec());
        Ok(lot.keys().zip(known).map(is_new).collect())
    }
}

/// Makes the decided lines durable, and prints the requested lines, or their number at the end.
fn print_all(db: &Db, args: &Args, bytes: Option<u64>, groups: Groups<'_, Decided>) -> Result<()> {
    let mut progress = Progress::of_bytes("reading", bytes);
    let (mut out, mut printed) = (Output::new(), 0_u64);
    for group in groups {
        // The commit of the last lot is complete when those before it are.
        match group.last().and_then(|last| last.commit.as_ref()) {
            Some(commit) => commit.wait()?,
            None if args.dry_run => {}
            None => db.sync()?,
        }
        for Decided { lot, new, .. } in &group {
            for (line, is_new) in lot.answered(new.iter().copied()) {
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
