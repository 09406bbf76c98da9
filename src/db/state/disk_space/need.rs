//! Space to recover, and the writes that a store accepts. Pure functions.
//!
//! | needed for | bytes |
//! |---|---|
//! | opening | two manifests; the undurable end of the log, at most [`UNSYNCED_MAX`]; [`SLACK`] for a new log and file headers |
//! | deletes | opening; the memtables twice (level 0 and level 1); the largest compaction ([`largest_step`](crate::compaction::debt::largest_step)) |
//! | puts | deletes; [`COST`] memtables full of deletes |
//!
//! A write of `n` bytes takes `n` bytes of log, `n` of undurable log, and 2 `n` for the memtable: [`COST`] × `n`.

use crate::db::state::log::LOG_SYNC_BYTES;

/// Space for a new log, headers and footers of small tables, and `CURRENT`.
const SLACK: u64 = 32 << 10;

/// Background work syncs the log before its undurable part exceeds this.
const UNSYNCED_MAX: u64 = LOG_SYNC_BYTES;

pub(in crate::db) const COST: u64 = 4;

/// Maximum length of `RESERVE` if the free space is known. Above [`FILE_BYTES_SMALL`], the data size is another limit.
const FILE_BYTES_MAX: u64 = 64 << 20;
const FILE_BYTES_SMALL: u64 = 1 << 20;

const FILE_BYTES_MIN: u64 = 256 << 10;

/// Divisor of the data size for a `RESERVE` above [`FILE_BYTES_SMALL`].
const PART_OF_DATA: u64 = 8;

/// With less free space, a store short of space removes `RESERVE` before a write fails.
const FREE_MIN: u64 = 64 << 10;

const LEFT_FREE: u64 = SLACK / 2;

const LOOK_BYTES_MIN: u64 = 4 << 10;
const LOOK_BYTES_MAX: u64 = 64 << 20;

const GROWS_AFTER_MIN: u64 = 32 << 10;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::db) struct Held {
    /// An upper bound of the size of the tables that the memtables become.
    pub(in crate::db) memtables: u64,
    pub(in crate::db) flush: u64,
    pub(in crate::db) compaction: u64,
    pub(in crate::db) manifest: u64,
    pub(in crate::db) files: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::db) struct Need {
    pub(in crate::db) opening: u64,
    pub(in crate::db) deletes: u64,
    pub(in crate::db) puts: u64,
}

impl Need {
    /// Space to accept puts: an eighth more after puts were refused.
    fn least(&self, is_short: bool) -> u64 {
        if is_short { self.puts.saturating_add(self.puts / 8) } else { self.puts }
    }

    /// The space with which a store takes a batch of `bytes` with a put.
    pub(in crate::db) fn of_batch(&self, bytes: u64, is_short: bool) -> u64 {
        self.least(is_short).max(self.puts.saturating_add(bytes.saturating_mul(COST)))
    }
}

impl Held {
    pub(in crate::db) fn need(&self) -> Need {
        let sum = |parts: &[u64]| parts.iter().fold(0, |sum: u64, &part| sum.saturating_add(part));
        let undurable = self.memtables.min(UNSYNCED_MAX);
        let opening = sum(&[SLACK, self.manifest, self.manifest, undurable]);
        let deletes = sum(&[opening, self.memtables, self.memtables, self.compaction]);
        let puts = sum(&[deletes, self.flush.min(self.files).saturating_mul(COST)]);
        Need { opening, deletes, puts }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Space {
    pub(in crate::db) available: Option<u64>,
    pub(in crate::db) file: u64,
    pub(in crate::db) set_by_caller: Option<u64>,
    pub(in crate::db) is_short: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) struct Verdict {
    pub(in crate::db) need: Need,
    pub(in crate::db) takes_puts: bool,
    pub(in crate::db) takes_deletes: bool,
    pub(in crate::db) wanted: Option<u64>,
    pub(in crate::db) batch_max: u64,
    pub(in crate::db) room: u64,
    pub(in crate::db) look_after: u64,
    pub(in crate::db) gives_up_file: bool,
}

impl Space {
    pub(in crate::db) fn judge(&self, held: &Held) -> Verdict {
        let need = held.need();
        let available = self.available.unwrap_or(u64::MAX);
        let above = |least: u64| available.saturating_sub(least) / COST;
        let (next, free) = match self.is_short {
            true => (need.deletes, available.saturating_sub(self.file)),
            false => (need.puts, u64::MAX),
        };
        let may_grow = self.set_by_caller.is_none() && self.file < FILE_BYTES_MAX;
        let grows_after = if may_grow { (self.file / 8).max(GROWS_AFTER_MIN) } else { u64::MAX };
        Verdict {
            need,
            takes_puts: available >= need.least(self.is_short),
            takes_deletes: available >= need.deletes,
            wanted: self.wanted(held, &need),
            batch_max: above(need.puts),
            room: available.saturating_sub(need.opening.saturating_add(held.memtables)),
            look_after: (above(next) / 2)
                .min(free / 2)
                .min(grows_after)
                .clamp(LOOK_BYTES_MIN, LOOK_BYTES_MAX),
            gives_up_file: self.is_short && self.file > 0 && free < FREE_MIN,
        }
    }

    fn wanted(&self, held: &Held, need: &Need) -> Option<u64> {
        let longest = match (self.set_by_caller, self.available) {
            (Some(bytes), Some(available)) if available < bytes.saturating_add(need.deletes) => {
                self.file.min(bytes)
            }
            (Some(bytes), _) => bytes,
            (None, None) => need.puts.saturating_add(need.puts / 4),
            (None, Some(available)) => {
                let part = (held.files / PART_OF_DATA).clamp(FILE_BYTES_SMALL, FILE_BYTES_MAX);
                let whole = need.puts.saturating_add(need.puts / 2).next_power_of_two().max(FILE_BYTES_MIN);
                let affordable = power_of_two_below(available.saturating_sub(need.puts));
                let opening = need.opening.next_power_of_two();
                opening.max(whole.min(part).min(affordable)).min(available.saturating_sub(LEFT_FREE))
            }
        };
        let is_long_enough = match (self.set_by_caller, self.available) {
            (Some(_), _) => self.file == longest,
            (None, None) => self.file >= need.puts,
            (None, Some(available)) => {
                // A file that was created with more free space may leave too little now.
                let leaves_room = available.saturating_sub(self.file) >= need.puts - need.opening;
                let is_short = self.file < longest / 2 || self.file < need.opening.min(longest);
                !is_short && (leaves_room || self.file <= longest)
            }
        };
        (!is_long_enough).then_some(longest)
    }
}

fn power_of_two_below(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(0, |log| 1 << log)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// 1 GiB with a half-full memtable of 4 MiB.
    const HELD: Held = Held {
        memtables: 2 * MIB,
        flush: 4 * MIB,
        compaction: 32 * MIB,
        manifest: 100 * KIB,
        files: 1 << 30,
    };

    fn judge(available: Option<u64>, file: u64, is_short: bool) -> Verdict {
        Space { available, file, set_by_caller: None, is_short }.judge(&HELD)
    }

    #[test]
    fn the_needs_are_the_sums_of_their_parts() {
        let need = HELD.need();
        assert_eq!(need.opening, 32 * KIB + 2 * 100 * KIB + 2 * MIB);
        assert_eq!(need.deletes, need.opening + 2 * 2 * MIB + 32 * MIB);
        assert_eq!(need.puts, need.deletes + 4 * 4 * MIB);
        let small = Held { files: 1000, ..HELD }.need();
        assert_eq!(small.puts, small.deletes + 4000, "deletes take no more than what there is");
        let long_log = Held { memtables: 100 * MIB, ..HELD }.need();
        assert_eq!(long_log.opening, 32 * KIB + 2 * 100 * KIB + 8 * MIB);
    }

    #[test]
    fn puts_end_before_deletes_and_begin_again_with_more_than_they_ended() {
        let need = HELD.need();
        let taken = |available, is_short| {
            let verdict = judge(Some(available), MIB, is_short);
            (verdict.takes_puts, verdict.takes_deletes)
        };
        assert_eq!(taken(need.puts, false), (true, true));
        assert_eq!(taken(need.puts - 1, false), (false, true));
        assert_eq!(taken(need.puts, true), (false, true));
        assert_eq!(taken(need.puts + need.puts / 8, true), (true, true));
        assert_eq!(taken(need.deletes, true), (false, true));
        assert_eq!(taken(need.deletes - 1, true), (false, false));
        let unknown = judge(None, 0, false);
        assert!(unknown.takes_puts && unknown.takes_deletes);
    }

    #[test]
    fn the_space_that_a_batch_needs_is_that_with_which_it_is_taken() {
        // 32 + 200 + 2048, and 4096 + 32,768, and 16,384 KiB; an eighth more is 62,469.
        let need = HELD.need();
        assert_eq!(need.puts, 55_528 * KIB);
        assert_eq!([0, KIB].map(|bytes| need.of_batch(bytes, false)), [55_528 * KIB, 55_532 * KIB]);
        assert_eq!([0, KIB].map(|bytes| need.of_batch(bytes, true)), [62_469 * KIB; 2]);
        assert_eq!([false, true].map(|is_short| need.of_batch(3 * MIB, is_short)), [67_816 * KIB; 2]);
    }

    #[test]
    fn what_is_written_between_two_looks_brings_no_store_below_its_threshold() {
        let need = HELD.need();
        for above in [100 * KIB, MIB, 100 * MIB, 1 << 40] {
            for (is_short, least) in [(false, need.puts), (true, need.deletes)] {
                let verdict = judge(Some(least + above), 0, is_short);
                assert!(verdict.look_after * COST < above && verdict.look_after <= 64 * MIB);
                assert!(is_short || verdict.batch_max * COST <= above);
            }
        }
    }

    #[test]
    fn the_file_is_what_an_opening_needs_and_more_where_space_allows_it_and_all_where_that_is_unknown() {
        let need = HELD.need();
        let wanted = |available, file| judge(available, file, false).wanted;
        assert_eq!(wanted(Some(1 << 40), 0), Some(64 * MIB), "the most where much is free");
        assert_eq!(wanted(Some(need.puts), 0), Some(4 * MIB), "an opening needs a little more than 2 MiB");
        assert_eq!(wanted(Some(need.puts), 64 * MIB), Some(4 * MIB), "a compaction needs the rest");
        assert_eq!(wanted(Some(1 << 40), 64 * MIB), None);
        assert_eq!(wanted(None, need.puts - 1), Some(need.puts + need.puts / 4));
        assert_eq!(wanted(None, need.puts), None);
        let empty = Space { available: Some(1 << 40), file: 0, set_by_caller: None, is_short: false };
        assert_eq!(empty.judge(&Held::default()).wanted, Some(256 * KIB));
        let set = |available, file| {
            Space { available, file, set_by_caller: Some(MIB), ..empty }.judge(&HELD).wanted
        };
        assert_eq!([set(None, 0), set(Some(1 << 40), MIB), set(Some(MIB), 0)], [Some(MIB), None, None]);
    }
}
