//! Changes of trees that become visible with a manifest edit.

use std::collections::HashSet;
use std::sync::Arc;

use crate::KeyspaceOptions;
use crate::db::state::keyspace::tree::{LoggedMemtable, Tree, View};
use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::key::SeqNo;
use crate::manifest::edit::EditItem;
use crate::version::TableHandle;
use crate::wal::Boundary;

pub(in crate::db) enum Change {
    None,
    End,
    Trees(Vec<TreeChange>),
    Filters(FilterChange),
    /// The new options are derived from the options in force at the edit.
    Options(Arc<Tree>, OptionsChange),
    Horizons(Vec<(Arc<Tree>, SeqNo)>),
    Drop(Arc<Tree>),
}

pub(in crate::db) enum OptionsChange {
    All(KeyspaceOptions),
    /// New options with another time to live, and the boundary at which they take effect.
    Expiry(KeyspaceOptions, Option<Boundary>),
    Filter(FilterPolicy),
}

impl OptionsChange {
    pub(in crate::db) fn apply(&self, options: &KeyspaceOptions) -> KeyspaceOptions {
        match self {
            Self::All(new) | Self::Expiry(new, _) => new.clone(),
            Self::Filter(policy) => options.clone().filter(*policy),
        }
    }
}

pub(in crate::db) struct TreeChange {
    pub(in crate::db) tree: Arc<Tree>,
    pub(in crate::db) removed: Vec<(usize, Arc<TableHandle>)>,
    pub(in crate::db) added: Vec<(usize, u64, Arc<TableHandle>)>,
    pub(in crate::db) flushed: Option<Arc<LoggedMemtable>>,
}

pub(in crate::db) struct FilterChange {
    pub(in crate::db) tree: Arc<Tree>,
    pub(in crate::db) level: usize,
    pub(in crate::db) old: Arc<TableHandle>,
    pub(in crate::db) new: Arc<TableHandle>,
}

impl Change {
    /// Removes the changes of dropped keyspaces, whose new tables become obsolete. Fails if no change is left.
    pub(in crate::db) fn of_living(self) -> Result<Self> {
        match &self {
            Self::None | Self::End | Self::Trees(_) | Self::Horizons(_) => {}
            Self::Options(tree, _) | Self::Drop(tree) => tree.check_alive()?,
            Self::Filters(change) => change.tree.check_alive()?,
        }
        let changes = match self {
            Self::Trees(changes) => changes,
            Self::Horizons(rises) => {
                return Ok(Self::Horizons(rises.into_iter().filter(|(tree, _)| tree.is_alive()).collect()));
            }
            other => return Ok(other),
        };
        let dropped = changes.iter().find_map(|change| change.tree.check_alive().err());
        let (living, gone): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.tree.is_alive());
        gone.iter().for_each(TreeChange::set_added_obsolete);
        dropped.filter(|_| living.is_empty()).map_or(Ok(Self::Trees(living)), Err)
    }

    /// The caller holds the lock of the manifest with the edit.
    pub(in crate::db) fn install(self) {
        match self {
            Self::None | Self::End | Self::Horizons(_) => {}
            // The options have not changed since they were encoded under this lock.
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
    /// Overlapping tables of a run break lookups.
    pub(in crate::db) fn check_runs(&self) -> Result<()> {
        let removed = self.removed.iter().map(|(_, table)| table.meta.number).collect();
        match self.tree.view().version.overlap_after(&removed, &self.added) {
            None => Ok(()),
            Some(tables) => Err(Error::Overlap { keyspace: self.tree.name.clone(), tables }),
        }
    }

    pub(in crate::db) fn set_added_obsolete(&self) {
        self.new_tables().for_each(|table| table.set_obsolete());
    }

    pub(in crate::db::state) fn new_tables(&self) -> impl Iterator<Item = Arc<TableHandle>> + use<'_> {
        self.added.iter().map(|(_, _, table)| Arc::clone(table))
    }

    pub(in crate::db) fn items(&self) -> Vec<EditItem> {
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

    pub(in crate::db) fn install(self) {
        let numbers: HashSet<u64> = self.removed.iter().map(|(_, table)| table.meta.number).collect();
        let kept: HashSet<u64> = self.added.iter().map(|(_, _, table)| table.meta.number).collect();
        let (tree, added, flushed) = (self.tree, self.added, self.flushed);
        let is_gone = |(_, table): &&(usize, Arc<TableHandle>)| !kept.contains(&table.meta.number);
        let gone = || self.removed.iter().filter(is_gone);
        tree.replace(|view| {
            gone().for_each(|(level, table)| tree.retire(*level, table));
            View {
                active: view.active.clone(),
                immutables: view
                    .immutables
                    .iter()
                    .filter(|memtable| flushed.as_ref().is_none_or(|gone| !Arc::ptr_eq(memtable, gone)))
                    .cloned()
                    .collect(),
                version: Arc::new(view.version.apply(&numbers, added)),
            }
        });
        gone().for_each(|(_, table)| table.set_obsolete());
    }
}

impl FilterChange {
    pub(in crate::db) fn item(&self) -> EditItem {
        let meta = &self.new.meta;
        EditItem::FiltersReplaced {
            keyspace: self.tree.id,
            number: meta.number,
            filters: meta.filters.clone(),
        }
    }

    pub(in crate::db) fn install(self) {
        let (old, new) = ((self.level, Arc::clone(&self.old)), Arc::clone(&self.new));
        self.tree.replace_handles(&[old], &[new]);
        self.old.set_filters_obsolete(&self.new);
    }
}
