//! The table file: sorted entries that never change, their index, their filter, and their properties.
//!
//! ```text
//! file header · data and value-chunk blocks · padding · filter block · index blocks · properties · footer
//! 64 bytes                                   to 4 KiB   own format                               128 bytes
//! ```
//!
//! - [`TableWriter`] takes internal keys in ascending order, writes a file, and returns its [`TableMeta`].
//! - [`Table`] opens such a file and serves [`Table::get`] and [`Table::iter`]. It keeps the root of the
//!   index and the properties in memory. [`FilterSource`] reads its filter, whole or in part.
//! - [`Table::build_filter`] and [`write_filter_file`] build a new filter for it, in a separate file.
//! - [`TableContext`] is what all tables of a store share: file system, caches, counters.
//!
//! Every byte of the file is covered by a checksum: the header's, a block's, the filter's or the footer's.
//! The manifest has the footer's checksum. Blocks are checked when they are read, so that opening a table is
//! cheap and damage is reported where it lies.
//!
//! [`TableMeta`]: crate::table_meta::TableMeta

mod context;
mod file;
mod filter;
mod footer;
mod index;
mod iter;
mod new_filter;
mod open;
pub(crate) mod origin;
pub(crate) mod properties;
mod read_ahead;
mod reader;
mod value;
mod writer;

#[cfg(test)]
pub(crate) mod format_vectors;
#[cfg(test)]
mod tests;

pub use crate::block::Compression;
pub(crate) use context::{FilterTrust, TableContext, TableIo};
pub(crate) use filter::{
    FILTER_OFFSET, FilterPages, FilterSource, Verdict, read_filter_of, write_filter_file,
};
pub(crate) use footer::{FOOTER_BYTES, Footer};
pub(crate) use iter::TableIter;
pub(crate) use open::with_full_bounds;
pub(crate) use origin::{EARLIER_MAX, Origin};
pub(crate) use properties::Properties;
pub(crate) use reader::Table;
pub(crate) use writer::{APPEND_BYTES, TableConfig, TableWriter};
