use std::collections::HashSet;

use super::input::Input;
use crate::error::Error;
use crate::hash_compaction::HashCompaction;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<HashCompaction>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let (cells, bits) = (u64::from(input.u8()), 4 + input.below(53) as u32);
    let mut table = HashCompaction::with_shape(cells, bits, input.u8().into()).unwrap();
    let mut model = HashSet::new();
    while !input.is_empty() {
        let (choice, key) = (input.below(8), [input.u8(), input.u8() % 4]);
        if choice == 0 {
            table = HashCompaction::decode(&table.encode()).unwrap();
            continue;
        }
        let before = table.clone();
        let found = table.contains(&key);
        match table.insert(&key) {
            Ok(new) => {
                assert_eq!(new, !found, "an insertion answers as a query does");
                model.insert(key);
            }
            Err(error) => {
                assert_eq!(error, Error::Full);
                assert!(table == before && table.len() == table.cells() && !found);
            }
        }
        assert!(model.iter().all(|key| table.contains(key)), "an inserted state is absent");
        assert!(table.len() <= model.len() as u64 && table.predicted_rate() >= 0.0);
    }
}
