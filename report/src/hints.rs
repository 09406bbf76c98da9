//! Finds the most useful action for a store, and its command.

use sievedb::filter::Kind;
use sievedb::inspect::tree::{KeyspaceShape, RunShape, Tree};

use crate::cells::Look;
use crate::plan::Plan;
use crate::units::{bytes, counted, share, significant};

pub(crate) struct Hint {
    pub(crate) before: String,
    pub(crate) command: String,
    pub(crate) after: String,
}

/// New filters are suggested from this saving on, as a share of the filters and in bytes.
const SAVING_MIN: (f64, f64) = (0.1, 65_536.0);

/// The best allocation is suggested from this factor and this number of reads per lookup on.
const GAIN_MIN: (f64, f64) = (1.5, 0.001);

/// Filters of smaller tables have overhead that the plan does not include.
const TABLE_KEYS_MIN: u64 = 4000;

const HIDDEN_MIN: f64 = 0.2;

const RUNS_MIN: usize = 8;

pub(crate) fn most_useful(tree: &Tree, path: &str, damage: usize) -> Option<Hint> {
    if damage > 0 {
        return Some(Hint {
            before: format!(
                "{} found:",
                counted(damage as u64, "piece of damage was", "pieces of damage were")
            ),
            command: format!("sievedb verify {}", quoted(path)),
            after: "lists the keys that it concerns".into(),
        });
    }
    let largest = tree.keyspaces.iter().max_by_key(|keyspace| Plan::of(keyspace).keys)?;
    let options = match &largest.name[..] {
        "default" => String::new(),
        name => format!(" --keyspace {}", quoted(name)),
    };
    let command = |name: &str, more: &str| format!("sievedb {name} {}{options}{more}", quoted(path));
    [unusable, less_memory, fewer_reads, hidden, many_runs]
        .into_iter()
        .find_map(|hint| hint(largest, &command))
}

type Command<'c> = &'c dyn Fn(&str, &str) -> String;

fn unusable(keyspace: &KeyspaceShape, command: Command<'_>) -> Option<Hint> {
    let tables = keyspace.runs.iter().flat_map(|run| &run.tables);
    let unusable = tables.filter(|table| Look::of(table) == Look::Unusable).count();
    (unusable > 0).then(|| Hint {
        before: format!("{} cannot be used:", counted(unusable as u64, "filter", "filters")),
        command: command("refilter", ""),
        after: "builds new ones".into(),
    })
}

fn less_memory(keyspace: &KeyspaceShape, command: Command<'_>) -> Option<Hint> {
    let plan = Plan::of(keyspace);
    if has_small_tables(keyspace, &plan) {
        return None;
    }
    let (now, bits) = (plan.bits_per_key(), plan.bits_for_the_same());
    let saved = plan.filter_bytes as f64 * (1.0 - bits / now.max(f64::MIN_POSITIVE));
    (now > 0.0 && bits <= (1.0 - SAVING_MIN.0) * now && saved >= SAVING_MIN.1).then(|| Hint {
        before: why(keyspace),
        command: command("refilter", &format!(" --bits-per-key {bits:.1}")),
        after: format!("saves {} with the same reads", bytes(saved as u64)),
    })
}

fn has_small_tables(keyspace: &KeyspaceShape, plan: &Plan) -> bool {
    let tables: usize = keyspace.runs.iter().map(|run| run.tables.len()).sum();
    plan.keys < TABLE_KEYS_MIN.saturating_mul(tables as u64)
}

fn why(keyspace: &KeyspaceShape) -> String {
    let is_bloom = |table: &&sievedb::inspect::tree::TableShape| {
        matches!(Look::of(table), Look::Of(Kind::Bloom | Kind::BlockedBloom))
    };
    let has_bloom = |run: &&RunShape| run.tables.iter().any(|table| is_bloom(&table));
    let mut levels: Vec<u8> = keyspace.runs.iter().filter(has_bloom).map(|run| run.level).collect();
    levels.dedup();
    if levels.is_empty() {
        return "The bits are not where they save most reads:".into();
    }
    let runs = keyspace.runs.iter().filter(has_bloom).count() as f64 / keyspace.runs.len() as f64;
    let named: Vec<String> = levels.iter().map(u8::to_string).collect();
    match (&named[..], runs) {
        (_, 1.0) => "All probes go to Bloom filters:".into(),
        ([level], _) => format!("Level {level} takes {} of all probes, with Bloom filters:", share(runs)),
        _ => format!("Levels {} take {} of all probes, with Bloom filters:", named.join(", "), share(runs)),
    }
}

fn fewer_reads(keyspace: &KeyspaceShape, command: Command<'_>) -> Option<Hint> {
    let plan = Plan::of(keyspace);
    let bare = plan.filter_bytes == 0 && plan.keys > 0;
    if !bare && has_small_tables(keyspace, &plan) {
        return None;
    }
    let bits = if bare { 10.0 } else { plan.bits_per_key() };
    let best = plan.best(bits);
    (plan.wasted >= GAIN_MIN.0 * best && plan.wasted - best >= GAIN_MIN.1).then(|| Hint {
        before: if bare {
            "The tables have no filters:".into()
        } else {
            "The bits are not where they save most reads:".into()
        },
        command: command(
            "refilter",
            &if bare { String::new() } else { format!(" --bits-per-key {bits:.1}") },
        ),
        after: format!(
            "lowers the data blocks per absent lookup from {} to {}",
            significant(plan.wasted),
            significant(best)
        ),
    })
}

fn hidden(keyspace: &KeyspaceShape, command: Command<'_>) -> Option<Hint> {
    let tables = || keyspace.runs.iter().flat_map(|run| &run.tables);
    let sum =
        |of: fn(&sievedb::inspect::tree::TableShape) -> u64| tables().map(of).fold(0, u64::saturating_add);
    let (entries, tombstones) = (sum(|table| table.entries), sum(|table| table.tombstones));
    let older = entries.saturating_sub(sum(|table| table.keys));
    let hidden = (tombstones as f64 + older as f64) / entries.max(1) as f64;
    (hidden >= HIDDEN_MIN).then(|| Hint {
        before: format!("{} of the entries are tombstones or older versions:", share(hidden)),
        command: command("compact", ""),
        after: "drops them".into(),
    })
}

fn many_runs(keyspace: &KeyspaceShape, command: Command<'_>) -> Option<Hint> {
    let runs = keyspace.runs.len();
    // With expiry, each bucket of time has a run.
    (runs >= RUNS_MIN && keyspace.expiry.is_none()).then(|| Hint {
        before: format!("A lookup probes {}:", counted(runs as u64, "run", "runs")),
        command: command("compact", ""),
        after: "merges them into one".into(),
    })
}

pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{keyspace, table, tree_of};
    use sievedb::inspect::tree::TableShape;

    fn hint(runs: Vec<(u8, Vec<TableShape>)>) -> Option<String> {
        let hint = most_useful(&tree_of(vec![keyspace("default", runs)]), "my db", 0)?;
        Some(format!("{} {} {}", hint.before, hint.command, hint.after))
    }

    #[test]
    fn a_store_with_the_best_filters_or_few_keys_has_no_hint() {
        let mut best = table(1, 100_000);
        best.filters[0].found = Some((Kind::Ribbon, 0.001));
        assert_eq!(hint(vec![(1, vec![best])]), None);
        assert_eq!(hint(vec![]), None);
        let mut small = table(1, 1000);
        (small.filters[0].bytes, small.filters[0].found) = (4096, Some((Kind::Bloom, 0.0009)));
        assert_eq!(hint(vec![(1, vec![small.clone()])]), None);
        assert_eq!(hint(vec![(1, vec![small; 100])]), None);
    }

    #[test]
    fn bloom_filters_are_worth_a_hint_with_their_levels() {
        let mut blocked = table(2, 1_000_000);
        blocked.filters[0].found = Some((Kind::BlockedBloom, 0.0095));
        let text = hint(vec![(0, vec![table(1, 10)]), (1, vec![blocked])]).unwrap();
        assert!(text.starts_with("Level 1 takes 50.0 % of all probes, with Bloom filters: "), "{text}");
        assert!(
            text.contains("sievedb refilter 'my db' --bits-per-key 6.") && text.contains(" saves 402.83 KiB"),
            "{text}"
        );
    }

    #[test]
    fn tables_without_usable_filters_are_worth_a_hint() {
        let mut bare = table(2, 100_000);
        bare.filters.clear();
        let text = hint(vec![(1, vec![bare.clone()])]).unwrap();
        assert!(text.starts_with("The tables have no filters: sievedb refilter 'my db' lowers"), "{text}");
        bare.filters = table(1, 1).filters;
        bare.filters[0].found = None;
        let text = hint(vec![(1, vec![bare])]).unwrap();
        assert!(text.starts_with("1 filter cannot be used: sievedb refilter"), "{text}");
    }

    #[test]
    fn tombstones_and_many_runs_are_worth_a_compaction() {
        let mut dead = table(2, 100_000);
        dead.tombstones = 30_000;
        let text = hint(vec![(1, vec![dead])]).unwrap();
        assert!(text.starts_with("30.0 % of the entries are tombstones"), "{text}");
        let mut hostile = table(2, 100_000);
        (hostile.tombstones, hostile.entries) = (u64::MAX, u64::MAX);
        assert!(hint(vec![(1, vec![hostile])]).unwrap().contains("of the entries are tombstones"));
        let runs = (0..9).map(|n| (0, vec![table(n, 1000)])).collect();
        assert!(hint(runs).unwrap().contains("A lookup probes 9 runs: sievedb compact 'my db'"));
    }

    #[test]
    fn damage_comes_first() {
        let hint = most_useful(&tree_of(vec![]), "/db", 2).unwrap();
        assert_eq!(
            (&hint.before[..], &hint.command[..]),
            ("2 pieces of damage were found:", "sievedb verify /db")
        );
    }

    #[test]
    fn a_word_with_a_quote_is_one_word_for_a_shell() {
        assert_eq!([quoted("a/b.c"), quoted("it's"), quoted("")], ["a/b.c", "'it'\\''s'", "''"]);
    }
}
