//! Merges the surviving entries of a keyspace into the new store.
//!
//! The certain entry with the largest sequence number wins. It becomes doubtful if
//!
//! - a source that may hold newer entries has lost some near this key, or
//! - a doubtful entry may be newer.
//!
//! In these cases, the newest entry is written to the keyspace for doubtful entries, unless it is a tombstone. A
//! certain entry with sequence number 0 is the oldest; a doubtful one may be as new as the newest entry that was
//! written to its table.
//!
//! Table positions order entries only if the manifest is undamaged.

use std::cmp::Reverse;

use bytes::Bytes;

use super::plan::Certainty;
use super::range_deletes::RangeDeletes;
use super::report::{DoubtfulRanges, LostEntries};
use super::sources::Source;
use super::spill::{BATCH_BYTES, ByBucket};
use crate::batch::WriteBatch;
use crate::db::check::repair::plan::Head;
use crate::db::handles::keyspace::Keyspace;
use crate::db::handles::store::Db;
use crate::db::state::durability::Durability;
use crate::error::Result;
use crate::key::EntryKind;
use crate::limits::KEYSPACE_NAME_BYTES_MAX;
use crate::manifest::keyspace_options::KeyspaceOptions;

pub(super) struct Target<'a> {
    db: &'a Db,
    certain: Option<Keyspace>,
    by_bucket: Option<ByBucket<'a>>,
    pub(super) certain_keys: u64,
    doubtful: Option<Keyspace>,
    doubtful_options: KeyspaceOptions,
    pub(super) doubtful_values: u64,
    pub(super) ranges: DoubtfulRanges,
    ranks_hold: bool,
    batch: WriteBatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Verdict {
    source: usize,
    certainty: Certainty,
}

impl<'a> Target<'a> {
    /// `doubtful_options` are for the keyspace of doubtful entries. `ranks_hold`: the manifest is undamaged, so
    /// smaller ranks have newer entries.
    pub(super) fn new(
        db: &'a Db,
        (certain, by_bucket): (Option<Keyspace>, Option<ByBucket<'a>>),
        ranges: DoubtfulRanges,
        doubtful_options: KeyspaceOptions,
        ranks_hold: bool,
    ) -> Self {
        Self {
            db,
            certain,
            by_bucket,
            certain_keys: 0,
            doubtful: None,
            doubtful_options,
            doubtful_values: 0,
            ranges,
            ranks_hold,
            batch: WriteBatch::new(),
        }
    }

    /// Calls `check` after each written batch.
    pub(super) fn merge(
        &mut self,
        mut sources: Vec<Source<'_>>,
        range_deletes: &RangeDeletes,
        lost: &mut Vec<LostEntries>,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        while let Some(user) = sources.iter().filter_map(|source| Some(&source.head()?.user)).min().cloned() {
            if let Some(verdict) = judge(&sources, &user, self.ranks_hold)
                && let Some(head) = sources[verdict.source].head()
                && let Some(certainty) = range_deletes.leave(head, verdict.certainty)
            {
                self.keep(&mut sources[verdict.source], &user, certainty)?;
                if self.batch.is_empty() {
                    check()?;
                }
            }
            sources.iter_mut().try_for_each(|source| source.pass(&user, lost))?;
        }
        self.flush(0)
    }

    fn keep(&mut self, source: &mut Source<'_>, user: &Bytes, certainty: Certainty) -> Result<()> {
        let is_delete = source.head().is_some_and(|head| head.tag.kind() == EntryKind::Delete);
        let seqno = source.head().map_or(0, |head| head.tag.seqno());
        if self.by_bucket.as_ref().is_some_and(|by_bucket| by_bucket.is_hidden(seqno)) {
            return Ok(());
        }
        let certainty = if self.certain.is_none() { Certainty::Doubtful } else { certainty };
        let value = if is_delete { None } else { source.value()? };
        if value.is_none() && !is_delete {
            source.lose_value();
        }
        self.ranges.add(user, certainty == Certainty::Doubtful);
        let Some(value) = value else { return Ok(()) };
        match (certainty, &self.certain) {
            (Certainty::Certain, Some(keyspace)) => {
                match &mut self.by_bucket {
                    Some(by_bucket) => by_bucket.put(&mut self.batch, user, &value, seqno)?,
                    None => drop(self.batch.put_in(keyspace, user, value)),
                }
                self.certain_keys += 1;
            }
            _ => {
                let keyspace = match &self.doubtful {
                    Some(made) => made,
                    None => {
                        let made = self.db.keyspace(&self.ranges.into, self.doubtful_options.clone())?;
                        self.doubtful.insert(made)
                    }
                };
                self.batch.put_in(keyspace, user, value);
                self.doubtful_values += 1;
            }
        }
        self.flush(BATCH_BYTES)
    }

    pub(super) fn finish(&mut self, keyspace: &Keyspace, options: KeyspaceOptions) -> Result<()> {
        self.by_bucket.take().map_or(Ok(()), |by_bucket| by_bucket.finish(keyspace, options))
    }

    fn flush(&mut self, least: usize) -> Result<()> {
        if self.batch.is_empty() || self.batch.size_bytes() < least {
            return Ok(());
        }
        self.db.write_with(std::mem::take(&mut self.batch), Durability::Buffered)
    }
}

fn judge(sources: &[Source<'_>], user: &[u8], ranks_hold: bool) -> Option<Verdict> {
    let here = |source: &Source<'_>| {
        let head = source.head().filter(|head| head.user == user)?;
        (!source.is_covered()).then(|| head.clone())
    };
    let heads: Vec<(usize, Head)> =
        sources.iter().enumerate().filter_map(|(index, source)| Some((index, here(source)?))).collect();
    let of = |certainty| heads.iter().filter(move |(_, head)| head.certainty == certainty);
    let certain = of(Certainty::Certain)
        .min_by_key(|(index, head)| (Reverse(head.tag.seqno()), sources[*index].rank()));
    let doubtful = of(Certainty::Doubtful).max_by_key(|(_, head)| (head.age, head.number));
    let (source, certainty) = match (certain, doubtful) {
        (None, None) => return None,
        (None, Some((index, _))) => (*index, Certainty::Doubtful),
        (Some((_, known)), Some((index, other))) if is_newer(other, known) => (*index, Certainty::Doubtful),
        (Some((index, known)), _) => {
            let (rank, seqno) = (sources[*index].rank(), known.tag.seqno());
            let hidden = sources
                .iter()
                .enumerate()
                .filter(|(at, source)| !ranks_hold || *at == *index || source.rank() < rank)
                .any(|(_, source)| source.may_hide(user, seqno));
            (*index, if hidden { Certainty::Doubtful } else { Certainty::Certain })
        }
    };
    Some(Verdict { source, certainty })
}

fn is_newer(doubtful: &Head, certain: &Head) -> bool {
    match (doubtful.tag.seqno(), certain.tag.seqno()) {
        (0, known) => known == 0 || doubtful.age > known,
        (found, known) => found > known,
    }
}

pub(super) fn doubtful_name(keyspace: Option<&str>, taken: &[String]) -> String {
    const DOUBTFUL: &str = "doubtful";
    let mut name = match keyspace {
        Some(crate::manifest::state::DEFAULT_NAME) => DOUBTFUL.to_owned(),
        Some(other) => format!("{DOUBTFUL}:{other}"),
        None => format!("{DOUBTFUL}:unknown"),
    };
    let mut number = 1;
    let whole = name.clone();
    loop {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        while name.len() + suffix.len() > KEYSPACE_NAME_BYTES_MAX {
            name.pop();
        }
        name.push_str(&suffix);
        if !taken.contains(&name) {
            return name;
        }
        number += 1;
        name.clone_from(&whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Tag;

    fn head(seqno: u64, age: u64) -> Head {
        let (tag, certainty) = (Tag::new(seqno, EntryKind::Put), Certainty::Doubtful);
        Head { user: Bytes::from_static(b"k"), tag, certainty, age, number: 1 }
    }

    #[test]
    fn a_sequence_number_says_which_entry_is_newer_and_a_zero_may_be_newer() {
        for (doubtful, certain, newer) in [
            (head(7, 7), head(5, 5), true),
            (head(5, 5), head(5, 5), false),
            (head(5, 5), head(7, 7), false),
            (head(5, 5), head(0, 9), true),
            (head(0, 9), head(7, 7), true),
            (head(0, 6), head(7, 7), false),
            (head(0, 6), head(0, 9), true),
        ] {
            assert_eq!(is_newer(&doubtful, &certain), newer, "{doubtful:?} {certain:?}");
        }
    }

    #[test]
    fn a_name_for_doubtful_entries_is_never_one_that_is_taken() {
        let taken = ["doubtful", "doubtful-2", "doubtful:users"].map(String::from);
        assert_eq!(doubtful_name(Some("default"), &taken), "doubtful-3");
        assert_eq!(doubtful_name(Some("users"), &taken), "doubtful:users-2");
        assert_eq!(doubtful_name(None, &taken), "doubtful:unknown");
        assert_eq!(doubtful_name(Some(&"ü".repeat(127)), &taken).len(), 255);
    }
}
