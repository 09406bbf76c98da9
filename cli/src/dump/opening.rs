//! Files that are looked at, and what stands in the way.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use sievedb::dump::{Damage, Report, Stop, Trouble};
use sievedb::fs::{Fs, ReadFile, StdFs};

use crate::failure::{Failure, Result};

/// Opens a file to look at it.
pub(super) fn open(path: &Path) -> Result<Arc<dyn ReadFile>> {
    let failed = |source| Failure::io(format!("open {}", path.display()), source);
    // A link is followed here, and nowhere in a store.
    let real = path.canonicalize().map_err(failed)?;
    if real.is_dir() {
        let message = format!("{} is a directory: `sievedb-dump tree` looks at a store", path.display());
        return Err(Failure::Usage(message));
    }
    StdFs.open(&real).map_err(failed)
}

/// What ended a description early.
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

/// What stands in the way of asking a filter.
pub(super) fn troubled(path: &Path, trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Stopped(stop) => stopped(path, stop),
        Trouble::Damaged(damage) => Failure::Refused(damaged(path, &damage)),
        Trouble::NoTable => {
            Failure::Usage(format!("{} is not a table; --table names the filter's", path.display()))
        }
        Trouble::NoFilter => Failure::Usage(format!("{} has no filter", path.display())),
        _ => Failure::Refused(format!("{} cannot be used", path.display())),
    }
}

/// Damage in a sentence.
pub(super) fn damaged(path: &Path, damage: &Damage) -> String {
    let newer = if damage.newer { "is newer than this program" } else { "is corrupt" };
    format!("{} {newer} at offset {}: {}: {}", path.display(), damage.offset, damage.what, damage.detail)
}

/// Fails if a description found something that is not as it should be.
pub(super) fn intact(path: &Path, report: &Report) -> Result<()> {
    let Some(first) = &report.first_damage else { return Ok(()) };
    let more = match report.damage_count {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    Err(Failure::Refused(damaged(path, first) + &more))
}
