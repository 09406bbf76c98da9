//! A filter beside its table: how it is built from the table's keys, and the file that holds it.
//!
//! ```text
//! file header · zeros · filter block
//! 64 bytes      to 4096 own format, to the end of the file
//! ```
//!
//! The block is the same as inside a table: its owner is the table's file id, and seed, salt and key count
//! are the same. The manifest makes it the table's current filter: it has the number of the file and the
//! checksum of the filter's header. Nothing else refers to the file id in the file header.
//!
//! A table never changes, so an older filter of it is as correct as the newest.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::checksum::FileId;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind, HEADER_BYTES};
use crate::filename::FileName;
use crate::filter::FilterPlan;
use crate::fs::{Fs, ReadFile};
use crate::hash::key_hash;
use crate::iter::InternalIterator;
use crate::table_meta::FilterRef;

use super::context::TableContext;
use super::file::read_exact;
use super::filter_block::{describe, finish_filter, start_filter};
use super::open::read_header;
use super::reader::Table;

/// Where the filter block starts.
pub(crate) const FILTER_OFFSET: u64 = 4096;

/// How many entries are read between two calls of `stop`.
const STOP_INTERVAL: u64 = 1024;

impl Table {
    /// Builds the filter block of the table from the keys in its data. Takes eight bytes per key, and what
    /// the filter kind needs to build; `stop` is called with the bytes in use so far.
    ///
    /// # Errors
    ///
    /// [`Error::Corruption`] or [`Error::Io`] if part of the table cannot be read; [`Error::Closed`] if
    /// `stop` returns `true`.
    pub(crate) fn build_filter(
        self: &Arc<Self>,
        plan: FilterPlan,
        stop: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<u8>> {
        let (file_id, seed) = (self.file.file_id, self.file.ctx.hash_seed);
        let mut filter = start_filter(plan, seed, file_id)?;
        let mut entries = self.iter(false);
        let (mut read, mut last) = (0, Vec::new());
        entries.seek_first()?;
        while let Some(key) = entries.key() {
            if read == 0 || key.user != last {
                filter.add_hash(key_hash(seed, key.user));
                last.clear();
                last.extend_from_slice(key.user);
            }
            read += 1;
            if read % STOP_INTERVAL == 0 && stop(filter.finish_bytes()) {
                return Err(Error::Closed);
            }
            entries.next()?;
        }
        if filter.len() as u64 != self.properties.keys {
            let detail = format!("the table says {}, its blocks hold {}", self.properties.keys, filter.len());
            return Err(self.file.corrupt(self.footer.properties.offset, "key count", detail));
        }
        if stop(filter.finish_bytes()) {
            return Err(Error::Closed);
        }
        finish_filter(filter)
    }
}

/// Writes a filter block into a new file and syncs it; the caller syncs the directory.
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

/// Opens the file of a filter that the manifest names.
pub(super) fn open_filter_file(ctx: &TableContext, path: &Path) -> Result<Arc<dyn ReadFile>> {
    match ctx.fs.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::corruption(path, 0, "filter file", "the manifest names it, but it is missing"))
        }
        opened => opened.map_err(|source| Error::io("open", path, source)),
    }
}

/// Checks that the file belongs to this store, and holds this filter block and nothing else.
pub(super) fn check_filter_file(
    ctx: &TableContext,
    file: &dyn ReadFile,
    path: &Path,
    filter: &FilterRef,
) -> Result<()> {
    let (len, _) = read_header(file, path, FileKind::Filter, &ctx.store_id)?;
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
