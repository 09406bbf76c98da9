//! One fuzz function per structure, run by the fuzzer and by `cargo test`. The first byte of an input chooses how the rest is
//! used:
//!
//! 0. *raw*: an encoded structure.
//! 1. *resealed*: the same with corrected lengths and checksums.
//! 2. *operations*: operations that an exact model repeats.
//!
//! Bytes are rejected, or decode to a structure that encodes to the same bytes. Memory is proportional to the input.

mod approximator;
mod bloom;
mod clocks;
mod counting;
mod cuckoo;
mod difference_size;
mod digest;
mod dleft;
mod golomb;
mod hash_compaction;
mod iblt;
mod input;
mod rateless;
#[cfg(test)]
mod replay;
mod static_map;
mod streams;

pub use approximator::run as approximator;
pub use bloom::run as bloom;
pub use clocks::{expiring, ring};
pub use counting::{counting, spectral};
pub use cuckoo::run as cuckoo;
pub use difference_size::run as difference_size;
pub use digest::run as digest;
pub use dleft::run as dleft;
pub use golomb::run as golomb;
pub use hash_compaction::run as hash_compaction;
pub use iblt::run as iblt;
pub use rateless::run as rateless;
pub use static_map::run as static_map;
pub use streams::{scalable, stable};

use crate::envelope::reseal;
use crate::sketch::Sketch;
use input::Input;

fn run<S: Sketch>(bytes: &[u8], operations: impl FnOnce(&mut Input<'_>)) {
    let mut input = Input::new(bytes);
    match input.below(3) {
        0 => decoder::<S>(input.rest()),
        1 => {
            let mut bytes = input.rest().to_vec();
            reseal(&mut bytes);
            decoder::<S>(&bytes);
        }
        _ => operations(&mut input),
    }
}

fn decoder<S: Sketch>(bytes: &[u8]) {
    let described = crate::describe(bytes);
    if let Ok(sketch) = S::decode(bytes) {
        let again = sketch.encode();
        // Dropped optional flags change the header checksum.
        assert!(
            again.len() == bytes.len() && again[38..] == bytes[38..],
            "decoded bytes encode to the same bytes"
        );
        assert_eq!(described.unwrap(), sketch.summary());
    }
}
