//! The tables of a run as cells. If there are many tables, a cell has several adjacent ones.

use sievedb::filter::Kind;
use sievedb::inspect::tree::{KeyspaceShape, Residency, RunShape, TableShape};

use crate::units::{bytes, count, counted, key, share};

pub(crate) const TABLES_MAX: usize = 2000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Of(Kind),
    None,
    Unusable,
}

#[derive(Debug, Clone)]
pub(crate) struct Cell<'t>(pub(crate) &'t [TableShape]);

pub(crate) fn cells(run: &RunShape, together: usize) -> impl Iterator<Item = Cell<'_>> {
    run.tables.chunks(together.max(1)).map(Cell)
}

/// Returns the number of tables per cell, for at most [`TABLES_MAX`] cells plus one per run.
pub(crate) fn together(keyspaces: &[KeyspaceShape]) -> usize {
    let tables: usize =
        keyspaces.iter().flat_map(|keyspace| &keyspace.runs).map(|run| run.tables.len()).sum();
    tables.div_ceil(TABLES_MAX)
}

impl Look {
    pub(crate) fn of(table: &TableShape) -> Self {
        match &table.filters[..] {
            [] => Self::None,
            filters => filters
                .iter()
                .find_map(|filter| filter.found)
                .map_or(Self::Unusable, |(kind, _)| Self::Of(kind)),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Of(Kind::Ribbon) => "ribbon",
            Self::Of(Kind::BlockedBloom) => "blocked Bloom",
            Self::Of(Kind::Bloom) => "Bloom",
            Self::Of(_) => "another kind",
            Self::None => "no filter",
            Self::Unusable => "unusable",
        }
    }

    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Of(Kind::Ribbon) => "kr",
            Self::Of(Kind::BlockedBloom) => "kk",
            Self::Of(_) => "kb",
            Self::None => "kn",
            Self::Unusable => "ku",
        }
    }
}

/// Returns the colour's strength, by powers of ten of the rate: around 0.01 %, 0.1 %, 1 % and 10 %.
fn strength(rate: f64) -> &'static str {
    match rate {
        ..=0.0003 => "s4",
        ..=0.003 => "s3",
        ..=0.03 => "s2",
        ..=0.3 => "s1",
        _ => "s0",
    }
}

impl Cell<'_> {
    fn sum(&self, of: impl Fn(&TableShape) -> u64) -> u64 {
        self.0.iter().map(of).fold(0, u64::saturating_add)
    }

    pub(crate) fn keys(&self) -> u64 {
        self.sum(|table| table.keys)
    }

    pub(crate) fn bounds(&self) -> (&[u8], &[u8]) {
        (&self.0[0].smallest, &self.0[self.0.len() - 1].largest)
    }

    fn look(&self) -> Look {
        let keys_of = |look: Look| self.sum(|table| if Look::of(table) == look { table.keys } else { 0 });
        let looks = self.0.iter().map(Look::of);
        looks.max_by_key(|&look| keys_of(look)).unwrap_or(Look::None)
    }

    fn rate(&self) -> f64 {
        let rates: f64 = self.0.iter().map(|table| table.rate() * table.keys as f64).sum();
        rates / self.keys().max(1) as f64
    }

    pub(crate) fn classes(&self) -> String {
        let look = self.look();
        match look {
            Look::Of(_) => format!("{} {}", look.class(), strength(self.rate())),
            Look::None | Look::Unusable => look.class().into(),
        }
    }

    pub(crate) fn record(&self) -> Vec<String> {
        let (smallest, largest) = self.bounds();
        let first = self.0[0].number;
        let title = match self.0 {
            [_] => format!("Table {first:06}"),
            tables => format!("{} from {first:06} on", counted(tables.len() as u64, "table", "tables")),
        };
        let tombstones = self.sum(|table| table.tombstones);
        let entries = match tombstones {
            0 => count(self.sum(|table| table.entries)),
            _ => format!(
                "{}, {}",
                count(self.sum(|table| table.entries)),
                counted(tombstones, "tombstone", "tombstones")
            ),
        };
        let seqnos = (
            self.0.iter().map(|table| table.seqnos.0).min().unwrap_or(0),
            self.0.iter().map(|table| table.seqnos.1).max().unwrap_or(0),
        );
        vec![
            title,
            key(smallest),
            key(largest),
            count(self.keys()),
            entries,
            bytes(self.sum(|table| table.bytes)),
            format!("{} to {}", count(seqnos.0), count(seqnos.1)),
            self.filter(),
            self.residency(),
        ]
    }

    pub(crate) fn filter(&self) -> String {
        let look = self.look();
        let Look::Of(_) = look else { return look.name().into() };
        let filters = self.sum(|table| table.filters.iter().map(|filter| filter.bytes).sum());
        let bits = 8.0 * filters as f64 / self.keys().max(1) as f64;
        format!("{}, {bits:.1} bits per key, rate {}", look.name(), share(self.rate()))
    }

    fn residency(&self) -> String {
        let states: Vec<&Residency> = self.0.iter().filter_map(|table| table.residency.as_ref()).collect();
        if states.is_empty() {
            return String::new();
        }
        let sum = |of: fn(&Residency) -> u64| states.iter().map(|state| of(state)).sum::<u64>();
        let open = sum(|state| u64::from(state.is_open));
        let (loaded, all) =
            (sum(|state| state.loaded_filter_column_groups), sum(|state| state.filter_column_groups));
        match (open, loaded) {
            (0, _) => "not open".into(),
            (_, loaded) if loaded == all && open == states.len() as u64 => "filter in memory".into(),
            (_, 0) => "filter on disk".into(),
            (_, loaded) => format!("{loaded} of {all} column groups of the filter in memory"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table};

    #[test]
    fn ten_thousand_tables_make_at_most_two_thousand_cells_with_the_same_keys() {
        let tables = (0..10_000).map(|n| table(n, 1 + n % 7)).collect();
        let keyspaces = [keyspace("default", vec![(1, tables)])];
        let together = together(&keyspaces);
        let run = &keyspaces[0].runs[0];
        let cells: Vec<_> = cells(run, together).collect();
        assert_eq!((cells.len(), together), (2000, 5));
        assert_eq!(cells.iter().map(Cell::keys).sum::<u64>(), run.keys());
        assert_eq!(cells[1].record()[0], "5 tables from 000005 on");
    }

    #[test]
    fn a_cell_has_the_colour_of_the_most_of_its_keys_and_a_lower_rate_is_stronger() {
        let mut tables = vec![table(1, 10), table(2, 100)];
        tables[0].filters[0].found = Some((Kind::BlockedBloom, 0.02));
        tables[1].filters[0].found = Some((Kind::Ribbon, 0.0005));
        assert_eq!(Cell(&tables[..1]).classes(), "kk s2");
        assert_eq!(Cell(&tables).classes(), "kr s3");
        assert_eq!(Cell(&tables[1..]).classes(), "kr s3");
        tables[1].filters[0].found = None;
        assert_eq!((Cell(&tables).classes(), Cell(&tables).filter()), ("ku".into(), "unusable".into()));
        tables[1].filters.clear();
        assert_eq!(
            (Cell(&tables[1..]).classes(), Cell(&tables[1..]).filter()),
            ("kn".into(), "no filter".into())
        );
    }
}
