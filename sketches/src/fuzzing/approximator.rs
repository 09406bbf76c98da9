use std::collections::HashMap;

use super::input::Input;
use crate::approximator::{Approximator, Flags, Lattice, Max};
use crate::sketch::Sketch;

pub fn run(bytes: &[u8]) {
    if bytes.first().is_some_and(|first| first & 0x80 != 0) {
        super::run::<Approximator<Flags>>(bytes, operations::<Flags>);
    } else {
        super::run::<Approximator<Max>>(bytes, operations::<Max>);
    }
}

fn operations<L: Lattice>(input: &mut Input<'_>) {
    let (cells, probes) = (1 + u64::from(input.u8()), 1 + input.below(64) as u64);
    let empty = Approximator::<L>::with_shape(cells, probes, input.u8().into()).unwrap();
    let again = |of: &Approximator<L>| Approximator::<L>::decode(&of.encode()).unwrap();
    let mut sides = [again(&empty), empty];
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    while !input.is_empty() {
        let (side, key, value) = (input.below(2), [input.u8()], u64::from(input.u16()));
        if input.below(8) == 0 {
            sides[side] = again(&sides[side]);
        }
        sides[side].insert(&key, value);
        let known = model.entry(key).or_insert(0);
        *known = L::join(*known, value);
    }
    let [mut both, other] = sides;
    both.join(&other).unwrap();
    for (key, &truth) in &model {
        let found = both.get(key);
        assert_eq!(L::join(found, truth), found, "an answer is below the truth");
    }
}
