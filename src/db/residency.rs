//! Filters that found no room in memory when their table was opened, and come in when there is some.
//!
//! A filter is worth the absent answers that it would have given, for each byte that it takes. Whenever nothing
//! more urgent is to be done, the worthiest of those on disk that fits is loaded; one a step. A filter that is in
//! memory stays there until its table goes: room is made by compactions, which replace tables, and by a larger budget.

use std::sync::Arc;

use super::engine::Engine;
use crate::version::TableHandle;

/// Lookups that every table is taken to have seen before the first.
const PRIOR_LOOKUPS: f64 = 4096.0;

/// A filter that could be loaded.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    bytes: u64,
    /// Absent answers that it would give per lookup in its keyspace.
    answers: f64,
}

/// The filter to be loaded next. While it is read it takes twice its bytes.
fn choose(candidates: &[Candidate], room: u64) -> Option<usize> {
    let worth = |index: &usize| candidates[*index].answers / candidates[*index].bytes.max(1) as f64;
    let fits = |index: &usize| candidates[*index].bytes.saturating_mul(2) <= room;
    (0..candidates.len()).filter(fits).max_by(|a, b| worth(a).total_cmp(&worth(b)))
}

impl Engine {
    /// Loads one filter that is missed, if there is one and room for it.
    pub(super) fn load_a_filter(&self) -> bool {
        let (mut tables, mut candidates) = (Vec::<Arc<TableHandle>>::new(), Vec::new());
        for tree in self.trees.load().values() {
            let view = tree.view();
            let keys: u64 = view.version.all_tables().map(|(_, table)| table.meta.keys).sum();
            for (_, table) in view.version.all_tables() {
                if !table.if_open().is_some_and(|open| open.filter().is_on_disk()) {
                    continue;
                }
                let share = table.meta.keys as f64 / keys.max(1) as f64;
                let since = tree.lookups().saturating_sub(table.made_at()) as f64 + PRIOR_LOOKUPS;
                let answers = (table.counters.counts().absent() as f64 + share * PRIOR_LOOKUPS) / since;
                let bytes = table.meta.filters.first().map_or(0, |filter| filter.len);
                candidates.push(Candidate { bytes, answers });
                tables.push(Arc::clone(table));
            }
        }
        let Some(index) = choose(&candidates, self.context.memory.room()) else { return false };
        tables[index].load_filter()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::db::background::Jobs;
    use crate::filter::{FilterKind, FilterPolicy};
    use crate::fs::MemFs;
    use crate::memory::Part;
    use crate::options::{KeyspaceOptions, Options};

    #[test]
    fn what_gives_most_answers_for_its_size_is_loaded_first_if_it_fits() {
        let candidates = [(100, 1.0), (10, 0.5), (1000, 90.0)];
        let candidates = candidates.map(|(bytes, answers)| Candidate { bytes, answers });
        assert_eq!(choose(&candidates, 2000), Some(2));
        assert_eq!(choose(&candidates, 1999), Some(1));
        assert_eq!(choose(&candidates, 19), None);
    }

    #[test]
    fn filters_without_room_cost_reads_until_there_is_room_and_are_loaded_then() {
        let fs = MemFs::new();
        let filter = FilterPolicy::new(FilterKind::Bloom);
        let options = Options::new().fs(Arc::new(fs)).memory_budget(1 << 20).background_threads(0);
        let options = options.default_keyspace(KeyspaceOptions::new().filter(filter));
        let dir = Path::new("/db");
        let db = options.clone().open(dir).unwrap();
        (0..3000u32).for_each(|key| db.put(key.to_be_bytes(), [1]).unwrap());
        db.compact().unwrap();
        db.close().unwrap();

        let db = options.open(dir).unwrap();
        // Somebody else has all there is.
        let memory = &db.engine().context.memory;
        let taken = memory.try_lease(Part::Filters, memory.room()).unwrap();
        db.open_tables().unwrap();
        while db.step().unwrap() {}
        let absent = |key: u32| [&key.to_be_bytes()[..], b"x"].concat();
        assert!((0..2999).all(|key| db.get(absent(key)).unwrap().is_none() && db.may_contain(absent(key))));
        let total = db.stats().keyspaces[0].total();
        assert!(total.unloaded_filters > 0 && total.unloaded_filters == total.tables);
        assert_eq!((total.filter.negatives, total.filter.unfiltered_misses), (0, 2999));
        drop(taken);
        assert!(!db.engine().step(Jobs::Urgent).unwrap(), "writers do not wait for it");
        while db.step().unwrap() {}
        let before = db.stats().keyspaces[0].total();
        assert_eq!(before.unloaded_filters, 0);
        assert!((0..2999).all(|key| db.get(absent(key)).unwrap().is_none()));
        let after = db.stats().keyspaces[0].total();
        assert!(after.filter.negatives > 2900 && after.filter.unfiltered_misses == 2999);
        assert!((0..3000u32).all(|key| db.contains(key.to_be_bytes()).unwrap()));
    }
}
