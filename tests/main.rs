//! Tests of the whole store, one module per topic.

mod basics;
mod crash;
mod damage;
mod faults;
#[cfg(unix)]
mod kill;
mod model;
mod order;
mod support;
