use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sievedb::Durability;
use sievedb::limits::VALUE_BYTES_MAX;

use crate::arguments::check_limits;
use crate::escape::shortened;
use crate::failure::{Failure, Result};
use crate::keys::OneKey;

/// Sets a key to a value, durably. Creates the store if it does not exist.
///
/// The key is used unchanged: `-` is a key of one byte. `load` reads entries from standard input.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb put my.db planet Saturn
  sievedb put my.db picture --value-file picture.png
  sievedb put my.db lock $$ --if-absent && echo mine
  sievedb put my.db --escaped 'a\\x00b' 'two\\nlines'")]
pub(crate) struct Args {
    #[command(flatten)]
    at: OneKey,
    /// The value.
    #[arg(allow_negative_numbers = true, required_unless_present = "value_file")]
    value: Option<OsString>,
    /// Read the value from this file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    /// Only if the key is absent; exit code 1 if it is present.
    #[arg(long)]
    if_absent: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let key = args.at.decode()?;
    check_limits(&key, b"")?;
    let value = match &args.value_file {
        Some(path) => read_value(path)?,
        None => args.at.arguments.decode_optional(args.value.as_ref())?.unwrap_or_default(),
    };
    check_limits(&key, &value)?;
    let db = args.at.store.or_create()?;
    let keyspace = args.at.within.or_create(&db)?;
    let is_done = if args.if_absent {
        keyspace.insert_if_absent_with(&key, value, Durability::Synced)?
    } else {
        keyspace.put_with(&key, value, Durability::Synced)?;
        true
    };
    db.close()?;
    if is_done { Ok(()) } else { Err(Failure::Declined(format!("present: {}", shortened(&key)))) }
}

/// Reads up to one byte more than a value may have.
fn read_value(path: &Path) -> Result<Vec<u8>> {
    let is_input = path.as_os_str() == "-";
    let name = if is_input { "standard input".into() } else { path.display().to_string() };
    let cannot = |source| Failure::io(format!("read {name}"), source);
    let input: Box<dyn Read> =
        if is_input { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(cannot)?) };
    let mut value = Vec::new();
    input.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value).map_err(cannot)?;
    Ok(value)
}
