use std::fmt::Debug;

use crate::envelope::{DecodeErrorKind, reseal};
use crate::hash::remix;
use crate::sketch::Sketch;

pub(crate) fn hashes(keys: u64) -> impl Iterator<Item = u64> {
    (0..keys).map(hash)
}

pub(crate) fn absent_hashes(keys: u64) -> impl Iterator<Item = u64> {
    (1 << 40..(1 << 40) + keys).map(hash)
}

pub(crate) fn hash(key: u64) -> u64 {
    remix(remix(key.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ 0x5851_f42d_4c95_7f2d)
}

/// The rate is within four standard deviations and the formula's own error.
#[track_caller]
pub(crate) fn assert_rate(what: &str, found: u64, asked: u64, rate: f64, formula: f64) {
    let expected = rate * asked as f64;
    let room = 4.0 * (expected * (1.0 - rate)).sqrt() + formula * expected;
    assert!(
        (found as f64 - expected).abs() <= room,
        "{what}: {found} found, {expected:.0} ± {room:.0} expected"
    );
}

/// The encoding decodes to the same structure; changed, missing or additional bytes are errors; a newer version, kind, hash or
/// required flag is "unsupported".
pub(crate) fn check_codec<S: Sketch + PartialEq + Debug>(sketch: &S) {
    let bytes = sketch.encode();
    assert!(S::decode(&bytes).unwrap() == *sketch);
    assert_eq!(crate::describe(&bytes).unwrap(), sketch.summary());
    for at in 0..bytes.len() {
        S::decode(&bytes[..at]).unwrap_err();
        let mut flipped = bytes.clone();
        for bit in 0..8 {
            flipped[at] = bytes[at] ^ 1 << bit;
            S::decode(&flipped).unwrap_err();
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    S::decode(&longer).unwrap_err();
    for field in [8, 32, 33, 34] {
        let mut newer = bytes.clone();
        newer[field] = 0x7f;
        reseal(&mut newer);
        let error = S::decode(&newer).unwrap_err();
        assert!(matches!(error.kind, DecodeErrorKind::Unsupported { found: 0x7f, .. }), "{error}");
    }
    for number in 0..sketch.parameters().len() {
        for value in [0, 1, 2, 3, 63, 64, 65, 1 << 20, 1 << 32, 1 << 48, 1 << 60, u64::MAX - 1, u64::MAX] {
            let mut other = bytes.clone();
            other[48 + 8 * number..][..8].copy_from_slice(&value.to_le_bytes());
            reseal(&mut other);
            if let Ok(decoded) = S::decode(&other) {
                assert_eq!(decoded.encode(), other);
            }
        }
    }
    let parameters_end = 48 + 8 * sketch.parameters().len();
    let mut more = bytes.clone();
    more.splice(parameters_end..parameters_end, [0; 8]);
    more[10..12].copy_from_slice(&(parameters_end as u16 + 8).to_le_bytes());
    reseal(&mut more);
    let error = S::decode(&more).unwrap_err();
    assert!(error.to_string().contains("sketch parameters"), "{error}");
    let mut other = bytes;
    other[32] = if other[32] == 1 { 2 } else { 1 };
    reseal(&mut other);
    S::decode(&other).unwrap_err();
}
