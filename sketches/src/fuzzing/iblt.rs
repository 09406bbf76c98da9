use std::collections::BTreeSet;

use super::input::Input;
use crate::cell::Difference;
use crate::iblt::Iblt;
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    super::run::<Iblt>(bytes, operations);
    if let Ok(table) = Iblt::decode(bytes.get(1..).unwrap_or(&[])) {
        let empty = Iblt::with_shape(table.cells(), table.probes(), table.seed()).unwrap();
        let _ = table.difference(&empty).unwrap();
    }
}

fn operations(input: &mut Input<'_>) {
    let (cells, probes) = (u64::from(input.u8()), 3 + input.below(6) as u64);
    let empty = Iblt::with_shape(cells, probes, input.u8().into()).unwrap();
    let (mut tables, mut models) = ([empty.clone(), empty], [BTreeSet::new(), BTreeSet::new()]);
    while !input.is_empty() {
        let (side, item) = (input.below(2), u128::from(input.u8()));
        if models[side].insert(item) {
            tables[side].insert(item);
        } else {
            models[side].remove(&item);
            tables[side].remove(item);
        }
    }
    let [mine, theirs] = tables.map(|table| Iblt::decode(&table.encode()).unwrap());
    match mine.difference(&theirs).unwrap() {
        Some(Difference { mine, theirs }) => {
            assert!(mine.iter().eq(models[0].difference(&models[1])), "the list is not the difference");
            assert!(theirs.iter().eq(models[1].difference(&models[0])), "the list is not the difference");
        }
        None => assert_ne!(models[0], models[1]),
    }
}
