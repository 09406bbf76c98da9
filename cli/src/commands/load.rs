//! `sievedb load`: lines become entries, in order, durable when the command ends.
//!
//! Lines are written in batches. At the first line that cannot be an entry it stops: every line before that
//! one is loaded and synced, none after it, and the message names the line.

use std::path::PathBuf;
use std::time::Instant;

use sievedb::{Db, Keyspace, WriteBatch};

use crate::failure::{Failure, Result};
use crate::lines::{Encoding, Lines, check_limits};
use crate::output::Output;
use crate::progress::Progress;
use crate::{store, units};

/// Size at which a batch is written.
const BATCH_BYTES: usize = 256 << 10;

/// Loads lines: `key` or `key<TAB>value`. Creates the store if it is not there.
///
/// A line is split at its first tab; without one the value is empty. Lines may hold any bytes; nothing is
/// trimmed, so that a carriage return is part of the line. A later line replaces an earlier one with the
/// same key. At a line that cannot be loaded it stops with exit code 2 and names the line; the lines before
/// it are loaded.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The file to read; `-` reads standard input.
    file: PathBuf,
    #[command(flatten)]
    encoding: Encoding,
}

/// What has been written so far.
#[derive(Default)]
struct Tally {
    entries: u64,
    /// Bytes of keys and values.
    bytes: u64,
}

pub(crate) fn run(args: &Args, keyspace: Option<&str>) -> Result<()> {
    let mut lines = Lines::open(&args.file)?;
    let db = store::open_or_create(&args.db)?;
    let keyspace = store::keyspace_or_create(&db, keyspace)?;
    let start = Instant::now();
    let mut tally = Tally::default();
    let loaded = load(&db, &keyspace, &mut lines, args.encoding, &mut tally);
    let closed = db.close();
    let time = start.elapsed();
    if !matches!(loaded, Err(Failure::Store(_))) {
        closed?;
    }
    loaded.map_err(|failure| {
        failure.noted(format!("{} before it loaded", units::counted(tally.entries, "line", "lines")))
    })?;
    let mut out = Output::new();
    out.text(&format!(
        "{} loaded, {} of keys and values, in {}: {} keys a second",
        units::counted(tally.entries, "line", "lines"),
        units::bytes(tally.bytes),
        units::seconds(time),
        units::per_second(tally.entries, time)
    ))?;
    out.finish()
}

/// Loads line after line; what was read before a failure is written all the same.
fn load(
    db: &Db,
    keyspace: &Keyspace,
    lines: &mut Lines,
    encoding: Encoding,
    tally: &mut Tally,
) -> Result<()> {
    let mut progress = Progress::of_bytes("loading", lines.bytes());
    let mut batch = WriteBatch::new();
    let (mut entries, mut bytes) = (0, 0);
    loop {
        let added = add_next(keyspace, lines, encoding, &mut batch);
        if let Ok(Some(len)) = added {
            (entries, bytes) = (entries + 1, bytes + len);
            if batch.size_bytes() < BATCH_BYTES {
                continue;
            }
        }
        db.write(std::mem::take(&mut batch))?;
        *tally = Tally { entries, bytes };
        progress.at(lines.position());
        if added?.is_none() {
            return Ok(db.sync()?);
        }
    }
}

/// Adds the next line to the batch and gives the bytes of its key and value; `None` at the end.
fn add_next(
    keyspace: &Keyspace,
    lines: &mut Lines,
    encoding: Encoding,
    batch: &mut WriteBatch,
) -> Result<Option<u64>> {
    if lines.next()?.is_none() {
        return Ok(None);
    }
    let entry = || {
        let line = lines.current();
        let (key, value) = match line.iter().position(|&byte| byte == b'\t') {
            Some(tab) => (&line[..tab], &line[tab + 1..]),
            None => (line, &[][..]),
        };
        let (key, value) = (encoding.read(key)?, encoding.read(value)?);
        check_limits(&key, &value)?;
        Ok((key, value))
    };
    let (key, value) = entry().map_err(|failure| lines.blame(failure))?;
    batch.put_in(keyspace, &key, &value);
    Ok(Some((key.len() + value.len()) as u64))
}
