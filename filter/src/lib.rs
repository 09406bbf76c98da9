//! Filters: a few bits per key in memory identify most absent keys.
//!
//! A filter is built once from key hashes, stored as a block, and probed. The answer "absent" is certain; "maybe" is
//! not.
//!
//! ```
//! use sievedb_filter::{Expect, Filter, FilterBuilder, Kind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let seed = 7; // keys are hashed with it
//! let salt = 11; // another number for each filter
//! let owner = [42; 16]; // names the set of keys, such as a file
//! let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, seed, salt, owner)?;
//! builder.add_key(b"apple");
//! builder.add_key(b"banana");
//! let bytes = builder.finish()?;
//!
//! // The reader knows owner, seed and number of keys; the last is in `Header::decode(&bytes)?.key_count` too.
//! let filter = Filter::open(&bytes, Expect::table(owner, seed, 2))?;
//! assert!(filter.may_contain_key(b"apple"));
//! assert!(filter.predicted_rate() < 0.01);
//! # Ok(())
//! # }
//! ```
//!
//! # How to choose
//!
//! | kind | rate at 10 bits | bits for 1 % | size above the theoretical minimum | a query reads | to build | also |
//! |---|---|---|---|---|---|---|
//! | [`Kind::Bloom`] | 0.82 % | 9.59 | 44 % | a line for each bit tested, two for most absent keys | a line for each bit | any number of bits; union, intersection, estimate |
//! | [`Kind::BlockedBloom`] | 0.97 % | 9.90 | 49 % | one line | one line: the fastest | |
//! | [`Kind::Ribbon`] | 0.10 % | 6.74 | under 1 % | two lines and a byte | a linear system: the slowest | columns can be left out of memory |
//!
//! A *line* is a cache line of 64 bytes. Rates are computed; `docs/filter-rates.md` has measurements.
//!
//! - Memory or reads for absent keys are expensive: ribbon.
//! - The filter is built often and lives for minutes: blocked Bloom.
//! - Sets are to be united: Bloom.
//! - In a store: [`FilterKind::Auto`], which uses [`cost`].
//!
//! To probe many filters for one key, keep their [`Probe`]s in an array and prefetch all of them first. [`PagedFilter`]
//! probes a filter on disk.
//!
//! Sources: see [`FilterPlan::expected_rate`].
//!
//! # Modules
//!
//! | file | contents |
//! |---|---|
//! | `allocation` | how many bits each filter of a tree gets |
//! | `cost` | which kind costs least |
//! | `bits` | bits per key, and the rate of each kind with them |
//! | `policy` | the user's options, and the filter of a table that results from them |
//! | `builder` | `(add_hash)* finish`: hashes to bytes |
//! | `header` | the first 256 bytes of a block |
//! | `frozen` | the 40 bytes of the header that mean the same in every version |
//! | `section`, `layout` | a part of the body; the positions of all parts |
//! | `pages` | the checksums of the body, sealed and verified |
//! | `bloom`, `blocked` | positions of the bits and the rate, for one kind each |
//! | `ribbon` | the third kind, a folder |
//! | `arch` | the inner loops of a probe, one file per instruction set; bytes that start on a cache line |
//! | `reader` | verified bytes to a filter |
//! | `bit_test` | the trait that tests the bits of one kind |
//! | `probe` | the data of a probe, and the answers |
//! | `paged` | a filter on disk, probed a page at a time |
//! | `combine` | union and intersection of standard Bloom filters |
//! | `sizes` | sizes of the parts of a block, and the least possible size |
//!
//! # Invariants
//!
//! - Bytes are verified before they are probed.
//! - A filter without keys answers "absent" only if the caller expects a key count of 0.
//! - Equal sets of hashes give equal bytes on every machine.
//! - A probe cannot fail, panic, allocate or parse, and reads a bounded number of bits.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    test,
    allow(clippy::disallowed_methods, reason = "tests spell out keys and the bytes that they expect")
)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod codec;
mod error;
#[cfg(any(test, not(feature = "std")))]
mod float;
pub mod hash;

pub mod allocation;
mod arch;
mod bit_test;
mod bits;
mod blocked;
mod bloom;
mod builder;
mod combine;
pub mod cost;
#[cfg(any(test, fuzzing, feature = "testing"))]
#[doc(hidden)]
pub mod forge;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod format_vectors;
mod frozen;
#[cfg(any(test, fuzzing, feature = "testing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod header;
#[cfg(test)]
mod hostile;
mod layout;
mod paged;
mod pages;
mod policy;
mod probe;
mod reader;
mod ribbon;
mod section;
mod sizes;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;

pub use arch::AlignedBytes;
pub use bits::BITS_PER_KEY_MAX;
pub use builder::FilterBuilder;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use builder::fault_injection;
pub use checksum::FileId;
pub use codec::{DecodeError, DecodeErrorKind};
pub use combine::CombineError;
pub use error::FilterError;
pub use hash::{key_hash, table_hash};
pub use header::{Header, Kind};
pub use paged::PagedFilter;
pub use pages::Page;
pub use policy::{FilterAllocation, FilterKind, FilterPlan, FilterPolicy, FilterSize};
pub use probe::Probe;
pub use reader::{Expect, Filter};
pub use sizes::Sizes;
