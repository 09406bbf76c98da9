//! Conditions of batches, as data: the commit leader decides them (`commit/conflict_check`).

use std::ops::Range;
use std::sync::Arc;

use crate::batch::{self, own_batch, select};
use crate::db::queues::bits::Bits;
use crate::db::queues::read_set::ReadSet;
use crate::db::queues::value::Value;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::error::{Error, Result};
use crate::key::SeqNo;
/// For which states of its key an entry is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::db) enum Rule {
    /// The key is absent.
    Absent,
    /// The key is present.
    Present,
    /// The key has this value.
    Equals(Value),
    /// The key has not been written since the caller looked.
    Unchanged,
    Always,
}

impl Rule {
    /// Whether to write an entry of a key that has this value.
    pub(in crate::db) fn allows(&self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equals(expected) => value == Some(&**expected),
            // Asked of a key that was written since.
            Self::Unchanged => false,
            Self::Always => true,
        }
    }
}

/// What has been decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Decision {
    Open,
    /// It is unknown what happened since the caller looked, or the caller has to act on it.
    LookAgain,
    /// The entries that are marked are written.
    Write,
    /// No entry is written.
    Nothing {
        /// Whether a batch of the same group was needed to decide that.
        rests_on_group: bool,
    },
}

/// The key of an entry.
pub(in crate::db) struct AskedKey {
    /// Where it is in the batch of all entries.
    pub(in crate::db) place: Range<usize>,
    /// `None`: an earlier entry of the batch has this key, so this one is not written.
    pub(in crate::db) hash: Option<u64>,
}

/// What the leader decides before it writes a batch.
pub(in crate::db) enum Condition {
    /// Which entries are written, by what their keys hold.
    Keys(KeyCondition),
    /// Whether a transaction is committed, by what it has read.
    Reads(ReadCondition),
}

/// Which entries of a batch are written. Their keys are in the first tree of the batch.
pub(in crate::db) struct KeyCondition {
    /// The newest write that was visible before the caller looked, and the horizon.
    pub(in crate::db) read_at: Past,
    pub(in crate::db) rule: Rule,
    /// The keys of all entries.
    pub(in crate::db) keys: Vec<AskedKey>,
    /// The entries to write: as the caller has found, then as the leader has decided.
    pub(in crate::db) writes: Bits,
    /// The batch with all entries, if not all are to be written.
    pub(in crate::db) all: Option<Vec<u8>>,
    pub(in crate::db) decision: Decision,
    /// Whether entries follow from the answers of the caller. Then the batch is written if all of these still hold,
    /// and the caller looks again otherwise.
    pub(in crate::db) is_whole: bool,
    /// What the last key held when that was decided, if it has changed since the caller looked.
    pub(in crate::db) changed_to: Option<Option<Value>>,
}

/// A batch that may be written, and the trees of its keyspaces.
pub(in crate::db) struct Admitted {
    pub(in crate::db) bytes: Vec<u8>,
    pub(in crate::db) trees: Vec<Arc<Tree>>,
    /// Whether it is written even if nothing can make room for it. `None`: its writer has not been throttled yet.
    pub(in crate::db) may_exceed: Option<bool>,
    /// What the leader decides before it writes the batch.
    pub(in crate::db) condition: Option<Box<Condition>>,
}

/// An encoded batch, and the trees of its keyspaces.
pub(in crate::db) type Part<'g> = (&'g [u8], &'g [Arc<Tree>]);

/// One that is stamped and written.
pub(in crate::db) type PartMut<'g> = (&'g mut [u8], &'g [Arc<Tree>]);

impl Admitted {
    /// A batch with a condition. `writes` marks the entries that the rule allows as the caller has found.
    pub(in crate::db) fn conditional(
        tree: &Arc<Tree>,
        all: Vec<u8>,
        read_at: Past,
        rule: Rule,
        keys: Vec<AskedKey>,
        writes: Bits,
    ) -> Result<Self> {
        let (bytes, all) = if writes.all() { (all, None) } else { (part_of(&all, &writes)?, Some(all)) };
        let decision = Decision::Open;
        let (is_whole, changed_to) = (false, None);
        let condition = KeyCondition { read_at, rule, keys, writes, all, decision, is_whole, changed_to };
        Ok(Self::asking(bytes, vec![Arc::clone(tree)], Condition::Keys(condition)))
    }

    /// Appends a batch of entries that follow from what the caller has found; `trees` are those of their keyspaces.
    pub(in crate::db) fn followed_by(mut self, more: &[u8], trees: &[Arc<Tree>]) -> Result<Self> {
        batch::append(&mut self.bytes, more)?;
        for tree in trees {
            if !self.trees.iter().any(|other| other.id == tree.id) {
                self.trees.push(Arc::clone(tree));
            }
        }
        if let Some(Condition::Keys(condition)) = self.condition.as_deref_mut() {
            condition.is_whole = true;
        }
        Ok(self)
    }

    /// A batch that is written as its condition says.
    pub(in crate::db) fn asking(bytes: Vec<u8>, trees: Vec<Arc<Tree>>, condition: Condition) -> Self {
        Self { bytes, trees, condition: Some(Box::new(condition)), may_exceed: None }
    }

    pub(in crate::db) fn part(&self) -> Part<'_> {
        (&self.bytes, &self.trees)
    }

    pub(in crate::db) fn decision(&self) -> Option<Decision> {
        self.condition.as_ref().map(|condition| condition.decision())
    }

    /// Whether the batch is to be written.
    pub(in crate::db) fn is_written(&self) -> bool {
        self.decision().is_none_or(|decision| decision == Decision::Write)
    }

    /// The largest batch that may be written of it.
    pub(in crate::db) fn part_max(&self) -> Part<'_> {
        match self.condition.as_deref() {
            Some(Condition::Keys(KeyCondition { all: Some(all), is_whole: false, .. })) => (all, &self.trees),
            _ => self.part(),
        }
    }

    /// Whether the decision stands even if the group cannot be written.
    pub(in crate::db) fn stands_alone(&self) -> bool {
        matches!(self.decision(), Some(Decision::LookAgain | Decision::Nothing { rests_on_group: false }))
    }
}

impl Condition {
    pub(in crate::db) fn of_keys(self) -> KeyCondition {
        match self {
            Self::Keys(condition) => condition,
            Self::Reads(_) => unreachable!("a batch keeps its condition"),
        }
    }

    pub(in crate::db) fn of_reads(self) -> ReadCondition {
        match self {
            Self::Reads(condition) => condition,
            Self::Keys(_) => unreachable!("a batch keeps its condition"),
        }
    }

    pub(in crate::db) fn decision(&self) -> Decision {
        match self {
            Self::Keys(condition) => condition.decision,
            Self::Reads(condition) => condition.decision(),
        }
    }
}

/// The batch of those entries that are marked.
pub(in crate::db) fn part_of(all: &[u8], marked: &Bits) -> Result<Vec<u8>> {
    select(all, |at| marked.get(at)).map_err(own_batch)
}

/// What a transaction has read, for the leader to decide whether its batch is written.
pub(in crate::db) struct ReadCondition {
    pub(in crate::db) reads: ReadSet,
    /// The caller has found no change up to this number.
    pub(in crate::db) read_at: SeqNo,
    /// The horizons of the keyspaces up to which the caller has found nothing expired.
    pub(in crate::db) horizons: Vec<SeqNo>,
    pub(in crate::db) check: Check,
}

/// What the leader has found.
#[derive(Debug)]
pub(in crate::db) enum Check {
    Open,
    /// A memtable with newer entries is gone, or a horizon has risen.
    LookAgain,
    Unchanged,
    /// What was read has changed, or is gone.
    Refused {
        why: Error,
        /// Whether that was a batch of the same group.
        rests_on_group: bool,
    },
}
