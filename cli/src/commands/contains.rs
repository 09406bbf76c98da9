//! `sievedb contains`: is a key there? Exact, and reads no value.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sievedb::Keyspace;

use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object, put_bytes};
use crate::lines::{Encoding, Lines};
use crate::output::Output;
use crate::store::{self, Within};

/// Says whether a key, or each key on standard input, is there.
///
/// For one key it prints `present` (exit code 0) or `absent` (exit code 1). With `-` for the key, keys are read from
/// standard input, one a line, and each is answered as soon as it is asked, by `key<TAB>present` or
/// `key<TAB>absent`; with --only, by the key alone and only if it is so. (The key "-" itself is `--escaped '\x2d'`.)
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  if sievedb contains seen.db https://example.org/ > /dev/null; then echo known; fi
  sievedb contains seen.db - --only absent < urls.txt       # those that are new")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The key; `-` reads keys from standard input.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// Of keys from standard input, print only those that are so.
    #[arg(long, value_name = "ANSWER", conflicts_with = "json")]
    only: Option<Answer>,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    format: Format,
}

/// Whether a key is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Answer {
    Present,
    Absent,
}

impl Answer {
    fn of(present: bool) -> Self {
        if present { Self::Present } else { Self::Absent }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Absent => "absent",
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let many = args.key == "-";
    if args.only.is_some() && !many {
        return Err(Failure::Usage("--only is for keys from standard input".into()));
    }
    let key = args.encoding.argument(&args.key)?;
    let db = store::open_for_reading(&args.db)?;
    let keyspace = args.within.existing(&db)?;
    let result = if many { ask_many(&keyspace, args) } else { ask_one(&keyspace, &key, args.format) };
    store::note_filters(&db);
    result
}

fn ask_one(keyspace: &Keyspace, key: &[u8], format: Format) -> Result<()> {
    let answer = Answer::of(keyspace.contains(key)?);
    let mut out = Output::new();
    let printed = if format.json { out.object(object(key, answer)) } else { out.text(answer.name()) };
    let printed = printed.and_then(|()| out.finish());
    answered(printed, if answer == Answer::Absent { Err(Failure::No) } else { Ok(()) })
}

fn ask_many(keyspace: &Keyspace, args: &Args) -> Result<()> {
    let mut lines = Lines::open(Path::new("-"))?;
    let mut out = Output::new();
    loop {
        if lines.may_wait() {
            out.flush()?;
        }
        if lines.next()?.is_none() {
            return out.finish();
        }
        let key = args.encoding.read(lines.current()).map_err(|failure| lines.blame(failure))?;
        let answer = Answer::of(keyspace.contains(&key)?);
        match args.only {
            _ if args.format.json => out.object(object(&key, answer))?,
            None => out.columns(&[&key, answer.name().as_bytes()])?,
            Some(only) if only == answer => out.columns(&[&key])?,
            Some(_) => {}
        }
    }
}

fn object(key: &[u8], answer: Answer) -> Object {
    let mut object = Object::new();
    put_bytes(&mut object, "key", key);
    object.insert("present".into(), (answer == Answer::Present).into());
    object
}
