//! `sievedb put`: one entry, durable when the command ends.

use std::ffi::OsString;
use std::path::PathBuf;

use sievedb::Durability;

use crate::arguments::{Arguments, check_limits};
use crate::escape::escape;
use crate::failure::{Failure, Result};
use crate::store::{self, Within};

/// Sets a key to a value, durably. Creates the store if it does not exist.
///
/// The key is taken as it is: `-` is a key of one byte. `load` reads entries from standard input. With
/// --if-absent a key that is present is left as it is, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb put my.db planet Saturn
  sievedb put my.db lock $$ --if-absent && echo mine
  sievedb put my.db --escaped 'a\\x00b' 'two\\nlines'")]
pub(crate) struct Args {
    /// The directory of the store.
    db: PathBuf,
    /// The key.
    #[arg(allow_negative_numbers = true)]
    key: OsString,
    /// The value.
    #[arg(allow_negative_numbers = true)]
    value: OsString,
    /// Only if the key is absent; exit code 1 if it is present.
    #[arg(long)]
    if_absent: bool,
    #[command(flatten)]
    within: Within,
    #[command(flatten)]
    arguments: Arguments,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (key, value) = (args.arguments.decode(&args.key)?, args.arguments.decode(&args.value)?);
    check_limits(&key, &value)?;
    let db = store::open_or_create(&args.db)?;
    let keyspace = args.within.or_create(&db)?;
    let is_done = if args.if_absent {
        keyspace.insert_if_absent_with(&key, value, Durability::Synced)?
    } else {
        keyspace.put_with(&key, value, Durability::Synced)?;
        true
    };
    db.close()?;
    if is_done { Ok(()) } else { Err(Failure::Declined(format!("present: {}", escape(&key)))) }
}
