use std::collections::HashMap;

use super::input::Input;
use crate::dleft::DLeft;
use crate::error::Error;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<DLeft>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let (buckets, remainder_bits) = (1 + input.below(32) as u64, 1 + input.below(16) as u64);
    let counter_bits = 1 + input.below(16) as u64;
    let mut table = DLeft::with_shape(buckets, remainder_bits, counter_bits, input.u8().into()).unwrap();
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    while !input.is_empty() {
        let (operation, key) = (input.below(4), [input.u8()]);
        let times = model.entry(key).or_default();
        let before = table.clone();
        match operation {
            0 | 1 => match table.insert(&key) {
                Ok(()) => *times += 1,
                Err(error) => assert!(error == Error::Full && table == before, "a full table has changed"),
            },
            2 if *times > 0 => {
                table.remove(&key).unwrap();
                *times -= 1;
            }
            2 if !table.contains(&key) => {
                assert_eq!(table.remove(&key), Err(Error::Absent));
                assert!(table == before, "a failed removal changed something");
            }
            _ => table = DLeft::decode(&table.encode()).unwrap(),
        }
        for (key, &times) in model.iter().filter(|(_, times)| **times > 0) {
            assert!(table.contains(key), "an inserted key is absent");
            assert!(table.count(key).is_none_or(|count| count >= times), "a count is too low");
        }
        assert!(table.len() <= model.values().filter(|times| **times > 0).count() as u64 || counter_bits < 8);
    }
}
