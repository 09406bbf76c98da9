//! Shared parts of the damage, crash and fault tests.

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
