//! Records a job's inputs in its outputs, so that a repair can recognise replaced tables ([`Origin`]).
//!
//! Each output lists the inputs that overlap its range, which begins after the last key of the previous output. It also
//! lists the newest tables that these inputs replaced, because their files may still exist, or an older manifest may
//! name them. A job without outputs records nothing. A repair detects missing flushes by sequence numbers.

use std::ops::Bound;

use bytes::Bytes;

use crate::batch::KeyspaceId;
use crate::key::SeqNo;
use crate::table::{EARLIER_MAX, Origin};

#[derive(Debug, Clone, Default)]
pub(crate) struct Lineage {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) name: String,
    pub(crate) newest: SeqNo,
    pub(crate) inputs: Vec<InputTable>,
}

#[derive(Debug, Clone)]
pub(crate) struct InputTable {
    pub(crate) number: u64,
    pub(crate) smallest: Bytes,
    pub(crate) largest: Bytes,
    pub(crate) replaced: Vec<u64>,
}

impl Lineage {
    pub(super) fn origin(&self, from: Bound<Bytes>, to: Bound<Bytes>) -> Origin {
        let overlaps = |input: &&InputTable| {
            let starts = match &to {
                Bound::Unbounded => true,
                Bound::Included(to) => input.smallest <= *to,
                Bound::Excluded(to) => input.smallest < *to,
            };
            starts
                && match &from {
                    Bound::Unbounded => true,
                    Bound::Included(from) => input.largest >= *from,
                    Bound::Excluded(from) => input.largest > *from,
                }
        };
        let inputs: Vec<&InputTable> = self.inputs.iter().filter(overlaps).collect();
        let mut replaced: Vec<u64> = inputs.iter().map(|input| input.number).collect();
        let mut earlier: Vec<u64> = inputs.iter().flat_map(|input| input.replaced.iter().copied()).collect();
        for numbers in [&mut replaced, &mut earlier] {
            numbers.sort_unstable();
            numbers.dedup();
            numbers.reverse();
        }
        earlier.truncate(EARLIER_MAX);
        let (keyspace, name, newest) = (self.keyspace, self.name.clone(), self.newest);
        Origin { keyspace, name, newest, from, to, replaced, earlier }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(number: u64, bounds: [&'static str; 2], replaced: &[u64]) -> InputTable {
        let [smallest, largest] = bounds.map(|key| Bytes::from_static(key.as_bytes()));
        InputTable { number, smallest, largest, replaced: replaced.to_vec() }
    }

    #[test]
    fn an_output_lists_the_inputs_in_its_range_and_what_they_replaced() {
        let inputs =
            vec![input(7, ["a", "f"], &[4, 3]), input(9, ["c", "d"], &[]), input(8, ["g", "k"], &[3])];
        let lineage = Lineage { keyspace: 1, name: "one".into(), newest: 50, inputs };
        let key = |key: &'static str| Bytes::from_static(key.as_bytes());
        let lists = |from, to| {
            let origin = lineage.origin(from, to);
            (origin.replaced, origin.earlier)
        };
        assert_eq!(lists(Bound::Unbounded, Bound::Unbounded), (vec![9, 8, 7], vec![4, 3]));
        assert_eq!(lists(Bound::Unbounded, Bound::Included(key("b"))), (vec![7], vec![4, 3]));
        assert_eq!(lists(Bound::Excluded(key("f")), Bound::Unbounded), (vec![8], vec![3]));
        assert_eq!(lists(Bound::Included(key("f")), Bound::Excluded(key("g"))), (vec![7], vec![4, 3]));
    }

    #[test]
    fn of_many_earlier_tables_the_newest_are_listed() {
        let many: Vec<u64> = (1..=1000).collect();
        let lineage = Lineage { inputs: vec![input(2000, ["a", "b"], &many)], ..Lineage::default() };
        let origin = lineage.origin(Bound::Unbounded, Bound::Unbounded);
        assert_eq!((origin.earlier.len(), origin.earlier[0]), (EARLIER_MAX, 1000));
    }
}
