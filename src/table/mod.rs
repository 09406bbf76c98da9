//! The table file: sorted entries that never change, their index, their filter, and what they add up to.
//!
//! ```text
//! file header · data and value-chunk blocks · padding · filter block · index blocks · properties · footer
//! 64 bytes                                   to 4 KiB   own format                               128 bytes
//! ```
//!
//! - [`TableWriter`] is fed internal keys in ascending order and makes a file and its [`TableMeta`].
//! - [`Table`] opens such a file and answers [`Table::get`] and [`Table::iter`]. It holds in memory the root
//!   of the index and the properties. [`FilterSource`] reads its filter, as much as it is told.
//! - [`Table::build_filter`] and [`write_filter_file`] make it a new filter, in a file beside it.
//! - [`TableContext`] is what all tables of a store share: file system, caches, counters.
//!
//! Every byte of the file is covered by a checksum: the header's, a block's, the filter's own or the
//! footer's; and the footer's stands in the manifest. Blocks are checked when they are read, so that a table
//! costs nothing to open and damage is met, and named, where it lies.
//!
//! [`TableMeta`]: crate::table_meta::TableMeta

mod context;
mod file;
mod filter_block;
mod filter_file;
mod filter_location;
mod filter_pages;
mod filter_source;
mod footer;
mod index_builder;
mod iter;
mod open;
mod properties;
mod reader;
mod value;
mod writer;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod vectors;

pub use crate::block::Compression;
pub(crate) use context::{FilterTrust, TableContext, TableIo};
pub(crate) use filter_block::Verdict;
pub(crate) use filter_file::{FILTER_OFFSET, write_filter_file};
pub(crate) use filter_pages::FilterPages;
pub(crate) use filter_source::{FilterSource, read_filter_of};
pub(crate) use footer::{FOOTER_BYTES, Footer};
pub(crate) use open::with_full_bounds;
pub(crate) use properties::Properties;
pub(crate) use reader::Table;
pub(crate) use writer::{APPEND_BYTES, TableConfig, TableWriter};
