//! `sievedb uniq`: the lines that were never seen before, in this input or in any earlier one.
//!
//! Lines are taken in batches. Of each batch:
//!
//! 1. the keys of its lines are looked up together;
//! 2. with a journal, the lines that are new are appended to it and synced;
//! 3. the keys that are new, and the length of the journal, are written as one synced batch;
//! 4. without a journal, the lines are printed.
//!
//! Nothing else writes to the store meanwhile, because it is locked, so what step 1 finds absent is still absent
//! in step 3. A batch ends early when the next line has to be waited for.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sievedb::{Db, Durability, Keyspace, WriteBatch};

use crate::arguments::check_limits;
use crate::failure::{Failure, Result};
use crate::journal::{self, Journal};
use crate::line_format::{Content, LineFormat};
use crate::line_key::LineKey;
use crate::lines::Lines;
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, JOURNALS, Store, Within};

/// Size at which a batch ends, whatever its number of lines.
const BATCH_BYTES: usize = 16 << 20;

/// Prints each line that was never seen before, in order, and remembers it.
///
/// A line is seen if it came earlier in the input, or in an earlier run with the same store, or if its key is in
/// the store for another reason (`load`, `put`). The answer is exact. A line is the key that it is for `contains`
/// and `load`: blank lines are skipped, and lines that end with a carriage return refused, unless an option says
/// otherwise. Lines are printed as they were read, with a newline even if the last one had none, and without the
/// carriage return that --crlf drops. A key has at most 64 KiB, a line with --key 16 MiB.
///
/// Lines are remembered in batches, and each batch is synced before it is printed. A batch ends after --batch
/// lines, or when the next line has to be waited for. If the command is killed, or the reader of its output goes
/// away, at most the last batch is remembered and not printed. With --journal no line is lost or doubled: the
/// command writes the lines to a file, and commits its length together with the lines. Started again with the
/// same input, it cuts what was not committed from the file and continues. After the file was moved away,
/// --new-journal begins another one.
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
  tail -F access.log | sievedb uniq visitors.db --key 1 --tag --dry-run")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The file to read; `-` reads standard input.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// What of a line counts: the number of a field between spaces or tabs, from 1, or a regular expression, of
    /// which the first group counts, or all that it matches.
    #[arg(long, value_name = "FIELD|REGEX", value_parser = LineKey::parse)]
    key: Option<LineKey>,
    /// Print the lines that were seen before, instead of the others.
    #[arg(long)]
    seen: bool,
    /// Print every line after `new` or `seen` and a tab, and flush the output before the next line is waited for.
    #[arg(long, conflicts_with_all = ["seen", "count", "journal"])]
    tag: bool,
    /// Remember nothing: the store must exist, and is only read. New keys of the input are kept in memory.
    #[arg(long, conflicts_with = "journal")]
    dry_run: bool,
    /// Leave spaces and tabs at both ends out of the key. A line of nothing else is blank.
    #[arg(long)]
    trim: bool,
    /// Print how many lines there are, instead of the lines.
    #[arg(long)]
    count: bool,
    /// Lines that are remembered, and synced, together.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Write the lines to this file, each exactly once; it begins empty.
    #[arg(long, value_name = "OUT", conflicts_with_all = ["seen", "count"])]
    journal: Option<PathBuf>,
    /// Begin a new journal, in a file that is missing or empty, instead of the one that the store has.
    #[arg(long, requires = "journal")]
    new_journal: bool,
    #[command(flatten)]
    lines: LineFormat,
    #[command(flatten)]
    within: Within,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let content = if args.key.is_some() { Content::Text(BATCH_BYTES) } else { Content::Line };
    let mut lines = Lines::open(&args.file, args.lines, content)?;
    args.check_journal()?;
    let db = if args.dry_run { args.store.for_reading()? } else { args.store.or_create()? };
    let keyspace = if args.dry_run { args.within.existing(&db)? } else { args.within.or_create(&db)? };
    let journal = args.journal.as_ref();
    let journal = journal.map(|path| Kept::open(&db, path, &keyspace, args.new_journal)).transpose()?;
    // What an earlier program left unsynced may be the reason why a line counts as seen.
    if !args.dry_run {
        db.sync()?;
    }
    let mut sieve =
        Sieve { db: &db, keyspace, journal, args, out: Output::new(), printed: 0, unwritten: HashSet::new() };
    let passed = sieve.pass(&mut lines);
    lines.print_notes();
    let mut out = sieve.out;
    if args.count {
        out.text(&sieve.printed.to_string())?;
    }
    let finished = passed.and_then(|()| out.finish());
    let closed = db.close();
    finished?;
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
}

/// Lines with their keys, as ranges of one text. A key that is not a part of its line is behind it.
#[derive(Default)]
struct Lot {
    text: Vec<u8>,
    lines: Vec<(Range<usize>, Range<usize>)>,
}

impl Lot {
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

    fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
    }
}

/// Without spaces and tabs at both ends.
fn trimmed(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

struct Sieve<'a> {
    db: &'a Db,
    keyspace: Keyspace,
    journal: Option<Kept>,
    args: &'a Args,
    out: Output,
    /// Lines printed, or counted instead.
    printed: u64,
    /// New keys of a dry run.
    unwritten: HashSet<Vec<u8>>,
}

impl Sieve<'_> {
    /// Takes all lines; those before a bad one too.
    fn pass(&mut self, lines: &mut Lines) -> Result<()> {
        let mut progress = Progress::of_bytes("reading", lines.bytes());
        let mut lot = Lot::default();
        loop {
            let taken = match lines.next() {
                Ok(None) => Ok(false),
                Ok(Some(line)) => {
                    let pushed = lot.push(line, self.args);
                    pushed.map(|()| true).map_err(|failure| lines.blame(failure))
                }
                Err(failure) => Err(failure),
            };
            let is_full = lot.lines.len() >= self.args.batch as usize || lot.text.len() >= BATCH_BYTES;
            if matches!(taken, Ok(true)) && !is_full && !lines.waits_for_more() {
                continue;
            }
            self.finish(&lot)?;
            lot.clear();
            progress.at(lines.position());
            if !taken? {
                return Ok(());
            }
        }
    }

    fn finish(&mut self, lot: &Lot) -> Result<()> {
        let keys: Vec<&[u8]> = lot.lines.iter().map(|(_, key)| &lot.text[key.clone()]).collect();
        let known = self.keyspace.multi_contains(&keys)?;
        let mut first = HashSet::with_capacity(keys.len());
        let mut is_new = Vec::with_capacity(keys.len());
        let mut batch = WriteBatch::new();
        for (&key, is_known) in keys.iter().zip(known) {
            is_new.push(!is_known && !self.unwritten.contains(key) && first.insert(key));
            if is_new.last() == Some(&true) && !self.args.dry_run {
                batch.put_in(&self.keyspace, key, b"");
            }
        }
        if self.args.dry_run {
            self.unwritten.extend(first.into_iter().map(<[u8]>::to_vec));
        }
        let chosen = lot.lines.iter().zip(&is_new).filter(|(_, is_new)| **is_new != self.args.seen);
        let chosen = chosen.map(|((line, _), _)| &lot.text[line.clone()]);
        self.printed += chosen.clone().count() as u64;
        if let Some(kept) = self.journal.as_mut().filter(|_| !batch.is_empty()) {
            kept.journal.append(&chosen.clone().collect::<Vec<_>>().concat())?;
            batch.put_in(&kept.keyspace, &kept.key, kept.journal.record());
        }
        if !batch.is_empty() {
            self.db.write_with(batch, Durability::Synced)?;
        }
        if self.args.tag {
            for ((line, _), is_new) in lot.lines.iter().zip(&is_new) {
                self.out.raw(if *is_new { b"new\t" } else { b"seen\t" })?;
                self.out.raw(&lot.text[line.clone()])?;
            }
            self.out.flush()?;
        } else if self.journal.is_none() && !self.args.count {
            chosen.into_iter().try_for_each(|line| self.out.raw(line))?;
            self.out.flush()?;
        }
        Ok(())
    }
}
