//! The space of an open store at the last disk check.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::need::{Held, Need, Space, Verdict};
use super::reserve_file::{Found, find};
use crate::checksum::FileId;
use crate::db::state::lifecycle::Flag;
use crate::error::Error;
use crate::fs::Fs;
use crate::sync::lock;

/// Assumed length of an unreadable file: nonzero, so that it is removed.
const UNKNOWN: u64 = 1;

#[derive(Default)]
pub(in crate::db) struct DiskSpace {
    set_by_caller: Option<u64>,
    file_bytes: AtomicU64,
    is_barred: AtomicBool,
    table_bytes: AtomicU64,
    manifest_bytes: AtomicU64,
    is_short: Flag,
    takes_deletes: AtomicBool,
    wants_file: AtomicBool,
    batch_max: AtomicU64,
    room: AtomicU64,
    next_look: AtomicU64,
    found_full: Mutex<FoundFull>,
    judged: Mutex<Judged>,
    pub(in crate::db) making: Mutex<()>,
}

/// The figures of the last disk check.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::db) struct Judged {
    pub(in crate::db) available: Option<u64>,
    pub(in crate::db) need: Need,
}

#[derive(Default)]
struct FoundFull {
    /// An error of the file system.
    cause: Option<Error>,
    /// Limit of the store's size if the free space is unknown or wrong.
    capacity: Option<u64>,
}

impl DiskSpace {
    /// Counts an unreadable `RESERVE` as [`UNKNOWN`] bytes; its creation or removal reports the reason.
    pub(in crate::db) fn open(
        fs: &dyn Fs,
        dir: &Path,
        store_id: FileId,
        table_bytes: u64,
        set_by_caller: Option<u64>,
    ) -> Self {
        let found = find(fs, dir, store_id);
        let file_bytes = match found {
            Ok(Found::Ours(bytes)) => bytes,
            Ok(Found::Nothing | Found::Others) => 0,
            Err(_) => UNKNOWN,
        };
        Self {
            set_by_caller,
            file_bytes: file_bytes.into(),
            is_barred: found.is_ok_and(|found| found == Found::Others).into(),
            table_bytes: table_bytes.into(),
            takes_deletes: true.into(),
            batch_max: u64::MAX.into(),
            room: u64::MAX.into(),
            ..Self::default()
        }
    }

    pub(in crate::db) fn with_flag(self, is_short: Flag) -> Self {
        Self { is_short, ..self }
    }

    pub(in crate::db) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn set_file(&self, bytes: u64) {
        self.file_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(in crate::db) fn bar(&self) {
        self.is_barred.store(true, Ordering::Relaxed);
        self.set_file(0);
    }

    pub(in crate::db) fn set_sizes(&self, table_bytes: u64, manifest_bytes: u64) {
        self.table_bytes.store(table_bytes, Ordering::Relaxed);
        self.manifest_bytes.store(manifest_bytes, Ordering::Relaxed);
    }

    pub(in crate::db) fn table_bytes(&self) -> u64 {
        self.table_bytes.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn manifest_bytes(&self) -> u64 {
        self.manifest_bytes.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn space(&self, free: Option<u64>, files: u64) -> Space {
        let file = self.file_bytes();
        let available = match lock(&self.found_full).capacity {
            Some(capacity) => Some(capacity.saturating_sub(files)),
            None => free.map(|free| free.saturating_add(file)),
        };
        let set_by_caller = if self.is_barred.load(Ordering::Relaxed) { Some(0) } else { self.set_by_caller };
        Space { available, file, set_by_caller, is_short: self.is_short() }
    }

    pub(in crate::db) fn proof(&self, held: &Held) -> Option<u64> {
        Space { available: None, ..self.space(None, held.files) }.judge(held).wanted
    }

    pub(in crate::db) fn is_set_by_caller(&self) -> bool {
        self.set_by_caller.is_some()
    }

    pub(in crate::db) fn note(&self, space: &Space, verdict: &Verdict, logged: u64) {
        *lock(&self.judged) = Judged { available: space.available, need: verdict.need };
        self.takes_deletes.store(verdict.takes_deletes, Ordering::Relaxed);
        self.wants_file.store(verdict.wanted.is_some(), Ordering::Relaxed);
        self.batch_max.store(verdict.batch_max, Ordering::Relaxed);
        self.room.store(verdict.room, Ordering::Relaxed);
        self.next_look.store(logged.saturating_add(verdict.look_after), Ordering::Relaxed);
    }

    #[inline]
    pub(in crate::db) fn is_look_due(&self, logged: u64) -> bool {
        logged >= self.next_look.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn wants_file(&self) -> bool {
        self.wants_file.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn is_much(&self, bytes: usize) -> bool {
        bytes as u64 > self.batch_max.load(Ordering::Relaxed)
    }

    pub(in crate::db) fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    #[inline]
    pub(in crate::db) fn is_short(&self) -> bool {
        self.is_short.is_set()
    }

    pub(in crate::db) fn takes(&self, has_put: bool, bytes: usize) -> bool {
        match has_put {
            true => !self.is_short() && !self.is_much(bytes),
            false => !self.is_short() || self.takes_deletes.load(Ordering::Relaxed),
        }
    }

    pub(in crate::db) fn judged(&self) -> Judged {
        *lock(&self.judged)
    }

    /// The error of the file system, if one showed that space is short.
    pub(in crate::db) fn cause(&self) -> Option<Error> {
        if self.is_short() { lock(&self.found_full).cause.clone() } else { None }
    }

    /// Returns `false` if puts were refused already. `cause` is an error of the file system. If the free space is
    /// unknown or wrong, `capacity` is the size of all files that is known to fit.
    pub(in crate::db) fn set_short(&self, cause: Option<&Error>, capacity: Option<u64>) -> bool {
        let mut found_full = lock(&self.found_full);
        found_full.cause = cause.cloned().or_else(|| found_full.cause.take());
        // A compaction needs temporary space.
        found_full.capacity = found_full.capacity.max(capacity);
        !self.is_short.set(true)
    }

    pub(in crate::db) fn set_enough(&self) -> bool {
        *lock(&self.found_full) = FoundFull::default();
        self.takes_deletes.store(true, Ordering::Relaxed);
        self.is_short.set(false)
    }

    /// Call when the file system's free space can be trusted again.
    pub(in crate::db) fn forget_capacity(&self) {
        lock(&self.found_full).capacity = None;
    }

    pub(in crate::db) fn has_capacity(&self) -> bool {
        lock(&self.found_full).capacity.is_some()
    }
}
