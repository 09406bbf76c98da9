//! The relatives of the Bloom filter: small structures that answer queries about a set approximately, with
//! stated errors.
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
//! - **Retouched Bloom filters** (Donnet, Baynat, Friedman 2006) clear bits to trade false positives for
//!   false negatives. Clearing random bits loses at least as large a share of the keys as it removes of the
//!   false positives, and choosing the bits well needs the keys. If false negatives are acceptable, use a
//!   filter with expiring keys ([`Stable`], [`Ring`]). If the false positives are known, keep a small exact
//!   list of them next to the filter.
//! - **Hierarchical Bloom filters** (Shanmugasundaram, Brönnimann, Memon 2004) hold the blocks of a text with
//!   their offsets, at doubling sizes, to find excerpts. They are several Bloom filters with an insertion
//!   rule; inserting (block, offset) into a [`Bloom`] does the same. As range filters they are superseded by
//!   filters that need no more space for adjacent keys (Rosetta, Grafite).
//!
//! # Layout of a structure
//!
//! Every structure is one file of `src/`, with the same parts in the same order; [`bloom`](Bloom) is the
//! model.
//!
//! 1. **The header** (`//!`): the algorithm in steps, the formula of its error, the source (paper, section).
//!    The type has the headings *Guarantees* (certain answers, possible errors and their side), *Cost* (time,
//!    space), *When not to use it*, and an example.
//! 2. **Constructors**: from known quantities (`with_rate(keys, rate, seed)`, `with_memory(keys, bytes,
//!    seed)` or similar) and from the raw parameters (`with_shape(.., seed)`). All check their arguments and
//!    return [`Error`]. Sizes are computed in [`arithmetic`]; a new formula goes there, with a published
//!    value as its test.
//! 3. **Operations** in pairs: `insert(&impl AsRef<[u8]>)` hashes by [`hash::key_hash`] with the structure's
//!    seed; `insert_hash(u64)` takes that hash. The structure passes the hash once through [`hash::spread`]
//!    or [`hash::nth`] and places keys by its high bits ([`hash::reduce`]: any size, no division). A probe
//!    that can report an absent key as present is called `contains`. An operation that returns an [`Error`]
//!    has changed nothing. Atomic insertion through `&self` is possible where a key sets bits or raises
//!    values ([`Bloom`], [`Ring`], [`Expiring`], [`Approximator`]): no order of the writes loses one. The
//!    other structures have cells that are not whole bytes, move entries of other keys, or decide by several
//!    cells at once. They need a lock.
//! 4. **Rates**: `predicted_rate()` of the current contents, `expected_rate(..)` by the formula.
//! 5. **[`Sketch`]**: encodes and decodes the kind ([`Kind`], append only), the parameters and the body. All
//!    numbers on disk are little-endian integers; a rate is stored in units of 2^-64
//!    ([`arithmetic::rate_to_bits`]). `from_parts` receives an intact header and a body of the stated length.
//!    It checks every parameter, and the body's length against the parameters *before* it allocates. Only
//!    `envelope.rs` uses the codec of the filter crate.
//! 6. **Tests**: `testing::check_codec` (round trip, every flipped bit, every truncation, newer versions);
//!    quickcheck properties against an exact model; the measured rate against the formula
//!    (`testing::assert_rate`).
//!
//! A structure also has:
//!
//! - a chapter of `format.md` with the parameters, the placement of a key and a vector; the vector's name and
//!   check are in `format_vectors.rs`, and `SIEVEDB_BLESS=1 cargo test -p sievedb-sketches vectors` writes
//!   `tests/golden/v1/NAME.bin`;
//! - an arm of [`describe()`], enforced by the compiler;
//! - a fuzz function in `fuzzing/`, its seed in `fuzzing/replay.rs`, a line in
//!   `fuzz/fuzz_targets/sketch_NAME.rs` and an entry in `fuzz/Cargo.toml`. The function runs the decoder
//!   (`fuzzing::decoder`) and compares operations with an exact model.

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
