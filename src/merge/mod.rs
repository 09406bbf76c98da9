//! Merges many internal iterators: across sources ([`MergeIter`]), and along the tables of a run ([`RunIter`]).

mod merge_iter;
mod run_iter;
#[cfg(test)]
pub(crate) mod vec_iter;

pub(crate) use merge_iter::MergeIter;
pub(crate) use run_iter::{RunIter, RunSource};
