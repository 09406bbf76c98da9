//! Failures of a store.
//!
//! Four failures end writing ([`ends_writing`]): a failed sync of a log, a manifest or the directory (its losses are
//! unknown), a lost lock, a panic, and faulty memory. A panic may interrupt a change halfway, and waiting
//! threads need its error. [`catch`] therefore runs work that other threads may wait for.

use std::any::Any;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::fs::{self, LOOK_AFTER_SYNC};

pub(in crate::db) fn ends_writing(error: &Error, dir: &Path) -> bool {
    match error {
        Error::LockLost { .. }
        | Error::Panicked { .. }
        | Error::FaultyMemory { .. }
        | Error::Poisoned { .. } => true,
        Error::Io { op: "sync" | LOOK_AFTER_SYNC, path, source } if path == dir => !is_passing(source),
        Error::Io { op: "sync" | LOOK_AFTER_SYNC, path, .. } => {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
            matches!(name, Some(FileName::Log(_) | FileName::Manifest(_)))
        }
        _ => false,
    }
}

pub(in crate::db) fn is_out_of_space(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if fs::is_out_of_space(source))
}

/// The system refused the operation before attempting it.
fn is_passing(error: &io::Error) -> bool {
    let kinds = [ErrorKind::OutOfMemory, ErrorKind::Interrupted];
    kinds.contains(&error.kind()) || fs::is_out_of_space(error) || fs::is_out_of_files(error)
}

pub(in crate::db) fn catch<T>(during: &'static str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| panicked(during, &*payload))
}

#[cold]
fn panicked(during: &'static str, payload: &dyn Any) -> Error {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    Error::Panicked { during, message: text.unwrap_or_default().into_boxed_str() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_fails_after_a_sync_ends_writing_where_a_failed_sync_does() {
        let dir = Path::new("/db");
        for name in ["000001.wal", "MANIFEST-000002", "000003.sst", "CURRENT.new", ""] {
            let path = if name.is_empty() { dir.to_path_buf() } else { dir.join(name) };
            let ends = ["sync", LOOK_AFTER_SYNC]
                .map(|op| ends_writing(&Error::io(op, &path, io::Error::other("broken")), dir));
            let is_final = name.ends_with(".wal") || name.starts_with("MANIFEST") || name.is_empty();
            assert_eq!(ends, [is_final; 2], "{name}");
        }
    }
}
