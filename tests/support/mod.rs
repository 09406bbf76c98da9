//! Shared parts of the damage, crash and fault tests.
//!
//! | file | noun |
//! |---|---|
//! | `rng` | numbers from a seed |
//! | `store` | small stores in memory, and reading them in every way |
//! | `history` | the possible contents of a store after a crash |
//! | `workload` | a mix of operations that follows from a seed and keeps a history |
//! | `sample` | the cases that are run |
//! | `faulty` | a file system whose operations fail without effect, with half of it, or with all |
//! | `hooked` | a file system that calls a hook before every operation of a reader |
//! | `audit` | the order of file operations that is never broken |
//! | `copies` | stores to copy, and copies that must be sound |
//! | `parallel` | many cases on all processors |

pub(crate) mod audit;
pub(crate) mod copies;
pub(crate) mod faulty;
pub(crate) mod history;
pub(crate) mod hooked;
pub(crate) mod parallel;
pub(crate) mod rng;
pub(crate) mod sample;
pub(crate) mod store;
pub(crate) mod workload;
