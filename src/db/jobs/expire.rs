//! Expiry as background work.
//!
//! 1. [`Engine::raise_horizons`] derives *horizons* from the bucket boundaries and the clock: entries with smaller
//!    sequence numbers have expired. One edit states them before readers see them, so that neither a crash nor a clock
//!    set back makes entries visible again. The edit also states the newest sequence number; otherwise a power loss
//!    could reassign numbers below a horizon and hide new entries.
//! 2. A horizon derived from a doubtful time ([`clock`](crate::db::state::expiry::clock)) is raised in memory only; its
//!    entries may be visible again after an opening.
//! 3. [`Engine::next_drop`] finds the tables below the horizons of all readers, and one edit drops them. A snapshot
//!    delays this for tables that it sees; an iterator does not, because its view keeps the files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::compaction::task::Task;
use crate::db::engine::Engine;
use crate::db::generation::expiry::{Rise, Time};
use crate::db::queues::reservations::{Job, Reserved};
use crate::db::queues::retry::Work;
use crate::db::state::keyspace::change::{Change, TreeChange};
use crate::db::state::keyspace::tree::Tree;
use crate::error::Result;
use crate::expiry::options::{Expiry, TimeSource};
use crate::key::SeqNo;
use crate::manifest::edit::LEVELS;
use crate::sync::lock;

/// Maximum interval between readings of the clock, which may be set at any time.
const CLOCK_INTERVAL: Duration = Duration::from_millis(500);

/// Milliseconds between attempts to become the commit leader.
const LEAD_INTERVAL: u64 = 100;

impl Engine {
    pub(super) fn until_expiry(&self) -> Option<Duration> {
        if !self.keyspaces.memtables.any_expire() {
            return None;
        }
        let now = self.clock.read().map_or(0, |now| now.time);
        let wait = self.expiry_look_at.load(Ordering::Acquire).saturating_sub(now);
        Some(Duration::from_millis(wait).min(CLOCK_INTERVAL))
    }

    pub(in crate::db) fn is_expiry_due(&self) -> bool {
        let look_at = self.expiry_look_at.load(Ordering::Acquire);
        let times = self.expiry_looked_at.load(Ordering::Acquire)..look_at;
        self.keyspaces.memtables.any_expire()
            && look_at < u64::MAX
            && self.clock.read().is_ok_and(|now| !times.contains(&now.time))
    }

    /// Called before the first call of a user, to hide entries that expired while the store was closed. An error is
    /// retried in the background.
    pub(in crate::db) fn raise_horizons_after_opening(&self) {
        if self.is_expiry_due()
            && let Err(error) = self.raise_horizons()
        {
            self.fail_or_put_off(Work::Expire, error);
        }
    }

    /// Raises all horizons that are due. Returns whether there were any.
    pub(in crate::db) fn raise_horizons(&self) -> Result<bool> {
        let _one = lock(&self.raising);
        // Read before the boundaries, so that the boundaries of visible entries are known.
        let visible = self.sequence.visible();
        self.expiry_look_at.store(u64::MAX, Ordering::Release);
        let now = self.clock.read().map_or(0, |now| now.time);
        self.expiry_looked_at.store(now, Ordering::Release);
        let (mut look_at, mut rises, mut failed) = (u64::MAX, Vec::new(), None);
        for tree in self.keyspaces.expiring() {
            let Some(expiry) = tree.expiry() else { continue };
            match self.look_at_tree(&tree, &expiry, visible, &mut rises) {
                Ok(next) => look_at = look_at.min(next),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let raised = self.raise(rises);
        let least = self.clock.read().map_or(0, |now| now.time.saturating_add(LEAD_INTERVAL));
        let is_done = matches!(raised, Ok(true)) && failed.is_none();
        self.look_at_expiry_at(match is_done {
            true => look_at,
            false if raised.is_ok() && failed.is_none() => look_at.max(least),
            false => least,
        });
        failed.map_or(raised, Err)
    }

    fn look_at_tree(
        &self,
        tree: &Arc<Tree>,
        expiry: &Expiry,
        visible: SeqNo,
        rises: &mut Vec<Rise>,
    ) -> Result<u64> {
        let Some(time) = self.time_of(tree, expiry)? else { return Ok(u64::MAX) };
        if expiry.time_source == TimeSource::Caller {
            // Between an opening and the call that sets the time, the stored time applies.
            rises.extend(self.rise_of(tree, expiry, time, visible));
            return Ok(u64::MAX);
        }
        if !time.is_doubtful && tree.buckets().is_undated() {
            self.date_bucket(tree)?;
        }
        rises.extend(self.rise_of(tree, expiry, time, visible));
        Ok(next_look(tree, expiry, time, rises))
    }

    pub(in crate::db) fn raise_horizon_of(&self, tree: &Arc<Tree>) -> Result<bool> {
        let _one = lock(&self.raising);
        let visible = self.sequence.visible();
        let Some(expiry) = tree.expiry() else { return Ok(false) };
        let Some(time) = self.time_of(tree, &expiry)? else { return Ok(false) };
        self.look_at_expiry();
        self.raise(self.rise_of(tree, &expiry, time, visible).into_iter().collect())
    }

    fn raise(&self, rises: Vec<Rise>) -> Result<bool> {
        if rises.is_empty() {
            return Ok(false);
        }
        let (doubtful, certain): (Vec<_>, Vec<_>) = rises.into_iter().partition(|rise| rise.is_doubtful);
        self.hide(&doubtful);
        if !certain.is_empty() {
            let certain = certain.into_iter().map(|rise| (rise.tree, rise.horizon)).collect();
            self.publish(Vec::new(), Change::Horizons(certain))?;
        }
        Ok(true)
    }

    fn date_bucket(&self, tree: &Arc<Tree>) -> Result<()> {
        if self.lifecycle.is_ready() && self.commit.lead() {
            let begun = self.begin_bucket_of(tree);
            self.commit.hand_on();
            begun?;
        }
        Ok(())
    }

    pub(super) fn next_drop(&self, reserved: &Reserved<'_>) -> Option<Job> {
        let noticed = std::mem::take(&mut *lock(&self.with_expired_tables));
        let mut tasks = Vec::new();
        for tree in noticed.into_iter().filter_map(|id| self.keyspaces.get(id)) {
            let (horizon, busy) = (self.droppable_below(&tree), reserved.busy(&tree));
            let version = Arc::clone(&tree.view().version);
            let expired =
                version.all_tables().filter(|(_, table)| table.meta.seqno_max < horizon && !busy.has(table));
            let inputs: Vec<_> = expired.map(|(level, table)| (level, Arc::clone(table))).collect();
            if !inputs.is_empty() {
                tasks.push((tree, Task { inputs, output_level: LEVELS, trivial_move: true }));
            }
        }
        (!tasks.is_empty()).then_some(Job::Drop(tasks))
    }

    pub(super) fn drop_tables(&self, tasks: &[(Arc<Tree>, Task)]) -> Result<()> {
        let change = |(tree, task): &(Arc<Tree>, Task)| TreeChange {
            tree: Arc::clone(tree),
            removed: task.inputs.clone(),
            added: Vec::new(),
            flushed: None,
        };
        self.publish(Vec::new(), Change::Trees(tasks.iter().map(change).collect())).map(drop)
    }

    /// Requests a search for expired tables. Returns whether a snapshot protects one.
    pub(super) fn notice_expired(&self, tree: &Tree) -> bool {
        let (horizon, version) = (tree.buckets().horizon(), Arc::clone(&tree.view().version));
        if horizon == 0 {
            return false;
        }
        let lowest = self.droppable_below(tree);
        let has_below = |horizon| version.all_tables().any(|(_, table)| table.meta.seqno_max < horizon);
        if has_below(lowest) {
            lock(&self.with_expired_tables).insert(tree.id);
        }
        lowest < horizon && has_below(horizon)
    }
}

fn next_look(tree: &Arc<Tree>, expiry: &Expiry, time: Time, rises: &[Rise]) -> u64 {
    let buckets = tree.buckets();
    if time.is_doubtful && (buckets.is_undated() || buckets.is_leap(expiry, time.now)) {
        return time.certain_at;
    }
    if buckets.is_undated() {
        // Another thread is the commit leader and may be waiting for a flush.
        return time.now.saturating_add(LEAD_INTERVAL);
    }
    let mut after = (*buckets).clone();
    if let Some(rise) = rises.last().filter(|rise| Arc::ptr_eq(&rise.tree, tree)) {
        after.raise(rise.horizon);
    }
    let interval = expiry.bucket_millis().max(CLOCK_INTERVAL.as_millis() as u64);
    let again = time.now.saturating_add(interval);
    let oldest = tree.view().oldest_from(after.horizon());
    oldest.and_then(|oldest| after.next_expiry(expiry, oldest)).unwrap_or(again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::handles::keyspace::Keyspace;
    use crate::db::handles::store::Db;
    use crate::db::state::expiry::clock::SimulatedClock;
    use crate::db::state::switch_points::in_order;
    use crate::error::Error;
    use crate::fs::MemFs;
    use crate::options::{KeyspaceOptions, Options};
    use crate::sync::lock;
    use std::sync::Mutex;

    const TTL: Duration = Duration::from_secs(60);

    /// A store in which the next horizon hides the entry `key` = `old`.
    fn about_to_expire() -> (Db, Keyspace) {
        let clock = SimulatedClock::at(1_720_000_000_000);
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).clock(clock.clone());
        let db = options.open("/db").unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::new().ttl(TTL).ttl_buckets(6)).unwrap();
        clock.advance(TTL / 6);
        keyspace.put("key", "old").unwrap();
        // A newer entry, so that "key" does not have the newest sequence number.
        db.put("other", "").unwrap();
        clock.advance(2 * TTL);
        // Without threads, writers would raise horizons; here only the test raises them.
        db.engine().expiry_look_at.store(u64::MAX, Ordering::Release);
        (db, keyspace)
    }

    /// One thread raises the horizon and reads the key; another runs a call that depends on the old value, in 300
    /// orders. Returns how often the call succeeded, and how often it did not.
    fn race(call: impl Fn(&Db, &Keyspace) -> Result<bool> + Sync) -> (u32, u32) {
        let (mut done, mut refused) = (0, 0);
        for seed in 0..300 {
            let (db, keyspace) = about_to_expire();
            let (seen, is_done) = (Mutex::new(None), Mutex::new(None));
            let raise = || {
                db.engine().raise_horizons()?;
                *lock(&seen) = Some(keyspace.get("key")?.map(|value| value.to_vec()));
                Ok(())
            };
            let write = || {
                *lock(&is_done) = Some(call(&db, &keyspace)?);
                Ok(())
            };
            let ended = in_order(seed, [&raise as &(dyn Fn() -> Result<()> + Sync), &write]);
            assert!(ended.iter().all(Result::is_ok), "order {seed}: {ended:?}");
            let seen = lock(&seen).take().unwrap();
            let is_done = lock(&is_done).unwrap();
            let now = keyspace.get("key").unwrap().map(|value| value.to_vec());
            if is_done {
                done += 1;
                assert_eq!(
                    now.as_deref(),
                    Some(&b"new"[..]),
                    "order {seed}: it is newer than what has expired"
                );
                assert!(seen.is_some(), "order {seed}: revived after a reader saw it expire");
            } else {
                refused += 1;
                assert_eq!((seen, now), (None, None), "order {seed}");
            }
        }
        (done, refused)
    }

    #[test]
    fn entries_that_expired_while_the_store_was_closed_are_hidden_from_its_first_call() {
        let (clock, fs) = (SimulatedClock::at(1_720_000_000_000), Arc::new(MemFs::new()));
        let open = || {
            let options = Options::new().fs(fs.clone()).background_threads(0).clock(clock.clone());
            options.open("/db").unwrap()
        };
        let db = open();
        let keyspace = db.keyspace("k", KeyspaceOptions::new().ttl(TTL).ttl_buckets(6)).unwrap();
        keyspace.put("key", "value").unwrap();
        clock.advance(TTL / 2);
        // Otherwise the clock would leap, and doubt hide the entry.
        keyspace.put("newer", "").unwrap();
        drop((db, keyspace));
        clock.advance(TTL / 2 + TTL / 6);
        let db = open();
        let keyspace = db.existing_keyspace("k").unwrap();
        assert_eq!(db.open_report().clock_leap, None);
        assert_eq!((keyspace.get("key").unwrap(), keyspace.contains("newer").unwrap()), (None, true));
        assert!(keyspace.insert_if_absent("key", "new").unwrap());
    }

    #[test]
    fn an_empty_keyspace_is_looked_at_again_in_time_for_an_entry_of_its_first_bucket() {
        let clock = SimulatedClock::at(1_720_000_000_000);
        let options = Options::new().fs(Arc::new(MemFs::new())).background_threads(0).clock(clock.clone());
        let db = options.open("/db").unwrap();
        let keyspace = db.keyspace("k", KeyspaceOptions::new().ttl(TTL).ttl_buckets(6)).unwrap();
        let look_at = || {
            assert!(!db.engine().raise_horizons().unwrap());
            db.engine().expiry_look_at.load(Ordering::Acquire) - clock.now()
        };
        assert_eq!(look_at(), TTL.as_millis() as u64 / 6);
        keyspace.put("key", "value").unwrap();
        assert!((60_000..=70_000).contains(&look_at()), "{}", look_at());
    }

    #[test]
    fn a_write_that_rests_on_an_entry_is_before_its_expiry_or_does_not_find_it_in_every_order() {
        let (done, refused) =
            race(|_, keyspace| Ok(keyspace.compare_and_set("key", Some(b"old"), Some(b"new"))?.is_ok()));
        assert!(done > 10 && refused > 10, "{done} {refused}");
    }

    #[test]
    fn a_transaction_that_has_read_an_entry_is_before_its_expiry_or_conflicts_in_every_order() {
        let (done, refused) = race(|db, keyspace| {
            let tx = db.transaction();
            let Some(_) = tx.keyspace(keyspace).get("key")? else { return Ok(false) };
            tx.keyspace(keyspace).put("key", "new");
            match tx.commit() {
                Ok(()) => Ok(true),
                Err(Error::Conflict { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        });
        assert!(done > 10 && refused > 10, "{done} {refused}");
    }
}
