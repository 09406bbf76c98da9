#![doc = include_str!("../README.md")]
//!
//! # Files
//!
//! | file | noun |
//! |---|---|
//! | `names` | every metric: its name, kind, unit and meaning |
//! | `reporter` | one report: from `Stats` to the facade |
//! | `polling` | a thread that reports at an interval |

mod names;
mod polling;
mod reporter;

pub use polling::Polling;
pub use reporter::Reporter;
