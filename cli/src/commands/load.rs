use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::path::PathBuf;
use std::time::Duration;

use sievedb::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, VALUE_BYTES_MAX};
use sievedb::{Db, Keyspace};

use crate::arguments::check_limits;
use crate::bulk::write_lines;
use crate::failure::{Failure, Result};
use crate::json::{Format, Object, entry_of, read_object, take_keyspace};
use crate::line_format::{Content, LineFormat};
use crate::output::Output;
use crate::store::{self, Settling, Store, Within};
use crate::units;
use crate::window::{Window, time};

/// Loads lines: `key` or `key<TAB>value`. Creates the store if it does not exist.
///
/// A line is split at its first tab; without a tab the value is empty. A later line replaces an earlier one with the same key.
/// Lines are used unchanged. --escaped reads \t, \n, \\ and \xHH, --from-json the output of `scan --json`. By default, blank
/// lines are skipped, and lines that end with a carriage return are refused. The first invalid line ends the command with exit
/// code 2, Ctrl-C with 130, SIGTERM with 143; the lines before it are loaded. At the end the command waits for compactions, so
/// that lookups are fast, unless --no-settle is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb load words.db /usr/share/dict/words
  find / -xdev | sievedb load files.db -
  sievedb load cache.db entries.tsv --ttl 24h               # forgotten after a day
  sievedb scan old.db | sievedb load new.db - --escaped     # a copy of one keyspace
  sievedb scan old.db --all-keyspaces | sievedb load new.db - --escaped --all-keyspaces")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// The file to read; `-` reads standard input.
    file: PathBuf,
    /// Read one JSON object a line, as `scan --json` prints it.
    #[arg(long, conflicts_with_all = ["escaped", "literal", "empty_key"])]
    from_json: bool,
    /// Read the keyspace of each entry before its key, as `scan --all-keyspaces` prints it; missing keyspaces are created.
    #[arg(long, conflicts_with_all = ["keyspace", "ttl"])]
    all_keyspaces: bool,
    #[command(flatten)]
    within: Within,
    /// Forget each entry so long after it was written: a number with s, m, h or d, such as 90s or 24h. The keyspace keeps this
    /// option, and its present entries expire too.
    #[arg(long, value_name = "TIME", value_parser = time)]
    ttl: Option<Duration>,
    /// Number of steps in which entries are forgotten during --ttl [default: 24, or the keyspace's].
    #[arg(long, value_name = "N", requires = "ttl", value_parser = clap::value_parser!(u64).range(1..=128))]
    ttl_buckets: Option<u64>,
    #[command(flatten)]
    settling: Settling,
    #[command(flatten)]
    lines: LineFormat,
    #[command(flatten)]
    format: Format,
}

const PLACED_BYTES_MAX: usize = 4 * (KEYSPACE_NAME_BYTES_MAX + KEY_BYTES_MAX + VALUE_BYTES_MAX) + 2;

struct Entry<'l> {
    keyspace: Option<String>,
    key: Cow<'l, [u8]>,
    value: Cow<'l, [u8]>,
}

fn entry<'l>(mut line: &'l [u8], args: &Args) -> Result<Entry<'l>> {
    let named = |name: &str| store::keyspace_name(name).map_err(Failure::Usage);
    if args.from_json {
        let mut object = read_object(line).map_err(Failure::Usage)?;
        let keyspace =
            args.all_keyspaces.then(|| take_keyspace(&mut object)).transpose().map_err(Failure::Usage)?;
        let (key, value) = entry_of(object).map_err(Failure::Usage)?;
        let keyspace = keyspace.map(|name| named(&name)).transpose()?;
        return Ok(Entry { keyspace, key: key.into(), value: value.into() });
    }
    let mut keyspace = None;
    if args.all_keyspaces {
        let (name, rest) =
            split(line).ok_or_else(|| Failure::Usage("the line has no keyspace before its key".into()))?;
        let name = String::from_utf8(args.lines.decode(name)?.into_owned());
        keyspace =
            Some(named(&name.map_err(|_| Failure::Usage("the name of the keyspace is not UTF-8".into()))?)?);
        line = rest;
    }
    let (key, value) = split(line).unwrap_or((line, &[]));
    Ok(Entry { keyspace, key: args.lines.decode(key)?, value: args.lines.decode(value)? })
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let tab = line.iter().position(|&byte| byte == b'\t')?;
    Some((&line[..tab], &line[tab + 1..]))
}

struct Targets {
    db: Db,
    default: Keyspace,
    by_name: HashMap<String, Keyspace>,
}

impl Targets {
    fn get(&mut self, name: Option<String>) -> Result<&Keyspace> {
        let Some(name) = name else { return Ok(&self.default) };
        Ok(match self.by_name.entry(name) {
            Occupied(known) => known.into_mut(),
            Vacant(new) => {
                let keyspace = self.db.open_keyspace(new.key())?;
                new.insert(keyspace)
            }
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let content = match (args.from_json, args.all_keyspaces) {
        (true, _) => Content::Json,
        (false, true) => Content::Text(PLACED_BYTES_MAX),
        (false, false) => Content::Entry,
    };
    let mut lines = store::input(&args.store.db, &args.file, args.lines, content)?;
    let db = args.store.or_create()?;
    let default = args.within.or_create(&db)?;
    Window { ttl: args.ttl, buckets: args.ttl_buckets, refresh: None }.set(&default)?;
    let mut targets = Targets { db: db.clone(), default, by_name: HashMap::new() };
    let tally = write_lines(db, &mut lines, args.settling, "loaded", |line, batch| {
        let Entry { keyspace, key, value } = entry(line, args)?;
        check_limits(&key, &value)?;
        batch.put_in(targets.get(keyspace)?, &key, &value);
        Ok((key.len() + value.len()) as u64)
    })?;
    let mut out = Output::new();
    if args.format.json {
        let mut summary = Object::new();
        summary.insert("lines".into(), tally.lines.into());
        summary.insert("blank_lines".into(), lines.blank().into());
        summary.insert("data_bytes".into(), tally.bytes.into());
        summary.insert("seconds".into(), tally.time.as_secs_f64().into());
        summary.insert("settling_seconds".into(), tally.settling.as_secs_f64().into());
        out.object(summary)?;
    } else {
        out.text(&format!(
            "{} loaded, {} of keys and values, in {}: {} lines a second; settled in {}",
            units::counted(tally.lines, "line", "lines"),
            units::bytes(tally.bytes),
            units::seconds(tally.time),
            units::per_second(tally.lines, tally.time),
            units::seconds(tally.settling)
        ))?;
    }
    out.finish()
}
