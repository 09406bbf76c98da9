use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use sievedb::fs::{Fs, ReadFile, StdFs};
use sievedb::inspect::tree::Tree;
use sievedb::inspect::{self, Event, FileDamage, Kind, Report, Stop, Trouble, View};

use super::PROGRAM;
use crate::failure::{Failure, Result, warn};

pub(super) fn view_of(path: &Path) -> View {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    name.map_or_else(View::new, |name| View::new().name(name))
}

pub(super) fn identify(path: &Path) -> Result<(Arc<dyn ReadFile>, Kind)> {
    let file = open(path)?;
    let kind = inspect::kind_of(&*file, &view_of(path)).map_err(|stop| stopped(path, stop))?;
    Ok((file, kind))
}

pub(super) fn refuse_foreign(path: &Path, file: &dyn ReadFile, kind: Kind) -> Result<()> {
    if kind != Kind::Unknown {
        return Ok(());
    }
    let described = inspect::describe(file, &view_of(path), &mut |_: &Event<'_>| Ok(()));
    let report = described.map_err(|stop| stopped(path, stop))?;
    if is_foreign(&report) { intact(path, &report) } else { Ok(()) }
}

fn open(path: &Path) -> Result<Arc<dyn ReadFile>> {
    let failed = |source| Failure::io(format!("open {}", path.display()), source);
    // Follows links, unlike a store.
    let real = path.canonicalize().map_err(failed)?;
    if real.is_dir() {
        let message = format!("{} is a directory; `sievedb-dump tree` shows a store", path.display());
        return Err(Failure::Usage(message));
    }
    StdFs.open(&real).map_err(failed)
}

pub(super) fn stopped(path: &Path, stop: Stop) -> Failure {
    match stop {
        Stop::Sink(error) if error.kind() == ErrorKind::BrokenPipe => Failure::PipeClosed,
        Stop::Sink(error) => Failure::io("write to standard output", error),
        Stop::Read { offset, source, .. } => {
            Failure::io(format!("read {} at offset {offset}", path.display()), source)
        }
        _ => Failure::Refused(stop.to_string()),
    }
}

pub(super) fn troubled(table: &Path, beside: &Path, trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Stopped(stop) => stopped(table, stop),
        Trouble::Damaged(damage) => Failure::Refused(damaged(table, &damage)),
        Trouble::NoFilter => Failure::Usage(format!("{} has no filter", table.display())),
        Trouble::Beside(trouble) => troubled(beside, beside, *trouble),
        _ => Failure::Usage(format!("{} is not a table", table.display())),
    }
}

pub(super) fn is_not(path: &Path, kind: Kind, wanted: &str) -> Failure {
    Failure::Usage(match kind {
        Kind::Unknown => format!("{} is not a {wanted}", path.display()),
        kind => format!("{} is a {}, not a {wanted}", path.display(), kind.name()),
    })
}

pub(super) fn damaged(path: &Path, damage: &FileDamage) -> String {
    let newer = if damage.newer { "is newer than this program" } else { "is corrupt" };
    format!("{} {newer} at offset {}: {}: {}", path.display(), damage.offset, damage.what, damage.detail)
}

pub(super) fn print_damage(tree: &Tree) -> Result<()> {
    tree.damage.iter().for_each(|(path, damage)| warn(PROGRAM, &damaged(path, damage)));
    if tree.damage.is_empty() { Ok(()) } else { Err(Failure::Printed(3)) }
}

pub(super) fn intact(path: &Path, report: &Report) -> Result<()> {
    let Some(first) = &report.first_damage else { return Ok(()) };
    if is_foreign(report) {
        return Err(Failure::Refused(format!(
            "{} is not a file of a store: {}",
            path.display(),
            first.detail
        )));
    }
    let more = match report.damage_count {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Err(Failure::Refused(damaged(path, first) + &more))
}

fn is_foreign(report: &Report) -> bool {
    report.kind == Kind::Unknown
        && report.first_damage.as_ref().is_some_and(|first| first.what == "file magic")
}
