use std::collections::HashMap;

use super::input::Input;
use crate::counting::Counting;
use crate::error::Error;
use crate::sketch::Sketch;
use crate::spectral::{Method, Spectral};

pub fn counting(bytes: &[u8]) {
    super::run::<Counting>(bytes, count);
}

pub fn spectral(bytes: &[u8]) {
    super::run::<Spectral>(bytes, estimate);
}

fn count(input: &mut Input<'_>) {
    let (cells, probes) = (1 + u64::from(input.u16()), 1 + input.below(64) as u64);
    let mut counting = Counting::with_shape(cells, probes, input.u8().into()).unwrap();
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    while !input.is_empty() {
        let (operation, key) = (input.below(4), [input.u8()]);
        let times = model.entry(key).or_default();
        match operation {
            0 | 1 => {
                counting.insert(&key);
                *times += 1;
            }
            2 if *times > 0 => {
                counting.remove(&key).unwrap();
                *times -= 1;
            }
            2 if !counting.contains(&key) => {
                let before = counting.clone();
                assert_eq!(counting.remove(&key), Err(Error::Absent));
                assert!(counting == before, "a failed removal changed something");
            }
            _ => counting = Counting::decode(&counting.encode()).unwrap(),
        }
        for (key, &times) in model.iter().filter(|(_, times)| **times > 0) {
            assert!(counting.contains(key), "an inserted key is absent");
            assert!(counting.count(key).is_none_or(|count| count >= times), "a count is too low");
        }
    }
    let bloom = counting.to_bloom().unwrap();
    assert!((0..=255).all(|key| bloom.contains(&[key]) == counting.contains(&[key])));
    assert!((0.0..=1.0).contains(&counting.predicted_rate()));
}

fn estimate(input: &mut Input<'_>) {
    let (cells, probes) = (1 + u64::from(input.u16()), 1 + input.below(64) as u64);
    let (width, method) = (1 + input.below(32) as u64, Method::ALL[input.below(2)]);
    let mut spectral = Spectral::with_shape(cells, width, probes, method, input.u8().into()).unwrap();
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    while !input.is_empty() {
        let (operation, key) = (input.below(4), [input.u8()]);
        let times = model.entry(key).or_default();
        match operation {
            0 | 1 => {
                spectral.insert(&key);
                *times += 1;
            }
            2 if method == Method::MinimalIncrease => assert!(spectral.remove(&key).is_err()),
            2 if *times > 0 => {
                spectral.remove(&key).unwrap();
                *times -= 1;
            }
            _ => spectral = Spectral::decode(&spectral.encode()).unwrap(),
        }
        for (key, &times) in model.iter().filter(|(_, times)| **times > 0) {
            assert!(spectral.contains(key) && spectral.count(key) > 0, "an inserted key is absent");
            let most = (1u64 << width) - 1;
            assert!(method != Method::MinimalIncrease || spectral.count(key) >= times.min(most));
        }
    }
}
