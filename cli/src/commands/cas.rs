use std::ffi::OsString;

use sievedb::Durability;

use crate::arguments::check_limits;
use crate::escape::{escape, shortened};
use crate::failure::{Failure, Result};
use crate::keys::OneKey;

/// Sets a key to a value if it has the expected value (compare and set), durably.
///
/// If it has another value, nothing is written, that value is printed on standard error, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb cas my.db state --from draft --to final
  sievedb cas my.db leader --to node1                       # if nobody leads
  sievedb cas my.db leader --from node1                     # delete, if it is node1")]
pub(crate) struct Args {
    #[command(flatten)]
    at: OneKey,
    /// The expected value; without it, the key must be absent.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true, required_unless_present = "to")]
    from: Option<OsString>,
    /// The value to set; without it, the key is deleted.
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    to: Option<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let key = args.at.decode()?;
    let from = args.at.arguments.decode_optional(args.from.as_ref())?;
    let to = args.at.arguments.decode_optional(args.to.as_ref())?;
    check_limits(&key, to.as_deref().unwrap_or_default())?;
    let db = args.at.store.existing()?;
    let keyspace = args.at.within.existing(&db)?;
    let done = keyspace.compare_and_set_with(&key, from.as_deref(), to.as_deref(), Durability::Synced)?;
    db.close()?;
    done.map_err(|refused| match refused.found {
        Some(found) => Failure::Declined(format!("{} holds {}", shortened(&key), escape(&found))),
        None => Failure::Absent(shortened(&key)),
    })
}
