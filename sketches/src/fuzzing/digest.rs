use std::collections::BTreeSet;

use super::input::Input;
use crate::digest::Digest;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<Digest>(bytes, operations);
}

fn operations(input: &mut Input<'_>) {
    let rate = 0.5 / (1.0 + f64::from(input.u16()));
    let (time, seed) = (input.u16().into(), input.u8().into());
    let mut keys = BTreeSet::new();
    while !input.is_empty() {
        keys.insert(input.u16().to_be_bytes());
    }
    let digest = Digest::decode(&Digest::build(&keys, rate, time, seed).unwrap().encode()).unwrap();
    assert!(keys.iter().all(|key| digest.contains(key)), "a key is absent");
    assert_eq!((digest.time(), digest.len()), (time, keys.len() as u64));
    assert!(digest.predicted_rate() <= rate);
}
