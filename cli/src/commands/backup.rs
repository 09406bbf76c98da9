//! `sievedb backup`: makes, verifies and prunes backups.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};

use serde_json::{Value, json};
use sievedb_backup::{BackupReport, Error, PruneReport, Repository, VerifyReport};

use super::backups::object as backup_object;
use crate::escape::quoted;
use crate::failure::{Failure, Result, answered};
use crate::interrupt::{Interrupted, failure_of, watched};
use crate::json::Format;
use crate::output::Output;
use crate::signals::{lower_priority, open_many_files};
use crate::store::{Opening, note, rate};
use crate::units;

/// Tries of a backup if the writer removes files meanwhile.
const TRIES_MAX: u32 = 10;

/// Makes a backup of a store in the repository REPO, or verifies or prunes its backups.
///
/// A backup has all keyspaces at one moment. It works next to a writer, changes nothing in the store, and raises the niceness by
/// 10. Files that REPO has with the right length are not copied.
///
/// REPO is a directory of files that never change, so rsync, rclone or aws s3 sync can mirror it; only a damaged file is
/// replaced, by its intact bytes. Several stores may share it. It is created if it does not exist, but its parent is not.
/// Interrupted or killed at any point, a backup leaves all others complete, and the next one does not copy the finished files
/// again.
#[derive(Debug, clap::Args)]
#[command(
    allow_missing_positional = true,
    override_usage = "sievedb backup [OPTIONS] STORE REPO\n       sievedb backup --verify REPO\n       sievedb backup --prune --keep N [STORE] REPO",
    after_help = "Examples:
  sievedb backup my.db /backup/my.db
  sievedb backup my.db /backup/my.db --limit-rate 20M --prune --keep 30
  sievedb backup --verify /backup/my.db"
)]
pub(crate) struct Args {
    /// The directory of the store.
    store: Option<PathBuf>,
    /// The directory of the repository.
    #[arg(value_name = "REPO")]
    repository: PathBuf,
    /// Read every file of every backup and list all damage, also of tables that were damaged before they were copied. Exit code
    /// 3 if there is any. A damaged file gets an empty marker
    /// NAME.damaged next to it: the next backup of a store that has the file copies it again.
    #[arg(long, conflicts_with_all = ["prune", "store"])]
    verify: bool,
    /// Remove old backups, after the new one if there is a STORE, and before it if the disk is full. Set aside the files that no backup uses, and delete those
    /// that an earlier --prune set aside 24 hours ago.
    #[arg(long, requires = "keep")]
    prune: bool,
    /// How many complete backups of each store --prune keeps.
    #[arg(long, value_name = "N", requires = "prune", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// Read at most this many bytes a second: a number, or one with K, M or G.
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    limit_rate: Option<usize>,
    #[command(flatten)]
    opening: Opening,
    #[command(flatten)]
    format: Format,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.store {
        None if args.verify => verify(&args.repository, args),
        None if args.prune => {
            let pruned = prune(&Repository::open(&args.repository)?, args.keep)?;
            print(None, pruned.as_ref(), args)
        }
        Some(store) => {
            let repository = Repository::create(&args.repository).map_err(with_order)?;
            let (report, before, interrupted) = back_up(store, &repository, args)?;
            // The backup is made, even if pruning fails.
            let (after, failure) = match prune_unless(&interrupted, &repository, args.keep) {
                Ok(pruned) => (pruned, Ok(())),
                Err(failure) => (None, Err(failure)),
            };
            let pruned = merged(before, after);
            answered(print(Some(&report), pruned.as_ref(), args), failure)
        }
        None => Err(Failure::Usage("a backup needs STORE and REPO; --verify and --prune need REPO".into())),
    }
}

/// The arguments may be in the wrong order.
fn with_order(error: Error) -> Failure {
    let is_store = matches!(error, Error::NoRepository { .. });
    let failure = Failure::from(error);
    if is_store { failure.with_note("the order is STORE REPO") } else { failure }
}

/// Also returns the pruning before the second try.
fn back_up(
    store: &Path,
    repository: &Repository,
    args: &Args,
) -> Result<(BackupReport, Option<PruneReport>, Interrupted)> {
    open_many_files();
    lower_priority();
    let (mut control, interrupted) = watched(args.limit_rate)?;
    let (mut tries, mut pruned) = (0, None);
    loop {
        tries += 1;
        let db = args.opening.for_reading(store)?;
        match repository.backup(&db, &mut control) {
            Ok(report) => return Ok((report, pruned, interrupted)),
            // The view could not hold all files open, and one was removed. Copied files are not copied again.
            Err(Error::Store(sievedb::Error::Changed { .. })) if tries < TRIES_MAX => {}
            Err(error) if is_full(&error) && pruned.is_none() && interrupted.load(Ordering::SeqCst) == 0 => {
                pruned = Some(make_room(repository, args.keep, error)?);
            }
            Err(error) => {
                let notes = pruned.filter(|_| is_full(&error));
                let notes = notes.map(|pruned| [pruned_line(&pruned), how_to_free(repository)]);
                let failure = failure_of(error, &interrupted);
                return Err(notes.into_iter().flatten().fold(failure, Failure::with_note));
            }
        }
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. }
        if matches!(source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Prunes after `error`, from the full disk, before another try.
fn make_room(repository: &Repository, keep: Option<u64>, error: Error) -> Result<PruneReport> {
    let pruned = prune(repository, keep)
        .map_err(|failure| failure.with_note(format!("it was pruned because the backup failed: {error}")))?;
    let Some(pruned) = pruned else {
        return Err(Failure::from(error).with_note("--prune --keep N removes old backups"));
    };
    note(&format!("{error}; {}; another try", pruned_line(&pruned)));
    Ok(pruned)
}

fn how_to_free(repository: &Repository) -> String {
    let [dir, unused] =
        [repository.path(), &repository.path().join("unused")].map(|path| quoted(&path.to_string_lossy()));
    format!(
        "files are deleted 24 hours after they were found unused, because a running backup may use them; to free space \
         now, end all backups, run `sievedb backup --prune --keep N {dir}`, and if it succeeds, delete {unused}"
    )
}

/// Prunes, unless a signal arrived after the backup was complete.
fn prune_unless(
    interrupted: &AtomicI32,
    repository: &Repository,
    keep: Option<u64>,
) -> Result<Option<PruneReport>> {
    match interrupted.load(Ordering::SeqCst) {
        code if code != 0 && keep.is_some() => {
            Err(Failure::Interrupted(code).with_note("the backup is made, but nothing is pruned"))
        }
        _ => prune(repository, keep),
    }
}

fn prune(repository: &Repository, keep: Option<u64>) -> Result<Option<PruneReport>> {
    let pruned = keep.map(|keep| repository.prune(keep)).transpose();
    pruned.map_err(|error| match error {
        Error::Damaged { .. } => Failure::from(error).with_note(
            "nothing is pruned, because it may name any file: copy it from a mirror, or remove it and so its backup",
        ),
        error => error.into(),
    })
}

/// The sum of two prunings.
fn merged(first: Option<PruneReport>, last: Option<PruneReport>) -> Option<PruneReport> {
    match (first, last) {
        (Some(mut first), Some(last)) => {
            first.removed.extend(last.removed);
            first.kept = last.kept;
            first.unused_files += last.unused_files;
            first.deleted_files += last.deleted_files;
            first.deleted_bytes += last.deleted_bytes;
            Some(first)
        }
        (first, last) => last.or(first),
    }
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
        out.text(&pruned_line(pruned))?;
    }
    out.finish()
}

fn pruned_line(pruned: &PruneReport) -> String {
    let removed = units::counted(pruned.removed.len() as u64, "backup", "backups");
    let unused = units::counted(pruned.unused_files, "file", "files");
    let deleted = units::counted(pruned.deleted_files, "file", "files");
    format!(
        "pruned: {removed} removed, {} kept; {unused} found unused, {deleted} deleted, {}",
        units::count(pruned.kept),
        units::bytes(pruned.deleted_bytes)
    )
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
    let (mut control, interrupted) = watched(args.limit_rate)?;
    let report = repository.verify(&mut control).map_err(|error| failure_of(error, &interrupted))?;
    let mut out = Output::new();
    let printed = match args.format.json {
        true => out.text(&verified_object(&report).to_string()),
        false => print_verified(&report, &mut out),
    };
    let found = (report.damage.len() + report.unreadable.len()) as u64;
    let verdict = match report.is_sound() {
        true => Ok(()),
        false => {
            let files = units::counted(found, "damaged or unreadable file", "damaged or unreadable files");
            let failure = Failure::Refused(format!("{files} in {}", dir.display()));
            Err(advice(&report).into_iter().fold(failure, Failure::with_note))
        }
    };
    if let Some(error) = &report.not_marked {
        note(&format!("{error}: the result for that file is not recorded"));
    }
    answered(printed.and_then(|()| out.finish()), verdict)
}

fn advice(report: &VerifyReport) -> Vec<&'static str> {
    let (copied, changed): (Vec<_>, Vec<_>) =
        report.damage.iter().map(|(damaged, _)| damaged.was_copied_damaged()).partition(|copied| *copied);
    let mut advice = Vec::new();
    if !changed.is_empty() {
        advice.push("the next backup copies damaged and missing files again if the store still has them");
    }
    if !copied.is_empty() {
        advice.push(
            "a store was damaged before its backup: `sievedb verify STORE` lists the damage, and `sievedb restore --salvage` \
             restores the rest; if the store is sound, delete the named file, and the next backup copies it",
        );
    }
    // An index of a newer version, or without permission, may be intact.
    let is_damaged = |error: &Error| matches!(error, Error::Damaged { .. });
    if report.damage.is_empty() && report.unreadable.iter().all(is_damaged) {
        advice.push("an index cannot be copied again: remove it");
    }
    advice
}

fn print_verified(report: &VerifyReport, out: &mut Output) -> Result<()> {
    let files = units::counted(report.files, "file", "files");
    let backups = units::counted(report.backups, "backup", "backups");
    out.text(&format!("read       {files} of {backups}, {}", units::bytes(report.bytes)))?;
    for error in &report.unreadable {
        out.text(&format!("unreadable {error}"))?;
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
            "was_copied_damaged": damaged.was_copied_damaged(),
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
        "not_marked": report.not_marked.as_ref().map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prunings_before_and_after_a_backup_are_reported_together() {
        let report = |id: &str, kept, files| {
            let mut report = PruneReport::default();
            report.removed.push(id.into());
            (report.kept, report.unused_files) = (kept, files);
            (report.deleted_files, report.deleted_bytes) = (10 * files, 100 * files);
            report
        };
        let sum = merged(Some(report("a", 1, 2)), Some(report("b", 3, 4))).unwrap();
        let expected = json!({
            "removed": ["a", "b"], "kept": 3, "unused_files": 6, "deleted_files": 60, "deleted_bytes": 600,
        });
        assert_eq!(pruned_object(&sum), expected);
        let one = || Some(report("a", 1, 2));
        assert_eq!((merged(one(), None), merged(None, one()), merged(None, None)), (one(), one(), None));
    }

    #[test]
    fn an_interrupt_that_comes_too_late_for_the_backup_prevents_pruning() {
        let folder = tempfile::tempdir().unwrap();
        let db = sievedb::Db::open(folder.path().join("db")).unwrap();
        let repository = Repository::create(folder.path().join("repo")).unwrap();
        repository.backup(&db, &mut sievedb_backup::Control::new()).unwrap();
        let interrupted = AtomicI32::new(143);
        let failure = prune_unless(&interrupted, &repository, Some(1)).unwrap_err();
        assert_eq!(failure.code(), 143);
        assert!(failure.to_string().contains("nothing is pruned"), "{failure}");
        assert!(prune_unless(&interrupted, &repository, None).unwrap().is_none(), "the work is complete");
        interrupted.store(0, Ordering::SeqCst);
        assert_eq!(prune_unless(&interrupted, &repository, Some(1)).unwrap().unwrap().kept, 1);
    }
}
