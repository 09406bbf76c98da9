use std::collections::HashMap;

use super::input::Input;
use crate::cuckoo::Cuckoo;
use crate::error::Error;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<Cuckoo>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let (buckets, width) = (1 + input.below(64) as u64, 2 + input.below(31) as u64);
    let mut filter = Cuckoo::with_shape(buckets, width, input.u8().into()).unwrap();
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    while !input.is_empty() {
        let (operation, key) = (input.below(4), [input.u8()]);
        let times = model.entry(key).or_default();
        let before = filter.clone();
        match operation {
            0 | 1 => match filter.insert(&key) {
                Ok(()) => *times += 1,
                Err(error) => assert!(error == Error::Full && filter == before, "a full filter has changed"),
            },
            2 if *times > 0 => {
                filter.remove(&key).unwrap();
                *times -= 1;
            }
            2 if !filter.contains(&key) => {
                assert_eq!(filter.remove(&key), Err(Error::Absent));
                assert!(filter == before, "a failed removal changed something");
            }
            _ => filter = Cuckoo::decode(&filter.encode()).unwrap(),
        }
        assert!(
            model.iter().all(|(key, &times)| times == 0 || filter.contains(key)),
            "an inserted key is absent"
        );
        assert_eq!(filter.len(), model.values().sum::<u64>());
    }
}
