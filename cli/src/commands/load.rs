//! `sievedb load`: writes a line as an entry, in order; durable when the command ends.

use std::borrow::Cow;
use std::path::PathBuf;

use crate::arguments::check_limits;
use crate::bulk::write_lines;
use crate::failure::{Failure, Result};
use crate::json::{Format, Object, read_entry};
use crate::line_format::{Content, LineFormat};
use crate::lines::Lines;
use crate::output::Output;
use crate::store::{self, Within};
use crate::units;

/// Loads lines: `key` or `key<TAB>value`. Creates the store if it does not exist.
///
/// A line is split at its first tab; without a tab the value is empty. Lines are taken as they are. With
/// --escaped, \t, \n, \\ and \xHH stand for a tab, a newline, a backslash and any byte, as `scan` prints them.
/// With --from-json, a line is an object as `scan --json` prints it. Blank lines are skipped, and lines that
/// end with a carriage return refused, unless an option says otherwise. A later line replaces an earlier one with the same key. The first line that cannot be loaded
/// ends the command with exit code 2, an interrupt (Ctrl-C) with 130; the lines before it are loaded.
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
    /// Read one JSON object a line, as `scan --json` prints it.
    #[arg(long, conflicts_with_all = ["escaped", "literal", "empty_key"])]
    from_json: bool,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    lines: LineFormat,
    #[command(flatten)]
    format: Format,
}

/// A key and a value.
type Entry<'l> = (Cow<'l, [u8]>, Cow<'l, [u8]>);

/// The key and the value of a line.
fn entry<'l>(line: &'l [u8], args: &Args) -> Result<Entry<'l>> {
    if args.from_json {
        let (key, value) = read_entry(line).map_err(Failure::Usage)?;
        return Ok((key.into(), value.into()));
    }
    let (key, value) = match line.iter().position(|&byte| byte == b'\t') {
        Some(tab) => (&line[..tab], &line[tab + 1..]),
        None => (line, &[][..]),
    };
    Ok((args.lines.decode(key)?, args.lines.decode(value)?))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let content = if args.from_json { Content::Json } else { Content::Entry };
    let mut lines = Lines::open(&args.file, args.lines, content)?;
    let db = store::open_or_create(&args.db)?;
    let keyspace = args.within.or_create(&db)?;
    let tally = write_lines(db, &mut lines, "loaded", |line, batch| {
        let (key, value) = entry(line, args)?;
        check_limits(&key, &value)?;
        batch.put_in(&keyspace, &key, &value);
        Ok((key.len() + value.len()) as u64)
    })?;
    let mut out = Output::new();
    if args.format.json {
        let mut summary = Object::new();
        summary.insert("lines".into(), tally.lines.into());
        summary.insert("blank_lines".into(), lines.blank().into());
        summary.insert("data_bytes".into(), tally.bytes.into());
        summary.insert("seconds".into(), tally.time.as_secs_f64().into());
        out.object(summary)?;
    } else {
        out.text(&format!(
            "{} loaded, {} of keys and values, in {}: {} lines a second",
            units::counted(tally.lines, "line", "lines"),
            units::bytes(tally.bytes),
            units::seconds(tally.time),
            units::per_second(tally.lines, tally.time)
        ))?;
    }
    out.finish()
}
