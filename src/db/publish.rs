//! The one place where the tree changes: an edit becomes durable, then visible; then old files may be
//! removed.
//!
//! Every flush, compaction, new filter, new log, new or dropped keyspace ends here. The caller has made the
//! files that the edit names durable, and their directory. If appending the edit fails or panics, it is unknown
//! whether the manifest has it. Then nothing becomes visible, the new files are kept, and writing is suspended
//! until there is another manifest (`resume`), or ends.

use std::collections::HashSet;
use std::sync::Arc;

use super::engine::Engine;
use super::files::random_id;
use super::health::catch;
use super::retry::Work;
use super::schedule::point;
use super::tree::{LoggedMemtable, Tree, View};
use crate::checksum::FileId;
use crate::error::{Error, Result};
use crate::filename::FileName;
use crate::filter::FilterPolicy;
use crate::key::SeqNo;
use crate::manifest::edit::{EditItem, LogEnd};
use crate::manifest::log::ManifestLog;
use crate::options::KeyspaceOptions;
use crate::version::TableHandle;

/// What becomes visible with an edit.
pub(crate) enum Change {
    /// Nothing: the edit is about logs or options.
    None,
    /// Nothing, and no edit may follow: the store is closed.
    End,
    /// Other tables in these keyspaces, each of which is there once.
    Trees(Vec<TreeChange>),
    /// Other filters for a table.
    Filters(FilterChange),
    /// Other options of a keyspace, derived from those that it has when the edit is written.
    Options(Arc<Tree>, OptionsChange),
    /// A keyspace is dropped.
    Drop(Arc<Tree>),
}

/// What changes in the options of a keyspace.
pub(crate) enum OptionsChange {
    All(KeyspaceOptions),
    /// Only the filter policy. A change of other options at the same moment is kept.
    Filter(FilterPolicy),
}

impl OptionsChange {
    fn apply(&self, options: &KeyspaceOptions) -> KeyspaceOptions {
        match self {
            Self::All(new) => new.clone(),
            Self::Filter(policy) => options.clone().filter(*policy),
        }
    }
}

/// What an edit changes in one keyspace.
pub(crate) struct TreeChange {
    pub(crate) tree: Arc<Tree>,
    /// Tables that leave their place, with their levels.
    pub(crate) removed: Vec<(usize, Arc<TableHandle>)>,
    /// Tables with the level and run they are put in.
    pub(crate) added: Vec<(usize, u64, Arc<TableHandle>)>,
    /// The memtable whose entries are now in tables (or are gone).
    pub(crate) flushed: Option<Arc<LoggedMemtable>>,
}

/// A new handle of a table, with other filters.
pub(crate) struct FilterChange {
    pub(crate) tree: Arc<Tree>,
    pub(crate) level: usize,
    pub(crate) old: Arc<TableHandle>,
    pub(crate) new: Arc<TableHandle>,
}

pub(crate) fn log_created(number: u64, file_id: FileId, predecessor: u64) -> EditItem {
    EditItem::LogCreated { number, file_id, predecessor }
}

pub(crate) fn log_closed(number: u64, len: u64, last_seqno: SeqNo) -> EditItem {
    EditItem::LogEnded { number, end: LogEnd { len, last_seqno, is_cut: false } }
}

impl Engine {
    /// Makes an edit durable, then visible.
    ///
    /// # Errors
    ///
    /// An error from before the append has changed nothing: [`Error::KeyspaceDropped`], [`Error::Closed`],
    /// [`Error::Overlap`], or that the lock could not be checked. An append that failed has suspended writing.
    /// Failures that end writing have disabled it.
    ///
    /// Returns the number below which no log is needed, according to the durable manifest.
    pub(crate) fn publish(&self, items: Vec<EditItem>, change: Change) -> Result<u64> {
        catch("a change of the manifest", || self.publish_edit(items, change))
            .unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn publish_edit(&self, items: Vec<EditItem>, change: Change) -> Result<u64> {
        point();
        self.begin_writing()?;
        let mut guard = self.manifest.lock();
        self.health.check_not_failed()?;
        self.suspension.cause().map_or(Ok(()), Err)?;
        let manifest = guard.as_mut().ok_or(Error::Closed)?;
        let change = change.of_living()?;
        self.files.check_locked().map_err(|error| self.fail_if_final(error))?;
        let mut all = vec![EditItem::NextFile(self.files.next_number())];
        let changed = self.items_of(&change)?;
        point();
        // Read after the floor: where that is above a log which has just ended, the edit says how that ended, and
        // says so before.
        let ended = self.next_log.ended();
        all.extend(ended.clone());
        all.extend(items);
        all.extend(changed);
        let doubt = self.suspension.doubt(&change);
        let mark = manifest.append(all).map_err(|error| self.suspend(error))?;
        self.manifest.set_mark(mark);
        ended.iter().for_each(|ended| self.next_log.note_stated(ended));
        self.reserve.set_table_bytes(manifest.state().table_bytes);
        if matches!(change, Change::End) {
            *guard = None;
            return Ok(0);
        }
        change.install();
        doubt.end();
        let log_floor = manifest.state().log_floor;
        if manifest.is_long() && self.retry.is_due(Work::ReplaceManifest) {
            // The edit has been published, whatever happens here.
            if let Err(panic) = catch("a new manifest", || self.replace_manifest(manifest)) {
                self.fail(panic);
            }
        }
        Ok(log_floor)
    }

    /// What a change says in the manifest, if it can be made.
    fn items_of(&self, change: &Change) -> Result<Vec<EditItem>> {
        Ok(match change {
            Change::None | Change::End | Change::Drop(_) => Vec::new(),
            Change::Options(tree, change) => {
                let options = change.apply(&tree.options.load()).encode();
                vec![EditItem::KeyspaceOptions { id: tree.id, options }]
            }
            Change::Filters(change) => vec![change.item()],
            Change::Trees(changes) => {
                changes.iter().try_for_each(TreeChange::check_runs)?;
                let mut items: Vec<_> = changes.iter().flat_map(TreeChange::items).collect();
                let flushed: Vec<_> = changes.iter().filter_map(|change| change.flushed.as_ref()).collect();
                if !flushed.is_empty() {
                    items.push(EditItem::LastSeqno(self.sequence.visible()));
                    items.push(EditItem::LogFloor(self.log_floor(&flushed)));
                }
                items
            }
        })
    }

    /// Starts a new manifest with the same state.
    fn replace_manifest(&self, manifest: &mut ManifestLog) {
        let number = self.files.new_number();
        match manifest.prepare_next(number, &random_id) {
            Ok(next) => match next.install() {
                Ok(next) => {
                    let old = std::mem::replace(manifest, next);
                    self.manifest.set_mark(manifest.state().mark);
                    self.files.remove(FileName::Manifest(old.number()));
                    self.retry.done(Work::ReplaceManifest);
                }
                // `CURRENT` may name either of the two.
                Err(error) => {
                    self.suspension.keep_file(FileName::Manifest(number));
                    self.suspend(error);
                }
            },
            Err(error) => {
                self.files.obsolete.add(FileName::Manifest(number));
                let error = self.fail_if_final(error);
                if !self.health.has_failed() {
                    self.put_off(Work::ReplaceManifest, error);
                }
            }
        }
    }

    /// The oldest log that is still needed once these memtables are in tables.
    pub(crate) fn log_floor(&self, flushed: &[&Arc<LoggedMemtable>]) -> u64 {
        // Read first: a memtable that gets its first entry after this gets it from this log or a later one.
        let active = self.log().active();
        let flushed: Vec<u64> = flushed.iter().filter_map(|memtable| memtable.first_log()).collect();
        self.keyspaces.memtables.oldest_log(&flushed).unwrap_or(active).min(active)
    }
}

impl Change {
    /// The change without the keyspaces that were dropped before: an error if there is no other. The new tables
    /// of those that are left out are obsolete.
    fn of_living(self) -> Result<Self> {
        match &self {
            Self::None | Self::End | Self::Trees(_) => {}
            Self::Options(tree, _) | Self::Drop(tree) => tree.check_alive()?,
            Self::Filters(change) => change.tree.check_alive()?,
        }
        let Self::Trees(changes) = self else { return Ok(self) };
        let dropped = changes.iter().find_map(|change| change.tree.check_alive().err());
        let (living, gone): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.tree.is_alive());
        gone.iter().for_each(TreeChange::set_added_obsolete);
        dropped.filter(|_| living.is_empty()).map_or(Ok(Self::Trees(living)), Err)
    }

    /// Makes it visible. Called under the lock of the manifest that has its edit.
    fn install(self) {
        match self {
            Self::None | Self::End => {}
            // They have not changed since they were encoded, under the same lock.
            Self::Options(tree, change) => {
                let options = change.apply(&tree.options.load());
                tree.set_options(options);
                tree.mark();
            }
            Self::Drop(tree) => tree.set_dropped(),
            Self::Trees(changes) => changes.into_iter().for_each(TreeChange::install),
            Self::Filters(change) => change.install(),
        }
    }
}

impl TreeChange {
    /// Checks that no two tables of a run would overlap: the wrong one could be asked for a key, and the store
    /// would not open again.
    fn check_runs(&self) -> Result<()> {
        let removed = self.removed.iter().map(|(_, table)| table.meta.number).collect();
        match self.tree.view().version.overlap_after(&removed, &self.added) {
            None => Ok(()),
            Some(tables) => Err(Error::Overlap { keyspace: self.tree.name.clone(), tables }),
        }
    }

    /// Marks the new tables for removal: the change is not installed.
    pub(super) fn set_added_obsolete(&self) {
        self.new_tables().for_each(|table| table.set_obsolete());
    }

    pub(super) fn new_tables(&self) -> impl Iterator<Item = Arc<TableHandle>> + use<'_> {
        self.added.iter().map(|(_, _, table)| Arc::clone(table))
    }

    pub(super) fn items(&self) -> Vec<EditItem> {
        let keyspace = self.tree.id;
        let removed = self
            .removed
            .iter()
            .map(|(_, table)| EditItem::TableRemoved { keyspace, number: table.meta.number });
        let added = self.added.iter().map(|(level, run, table)| EditItem::TableAdded {
            keyspace,
            level: *level as u8,
            run: *run,
            meta: Arc::clone(&table.meta),
        });
        let seqno = self.flushed.as_ref().and_then(|flushed| flushed.memtable.seqno_max());
        removed.chain(added).chain(seqno.map(|seqno| EditItem::Flushed { keyspace, seqno })).collect()
    }

    pub(super) fn install(self) {
        let numbers: HashSet<u64> = self.removed.iter().map(|(_, table)| table.meta.number).collect();
        let kept: HashSet<u64> = self.added.iter().map(|(_, _, table)| table.meta.number).collect();
        let (tree, added, flushed) = (self.tree, self.added, self.flushed);
        tree.replace(|view| View {
            active: view.active.clone(),
            immutables: view
                .immutables
                .iter()
                .filter(|memtable| flushed.as_ref().is_none_or(|gone| !Arc::ptr_eq(memtable, gone)))
                .cloned()
                .collect(),
            version: Arc::new(view.version.apply(&numbers, added)),
        });
        for (level, table) in self.removed {
            if !kept.contains(&table.meta.number) {
                tree.retire(level, &table);
                table.set_obsolete();
            }
        }
    }
}

impl FilterChange {
    fn item(&self) -> EditItem {
        let meta = &self.new.meta;
        EditItem::FiltersReplaced {
            keyspace: self.tree.id,
            number: meta.number,
            filters: meta.filters.clone(),
        }
    }

    fn install(self) {
        let (old, new) = ((self.level, Arc::clone(&self.old)), Arc::clone(&self.new));
        self.tree.replace_handles(&[old], &[new]);
        self.old.set_filters_obsolete(&self.new);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fs::MemFs;
    use crate::options::Options;

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
        assert!(!engine.suspension.is_suspended() && !engine.health.has_failed());
        db.compact().unwrap();
        assert!(db.contains("a").unwrap() && db.verify().unwrap().damage.is_empty());
    }
}
