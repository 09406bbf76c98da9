//! `sievedb backups`: lists the backups in a repository.

use std::path::PathBuf;

use sievedb_backup::{Backup, Repository};

use crate::escape::hex;
use crate::failure::{Failure, Result, answered};
use crate::json::{Format, Object};
use crate::output::Output;
use crate::store::note;
use crate::units;

/// Lists the backups in the repository REPO, the newest first, each with the beginning of the store's id (see `sievedb stats`).
///
/// Exit code 3 if a backup lacks files or an index cannot be read; the message names them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb backups /backup/my.db
  sievedb backups /backup/my.db --json | jq -r 'select(.missing == 0) | .id'")]
pub(crate) struct Args {
    /// The directory of the repository.
    #[arg(value_name = "REPO")]
    repository: PathBuf,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let found = Repository::open(&args.repository)?.backups()?;
    let mut out = Output::new();
    let print = || -> Result<()> {
        for backup in &found.backups {
            match args.format.json {
                true => out.object(object(backup))?,
                false => out.text(&line(backup))?,
            }
        }
        out.finish()
    };
    let printed = print();
    if found.backups.is_empty() && found.unreadable.is_empty() {
        note(&format!("{} has no backups", args.repository.display()));
    }
    let mut wrong: Vec<String> = found.unreadable.iter().map(ToString::to_string).collect();
    for backup in found.backups.iter().filter(|backup| backup.missing > 0) {
        wrong.push(format!("{} lacks {}", backup.id, units::counted(backup.missing, "file", "files")));
    }
    if found.backups.iter().any(|backup| backup.missing > 0) {
        wrong.push("the next backup copies missing files again if the store still has them".into());
    }
    answered(printed, if wrong.is_empty() { Ok(()) } else { Err(Failure::Refused(wrong.join("; "))) })
}

fn line(backup: &Backup) -> String {
    let files = units::counted(backup.files, "file", "files");
    let note = if backup.missing > 0 { ", incomplete" } else { "" };
    let (id, size) = (&backup.id, units::bytes(backup.bytes));
    let store = &hex(&backup.store_id)[..8];
    format!("{id}  store {store}  {files}, {size}, as of sequence number {}{note}", backup.seqno)
}

pub(super) fn object(backup: &Backup) -> Object {
    let mut object = Object::new();
    object.insert("id".into(), (*backup.id).into());
    object.insert("time".into(), units::utc(backup.time).into());
    object.insert("store".into(), hex(&backup.store_id).into());
    object.insert("seqno".into(), backup.seqno.into());
    object.insert("files".into(), backup.files.into());
    object.insert("bytes".into(), backup.bytes.into());
    object.insert("missing".into(), backup.missing.into());
    object
}
