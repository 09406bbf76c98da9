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
//! Nothing else writes to the store meanwhile, because it is locked. But a time to live may end before the keys are written.
//! Then the answers change, and the appended lines are replaced by the lines that are new now.
//!
//! If a line cannot be printed, the printer ends the decider and removes the unprinted lines from the store.

mod ending;
mod lot;
mod printing;
mod stages;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ending::Ending;
use lot::{Lot, by_line};
use printing::{Decided, print_all};
use sievedb::{Db, Durability, Error, Keyspace, NewKeys, Refresh};
use stages::{Groups, Pace};

use crate::failure::{Failure, Result, answered};
use crate::journal::{self, Journal};
use crate::line_format::{Content, LineFormat};
use crate::line_key::LineKey;
use crate::output;
use crate::store::{self, JOURNALS, Settling, Store, Within};
use crate::units;
use crate::window::{Window, time};

/// Bytes of a line with --key.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Maximum number of lines in a lot. The larger the lot, the more lines find their block in the processor's caches.
const LINES_MAX: usize = 16_000;

/// Prints each line that was never seen before, in order, and stores it.
///
/// A line is seen if it came earlier in the input or in an earlier run with the same store, or if its key was stored by another
/// command. The answer is exact. A line is the same key for `contains` and `load`. By default, blank lines are skipped. Lines are
/// printed unchanged, with a newline, and without the carriage return that --crlf drops. A key has at most 64 KiB, a line with
/// --key 16 MiB.
///
/// Lines are stored, synced, then printed: before the command waits for the next line, and every --sync-every milliseconds.
/// SIGINT (Ctrl-C), SIGTERM and SIGHUP end the input: every stored line is printed, then the exit code is 130, 143 or 129. A
/// second signal ends the command at once: lines that were stored but not printed count as seen. So do those of a store that is
/// moved meanwhile. If the output cannot be written, such as to a full disk, the new lines that were not written are
/// removed from the store, unless --count or --seen is given. If the command is killed, lines since the last sync may be stored
/// but not printed; --batch limits their number. If the reader of a pipe exits, lines that it left in the pipe (up to 64 KiB on
/// Linux) count as seen; a note states how many lines were printed. With --journal no line is lost or
/// doubled: the command writes the lines to a file, and commits its length together with the lines. Started again with the same
/// input, it removes uncommitted lines from the file with a note and continues. A restored copy refuses a file with more lines. After the file was moved away, --new-journal starts another one.
///
/// With --ttl a line is forgotten, and counts as new again, that long after it was last stored (with --refresh on-sight: last
/// seen), at most a bucket later (--ttl-buckets). The space is freed without a compaction.
///
/// After the last line the command waits for compactions, so that later lookups are fast, unless --no-settle is given.
///
/// A line without a key, with one that is too long, or with a carriage return at its end, is reported, and neither stored nor
/// printed. The command then ends with exit code 2.
///
/// Unless --count, --dry-run or --journal is given, a standard output that is closed, or is /dev/null opened for reading (Python's
/// subprocess.DEVNULL, `ignore` in Node.js), is refused before anything is stored; --count stores lines without printing them.
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
    /// Forget each line so long after it was last stored: a number with s, m, h or d, such as 90s or 24h. The keyspace keeps this
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
    let content = if args.key.is_some() { Content::Text(LINE_BYTES_MAX) } else { Content::Line };
    let mut lines = store::input(&args.store.db, &args.file, args.lines, content)?;
    let refused = lines.skip_refused();
    args.check_stdout()?;
    args.check_journal()?;
    let db = if args.dry_run { args.store.for_reading()? } else { args.store.or_create()? };
    let keyspace = if args.dry_run { args.within.existing(&db)? } else { args.within.or_create(&db)? };
    let Args { ttl, ttl_buckets: buckets, refresh, .. } = *args;
    Window { ttl, buckets, refresh }.set(&keyspace)?;
    let journal = args.journal.as_ref();
    let journal = journal.map(|path| Kept::open(&db, path, &keyspace, args.new_journal)).transpose()?;
    // An earlier program's writes are synced first, because they make lines count as seen.
    if !args.dry_run {
        db.sync()?;
    }
    let unwritten = args.dry_run.then(HashSet::new);
    let mut sieve = Sieve { keyspace: keyspace.clone(), journal, unwritten };
    let bytes = lines.bytes();
    let fill = |lot: &mut Lot| lot.fill(&mut lines, args);
    let ending = Arc::new(Ending::new(&refused));
    ending.watch_signals()?;
    let print = |groups: &mut Groups<'_, Decided>| {
        ending.finish(&db, |done| print_all(&db, &keyspace, args, bytes, groups, done));
        Ok(())
    };
    let passed = stages::run(args.pace(), &ending.stop, fill, |lot| sieve.decide(lot), print);
    lines.print_notes();
    let settled = if passed.is_ok() && !args.dry_run { args.settling.settle(&db) } else { Ok(()) };
    let closed = db.close();
    let ended = answered(passed, Ok(())).and(settled).and(closed.map_err(Failure::from));
    match (ended, refused.check()) {
        (Err(failure), Err(sum)) => {
            sum.report("sievedb");
            Err(failure)
        }
        (ended, sum) => ended.and(sum),
    }
}

impl Args {
    /// Runs before anything is stored.
    fn check_stdout(&self) -> Result<()> {
        let prints = self.journal.is_none() && !self.count && !self.dry_run;
        if prints && output::is_closed() {
            return Err(Failure::Refused(
                "standard output is closed, or /dev/null that can be read; --count stores lines without printing them"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Runs before a store is created.
    fn check_journal(&self) -> Result<()> {
        let Some(path) = &self.journal else { return Ok(()) };
        if self.within.keyspace.as_deref() == Some(JOURNALS) {
            return Err(Failure::Usage(format!("the keyspace {JOURNALS} has the records of journals")));
        }
        let has_no_record = self.new_journal || !self.store.db.exists();
        if has_no_record { Journal::check_new(path) } else { Ok(()) }
    }

    fn chooses(&self, is_new: bool) -> bool {
        self.tag || is_new != self.seen
    }

    fn tag_of(&self, is_new: bool) -> &'static [u8] {
        match (self.tag, is_new) {
            (false, _) => b"",
            (true, true) => b"new\t",
            (true, false) => b"seen\t",
        }
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
        let store_id = db.live_files()?.store_id();
        let store_id: String = store_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (journal, removed) = Journal::open(path, recorded, &store_id)?;
        if removed > 0 {
            let removed = units::counted(removed, "uncommitted byte", "uncommitted bytes");
            store::note(&format!("removed {removed} from the end of {}", path.display()));
        }
        let kept = Self { journal, keyspace, key };
        // Stored before any append, so that the next run recognizes the journal.
        let written = kept.keyspace.put_with(&kept.key, kept.journal.record(), Durability::Synced);
        if written.is_err() {
            kept.journal.remove_if_created();
        }
        written?;
        Ok(kept)
    }

    fn append_new(&mut self, lines: &Keyspace, lot: &Lot, order: &[u32]) -> Result<NewKeys> {
        let Self { journal, keyspace, key } = self;
        let (end, mut failed) = (journal.end(), None);
        let new = lines.insert_new_many_then(lot.keys(order).map(|key| (key, b"")), |new, batch| {
            // `append` runs again if a time to live ended meanwhile.
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
