//! Tests of the whole store, one module per topic.

mod basics;
mod crash;
mod order;
mod support;
