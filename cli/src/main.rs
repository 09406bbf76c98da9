//! Works on a store.
fn main() {}
