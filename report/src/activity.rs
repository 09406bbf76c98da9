//! The memory of a store by part, and background work.

use sievedb::Stats;
use sievedb::inspect::tree::{RunShape, Tree};

use crate::units::{bytes, count, significant};

pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) bytes: String,
    pub(crate) percent: f64,
}

pub(crate) struct Memory {
    pub(crate) budget: String,
    pub(crate) parts: Vec<Part>,
}

pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) note: String,
}

pub(crate) fn memory(stats: &Stats) -> Memory {
    let memory = &stats.memory;
    let free = memory.budget.saturating_sub(memory.total());
    let parts = [
        ("Memtables", "m1", memory.memtables),
        ("Tables being written", "m2", memory.builders),
        ("Open tables and indexes", "m3", memory.tables),
        ("Filters", "m4", memory.filters),
        ("Cached blocks", "m5", memory.blocks),
        ("Free", "m0", free),
    ];
    let part = |(name, class, size): (&'static str, &'static str, u64)| Part {
        name,
        class,
        bytes: bytes(size),
        percent: 100.0 * size as f64 / memory.budget.max(1) as f64,
    };
    Memory { budget: bytes(memory.budget), parts: parts.into_iter().map(part).collect() }
}

fn space_amplification(tree: &Tree) -> Option<f64> {
    let all = tree.keyspaces.iter().flat_map(|keyspace| &keyspace.runs).map(RunShape::bytes);
    let deepest = tree.keyspaces.iter().filter_map(|keyspace| keyspace.runs.last()).map(RunShape::bytes);
    let (all, deepest) = (all.fold(0, u64::saturating_add), deepest.fold(0, u64::saturating_add));
    (deepest > 0).then(|| all as f64 / deepest as f64)
}

pub(crate) fn has_written(stats: &Stats) -> bool {
    stats.written_bytes() > 0
}

pub(crate) fn facts(tree: &Tree, stats: Option<&Stats>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut fact = |name, value, note: String| facts.push(Fact { name, value, note });
    if let Some(space) = space_amplification(tree) {
        fact(
            "Space amplification",
            significant(space),
            "all tables over the deepest run of each keyspace".into(),
        );
    }
    let logs: u64 = tree.logs.iter().filter_map(|(_, len)| *len).fold(0, u64::saturating_add);
    fact("Logs", count(tree.logs.len() as u64), bytes(logs));
    let Some(stats) = stats else { return facts };
    let owed = stats.keyspaces.iter().map(|keyspace| keyspace.owed_bytes).fold(0, u64::saturating_add);
    fact("Compactions owed", bytes(owed), "until every level has its size".into());
    if let Some(disabled) = &stats.disabled {
        fact("Writing", "disabled".into(), disabled.clone());
    }
    if let Some(error) = &stats.background_error {
        fact("Background work", "fails".into(), error.clone());
    }
    if !has_written(stats) {
        return facts;
    }
    let written = stats.written_bytes() as f64 / stats.logged_bytes.max(1) as f64;
    fact(
        "Write amplification",
        significant(written),
        format!("{} written for {} logged", bytes(stats.written_bytes()), bytes(stats.logged_bytes)),
    );
    fact(
        "Writes",
        count(stats.entries),
        format!(
            "in {} batches and {} groups, {} log syncs",
            count(stats.batches),
            count(stats.commit_groups),
            count(stats.log_syncs)
        ),
    );
    fact("Flushes", count(stats.flushes), bytes(stats.flushed_bytes));
    fact(
        "Compactions",
        count(stats.compactions),
        format!("{}, and {} trivial moves", bytes(stats.compacted_bytes), count(stats.trivial_moves)),
    );
    let seconds = |time: std::time::Duration| format!("{} s", significant(time.as_secs_f64()));
    let note =
        format!("{} in all, {} the longest", seconds(stats.write_delay), seconds(stats.longest_write_delay));
    fact("Writers slowed down", count(stats.write_delays), note);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table, tree_of};

    #[test]
    fn the_parts_of_the_memory_are_the_budget() {
        let dir = tempfile::tempdir().unwrap();
        let db = sievedb::Options::new().background_threads(0).open(dir.path()).unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        let stats = db.stats();
        let parts = memory(&stats).parts;
        assert!((parts.iter().map(|part| part.percent).sum::<f64>() - 100.0).abs() < 1e-6);
        let names: Vec<_> =
            facts(&db.tree().unwrap(), Some(&stats)).into_iter().map(|fact| fact.name).collect();
        assert!(names.contains(&"Write amplification") && names.contains(&"Flushes"), "{names:?}");
    }

    #[test]
    fn the_space_amplification_is_that_of_all_keyspaces_together() {
        let tree = tree_of(vec![
            keyspace("a", vec![(0, vec![table(1, 50)]), (1, vec![table(2, 100)])]),
            keyspace("b", vec![(1, vec![table(3, 100)])]),
        ]);
        assert_eq!(space_amplification(&tree), Some(1.25));
        assert_eq!(space_amplification(&tree_of(vec![])), None);
    }
}
