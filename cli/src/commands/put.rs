//! `sievedb put`: one entry, durable when the command ends.

use std::ffi::OsString;
use std::path::PathBuf;

use sievedb::{Durability, WriteBatch};

use crate::failure::Result;
use crate::lines::{Arguments, check_limits};
use crate::store::{self, Within};

/// Sets a key to a value, durably. Creates the store if it does not exist.
///
/// The key is taken as it is: `-` is a key of one byte. `load` reads entries from standard input.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb put my.db planet Saturn
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
    let mut batch = WriteBatch::new();
    batch.put_in(&keyspace, key, value);
    db.write_with(batch, Durability::Synced)?;
    Ok(db.close()?)
}
