//! `sievedb backup`: makes, verifies and prunes backups.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sievedb_backup::{BackupReport, Error, PruneReport, Repository, VerifyReport};

use super::backups::object as backup_object;
use crate::failure::{Failure, Result, answered};
use crate::interrupt::watched;
use crate::json::Format;
use crate::output::Output;
use crate::signals::open_many_files;
use crate::store::{Opening, size};
use crate::units;

/// How often a moment of the store is looked for if the writer removes files meanwhile.
const TRIES_MAX: u32 = 10;

/// Makes a backup of a store in the repository REPO, or verifies or prunes the backups in it.
///
/// A repository is a directory of files that never change, so it can be mirrored with rsync, rclone or aws s3 sync.
/// Files that it already has are not copied; several stores may share one. It is created if it does not exist. A backup
/// has all keyspaces at one moment. It works while another process has the store open, and changes nothing in it.
/// Interrupted or killed at any point, it leaves all other backups complete.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "sievedb backup [OPTIONS] STORE REPO\n       sievedb backup --verify REPO\n       sievedb backup --prune --keep N [STORE] REPO",
    after_help = "Examples:
  sievedb backup my.db /backup/my.db
  sievedb backup my.db /backup/my.db --limit-rate 20M --prune --keep 30
  sievedb backup --verify /backup/my.db"
)]
pub(crate) struct Args {
    /// The directory of the store, and the directory of the repository.
    #[arg(value_names = ["STORE", "REPO"], num_args = 1..=2, required = true)]
    paths: Vec<PathBuf>,
    /// Read every file of every backup and list all damage. Exit code 3 if there is any.
    #[arg(long, conflicts_with_all = ["prune", "limit_rate"])]
    verify: bool,
    /// Remove old backups, after the new one if there is a STORE, and delete files that no backup has used for 24 hours.
    #[arg(long, requires = "keep")]
    prune: bool,
    /// How many backups of each store --prune keeps.
    #[arg(long, value_name = "N", requires = "prune", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// Copy at most so many bytes a second: a number, or one with K, M or G.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    limit_rate: Option<usize>,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.paths[..] {
        [repository] if args.verify => verify(repository, args),
        [_, _] if args.verify => Err(Failure::Usage("--verify takes only REPO".into())),
        [repository] if args.prune => {
            let pruned = prune(&Repository::open(repository)?, args)?;
            print(None, pruned.as_ref(), args)
        }
        [store, repository] => {
            let repository = Repository::create(repository)?;
            let report = back_up(store, &repository, args)?;
            // The backup is made, even if pruning fails.
            let (pruned, failure) = match prune(&repository, args) {
                Ok(pruned) => (pruned, Ok(())),
                Err(failure) => (None, Err(failure)),
            };
            answered(print(Some(&report), pruned.as_ref(), args), failure)
        }
        _ => Err(Failure::Usage("a backup needs STORE and REPO; --verify and --prune need REPO".into())),
    }
}

fn back_up(store: &Path, repository: &Repository, args: &Args) -> Result<BackupReport> {
    open_many_files();
    let mut control = watched(args.limit_rate)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let db = args.opening.for_reading(store)?;
        match repository.backup(&db, &mut control) {
            // The view could not hold all files open, and one was removed. Contents that were copied are found again.
            Err(Error::Store(sievedb::Error::Changed { .. })) if tries < TRIES_MAX => {}
            made => return Ok(made?),
        }
    }
}

fn prune(repository: &Repository, args: &Args) -> Result<Option<PruneReport>> {
    let keep = args.keep.filter(|_| args.prune);
    Ok(keep.map(|keep| repository.prune(keep)).transpose()?)
}

fn print(report: Option<&BackupReport>, pruned: Option<&PruneReport>, args: &Args) -> Result<()> {
    let mut out = Output::new();
    if args.format.json {
        let object = json!({ "backup": report.map(report_object), "pruned": pruned.map(pruned_object) });
        out.text(&object.to_string())?;
        return out.finish();
    }
    if let Some(BackupReport { backup, copied_files, copied_bytes, .. }) = report {
        let all = units::counted(backup.files, "file", "files");
        let copied = units::counted(*copied_files, "file", "files");
        out.text(&format!(
            "{}: {all}, {}; copied {copied}, {}",
            backup.id,
            units::bytes(backup.bytes),
            units::bytes(*copied_bytes)
        ))?;
    }
    if let Some(pruned) = pruned {
        let removed = units::counted(pruned.removed.len() as u64, "backup", "backups");
        let unused = units::counted(pruned.unused_files, "file", "files");
        let deleted = units::counted(pruned.deleted_files, "file", "files");
        out.text(&format!(
            "pruned: {removed} removed, {} kept; {unused} found unused, {deleted} deleted, {}",
            units::count(pruned.kept),
            units::bytes(pruned.deleted_bytes)
        ))?;
    }
    out.finish()
}

fn report_object(report: &BackupReport) -> Value {
    let mut object = backup_object(&report.backup);
    object.insert("copied_files".into(), report.copied_files.into());
    object.insert("copied_bytes".into(), report.copied_bytes.into());
    object.into()
}

fn pruned_object(pruned: &PruneReport) -> Value {
    json!({
        "removed": pruned.removed,
        "kept": pruned.kept,
        "unused_files": pruned.unused_files,
        "deleted_files": pruned.deleted_files,
        "deleted_bytes": pruned.deleted_bytes,
    })
}

fn verify(dir: &Path, args: &Args) -> Result<()> {
    let repository = Repository::open(dir)?;
    let report = repository.verify(&mut watched(None)?)?;
    let mut out = Output::new();
    let printed = match args.format.json {
        true => out.text(&verified_object(&report).to_string()),
        false => print_verified(&report, &mut out),
    };
    let found = (report.damage.len() + report.unreadable.len()) as u64;
    let verdict = match report.is_sound() {
        true => Ok(()),
        false => {
            let files = units::counted(found, "damaged file", "damaged files");
            Err(Failure::Refused(format!("{files} in {}", dir.display())))
        }
    };
    answered(printed.and_then(|()| out.finish()), verdict)
}

fn print_verified(report: &VerifyReport, out: &mut Output) -> Result<()> {
    let files = units::counted(report.files, "file", "files");
    let backups = units::counted(report.backups, "backup", "backups");
    out.text(&format!("read       {files} of {backups}, {}", units::bytes(report.bytes)))?;
    for error in &report.unreadable {
        out.text(&format!("damage     {error}"))?;
    }
    for (damaged, backups) in &report.damage {
        out.text(&format!("damage     {damaged}"))?;
        out.text(&format!("           used by {}", backups.join(", ")))?;
    }
    if report.is_sound() { out.text("sound      no damage found") } else { Ok(()) }
}

fn verified_object(report: &VerifyReport) -> Value {
    let damage = report.damage.iter().map(|(damaged, backups)| {
        json!({
            "file": damaged.file.display().to_string(),
            "name": damaged.name,
            "offset": damaged.offset,
            "message": damaged.detail,
            "backups": backups,
        })
    });
    json!({
        "sound": report.is_sound(),
        "backups": report.backups,
        "files": report.files,
        "bytes": report.bytes,
        "damage": damage.collect::<Value>(),
        "unreadable": report.unreadable.iter().map(ToString::to_string).collect::<Value>(),
    })
}
