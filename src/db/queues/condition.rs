//! Conditions of batches, decided by the commit leader (`commit/conflict_check`).

use std::ops::Range;
use std::sync::Arc;

use crate::batch;
use crate::db::queues::bits::Bits;
use crate::db::queues::read_set::ReadSet;
use crate::db::queues::value::Value;
use crate::db::state::expiry::horizons::Past;
use crate::db::state::keyspace::tree::Tree;
use crate::error::{Error, Result};
use crate::key::SeqNo;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::db) enum Rule {
    Absent,
    Present,
    Equals(Value),
    Unchanged,
    Always,
}

impl Rule {
    pub(in crate::db) fn allows(&self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equals(expected) => value == Some(&**expected),
            Self::Unchanged => false,
            Self::Always => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::db) enum Decision {
    Open,
    LookAgain,
    Write,
    Nothing { rests_on_group: bool },
}

pub(in crate::db) struct AskedKey {
    pub(in crate::db) place: Range<usize>,
    /// `None` if an earlier entry of the batch has the same key and is written instead.
    pub(in crate::db) hash: Option<u64>,
}

pub(in crate::db) enum Condition {
    Keys(KeyCondition),
    Reads(ReadCondition),
}

pub(in crate::db) struct KeyCondition {
    pub(in crate::db) read_at: Past,
    pub(in crate::db) rule: Rule,
    pub(in crate::db) keys: Vec<AskedKey>,
    pub(in crate::db) writes: Bits,
    /// The batch with all entries, unless all of them are written.
    pub(in crate::db) all: Option<Vec<u8>>,
    pub(in crate::db) decision: Decision,
    /// Whether entries depend on the caller's lookup. If so, every answer must still hold.
    pub(in crate::db) is_whole: bool,
    pub(in crate::db) changed_to: Option<Option<Value>>,
}

pub(in crate::db) struct Admitted {
    pub(in crate::db) bytes: Vec<u8>,
    pub(in crate::db) trees: Vec<Arc<Tree>>,
    pub(in crate::db) may_exceed: Option<bool>,
    pub(in crate::db) condition: Option<(Decide, Box<Condition>)>,
}

/// Decides the conditions of a group. A pointer, because a program without conditional writes then has no code of them.
pub(in crate::db) type Decide = fn(group: &mut [Admitted], visible: SeqNo, hash_seed: u64) -> Result<()>;

pub(in crate::db) type Part<'g> = (&'g [u8], &'g [Arc<Tree>]);

pub(in crate::db) type PartMut<'g> = (&'g mut [u8], &'g [Arc<Tree>]);

impl Admitted {
    pub(in crate::db) fn followed_by(mut self, more: &[u8], trees: &[Arc<Tree>]) -> Result<Self> {
        batch::append(&mut self.bytes, more)?;
        for tree in trees {
            if !self.trees.iter().any(|other| other.id == tree.id) {
                self.trees.push(Arc::clone(tree));
            }
        }
        if let Some((_, condition)) = &mut self.condition
            && let Condition::Keys(condition) = &mut **condition
        {
            condition.is_whole = true;
        }
        Ok(self)
    }

    pub(in crate::db) fn part(&self) -> Part<'_> {
        (&self.bytes, &self.trees)
    }

    pub(in crate::db) fn decision(&self) -> Option<Decision> {
        self.condition.as_ref().map(|(_, condition)| condition.decision())
    }

    pub(in crate::db) fn is_written(&self) -> bool {
        self.decision().is_none_or(|decision| decision == Decision::Write)
    }

    pub(in crate::db) fn part_max(&self) -> Part<'_> {
        match self.condition.as_ref().map(|(_, condition)| &**condition) {
            Some(Condition::Keys(KeyCondition { all: Some(all), is_whole: false, .. })) => (all, &self.trees),
            _ => self.part(),
        }
    }

    /// Whether the decision is valid even if the group cannot be written.
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

pub(in crate::db) struct ReadCondition {
    pub(in crate::db) reads: ReadSet,
    pub(in crate::db) read_at: SeqNo,
    /// Horizons at the caller's check: nothing that it read had expired.
    pub(in crate::db) horizons: Vec<SeqNo>,
    pub(in crate::db) check: Check,
}

#[derive(Debug)]
pub(in crate::db) enum Check {
    Open,
    /// A memtable with newer entries was released, or a horizon has risen.
    LookAgain,
    Unchanged,
    Refused {
        why: Error,
        rests_on_group: bool,
    },
}
