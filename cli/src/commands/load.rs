//! `sievedb load`: lines become entries, in order, durable when the command ends.

use std::path::PathBuf;

use crate::bulk::write_lines;
use crate::failure::Result;
use crate::json::{Format, Object};
use crate::lines::{Encoding, Lines, check_limits};
use crate::output::Output;
use crate::store::{self, Within};
use crate::units;

/// Loads lines: `key` or `key<TAB>value`. Creates the store if it is not there.
///
/// A line is split at its first tab; without one the value is empty. Lines may hold any bytes; nothing is
/// trimmed, so that a carriage return is part of the line. A later line replaces an earlier one with the
/// same key. At a line that cannot be loaded it stops with exit code 2 and names the line; the lines before
/// it are loaded. An interrupt (Ctrl-C) ends it with exit code 130: it says how many lines are loaded.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb load words.db /usr/share/dict/words
  find / -xdev | sievedb load files.db -
  sievedb scan old.db | sievedb load new.db - --escaped     # a copy")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The file to read; `-` reads standard input.
    file: PathBuf,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut lines = Lines::open(&args.file)?;
    let db = store::open_or_create(&args.db)?;
    let keyspace = args.within.or_create(&db)?;
    let tally = write_lines(db, &mut lines, "loaded", |line, batch| {
        let (key, value) = match line.iter().position(|&byte| byte == b'\t') {
            Some(tab) => (&line[..tab], &line[tab + 1..]),
            None => (line, &[][..]),
        };
        let (key, value) = (args.encoding.read(key)?, args.encoding.read(value)?);
        check_limits(&key, &value)?;
        batch.put_in(&keyspace, &key, &value);
        Ok((key.len() + value.len()) as u64)
    })?;
    let mut out = Output::new();
    if args.format.json {
        let mut summary = Object::new();
        summary.insert("lines".into(), tally.lines.into());
        summary.insert("data_bytes".into(), tally.bytes.into());
        summary.insert("seconds".into(), tally.time.as_secs_f64().into());
        out.object(summary)?;
    } else {
        out.text(&format!(
            "{} loaded, {} of keys and values, in {}: {} keys a second",
            units::counted(tally.lines, "line", "lines"),
            units::bytes(tally.bytes),
            units::seconds(tally.time),
            units::per_second(tally.lines, tally.time)
        ))?;
    }
    out.finish()
}
