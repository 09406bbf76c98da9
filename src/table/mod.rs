//! The table file: sorted entries that never change, their index, their filter, and their properties.
//!
//! ```text
//! file header · data and value-chunk blocks · padding · filter block · index, span blocks · properties · footer
//! 64 bytes                                   to 4 KiB   own format                                     128 bytes
//! ```
//!
//! - [`TableWriter`] writes entries in key order and returns a [`TableMeta`](crate::table_meta::TableMeta).
//! - [`Table`] opens a file for [`Table::get`] and [`Table::iter`].
//! - [`FilterSource`] reads its filter; [`Table::build_filter`] and [`write_filter_file`] make a new one.
//!
//! The checksums of header, blocks, filter and footer cover every byte; the manifest stores the footer's checksum.
//! Blocks are checked when they are read, so opening a table is cheap.

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
