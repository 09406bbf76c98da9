//! Opens a table, from the outside in.
//!
//! 1. The file header has the kind of a table and the store's id.
//! 2. The file's length and id equal the manifest's.
//! 3. The footer is intact; its checksum equals the manifest's.
//! 4. The properties agree with the footer and the manifest.
//! 5. If the table has entries, the index root is read.
//!
//! One read of [`TAIL_BYTES`] usually covers footer, properties and root.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use crate::block::{BlockHandle, BlockIter, BlockKind, BlockValues};
use crate::codec::DecodeError;
use crate::error::{Error, InFile, Result};
use crate::file_header::{FileHeader, FileKind};
use crate::filename::FileName;
use crate::fs::ReadFile;
use crate::memory::LeaseKind;
use crate::spans::block::SpanReader;
use crate::spans::{Spans, SpansBuilder};
use crate::table_meta::TableMeta;

use super::context::TableContext;
use super::file::{TableFile, open_file, read_exact, read_header};
use super::footer::{FOOTER_BYTES, Footer};
use super::index::Index;
use super::origin::Origin;
use super::properties::Properties;
use super::reader::{Table, TableLeases};

impl Table {
    /// # Errors
    ///
    /// [`Error::Corruption`] if the file is damaged or foreign, [`Error::Unsupported`] if it is newer,
    /// [`Error::Io`] if it cannot be read. Damage to a filter is not an error.
    pub(crate) fn open(ctx: &Arc<TableContext>, meta: Arc<TableMeta>) -> Result<Arc<Self>> {
        let path = FileName::Table(meta.number).path(&ctx.dir);
        let unverified = UnverifiedTable::read(ctx, meta.number, &path)?;
        if unverified.len != meta.len {
            let detail = format!("expected {}, found {}", meta.len, unverified.len);
            return Err(Error::corruption(&path, meta.len.min(unverified.len), "file length", detail));
        }
        if unverified.file.file_id != meta.file_id {
            return Err(Error::corruption(&path, 32, "file id", "differs from the manifest"));
        }
        let (file, tail, footer, checksum) = unverified.read_footer()?;
        if checksum != meta.footer_checksum {
            let detail = format!("expected {:08x}, found {checksum:08x}", meta.footer_checksum);
            return Err(Error::corruption(&path, file.blocks_end, "footer checksum", detail));
        }
        // Only repair needs the origin.
        let properties = Properties { origin: None, ..read_properties(&file, &footer, &tail)? };
        let at = footer.properties.offset;
        properties.agree_with(&meta).map_err(|error| file.error_in_block(error, at))?;
        let root = if footer.has_entries() { read_root(&file, &footer, &tail)? } else { Bytes::new() };
        let lease = ctx.memory.try_lease_open_table(Self::bytes_of(&meta));
        let has_room = lease.is_some();
        let lease_root = || ctx.memory.try_lease(LeaseKind::Tables, root.len() as u64);
        let root_lease = if has_room { lease_root() } else { None };
        // A table without room is closed soon, so it keeps its root without a lease.
        let root = (!has_room || root_lease.is_some()).then_some(root);
        let bytes = Self::bytes_of(&meta) + root.as_ref().map_or(0, |root| root.len() as u64);
        let held = (!has_room).then(|| ctx.memory.hold(bytes));
        let leases = TableLeases { table: lease, _root: root_lease, _held: held };
        let index = Index::new(root, has_room);
        Ok(Arc::new(Self { file: Arc::new(file), properties, footer, index, leases }))
    }

    pub(crate) fn read_spans(&self) -> Result<Spans> {
        let Some(stated) = &self.properties.spans else { return Ok(Spans::default()) };
        let (mut reader, mut spans) = (SpanReader::default(), SpansBuilder::default());
        for &handle in &stated.blocks {
            let read = &mut || self.file.read(handle.offset, handle.len);
            let payload = self.file.read_block(handle, BlockKind::Spans, read)?;
            let key = |range: &Range<usize>| Arc::from(&payload[range.clone()]);
            let read = reader.read::<DecodeError>(&payload, &mut |span| {
                let end = (!span.end.is_empty()).then(|| key(&span.end));
                spans.push(&key(&span.start), end.as_ref(), span.seqnos);
                Ok(())
            });
            read.map_err(|error| self.file.error_in_block(error, handle.offset))?;
        }
        let spans = spans.finish();
        let end = spans.end().flatten().map_or(&[][..], |end| &**end);
        let is_stated = reader.totals().count == stated.count
            && reader.totals().deletes == stated.deletes
            && spans.start().is_some_and(|start| **start == *stated.start)
            && *end == *stated.end;
        match is_stated {
            true => Ok(spans),
            false => Err(self.file.corrupt(stated.blocks[0].offset, "spans", "differ from the properties")),
        }
    }

    pub(crate) fn bytes_of(meta: &TableMeta) -> u64 {
        (TABLE_BYTES + 2 * (meta.smallest.len() + meta.largest.len())) as u64
    }

    /// Whether memory allows the table to stay open.
    pub(crate) fn has_room(&self) -> bool {
        self.leases.table.is_some()
    }

    pub(crate) fn read_origin(&self) -> Result<Option<Origin>> {
        Ok(read_properties(&self.file, &self.footer, &Tail::default())?.origin.map(|origin| *origin))
    }

    pub(crate) fn read_meta(ctx: &Arc<TableContext>, number: u64, path: &Path) -> Result<TableMeta> {
        let unverified = UnverifiedTable::read(ctx, number, path)?;
        let len = unverified.len;
        let (file, tail, footer, checksum) = unverified.read_footer()?;
        Ok(read_properties(&file, &footer, &tail)?.to_meta(number, file.file_id, len, checksum))
    }
}

pub(crate) fn with_full_bounds(ctx: &Arc<TableContext>, meta: &Arc<TableMeta>) -> Result<TableMeta> {
    let table = Table::open(ctx, Arc::clone(meta))?;
    let whole = table.properties.to_meta(meta.number, meta.file_id, meta.len, meta.footer_checksum);
    Ok(TableMeta { filters: meta.filters.clone(), ..whole })
}

struct UnverifiedTable {
    source: Arc<dyn ReadFile>,
    len: u64,
    file: TableFile,
}

impl UnverifiedTable {
    fn read(ctx: &Arc<TableContext>, number: u64, path: &Path) -> Result<Self> {
        let source = ctx.files.get_or_open(number, || open_file(ctx, path))?;
        let (len, FileHeader { file_id, .. }) = read_header(&*source, path, FileKind::Table, &ctx.store_ids)?;
        let blocks_end = len.saturating_sub(FOOTER_BYTES as u64);
        let file = TableFile { ctx: Arc::clone(ctx), number, path: path.to_path_buf(), file_id, blocks_end };
        Ok(Self { source, len, file })
    }

    fn read_footer(self) -> Result<(TableFile, Tail, Footer, u32)> {
        let Self { source, len, file } = self;
        let read = |start| -> Result<Tail> {
            Ok(Tail { start, bytes: read_exact(&*source, &file.path, start, len - start)? })
        };
        let (start, end) = (len.saturating_sub(TAIL_BYTES), file.blocks_end);
        let tail = match read(start) {
            // If the tail cannot be read, the footer alone may suffice.
            Err(Error::Io { .. }) if start < end => read(end)?,
            tail => tail?,
        };
        let bytes = tail.bytes.get((end - tail.start) as usize..).unwrap_or_default();
        let footer = Footer::decode(bytes, &file.file_id, len);
        let (footer, checksum) = footer.map_err(|error| error.in_file(&file.path, end))?;
        Ok((file, tail, footer, checksum))
    }
}

#[derive(Default)]
struct Tail {
    start: u64,
    bytes: Vec<u8>,
}

impl Tail {
    fn block(&self, file: &TableFile, handle: BlockHandle, kind: BlockKind) -> Result<Bytes> {
        let here = || {
            let start = usize::try_from(handle.offset.checked_sub(self.start)?).ok()?;
            self.bytes.get(start..)?.get(..usize::try_from(handle.len).ok()?)
        };
        file.read_block(handle, kind, &mut || {
            here().map_or_else(|| file.read(handle.offset, handle.len), |sealed| Ok(sealed.to_vec()))
        })
    }
}

fn read_root(file: &TableFile, footer: &Footer, tail: &Tail) -> Result<Bytes> {
    let root = tail.block(file, footer.root, BlockKind::Index)?;
    let checked = BlockIter::new(root.clone(), BlockValues::Index);
    checked.map_err(|error| file.error_in_block(error, footer.root.offset))?;
    Ok(root)
}

fn read_properties(file: &TableFile, footer: &Footer, tail: &Tail) -> Result<Properties> {
    let at = footer.properties.offset;
    let payload = tail.block(file, footer.properties, BlockKind::Properties)?;
    let properties = Properties::decode(&payload).map_err(|error| file.error_in_block(error, at))?;
    let first = properties.filters.first().map_or((0, 0), |filter| (filter.offset, filter.len));
    let own = (properties.entries, properties.index_depth, properties.filters.len() as u64, first);
    let expected = (footer.entries, footer.index_depth, u64::from(footer.filters), footer.filter);
    if own != expected {
        let detail =
            format!("the footer has (entries, depth, filters, first) {expected:?}, the properties {own:?}");
        return Err(file.corrupt(at, "properties", detail));
    }
    Ok(properties)
}

const TABLE_BYTES: usize = 2048;

const TAIL_BYTES: u64 = 4096;
