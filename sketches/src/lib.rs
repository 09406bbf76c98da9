//! The relatives of the Bloom filter: approximate answers with stated errors.
//!
#![doc = include_str!("../README.md")]
//! # Choosing a structure
//!
//! | need | structure | can err on |
//! |---|---|---|
//! | membership in a growing set | [`Bloom`] | absent keys |
//! | membership, with removals | [`Counting`] | absent keys |
//! | the same in half the space, until it is full | [`DLeft`] | absent keys |
//! | the same in a quarter, for keys inserted once, until it is full | [`Cuckoo`] | absent keys |
//! | membership in a set of unknown size | [`Scalable`] | absent keys |
//! | keys seen within a time | [`Ring`], [`Expiring`] | absent keys |
//! | keys seen recently, in constant memory | [`Stable`] | both sides |
//! | number of insertions of a key | [`Spectral`] | either side, by method |
//! | visited states, in a few bits per state | [`HashCompaction`] | states not visited |
//! | a complete set in the fewest bytes, to send or store, block by block | [`GolombSet`] | absent keys |
//! | a small value for every key of a complete set | [`StaticMap`] | absent keys |
//! | the greatest value inserted with a key | [`Approximator`] | all keys, upwards |
//! | the difference of two sets, up to a known size | [`Iblt`] | never: a list or none |
//! | the difference of two sets, of any size | [`Rateless`] | never: a list or none |
//! | the size of a difference | [`DifferenceSize`] | by some per cent |
//! | most keys that another set lacks, from its Bloom filter | [`certainly_missing()`] | lacking keys |
//! | the keys of another process | [`Digest`] | absent keys |
//!
//! # Structures not included
//!
//! - **Retouched Bloom filters** (Donnet, Baynat, Friedman 2006) clear bits to trade false positives for false negatives.
//!   Clearing random bits loses at least as large a share of the keys. Use [`Stable`], [`Ring`], or an exact list of false
//!   positives.
//! - **Hierarchical Bloom filters** (Shanmugasundaram, Brönnimann, Memon 2004) hold (block, offset) of a text, as a [`Bloom`]
//!   can. As range filters, Rosetta and Grafite supersede them.
//!
//! # Layout of a structure
//!
//! Every structure is one file of `src/` with parts as in [`bloom`](Bloom).
//!
//! 1. **Header** (`//!`): algorithm, formula of the error, source. The type has the headings *Guarantees*, *Cost*, *When not to
//!    use it*, and an example.
//! 2. **Constructors** from known quantities (`with_rate(keys, rate, seed)`, `with_memory(keys, bytes, seed)`) and raw parameters
//!    (`with_shape(.., seed)`). [`arithmetic`] computes sizes; a new formula has a published value as its test.
//! 3. **Operations** in pairs: `insert` hashes by [`hash::key_hash`]; `insert_hash` passes that hash once through
//!    [`hash::spread`] or [`hash::nth`] and places keys by the high bits ([`hash::reduce`]). A probe with false positives is
//!    called `contains`. Insertion takes `&self` where it only sets bits or raises values.
//! 4. **Rates**: `predicted_rate()` of the contents, `expected_rate(..)` by formula.
//! 5. **[`Sketch`]** encodes and decodes [`Kind`], parameters and body: little-endian integers, rates in units of 2^-64.
//!    `from_parts` receives verified bytes, and checks parameters and body length *before* it allocates.
//! 6. **Tests**: `testing::check_codec`; quickcheck against an exact model; the measured rate (`testing::assert_rate`).
//!
//! A structure also has:
//!
//! - a chapter of `format.md` with a vector, its check in `format_vectors.rs`, and `tests/golden/v1/NAME.bin`;
//! - an arm of [`describe()`];
//! - a fuzz function in `fuzzing/`, its seed in `fuzzing/replay.rs`, `fuzz/fuzz_targets/sketch_NAME.rs`, and an entry in
//!   `fuzz/Cargo.toml`.

#![cfg_attr(
    any(test, fuzzing),
    allow(clippy::disallowed_methods, reason = "tests spell out keys and the bytes that they expect")
)]

mod approximator;
pub mod arithmetic;
mod bloom;
mod cell;
mod cells;
mod counting;
mod cuckoo;
mod describe;
mod difference_size;
mod digest;
mod dleft;
mod envelope;
mod error;
mod exchange;
mod expiring;
#[cfg(test)]
mod format_vectors;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod golomb;
pub mod hash;
mod hash_compaction;
mod iblt;
mod leap;
mod probes;
mod rateless;
mod ring;
mod scalable;
mod sketch;
mod spectral;
mod stable;
mod static_map;
#[cfg(feature = "store")]
pub mod store;
#[cfg(test)]
mod testing;

pub use approximator::{Approximator, Flags, Lattice, Max};
pub use bloom::Bloom;
pub use cell::Difference;
pub use counting::{Counting, overflow_probability};
pub use cuckoo::Cuckoo;
pub use describe::describe;
pub use difference_size::DifferenceSize;
pub use digest::Digest;
pub use dleft::DLeft;
pub use envelope::{DecodeError, DecodeErrorKind, FORMAT_VERSION, FileId, Kind, MAGIC};
pub use error::Error;
pub use exchange::certainly_missing;
pub use expiring::Expiring;
pub use golomb::GolombSet;
pub use hash_compaction::HashCompaction;
pub use iblt::Iblt;
pub use probes::Hashing;
pub use rateless::{Decoder, Rateless};
pub use ring::Ring;
pub use scalable::Scalable;
pub use sketch::{Sketch, Summary};
pub use spectral::{Method, Spectral};
pub use stable::Stable;
pub use static_map::StaticMap;
