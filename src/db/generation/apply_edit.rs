//! Publishes changes of trees: an edit becomes durable, then visible; then old files may be removed.
//!
//! The caller has synced the files of the edit and their directory. If the append fails or panics, the manifest may or may not
//! have the edit: nothing becomes visible, new files are kept, and writing is suspended (`resume`) or ends.

use std::sync::Arc;

use crate::db::engine::Engine;
use crate::db::queues::retry::Work;
use crate::db::state::failure::catch;
use crate::db::state::keyspace::change::{Change, OptionsChange, TreeChange};
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree};
use crate::db::state::switch_points::point;
use crate::error::{Error, Result};
use crate::key::SeqNo;
use crate::manifest::edit::EditItem;
use crate::manifest::log::ManifestLog;
use crate::manifest::state::ManifestState;
use crate::sync::lock;

impl Engine {
    /// Makes an edit durable, then visible. Returns the log floor of the durable manifest.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`], [`Error::Closed`], [`Error::Overlap`] or a failed check of the lock: nothing has
    /// changed. A failed append has suspended or disabled writing.
    pub(in crate::db) fn publish(&self, items: Vec<EditItem>, change: Change) -> Result<u64> {
        catch("a change of the manifest", || self.publish_edit(items, change))
            .unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn publish_edit(&self, items: Vec<EditItem>, change: Change) -> Result<u64> {
        point();
        self.begin_writing()?;
        let mut guard = self.manifest.lock();
        self.lifecycle.check_not_failed()?;
        self.lifecycle.suspended_by().map_or(Ok(()), Err)?;
        let manifest = guard.as_mut().ok_or(Error::Closed)?;
        let change = change.of_living()?;
        self.files.check_locked().map_err(|error| self.fail_if_final(error))?;
        let mut all = vec![EditItem::NextFile(self.files.next_number())];
        let changed = self.items_of(&change, manifest.state())?;
        point();
        // Read after the floor. If the floor is above a log that has just ended, the edit states that end first.
        let ended = self.next_log.ended();
        all.extend(ended.clone());
        all.extend(items);
        all.extend(changed);
        let doubt = self.lifecycle.doubt(&change);
        let mark = manifest.append(all).map_err(|error| self.suspend(error))?;
        self.manifest.set_mark(mark);
        self.note_stated_boundaries(manifest.state());
        ended.iter().for_each(|ended| self.next_log.note_stated(ended));
        self.disk_space.set_sizes(manifest.state().table_bytes, manifest.len());
        if matches!(change, Change::End) {
            *guard = None;
            return Ok(0);
        }
        match change {
            Change::Horizons(rises) => self.install_horizons(&rises),
            change => change.install(),
        }
        doubt.end();
        let log_floor = manifest.state().log_floor;
        let is_due = manifest.is_long() && self.retry.is_due(Work::ReplaceManifest);
        if is_due {
            let state = manifest.state().clone();
            if let Err(panic) = catch("a new manifest", || self.replace_manifest(state, &mut guard)) {
                self.fail(panic);
            }
        }
        drop(guard);
        if is_due {
            self.remove_obsolete_files();
        }
        Ok(log_floor)
    }

    fn items_of(&self, change: &Change, state: &ManifestState) -> Result<Vec<EditItem>> {
        Ok(match change {
            Change::None | Change::End | Change::Drop(_) => Vec::new(),
            Change::Options(tree, change) => {
                let (id, mut items) = (tree.id, Vec::new());
                if let OptionsChange::All(_) = change
                    && tree.expires()
                {
                    return Err(Error::invalid("a concurrent call has set a time to live"));
                }
                if let OptionsChange::Expiry(_, boundary) = change {
                    let visible = self.sequence.visible();
                    items.push(EditItem::LastSeqno(visible));
                    items.extend(self.missing_boundaries(state, visible));
                    items
                        .extend(boundary.map(|boundary| EditItem::BucketBoundary { keyspace: id, boundary }));
                }
                let options = change.apply(&tree.options.load()).encode();
                items.push(EditItem::KeyspaceOptions { id, options });
                items
            }
            Change::Filters(change) => vec![change.item()],
            Change::Horizons(rises) => {
                let visible = self.sequence.visible();
                let mut items = vec![EditItem::LastSeqno(visible)];
                items.extend(self.missing_boundaries(state, visible));
                items.extend(
                    rises.iter().map(|(tree, seqno)| EditItem::Horizon { keyspace: tree.id, seqno: *seqno }),
                );
                items
            }
            Change::Trees(changes) => {
                changes.iter().try_for_each(TreeChange::check_runs)?;
                let mut items: Vec<_> = changes.iter().flat_map(TreeChange::items).collect();
                let flushed: Vec<_> = changes.iter().filter_map(|change| change.flushed.as_ref()).collect();
                if !flushed.is_empty() {
                    let visible = self.sequence.visible();
                    items.push(EditItem::LastSeqno(visible));
                    // The log with these boundaries may be removed.
                    items.extend(self.missing_boundaries(state, visible));
                    items.push(EditItem::LogFloor(self.log_floor(&flushed)));
                }
                items
            }
        })
    }

    fn install_horizons(&self, rises: &[(Arc<Tree>, SeqNo)]) {
        let changes: Vec<_> = rises.iter().map(|(tree, horizon)| (tree.id, *horizon)).collect();
        let install = || rises.iter().for_each(|(tree, horizon)| tree.raise_horizon(*horizon));
        let _gate = lock(&self.horizon_gate);
        self.sequence.snapshots.raise(&changes, install);
    }

    fn replace_manifest(&self, state: ManifestState, current: &mut Option<ManifestLog>) {
        match self.prepare(state, |_| Ok(())).map(|new| self.install(new, current)) {
            Ok(Ok(old)) => self.clean_up(old),
            Ok(Err(error)) => drop(self.suspend(error)),
            Err(error) => self.fail_or_put_off(Work::ReplaceManifest, error),
        }
    }

    pub(in crate::db) fn log_floor(&self, flushed: &[&Arc<LoggedMemtable>]) -> u64 {
        // Read first: later memtables get their first entry from this log or a later one.
        let active = self.log().active();
        let flushed: Vec<u64> = flushed.iter().filter_map(|memtable| memtable.first_log()).collect();
        self.keyspaces.memtables.oldest_log(&flushed).unwrap_or(active).min(active)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fs::MemFs;
    use crate::options::Options;
    use crate::version::TableHandle;

    #[test]
    fn an_edit_that_would_let_tables_of_a_run_overlap_is_refused_and_changes_nothing() {
        let fs = MemFs::new();
        let db = Options::new().fs(Arc::new(fs.clone())).background_threads(0).open("/db").unwrap();
        let (engine, tree) = (db.engine(), db.engine().keyspaces.default_tree());
        for _ in 0..2 {
            db.put("a", "v").unwrap();
            db.put("b", "v").unwrap();
            db.flush().unwrap();
        }
        let tables: Vec<_> = tree.view().version.all_tables().map(|(_, table)| Arc::clone(table)).collect();
        let down = |table: &Arc<TableHandle>| {
            let removed = vec![(0, Arc::clone(table))];
            let added = vec![(1, 0, Arc::clone(table))];
            let change = TreeChange { tree: Arc::clone(&tree), removed, added, flushed: None };
            engine.publish(Vec::new(), Change::Trees(vec![change]))
        };
        down(&tables[1]).unwrap();
        let files = fs.files(Path::new("/db"));
        let refused = down(&tables[0]).unwrap_err();
        let numbers = (tables[1].meta.number, tables[0].meta.number);
        assert!(matches!(&refused, Error::Overlap { tables, .. } if *tables == numbers), "{refused}");
        assert_eq!(fs.files(Path::new("/db")), files);
        assert!(!engine.lifecycle.is_suspended() && !engine.lifecycle.has_failed());
        db.compact().unwrap();
        assert!(db.contains("a").unwrap() && db.verify().unwrap().damage.is_empty());
    }
}
