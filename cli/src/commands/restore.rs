//! `sievedb restore`: makes a store from a backup.

use std::path::PathBuf;

use serde_json::json;
use sievedb_backup::{Error, Repository, Restore, RestoreReport};

use super::backups::object as backup_object;
use crate::escape::quoted;
use crate::failure::{Failure, Result, answered};
use crate::interrupt::{failure_of, watched};
use crate::json::Format;
use crate::output::Output;
use crate::store::{Opening, check_parent, note, rate};
use crate::units;

/// Restores a backup from the repository REPO: makes a store of its own in the new directory DIR.
///
/// The newest complete backup is restored, unless --at names one. All checksums and then the whole store are verified before DIR
/// appears. The restored store has an id of its own, so its backups count as another store's.
///
/// A newer backup that lacks files, or whose index is damaged, is passed over with a note; the exit code stays 0. If a file of the
/// chosen backup is damaged, nothing is restored and the exit code is 3: --salvage restores the readable data, also with exit
/// code 3, and `sievedb backups` lists older backups. A failure or an interrupt leaves nothing. After a crash the next restore to
/// DIR removes DIR.restore-incomplete.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sievedb restore /backup/my.db restored.db
  sievedb restore /backup/my.db --at 20261126T072825.123Z-1f2e3d4c-9a8b7c6d restored.db")]
pub(crate) struct Args {
    /// The directory of the repository.
    #[arg(value_name = "REPO")]
    repository: PathBuf,
    /// The directory of the restored store, which must not exist.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The backup to restore: its id, or the beginning of it.
    #[arg(long, value_name = "ID")]
    at: Option<String>,
    /// Restore the newest complete backup of this store: the beginning of its id, the second part of the ids of its backups.
    #[arg(long, value_name = "ID", conflicts_with = "at")]
    store: Option<String>,
    /// Restore the readable data of a damaged backup, as `sievedb repair` does: of the newest only if none is complete.
    #[arg(long)]
    salvage: bool,
    /// Copy at most this many bytes a second: a number, or one with K, M or G.
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    limit_rate: Option<usize>,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let repository = Repository::open(&args.repository)?;
    check_parent(&args.dir)?;
    let mut restore = Restore::new().salvage(args.salvage).options(args.opening.options());
    if let Some(at) = &args.at {
        restore = restore.at(at);
    }
    if let Some(store) = &args.store {
        restore = restore.store(store);
    }
    let (mut control, interrupted) = watched(args.limit_rate)?;
    let report = repository.restore(&args.dir, &restore, &mut control);
    let report = report.map_err(|error| {
        let next = next_step(&error, &repository, args);
        let failure = failure_of(error, &interrupted);
        next.into_iter().fold(failure, Failure::with_note)
    })?;
    report.passed_over.iter().for_each(|why| note(&format!("passed over: {why}")));
    if args.salvage && !report.passed_over.is_empty() && report.backup.missing == 0 {
        let id = &report.backup.id;
        note(&format!("chosen: {id}, the newest backup without missing files; --at ID salvages another one"));
    }
    let mut out = Output::new();
    let printed = match args.format.json {
        true => out.text(&object(&report).to_string()),
        false => print(&report, args, &mut out),
    };
    answered(printed.and_then(|()| out.finish()), verdict(&report, args))
}

fn next_step(error: &Error, repository: &Repository, args: &Args) -> Option<String> {
    let backups = format!("`sievedb backups {}`", quoted(&args.repository.to_string_lossy()));
    match error {
        Error::Ambiguous { .. } => Some("choose one with --at ID or --store ID".into()),
        Error::Damaged { file, .. } if file.extension().is_some_and(|end| end == "index") => {
            Some(format!("{backups} lists the others; --at ID restores one"))
        }
        Error::Damaged { .. } | Error::Unsound { .. } => {
            let salvage = if args.salvage { "" } else { "--salvage restores the readable data; " };
            Some(format!("{salvage}{backups} lists older ones, --at ID restores one"))
        }
        Error::NoBackup { .. } => {
            let found = repository.backups().map_or(Vec::new(), |found| found.backups);
            let can_be_salvaged =
                !args.salvage && args.at.is_none() && found.iter().any(|backup| backup.missing > 0);
            let salvage = if can_be_salvaged { "; --salvage restores an incomplete one" } else { "" };
            Some(format!("{backups} lists the backups{salvage}"))
        }
        _ => None,
    }
}

fn object(report: &RestoreReport) -> serde_json::Value {
    json!({
        "backup": backup_object(&report.backup),
        "passed_over": report.passed_over,
        "tables": report.tables,
        "entries": report.entries,
        "batches": report.batches,
        "damage": report.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "repaired": report.repair.is_some(),
    })
}

fn print(report: &RestoreReport, args: &Args, out: &mut Output) -> Result<()> {
    report.damage.iter().try_for_each(|damaged| out.text(&format!("damage     {damaged}")))?;
    if let Some(repair) = &report.repair {
        super::repair::print_findings(repair, out)?;
    }
    let tables = units::counted(report.tables, "table", "tables");
    let batches = units::counted(report.batches, "batch", "batches");
    let (dir, id) = (args.dir.display(), &report.backup.id);
    let from = match is_whole(report) {
        true => format!("{dir} is a verified store from {id}"),
        false => format!("{dir} is a sound store with the readable data of {id}"),
    };
    out.text(&format!("{from}: {tables}, and {batches} in its log"))
}

fn is_whole(report: &RestoreReport) -> bool {
    report.damage.is_empty() && report.repair.is_none()
}

fn verdict(report: &RestoreReport, args: &Args) -> Result<()> {
    if is_whole(report) {
        return Ok(());
    }
    let (dir, id) = (args.dir.display(), &report.backup.id);
    let what = match report.damage.is_empty() {
        true => format!("the store was damaged before backup {id} was made"),
        false => format!("backup {id} is damaged"),
    };
    Err(Failure::Refused(format!("{what}: the losses of {dir} are listed")))
}
