use std::collections::BTreeSet;

use super::input::Input;
use crate::cell::Difference;
use crate::rateless::{Decoder, Rateless};
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<Rateless>(bytes, operations);
    if let Ok(table) = Rateless::decode(bytes.get(1..).unwrap_or(&[])) {
        let mut decoder = Decoder::new(table.seed());
        let _ = decoder.extend(&table, &Rateless::new(table.range(), table.seed()).unwrap());
        let _ = decoder.finish();
    }
}

fn operations(input: &mut Input<'_>) {
    let (seed, step) = (input.u8().into(), 1 + u64::from(input.u8()));
    let mut models = [BTreeSet::new(), BTreeSet::new()];
    while !input.is_empty() {
        models[input.below(2)].insert(u128::from(input.u16()));
    }
    let mut decoder = Decoder::new(seed);
    let found = loop {
        let range = decoder.cells()..decoder.cells() + step;
        let [mine, theirs] = [0, 1].map(|side: usize| {
            let mut table = Rateless::new(range.clone(), seed).unwrap();
            models[side].iter().for_each(|&item| table.insert(item));
            Rateless::decode(&table.encode()).unwrap()
        });
        decoder.extend(&mine, &theirs).unwrap();
        if let Some(found) = decoder.finish() {
            break found;
        }
    };
    let only = |one: usize, two: usize| models[one].difference(&models[two]).copied().collect();
    assert_eq!(found, Difference { mine: only(0, 1), theirs: only(1, 0) });
}
