use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use sievedb::Db;

use super::history::{Found, OWN, Prefix, SHARED, Space};
use super::life::Life;
use super::reads::collect;
use super::value::{owner, stamp};
use super::watch::Call;
use super::worker::space_name;
use super::{Ended, Store};

pub(super) fn compare(store: &Store, db: &Db, life: &Life) -> Result<(), String> {
    let read = || read_all(store, db);
    let found = life.watch.during(life.watch.controller(), Call::Compare, read)?;
    store.histories.iter().zip(&found).try_for_each(|(history, (found, has_own))| {
        history.explain(found, history.written(), *has_own).map(drop)
    })
}

pub(super) fn settle(store: &mut Store, db: &Db, life: &Life) -> Result<(), String> {
    let controller = life.watch.controller();
    let found = life.watch.during(controller, Call::Compare, || read_all(store, db))?;
    life.watch.during(controller, Call::Compare, || explain_all(store, &found))?;
    let report = life.watch.during(controller, Call::Verify, || db.verify());
    if let Some(damage) = report.map_err(|error| format!("verify: {error}"))?.damage.first() {
        return Err(format!("damage: {damage}"));
    }
    for (history, (found, has_own)) in store.histories.iter_mut().zip(&found) {
        history.settle(found, *has_own);
    }
    life.watch.counts[Call::Compare as usize].done.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn explain_all(store: &Store, found: &[(Found, bool)]) -> Result<(), String> {
    let synced = store.histories.iter().map(|history| history.synced).max().unwrap_or(0);
    let mut prefixes = Vec::new();
    for (history, (found, has_own)) in store.histories.iter().zip(found) {
        let durable = match store.ended {
            Ended::Whole => history.written(),
            Ended::PowerLost => history.durable(synced),
        };
        prefixes.push(history.explain(found, durable, *has_own)?);
    }
    in_order(store, &prefixes)
}

/// If a batch has survived, all batches of all threads that returned before it began must have survived.
fn in_order(store: &Store, prefixes: &[Prefix]) -> Result<(), String> {
    for (history, prefix) in store.histories.iter().zip(prefixes) {
        let Some(began) = history.last_began(prefix.least) else { continue };
        for (other, other_prefix) in store.histories.iter().zip(prefixes) {
            if other.returned_before(began) > other_prefix.most {
                return Err(format!(
                    "a batch of thread {} has survived, but an earlier one of thread {} has not",
                    history.thread, other.thread
                ));
            }
        }
    }
    Ok(())
}

fn read_all(store: &Store, db: &Db) -> Result<Vec<(Found, bool)>, String> {
    let threads = store.histories.len();
    let mut all = vec![BTreeMap::new(); threads];
    let shared = (0..SHARED).map(|space| (space, space_name(space, 0)));
    let own = (0..threads).map(|thread| (OWN, space_name(OWN, thread)));
    for (space, name) in shared.chain(own) {
        read(db, space, &name, &mut all).map_err(|wrong| format!("keyspace {name:?}: {wrong}"))?;
    }
    let exists = |thread| db.existing_keyspace(&space_name(OWN, thread)).is_some();
    Ok(all.into_iter().enumerate().map(|(thread, found)| (found, exists(thread))).collect())
}

fn read(db: &Db, space: Space, name: &str, all: &mut [Found]) -> Result<(), String> {
    let Some(keyspace) = db.existing_keyspace(name) else { return Ok(()) };
    let entries = collect(keyspace.iter()).map_err(|error| format!("cannot be read: {error}"))?;
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        return Err(format!("{:?} comes before {:?}", pair[0].0, pair[1].0));
    }
    for (key, value) in entries {
        let found = stamp(&key, &value)?;
        let thread = owner(&key).filter(|thread| *thread < all.len());
        let thread = thread.ok_or_else(|| format!("{key:?} belongs to no thread"))?;
        all[thread].insert((space, key), found);
    }
    Ok(())
}
