use std::collections::HashMap;

use super::input::Input;
use crate::error::Error;
use crate::sketch::Sketch;
use crate::static_map::StaticMap;

pub fn run(bytes: &[u8]) {
    super::run::<StaticMap>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let (value_bits, fingerprint_bits) = (1 + input.below(16) as u32, input.below(48) as u32);
    let seed = input.u8().into();
    let mut pairs = Vec::new();
    while !input.is_empty() {
        pairs.push((input.u16().to_le_bytes(), u64::from(input.u16()) % (1 << value_bits)));
    }
    let model: HashMap<_, _> = pairs.iter().copied().collect();
    let built = StaticMap::build(pairs.iter().copied(), value_bits, fingerprint_bits, seed);
    if model.len() < pairs.len() {
        assert_eq!(built, Err(Error::Duplicate));
    }
    let map =
        StaticMap::build(model.iter().map(|(key, value)| (key, *value)), value_bits, fingerprint_bits, seed);
    let map = StaticMap::decode(&map.unwrap().encode()).unwrap();
    assert!(model.iter().all(|(key, value)| map.get(key) == Some(*value)), "a key has another value");
    for absent in (0..100u32).map(u32::to_le_bytes) {
        assert!(map.get(&absent).is_none_or(|value| value < 1 << value_bits));
    }
}
