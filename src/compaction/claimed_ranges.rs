//! Tables and key ranges reserved by running jobs; the search for the next compaction skips them.
//!
//! A job reserves its inputs. Unless it writes to level 0, it also reserves the key range of its inputs in the output
//! level. Another job could otherwise fill a gap of this range.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::task::{Task, bounds_of};
use crate::version::TableHandle;

#[derive(Debug, Clone, Default)]
pub(crate) struct Busy {
    tables: HashSet<u64>,
    outputs: Vec<OutputRange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OutputRange {
    level: usize,
    smallest: Bytes,
    largest: Bytes,
}

#[derive(Debug)]
pub(crate) struct Claim {
    tables: HashSet<u64>,
    output: Option<OutputRange>,
}

impl Claim {
    pub(crate) fn of(task: &Task) -> Self {
        let bounds = bounds_of(task.inputs.iter().map(|(_, table)| table));
        let output = bounds.filter(|_| task.output_level > 0).map(|(smallest, largest)| OutputRange {
            level: task.output_level,
            smallest: smallest.clone(),
            largest: largest.clone(),
        });
        Self { tables: task.numbers(), output }
    }
}

impl Busy {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.outputs.is_empty()
    }

    pub(crate) fn has(&self, table: &TableHandle) -> bool {
        self.tables.contains(&table.meta.number)
    }

    pub(crate) fn has_number(&self, table: u64) -> bool {
        self.tables.contains(&table)
    }

    pub(super) fn allows<'t>(
        &self,
        inputs: impl IntoIterator<Item = &'t Arc<TableHandle>, IntoIter: Clone>,
        output_level: usize,
    ) -> bool {
        let inputs = inputs.into_iter();
        let metas = || inputs.clone().map(|table| &table.meta);
        let meets = |output: &OutputRange| {
            let is_before = metas().all(|meta| meta.largest < output.smallest);
            let is_after = metas().all(|meta| meta.smallest > output.largest);
            output.level == output_level && !is_before && !is_after
        };
        !inputs.clone().any(|table| self.has(table)) && !self.outputs.iter().any(meets)
    }

    pub(super) fn allows_task(&self, task: &Task) -> bool {
        self.allows(task.inputs.iter().map(|(_, table)| table), task.output_level)
    }

    pub(super) fn allowed(&self, task: Task) -> Option<Task> {
        self.allows_task(&task).then_some(task)
    }

    pub(crate) fn take(&mut self, task: &Task) -> bool {
        let is_free = self.allows_task(task);
        if is_free {
            let Claim { tables, output } = Claim::of(task);
            self.tables.extend(tables);
            self.outputs.extend(output);
        }
        is_free
    }

    pub(crate) fn give_up(&mut self, claim: &Claim) {
        self.tables.retain(|number| !claim.tables.contains(number));
        self.outputs.retain(|output| Some(output) != claim.output.as_ref());
    }

    pub(crate) fn take_table(&mut self, number: u64) -> bool {
        self.tables.insert(number)
    }

    pub(crate) fn give_up_table(&mut self, number: u64) {
        self.tables.remove(&number);
    }
}

impl Extend<u64> for Busy {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, tables: I) {
        self.tables.extend(tables);
    }
}

impl FromIterator<u64> for Busy {
    fn from_iter<I: IntoIterator<Item = u64>>(tables: I) -> Self {
        Self { tables: tables.into_iter().collect(), outputs: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::handle;

    fn task(output_level: usize, tables: &[(u64, &str, &str)]) -> Task {
        let inputs = tables.iter().map(|&(number, a, b)| (1, handle(number, a, b, 1))).collect();
        Task { inputs, output_level, trivial_move: false }
    }

    #[test]
    fn a_task_reserves_its_tables_and_all_keys_between_them_on_its_output_level() {
        let mut busy = Busy::default();
        let running = task(2, &[(1, "d", "f"), (2, "m", "p")]);
        assert!(busy.take(&running) && !busy.take(&running));
        let meets = |level, number, a, b| !busy.allows_task(&task(level, &[(number, a, b)]));
        assert!(meets(3, 1, "d", "f") && meets(5, 2, "m", "p"), "its tables");
        for (a, b) in [("g", "h"), ("a", "d"), ("p", "z"), ("a", "z")] {
            assert!(meets(2, 3, a, b) && !meets(1, 3, a, b) && !meets(3, 3, a, b), "{a} to {b}");
        }
        assert!(!meets(2, 3, "a", "c") && !meets(2, 3, "q", "z"));
        assert!(!busy.allows_task(&task(2, &[(3, "a", "b"), (4, "x", "z")])), "outputs may lie over it");
    }

    #[test]
    fn the_end_of_a_task_frees_what_it_had_and_nothing_else() {
        let (one, other) = (task(2, &[(1, "a", "c")]), task(2, &[(2, "d", "f")]));
        let mut busy = Busy::default();
        assert!(busy.take(&one) && busy.take(&other) && busy.take_table(9));
        busy.give_up(&Claim::of(&one));
        assert!(busy.allows_task(&one) && !busy.allows_task(&other));
        busy.give_up(&Claim::of(&other));
        assert!(!busy.is_empty() && !busy.take_table(9));
        busy.give_up_table(9);
        assert!(busy.is_empty());
    }
}
