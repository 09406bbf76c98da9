//! Tests of the whole store, one module per topic.

mod basics;
mod crash;
mod damage;
mod faults;
mod order;
mod support;
