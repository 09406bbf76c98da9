use std::collections::BTreeSet;

use super::input::Input;
use crate::difference_size::DifferenceSize;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<DifferenceSize>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let empty = DifferenceSize::with_shape(2 + u64::from(input.u8()), input.u8().into()).unwrap();
    let (mut sketches, mut models) = ([empty.clone(), empty], [BTreeSet::new(), BTreeSet::new()]);
    while !input.is_empty() {
        let (side, key) = (input.below(2), [input.u8()]);
        if models[side].insert(key) {
            sketches[side].insert(&key);
        } else {
            models[side].remove(&key);
            sketches[side].remove(&key);
        }
    }
    let [mine, theirs] = sketches.map(|sketch| DifferenceSize::decode(&sketch.encode()).unwrap());
    let estimate = mine.estimate(&theirs).unwrap();
    assert!(estimate.is_finite() && estimate >= models[0].len().abs_diff(models[1].len()) as f64);
    if models[0] == models[1] {
        assert!(mine == theirs && estimate == 0.0);
    }
}
