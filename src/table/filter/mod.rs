//! The filter of a table on disk.

mod block;
mod file;
mod location;
mod pages;
mod source;

pub(crate) use block::Verdict;
pub(super) use block::{describe, finish_filter, start_filter};
pub(crate) use file::{FILTER_OFFSET, write_filter_file};
#[cfg(test)]
pub(super) use file::{check_filter_file, open_filter_file};
pub(crate) use pages::FilterPages;
pub(crate) use source::{FilterSource, read_filter_of};
