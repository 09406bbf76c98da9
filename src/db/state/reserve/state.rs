//! How long the reserve is and is to be, and whether it was given up.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::file::{Found, find};
use crate::checksum::FileId;
use crate::db::state::lifecycle::Flag;
use crate::error::Error;
use crate::fs::Fs;
use crate::sync::lock;

/// The reserve is this part of the tables.
const PART_OF_TABLES: u64 = 16;

/// A smaller reserve is not made.
const BYTES_MIN: u64 = 64 << 10;

/// The largest reserve, unless a caller wants more: as much as the largest memtable by default.
const BYTES_MAX: u64 = 64 << 20;

/// How often a store that takes puts asks whether enough is free.
const ASK_INTERVAL: Duration = Duration::from_secs(10);

/// How long a length is not tried again for which there was no room.
const DENIAL: Duration = Duration::from_secs(3600);

/// The reserve of an open store.
#[derive(Default)]
pub(in crate::db) struct Reserve {
    set_by_caller: Option<u64>,
    /// Length of the file, 0 if there is none.
    bytes: AtomicU64,
    /// Length of the last one that there was.
    bytes_before: AtomicU64,
    /// Length of the tables, by the manifest.
    table_bytes: AtomicU64,
    /// It was given up, and could not be made again since.
    is_spent: Flag,
    /// Why.
    cause: Mutex<Option<Error>>,
    /// There can be none: the file belongs to others.
    is_barred: AtomicBool,
    /// One thread makes it.
    pub(in crate::db) making: Mutex<()>,
    denied: Mutex<Denied>,
}

/// Why the reserve is not tried, or a shorter one is.
#[derive(Default)]
struct Denied {
    /// Too little was free then.
    at: Option<Instant>,
    /// There was no room, though nothing had said so.
    no_room: Option<NoRoom>,
}

/// What to try instead of a length for which there was no room.
struct NoRoom {
    at: Instant,
    goal: u64,
    instead: u64,
}

/// How long the reserve is to be: a power of two, so that it is seldom made anew while the tables grow.
fn goal_bytes(table_bytes: u64, set_by_caller: Option<u64>) -> u64 {
    set_by_caller.unwrap_or_else(|| match (table_bytes / PART_OF_TABLES).min(BYTES_MAX) {
        bytes if bytes < BYTES_MIN => 0,
        bytes => 1 << bytes.ilog2(),
    })
}

impl Reserve {
    /// The reserve of the store in this directory. If it cannot be read, there is none so far; making it or
    /// giving it up tells why.
    pub(in crate::db) fn open(
        fs: &dyn Fs,
        dir: &Path,
        store_id: FileId,
        table_bytes: u64,
        set_by_caller: Option<u64>,
    ) -> Self {
        let found = find(fs, dir, store_id);
        let bytes = if let Ok(Found::Ours(bytes)) = found { bytes } else { 0 };
        let is_barred = found.is_ok_and(|found| found == Found::Others);
        Self {
            set_by_caller,
            bytes: bytes.into(),
            bytes_before: bytes.into(),
            table_bytes: table_bytes.into(),
            is_barred: is_barred.into(),
            ..Self::default()
        }
    }

    /// The same, with its bit of the lifecycle.
    pub(in crate::db) fn with_flag(self, is_spent: Flag) -> Self {
        Self { is_spent, ..self }
    }

    pub(in crate::db) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// To be called when there is a file of this length.
    pub(in crate::db) fn set_made(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.bytes_before.store(bytes, Ordering::Relaxed);
    }

    /// To be called when the file was removed.
    pub(in crate::db) fn set_removed(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// To be called when the file is found to belong to others.
    pub(in crate::db) fn bar(&self) {
        self.is_barred.store(true, Ordering::Relaxed);
        self.set_made(0);
    }

    /// To be called when the length of all tables has changed.
    pub(in crate::db) fn set_table_bytes(&self, bytes: u64) {
        self.table_bytes.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(in crate::db) fn is_spent(&self) -> bool {
        self.is_spent.is_set()
    }

    /// The error of the full disk, if the reserve was given up and could not be made again.
    pub(in crate::db) fn cause(&self) -> Option<Error> {
        if self.is_spent() { lock(&self.cause).clone() } else { None }
    }

    pub(in crate::db) fn set_spent(&self, cause: &Error) {
        *lock(&self.cause) = Some(cause.clone());
        self.is_spent.set(true);
    }

    /// To be called when the reserve has its length.
    pub(in crate::db) fn set_whole(&self) {
        self.is_spent.set(false);
        lock(&self.denied).at = None;
    }

    fn goal(&self) -> u64 {
        let table_bytes = self.table_bytes.load(Ordering::Relaxed);
        let is_barred = self.is_barred.load(Ordering::Relaxed);
        if is_barred { 0 } else { goal_bytes(table_bytes, self.set_by_caller) }
    }

    /// The length to be tried for this goal because there was no room for it.
    fn instead_of(&self, goal: u64) -> Option<u64> {
        let denied = lock(&self.denied);
        let no_room = denied.no_room.as_ref()?;
        (no_room.goal == goal && no_room.at.elapsed() < DENIAL).then_some(no_room.instead)
    }

    /// How long the reserve is to be now. One that was given up is made as long as it was.
    pub(in crate::db) fn wanted(&self) -> u64 {
        let goal = self.goal();
        let wanted = self.instead_of(goal).unwrap_or(goal);
        match self.bytes_before.load(Ordering::Relaxed) {
            before if before > 0 && self.is_spent() => wanted.min(before),
            _ => wanted,
        }
    }

    /// Whether the reserve has a length that it may keep. It becomes shorter only if the caller wants that.
    pub(in crate::db) fn fits(&self) -> bool {
        let longest = self.set_by_caller.unwrap_or(BYTES_MAX);
        (self.wanted()..=longest).contains(&self.bytes())
    }

    /// Whether a store that takes puts may ask again how much is free.
    pub(in crate::db) fn may_ask(&self) -> bool {
        lock(&self.denied).at.is_none_or(|at| at.elapsed() >= ASK_INTERVAL)
    }

    /// To be called when too little was free.
    pub(in crate::db) fn deny(&self) {
        lock(&self.denied).at = Some(Instant::now());
    }

    /// Whether there was no room for the reserve, though nothing had said so.
    pub(in crate::db) fn was_surprised(&self) -> bool {
        self.instead_of(self.goal()).is_some()
    }

    /// To be called when there was no room for this length, though nothing had said so: a quarter is tried next,
    /// but what there was before is not given up.
    pub(in crate::db) fn note_no_room(&self, tried: u64) {
        let before = self.bytes_before.load(Ordering::Relaxed);
        let quarter = Some(tried / 4).filter(|&bytes| bytes >= BYTES_MIN).unwrap_or(0);
        let instead = match before {
            before if before < tried => quarter.max(before),
            _ if self.is_spent() => tried,
            _ => quarter,
        };
        lock(&self.denied).no_room = Some(NoRoom { at: Instant::now(), goal: self.goal(), instead });
    }
}

#[cfg(test)]
impl Reserve {
    /// Has a store that takes puts ask at once how much is free.
    pub(in crate::db) fn ask_now(&self) {
        lock(&self.denied).at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_a_power_of_two_and_a_small_part_of_the_tables_or_what_the_caller_says() {
        let wanted = |mebibytes: u64| goal_bytes(mebibytes << 20, None);
        assert_eq!([0, 1, 3, 40, 1 << 20].map(wanted), [0, 64 << 10, 128 << 10, 2 << 20, 64 << 20]);
        assert_eq!([0, 1 << 30].map(|set| goal_bytes(100, Some(set))), [0, 1 << 30]);
    }

    #[test]
    fn after_each_length_without_room_a_quarter_is_wanted_but_no_less_than_there_was() {
        let tried = |before, is_spent| {
            let reserve = Reserve { set_by_caller: Some(16 << 20), ..Reserve::default() };
            reserve.set_made(before);
            reserve.set_removed();
            reserve.is_spent.set(is_spent);
            let next = || {
                let wanted = reserve.wanted();
                reserve.note_no_room(wanted);
                wanted >> 10
            };
            [(); 6].map(|()| next())
        };
        assert_eq!(tried(0, false), [16384, 4096, 1024, 256, 64, 0]);
        assert_eq!(tried(0, true), [16384, 4096, 1024, 256, 64, 0]);
        assert_eq!(tried(512 << 10, false), [16384, 4096, 1024, 512, 128, 0]);
        assert_eq!(tried(512 << 10, true), [512; 6]);
    }
}
