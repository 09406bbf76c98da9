//! Selects and orders the tables of a repair, without I/O.
//!
//! - Undamaged manifest: its tables count, in tree order.
//! - Manifest with lost edits: its tables count, unless an existing table replaced them ([`Origin`]). Any other table
//!   may be newer. So its entries are doubtful, and damage in it makes older entries doubtful. If the table does not
//!   state its keyspace, this applies to all keyspaces.
//! - No manifest: all entries are doubtful.
//!
//! A replaced table does not count for keys that its replacement covers. Its other entries are doubtful, because
//! their replacement is lost. The same applies to tables whose replacements may no longer be listed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use bytes::Bytes;

use super::report::ManifestCondition;
use crate::batch::KeyspaceId;
use crate::key::{SeqNo, Tag};
use crate::sorting::sort_by;
use crate::table::Origin;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Certainty {
    Certain,
    Doubtful,
}

#[derive(Debug, Clone)]
pub(super) struct FoundTable {
    pub(super) number: u64,
    pub(super) keyspace: Option<KeyspaceId>,
    pub(super) place: Option<(u8, u64)>,
    pub(super) is_readable: bool,
    pub(super) origin: Option<Origin>,
    pub(super) bounds: Option<(Bytes, Bytes)>,
    pub(super) seqno_max: Option<SeqNo>,
    pub(super) entries: Option<u64>,
    pub(super) has_single_entries: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) table: FoundTable,
    pub(super) certainty: Certainty,
    pub(super) rank: Rank,
    /// Key ranges of existing replacements. The table does not count for these keys.
    pub(super) covered: Vec<KeyRange>,
    pub(super) is_all_covered: bool,
}

pub(super) type KeyRange = (Bound<Bytes>, Bound<Bytes>);

/// An entry with a smaller rank is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Stray,
    Log,
    Run(u32),
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) keyspaces: BTreeMap<Option<KeyspaceId>, Vec<Planned>>,
    pub(super) left_out: Vec<(u64, &'static str)>,
    pub(super) newest: SeqNo,
}

pub(super) fn plan(
    manifest: ManifestCondition,
    tables: Vec<FoundTable>,
    is_dropped: &dyn Fn(KeyspaceId) -> bool,
) -> Plan {
    let mut plan = Plan::default();
    let present: HashSet<u64> =
        tables.iter().filter(|table| table.is_readable).map(|table| table.number).collect();
    let named: HashSet<u64> =
        tables.iter().filter(|table| table.place.is_some()).map(|table| table.number).collect();
    let mut counted = Vec::new();
    for table in tables {
        match why_left_out(manifest, &table, (&named, &present), is_dropped) {
            Some(why) => plan.left_out.push((table.number, why)),
            None => counted.push(table),
        }
    }
    let mut replaced = Replaced::by(&counted);
    let ranks = ranks(&counted);
    for table in counted {
        let covered = replaced.covered.remove(&table.number).unwrap_or_default();
        let is_certain = table.place.is_some() && covered.is_empty() && !replaced.may_include(&table);
        plan.newest = plan.newest.max(table.newest().unwrap_or(0));
        let planned = Planned {
            certainty: if is_certain { Certainty::Certain } else { Certainty::Doubtful },
            rank: table.place.map_or(Rank::Stray, |(level, run)| ranks[&(table.keyspace, level, run)]),
            is_all_covered: table.bounds.as_ref().is_some_and(|bounds| covers(&covered, bounds)),
            covered,
            table,
        };
        plan.keyspaces.entry(planned.table.keyspace).or_default().push(planned);
    }
    plan
}

#[derive(Default)]
struct Replaced {
    covered: HashMap<u64, Vec<KeyRange>>,
    earlier: HashSet<u64>,
    /// Tables with smaller numbers may have been replaced without a list entry.
    unlisted_below: HashMap<KeyspaceId, u64>,
}

impl Replaced {
    fn by(tables: &[FoundTable]) -> Self {
        let mut replaced = Self::default();
        for table in tables.iter().filter(|table| table.is_readable) {
            let Some(origin) = &table.origin else { continue };
            let keys = (origin.from.clone(), origin.to.clone());
            for &number in &origin.replaced {
                replaced.covered.entry(number).or_default().push(keys.clone());
            }
            replaced.earlier.extend(&origin.earlier);
            if let (None, Some(number)) = (table.place, origin.unlisted_below()) {
                let below = replaced.unlisted_below.entry(origin.keyspace).or_default();
                *below = number.max(*below);
            }
        }
        replaced
    }

    fn may_include(&self, table: &FoundTable) -> bool {
        let below = table.keyspace.and_then(|id| self.unlisted_below.get(&id));
        self.earlier.contains(&table.number) || below.is_some_and(|&below| table.number < below)
    }
}

impl FoundTable {
    pub(super) fn newest(&self) -> Option<SeqNo> {
        self.origin.as_ref().map(|origin| origin.newest).or(self.seqno_max)
    }
}

fn why_left_out(
    manifest: ManifestCondition,
    table: &FoundTable,
    (named, present): (&HashSet<u64>, &HashSet<u64>),
    is_dropped: &dyn Fn(KeyspaceId) -> bool,
) -> Option<&'static str> {
    if table.place.is_some() {
        return None;
    }
    if manifest == ManifestCondition::Whole {
        return Some("the manifest does not name it");
    }
    if table.keyspace.is_some_and(is_dropped) {
        return Some("its keyspace was dropped");
    }
    let origin = table.origin.as_ref().filter(|origin| !origin.replaced.is_empty())?;
    let is_there = |number: &u64| named.contains(number) && present.contains(number);
    origin.replaced.iter().all(is_there).then_some("the tables that it replaced exist")
}

fn ranks(tables: &[FoundTable]) -> HashMap<(Option<KeyspaceId>, u8, u64), Rank> {
    let places = tables.iter().filter_map(|table| {
        let (level, run) = table.place?;
        Some((table.keyspace, level, u64::MAX - run))
    });
    let mut runs: Vec<_> = places.collect();
    sort_by(&mut runs, Ord::cmp);
    runs.dedup();
    let rank = |(index, (keyspace, level, run))| ((keyspace, level, u64::MAX - run), Rank::Run(index as u32));
    runs.into_iter().enumerate().map(rank).collect()
}

fn covers(ranges: &[KeyRange], (smallest, largest): &(Bytes, Bytes)) -> bool {
    // The search continues at this key, or after it.
    let mut next = Bound::Included(smallest.clone());
    for _ in 0..=ranges.len() {
        let begins = |from: &Bound<Bytes>| match (from, &next) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(next)) => from <= next,
            (Bound::Included(from), Bound::Included(next)) => from <= next,
            (Bound::Excluded(from), Bound::Included(next)) => from < next,
        };
        let ends = ranges.iter().filter(|range| begins(&range.0)).map(|range| match &range.1 {
            Bound::Unbounded => None,
            Bound::Included(to) => Some((to, true)),
            Bound::Excluded(to) => Some((to, false)),
        });
        let farthest = ends.reduce(|a, b| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        });
        match farthest {
            None => return false,
            Some(None) => return true,
            Some(Some((to, after))) if to > largest || (to == largest && after) => return true,
            Some(Some((to, true))) => next = Bound::Excluded(to.clone()),
            Some(Some((to, false))) => next = Bound::Included(to.clone()),
        }
    }
    false
}

#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) user: Bytes,
    pub(super) tag: Tag,
    pub(super) certainty: Certainty,
    /// The number for comparisons with doubtful entries. For a zeroed number, it is the largest possible value.
    pub(super) age: SeqNo,
    /// Table number; `u64::MAX` for a log.
    pub(super) number: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::EARLIER_MAX;

    fn key(key: &'static str) -> Bytes {
        Bytes::from_static(key.as_bytes())
    }

    fn table(number: u64, place: Option<(u8, u64)>) -> FoundTable {
        FoundTable {
            number,
            keyspace: Some(0),
            place,
            is_readable: true,
            origin: None,
            bounds: Some((key("a"), key("m"))),
            seqno_max: Some(9),
            entries: Some(1),
            has_single_entries: true,
        }
    }

    fn made_of(number: u64, replaced: &[u64], earlier: &[u64], to: Bound<Bytes>) -> FoundTable {
        let origin = Origin {
            keyspace: 0,
            name: "default".into(),
            newest: 9,
            from: Bound::Unbounded,
            to,
            replaced: replaced.to_vec(),
            earlier: earlier.to_vec(),
        };
        FoundTable { origin: Some(origin), ..table(number, None) }
    }

    fn missing(number: u64) -> FoundTable {
        FoundTable { is_readable: false, ..table(number, Some((1, 0))) }
    }

    /// Number, certainty, rank, and whether the table is fully covered.
    type Counted = (u64, bool, Rank, bool);

    /// The used and unused tables.
    fn outcome(manifest: ManifestCondition, tables: Vec<FoundTable>) -> (Vec<Counted>, Vec<u64>) {
        let plan = plan(manifest, tables, &|id| id == 7);
        let mut counted: Vec<_> = plan
            .keyspaces
            .into_values()
            .flatten()
            .map(|of| (of.table.number, of.certainty == Certainty::Certain, of.rank, of.is_all_covered))
            .collect();
        counted.sort_unstable();
        (counted, plan.left_out.into_iter().map(|(number, _)| number).collect())
    }

    #[test]
    fn with_a_whole_manifest_its_tables_count_in_the_order_of_the_tree() {
        let tables = vec![
            table(3, Some((0, 3))),
            table(5, Some((0, 5))),
            table(2, Some((1, 0))),
            made_of(6, &[3], &[], Bound::Unbounded),
            table(1, None),
        ];
        let (counted, left_out) = outcome(ManifestCondition::Whole, tables);
        assert_eq!(
            counted,
            [(2, true, Rank::Run(2), false), (3, true, Rank::Run(1), false), (5, true, Rank::Run(0), false)]
        );
        assert_eq!(left_out, [6, 1]);
    }

    #[test]
    fn behind_a_lost_edit_replaced_tables_and_strays_are_doubtful() {
        let tables = vec![
            missing(2),
            table(3, Some((1, 0))),
            table(4, Some((2, 0))),
            table(8, Some((2, 0))),
            made_of(6, &[2, 3], &[4], Bound::Unbounded),
        ];
        let (counted, left_out) = outcome(ManifestCondition::Cut, tables);
        let expected = [
            (2, false, Rank::Run(0), true),
            (3, false, Rank::Run(0), true),
            (4, false, Rank::Run(1), false),
            (6, false, Rank::Stray, false),
            (8, true, Rank::Run(1), false),
        ];
        assert_eq!(counted, expected);
        assert_eq!(left_out, [] as [u64; 0]);
    }

    #[test]
    fn where_a_stray_no_longer_lists_all_it_replaced_older_tables_are_doubtful() {
        let numbers: Vec<u64> = (1000..1000 + EARLIER_MAX as u64).rev().collect();
        for (place, listed, expected) in
            [(None, &numbers[..], false), (None, &numbers[1..], true), (Some((2, 0)), &numbers[..], true)]
        {
            let lister = FoundTable { place, ..made_of(3000, &[2000], listed, Bound::Unbounded) };
            let tables = vec![table(999, Some((1, 0))), table(3001, Some((0, 0))), lister];
            let (counted, _) = outcome(ManifestCondition::Cut, tables);
            let certain: Vec<(u64, bool)> = counted.iter().map(|of| (of.0, of.1)).collect();
            assert_eq!(certain[0], (999, expected), "{place:?} {}", listed.len());
            assert_eq!(certain[2], (3001, true));
        }
    }

    #[test]
    fn a_table_that_was_replaced_in_part_is_not_wholly_replaced() {
        let part = made_of(6, &[2], &[], Bound::Included(key("f")));
        let (counted, _) = outcome(ManifestCondition::Cut, vec![missing(2), part]);
        assert_eq!(counted, [(2, false, Rank::Run(0), false), (6, false, Rank::Stray, false)]);
    }

    #[test]
    fn copies_of_tables_that_are_there_and_dropped_keyspaces_are_left_out() {
        let dropped = FoundTable { keyspace: Some(7), ..table(9, None) };
        let tables = vec![table(3, Some((1, 0))), made_of(6, &[3], &[], Bound::Unbounded), dropped];
        assert_eq!(
            outcome(ManifestCondition::Cut, tables),
            (vec![(3, true, Rank::Run(0), false)], vec![6, 9])
        );
    }

    #[test]
    fn without_a_manifest_every_table_is_doubtful_and_replaced_ones_stay_replaced() {
        let tables = vec![table(3, None), made_of(6, &[3], &[], Bound::Unbounded)];
        assert_eq!(
            outcome(ManifestCondition::Lost, tables),
            (vec![(3, false, Rank::Stray, true), (6, false, Rank::Stray, false)], vec![])
        );
    }

    #[test]
    fn ranges_cover_bounds_only_without_a_gap() {
        let bounds = (key("b"), key("k"));
        let to = |to: &'static str| (Bound::Unbounded, Bound::Included(key(to)));
        let after = |from: &'static str| (Bound::Excluded(key(from)), Bound::Unbounded);
        assert!(!covers(&[], &bounds));
        assert!(covers(&[to("k")], &bounds));
        assert!(!covers(&[to("j")], &bounds));
        assert!(covers(&[after("e"), to("e")], &bounds));
        assert!(!covers(&[to("e"), after("f")], &bounds));
        assert!(covers(
            &[
                to("e"),
                (Bound::Included(key("e")), Bound::Excluded(key("h"))),
                (Bound::Included(key("h")), Bound::Unbounded)
            ],
            &bounds
        ));
        assert!(!covers(&[(Bound::Unbounded, Bound::Excluded(key("k")))], &bounds));
    }
}
