//! Filters: a few bits per key, kept in memory, that prove most absent keys absent.
//!
//! A filter is built once from the 64-bit hashes of a table's user keys, written as one self-describing
//! block, and asked ever after. It answers "absent" (then it is certain) or "maybe". The module stands on
//! its own: it turns hashes into bytes and bytes into answers, and knows nothing of files and tables.
//!
//! ```
//! use sievedb::filter::{Expect, Filter, FilterBuilder, Kind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (seed, salt, owner) = (7, 11, [42; 16]);
//! let mut builder = FilterBuilder::new(Kind::Bloom, 10.0, seed, salt, owner)?;
//! builder.add_key(b"apple");
//! builder.add_key(b"banana");
//! let bytes = builder.finish()?;
//!
//! let filter = Filter::open(&bytes, Expect::table(owner, seed, 2))?;
//! assert!(filter.may_contain_key(b"apple"));
//! assert!(filter.predicted_rate() < 0.01);
//! # Ok(())
//! # }
//! ```
//!
//! # Who does what
//!
//! | file | noun |
//! |---|---|
//! | `allocation` | how many bits each filter of a tree gets |
//! | `policy` | what the user asks for, and what that means on a level |
//! | `builder` | `(add_hash)* finish`: hashes to bytes |
//! | `header` | the first 256 bytes of a block |
//! | `frozen` | those 40 of them that mean the same in every version |
//! | `layout` | where the rest of the block lies |
//! | `pages` | the checksums of the body, sealed and verified |
//! | `bloom`, `blocked` | one kind each: where its bits are, what its rate is |
//! | `ribbon` | the third kind: a folder of its own |
//! | `arch` | the inner loops of a query, one file per instruction set |
//! | `reader` | verified bytes to answers |
//! | `aligned` | bytes in memory that start on a cache line |
//!
//! # Invariants
//!
//! - Bytes are queried only after every one of them has been verified, padding included.
//! - "Absent" is never concluded from a length: emptiness is a key count of 0 that the caller confirms.
//! - Equal hashes in any order give equal bytes, on every machine.
//! - A query cannot fail, panic, allocate or parse; it reads a bounded number of bits.

mod aligned;
pub mod allocation;
mod arch;
mod blocked;
mod bloom;
mod builder;
mod frozen;
pub mod header;
mod layout;
mod pages;
mod policy;
mod reader;
mod ribbon;
#[cfg(test)]
pub(crate) mod vectors;

pub use aligned::AlignedBytes;
pub use builder::FilterBuilder;
pub use header::{Header, Kind};
pub use policy::{BITS_PER_KEY_MAX, FilterAllocation, FilterKind, FilterPlan, FilterPolicy, FilterSize};
pub use reader::{Expect, Filter, Probe};
