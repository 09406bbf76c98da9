//! The separate file of a filter.
//!
//! ```text
//! file header · zeros · filter block
//! 64 bytes      to 4096 own format, to the end of the file
//! ```
//!
//! The block has the same format as inside a table; its owner is the table's file id. The manifest has the file's
//! number and the checksum of the filter's header. An older filter of the table remains correct, because tables are
//! immutable.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::checksum::FileId;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::filename::FileName;
use crate::fs::{Fs, ReadFile};
use crate::table_meta::FilterRef;

use super::block::describe;
use crate::table::context::TableContext;
use crate::table::file::{read_exact, read_header};

pub(crate) const FILTER_OFFSET: u64 = 4096;

/// Syncs the file; the caller syncs the directory.
pub(crate) fn write_filter_file(
    fs: &dyn Fs,
    dir: &Path,
    number: u64,
    [store_id, file_id]: [FileId; 2],
    block: &[u8],
) -> Result<FilterRef> {
    let path = FileName::Filter(number).path(dir);
    let filter =
        describe(Some(number), FILTER_OFFSET, block).map_err(|error| error.in_file(&path, FILTER_OFFSET))?;
    let mut head = FileHeader::new(FileKind::Filter, store_id, file_id).encode().to_vec();
    head.resize(FILTER_OFFSET as usize, 0);
    let file = fs.create(&path).map_err(|source| Error::io("create", &path, source))?;
    let append = |bytes: &[u8]| file.append(bytes).map_err(|source| Error::io("append", &path, source));
    append(&head)?;
    append(block)?;
    file.sync().map_err(|source| Error::io("sync", &path, source))?;
    Ok(filter)
}

pub(in crate::table) fn open_filter_file(ctx: &TableContext, path: &Path) -> Result<Arc<dyn ReadFile>> {
    match ctx.fs.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::corruption(path, 0, "filter file", "the manifest names it, but it is missing"))
        }
        opened => opened.map_err(|source| Error::io("open", path, source)),
    }
}

pub(in crate::table) fn check_filter_file(
    ctx: &TableContext,
    file: &dyn ReadFile,
    path: &Path,
    filter: &FilterRef,
) -> Result<()> {
    let (len, _) = read_header(file, path, FileKind::Filter, &ctx.store_ids)?;
    if filter.offset != FILTER_OFFSET || filter.offset.checked_add(filter.len) != Some(len) {
        let detail = format!("{} bytes at {} do not match a file of {len} bytes", filter.len, filter.offset);
        return Err(Error::corruption(path, filter.offset, "filter handle", detail));
    }
    let padding = read_exact(file, path, HEADER_BYTES as u64, FILTER_OFFSET - HEADER_BYTES as u64)?;
    match padding.iter().position(|&byte| byte != 0) {
        None => Ok(()),
        Some(at) => {
            let offset = (HEADER_BYTES + at) as u64;
            Err(Error::corruption(path, offset, "filter file padding", "is not zero"))
        }
    }
}
