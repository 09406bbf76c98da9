//! The location of a filter block: in its table's file or in a separate file.

use std::path::PathBuf;
use std::sync::Arc;

use super::file::open_filter_file;
use crate::error::Result;
use crate::filename::FileName;
use crate::fs::ReadFile;
use crate::table::context::TableContext;
use crate::table::file::{TableFile, open_file};
use crate::table_meta::FilterRef;

#[derive(Debug)]
pub(super) struct FilterLocation {
    pub(super) number: u64,
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    is_beside: bool,
}

impl FilterLocation {
    pub(super) fn of(file: &TableFile, filter: &FilterRef) -> Self {
        let (number, path) = match filter.file {
            Some(number) => (number, FileName::Filter(number).path(&file.ctx.dir)),
            None => (file.number, file.path.clone()),
        };
        Self { number, path, offset: filter.offset, is_beside: filter.file.is_some() }
    }

    pub(super) fn open(&self, ctx: &TableContext) -> Result<Arc<dyn ReadFile>> {
        let open = if self.is_beside { open_filter_file } else { open_file };
        ctx.files.get_or_open(self.number, || open(ctx, &self.path))
    }
}
