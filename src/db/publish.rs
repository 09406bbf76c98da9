//! The one place where the tree changes: an edit becomes durable, then visible; then old files may be
//! removed.
//!
//! Every flush, compaction, new filter, new log, new or dropped keyspace ends here. The caller has made the
//! files that the edit names durable, and their directory. If appending the edit fails, it is unknown whether
//! the manifest has it. Then nothing becomes visible, the new files are kept, and writing is suspended until
//! there is another manifest (`resume`).

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
use crate::manifest::edit::EditItem;
use crate::manifest::log::ManifestLog;
use crate::options::KeyspaceOptions;
use crate::version::TableHandle;

/// What becomes visible with an edit.
pub(crate) enum Change {
    /// Nothing: the edit is about logs or options.
    None,
    /// Nothing, and no edit may follow: the store is closed.
    End,
    /// Other tables in a keyspace.
    Tree(TreeChange),
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
    EditItem::LogClosed { number, len, last_seqno }
}

impl Engine {
    /// Makes an edit durable, then visible.
    ///
    /// # Errors
    ///
    /// [`Error::KeyspaceDropped`] if the keyspace was dropped, and [`Error::Closed`]: nothing was changed.
    /// Any other error has suspended or disabled writing.
    ///
    /// Returns the number below which no log is needed, according to the durable manifest.
    pub(crate) fn publish(&self, items: Vec<EditItem>, change: Change) -> Result<u64> {
        catch("a change of the manifest", || self.publish_edit(items, change))
            .unwrap_or_else(|panic| Err(self.fail(panic)))
    }

    fn publish_edit(&self, items: Vec<EditItem>, change: Change) -> Result<u64> {
        point();
        let mut guard = self.manifest.lock();
        self.health.check_not_failed()?;
        self.suspension.cause().map_or(Ok(()), Err)?;
        let manifest = guard.as_mut().ok_or(Error::Closed)?;
        self.files.check_locked().map_err(|error| self.fail_if_final(error))?;
        let mut all = vec![EditItem::NextFile(self.files.next_number())];
        all.extend(items);
        match &change {
            Change::None | Change::End => {}
            Change::Drop(tree) => tree.check_alive()?,
            Change::Options(tree, change) => {
                tree.check_alive()?;
                let options = change.apply(&tree.options.load()).encode();
                all.push(EditItem::KeyspaceOptions { id: tree.id, options });
            }
            Change::Filters(change) => {
                change.tree.check_alive()?;
                all.push(change.item());
            }
            Change::Tree(change) => {
                change.tree.check_alive()?;
                all.extend(change.items());
                if let Some(flushed) = &change.flushed {
                    all.push(EditItem::LastSeqno(self.sequence.visible()));
                    all.push(EditItem::LogFloor(self.log_floor(Some(flushed))));
                }
            }
        }
        let mark = manifest.append(all).map_err(|error| {
            self.suspension.keep_change(&change);
            self.suspend(error)
        })?;
        self.manifest.set_mark(mark);
        match change {
            Change::None => {}
            Change::End => {
                *guard = None;
                return Ok(0);
            }
            // Still under the lock of the manifest: they have not changed since they were encoded.
            Change::Options(tree, change) => {
                let options = change.apply(&tree.options.load());
                tree.options.store(Arc::new(options));
                tree.mark();
            }
            Change::Drop(tree) => tree.set_dropped(),
            Change::Tree(change) => change.install(),
            Change::Filters(change) => change.install(),
        }
        let log_floor = manifest.state().log_floor;
        if manifest.is_long() && self.retry.is_due(Work::ReplaceManifest) {
            self.replace_manifest(manifest);
        }
        Ok(log_floor)
    }

    /// Starts a new manifest with the same state. The edit before has been published, whatever happens here.
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

    /// The oldest log that is still needed once `flushed` is in tables.
    pub(crate) fn log_floor(&self, flushed: Option<&Arc<LoggedMemtable>>) -> u64 {
        // Read first: a memtable that gets its first entry after this gets it from this log or a later one.
        let active = self.log().active();
        let flushed = flushed.and_then(|memtable| memtable.first_log());
        self.keyspaces.memtables.oldest_log(flushed).unwrap_or(active).min(active)
    }
}

impl TreeChange {
    /// Marks the new tables for removal: the change is not installed.
    pub(super) fn set_added_obsolete(&self) {
        self.added.iter().for_each(|(_, _, table)| table.set_obsolete());
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
