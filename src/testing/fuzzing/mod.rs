//! The fuzz targets, one for each kind of decoded data. Both the fuzzer and `cargo test` run them. They exist only in
//! tests and under `cfg(fuzzing)`; `fuzz/fuzz_targets/` has one line for each target.
//!
//! A target accepts any bytes and panics if an invariant is violated. The first byte of an input chooses a mode: *raw*,
//! with a valid header *prepended*, with all checksums *resealed*, or *built* by the writer from a description and then
//! damaged. Damage that is not resealed is at most four bytes in one place, which a CRC-32 always detects.
//!
//! Seeds (`seeds`) are not committed; findings are in `tests/corpus/TARGET`, each with a line in `replay`. `cargo test`
//! runs all of them; CONTRIBUTING.md has the commands.

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
