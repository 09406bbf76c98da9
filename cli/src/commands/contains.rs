use sievedb::Keyspace;

use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object, put_bytes};
use crate::keys::Keys;
use crate::output::Output;
use crate::store;

/// Prints whether a key, or each key on standard input, is present.
///
/// For one key it prints `present` (exit code 0) or `absent` (exit code 1). With `-`, each line of standard input is a key,
/// answered at once by `key<TAB>present` or `key<TAB>absent`. The key "-" itself is `--escaped '\x2d'`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  if sievedb contains seen.db https://example.org/ > /dev/null; then echo known; fi
  sievedb contains seen.db - --only absent < urls.txt       # the new ones")]
pub(crate) struct Args {
    #[command(flatten)]
    keys: Keys,
    /// For keys on standard input, print only the keys with this answer.
    #[arg(long, value_name = "ANSWER", conflicts_with = "json")]
    only: Option<Answer>,
}

/// Whether a key is present.
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
    let key = args.keys.single()?;
    if args.only.is_some() && key.is_some() {
        return Err(Failure::Usage("--only is for keys from standard input".into()));
    }
    let db = args.keys.store.for_reading()?;
    let keyspace = args.keys.within.existing(&db)?;
    let result = match key {
        Some(key) => answer_one(&keyspace, &key, args.keys.format),
        None => answer_many(&keyspace, args),
    };
    store::note_filters(&db);
    result
}

fn answer_one(keyspace: &Keyspace, key: &[u8], format: Format) -> Result<()> {
    let answer = Answer::of(keyspace.contains(key)?);
    let mut out = Output::new();
    let printed = if format.json { out.object(object(key, answer)) } else { out.text(answer.name()) };
    let printed = printed.and_then(|()| out.finish());
    answered(printed, if answer == Answer::Absent { Err(Failure::No) } else { Ok(()) })
}

fn answer_many(keyspace: &Keyspace, args: &Args) -> Result<()> {
    args.keys.answer_each(|key, line, out| {
        let answer = Answer::of(keyspace.contains(key)?);
        if args.keys.format.json {
            return out.object(object(key, answer));
        }
        if args.only.is_some_and(|only| only != answer) {
            return Ok(());
        }
        // Unchanged, so that other commands can read it.
        out.raw(line)?;
        if args.only.is_none() {
            out.raw(b"\t")?;
            out.raw(answer.name().as_bytes())?;
        }
        out.raw(b"\n")
    })
}

fn object(key: &[u8], answer: Answer) -> Object {
    let mut object = Object::new();
    put_bytes(&mut object, "key", key);
    object.insert("present".into(), (answer == Answer::Present).into());
    object
}
