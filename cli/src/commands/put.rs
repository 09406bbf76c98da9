//! `sievedb put`: one entry, durable when the command ends.

use std::ffi::OsString;
use std::path::PathBuf;

use sievedb::{Durability, WriteBatch};

use crate::failure::Result;
use crate::lines::{Encoding, check_limits};
use crate::store;

/// Sets a key to a value, durably. Creates the store if it is not there.
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
    encoding: Encoding,
}

pub(crate) fn run(args: &Args, keyspace: Option<&str>) -> Result<()> {
    let (key, value) = (args.encoding.argument(&args.key)?, args.encoding.argument(&args.value)?);
    check_limits(&key, &value)?;
    let db = store::open_or_create(&args.db)?;
    let keyspace = store::keyspace_or_create(&db, keyspace)?;
    let mut batch = WriteBatch::new();
    batch.put_in(&keyspace, key, value);
    db.write_with(batch, Durability::Synced)?;
    Ok(db.close()?)
}
