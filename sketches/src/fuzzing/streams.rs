use std::collections::HashSet;

use super::input::Input;
use crate::scalable::Scalable;
use crate::sketch::Sketch;
use crate::stable::Stable;

pub fn scalable(bytes: &[u8]) {
    super::run::<Scalable>(bytes, grow);
}

pub fn stable(bytes: &[u8]) {
    super::run::<Stable>(bytes, forget);
}

fn grow(input: &mut Input<'_>) {
    let (first, growth) = (1 + input.below(64) as u64, 1 + input.below(4) as u64);
    let (rate, tightening) = ((1 + input.below(200)) as f64 / 256.0, (1 + input.below(200)) as f64 / 256.0);
    let Ok(mut filter) = Scalable::with_shape(first, growth, rate, tightening, input.u8().into()) else {
        return;
    };
    let mut model = HashSet::new();
    while !input.is_empty() {
        let (operation, key) = (input.below(8), input.u16().to_le_bytes());
        if operation == 0 {
            filter = Scalable::decode(&filter.encode()).unwrap();
            continue;
        }
        let before = filter.contains(&key);
        match filter.insert(&key) {
            Ok(found) => {
                assert_eq!(found, before);
                model.insert(key);
            }
            Err(_) => assert_eq!(filter.contains(&key), before, "a full filter has changed"),
        }
        assert!(model.iter().all(|key| filter.contains(key)), "an inserted key is absent");
    }
    assert!((0.0..=1.0).contains(&filter.predicted_rate()));
}

fn forget(input: &mut Input<'_>) {
    let (probes, decrements) = (1 + input.below(64) as u64, 1 + input.below(64) as u64);
    let (cells, width) = (65 + u64::from(input.u16()), 1 + input.below(8) as u64);
    let mut filter = Stable::with_shape(cells, width, probes, decrements, input.u8().into()).unwrap();
    let mut decoded = filter.clone();
    while !input.is_empty() {
        let (operation, key) = (input.below(8), [input.u8()]);
        if operation == 0 {
            decoded = Stable::decode(&filter.encode()).unwrap();
        }
        let known = filter.contains(&key);
        assert_eq!(filter.insert(&key), known);
        assert_eq!(decoded.insert(&key), known);
        assert!(filter.contains(&key), "the last element is not known");
    }
    assert!(filter == decoded);
    assert!((0.0..=1.0).contains(&filter.predicted_rate()) && (0.0..=1.0).contains(&filter.stable_rate()));
}
