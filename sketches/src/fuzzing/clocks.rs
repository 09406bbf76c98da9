use std::collections::HashMap;

use super::input::Input;
use crate::expiring::Expiring;
use crate::ring::Ring;
use crate::sketch::Sketch;

pub fn ring(bytes: &[u8]) {
    super::run::<Ring>(bytes, slices);
}

pub fn expiring(bytes: &[u8]) {
    super::run::<Expiring>(bytes, cells);
}

fn time(input: &mut Input<'_>, now: u64) -> u64 {
    match input.u8() {
        step @ 0..240 => now.saturating_add(u64::from(step) / 16),
        240..250 => now.saturating_add(u64::from(input.u16())),
        250..254 => now.saturating_sub(u64::from(input.u8())),
        _ => u64::from(input.u16()) << 48,
    }
}

fn refused(key: [u8; 1], latest: u64, now: u64, leap: impl FnOnce(u64)) -> u64 {
    if key[0].is_multiple_of(2) {
        leap(now);
        return now;
    }
    latest
}

fn slices(input: &mut Input<'_>) {
    let (spans, span) = (1 + input.below(9) as u64, 1 + input.below(20) as u64);
    let large = input.below(2) == 1;
    let (bits, probes) = if large { (4096, 20) } else { (1 + input.u8() as u64, 1 + input.below(20) as u64) };
    let mut filter = Ring::with_shape(spans, span, bits, probes, input.u8().into()).unwrap();
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    let (mut now, mut latest) = (0, 0);
    while !input.is_empty() {
        now = time(input, now);
        let (operation, key) = (input.below(8), [input.u8() % 8]);
        match operation {
            0 => filter = Ring::decode(&filter.encode()).unwrap(),
            1 => {
                if filter.advance(now).is_err() {
                    now = refused(key, latest, now, |now| filter.leap(now));
                }
            }
            _ => match filter.insert(&key, now) {
                Ok(()) => drop(model.insert(key, latest.max(now))),
                Err(_) => now = refused(key, latest, now, |now| filter.leap(now)),
            },
        }
        latest = if operation == 0 { latest } else { latest.max(now) };
        check(&model, latest.max(now), filter.least(), large.then_some(filter.longest()), |key, now| {
            filter.contains(key, now)
        });
    }
    assert!((0.0..=1.0).contains(&filter.predicted_rate(now)));
}

fn cells(input: &mut Input<'_>) {
    let tick = 1 + input.below(20) as u64;
    let large = input.below(2) == 1;
    let (cells, probes) =
        if large { (4096, 20) } else { (1 + input.u8() as u64, 1 + input.below(20) as u64) };
    let mut filter = Expiring::with_shape(cells, probes, tick, input.u8().into()).unwrap();
    let mut model: HashMap<[u8; 1], u64> = HashMap::new();
    let (mut now, mut latest) = (0, 0);
    while !input.is_empty() {
        now = time(input, now);
        let (operation, key) = (input.below(8), [input.u8() % 8]);
        match operation {
            0 => filter = Expiring::decode(&filter.encode()).unwrap(),
            1 => {
                if filter.advance(now).is_err() {
                    now = refused(key, latest, now, |now| filter.leap(now));
                }
                filter.insert_shared(&key);
                model.insert(key, latest.max(now));
            }
            _ => match filter.insert(&key, now) {
                Ok(()) => drop(model.insert(key, latest.max(now))),
                Err(_) => now = refused(key, latest, now, |now| filter.leap(now)),
            },
        }
        latest = if operation == 0 { latest } else { latest.max(now) };
        check(&model, latest.max(now), filter.least(), large.then_some(filter.longest()), |key, now| {
            filter.contains(key, now)
        });
    }
    assert!((0.0..=1.0).contains(&filter.predicted_rate(now)));
}

fn check(
    model: &HashMap<[u8; 1], u64>,
    now: u64,
    least: u64,
    longest: Option<u64>,
    contains: impl Fn(&[u8; 1], u64) -> bool,
) {
    for (key, &inserted) in model {
        let found = contains(key, now);
        assert!(found || now - inserted > least, "a key expired too early");
        let over = longest.is_some_and(|longest| now - inserted >= longest);
        assert!(!(found && over), "a key was found too late");
    }
}
