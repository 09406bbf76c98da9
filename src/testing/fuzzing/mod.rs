//! The functions that the fuzzer and `cargo test` run: a function of bytes for each kind of decoded data.
//!
//! This module exists only under `cfg(fuzzing)`, which cargo-fuzz sets, and in tests; no build for users has
//! it. The decoders are private, and only this module gives access to them; `fuzz/fuzz_targets/` has one line
//! for each target.
//!
//! # How a target is made
//!
//! A target takes any bytes and returns, or panics if the code under test broke a promise; not to crash is
//! the least of them. Each module states its strategy and its invariants. Random bytes are rejected at the
//! first checksum, so the first byte of an input chooses a mode: *raw* as it is, with a valid header
//! *prepended*, with all checksums *resealed*, or *built* by the writer from a description and then damaged.
//! Damage that is not resealed is at most four bytes in one place: a CRC-32 always detects that, so a wrong
//! answer is never chance.
//!
//! # Seeds and findings
//!
//! Seeds are made from the golden files, see `seeds`, and not committed: `SIEVEDB_SEEDS=1 cargo test -p sievedb --lib
//! fuzzing` writes them to `fuzz/corpus`. Small inputs that the fuzzer found are in `tests/corpus/TARGET`, each with
//! a line in `replay` that describes the defect. `cargo test` runs all seeds and findings.

mod batch;
mod block;
mod dump;
mod log;
mod manifest;
mod ops;
#[cfg(test)]
mod replay;
mod seal;
#[cfg(test)]
mod seeds;
mod store;
mod table;

pub use crate::filter::fuzzing::filter;
pub use batch::run as batch;
pub use block::{data as data_block, index as index_block};
pub use dump::run as dump;
pub use log::run as log;
pub use manifest::run as manifest;
pub use ops::run as ops;
pub use store::run as store;
#[cfg(test)]
pub(crate) use table::faults as faults_of_table;
pub use table::run as table;
