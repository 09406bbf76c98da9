use std::collections::HashSet;

use super::input::Input;
use crate::bloom::Bloom;
use crate::probes::Hashing;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<Bloom>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let (bits, probes) = (1 + u64::from(input.u16()), 1 + input.below(64) as u64);
    let hashing = Hashing::ALL[input.below(4)];
    let empty = Bloom::with_shape(bits, probes, hashing, input.u8().into()).unwrap();
    let mut filters = [empty.clone(), empty.clone()];
    let mut models = [HashSet::new(), HashSet::new()];
    let mut both = empty;
    while !input.is_empty() {
        let (side, key) = (input.below(2), [input.u8()]);
        match input.below(8) {
            0 => {
                filters[side].clear();
                models[side].clear();
            }
            1..4 => {
                filters[side].insert_shared(&key);
                models[side].insert(key);
            }
            4..7 => {
                let found = filters[side].contains(&key);
                assert_eq!(filters[side].insert(&key), found, "an insertion answers as a query does");
                models[side].insert(key);
            }
            _ => filters[side] = Bloom::decode(&filters[side].encode()).unwrap(),
        }
        assert!(models[side].iter().all(|key| filters[side].contains(key)), "an inserted key is absent");
    }
    both.extend(models.iter().flatten());
    let union = filters[0].union(&filters[1]).unwrap();
    assert!(union == both, "the union differs from the filter of both sets");
    let common = filters[0].intersection(&filters[1]).unwrap();
    assert!(models[0].intersection(&models[1]).all(|key| common.contains(key)), "a common key is absent");
    assert!((0.0..=1.0).contains(&union.predicted_rate()));
}
