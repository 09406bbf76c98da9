//! Tests of whole repositories, one module per topic.

#![expect(clippy::disallowed_methods, reason = "tests spell out keys and the bytes that they expect")]

mod backups;
mod common;
mod damage;
mod golden;
mod losses;
mod others;
mod pruning;
mod stress;
#[path = "../../tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the tests of the store, which use all of it")]
mod support;
