//! The filter of a table on disk: in the table's file or in a separate file.
//!
//! | file | what is in it |
//! |---|---|
//! | `block` | which filter a table gets, and how its block is made |
//! | `file` | the file of a filter beside its table |
//! | `location` | where a filter block lies |
//! | `pages` | a filter that is probed page by page |
//! | `source` | reads of a filter block: whole, some column groups, or for probing by pages |

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
