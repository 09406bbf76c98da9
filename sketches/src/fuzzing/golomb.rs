use std::collections::BTreeSet;

use super::input::Input;
use crate::golomb::GolombSet;
use crate::hash::{key_hash, reduce, spread};
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<GolombSet>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let rate = 1.0 / (2.0 + f64::from(input.u16()));
    let seed = input.u8().into();
    let times = 1 + input.below(4) as u64 * 40;
    let mut keys = Vec::new();
    while !input.is_empty() {
        let key = u64::from(input.u16());
        keys.extend((0..times).map(|time| (key + (time << 16)).to_le_bytes()));
    }
    let set = GolombSet::build(&keys, rate, seed).unwrap();
    let number = |key: &[u8; 8]| reduce(spread(key_hash(seed, key)), set.range());
    let model: BTreeSet<u64> = keys.iter().map(number).collect();
    assert!(set.numbers().eq(model.iter().copied()), "the numbers differ from the keys' numbers");
    assert!(keys.iter().all(|key| set.contains(key)), "a key is absent");
    for key in (0..300u64).map(u64::to_le_bytes) {
        assert_eq!(set.contains(&key), model.contains(&number(&key)));
    }
    assert!(GolombSet::decode(&set.encode()).unwrap() == set);
}
