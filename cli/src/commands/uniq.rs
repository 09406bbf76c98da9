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

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sievedb::{Db, Durability, Keyspace, WriteBatch};

use crate::failure::{Failure, Result};
use crate::journal::Journal;
use crate::line_key::LineKey;
use crate::lines::{LineFormat, Lines, check_limits};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::{self, Within};

/// Size at which a batch ends, whatever its number of lines.
const BATCH_BYTES: usize = 16 << 20;

/// The keyspace with the records of journals, by the name of the keyspace that remembers their lines.
const JOURNALS: &str = "uniq-journals";

/// Prints each line that was never seen before, in order, and remembers it.
///
/// A line is seen if it came earlier in the input, or in an earlier run with the same store, or if its key is in
/// the store for another reason (`load`, `put`). The answer is exact. Lines are taken as they are, escapes and
/// blank lines included; the last line is printed with a newline even if it had none. A key has at most 64 KiB.
///
/// Lines are remembered in batches, and each batch is synced before it is printed. A batch ends after --batch
/// lines, or when the next line has to be waited for. If the command is killed, or the reader of its output goes
/// away, at most the last batch is remembered and not printed. With --journal no line is lost or doubled: the
/// command writes the lines to a file, and commits its length together with the lines. Started again with the
/// same input, it cuts what was not committed from the file and continues.
///
/// The first line that has no key, or one that is too long, ends the command with exit code 2; the lines before
/// it are done.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  find / -xdev | sievedb uniq paths.db                      # the paths that are new since the last time
  tail -F access.log | sievedb uniq visitors.db --key 1     # the first line of each visitor
  sievedb uniq events.db events.log --key 'id=(\\w+)' --journal unique.log
  sievedb uniq words.db words.txt --count                   # how many are new")]
pub(crate) struct Args {
    /// The directory of the store. It is created if it does not exist.
    db: PathBuf,
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
    /// Print how many lines there are, instead of the lines.
    #[arg(long)]
    count: bool,
    /// Lines that are remembered, and synced, together.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Write the lines to this file, each exactly once; it begins empty.
    #[arg(long, value_name = "OUT", conflicts_with_all = ["seen", "count"])]
    journal: Option<PathBuf>,
    #[command(flatten)]
    within: Within,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let as_they_are = LineFormat { literal: true, crlf: false, empty_key: true };
    let mut lines = Lines::open(&args.file, as_they_are)?;
    let db = store::open_or_create(&args.db)?;
    let keyspace = args.within.or_create(&db)?;
    let journal = args.journal.as_ref().map(|path| Kept::open(&db, path, &keyspace)).transpose()?;
    // What an earlier program left unsynced may be the reason why a line counts as seen.
    db.sync()?;
    let mut sieve = Sieve { db: &db, keyspace, journal, args, out: Output::new(), printed: 0 };
    let passed = sieve.pass(&mut lines);
    let mut out = sieve.out;
    if args.count {
        out.text(&sieve.printed.to_string())?;
    }
    let finished = passed.and_then(|()| out.finish());
    let closed = db.close();
    finished?;
    Ok(closed?)
}

/// A journal and the place of its record.
struct Kept {
    journal: Journal,
    keyspace: Keyspace,
    key: String,
}

impl Kept {
    fn open(db: &Db, path: &Path, lines: &Keyspace) -> Result<Self> {
        if lines.name() == JOURNALS {
            return Err(Failure::Usage(format!("the keyspace {JOURNALS} has the records of journals")));
        }
        let keyspace = db.open_keyspace(JOURNALS)?;
        let key = lines.name().to_owned();
        let recorded = keyspace.get(&key)?;
        let kept = Self { journal: Journal::open(path, recorded.as_deref())?, keyspace, key };
        // Before anything is appended: from here on the file is known to be the journal.
        kept.keyspace.put_with(&kept.key, kept.journal.record(), Durability::Synced)?;
        Ok(kept)
    }
}

/// Lines with their keys, as ranges of one text.
#[derive(Default)]
struct Lot {
    text: Vec<u8>,
    lines: Vec<(Range<usize>, Range<usize>)>,
}

impl Lot {
    fn push(&mut self, line: &[u8], rule: Option<&LineKey>) -> Result<()> {
        let key = LineKey::of(rule, line)?;
        check_limits(key, b"")?;
        let start = self.text.len();
        // A key is a part of its line.
        let within = key.as_ptr() as usize - line.as_ptr() as usize;
        self.text.extend_from_slice(line);
        self.text.push(b'\n');
        self.lines.push((start..self.text.len(), start + within..start + within + key.len()));
        Ok(())
    }

    fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
    }
}

struct Sieve<'a> {
    db: &'a Db,
    keyspace: Keyspace,
    journal: Option<Kept>,
    args: &'a Args,
    out: Output,
    /// Lines printed, or counted instead.
    printed: u64,
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
                    let pushed = lot.push(line, self.args.key.as_ref());
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
        let is_new: Vec<bool> =
            keys.iter().zip(known).map(|(key, is_known)| !is_known && first.insert(*key)).collect();
        let mut batch = WriteBatch::new();
        for (key, _) in keys.iter().zip(&is_new).filter(|(_, is_new)| **is_new) {
            batch.put_in(&self.keyspace, key, b"");
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
        if self.journal.is_none() && !self.args.count {
            chosen.into_iter().try_for_each(|line| self.out.raw(line))?;
            self.out.flush()?;
        }
        Ok(())
    }
}
