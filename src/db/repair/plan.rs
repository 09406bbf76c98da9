//! Which tables count, in which order, and how certain that is. A pure decision over what was found.
//!
//! - The manifest is whole: the tables that it names count, in the order of the tree. No other does.
//! - The end of the manifest is lost: the tables that it names count, unless a table that is there replaced
//!   them ([`Origin`]). Any other table may be newer than all of them: its entries are doubtful, and where
//!   it is damaged so are the older entries.
//!   If such a table does not say of which keyspace it is, every entry of every keyspace is doubtful.
//! - There is no manifest: all entries are doubtful.
//!
//! A table that another one replaced counts for no key that the other one covers. For other keys its entries
//! are doubtful: the table that took its place there is lost.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use bytes::Bytes;

use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::table::Origin;

/// How certain it is that an entry is part of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Certainty {
    Certain,
    Doubtful,
}

/// How much of the manifest can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manifest {
    Whole,
    Cut,
    Lost,
}

/// A table that the manifest names, that is in the directory, or both.
#[derive(Debug, Clone)]
pub(super) struct FoundTable {
    pub(super) number: u64,
    pub(super) keyspace: Option<KeyspaceId>,
    /// Level and run, if the manifest names the table.
    pub(super) place: Option<(u8, u64)>,
    /// Whether the file is there and can be read, at least in part.
    pub(super) is_readable: bool,
    pub(super) origin: Option<Origin>,
    /// Smallest and largest user key, if they are known.
    pub(super) bounds: Option<(Bytes, Bytes)>,
    /// Largest sequence number of its entries, if it is known.
    pub(super) seqno_max: Option<SeqNo>,
    /// Number of its entries, if it is known.
    pub(super) entries: Option<u64>,
    /// Whether no key has more than one entry.
    pub(super) has_single_entries: bool,
}

/// A table to read, or one that is lost.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) table: FoundTable,
    pub(super) certainty: Certainty,
    /// The smaller, the newer are the entries of a key: [`STRAY`] or over [`LOG`].
    pub(super) rank: u32,
    /// Keys for which other tables took its place.
    pub(super) replaced: Vec<(Bound<Bytes>, Bound<Bytes>)>,
    /// Whether all of its keys are among those.
    pub(super) is_replaced: bool,
}

/// The rank of tables that the manifest does not name, and of logs.
pub(super) const STRAY: u32 = 0;
pub(super) const LOG: u32 = 1;

/// What counts.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By keyspace; `None` for tables that do not say.
    pub(super) keyspaces: BTreeMap<Option<KeyspaceId>, Vec<Planned>>,
    /// Tables that do not count, and why.
    pub(super) left_out: Vec<(u64, &'static str)>,
}

/// Decides over tables. `is_dropped` tells whether a keyspace was dropped.
pub(super) fn plan(
    manifest: Manifest,
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
    let (mut direct, mut earlier) = (HashMap::<u64, Vec<_>>::new(), HashSet::new());
    // With a whole manifest these are tables in use, and none names another.
    for origin in counted.iter().filter(|table| table.is_readable).filter_map(|table| table.origin.as_ref()) {
        let bounds = (origin.from.clone(), origin.to.clone());
        origin.replaced.iter().for_each(|&number| direct.entry(number).or_default().push(bounds.clone()));
        earlier.extend(origin.earlier.iter().copied());
    }
    let ranks = ranks(&counted);
    for table in counted {
        let replaced = direct.remove(&table.number).unwrap_or_default();
        let is_replaced = table.bounds.as_ref().is_some_and(|bounds| covers(&replaced, bounds));
        let is_certain = table.place.is_some() && replaced.is_empty() && !earlier.contains(&table.number);
        let planned = Planned {
            certainty: if is_certain { Certainty::Certain } else { Certainty::Doubtful },
            rank: table.place.map_or(STRAY, |(level, run)| ranks[&(table.keyspace, level, run)]),
            replaced,
            is_replaced,
            table,
        };
        plan.keyspaces.entry(planned.table.keyspace).or_default().push(planned);
    }
    plan
}

fn why_left_out(
    manifest: Manifest,
    table: &FoundTable,
    (named, present): (&HashSet<u64>, &HashSet<u64>),
    is_dropped: &dyn Fn(KeyspaceId) -> bool,
) -> Option<&'static str> {
    if table.place.is_some() {
        return None;
    }
    if manifest == Manifest::Whole {
        return Some("the manifest does not name it");
    }
    if table.keyspace.is_some_and(is_dropped) {
        return Some("its keyspace was dropped");
    }
    let origin = table.origin.as_ref().filter(|origin| !origin.replaced.is_empty())?;
    let is_there = |number: &u64| named.contains(number) && present.contains(number);
    origin.replaced.iter().all(is_there).then_some("the tables that it was made of are there")
}

/// The ranks of the runs of each tree, in the order of a lookup.
fn ranks(tables: &[FoundTable]) -> HashMap<(Option<KeyspaceId>, u8, u64), u32> {
    let places = tables.iter().filter_map(|table| {
        let (level, run) = table.place?;
        Some((table.keyspace, level, u64::MAX - run))
    });
    let mut runs: Vec<_> = places.collect();
    runs.sort_unstable();
    runs.dedup();
    let rank = |(index, (keyspace, level, run))| ((keyspace, level, u64::MAX - run), LOG + 1 + index as u32);
    runs.into_iter().enumerate().map(rank).collect()
}

/// Whether these ranges, together, hold all keys between the bounds.
fn covers(ranges: &[(Bound<Bytes>, Bound<Bytes>)], (smallest, largest): &(Bytes, Bytes)) -> bool {
    // The first key that no range so far holds: this one, or the one after it.
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
            // The keys that follow: after this one, or from this one on.
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

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Number of a table, whether it is certain, its rank, whether it is replaced.
    type Counted = (u64, bool, u32, bool);

    /// The tables that count, and those left out.
    fn outcome(manifest: Manifest, tables: Vec<FoundTable>) -> (Vec<Counted>, Vec<u64>) {
        let plan = plan(manifest, tables, &|id| id == 7);
        let mut counted: Vec<_> = plan
            .keyspaces
            .into_values()
            .flatten()
            .map(|of| (of.table.number, of.certainty == Certainty::Certain, of.rank, of.is_replaced))
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
        let (counted, left_out) = outcome(Manifest::Whole, tables);
        assert_eq!(counted, [(2, true, 4, false), (3, true, 3, false), (5, true, 2, false)]);
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
        let (counted, left_out) = outcome(Manifest::Cut, tables);
        let expected = [
            (2, false, 2, true),
            (3, false, 2, true),
            (4, false, 3, false),
            (6, false, 0, false),
            (8, true, 3, false),
        ];
        assert_eq!(counted, expected);
        assert_eq!(left_out, [] as [u64; 0]);
    }

    #[test]
    fn a_table_that_was_replaced_in_part_is_not_wholly_replaced() {
        let part = made_of(6, &[2], &[], Bound::Included(key("f")));
        let (counted, _) = outcome(Manifest::Cut, vec![missing(2), part]);
        assert_eq!(counted, [(2, false, 2, false), (6, false, 0, false)]);
    }

    #[test]
    fn copies_of_tables_that_are_there_and_dropped_keyspaces_are_left_out() {
        let dropped = FoundTable { keyspace: Some(7), ..table(9, None) };
        let tables = vec![table(3, Some((1, 0))), made_of(6, &[3], &[], Bound::Unbounded), dropped];
        assert_eq!(outcome(Manifest::Cut, tables), (vec![(3, true, 2, false)], vec![6, 9]));
    }

    #[test]
    fn without_a_manifest_every_table_is_doubtful_and_replaced_ones_stay_replaced() {
        let tables = vec![table(3, None), made_of(6, &[3], &[], Bound::Unbounded)];
        assert_eq!(
            outcome(Manifest::Lost, tables),
            (vec![(3, false, 0, true), (6, false, 0, false)], vec![])
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
